// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel half of vsock-redirect: one "lane" moves what one socket receives
 * to another socket.  The few definitions of the BPF ABI that are needed are
 * written out here, so that the build needs clang and nothing else.
 *
 * Nothing here looks at skb->sk: kernels exist in which a vsock packet has none.
 */

typedef unsigned int u32;
typedef unsigned long long u64;

enum { MAP_TYPE_ARRAY = 2, MAP_TYPE_SOCKMAP = 15, MAP_MMAPABLE = 1 << 10 };
enum { SK_DROP, SK_PASS };

/* Only the first field of the context is used. */
struct __sk_buff {
	u32 len;
};

#define SEC(name) __attribute__((section(name), used))
#define UINT(name, value) int (*name)[value]

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_sk_redirect_map)(struct __sk_buff *skb, void *map, u32 key,
				   u64 flags) = (void *)52;

/* Shared with user space, which maps it (src/redirect/ has the same layout). */
struct shared {
	u64 bytes;	/* sent on to the target */
	u64 packets;	/* the same in packets */
	u64 passed;	/* bytes left to the program that owns the source */
	u64 taken;	/* written by user space: how many of those it has taken */
};

struct {
	UINT(type, MAP_TYPE_ARRAY);
	UINT(map_flags, MAP_MMAPABLE);
	UINT(max_entries, 1);
	u32 *key;
	struct shared *value;
} shared SEC(".maps");

/* The socket to receive from: forward() is attached to this map. */
struct {
	UINT(type, MAP_TYPE_SOCKMAP);
	UINT(max_entries, 1);
	u32 *key;
	u32 *value;
} source SEC(".maps");

/* One end of the tool's own socket pair: inject() is attached to this map. */
struct {
	UINT(type, MAP_TYPE_SOCKMAP);
	UINT(max_entries, 1);
	u32 *key;
	u32 *value;
} injector SEC(".maps");

/* The socket to send to. */
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

	/* An empty datagram adds nothing to a byte stream, and some kernels end
	 * a redirect at an empty packet.
	 */
	if (!s || !len)
		return SK_DROP;

	/* As long as user space has not taken all that was left to it, what
	 * follows must take the same way, or it would overtake.
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
