// SPDX-License-Identifier: GPL-2.0

#include <net/sock.h>

#ifdef CONFIG_NET

__rust_helper void rust_helper_sock_hold(struct sock *sk)
{
	sock_hold(sk);
}

__rust_helper struct net *rust_helper_sock_net(const struct sock *sk)
{
	return sock_net(sk);
}

__rust_helper void rust_helper_sock_put(struct sock *sk)
{
	sock_put(sk);
}

__rust_helper int rust_helper_sock_rcvlowat(const struct sock *sk,
					    int waitall, int len)
{
	return sock_rcvlowat(sk, waitall, len);
}

__rust_helper void rust_helper_sock_replace_proto(struct sock *sk,
						  struct proto *proto)
{
	sock_replace_proto(sk, proto);
}

#endif
