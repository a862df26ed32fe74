// SPDX-License-Identifier: GPL-2.0
/*
 * The end of a stream. The owner of a vsock socket in a sockmap sees the end
 * after all data, and the end wakes a reader that sleeps. A target that is shut
 * down sends the data that was redirected to it, and then its end.
 */

#include "vsock_sockmap_helpers.h"
#include "test_vsock_sockmap.skel.h"

/* The reader gets all data, then the end of file each time that it asks */
static void test_eof_after_data(const struct subtest_args *args)
{
	struct fixture f;
	char c;
	int i;

	if (!rust_only() || !setup_in_map(&f, args->sotype, args->action))
		return;

	xsend(f.writer, hello, sizeof(hello), 0);
	if (args->arg == LATER_CLOSE)
		xclose(take_fd(f.writer));
	else
		ASSERT_OK(shutdown(f.writer, SHUT_WR), "shutdown");

	expect_record(f.reader, hello, sizeof(hello));
	for (i = 0; i < 2; i++)
		ASSERT_EQ(recv_timeout(f.reader, &c, 1, MSG_DONTWAIT,
				       LIMIT_SEC), 0, "end of file");

	teardown_pair(&f);
}

/* A reader that sleeps wakes up for the end of file */
static void test_eof_wakes_reader(const struct subtest_args *args)
{
	struct later l = { .what = args->arg };
	struct fixture f;
	ssize_t n;
	char c;

	if (!rust_only() || !setup_in_map(&f, SOCK_STREAM, args->action))
		return;

	l.fd = f.writer;
	if (!start_later(&l))
		goto out;

	n = recv_alarm(f.reader, &c, 1, LIMIT_SEC * 1000);
	ASSERT_EQ(n, 0, "end of file");
	join_later(&l);
	if (args->arg == LATER_CLOSE)
		f.writer = -1;
out:
	teardown_pair(&f);
}

/* Reads what is left, up to the end */
static void expect_end(int fd)
{
	static char buf[FILL_LEN];
	ssize_t n;

	do {
		n = recv_timeout(fd, buf, sizeof(buf), MSG_DONTWAIT, LIMIT_SEC);
	} while (n > 0);
	ASSERT_EQ(n, 0, "end");
}

/*
 * A target is shut down for sending while it stalls. It sends the data that was
 * redirected to it, then its end. If the target leaves the map, the rest of the
 * data is dropped, but the target still sends its end.
 */
static void test_end_in_order(const struct subtest_args *args)
{
	const struct redir *r = args->redir;
	struct test_vsock_sockmap *skel;
	int in[2], out[2], target;
	size_t sent;
	char c;

	skel = setup_stall(r, in, out, &sent);
	if (!skel)
		return;

	ASSERT_OK(shutdown(in[1], SHUT_WR), "shutdown of the source's peer");
	if (ASSERT_OK(poll_read(in[0], LIMIT_SEC), "poll") &&
	    ASSERT_EQ(recv(in[0], &c, 1, MSG_DONTWAIT), 0, "end of the source"))
		ASSERT_OK(shutdown(out[0], SHUT_WR), "shutdown of the target");

	target = bpf_map__fd(skel->maps.target);
	if (args->arg) {
		xbpf_map_delete_elem(target, &u32(0));
		expect_end(out[1]);
	} else if (read_sequence(out[1], 0, sent)) {
		expect_end(out[1]);
	}
	teardown_redir(skel, in, out);
}

/* A shutdown for sending ends redirects to egress, but not to ingress */
static void test_end_of_egress_only(const struct subtest_args *args)
{
	struct test_vsock_sockmap *skel;
	int in[2], out[2];
	size_t sent;

	skel = setup_stall(&vsock_to_unix, in, out, &sent);
	if (!skel)
		return;

	ASSERT_OK(shutdown(out[0], SHUT_WR), "shutdown of the target");
	if (!read_sequence(out[1], 0, sent / 2))
		goto out;
	skel->bss->redirect_flags = BPF_F_INGRESS;
	xsend(in[1], hello, sizeof(hello), 0);
	read_sequence(out[1], sent / 2, sent - sent / 2);
	expect_end(out[1]);
	expect_bytes(out[0], hello, sizeof(hello));
out:
	teardown_redir(skel, in, out);
}

static const struct subtest subtests[] = {
	{ "end of file after data", test_eof_after_data, ON_BOTH, WITHOUT_DROP,
	  .variant = "close", .arg = LATER_CLOSE },
	{ "end of file after data", test_eof_after_data, ON_BOTH, WITHOUT_DROP,
	  .variant = "shutdown", .arg = LATER_SHUTDOWN },
	{ "end of file wakes reader", test_eof_wakes_reader, ON_STREAM,
	  WITHOUT_DROP, .variant = "close", .arg = LATER_CLOSE },
	{ "end of file wakes reader", test_eof_wakes_reader, ON_STREAM,
	  WITHOUT_DROP, .variant = "shutdown", .arg = LATER_SHUTDOWN },
	{ "end in order", test_end_in_order, .redirs = stream_redirs },
	{ "end in order", test_end_in_order, .redirs = stream_redirs,
	  .variant = "leaves the map", .arg = true },
	{ "end in order: not of ingress", test_end_of_egress_only },
};

void test_vsock_sockmap_eof(void)
{
	run_subtests(subtests, ARRAY_SIZE(subtests));
}
