// SPDX-License-Identifier: GPL-2.0
/*
 * Verdicts on what a vsock socket receives: each packet of a stream gets one,
 * and each record gets one as a whole. Data that was queued before the socket
 * entered the map gets one too. A verdict stays valid when the socket leaves
 * the map.
 */

#include "vsock_sockmap_helpers.h"
#include "test_vsock_sockmap.skel.h"

/* How many packets are queued when a socket enters the map */
#define QUEUED_COUNT	5

/* More small packets than the buffer has room for, with their overhead */
#define SMALL_BUFFER	4096
#define SMALL_LEN	200
#define SMALL_COUNT	16

/* What the verdict passes arrives, once */
static void test_pass(const struct subtest_args *args)
{
	struct fixture f;

	if (!setup_in_map(&f, args->sotype, PASS))
		return;

	xsend(f.writer, hello, sizeof(hello), 0);
	expect_record(f.reader, hello, sizeof(hello));
	ASSERT_EQ(f.skel->bss->passed, sizeof(hello), "bytes passed");
	expect_errno(f.reader, MSG_DONTWAIT, EAGAIN, "once only");

	teardown_pair(&f);
}

/* What the verdict drops does not arrive, but the next packet does */
static void test_drop(const struct subtest_args *args)
{
	struct fixture f;

	if (!setup_in_map(&f, args->sotype, DROP))
		return;

	xsend(f.writer, "dropped", 7, 0);
	expect_count(&f.skel->bss->dropped, 7, "bytes dropped");
	expect_errno(f.reader, MSG_DONTWAIT, EAGAIN, "dropped");

	f.skel->data->verdict = SK_PASS;
	xsend(f.writer, hello, sizeof(hello), 0);
	expect_record(f.reader, hello, sizeof(hello));

	teardown_pair(&f);
}

/* The verdict sees only what the owner has not read yet, and sees it once */
static void test_partly_read(const struct subtest_args *args)
{
	static const char digits[] = "0123456789";
	struct fixture f;

	if (!rust_only() || !setup_pair(&f, SOCK_STREAM, PASS))
		return;

	xsend(f.writer, digits, 10, 0);
	if (!expect_bytes(f.reader, "0123", 4) || !enter_map(&f))
		goto out;

	ASSERT_EQ(f.skel->bss->passed, 6, "bytes passed at the insert");
	xsend(f.writer, "abc", 3, 0);
	expect_count(&f.skel->bss->passed, 9, "bytes passed");
	expect_bytes(f.reader, "456789abc", 9);
	expect_errno(f.reader, MSG_DONTWAIT, EAGAIN, "once only");
out:
	teardown_pair(&f);
}

/* All that was queued before the insert gets its verdict during the insert */
static void test_queued(const struct subtest_args *args)
{
	struct fixture f;
	int i;

	if (!rust_only() || !setup_pair(&f, args->sotype, args->action))
		return;

	for (i = 0; i < QUEUED_COUNT; i++)
		xsend(f.writer, hello, sizeof(hello), 0);
	if (!wait_inq(f.reader, QUEUED_COUNT * sizeof(hello)) || !enter_map(&f))
		goto out;

	if (args->action == PASS) {
		ASSERT_EQ(f.skel->bss->passed, QUEUED_COUNT * sizeof(hello),
			  "bytes passed");
		for (i = 0; i < QUEUED_COUNT; i++)
			expect_bytes(f.reader, hello, sizeof(hello));
	} else {
		ASSERT_EQ(f.skel->bss->dropped, QUEUED_COUNT * sizeof(hello),
			  "bytes dropped");
	}
	expect_errno(f.reader, MSG_DONTWAIT, EAGAIN, "once only");
out:
	teardown_pair(&f);
}

/* Queued data reaches the target, even if no other packet follows */
static void test_queued_redirect(const struct subtest_args *args)
{
	enum { COUNT = 500, LEN = 129 };
	struct test_vsock_sockmap *skel;
	int in[2], out[2], source, i;
	char *buf;

	if (!rust_only())
		return;

	skel = setup_redir(&vsock_to_unix, in, out);
	if (!skel)
		return;

	buf = new_sequence(COUNT * LEN);
	source = bpf_map__fd(skel->maps.source);
	if (!buf || xbpf_map_delete_elem(source, &u32(0)))
		goto out;

	for (i = 0; i < COUNT; i++)
		xsend(in[1], buf + i * LEN, LEN, 0);
	if (wait_inq(in[0], COUNT * LEN) &&
	    !xbpf_map_update_elem(source, &u32(0), &u64(in[0]), BPF_NOEXIST))
		expect_bytes(out[1], buf, COUNT * LEN);
out:
	free(buf);
	teardown_redir(skel, in, out);
}

/* A packet that is merged from several queued ones still has a socket */
static void test_collapsed(const struct subtest_args *args)
{
	char buf[SMALL_LEN] = {};
	struct fixture f;
	int i;

	if (!rust_only() || !setup_pair(&f, SOCK_STREAM, PASS))
		return;

	f.skel->bss->look_at_socket = true;
	if (!set_vsock_buffer(f.reader, SMALL_BUFFER))
		goto out;

	for (i = 0; i < SMALL_COUNT; i++)
		xsend(f.writer, buf, sizeof(buf), 0);
	if (!wait_inq(f.reader, SMALL_COUNT * sizeof(buf)) || !enter_map(&f))
		goto out;

	xsend(f.writer, buf, sizeof(buf), 0);
	expect_count(&f.skel->bss->passed, (SMALL_COUNT + 1) * sizeof(buf),
		     "bytes passed");
	ASSERT_EQ(f.skel->bss->not_vsock, 0, "packets without a socket");
out:
	teardown_pair(&f);
}

/* The verdict also runs on less data than SO_RCVLOWAT */
static void test_rcvlowat(const struct subtest_args *args)
{
	int lowat = 100;
	struct fixture f;

	if (!rust_only() || !setup_in_map(&f, SOCK_STREAM, PASS))
		return;

	xsetsockopt(f.reader, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof(lowat));
	xsend(f.writer, hello, sizeof(hello), 0);
	expect_count(&f.skel->bss->passed, sizeof(hello), "bytes passed");
	teardown_pair(&f);
}

/* A record gets one verdict, however many packets it comes in */
static void test_whole_record(const struct subtest_args *args)
{
	enum { MAX_PACKET = 65536, LEN = 2 * MAX_PACKET + 333 };
	char *buf, *got;
	struct fixture f;
	ssize_t n = -1;

	if (!rust_only() || !setup_in_map(&f, SOCK_SEQPACKET, args->action))
		return;

	buf = new_sequence(LEN);
	got = malloc(LEN);
	if (!buf || !ASSERT_OK_PTR(got, "malloc"))
		goto out;

	xsend(f.writer, buf, LEN, 0);
	expect_count(&f.skel->bss->verdicts, 1, "verdicts");
	ASSERT_EQ(f.skel->bss->longest, LEN, "bytes in one verdict");

	if (args->action == PASS) {
		n = recv(f.reader, got, LEN, MSG_DONTWAIT);
		if (ASSERT_EQ(n, LEN, "recv"))
			ASSERT_OK(memcmp(got, buf, LEN), "payload");
	}
	f.skel->data->verdict = SK_PASS;
	xsend(f.writer, hello, sizeof(hello), 0);
	expect_record(f.reader, hello, sizeof(hello));
	expect_errno(f.reader, MSG_DONTWAIT, EAGAIN, "once only");
out:
	free(buf);
	free(got);
	teardown_pair(&f);
}

enum leave {
	LEAVE_DELETE,
	LEAVE_DETACH,
	LEAVE_CLOSE,
};

/* The socket leaves the map and enters it again: no second verdict */
static void leave_and_return(struct fixture *f, int map)
{
	xbpf_map_delete_elem(map, &u32(0));
	xsend(f->writer, "more", 4, 0);
	if (!wait_inq(f->reader, sizeof(hello) + 4) || !enter_map(f))
		return;

	ASSERT_EQ(f->skel->bss->passed, sizeof(hello) + 4, "passed once");
	expect_bytes(f->reader, hello, sizeof(hello));
	expect_bytes(f->reader, "more", 4);
}

/* What was passed belongs to the owner, in the map or not */
static void test_leave(const struct subtest_args *args)
{
	struct fixture f;
	int map, prog;

	if (args->arg == LEAVE_DELETE && !rust_only())
		return;
	if (!setup_in_map(&f, args->sotype, PASS))
		return;

	map = bpf_map__fd(f.skel->maps.source);
	prog = bpf_program__fd(f.skel->progs.prog_skb_verdict);
	xsend(f.writer, hello, sizeof(hello), 0);
	expect_count(&f.skel->bss->passed, sizeof(hello), "bytes passed");

	switch (args->arg) {
	case LEAVE_DELETE:
		leave_and_return(&f, map);
		goto out;
	case LEAVE_DETACH:
		xbpf_prog_detach2(prog, map, BPF_SK_SKB_VERDICT);
		break;
	case LEAVE_CLOSE:
		test_vsock_sockmap__destroy(f.skel);
		f.skel = NULL;
		break;
	}

	expect_record(f.reader, hello, sizeof(hello));
	xsend(f.writer, "more", 4, 0);
	expect_record(f.reader, "more", 4);
out:
	teardown_pair(&f);
}

/* A program may change a packet and its length; its credit stays the same */
static void change_packets(int sotype, int head, int tail)
{
	enum { COUNT = 40, LEN = 4000 };
	char buf[2 * LEN], want[LEN];
	struct fixture f;
	ssize_t n, len = LEN + head + tail;
	int i;

	if (!setup_in_map(&f, sotype, PASS))
		return;

	f.skel->bss->change_head = head;
	f.skel->bss->change_tail = tail;
	memset(want, 'x', sizeof(want));
	/* A small buffer, used several times over */
	set_vsock_buffer(f.reader, 16384);
	for (i = 0; i < COUNT; i++) {
		settimeo(f.writer, LIMIT_SEC * 1000);
		xsend(f.writer, want, LEN, 0);
		n = recv_timeout(f.reader, buf, len, MSG_DONTWAIT, LIMIT_SEC);
		if (!ASSERT_EQ(n, len, "recv") ||
		    !ASSERT_MEMEQ(buf + head, want, len - head, "payload"))
			break;
	}
	teardown_pair(&f);
}

static void test_longer(const struct subtest_args *args)
{
	change_packets(args->sotype, 100, 0);
}

static void test_shorter(const struct subtest_args *args)
{
	change_packets(args->sotype, 0, -1000);
}

static const struct subtest subtests[] = {
	{ "verdict", test_pass, ON_BOTH, WITH_PASS },
	{ "verdict", test_drop, ON_BOTH, WITH_DROP },
	{ "partly read before", test_partly_read, ON_STREAM, WITH_PASS },
	{ "queued before", test_queued, ON_BOTH, WITH_PASS | WITH_DROP },
	{ "queued before: vsock stream to unix stream", test_queued_redirect },
	{ "collapsed", test_collapsed, ON_STREAM, WITH_PASS },
	{ "SO_RCVLOWAT", test_rcvlowat, ON_STREAM, WITH_PASS },
	{ "whole record", test_whole_record, ON_SEQPACKET,
	  WITH_PASS | WITH_DROP },
	{ "leave the map", test_leave, ON_BOTH, WITH_PASS,
	  .variant = "delete", .arg = LEAVE_DELETE },
	{ "leave the map", test_leave, ON_BOTH, WITH_PASS,
	  .variant = "detach", .arg = LEAVE_DETACH },
	{ "leave the map", test_leave, ON_BOTH, WITH_PASS,
	  .variant = "close map", .arg = LEAVE_CLOSE },
	{ "changed", test_longer, ON_BOTH, WITH_PASS,
	  .variant = "longer at the front" },
	{ "changed", test_shorter, ON_BOTH, WITH_PASS,
	  .variant = "shorter at the end" },
};

void test_vsock_sockmap_verdict(void)
{
	run_subtests(subtests, ARRAY_SIZE(subtests));
}
