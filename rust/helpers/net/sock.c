// SPDX-License-Identifier: GPL-2.0

#include <net/sock.h>

#ifdef CONFIG_NET

__rust_helper void rust_helper_lock_sock(struct sock *sk)
{
	lock_sock(sk);
}

__rust_helper long rust_helper_sock_rcvtimeo(const struct sock *sk,
					     bool noblock)
{
	return sock_rcvtimeo(sk, noblock);
}

__rust_helper int rust_helper_sock_rcvlowat(const struct sock *sk,
					    int waitall, int len)
{
	return sock_rcvlowat(sk, waitall, len);
}

__rust_helper bool rust_helper_sock_flag(const struct sock *sk,
					 enum sock_flags flag)
{
	return sock_flag(sk, flag);
}

__rust_helper void rust_helper_sock_replace_proto(struct sock *sk,
						  struct proto *proto)
{
	sock_replace_proto(sk, proto);
}

__rust_helper wait_queue_head_t *rust_helper_sk_sleep(struct sock *sk)
{
	return sk_sleep(sk);
}

__rust_helper void rust_helper_sk_set_bit(int nr, struct sock *sk)
{
	sk_set_bit(nr, sk);
}

__rust_helper void rust_helper_sk_clear_bit(int nr, struct sock *sk)
{
	sk_clear_bit(nr, sk);
}

#endif
