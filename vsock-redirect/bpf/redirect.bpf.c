// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel half of vsock-redirect: a redirect sends each packet that one
 * socket receives to another socket.
 *
 * This file defines the few parts of the BPF ABI that it needs, so that the
 * build needs only clang.  No program reads skb->sk, because a vsock packet has
 * no socket there in some kernels.
 */

typedef unsigned int u32;
typedef unsigned long long u64;

enum { MAP_TYPE_ARRAY = 2, MAP_TYPE_SOCKMAP = 15, MAP_MMAPABLE = 1 << 10 };
enum { SK_DROP, SK_PASS };

/* The start of the context: no program reads further fields. */
struct __sk_buff {
	u32 len;
};

#define SEC(name) __attribute__((section(name), used))
#define UINT(name, value) int (*name)[value]

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_sk_redirect_map)(struct __sk_buff *skb, void *map, u32 key,
				   u64 flags) = (void *)52;

/* User space maps this. src/redirect/shared.rs has the same layout. */
struct shared {
	u64 bytes;	/* redirected to the target */
	u64 packets;	/* redirected to the target */
	u64 passed;	/* bytes passed to the owner of the source */
	u64 taken;	/* passed bytes that user space has taken; it writes this */
};

struct {
	UINT(type, MAP_TYPE_ARRAY);
	UINT(map_flags, MAP_MMAPABLE);
	UINT(max_entries, 1);
	u32 *key;
	struct shared *value;
} shared SEC(".maps");

/* The source. forward() is attached to this map. */
struct {
	UINT(type, MAP_TYPE_SOCKMAP);
	UINT(max_entries, 1);
	u32 *key;
	u32 *value;
} source SEC(".maps");

/* One end of the tool's own socket pair. inject() is attached to this map. */
struct {
	UINT(type, MAP_TYPE_SOCKMAP);
	UINT(max_entries, 1);
	u32 *key;
	u32 *value;
} injector SEC(".maps");

/* The target. */
struct {
	UINT(type, MAP_TYPE_SOCKMAP);
	UINT(max_entries, 1);
	u32 *key;
	u32 *value;
} target SEC(".maps");

SEC("sk_skb/stream_verdict")
int forward(struct __sk_buff *skb)
{
	u32 zero = 0;
	u64 len = skb->len;
	struct shared *s = bpf_map_lookup_elem(&shared, &zero);

	/* Some kernels end a redirect at an empty packet. An empty datagram
	 * adds nothing to a byte stream, so drop it.
	 */
	if (!s || !len)
		return SK_DROP;

	/* While user space has not taken all passed bytes, pass the next ones
	 * too. If they were redirected, they would overtake.
	 */
	if (*(volatile u64 *)&s->passed == *(volatile u64 *)&s->taken &&
	    bpf_sk_redirect_map(skb, &target, 0, 0) == SK_PASS) {
		__sync_fetch_and_add(&s->bytes, len);
		__sync_fetch_and_add(&s->packets, 1);
		return SK_PASS;
	}

	__sync_fetch_and_add(&s->passed, len);
	return SK_PASS;
}

SEC("sk_skb/stream_verdict")
int inject(struct __sk_buff *skb)
{
	return bpf_sk_redirect_map(skb, &target, 0, 0);
}

char _license[] SEC("license") = "GPL";
