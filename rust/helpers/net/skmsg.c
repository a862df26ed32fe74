// SPDX-License-Identifier: GPL-2.0

#include <linux/skmsg.h>

#ifdef CONFIG_NET_SOCK_MSG

__rust_helper struct sk_psock *rust_helper_sk_psock(const struct sock *sk)
{
	return sk_psock(sk);
}

__rust_helper struct sk_psock *rust_helper_sk_psock_get(struct sock *sk)
{
	return sk_psock_get(sk);
}

__rust_helper void rust_helper_sk_psock_put(struct sock *sk,
					    struct sk_psock *psock)
{
	sk_psock_put(sk, psock);
}

__rust_helper void rust_helper_sk_psock_data_ready(struct sock *sk,
						   struct sk_psock *psock)
{
	sk_psock_data_ready(sk, psock);
}

#endif
