// SPDX-License-Identifier: GPL-2.0
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} source SEC(".maps"), target SEC(".maps");

/* Runs on each packet that the socket in "source" receives */
SEC("sk_skb/verdict")
int redirect(struct __sk_buff *skb)
{
	return bpf_sk_redirect_map(skb, &target, 0, 0);
}

char LICENSE[] SEC("license") = "GPL";
