// SPDX-License-Identifier: GPL-2.0

#include <linux/skbuff.h>
#include <net/sock.h>

#ifdef CONFIG_NET

__rust_helper struct sk_buff *
rust_helper___skb_dequeue(struct sk_buff_head *list)
{
	return __skb_dequeue(list);
}

__rust_helper struct sk_buff *
rust_helper___skb_dequeue_tail(struct sk_buff_head *list)
{
	return __skb_dequeue_tail(list);
}

__rust_helper void
rust_helper___skb_queue_head_init(struct sk_buff_head *list)
{
	__skb_queue_head_init(list);
}

__rust_helper void rust_helper___skb_queue_head(struct sk_buff_head *list,
						struct sk_buff *skb)
{
	__skb_queue_head(list, skb);
}

__rust_helper void rust_helper___skb_queue_tail(struct sk_buff_head *list,
						struct sk_buff *skb)
{
	__skb_queue_tail(list, skb);
}

__rust_helper void rust_helper_kfree_skb(struct sk_buff *skb)
{
	kfree_skb(skb);
}

__rust_helper void *rust_helper_pskb_pull(struct sk_buff *skb,
					  unsigned int len)
{
	return pskb_pull(skb, len);
}

__rust_helper unsigned int rust_helper_skb_headroom(const struct sk_buff *skb)
{
	return skb_headroom(skb);
}

__rust_helper int rust_helper_skb_cloned(const struct sk_buff *skb)
{
	return skb_cloned(skb);
}

__rust_helper bool rust_helper_skb_set_owner_sk_safe(struct sk_buff *skb,
						     struct sock *sk)
{
	return skb_set_owner_sk_safe(skb, sk);
}

#endif
