// SPDX-License-Identifier: GPL-2.0
/*
 * What the owner of a vsock socket in a sockmap receives. A recv() that blocks
 * returns when data comes, at its timeout or for a signal, and delays no other
 * socket. The map has no program, or one that passes or drops all.
 */

#include <sys/mman.h>
#include <sys/sendfile.h>

#include "vsock_sockmap_helpers.h"
#include "test_vsock_sockmap.skel.h"

/* A recv() that blocks returns when data comes */
static void test_blocking_recv(const struct subtest_args *args)
{
	char buf[sizeof(hello) + 1];
	struct later l = { .what = LATER_SEND };
	struct fixture f;
	u64 start;
	ssize_t n;

	if (!rust_only() || !setup_in_map(&f, args->sotype, args->action))
		return;

	l.fd = f.writer;
	start = get_time_ns();
	if (!start_later(&l))
		goto out;

	n = recv_alarm(f.reader, buf, sizeof(buf), LIMIT_SEC * 1000);
	if (ASSERT_EQ(n, sizeof(hello), "recv"))
		ASSERT_MEMEQ(buf, hello, sizeof(hello), "payload");
	ASSERT_GE(elapsed_ms(start) + TICK_MS, DELAY_MS, "not before the send");
	ASSERT_LT(elapsed_ms(start), DELAY_MS + AT_ONCE_MS, "at once");
	join_later(&l);
out:
	teardown_pair(&f);
}

static void *read_one_byte(void *arg)
{
	int fd = *(int *)arg;
	char c;

	return (void *)(long)(recv(fd, &c, 1, 0) == 1 ? 0 : errno);
}

/* Sends a message that has to arrive at once */
static bool ping(int from, int to)
{
	u64 start = get_time_ns();

	xsend(from, hello, sizeof(hello), 0);
	return expect_bytes(to, hello, sizeof(hello)) &&
	       ASSERT_LT(elapsed_ms(start), AT_ONCE_MS, "at once");
}

/* A pair in no map is not delayed while a reader sleeps in the map */
static void test_unrelated_pair(const struct subtest_args *args)
{
	pthread_t thread;
	struct fixture f;
	int p0, p1;
	void *err;

	if (!rust_only() || !setup_in_map(&f, SOCK_STREAM, args->action))
		return;

	if (create_pair(AF_VSOCK, SOCK_STREAM, &p0, &p1))
		goto out;

	settimeo(f.reader, 2 * AT_ONCE_MS);
	if (xpthread_create(&thread, NULL, read_one_byte, &f.reader))
		goto close;

	usleep(DELAY_MS * 1000);
	ping(p0, p1);

	/* A packet for the reader must not wait for it either */
	xsend(f.writer, "x", 1, 0);
	ping(p0, p1);
	ping(p1, p0);

	if (!xpthread_join(thread, &err))
		ASSERT_EQ((long)err, args->action == DROP ? EAGAIN : 0,
			  "reader");
close:
	xclose(p0);
	xclose(p1);
out:
	teardown_pair(&f);
}

/* A signal interrupts a recv() that blocks, with and without a timeout */
static void test_interrupted(const struct subtest_args *args)
{
	struct fixture f;
	u64 start;
	ssize_t n;
	char c;

	if (!rust_only() || !setup_in_map(&f, SOCK_STREAM, args->action))
		return;

	if (args->arg)
		settimeo(f.reader, args->arg);
	start = get_time_ns();
	n = recv_alarm(f.reader, &c, 1, DELAY_MS);
	ASSERT_EQ(errno, EINTR, "errno");
	ASSERT_EQ(n, -1, "recv");
	ASSERT_GE(elapsed_ms(start) + TICK_MS, DELAY_MS,
		  "not before the signal");
	ASSERT_LT(elapsed_ms(start), DELAY_MS + AT_ONCE_MS, "at once");

	teardown_pair(&f);
}

static void *send_often(void *arg)
{
	int i, fd = *(int *)arg;

	/* Until well after the timeout of the reader */
	for (i = 0; i < 40; i++) {
		if (send(fd, "x", 1, MSG_DONTWAIT) != 1)
			return (void *)-1L;
		usleep(DELAY_MS * 1000 / 4);
	}

	return NULL;
}

/* Packets that the verdict drops do not prolong the timeout of a reader */
static void test_timeout(const struct subtest_args *args)
{
	pthread_t thread;
	struct fixture f;
	u64 start;
	void *ret;

	if (args->action == DROP && !rust_only())
		return;

	if (!setup_in_map(&f, SOCK_STREAM, args->action))
		return;

	if (args->action == DROP &&
	    xpthread_create(&thread, NULL, send_often, &f.writer))
		goto out;

	settimeo(f.reader, 2 * DELAY_MS);
	start = get_time_ns();
	expect_errno(f.reader, 0, EAGAIN, "recv");
	ASSERT_GE(elapsed_ms(start) + TICK_MS, 2 * DELAY_MS,
		  "not before the timeout");
	ASSERT_LT(elapsed_ms(start), 2 * DELAY_MS + AT_ONCE_MS, "once");

	if (args->action == DROP && !xpthread_join(thread, &ret))
		ASSERT_NULL(ret, "send_often");
out:
	teardown_pair(&f);
}

/* While data is queued: receives of no bytes, of errors, of urgent data */
static void test_not_data(const struct subtest_args *args)
{
	struct fixture f;
	char c;

	if (args->action == PASS && !rust_only())
		return;

	if (!setup_in_map(&f, SOCK_STREAM, args->action))
		return;

	xsend(f.writer, hello, sizeof(hello), 0);
	if (!ASSERT_OK(poll_read(f.reader, LIMIT_SEC), "poll"))
		goto out;

	ASSERT_EQ(recv_alarm(f.reader, &c, 0, LIMIT_SEC * 1000), 0, "recv 0");
	expect_errno(f.reader, MSG_ERRQUEUE | MSG_DONTWAIT, EAGAIN, "ERRQUEUE");
	expect_errno(f.reader, MSG_OOB | MSG_DONTWAIT, EOPNOTSUPP, "OOB");
	expect_record(f.reader, hello, sizeof(hello));
out:
	teardown_pair(&f);
}

/* After shutdown for reading nothing is received, even if data is queued */
static void test_shutdown_rd(const struct subtest_args *args)
{
	struct fixture f;
	char c;

	if (!rust_only() || !setup_in_map(&f, SOCK_STREAM, args->action))
		return;

	xsend(f.writer, hello, sizeof(hello), 0);
	if (!ASSERT_OK(poll_read(f.reader, LIMIT_SEC), "poll"))
		goto out;

	ASSERT_OK(shutdown(f.reader, SHUT_RD), "shutdown");
	ASSERT_EQ(recv_timeout(f.reader, &c, 1, MSG_DONTWAIT, LIMIT_SEC), 0,
		  "recv");
out:
	teardown_pair(&f);
}

struct reader {
	pthread_t thread;
	int fd;
	size_t had;
};

static void *read_until_end(void *arg)
{
	struct reader *r = arg;
	char c;

	while (recv(r->fd, &c, 1, 0) == 1)
		r->had++;
	return NULL;
}

/* Two readers that sleep share what comes, and both see the end */
static void test_two_readers(const struct subtest_args *args)
{
	struct reader readers[2] = {};
	struct fixture f;
	void *ret;
	int i;

	if (!rust_only() || !setup_in_map(&f, SOCK_STREAM, args->action))
		return;

	for (i = 0; i < 2; i++) {
		readers[i].fd = f.reader;
		if (xpthread_create(&readers[i].thread, NULL, read_until_end,
				    &readers[i]))
			goto out;
	}
	for (i = 0; i < 50; i++) {
		usleep(2000);
		xsend(f.writer, hello, sizeof(hello), 0);
	}
	ASSERT_OK(shutdown(f.writer, SHUT_WR), "shutdown");
	for (i = 0; i < 2; i++)
		xpthread_join(readers[i].thread, &ret);
	ASSERT_EQ(readers[0].had + readers[1].had, 50 * sizeof(hello),
		  "bytes read");
out:
	teardown_pair(&f);
}

/*
 * The pages of a file go to the peer without a copy: the peer sees a change
 * that is made to the file before the peer reads.
 */
static void test_sendfile(const struct subtest_args *args)
{
	enum { LEN = 3 * 65536 + 333, FROM = 1000 };
	off_t off = FROM;
	struct fixture f;
	char *buf;
	int file;
	ssize_t n;

	if (args->action == PASS && !rust_only())
		return;
	if (!setup_in_map(&f, SOCK_STREAM, args->action))
		return;

	buf = new_sequence(FROM + LEN);
	file = memfd_create("sendfile", 0);
	if (!buf || !ASSERT_OK_FD(file, "memfd_create"))
		goto out;
	if (!ASSERT_EQ(write(file, buf, FROM + LEN), FROM + LEN, "write"))
		goto out;

	settimeo(f.writer, LIMIT_SEC * 1000);
	while (off < FROM + LEN) {
		n = sendfile(f.writer, file, &off, FROM + LEN - off);
		if (!ASSERT_GT(n, 0, "sendfile"))
			goto out;
	}
	memset(buf + FROM + LEN / 2, 'x', 8192);
	if (ASSERT_EQ(pwrite(file, buf + FROM + LEN / 2, 8192, FROM + LEN / 2),
		      8192, "pwrite"))
		expect_bytes(f.reader, buf + FROM, LEN);
	expect_errno(f.reader, MSG_DONTWAIT, EAGAIN, "once only");
out:
	free(buf);
	close_fd(&file);
	teardown_pair(&f);
}

static const struct subtest subtests[] = {
	{ "blocking recv", test_blocking_recv, ON_BOTH, WITHOUT_DROP },
	{ "unrelated pair", test_unrelated_pair, ON_STREAM, WITH_ANY },
	{ "timeout", test_timeout, ON_STREAM, WITH_ANY },
	{ "interrupted", test_interrupted, ON_STREAM, WITHOUT_DROP },
	{ "interrupted", test_interrupted, ON_STREAM, WITHOUT_DROP,
	  .variant = "timeout", .arg = LIMIT_SEC * 1000 },
	{ "not data", test_not_data, ON_STREAM, WITHOUT_DROP },
	{ "shutdown for reading", test_shutdown_rd, ON_STREAM, WITHOUT_DROP },
	{ "two readers", test_two_readers, ON_STREAM, WITHOUT_DROP },
	{ "sendfile", test_sendfile, ON_STREAM, WITHOUT_DROP },
};

void test_vsock_sockmap_recv(void)
{
	run_subtests(subtests, ARRAY_SIZE(subtests));
}
