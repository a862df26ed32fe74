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

__rust_helper int rust_helper_skb_cloned(const struct sk_buff *skb)
{
	return skb_cloned(skb);
}

__rust_helper void *rust_helper_skb_frag_address(const skb_frag_t *frag)
{
	return skb_frag_address(frag);
}

__rust_helper unsigned int rust_helper_skb_frag_off(const skb_frag_t *frag)
{
	return skb_frag_off(frag);
}

__rust_helper struct page *rust_helper_skb_frag_page(const skb_frag_t *frag)
{
	return skb_frag_page(frag);
}

__rust_helper unsigned int rust_helper_skb_frag_size(const skb_frag_t *frag)
{
	return skb_frag_size(frag);
}

__rust_helper bool rust_helper_skb_frags_readable(const struct sk_buff *skb)
{
	return skb_frags_readable(skb);
}

__rust_helper unsigned int rust_helper_skb_headroom(const struct sk_buff *skb)
{
	return skb_headroom(skb);
}

__rust_helper void rust_helper_skb_len_add(struct sk_buff *skb, int delta)
{
	skb_len_add(skb, delta);
}

__rust_helper void rust_helper_skb_orphan(struct sk_buff *skb)
{
	skb_orphan(skb);
}

__rust_helper void rust_helper_skb_reserve(struct sk_buff *skb, int len)
{
	skb_reserve(skb, len);
}

__rust_helper bool rust_helper_skb_set_owner_sk_safe(struct sk_buff *skb,
						     struct sock *sk)
{
	return skb_set_owner_sk_safe(skb, sk);
}

__rust_helper struct skb_shared_info *
rust_helper_skb_shinfo(const struct sk_buff *skb)
{
	return skb_shinfo(skb);
}

__rust_helper struct ubuf_info *rust_helper_skb_zcopy(struct sk_buff *skb)
{
	return skb_zcopy(skb);
}

#endif
