// SPDX-License-Identifier: GPL-2.0

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#define AF_VSOCK	40

struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} source SEC(".maps"), target SEC(".maps");

/* Set by user space */
bool redirect;
int redirect_flags;
__u32 target_key;
int verdict = SK_PASS;
bool look_at_socket;
int change_head, change_tail;

/* How often the program ran, and the length of the longest packet it saw */
__u64 verdicts, longest;

/* Bytes so far: passed or redirected, and dropped */
__u64 passed, dropped;

/* Packets whose socket is not a vsock socket */
__u64 not_vsock;

SEC("sk_skb/verdict")
int prog_skb_verdict(struct __sk_buff *skb)
{
	int ret = verdict;

	if (look_at_socket && skb->family != AF_VSOCK)
		__sync_fetch_and_add(&not_vsock, 1);

	if (skb->len > longest)
		longest = skb->len;
	__sync_fetch_and_add(&verdicts, 1);
	if (change_head && bpf_skb_change_head(skb, change_head, 0))
		ret = SK_DROP;
	if (change_tail && bpf_skb_change_tail(skb, skb->len + change_tail, 0))
		ret = SK_DROP;

	if (redirect)
		ret = bpf_sk_redirect_map(skb, &target, target_key,
					  redirect_flags);

	if (ret == SK_PASS)
		__sync_fetch_and_add(&passed, skb->len);
	else
		__sync_fetch_and_add(&dropped, skb->len);

	return ret;
}

char _license[] SEC("license") = "GPL";
