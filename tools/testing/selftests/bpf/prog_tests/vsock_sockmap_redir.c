// SPDX-License-Identifier: GPL-2.0
/*
 * Redirects between vsock and other sockets. All bytes arrive once and in
 * order, and a record stays a record. A redirect does not wait for an owner or
 * another target that does not read.
 */

#include <linux/sock_diag.h>
#include <linux/vm_sockets.h>

#include "vsock_sockmap_helpers.h"
#include "test_vsock_sockmap.skel.h"

/* A bulk redirect: this many bytes, in pieces of this size */
#define BULK_LEN	(1024 * 1024)
#define BULK_CHUNK	4096

/* These redirects also run with 1 MiB of data */
static const struct redir unix_to_vsock[] = {
	{ "unix dgram to vsock stream: egress",
	  AF_UNIX, SOCK_DGRAM, AF_VSOCK, SOCK_STREAM, TO_EGRESS },
	{ "unix stream to vsock stream: egress",
	  AF_UNIX, SOCK_STREAM, AF_VSOCK, SOCK_STREAM, TO_EGRESS },
	{}
};

static const struct redir other_redirs[] = {
	{ "unix dgram to vsock seqpacket: egress",
	  AF_UNIX, SOCK_DGRAM, AF_VSOCK, SOCK_SEQPACKET, TO_EGRESS },
	{ "unix stream to vsock seqpacket: egress",
	  AF_UNIX, SOCK_STREAM, AF_VSOCK, SOCK_SEQPACKET, TO_EGRESS },
	{ "vsock stream to unix dgram: egress",
	  AF_VSOCK, SOCK_STREAM, AF_UNIX, SOCK_DGRAM, TO_EGRESS },
	{ "vsock stream to unix stream: egress",
	  AF_VSOCK, SOCK_STREAM, AF_UNIX, SOCK_STREAM, TO_EGRESS },
	{ "vsock seqpacket to unix dgram: egress",
	  AF_VSOCK, SOCK_SEQPACKET, AF_UNIX, SOCK_DGRAM, TO_EGRESS },
	{ "vsock seqpacket to unix stream: egress",
	  AF_VSOCK, SOCK_SEQPACKET, AF_UNIX, SOCK_STREAM, TO_EGRESS },
	{ "vsock stream to unix dgram: ingress",
	  AF_VSOCK, SOCK_STREAM, AF_UNIX, SOCK_DGRAM, TO_INGRESS },
	{ "vsock stream to unix stream: ingress",
	  AF_VSOCK, SOCK_STREAM, AF_UNIX, SOCK_STREAM, TO_INGRESS },
	{ "vsock seqpacket to unix dgram: ingress",
	  AF_VSOCK, SOCK_SEQPACKET, AF_UNIX, SOCK_DGRAM, TO_INGRESS },
	{ "vsock seqpacket to unix stream: ingress",
	  AF_VSOCK, SOCK_SEQPACKET, AF_UNIX, SOCK_STREAM, TO_INGRESS },
	{ "vsock stream to vsock stream: egress",
	  AF_VSOCK, SOCK_STREAM, AF_VSOCK, SOCK_STREAM, TO_EGRESS },
	{}
};

static const struct redir records[] = {
	{ "unix dgram to vsock",
	  AF_UNIX, SOCK_DGRAM, AF_VSOCK, SOCK_SEQPACKET, TO_EGRESS },
	{ "vsock to unix dgram",
	  AF_VSOCK, SOCK_SEQPACKET, AF_UNIX, SOCK_DGRAM, TO_EGRESS },
	{ "vsock to vsock",
	  AF_VSOCK, SOCK_SEQPACKET, AF_VSOCK, SOCK_SEQPACKET, TO_EGRESS },
	{}
};

static const struct redir records_to_streams[] = {
	{ "to unix stream",
	  AF_VSOCK, SOCK_SEQPACKET, AF_UNIX, SOCK_STREAM, TO_EGRESS },
	{ "to tcp", AF_VSOCK, SOCK_SEQPACKET, AF_INET, SOCK_STREAM, TO_EGRESS },
	{ "to unix stream, ingress",
	  AF_VSOCK, SOCK_SEQPACKET, AF_UNIX, SOCK_STREAM, TO_INGRESS },
	{ "to tcp, ingress",
	  AF_VSOCK, SOCK_SEQPACKET, AF_INET, SOCK_STREAM, TO_INGRESS },
	{}
};

static const unsigned int record_lens[] = {
	1, 4096, 4097, 16384, 32768, 59000, 65536, 65537, 131072, 200000,
};

static void test_redirect(const struct subtest_args *args)
{
	const struct redir *r = args->redir;
	static const char * const msgs[] = { "one", "three", "fifteen" };
	struct test_vsock_sockmap *skel;
	int in[2], out[2], fd, i;
	char all[64] = "";

	skel = setup_redir(r, in, out);
	if (!skel)
		return;

	for (i = 0; i < ARRAY_SIZE(msgs); i++) {
		xsend(in[1], msgs[i], strlen(msgs[i]), 0);
		strcat(all, msgs[i]);
	}

	fd = redir_reader(r, out);

	/*
	 * An egress redirect sends a record as a record. An ingress redirect
	 * leaves the bytes in the psock of the target, which keeps no records.
	 */
	if (r->action == TO_EGRESS && r->in_sotype != SOCK_STREAM &&
	    r->out_sotype != SOCK_STREAM) {
		for (i = 0; i < ARRAY_SIZE(msgs); i++)
			if (!expect_record(fd, msgs[i], strlen(msgs[i])))
				break;
	} else {
		expect_bytes(fd, all, strlen(all));
	}

	ASSERT_EQ(skel->bss->passed, strlen(all), "bytes redirected");
	expect_errno(fd, MSG_DONTWAIT, EAGAIN, "once only");

	teardown_redir(skel, in, out);
}

struct sender {
	pthread_t thread;
	const char *buf;
	int fd;
};

static void *send_bulk(void *arg)
{
	struct sender *s = arg;
	size_t off;

	for (off = 0; off < BULK_LEN; off += BULK_CHUNK)
		if (send(s->fd, s->buf + off, BULK_CHUNK, 0) != BULK_CHUNK)
			return (void *)-1L;

	return NULL;
}

static bool start_sending(struct sender *s, int fd, const char *buf,
			  void *(*how)(void *))
{
	settimeo(fd, LIMIT_SEC * 1000);
	s->buf = buf;
	s->fd = fd;
	return !xpthread_create(&s->thread, NULL, how, s);
}

static void join_sender(struct sender *s)
{
	void *ret;

	if (!xpthread_join(s->thread, &ret))
		ASSERT_NULL(ret, "send all");
}

/* Sends more than the socket buffers hold, so that the sender has to wait */
static void test_redirect_bulk(const struct subtest_args *args)
{
	const struct redir *r = args->redir;
	struct test_vsock_sockmap *skel;
	int in[2], out[2];
	struct sender sender;
	char *buf;

	buf = new_sequence(BULK_LEN);
	if (!buf)
		return;

	skel = setup_redir(r, in, out);
	if (!skel)
		goto out;

	if (!start_sending(&sender, in[1], buf, send_bulk))
		goto close;

	expect_bytes(out[1], buf, BULK_LEN);
	join_sender(&sender);
close:
	teardown_redir(skel, in, out);
out:
	free(buf);
}

/*
 * The owner does not read a packet that was passed to it. A redirect can use
 * the rest of the credit.
 */
static void test_redirect_beside_owner(const struct subtest_args *args)
{
	enum { COUNT = 4 };
	struct test_vsock_sockmap *skel;
	int in[2], out[2], i;
	char *buf;

	skel = setup_redir(&vsock_to_unix, in, out);
	if (!skel)
		return;

	buf = calloc(1, BUF_SIZE);
	if (!ASSERT_OK_PTR(buf, "calloc") ||
	    !set_vsock_buffer(in[0], COUNT * BUF_SIZE))
		goto out;

	settimeo(in[1], LIMIT_SEC * 1000);
	skel->bss->redirect = false;
	xsend(in[1], buf, BUF_SIZE, 0);
	expect_count_within(&skel->bss->passed, BUF_SIZE, AT_ONCE_MS,
			    "passed");
	skel->bss->redirect = true;
	for (i = 0; i < COUNT; i++) {
		if (!ASSERT_EQ(send(in[1], buf, BUF_SIZE, 0), BUF_SIZE,
			       "send") ||
		    !expect_bytes(out[1], buf, BUF_SIZE))
			goto out;
	}
	expect_bytes(in[0], buf, BUF_SIZE);
out:
	free(buf);
	teardown_redir(skel, in, out);
}

/*
 * A target that does not read holds some credit of the source. A redirect to
 * another target can use the rest.
 */
static void test_redirect_beside_stalled(const struct subtest_args *args)
{
	enum { COUNT = 4 };
	struct test_vsock_sockmap *skel;
	int in[2], out[2], other[2] = { -1, -1 }, i;
	char *buf;

	skel = setup_redir(&vsock_to_unix, in, out);
	if (!skel)
		return;

	buf = calloc(1, BUF_SIZE);
	if (!ASSERT_OK_PTR(buf, "calloc") ||
	    !set_vsock_buffer(in[0], COUNT * BUF_SIZE) ||
	    create_pair(AF_UNIX, SOCK_STREAM, &other[0], &other[1]) ||
	    xbpf_map_update_elem(bpf_map__fd(skel->maps.target), &u32(1),
				 &u64(other[0]), BPF_NOEXIST))
		goto out;

	settimeo(in[1], LIMIT_SEC * 1000);
	send_until_full(out[0], 0);
	xsend(in[1], buf, BUF_SIZE, 0);
	expect_count_within(&skel->bss->passed, BUF_SIZE, AT_ONCE_MS,
			    "redirected");
	skel->bss->target_key = 1;
	for (i = 0; i < 2 * COUNT; i++) {
		if (!ASSERT_EQ(send(in[1], buf, BUF_SIZE, 0), BUF_SIZE,
			       "send") ||
		    !expect_bytes(other[1], buf, BUF_SIZE))
			break;
	}
out:
	free(buf);
	close_fd(&other[0]);
	close_fd(&other[1]);
	teardown_redir(skel, in, out);
}

/*
 * TCP sends the second of two small writes only after the ACK of the first. The
 * source of the redirect must send that ACK without delay.
 */
static void test_redirect_prompt(const struct subtest_args *args)
{
	enum { COUNT = 50, PAIR_MS = 20 };
	const struct redir r = {
		.in_family = AF_INET, .in_sotype = SOCK_STREAM,
		.out_family = AF_UNIX, .out_sotype = SOCK_STREAM,
		.action = TO_EGRESS,
	};
	struct test_vsock_sockmap *skel;
	int in[2], out[2], i;
	u64 start;

	skel = setup_redir(&r, in, out);
	if (!skel)
		return;

	start = get_time_ns();
	for (i = 0; i < COUNT; i++) {
		xsend(in[1], "1", 1, 0);
		xsend(in[1], "2", 1, 0);
		if (!expect_bytes(out[1], "12", 2))
			break;
	}
	ASSERT_LT(elapsed_ms(start), COUNT * PAIR_MS, "time, ms");
	teardown_redir(skel, in, out);
}

/* An empty datagram among others does not end the redirect */
static void test_redirect_empty(const struct subtest_args *args)
{
	struct test_vsock_sockmap *skel;
	int in[2], out[2];

	if (!rust_only())
		return;

	skel = setup_redir(&unix_dgram_to_vsock, in, out);
	if (!skel)
		return;

	xsend(in[1], "a", 1, 0);
	ASSERT_EQ(send(in[1], "", 0, 0), 0, "empty");
	xsend(in[1], "b", 1, 0);
	expect_bytes(out[1], "ab", 2);
	teardown_redir(skel, in, out);
}

static void *send_records(void *arg)
{
	struct sender *s = arg;
	int i;

	for (i = 0; i < ARRAY_SIZE(record_lens); i++)
		if (send(s->fd, s->buf + i, record_lens[i], 0) !=
		    record_lens[i])
			return (void *)-1L;

	return NULL;
}

/* poll() reports the first packet of a record, but recv() needs the last one */
static ssize_t recv_record(int fd, char *buf, size_t len)
{
	u64 start = get_time_ns();
	ssize_t n;

	do {
		n = recv_timeout(fd, buf, len, MSG_DONTWAIT, LIMIT_SEC);
	} while (n < 0 && errno == EAGAIN &&
		 elapsed_ms(start) < LIMIT_SEC * 1000);

	return n;
}

/* One record in, one record out. The reader waits arg ms before each. */
static void test_records(const struct subtest_args *args)
{
	const struct redir *r = args->redir;
	enum { MAX_LEN = 262144 };
	struct test_vsock_sockmap *skel;
	int in[2], out[2], i;
	char *buf, *got;
	struct sender sender;
	ssize_t n;

	if (!rust_only())
		return;

	buf = new_sequence(MAX_LEN);
	got = malloc(MAX_LEN);
	if (!buf || !ASSERT_OK_PTR(got, "malloc"))
		goto out;

	skel = setup_redir(r, in, out);
	if (!skel)
		goto out;

	if (!start_sending(&sender, in[1], buf, send_records))
		goto close;

	for (i = 0; i < ARRAY_SIZE(record_lens); i++) {
		usleep(args->arg * 1000);
		n = recv_record(out[1], got, MAX_LEN);
		if (!ASSERT_EQ(n, record_lens[i], "length of a record") ||
		    !ASSERT_OK(memcmp(got, buf + i, n), "payload"))
			break;
	}
	join_sender(&sender);
close:
	teardown_redir(skel, in, out);
out:
	free(buf);
	free(got);
}

/* A record of several packets goes to a stream */
static void test_record_to_stream(const struct subtest_args *args)
{
	const struct redir *r = args->redir;
	enum { LEN = 200000 };
	struct test_vsock_sockmap *skel;
	int in[2], out[2];
	char *buf;

	buf = new_sequence(LEN);
	if (!buf)
		return;

	skel = setup_redir(r, in, out);
	if (!skel)
		goto out;
	xsend(in[1], buf, LEN, 0);
	expect_bytes(redir_reader(r, out), buf, LEN);
	teardown_redir(skel, in, out);
out:
	free(buf);
}

/* A record that the target can never take is dropped and counted */
static void test_record_too_large(const struct subtest_args *args)
{
	const struct redir r = {
		.in_family = AF_UNIX, .in_sotype = SOCK_DGRAM,
		.out_family = AF_VSOCK, .out_sotype = SOCK_SEQPACKET,
		.action = TO_EGRESS,
	};
	static const char large[BUF_SIZE + 1];
	struct test_vsock_sockmap *skel;
	u32 meminfo[SK_MEMINFO_VARS];
	socklen_t len = sizeof(meminfo);
	int in[2], out[2];

	if (!rust_only())
		return;

	skel = setup_redir(&r, in, out);
	if (!skel)
		return;

	if (set_vsock_buffer(out[0], BUF_SIZE)) {
		xsend(in[1], "a", 1, 0);
		xsend(in[1], large, sizeof(large), 0);
		xsend(in[1], "b", 1, 0);
		expect_record(out[1], "a", 1);
		expect_record(out[1], "b", 1);
		if (!xgetsockopt(out[0], SOL_SOCKET, SO_MEMINFO, meminfo, &len))
			ASSERT_EQ(meminfo[SK_MEMINFO_DROPS], 1, "drops");
	}
	teardown_redir(skel, in, out);
}

static const struct subtest subtests[] = {
	{ "redirect", test_redirect, .redirs = unix_to_vsock },
	{ "redirect", test_redirect, .redirs = other_redirs },
	{ "redirect 1 MiB", test_redirect_bulk, .redirs = unix_to_vsock },
	{ "redirect beside what the owner has not read",
	  test_redirect_beside_owner },
	{ "redirect beside a target that does not read",
	  test_redirect_beside_stalled },
	{ "redirect small writes of tcp", test_redirect_prompt },
	{ "redirect an empty datagram", test_redirect_empty },
	{ "redirect records", test_records, .redirs = records },
	{ "redirect records", test_records, .redirs = records,
	  .variant = "slow reader", .arg = 20 },
	{ "redirect a large record", test_record_to_stream,
	  .redirs = records_to_streams },
	{ "redirect a record that is too large", test_record_too_large },
};

void test_vsock_sockmap_redir(void)
{
	run_subtests(subtests, ARRAY_SIZE(subtests));
}
