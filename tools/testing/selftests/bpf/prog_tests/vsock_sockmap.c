// SPDX-License-Identifier: GPL-2.0
/*
 * vsock sockets in a sockmap: verdicts and redirects, and that the owner of a
 * socket in a map receives as it would outside of it.
 *
 * The kernel has vsock's sockmap support in C or in Rust
 * (CONFIG_VSOCKETS_SOCKMAP_RUST). The C version fails some of these cases, and
 * some leave it with a task that cannot be killed: these cases skip themselves
 * there.
 */

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <error.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/un.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <linux/virtio_vsock.h>
#include <linux/vm_sockets.h>
#include <linux/vsockmon.h>

#include "netlink_helpers.h"
#include "network_helpers.h"
#include "test_progs.h"
#include "testing_helpers.h"
#include "sockmap_helpers.h"
#include "test_vsock_sockmap.skel.h"

/* A wait that should end, but did not, ends a subtest after this time. */
#define LIMIT_SEC	3

/* An event that a reader has to sleep for comes this late. */
#define DELAY_MS	200

/* Slower than this means that something had to be waited for. */
#define AT_ONCE_MS	1000

/* The kernel counts its timeouts in ticks, this test does not. */
#define TICK_MS		10

/* A bulk redirect: this much, in pieces of this size */
#define BULK_LEN	(1024 * 1024)
#define BULK_CHUNK	4096

/* What is in the receive queue when a socket enters the map */
#define QUEUED_COUNT	5

/* The peer may send this much; a test that wants to see it spent sets it */
#define SPACE		65536

#define KSYM_LINE_MAX	1024

/* What happens to data that arrives at the socket in the map */
enum action {
	NO_PROG,
	PASS,
	DROP,
	TO_EGRESS,
	TO_INGRESS,
};

static const char * const action_names[] = {
	[NO_PROG]	= "no program",
	[PASS]		= "pass",
	[DROP]		= "drop",
};

struct fixture {
	struct test_vsock_sockmap *skel;
	int reader;	/* in the map */
	int writer;	/* its peer, not in any map */
};

/* What a second thread does to fd after DELAY_MS */
struct later {
	pthread_t thread;
	int fd;
	enum {
		LATER_SEND,
		LATER_SHUTDOWN,
		LATER_CLOSE,
	} what;
};

static const char * const later_names[] = {
	[LATER_SEND]		= "send",
	[LATER_SHUTDOWN]	= "shutdown",
	[LATER_CLOSE]		= "close",
};

static const char hello[] = "hello";

/* The C version has no Rust symbol; a kernel without one has the C version. */
static bool vsock_sockmap_is_rust(void)
{
	static int is_rust = -1;
	char line[KSYM_LINE_MAX];
	const char *sym;
	FILE *f;
	int s;

	if (is_rust >= 0)
		return is_rust;

	/* Symbols of a module are listed once it is loaded */
	s = socket(AF_VSOCK, SOCK_STREAM, 0);
	if (s >= 0)
		close(s);

	f = fopen("/proc/kallsyms", "r");
	if (!ASSERT_OK_PTR(f, "open kallsyms"))
		return false;

	is_rust = 0;
	while (!is_rust && fgets(line, sizeof(line), f)) {
		sym = strstr(line, " _R");
		if (sym && strstr(sym, "vsock_sockmap"))
			is_rust = 1;
	}

	fclose(f);
	return is_rust;
}

static bool rust_only(void)
{
	if (vsock_sockmap_is_rust())
		return true;

	printf("%s:SKIP: this kernel has vsock's sockmap support in C\n",
	       __func__);
	test__skip();
	return false;
}

static struct test_vsock_sockmap *load(enum action action)
{
	struct test_vsock_sockmap *skel;
	int prog, map;

	skel = test_vsock_sockmap__open_and_load();
	if (!ASSERT_OK_PTR(skel, "open_and_load"))
		return NULL;

	skel->data->verdict = action == DROP ? SK_DROP : SK_PASS;
	skel->bss->redirect = action == TO_EGRESS || action == TO_INGRESS;
	skel->bss->redirect_flags = action == TO_INGRESS ? BPF_F_INGRESS : 0;

	prog = bpf_program__fd(skel->progs.prog_skb_verdict);
	map = bpf_map__fd(skel->maps.source);
	if (action != NO_PROG &&
	    xbpf_prog_attach(prog, map, BPF_SK_SKB_VERDICT, 0)) {
		test_vsock_sockmap__destroy(skel);
		return NULL;
	}

	return skel;
}

static void teardown(struct fixture *f)
{
	close_fd(&f->reader);
	close_fd(&f->writer);
	test_vsock_sockmap__destroy(f->skel);
}

/* A pair that is not in the map yet */
static bool setup_outside(struct fixture *f, int sotype, enum action action)
{
	f->reader = -1;
	f->writer = -1;
	f->skel = load(action);
	if (!f->skel)
		return false;

	if (!create_pair(AF_VSOCK, sotype, &f->reader, &f->writer))
		return true;

	teardown(f);
	return false;
}

static bool enter_map(struct fixture *f)
{
	int map = bpf_map__fd(f->skel->maps.source);

	return !xbpf_map_update_elem(map, &u32(0), &u64(f->reader),
				     BPF_NOEXIST);
}

static bool setup(struct fixture *f, int sotype, enum action action)
{
	if (!setup_outside(f, sotype, action))
		return false;

	if (enter_map(f))
		return true;

	teardown(f);
	return false;
}

static u64 elapsed_ms(u64 start)
{
	return (get_time_ns() - start) / 1000000;
}

static bool expect_bytes(int fd, const char *want, size_t len)
{
	char *buf = malloc(len);
	bool ok = false;
	size_t have = 0;
	ssize_t n;

	if (!ASSERT_OK_PTR(buf, "malloc"))
		return false;

	while (have < len) {
		n = recv_timeout(fd, buf + have, len - have, MSG_DONTWAIT,
				 LIMIT_SEC);
		if (!ASSERT_GT(n, 0, "recv"))
			goto out;
		have += n;
	}
	ok = ASSERT_OK(memcmp(buf, want, len), "payload");
out:
	free(buf);
	return ok;
}

static bool expect_record(int fd, const char *want, size_t len)
{
	char buf[64];
	ssize_t n;

	n = recv_timeout(fd, buf, sizeof(buf), MSG_DONTWAIT, LIMIT_SEC);
	return ASSERT_EQ(n, len, "recv") &&
	       ASSERT_MEMEQ(buf, want, len, "payload");
}

static void expect_errno(int fd, int flags, int err, const char *name)
{
	char buf[sizeof(hello)];
	ssize_t n;

	errno = 0;
	n = recv(fd, buf, sizeof(buf), flags);
	ASSERT_EQ(errno, err, name);
	ASSERT_EQ(n, -1, name);
}

static void on_alarm(int sig __always_unused)
{
}

/*
 * recv() without MSG_DONTWAIT that a signal interrupts after @ms. If that goes
 * unnoticed, another follows.
 */
static ssize_t recv_alarm(int fd, void *buf, size_t len, unsigned int ms)
{
	struct itimerval it = {
		.it_value = { ms / 1000, ms % 1000 * 1000 },
		.it_interval = { LIMIT_SEC, 0 },
	};
	struct sigaction old, sa = { .sa_handler = on_alarm };
	int saved;
	ssize_t n;

	sigaction(SIGALRM, &sa, &old);
	setitimer(ITIMER_REAL, &it, NULL);
	errno = 0;
	n = recv(fd, buf, len, 0);
	saved = errno;
	setitimer(ITIMER_REAL, &(struct itimerval){}, NULL);
	sigaction(SIGALRM, &old, NULL);
	errno = saved;
	return n;
}

/* Waits until the owner has @want bytes to read */
static bool wait_inq(int fd, int want)
{
	u64 start = get_time_ns();
	int have = -1;

	do {
		if (ioctl(fd, SIOCINQ, &have) || have == want)
			break;
		usleep(1000);
	} while (elapsed_ms(start) < LIMIT_SEC * 1000);

	return ASSERT_EQ(have, want, "SIOCINQ");
}

static bool set_space(int fd, unsigned long long bytes)
{
	return ASSERT_OK(setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE,
				    &bytes, sizeof(bytes)), "buffer size");
}

static void *do_later(void *arg)
{
	struct later *l = arg;
	long ret = -1;

	usleep(DELAY_MS * 1000);
	switch (l->what) {
	case LATER_SEND:
		ret = send(l->fd, hello, sizeof(hello), 0);
		break;
	case LATER_SHUTDOWN:
		ret = shutdown(l->fd, SHUT_WR);
		break;
	case LATER_CLOSE:
		ret = close(l->fd);
		break;
	}

	return (void *)ret;
}

static bool later(struct later *l)
{
	return !xpthread_create(&l->thread, NULL, do_later, l);
}

static void later_done(struct later *l)
{
	void *ret;

	if (!xpthread_join(l->thread, &ret))
		ASSERT_NEQ((long)ret, -1, later_names[l->what]);
}

static void test_pass(int sotype)
{
	struct fixture f;

	if (!setup(&f, sotype, PASS))
		return;

	xsend(f.writer, hello, sizeof(hello), 0);
	expect_record(f.reader, hello, sizeof(hello));
	ASSERT_EQ(f.skel->bss->passed, sizeof(hello), "bytes passed");
	expect_errno(f.reader, MSG_DONTWAIT, EAGAIN, "once only");

	teardown(&f);
}

static void test_drop(int sotype)
{
	struct fixture f;
	u64 start;

	if (!setup(&f, sotype, DROP))
		return;

	xsend(f.writer, "dropped", 7, 0);
	start = get_time_ns();
	while (READ_ONCE(f.skel->bss->dropped) < 7 &&
	       elapsed_ms(start) < LIMIT_SEC * 1000)
		usleep(1000);
	ASSERT_EQ(f.skel->bss->dropped, 7, "bytes dropped");
	expect_errno(f.reader, MSG_DONTWAIT, EAGAIN, "dropped");

	/* What is sent next arrives */
	f.skel->data->verdict = SK_PASS;
	xsend(f.writer, hello, sizeof(hello), 0);
	expect_record(f.reader, hello, sizeof(hello));

	teardown(&f);
}

struct redir {
	const char *name;
	int in_family;
	int in_sotype;
	int out_family;
	int out_sotype;
	enum action action;
};

static const struct redir redirs[] = {
	{ "unix dgram to vsock stream: egress",
	  AF_UNIX, SOCK_DGRAM, AF_VSOCK, SOCK_STREAM, TO_EGRESS },
	{ "unix dgram to vsock seqpacket: egress",
	  AF_UNIX, SOCK_DGRAM, AF_VSOCK, SOCK_SEQPACKET, TO_EGRESS },
	{ "unix stream to vsock stream: egress",
	  AF_UNIX, SOCK_STREAM, AF_VSOCK, SOCK_STREAM, TO_EGRESS },
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
};

static const struct redir vsock_to_unix = {
	.in_family = AF_VSOCK, .in_sotype = SOCK_STREAM,
	.out_family = AF_UNIX, .out_sotype = SOCK_STREAM,
	.action = TO_EGRESS,
};

static const struct redir unix_dgram_to_vsock = {
	.in_family = AF_UNIX, .in_sotype = SOCK_DGRAM,
	.out_family = AF_VSOCK, .out_sotype = SOCK_STREAM,
	.action = TO_EGRESS,
};

static void teardown_redir(struct test_vsock_sockmap *skel, int in[2],
			   int out[2])
{
	close_fd(&in[0]);
	close_fd(&in[1]);
	close_fd(&out[0]);
	close_fd(&out[1]);
	test_vsock_sockmap__destroy(skel);
}

/*
 * A pair on each side: what is written to @in[1] arrives at @in[0], which is
 * the source. The sink is @out[0], whose peer is @out[1].
 */
static struct test_vsock_sockmap *setup_redir(const struct redir *r, int in[2],
					      int out[2])
{
	struct test_vsock_sockmap *skel;
	int source, sink;

	in[0] = -1;
	in[1] = -1;
	out[0] = -1;
	out[1] = -1;

	skel = load(r->action);
	if (!skel)
		return NULL;

	if (create_pair(r->in_family, r->in_sotype, &in[0], &in[1]) ||
	    create_pair(r->out_family, r->out_sotype, &out[0], &out[1]))
		goto fail;

	source = bpf_map__fd(skel->maps.source);
	sink = bpf_map__fd(skel->maps.sink);
	if (xbpf_map_update_elem(sink, &u32(0), &u64(out[0]), BPF_NOEXIST) ||
	    xbpf_map_update_elem(source, &u32(0), &u64(in[0]), BPF_NOEXIST))
		goto fail;

	return skel;
fail:
	teardown_redir(skel, in, out);
	return NULL;
}

static void test_redirect(const struct redir *r)
{
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

	fd = r->action == TO_EGRESS ? out[1] : out[0];

	/*
	 * An egress redirect sends a record as a record. An ingress redirect
	 * leaves the bytes in the psock of the sink, which keeps no records.
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

/* 251 is prime: a lost or repeated chunk shows */
static char *new_sequence(size_t len)
{
	char *buf = malloc(len);
	size_t i;

	if (!ASSERT_OK_PTR(buf, "malloc"))
		return NULL;

	for (i = 0; i < len; i++)
		buf[i] = i % 251;

	return buf;
}

struct bulk {
	pthread_t thread;
	const char *buf;
	int fd;
};

static void *send_bulk(void *arg)
{
	struct bulk *b = arg;
	size_t off;

	for (off = 0; off < BULK_LEN; off += BULK_CHUNK)
		if (send(b->fd, b->buf + off, BULK_CHUNK, 0) != BULK_CHUNK)
			return (void *)-1L;

	return NULL;
}

static bool start_sending(struct bulk *b, int fd, const char *buf,
			  void *(*how)(void *))
{
	settimeo(fd, LIMIT_SEC * 1000);
	b->buf = buf;
	b->fd = fd;
	return !xpthread_create(&b->thread, NULL, how, b);
}

static void done_sending(struct bulk *b)
{
	void *ret;

	if (!xpthread_join(b->thread, &ret))
		ASSERT_NULL(ret, "send all");
}

/* More than the socket buffers hold, so that the source has to wait */
static void test_redirect_bulk(const struct redir *r)
{
	struct test_vsock_sockmap *skel;
	int in[2], out[2];
	struct bulk b;
	char *buf;

	buf = new_sequence(BULK_LEN);
	if (!buf)
		return;

	skel = setup_redir(r, in, out);
	if (!skel)
		goto out;

	if (!start_sending(&b, in[1], buf, send_bulk))
		goto close;

	expect_bytes(out[1], buf, BULK_LEN);
	done_sending(&b);
close:
	teardown_redir(skel, in, out);
out:
	free(buf);
}

static void test_blocking_recv(int sotype, enum action action)
{
	char buf[sizeof(hello) + 1];
	struct later l = { .what = LATER_SEND };
	struct fixture f;
	u64 start;
	ssize_t n;

	if (!rust_only() || !setup(&f, sotype, action))
		return;

	l.fd = f.writer;
	start = get_time_ns();
	if (!later(&l))
		goto out;

	n = recv_alarm(f.reader, buf, sizeof(buf), LIMIT_SEC * 1000);
	if (ASSERT_EQ(n, sizeof(hello), "recv"))
		ASSERT_MEMEQ(buf, hello, sizeof(hello), "payload");
	ASSERT_GE(elapsed_ms(start) + TICK_MS, DELAY_MS, "not before the send");
	ASSERT_LT(elapsed_ms(start), DELAY_MS + AT_ONCE_MS, "at once");
	later_done(&l);
out:
	teardown(&f);
}

static void *blocked_reader(void *arg)
{
	int fd = *(int *)arg;
	char c;

	return (void *)(long)(recv(fd, &c, 1, 0) == 1 ? 0 : errno);
}

static bool ping(int from, int to)
{
	u64 start = get_time_ns();

	xsend(from, hello, sizeof(hello), 0);
	return expect_bytes(to, hello, sizeof(hello)) &&
	       ASSERT_LT(elapsed_ms(start), AT_ONCE_MS, "at once");
}

/* A pair in no map, while a reader sleeps in the map */
static void test_unrelated_pair(enum action action)
{
	pthread_t thread;
	struct fixture f;
	int p0, p1;
	void *err;

	if (!rust_only() || !setup(&f, SOCK_STREAM, action))
		return;

	if (create_pair(AF_VSOCK, SOCK_STREAM, &p0, &p1))
		goto out;

	settimeo(f.reader, 2 * AT_ONCE_MS);
	if (xpthread_create(&thread, NULL, blocked_reader, &f.reader))
		goto close;

	usleep(DELAY_MS * 1000);
	ping(p0, p1);

	/* Something arrives for the reader, and must get past it */
	xsend(f.writer, "x", 1, 0);
	ping(p0, p1);
	ping(p1, p0);

	if (!xpthread_join(thread, &err))
		ASSERT_EQ((long)err, action == DROP ? EAGAIN : 0, "reader");
close:
	xclose(p0);
	xclose(p1);
out:
	teardown(&f);
}

/* All data, then end of file, as often as it is asked for */
static void test_eof_after_data(int sotype, enum action action, bool closing)
{
	struct fixture f;
	char c;
	int i;

	if (!rust_only() || !setup(&f, sotype, action))
		return;

	xsend(f.writer, hello, sizeof(hello), 0);
	if (closing)
		xclose(take_fd(f.writer));
	else
		ASSERT_OK(shutdown(f.writer, SHUT_WR), "shutdown");

	expect_record(f.reader, hello, sizeof(hello));
	for (i = 0; i < 2; i++)
		ASSERT_EQ(recv_timeout(f.reader, &c, 1, MSG_DONTWAIT, LIMIT_SEC),
			  0, "end of file");

	teardown(&f);
}

static void test_eof_wakes_reader(enum action action, bool closing)
{
	struct later l = { .what = closing ? LATER_CLOSE : LATER_SHUTDOWN };
	struct fixture f;
	ssize_t n;
	char c;

	if (!rust_only() || !setup(&f, SOCK_STREAM, action))
		return;

	l.fd = f.writer;
	if (!later(&l))
		goto out;

	n = recv_alarm(f.reader, &c, 1, LIMIT_SEC * 1000);
	ASSERT_EQ(n, 0, "end of file");
	later_done(&l);
	if (closing)
		f.writer = -1;
out:
	teardown(&f);
}

static void test_interrupted(enum action action, unsigned int timeout_ms)
{
	struct fixture f;
	u64 start;
	ssize_t n;
	char c;

	if (!rust_only() || !setup(&f, SOCK_STREAM, action))
		return;

	if (timeout_ms)
		settimeo(f.reader, timeout_ms);
	start = get_time_ns();
	n = recv_alarm(f.reader, &c, 1, DELAY_MS);
	ASSERT_EQ(errno, EINTR, "errno");
	ASSERT_EQ(n, -1, "recv");
	ASSERT_GE(elapsed_ms(start) + TICK_MS, DELAY_MS, "not before the signal");
	ASSERT_LT(elapsed_ms(start), DELAY_MS + AT_ONCE_MS, "at once");

	teardown(&f);
}

static void *send_often(void *arg)
{
	int i, fd = *(int *)arg;

	/* Until well after the reader's timeout */
	for (i = 0; i < 40; i++) {
		if (send(fd, "x", 1, MSG_DONTWAIT) != 1)
			return (void *)-1L;
		usleep(DELAY_MS * 1000 / 4);
	}

	return NULL;
}

/* Packets that the verdict drops wake the reader, but give it no more time */
static void test_timeout(enum action action)
{
	pthread_t thread;
	struct fixture f;
	u64 start;
	void *ret;

	if (action == DROP && !rust_only())
		return;

	if (!setup(&f, SOCK_STREAM, action))
		return;

	if (action == DROP &&
	    xpthread_create(&thread, NULL, send_often, &f.writer))
		goto out;

	settimeo(f.reader, 2 * DELAY_MS);
	start = get_time_ns();
	expect_errno(f.reader, 0, EAGAIN, "recv");
	ASSERT_GE(elapsed_ms(start) + TICK_MS, 2 * DELAY_MS, "not before the timeout");
	ASSERT_LT(elapsed_ms(start), 2 * DELAY_MS + AT_ONCE_MS, "once");

	if (action == DROP && !xpthread_join(thread, &ret))
		ASSERT_NULL(ret, "send_often");
out:
	teardown(&f);
}

/* With data in the queue, what asks for something else than data */
static void test_not_data(enum action action)
{
	struct fixture f;
	char c;

	if (action == PASS && !rust_only())
		return;

	if (!setup(&f, SOCK_STREAM, action))
		return;

	xsend(f.writer, hello, sizeof(hello), 0);
	if (!ASSERT_OK(poll_read(f.reader, LIMIT_SEC), "poll"))
		goto out;

	ASSERT_EQ(recv_alarm(f.reader, &c, 0, LIMIT_SEC * 1000), 0, "recv 0");
	expect_errno(f.reader, MSG_ERRQUEUE | MSG_DONTWAIT, EAGAIN, "ERRQUEUE");
	expect_errno(f.reader, MSG_OOB | MSG_DONTWAIT, EOPNOTSUPP, "OOB");
	expect_record(f.reader, hello, sizeof(hello));
out:
	teardown(&f);
}

static void expect_passed(struct fixture *f, size_t len)
{
	u64 start = get_time_ns();

	while (READ_ONCE(f->skel->bss->passed) < len &&
	       elapsed_ms(start) < LIMIT_SEC * 1000)
		usleep(1000);
	ASSERT_EQ(f->skel->bss->passed, len, "bytes passed");
}

/* The verdict sees what the owner has not read, and sees it once */
static void test_partly_read(void)
{
	static const char digits[] = "0123456789";
	struct fixture f;

	if (!rust_only() || !setup_outside(&f, SOCK_STREAM, PASS))
		return;

	xsend(f.writer, digits, 10, 0);
	if (!expect_bytes(f.reader, "0123", 4) || !enter_map(&f))
		goto out;

	ASSERT_EQ(f.skel->bss->passed, 6, "bytes passed at the insert");
	xsend(f.writer, "abc", 3, 0);
	expect_passed(&f, 9);
	expect_bytes(f.reader, "456789abc", 9);
	expect_errno(f.reader, MSG_DONTWAIT, EAGAIN, "once only");
out:
	teardown(&f);
}

/* All that was queued before the insert is judged by it */
static void test_queued(int sotype, enum action action)
{
	struct fixture f;
	int i;

	if (!rust_only() || !setup_outside(&f, sotype, action))
		return;

	for (i = 0; i < QUEUED_COUNT; i++)
		xsend(f.writer, hello, sizeof(hello), 0);
	if (!wait_inq(f.reader, QUEUED_COUNT * sizeof(hello)) || !enter_map(&f))
		goto out;

	if (action == PASS) {
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
	teardown(&f);
}

/* More small packets than the buffer has room for the overhead of */
#define SMALL_BUFFER	4096
#define SMALL_LEN	200
#define SMALL_COUNT	16

/* A packet that was made from several in the queue has a socket */
static void test_collapsed(void)
{
	char buf[SMALL_LEN] = {};
	struct fixture f;
	int i;

	if (!rust_only() || !setup_outside(&f, SOCK_STREAM, PASS))
		return;

	f.skel->bss->look_at_socket = true;
	if (!set_space(f.reader, SMALL_BUFFER))
		goto out;

	for (i = 0; i < SMALL_COUNT; i++)
		xsend(f.writer, buf, sizeof(buf), 0);
	if (!wait_inq(f.reader, SMALL_COUNT * sizeof(buf)) || !enter_map(&f))
		goto out;

	xsend(f.writer, buf, sizeof(buf), 0);
	expect_passed(&f, (SMALL_COUNT + 1) * sizeof(buf));
	ASSERT_EQ(f.skel->bss->strangers, 0, "packets without a socket");
out:
	teardown(&f);
}

/* Nothing is read after that, whatever is queued */
static void test_shutdown_rd(enum action action)
{
	struct fixture f;
	char c;

	if (!rust_only() || !setup(&f, SOCK_STREAM, action))
		return;

	xsend(f.writer, hello, sizeof(hello), 0);
	if (!ASSERT_OK(poll_read(f.reader, LIMIT_SEC), "poll"))
		goto out;

	ASSERT_OK(shutdown(f.reader, SHUT_RD), "shutdown");
	ASSERT_EQ(recv_timeout(f.reader, &c, 1, MSG_DONTWAIT, LIMIT_SEC), 0,
		  "recv");
out:
	teardown(&f);
}

/* What a socket did, as text */
struct trace {
	char text[8192];
	size_t len;
};

__printf(2, 3)
static void note(struct trace *t, const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(t->text + t->len, sizeof(t->text) - t->len, fmt, args);
	va_end(args);
	t->len = MIN(t->len + n, sizeof(t->text) - 1);
}

/* One receive with all that it returns, and what is left after it */
static void note_recv(struct trace *t, int fd, size_t len, int flags)
{
	struct sockaddr_storage name = {};
	char buf[256] = {}, control[256];
	struct iovec iov = { buf, MIN(len, sizeof(buf)) };
	struct msghdr msg = {
		.msg_name = &name,
		.msg_namelen = sizeof(name),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct pollfd pfd = { .fd = fd, .events = POLLIN | POLLRDHUP };
	ssize_t n;
	int inq;

	errno = 0;
	n = recvmsg(fd, &msg, flags | MSG_DONTWAIT);
	note(t, "recv(%zu, %x): %zd errno %d flags %x name %u control %zu '%s'",
	     len, flags, n, n < 0 ? errno : 0, msg.msg_flags, msg.msg_namelen,
	     msg.msg_controllen, buf);
	inq = -1;
	ioctl(fd, SIOCINQ, &inq);
	poll(&pfd, 1, 0);
	note(t, " left %d poll %x\n", inq, pfd.revents);
}

static void trace_peek(struct trace *t, int reader, int writer)
{
	xsend(writer, "first", 5, 0);
	wait_inq(reader, 5);
	xsend(writer, "second", 6, 0);
	wait_inq(reader, 11);

	note_recv(t, reader, 3, MSG_PEEK);
	note_recv(t, reader, 64, MSG_PEEK);
	note_recv(t, reader, 64, MSG_PEEK);
	note_recv(t, reader, 7, 0);
	note_recv(t, reader, 64, MSG_PEEK | MSG_TRUNC);
	note_recv(t, reader, 64, 0);
	note_recv(t, reader, 64, MSG_PEEK);
	note_recv(t, reader, 64, 0);
}

static void trace_records(struct trace *t, int reader, int writer)
{
	xsend(writer, "ab", 2, 0);
	xsend(writer, "cde", 3, MSG_EOR);
	xsend(writer, "fghijk", 6, MSG_EOR);
	xsend(writer, "lmno", 4, 0);
	xsend(writer, "pq", 2, 0);
	wait_inq(reader, 17);

	note_recv(t, reader, 64, 0);
	note_recv(t, reader, 64, 0);
	note_recv(t, reader, 2, 0);
	note_recv(t, reader, 3, MSG_TRUNC);
	note_recv(t, reader, 64, 0);
	note_recv(t, reader, 64, 0);
}

/* An empty record between two others */
static void trace_empty(struct trace *t, int reader, int writer)
{
	xsend(writer, "a", 1, 0);
	note(t, "send: %zd\n", send(writer, "", 0, 0));
	xsend(writer, "b", 1, 0);
	wait_inq(reader, 2);

	note_recv(t, reader, 64, 0);
	note_recv(t, reader, 64, 0);
	note_recv(t, reader, 64, 0);
	note_recv(t, reader, 64, 0);
}

static void trace_flags(struct trace *t, int reader, int writer)
{
	static const int flags[] = {
		MSG_OOB, MSG_ERRQUEUE, MSG_OOB | MSG_PEEK, MSG_CMSG_CLOEXEC,
		MSG_TRUNC, MSG_WAITALL, MSG_OOB | MSG_ERRQUEUE, MSG_NOSIGNAL,
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		note_recv(t, reader, 4, flags[i]);
		xsend(writer, "four", 4, 0);
		wait_inq(reader, 4);
		note_recv(t, reader, 0, flags[i]);
		note_recv(t, reader, 4, flags[i]);
		note_recv(t, reader, 4, 0);
	}
}

/* A buffer that is not there, and one that ends too early */
static void trace_bad_memory(struct trace *t, int reader, int writer)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *map;
	ssize_t n;

	map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!ASSERT_NEQ(map, MAP_FAILED, "mmap"))
		return;
	munmap(map + page, page);

	xsend(writer, "0123456789", 10, 0);
	wait_inq(reader, 10);
	n = recv(reader, map + page, 10, MSG_DONTWAIT);
	note(t, "nowhere: %zd errno %d\n", n, errno);
	n = recv(reader, map + page - 4, 10, MSG_DONTWAIT);
	note(t, "half: %zd errno %d\n", n, errno);
	note_recv(t, reader, 64, 0);
	note_recv(t, reader, 64, 0);
	munmap(map, page);
}

static void trace_half_close(struct trace *t, int reader, int writer)
{
	xsend(writer, "last words", 10, 0);
	wait_inq(reader, 10);
	ASSERT_OK(shutdown(writer, SHUT_WR), "shutdown");
	usleep(DELAY_MS * 1000);
	note_recv(t, reader, 4, 0);
	note_recv(t, reader, 64, MSG_PEEK);
	note_recv(t, reader, 64, 0);
	note_recv(t, reader, 64, 0);
	note_recv(t, reader, 64, MSG_OOB);
	xsend(reader, "answer", 6, 0);
	wait_inq(writer, 6);
	note_recv(t, writer, 64, 0);
}

/* The writer closes with data that it has not read: a reset */
static void trace_reset(struct trace *t, int reader, int writer)
{
	xsend(reader, "unread", 6, 0);
	wait_inq(writer, 6);
	xsend(writer, "last words", 10, 0);
	wait_inq(reader, 10);
	xclose(take_fd(writer));
	usleep(DELAY_MS * 1000);
	note_recv(t, reader, 4, 0);
	note_recv(t, reader, 64, 0);
	note_recv(t, reader, 64, 0);
	note_recv(t, reader, 64, MSG_OOB);
}

static void trace_shut_rd(struct trace *t, int reader, int writer)
{
	xsend(writer, "unread", 6, 0);
	wait_inq(reader, 6);
	ASSERT_OK(shutdown(reader, SHUT_RD), "shutdown");
	note_recv(t, reader, 64, MSG_PEEK);
	note_recv(t, reader, 64, 0);
	note_recv(t, reader, 0, 0);
	note_recv(t, reader, 64, MSG_OOB);
}

/* Edge-triggered: an event for what arrives, none for what is left */
static void trace_epoll(struct trace *t, int reader, int writer)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP | EPOLLET };
	int epfd, i, n, inq;

	epfd = epoll_create1(0);
	if (!ASSERT_OK_FD(epfd, "epoll_create1"))
		return;
	if (!ASSERT_OK(epoll_ctl(epfd, EPOLL_CTL_ADD, reader, &ev), "epoll_ctl"))
		goto out;

	for (i = 0; i < 3; i++) {
		n = epoll_wait(epfd, &ev, 1, 0);
		note(t, "before: %d\n", n);
		xsend(writer, hello, sizeof(hello), 0);
		n = epoll_wait(epfd, &ev, 1, LIMIT_SEC * 1000);
		note(t, "arrived: %d %x\n", n, n > 0 ? ev.events : 0);
		/* A stream keeps what a short receive leaves */
		if (ioctl(reader, SIOCINQ, &inq) || inq < (int)sizeof(hello))
			usleep(DELAY_MS * 1000);
		note_recv(t, reader, sizeof(hello) - 1, 0);
		n = epoll_wait(epfd, &ev, 1, 0);
		note(t, "left: %d\n", n);
		note_recv(t, reader, 0, 0);
	}
	ASSERT_OK(shutdown(writer, SHUT_WR), "shutdown");
	n = epoll_wait(epfd, &ev, 1, LIMIT_SEC * 1000);
	note(t, "end: %d %x\n", n, n > 0 ? ev.events : 0);
out:
	close(epfd);
}

/* Not readable before there is enough, whatever the verdict has passed */
static void trace_rcvlowat(struct trace *t, int reader, int writer)
{
	int lowat = 8;

	ASSERT_OK(setsockopt(reader, SOL_SOCKET, SO_RCVLOWAT, &lowat,
			     sizeof(lowat)), "SO_RCVLOWAT");
	xsend(writer, "abc", 3, 0);
	wait_inq(reader, 3);
	note_recv(t, reader, 1, MSG_PEEK);
	xsend(writer, "defghij", 7, 0);
	wait_inq(reader, 10);
	note_recv(t, reader, 1, MSG_PEEK);
	note_recv(t, reader, 4, 0);
	note_recv(t, reader, 64, 0);
	note_recv(t, reader, 64, 0);
}

/* More than one packet, read in odd pieces; the credit has to come back */
static void trace_volume(struct trace *t, int reader, int writer)
{
	unsigned int sum = 0;
	char buf[10007];
	int i, round;
	ssize_t n;
	size_t sent, had;

	settimeo(writer, LIMIT_SEC * 1000);
	for (round = 0; round < 20; round++) {
		for (i = 0; i < sizeof(buf); i++)
			buf[i] = i * 7 + round;
		for (sent = 0; sent < 20 * sizeof(buf); sent += n) {
			n = send(writer, buf, sizeof(buf), 0);
			if (!ASSERT_GT(n, 0, "send"))
				return;
		}
		for (had = 0; had < sent; had += n) {
			n = recv_timeout(reader, buf, 1 + (had * 31) % sizeof(buf),
					 MSG_DONTWAIT, LIMIT_SEC);
			if (!ASSERT_GT(n, 0, "recv"))
				return;
			for (i = 0; i < n; i++)
				sum = sum * 31 + buf[i];
		}
		note(t, "%zu %zu %u\n", sent, had, sum);
	}
}

static const struct scenario {
	const char *name;
	int sotype;		/* 0: any */
	void (*run)(struct trace *t, int reader, int writer);
} scenarios[] = {
	{ "peek", 0, trace_peek },
	{ "records", SOCK_SEQPACKET, trace_records },
	{ "empty record", SOCK_SEQPACKET, trace_empty },
	{ "flags", 0, trace_flags },
	{ "bad memory", 0, trace_bad_memory },
	{ "half-close", 0, trace_half_close },
	{ "reset", 0, trace_reset },
	{ "shutdown for reading", 0, trace_shut_rd },
	{ "epoll", 0, trace_epoll },
	{ "SO_RCVLOWAT", SOCK_STREAM, trace_rcvlowat },
	{ "volume", SOCK_STREAM, trace_volume },
};

/* The same is done to a socket in the map and to one outside of it */
static void test_as_outside(const struct scenario *sc, int sotype,
			    enum action action)
{
	struct trace in = {}, outside = {};
	struct fixture f;
	int p0, p1;

	if (!rust_only() || !setup(&f, sotype, action))
		return;

	if (create_pair(AF_VSOCK, sotype, &p0, &p1))
		goto out;

	sc->run(&outside, p0, p1);
	sc->run(&in, f.reader, f.writer);
	ASSERT_GT(outside.len, 0, "trace");
	ASSERT_STREQ(in.text, outside.text, "in the map");
	/* The reset scenario closes it */
	if (fcntl(p1, F_GETFD) >= 0)
		xclose(p1);
	if (fcntl(f.writer, F_GETFD) < 0)
		f.writer = -1;
	xclose(p0);
out:
	teardown(&f);
}

/* What sits in the queue reaches the sink, though nothing comes after it */
static void test_queued_redirect(void)
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

/* SPACE is a multiple of it: a seqpacket send that finds less space than it
 * needs has sent a part of its record when it fails
 */
#define FILL_LEN	4096

static const char greeting[FILL_LEN];

/* Sends until there has been no space for @ms, and returns how much that was. The
 * bytes go on from @pos of a sequence that read_sequence() checks.
 */
static size_t fill_for(int fd, size_t pos, unsigned int ms)
{
	static unsigned char chunk[FILL_LEN];
	size_t sent = 0, i;
	u64 start = get_time_ns();
	ssize_t n;

	while (elapsed_ms(start) < ms && sent < 64 * SPACE) {
		for (i = 0; i < sizeof(chunk); i++)
			chunk[i] = (pos + sent + i) % 251;
		n = send(fd, chunk, sizeof(chunk), MSG_DONTWAIT);
		if (n > 0) {
			sent += n;
			start = get_time_ns();
		}
	}

	return sent;
}

/* The receiver may still be at work on what has just been sent */
static size_t fill(int fd, size_t pos)
{
	return fill_for(fd, pos, DELAY_MS);
}

/* Reads the @len bytes from @pos on of what fill() sends */
static bool read_sequence(int fd, size_t pos, size_t len)
{
	static unsigned char buf[FILL_LEN];
	size_t had;
	ssize_t n, i;

	for (had = 0; had < len; had += n) {
		n = recv_timeout(fd, buf, MIN(sizeof(buf), len - had),
				 MSG_DONTWAIT, LIMIT_SEC);
		if (!ASSERT_GT(n, 0, "recv"))
			return false;
		for (i = 0; i < n; i++)
			if (buf[i] != (pos + had + i) % 251)
				return ASSERT_OK(1, "byte of the sequence");
	}
	return ASSERT_EQ(had, len, "bytes read");
}

/* An owner that does not read stops its peer, as outside of the map */
static void test_bounded(int sotype)
{
	struct fixture f;
	size_t sent;

	if (!rust_only() || !setup_outside(&f, sotype, PASS))
		return;
	if (!set_space(f.reader, SPACE) || !enter_map(&f))
		goto out;

	/* Lets the writer know about the space */
	xsend(f.writer, greeting, sizeof(greeting), 0);
	expect_bytes(f.reader, greeting, sizeof(greeting));

	sent = fill(f.writer, 0);
	ASSERT_GT(sent, SPACE / 2, "sent");
	ASSERT_LE(sent, 4 * SPACE, "sent");
	read_sequence(f.reader, 0, sent);
	ASSERT_GT(fill(f.writer, sent), SPACE / 2, "sent when that was read");
out:
	teardown(&f);
}

static const struct redir stalls[] = {
	{ "vsock stream to vsock stream",
	  AF_VSOCK, SOCK_STREAM, AF_VSOCK, SOCK_STREAM, TO_EGRESS },
	{ "vsock seqpacket to vsock seqpacket",
	  AF_VSOCK, SOCK_SEQPACKET, AF_VSOCK, SOCK_SEQPACKET, TO_EGRESS },
	{ "vsock stream to unix stream",
	  AF_VSOCK, SOCK_STREAM, AF_UNIX, SOCK_STREAM, TO_EGRESS },
	{ "vsock stream to unix dgram",
	  AF_VSOCK, SOCK_STREAM, AF_UNIX, SOCK_DGRAM, TO_EGRESS },
	{ "vsock stream to tcp",
	  AF_VSOCK, SOCK_STREAM, AF_INET, SOCK_STREAM, TO_EGRESS },
	{ "vsock stream to unix stream, ingress",
	  AF_VSOCK, SOCK_STREAM, AF_UNIX, SOCK_STREAM, TO_INGRESS },
	{ "unix dgram to vsock stream",
	  AF_UNIX, SOCK_DGRAM, AF_VSOCK, SOCK_STREAM, TO_EGRESS },
	{ "unix dgram to vsock seqpacket",
	  AF_UNIX, SOCK_DGRAM, AF_VSOCK, SOCK_SEQPACKET, TO_EGRESS },
	{ "unix stream to vsock stream",
	  AF_UNIX, SOCK_STREAM, AF_VSOCK, SOCK_STREAM, TO_EGRESS },
	{ "tcp to vsock stream",
	  AF_INET, SOCK_STREAM, AF_VSOCK, SOCK_STREAM, TO_EGRESS },
	{ "tcp to unix stream",
	  AF_INET, SOCK_STREAM, AF_UNIX, SOCK_STREAM, TO_EGRESS },
	{ "tcp to tcp",
	  AF_INET, SOCK_STREAM, AF_INET, SOCK_STREAM, TO_EGRESS },
	{ "tcp to tcp, ingress",
	  AF_INET, SOCK_STREAM, AF_INET, SOCK_STREAM, TO_INGRESS },
};

/* Sets the buffer that limits what goes from @from to @to */
static bool limit_space(int family, int from, int to)
{
	int bytes = SPACE;

	/* The other side must know of it, or would send too much, which resets
	 * the connection
	 */
	if (family == AF_VSOCK)
		return set_space(to, SPACE) &&
		       xsend(to, hello, sizeof(hello), 0) == sizeof(hello) &&
		       expect_bytes(from, hello, sizeof(hello));
	return ASSERT_OK(setsockopt(from, SOL_SOCKET, SO_SNDBUF, &bytes,
				    sizeof(bytes)), "SO_SNDBUF") &&
	       ASSERT_OK(setsockopt(to, SOL_SOCKET, SO_RCVBUF, &bytes,
				    sizeof(bytes)), "SO_RCVBUF");
}

/* Both sides of the source and of the sink, each twice for the overhead, and
 * what is on its way
 */
#define STALL_MAX	(10 * SPACE)

/* A redirect the sink of which is full */
static struct test_vsock_sockmap *setup_stall(const struct redir *r, int in[2],
					      int out[2], size_t *sent)
{
	struct test_vsock_sockmap *skel;
	int reader;

	/* The C version has no bound */
	if (r->in_family == AF_VSOCK && !rust_only())
		return NULL;

	skel = setup_redir(r, in, out);
	if (!skel)
		return NULL;

	reader = r->action == TO_EGRESS ? out[1] : out[0];
	if (!limit_space(r->in_family, in[1], in[0]) ||
	    !limit_space(r->out_family, out[0], out[1]) ||
	    (r->action == TO_INGRESS &&
	     !limit_space(r->out_family, out[1], out[0])))
		goto fail;

	xsend(in[1], greeting, sizeof(greeting), 0);
	if (!expect_bytes(reader, greeting, sizeof(greeting)))
		goto fail;

	*sent = fill(in[1], 0);
	if (ASSERT_GT(*sent, SPACE / 2, "sent") &&
	    ASSERT_LE(*sent, STALL_MAX, "sent"))
		return skel;
fail:
	teardown_redir(skel, in, out);
	return NULL;
}

/* A sink that does not read stops the source, and nothing is lost */
static void test_stall(const struct redir *r)
{
	struct test_vsock_sockmap *skel;
	int in[2], out[2], reader;
	size_t sent, more;

	skel = setup_stall(r, in, out, &sent);
	if (!skel)
		return;

	reader = r->action == TO_EGRESS ? out[1] : out[0];
	if (read_sequence(reader, 0, sent)) {
		more = fill(in[1], sent);
		ASSERT_GT(more, SPACE / 2, "sent when that was read");
		read_sequence(reader, sent, more);
	}
	teardown_redir(skel, in, out);
}

/* A stall costs no more, and ends as soon as the sink reads */
#define STALL_WAKEUPS	20
#define STALL_GAP_MS	10

/* Other things happen meanwhile, so the best of these counts */
#define STALL_TRIES	5

/* What all of the kernel's workers have done, ever */
struct workers {
	long waits;	/* how often they have waited for work */
	long ticks;	/* how long they were busy */
};

static void add_worker(struct workers *all, int pid)
{
	long user, system, waits = 0;
	char line[512], path[64];
	FILE *f;
	int n;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	if (!f)
		return;
	n = fscanf(f,
		   "%*d (kworker/%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld",
		   &user, &system);
	fclose(f);
	if (n != 2)
		return;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "r");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f))
		sscanf(line, "voluntary_ctxt_switches: %ld", &waits);
	fclose(f);
	all->waits += waits;
	all->ticks += user + system;
}

static struct workers look_at_workers(void)
{
	struct workers all = {};
	struct dirent *d;
	DIR *proc;

	proc = opendir("/proc");
	if (!ASSERT_OK_PTR(proc, "opendir"))
		return all;
	while ((d = readdir(proc)))
		if (atoi(d->d_name))
			add_worker(&all, atoi(d->d_name));
	closedir(proc);
	return all;
}

/* Nothing is done while a redirect has to wait */
static void expect_idle(void)
{
	long waits = 0, ticks = 0, limit = sysconf(_SC_CLK_TCK) / 5;
	struct workers before, after;
	int i;

	for (i = 0; i < STALL_TRIES; i++) {
		before = look_at_workers();
		usleep(1000 * 1000);
		after = look_at_workers();
		waits = after.waits - before.waits;
		ticks = after.ticks - before.ticks;
		if (waits < STALL_WAKEUPS && ticks < limit)
			break;
	}
	ASSERT_LT(waits, STALL_WAKEUPS, "wake-ups in a second");
	ASSERT_LT(ticks, limit, "busy ticks in a second");
}

static void test_stall_idle(const struct redir *r)
{
	struct test_vsock_sockmap *skel;
	int in[2], out[2];
	size_t sent;

	skel = setup_stall(r, in, out, &sent);
	if (!skel)
		return;

	expect_idle();
	teardown_redir(skel, in, out);
}

/* The receive queue of another socket is full, which the sink only finds out by
 * trying
 */
static void test_stall_one_way(void)
{
	enum { COUNT = 50 };
	const struct redir r = {
		.in_family = AF_UNIX, .in_sotype = SOCK_DGRAM,
		.out_family = AF_UNIX, .out_sotype = SOCK_DGRAM,
		.action = TO_EGRESS,
	};
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(addr);
	struct test_vsock_sockmap *skel;
	int in[2], out[2], fd, i;

	skel = setup_redir(&r, in, out);
	if (!skel)
		return;

	fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	if (!ASSERT_OK_FD(fd, "socket") ||
	    !ASSERT_OK(bind(fd, (void *)&addr, sizeof(sa_family_t)), "bind") ||
	    !ASSERT_OK(getsockname(fd, (void *)&addr, &len), "getsockname") ||
	    !ASSERT_OK(connect(out[0], (void *)&addr, len), "connect"))
		goto out;

	for (i = 0; i < COUNT; i++)
		xsend(in[1], &i, sizeof(i), 0);
	expect_idle();
	for (i = 0; i < COUNT; i++)
		if (!expect_record(fd, (void *)&i, sizeof(i)))
			break;
out:
	close_fd(&fd);
	teardown_redir(skel, in, out);
}

/* The longest time that a reader waits for the next of @len bytes */
static u64 longest_gap(int fd, size_t len)
{
	u64 now, then, gap = 0;
	char buf[FILL_LEN];
	ssize_t n;
	size_t had;

	then = get_time_ns();
	for (had = 0; had < len; had += n) {
		n = recv_timeout(fd, buf, sizeof(buf), MSG_DONTWAIT, LIMIT_SEC);
		if (!ASSERT_GT(n, 0, "recv"))
			break;
		now = get_time_ns();
		gap = MAX(gap, now - then);
		then = now;
	}
	return gap / 1000000;
}

static void test_stall_resume(const struct redir *r)
{
	struct test_vsock_sockmap *skel;
	u64 gap = 0;
	int in[2], out[2], i;
	size_t sent;

	skel = setup_stall(r, in, out, &sent);
	if (!skel)
		return;

	for (i = 0; i < STALL_TRIES; i++) {
		gap = longest_gap(out[1], sent);
		if (gap < STALL_GAP_MS)
			break;
		sent = fill(in[1], 0);
		ASSERT_GT(sent, SPACE / 2, "sent");
	}
	ASSERT_LT(gap, STALL_GAP_MS, "longest gap, ms");
	teardown_redir(skel, in, out);
}

/* The credit of what is dropped comes back */
static void test_stall_delete(void)
{
	const struct redir *r = &stalls[0];
	struct test_vsock_sockmap *skel;
	int in[2], out[2], sink;
	size_t sent;

	skel = setup_stall(r, in, out, &sent);
	if (!skel)
		return;

	sink = bpf_map__fd(skel->maps.sink);
	if (!xbpf_map_delete_elem(sink, &u32(0))) {
		skel->bss->redirect = false;
		skel->data->verdict = SK_DROP;
		/* All of it at once, which takes all credit */
		settimeo(in[1], LIMIT_SEC * 1000);
		ASSERT_EQ(fill(in[1], 0), 64 * SPACE, "sent to nobody");
	}
	teardown_redir(skel, in, out);
}

/* A byte takes much more than its length in the kernel */
static void test_stall_bytes(const struct redir *r)
{
	u32 info[SK_MEMINFO_VARS];
	socklen_t len = sizeof(info);
	struct test_vsock_sockmap *skel;
	int in[2], out[2], one = 1, i;
	u64 start;

	skel = setup_redir(r, in, out);
	if (!skel)
		return;

	if (!limit_space(r->in_family, in[1], in[0]) ||
	    !limit_space(r->out_family, out[0], out[1]) ||
	    !ASSERT_OK(setsockopt(in[1], IPPROTO_TCP, TCP_NODELAY, &one,
				  sizeof(one)), "TCP_NODELAY"))
		goto out;

	fill(out[0], 0);
	/* The window has space for as many bytes, but not for so many packets */
	start = get_time_ns();
	for (i = 0; i < SPACE / 2 && elapsed_ms(start) < DELAY_MS;) {
		if (send(in[1], "x", 1, MSG_DONTWAIT) != 1)
			continue;
		start = get_time_ns();
		i++;
	}
	/* What the backlog has merged meanwhile is charged to nobody */
	start = get_time_ns();
	do {
		usleep(DELAY_MS * 1000);
		if (!ASSERT_OK(getsockopt(in[0], SOL_SOCKET, SO_MEMINFO, info,
					  &len), "SO_MEMINFO"))
			goto out;
	} while (info[SK_MEMINFO_RMEM_ALLOC] <= FILL_LEN &&
		 elapsed_ms(start) < LIMIT_SEC * 1000);
	ASSERT_GT(info[SK_MEMINFO_RMEM_ALLOC], FILL_LEN, "memory");
	ASSERT_LE(info[SK_MEMINFO_RMEM_ALLOC], info[SK_MEMINFO_RCVBUF] + SPACE,
		  "memory");
out:
	teardown_redir(skel, in, out);
}

/* What a UDP source receives for a sink that does not read is lost there */
static void test_stall_udp(void)
{
	const struct redir r = {
		.in_family = AF_INET, .in_sotype = SOCK_DGRAM,
		.out_family = AF_VSOCK, .out_sotype = SOCK_STREAM,
		.action = TO_EGRESS,
	};
	struct test_vsock_sockmap *skel;
	size_t sent, had = 0;
	char buf[FILL_LEN];
	int in[2], out[2];
	ssize_t n;

	skel = setup_redir(&r, in, out);
	if (!skel)
		return;

	if (!limit_space(r.in_family, in[1], in[0]) ||
	    !limit_space(r.out_family, out[0], out[1]))
		goto out;
	sent = fill(in[1], 0);
	while ((n = recv_timeout(out[1], buf, sizeof(buf), MSG_DONTWAIT, 1)) > 0)
		had += n;
	ASSERT_EQ(sent, 64 * SPACE, "sent");
	ASSERT_GT(had, SPACE / 2, "received");
	ASSERT_LE(had, STALL_MAX, "received");
out:
	teardown_redir(skel, in, out);
}

static bool expect_end(int fd)
{
	static char buf[FILL_LEN];
	ssize_t n;

	do {
		n = recv_timeout(fd, buf, sizeof(buf), MSG_DONTWAIT, LIMIT_SEC);
	} while (n > 0);
	return ASSERT_EQ(n, 0, "end");
}

/* A sink that is shut down for sending meanwhile sends what it was given, and
 * then the end; without that if it leaves the map.
 */
static void test_stall_shutdown(const struct redir *r, bool leaves)
{
	struct test_vsock_sockmap *skel;
	int in[2], out[2], sink;
	size_t sent;
	char c;

	skel = setup_stall(r, in, out, &sent);
	if (!skel)
		return;

	ASSERT_OK(shutdown(in[1], SHUT_WR), "shutdown of the source's peer");
	if (ASSERT_OK(poll_read(in[0], LIMIT_SEC), "poll") &&
	    ASSERT_EQ(recv(in[0], &c, 1, MSG_DONTWAIT), 0, "end of the source"))
		ASSERT_OK(shutdown(out[0], SHUT_WR), "shutdown of the sink");

	sink = bpf_map__fd(skel->maps.sink);
	if (leaves) {
		xbpf_map_delete_elem(sink, &u32(0));
		expect_end(out[1]);
	} else if (read_sequence(out[1], 0, sent)) {
		expect_end(out[1]);
	}
	teardown_redir(skel, in, out);
}

/* The end of what a socket sends is none of what it receives */
static void test_stall_shutdown_ingress(void)
{
	struct test_vsock_sockmap *skel;
	int in[2], out[2];
	size_t sent;

	skel = setup_stall(&vsock_to_unix, in, out, &sent);
	if (!skel)
		return;

	ASSERT_OK(shutdown(out[0], SHUT_WR), "shutdown of the sink");
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

/* What waits for a sink that is broken gives its space back */
static void test_stall_broken(const struct redir *r)
{
	struct test_vsock_sockmap *skel;
	int in[2], out[2];
	size_t sent;

	skel = setup_stall(r, in, out, &sent);
	if (!skel)
		return;

	close(out[1]);
	/* The window probes of TCP take longer than the others wait */
	ASSERT_GE(fill_for(in[1], 0, LIMIT_SEC * 1000), 64 * SPACE,
		  "sent to nobody");
	close(out[0]);
	close(in[0]);
	close(in[1]);
	test_vsock_sockmap__destroy(skel);
}

/* A source that is closed has sent what it sent */
static void test_stall_close(void)
{
	const struct redir *r = &stalls[0];
	struct test_vsock_sockmap *skel;
	int in[2], out[2];
	size_t sent;

	skel = setup_stall(r, in, out, &sent);
	if (!skel)
		return;

	close(in[1]);
	close(in[0]);
	read_sequence(out[1], 0, sent);
	close(out[0]);
	close(out[1]);
	test_vsock_sockmap__destroy(skel);
}

static const struct redir records[] = {
	{ "unix dgram to vsock",
	  AF_UNIX, SOCK_DGRAM, AF_VSOCK, SOCK_SEQPACKET, TO_EGRESS },
	{ "vsock to unix dgram",
	  AF_VSOCK, SOCK_SEQPACKET, AF_UNIX, SOCK_DGRAM, TO_EGRESS },
	{ "vsock to vsock",
	  AF_VSOCK, SOCK_SEQPACKET, AF_VSOCK, SOCK_SEQPACKET, TO_EGRESS },
};

static const unsigned int record_lens[] = {
	1, 4096, 4097, 16384, 32768, 59000, 65536, 65537, 131072, 200000,
};

static void *send_records(void *arg)
{
	struct bulk *b = arg;
	int i;

	for (i = 0; i < ARRAY_SIZE(record_lens); i++)
		if (send(b->fd, b->buf + i, record_lens[i], 0) != record_lens[i])
			return (void *)-1L;

	return NULL;
}

/* One record in, one record out, also when the sink reads slowly */
static void test_records(const struct redir *r, bool slow)
{
	enum { MAX_LEN = 262144 };
	struct test_vsock_sockmap *skel;
	int in[2], out[2], i;
	char *buf, *got;
	struct bulk b;
	ssize_t n;
	u64 start;

	if (!rust_only())
		return;

	buf = new_sequence(MAX_LEN);
	got = malloc(MAX_LEN);
	if (!buf || !ASSERT_OK_PTR(got, "malloc"))
		goto out;

	skel = setup_redir(r, in, out);
	if (!skel)
		goto out;

	if (!start_sending(&b, in[1], buf, send_records))
		goto close;

	for (i = 0; i < ARRAY_SIZE(record_lens); i++) {
		if (slow)
			usleep(20 * 1000);
		/* poll() reports the first packet of a record, recv() waits
		 * for the last
		 */
		start = get_time_ns();
		do {
			n = recv_timeout(out[1], got, MAX_LEN, MSG_DONTWAIT,
					 LIMIT_SEC);
		} while (n < 0 && errno == EAGAIN &&
			 elapsed_ms(start) < LIMIT_SEC * 1000);
		if (!ASSERT_EQ(n, record_lens[i], "length of a record") ||
		    !ASSERT_OK(memcmp(got, buf + i, n), "payload"))
			break;
	}
	done_sending(&b);
close:
	teardown_redir(skel, in, out);
out:
	free(buf);
	free(got);
}

static const struct redir record_streams[] = {
	{ "unix stream",
	  AF_VSOCK, SOCK_SEQPACKET, AF_UNIX, SOCK_STREAM, TO_EGRESS },
	{ "tcp", AF_VSOCK, SOCK_SEQPACKET, AF_INET, SOCK_STREAM, TO_EGRESS },
	{ "unix stream, ingress",
	  AF_VSOCK, SOCK_SEQPACKET, AF_UNIX, SOCK_STREAM, TO_INGRESS },
	{ "tcp, ingress",
	  AF_VSOCK, SOCK_SEQPACKET, AF_INET, SOCK_STREAM, TO_INGRESS },
};

/* A record in several packets goes to a stream */
static void test_record_to_stream(const struct redir *r)
{
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
	expect_bytes(r->action == TO_EGRESS ? out[1] : out[0], buf, LEN);
	teardown_redir(skel, in, out);
out:
	free(buf);
}

/* A record that the sink can never take is dropped alone, and counted */
static void test_record_too_large(void)
{
	const struct redir r = {
		.in_family = AF_UNIX, .in_sotype = SOCK_DGRAM,
		.out_family = AF_VSOCK, .out_sotype = SOCK_SEQPACKET,
		.action = TO_EGRESS,
	};
	static const char large[SPACE + 1];
	struct test_vsock_sockmap *skel;
	u32 meminfo[SK_MEMINFO_VARS];
	socklen_t len = sizeof(meminfo);
	int in[2], out[2];

	if (!rust_only())
		return;

	skel = setup_redir(&r, in, out);
	if (!skel)
		return;

	if (set_space(out[0], SPACE)) {
		xsend(in[1], "a", 1, 0);
		xsend(in[1], large, sizeof(large), 0);
		xsend(in[1], "b", 1, 0);
		expect_record(out[1], "a", 1);
		expect_record(out[1], "b", 1);
		if (ASSERT_OK(getsockopt(out[0], SOL_SOCKET, SO_MEMINFO,
					 meminfo, &len), "SO_MEMINFO"))
			ASSERT_EQ(meminfo[SK_MEMINFO_DROPS], 1, "drops");
	}
	teardown_redir(skel, in, out);
}

/* What was passed belongs to the owner, in the map or not, and is not judged
 * again.
 */
static void test_leave(int sotype, const char *how)
{
	struct fixture f;
	int map, prog;

	if (!strcmp(how, "delete") && !rust_only())
		return;
	if (!setup(&f, sotype, PASS))
		return;

	map = bpf_map__fd(f.skel->maps.source);
	prog = bpf_program__fd(f.skel->progs.prog_skb_verdict);
	xsend(f.writer, hello, sizeof(hello), 0);
	expect_passed(&f, sizeof(hello));

	if (!strcmp(how, "delete")) {
		xbpf_map_delete_elem(map, &u32(0));
		xsend(f.writer, "more", 4, 0);
		if (!wait_inq(f.reader, sizeof(hello) + 4) || !enter_map(&f))
			goto out;
		ASSERT_EQ(f.skel->bss->passed, sizeof(hello) + 4, "passed once");
		expect_bytes(f.reader, hello, sizeof(hello));
		expect_bytes(f.reader, "more", 4);
	} else if (!strcmp(how, "detach")) {
		ASSERT_OK(bpf_prog_detach2(prog, map, BPF_SK_SKB_VERDICT),
			  "detach");
		expect_record(f.reader, hello, sizeof(hello));
		xsend(f.writer, "more", 4, 0);
		expect_record(f.reader, "more", 4);
	} else {
		test_vsock_sockmap__destroy(f.skel);
		f.skel = NULL;
		expect_record(f.reader, hello, sizeof(hello));
		xsend(f.writer, "more", 4, 0);
		expect_record(f.reader, "more", 4);
	}
out:
	teardown(&f);
}

/* The verdict sees data that is too little for the owner */
static void test_rcvlowat(void)
{
	int lowat = 100;
	struct fixture f;

	if (!rust_only() || !setup(&f, SOCK_STREAM, PASS))
		return;

	ASSERT_OK(setsockopt(f.reader, SOL_SOCKET, SO_RCVLOWAT, &lowat,
			     sizeof(lowat)), "SO_RCVLOWAT");
	xsend(f.writer, hello, sizeof(hello), 0);
	expect_passed(&f, sizeof(hello));
	teardown(&f);
}

/* A program may change a packet, and its length, and not the credit */
static void test_changed(int sotype, int head, int tail)
{
	enum { COUNT = 40, LEN = 4000 };
	char buf[2 * LEN], want[LEN];
	struct fixture f;
	ssize_t n, len = LEN + head + tail;
	int i;

	if (!setup(&f, sotype, PASS))
		return;

	f.skel->bss->change_head = head;
	f.skel->bss->change_tail = tail;
	memset(want, 'x', sizeof(want));
	/* A small buffer, used several times over */
	set_space(f.reader, 16384);
	for (i = 0; i < COUNT; i++) {
		settimeo(f.writer, LIMIT_SEC * 1000);
		xsend(f.writer, want, LEN, 0);
		n = recv_timeout(f.reader, buf, len, MSG_DONTWAIT, LIMIT_SEC);
		if (!ASSERT_EQ(n, len, "recv") ||
		    !ASSERT_MEMEQ(buf + head, want, len - head, "payload"))
			break;
	}
	teardown(&f);
}

/* The verdict is about a record, in however many packets that comes */
static void test_whole_record(enum action action)
{
	enum { MAX_PACKET = 65536, LEN = 2 * MAX_PACKET + 333 };
	char *buf, *got;
	struct fixture f;
	ssize_t n = -1;
	u64 start;

	if (!rust_only() || !setup(&f, SOCK_SEQPACKET, action))
		return;

	buf = new_sequence(LEN);
	got = malloc(LEN);
	if (!buf || !ASSERT_OK_PTR(got, "malloc"))
		goto out;

	xsend(f.writer, buf, LEN, 0);
	start = get_time_ns();
	while (READ_ONCE(f.skel->bss->judged) < 1 &&
	       elapsed_ms(start) < LIMIT_SEC * 1000)
		usleep(1000);
	ASSERT_EQ(f.skel->bss->longest, LEN, "bytes that were judged at once");
	ASSERT_EQ(f.skel->bss->judged, 1, "judged");

	if (action == PASS) {
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
	teardown(&f);
}

struct both {
	pthread_t thread;
	int fd;
	size_t had;
};

static void *read_some(void *arg)
{
	struct both *b = arg;
	char c;

	while (recv(b->fd, &c, 1, 0) == 1)
		b->had++;
	return NULL;
}

/* Two readers that sleep share what comes, and both see the end */
static void test_two_readers(enum action action)
{
	struct both b[2] = {};
	struct fixture f;
	void *ret;
	int i;

	if (!rust_only() || !setup(&f, SOCK_STREAM, action))
		return;

	for (i = 0; i < 2; i++) {
		b[i].fd = f.reader;
		if (xpthread_create(&b[i].thread, NULL, read_some, &b[i]))
			goto out;
	}
	for (i = 0; i < 50; i++) {
		usleep(2000);
		xsend(f.writer, hello, sizeof(hello), 0);
	}
	ASSERT_OK(shutdown(f.writer, SHUT_WR), "shutdown");
	for (i = 0; i < 2; i++)
		xpthread_join(b[i].thread, &ret);
	ASSERT_EQ(b[0].had + b[1].had, 50 * sizeof(hello), "bytes read");
out:
	teardown(&f);
}

/* The second of two small writes waits for the ACK of the first, which must not be
 * a delayed one
 */
static void test_redirect_prompt(void)
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

/* The peer has all the space but what the owner holds, who does not read */
static void test_redirect_beside(void)
{
	enum { COUNT = 4 };
	struct test_vsock_sockmap *skel;
	int in[2], out[2], i;
	char *buf;

	skel = setup_redir(&vsock_to_unix, in, out);
	if (!skel)
		return;

	buf = calloc(1, SPACE);
	if (!ASSERT_OK_PTR(buf, "calloc") || !set_space(in[0], COUNT * SPACE))
		goto out;

	settimeo(in[1], LIMIT_SEC * 1000);
	skel->bss->redirect = false;
	xsend(in[1], buf, SPACE, 0);
	for (i = 0; i < AT_ONCE_MS && skel->bss->passed < SPACE; i++)
		usleep(1000);
	ASSERT_EQ(skel->bss->passed, SPACE, "passed");
	skel->bss->redirect = true;
	for (i = 0; i < COUNT; i++) {
		if (!ASSERT_EQ(send(in[1], buf, SPACE, 0), SPACE, "send") ||
		    !expect_bytes(out[1], buf, SPACE))
			goto out;
	}
	expect_bytes(in[0], buf, SPACE);
out:
	free(buf);
	teardown_redir(skel, in, out);
}

/* A target that does not read keeps some of the source's space. What goes to
 * another one has the rest.
 */
static void test_redirect_beside_stalled(void)
{
	enum { COUNT = 4 };
	struct test_vsock_sockmap *skel;
	int in[2], out[2], other[2] = { -1, -1 }, i;
	char *buf;

	skel = setup_redir(&vsock_to_unix, in, out);
	if (!skel)
		return;

	buf = calloc(1, SPACE);
	if (!ASSERT_OK_PTR(buf, "calloc") ||
	    !set_space(in[0], COUNT * SPACE) ||
	    create_pair(AF_UNIX, SOCK_STREAM, &other[0], &other[1]) ||
	    xbpf_map_update_elem(bpf_map__fd(skel->maps.sink), &u32(1),
				 &u64(other[0]), BPF_NOEXIST))
		goto out;

	settimeo(in[1], LIMIT_SEC * 1000);
	fill(out[0], 0);
	xsend(in[1], buf, SPACE, 0);
	for (i = 0; i < AT_ONCE_MS && skel->bss->passed < SPACE; i++)
		usleep(1000);
	ASSERT_EQ(skel->bss->passed, SPACE, "redirected");
	skel->bss->sink_key = 1;
	for (i = 0; i < 2 * COUNT; i++) {
		if (!ASSERT_EQ(send(in[1], buf, SPACE, 0), SPACE, "send") ||
		    !expect_bytes(other[1], buf, SPACE))
			break;
	}
out:
	free(buf);
	close_fd(&other[0]);
	close_fd(&other[1]);
	teardown_redir(skel, in, out);
}

/* An empty datagram among others does not end the redirect */
static void test_redirect_empty(void)
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

/* The pages of a file go to the peer as they are: what is written to them before
 * they are read shows.
 */
static void test_sendfile(enum action action)
{
	enum { LEN = 3 * 65536 + 333, FROM = 1000 };
	off_t off = FROM;
	struct fixture f;
	char *buf;
	int file;
	ssize_t n;

	if (action == PASS && !rust_only())
		return;
	if (!setup(&f, SOCK_STREAM, action))
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
	teardown(&f);
}

#define MONITOR_SPACE	(16 * 1024 * 1024)

/* A vsockmon device, and a socket that is given a copy of each vsock packet */
struct monitor {
	int fd;
	int ifindex;
};

/* Makes a device if @ifindex is 0, otherwise takes it away */
static int change_monitor(const char *name, int ifindex)
{
	struct {
		struct nlmsghdr n;
		struct ifinfomsg i;
		char buf[256];
	} req = {
		.n.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
		.n.nlmsg_flags = NLM_F_REQUEST,
		.n.nlmsg_type = ifindex ? RTM_DELLINK : RTM_NEWLINK,
		.i.ifi_index = ifindex,
		.i.ifi_flags = IFF_UP,
		.i.ifi_change = IFF_UP,
	};
	struct rtnl_handle rth = { .fd = -1 };
	struct rtattr *info;
	int err;

	if (!ifindex) {
		req.n.nlmsg_flags |= NLM_F_CREATE | NLM_F_EXCL;
		addattrstrz(&req.n, sizeof(req), IFLA_IFNAME, name);
		info = addattr_nest(&req.n, sizeof(req), IFLA_LINKINFO);
		addattrstrz(&req.n, sizeof(req), IFLA_INFO_KIND, "vsockmon");
		addattr_nest_end(&req.n, info);
	}

	err = rtnl_open(&rth, 0);
	if (!err)
		err = rtnl_talk(&rth, &req.n, NULL);
	rtnl_close(&rth);
	return err;
}

static void close_monitor(struct monitor *m)
{
	close_fd(&m->fd);
	if (m->ifindex)
		ASSERT_OK(change_monitor(NULL, m->ifindex), "monitor away");
}

static bool open_monitor(struct monitor *m)
{
	struct sockaddr_ll addr = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
	};
	int space = MONITOR_SPACE;
	char name[IF_NAMESIZE];

	m->fd = -1;
	snprintf(name, sizeof(name), "vsm%d", getpid());
	change_monitor(name, 0);
	m->ifindex = if_nametoindex(name);
	if (!m->ifindex) {
		printf("%s:SKIP: no vsockmon, CONFIG_VSOCKMON\n", __func__);
		test__skip();
		return false;
	}

	addr.sll_ifindex = m->ifindex;
	m->fd = socket(AF_PACKET, SOCK_RAW, 0);
	if (ASSERT_OK_FD(m->fd, "packet socket") &&
	    ASSERT_OK(setsockopt(m->fd, SOL_SOCKET, SO_RCVBUFFORCE, &space,
				 sizeof(space)), "space") &&
	    ASSERT_OK(bind(m->fd, (void *)&addr, sizeof(addr)), "bind"))
		return true;

	close_monitor(m);
	return false;
}

/* Of the packets that a socket has sent */
struct seen {
	unsigned int with_data;
	unsigned int credit_updates;
	size_t bytes;
};

/* Sums up what @fd has sent, until nothing more comes */
static struct seen look(const struct monitor *m, int fd)
{
	struct __packed {
		struct af_vsockmon_hdr mon;
		struct virtio_vsock_hdr hdr;
	} pkt;
	struct pollfd p = { .fd = m->fd, .events = POLLIN };
	struct tpacket_stats stats = {};
	socklen_t len = sizeof(stats);
	struct seen seen = {};
	struct sockaddr_vm addr;
	socklen_t addr_len = sizeof(addr);
	ssize_t n;

	if (!ASSERT_OK(getsockname(fd, (void *)&addr, &addr_len), "getsockname"))
		return seen;

	while (poll(&p, 1, DELAY_MS) == 1) {
		n = recv(m->fd, &pkt, sizeof(pkt), MSG_DONTWAIT | MSG_TRUNC);
		if (!ASSERT_GE(n, (ssize_t)sizeof(pkt), "recv from monitor"))
			break;
		if (le32toh(pkt.hdr.src_port) != addr.svm_port)
			continue;

		switch (le16toh(pkt.hdr.op)) {
		case VIRTIO_VSOCK_OP_RW:
			seen.with_data++;
			seen.bytes += n - sizeof(pkt);
			break;
		case VIRTIO_VSOCK_OP_CREDIT_UPDATE:
			seen.credit_updates++;
			break;
		}
	}

	ASSERT_OK(getsockopt(m->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &len),
		  "statistics");
	ASSERT_EQ(stats.tp_drops, 0, "packets that were not seen");
	return seen;
}

/* A datagram of 64 KiB goes on in one packet */
static void test_monitor_datagrams(void)
{
	enum { COUNT = 16, LEN = 65536 };
	struct test_vsock_sockmap *skel;
	int in[2], out[2], i;
	struct monitor m;
	struct seen seen;
	char *buf;

	if (!rust_only())
		return;

	skel = setup_redir(&unix_dgram_to_vsock, in, out);
	if (!skel)
		return;

	if (!open_monitor(&m))
		goto teardown;
	buf = new_sequence(LEN);
	if (!buf)
		goto out;

	for (i = 0; i < COUNT; i++) {
		xsend(in[1], buf, LEN, 0);
		if (!expect_bytes(out[1], buf, LEN))
			goto out;
	}

	seen = look(&m, out[0]);
	ASSERT_EQ(seen.bytes, COUNT * LEN, "bytes that were seen");
	ASSERT_EQ(seen.with_data, COUNT, "packets with data");
out:
	free(buf);
	close_monitor(&m);
teardown:
	teardown_redir(skel, in, out);
}

/* How many credit updates @receiver sends for some writes that end at @reader:
 * one after the other, or all of them @queued before they are read, or before
 * the receiver enters @map, if that is not -1.
 */
static int count_updates(const struct monitor *m, int writer, int receiver,
			 int reader, int map, bool queued)
{
	enum { COUNT = 32, LEN = 1024 };
	static const char buf[COUNT * LEN];
	int i;

	if (map >= 0 && !queued &&
	    xbpf_map_update_elem(map, &u32(0), &u64(receiver), BPF_NOEXIST))
		return -1;

	for (i = 0; i < COUNT; i++) {
		xsend(writer, buf, LEN, 0);
		if (!queued && !expect_bytes(reader, buf, LEN))
			return -1;
	}

	if (!queued)
		return look(m, receiver).credit_updates;

	if (!wait_inq(receiver, sizeof(buf)) ||
	    (map >= 0 && xbpf_map_update_elem(map, &u32(0), &u64(receiver),
					      BPF_NOEXIST)) ||
	    !expect_bytes(reader, buf, sizeof(buf)))
		return -1;

	return look(m, receiver).credit_updates;
}

/* The source of a redirect tells its peer of space no more often than an owner
 * does who receives the same
 */
static void test_monitor_updates(bool queued)
{
	int in[2], out[2], pair[2] = { -1, -1 };
	struct test_vsock_sockmap *skel;
	int source, plain, redirected;
	struct monitor m;

	if (queued && !rust_only())
		return;

	skel = setup_redir(&vsock_to_unix, in, out);
	if (!skel)
		return;

	if (!open_monitor(&m))
		goto teardown;
	source = bpf_map__fd(skel->maps.source);
	if (xbpf_map_delete_elem(source, &u32(0)) ||
	    create_pair(AF_VSOCK, SOCK_STREAM, &pair[0], &pair[1]))
		goto out;

	plain = count_updates(&m, pair[1], pair[0], pair[0], -1, queued);
	redirected = count_updates(&m, in[1], in[0], out[1], source, queued);
	ASSERT_GT(plain, 0, "updates of an owner");
	ASSERT_GE(redirected, 0, "redirected");
	ASSERT_LE(redirected, plain, "updates of a redirect");
out:
	close_fd(&pair[0]);
	close_fd(&pair[1]);
	close_monitor(&m);
teardown:
	teardown_redir(skel, in, out);
}

struct private_net {
	int listener;
	int reader;
	int writer;
};

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	bool ok;

	if (fd < 0)
		return false;
	ok = write(fd, text, strlen(text)) == strlen(text);
	close(fd);
	return ok;
}

/* A thread in a network namespace whose vsock is its own */
static void *in_private_net(void *arg)
{
	struct private_net *net = arg;

	/* The mode is that of the namespaces that a namespace makes */
	if (unshare(CLONE_NEWNET) ||
	    !write_file("/proc/sys/net/vsock/child_ns_mode", "local") ||
	    unshare(CLONE_NEWNET))
		return (void *)-1L;

	net->listener = socket_loopback(AF_VSOCK, SOCK_STREAM);
	if (net->listener < 0 ||
	    create_pair(AF_VSOCK, SOCK_STREAM, &net->reader, &net->writer))
		return (void *)-1L;
	return NULL;
}

/* A map has sockets of several namespaces, which stay where they are */
static void test_namespace(enum action action)
{
	struct private_net net = { -1, -1, -1 };
	struct sockaddr_storage addr;
	struct trace in = {}, outside = {};
	socklen_t len = sizeof(addr);
	pthread_t thread;
	struct fixture f;
	void *ret;
	int map, fd;

	if (!rust_only() || !setup(&f, SOCK_STREAM, action))
		return;

	if (xpthread_create(&thread, NULL, in_private_net, &net))
		goto out;
	if (xpthread_join(thread, &ret) || !ASSERT_NULL(ret, "private net"))
		goto out;

	map = bpf_map__fd(f.skel->maps.source);
	trace_peek(&outside, f.reader, f.writer);
	if (xbpf_map_update_elem(map, &u32(0), &u64(net.reader), BPF_EXIST))
		goto out;
	trace_peek(&in, net.reader, net.writer);
	ASSERT_STREQ(in.text, outside.text, "in the other namespace");

	fd = socket(AF_VSOCK, SOCK_STREAM, 0);
	if (ASSERT_OK(getsockname(net.listener, (void *)&addr, &len), "getsockname") &&
	    ASSERT_OK_FD(fd, "socket"))
		ASSERT_NEQ(connect(fd, (void *)&addr, len), 0, "connect from here");
	close_fd(&fd);
out:
	close_fd(&net.listener);
	close_fd(&net.reader);
	close_fd(&net.writer);
	teardown(&f);
}

static bool start(const char *what, int sotype, enum action action,
		  const char *how)
{
	char s[MAX_TEST_NAME];

	snprintf(s, sizeof(s), "%s: %s: %s%s", what,
		 sotype == SOCK_STREAM ? "stream" : "seqpacket",
		 action_names[action], how);
	return test__start_subtest(s);
}

static void test_sotype(int sotype)
{
	static const char * const ways[] = { "delete", "detach", "close map" };
	const struct scenario *sc;
	enum action action;
	char how[64];
	int i;

	if (start("verdict", sotype, PASS, ""))
		test_pass(sotype);
	if (start("verdict", sotype, DROP, ""))
		test_drop(sotype);

	for (action = NO_PROG; action <= PASS; action++) {
		if (start("blocking recv", sotype, action, ""))
			test_blocking_recv(sotype, action);
		if (start("end of file after data", sotype, action, ": close"))
			test_eof_after_data(sotype, action, true);
		if (start("end of file after data", sotype, action,
			  ": shutdown"))
			test_eof_after_data(sotype, action, false);
		for (sc = scenarios; sc < scenarios + ARRAY_SIZE(scenarios); sc++) {
			snprintf(how, sizeof(how), ": %s", sc->name);
			if ((!sc->sotype || sc->sotype == sotype) &&
			    start("as outside", sotype, action, how))
				test_as_outside(sc, sotype, action);
		}
	}

	if (start("bounded", sotype, PASS, ""))
		test_bounded(sotype);
	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		snprintf(how, sizeof(how), ": %s", ways[i]);
		if (start("leave the map", sotype, PASS, how))
			test_leave(sotype, ways[i]);
	}
	if (start("changed", sotype, PASS, ": longer at the front"))
		test_changed(sotype, 100, 0);
	if (start("changed", sotype, PASS, ": shorter at the end"))
		test_changed(sotype, 0, -1000);
}

void test_vsock_sockmap(void)
{
	const struct redir *r;
	char s[MAX_TEST_NAME];
	enum action action;
	sighandler_t old;

	/* A send that fails is told by its test */
	old = signal(SIGPIPE, SIG_IGN);

	test_sotype(SOCK_STREAM);
	test_sotype(SOCK_SEQPACKET);

	for (r = redirs; r < redirs + ARRAY_SIZE(redirs); r++) {
		snprintf(s, sizeof(s), "redirect: %s", r->name);
		if (test__start_subtest(s))
			test_redirect(r);
	}

	for (r = redirs; r < redirs + ARRAY_SIZE(redirs); r++) {
		if (r->in_family != AF_UNIX || r->out_sotype != SOCK_STREAM)
			continue;

		snprintf(s, sizeof(s), "redirect 1 MiB: %s", r->name);
		if (test__start_subtest(s))
			test_redirect_bulk(r);
	}

	for (action = NO_PROG; action <= DROP; action++) {
		if (start("unrelated pair", SOCK_STREAM, action, ""))
			test_unrelated_pair(action);
		if (start("timeout", SOCK_STREAM, action, ""))
			test_timeout(action);
	}

	if (start("partly read before", SOCK_STREAM, PASS, ""))
		test_partly_read();
	for (action = PASS; action <= DROP; action++) {
		if (start("queued before", SOCK_STREAM, action, ""))
			test_queued(SOCK_STREAM, action);
		if (start("queued before", SOCK_SEQPACKET, action, ""))
			test_queued(SOCK_SEQPACKET, action);
	}
	if (test__start_subtest("queued before: vsock stream to unix stream"))
		test_queued_redirect();
	if (start("collapsed", SOCK_STREAM, PASS, ""))
		test_collapsed();
	if (start("SO_RCVLOWAT", SOCK_STREAM, PASS, ""))
		test_rcvlowat();
	for (action = PASS; action <= DROP; action++) {
		if (start("whole record", SOCK_SEQPACKET, action, ""))
			test_whole_record(action);
	}
	if (test__start_subtest("redirect beside what the owner has not read"))
		test_redirect_beside();
	if (test__start_subtest("redirect beside a target that does not read"))
		test_redirect_beside_stalled();
	if (test__start_subtest("redirect small writes of tcp"))
		test_redirect_prompt();
	if (test__start_subtest("redirect an empty datagram"))
		test_redirect_empty();
	for (r = stalls; r < stalls + ARRAY_SIZE(stalls); r++) {
		snprintf(s, sizeof(s), "stalled sink: %s", r->name);
		if (test__start_subtest(s))
			test_stall(r);
	}
	for (r = stalls; r < stalls + ARRAY_SIZE(stalls); r++) {
		if (r->in_sotype != SOCK_STREAM ||
		    r->out_sotype != SOCK_STREAM || r->action != TO_EGRESS)
			continue;
		snprintf(s, sizeof(s), "stalled sink: idle: %s", r->name);
		if (test__start_subtest(s))
			test_stall_idle(r);
		snprintf(s, sizeof(s), "stalled sink: resumes at once: %s",
			 r->name);
		if (test__start_subtest(s))
			test_stall_resume(r);
	}
	if (test__start_subtest("stalled sink: idle: unix dgram to another's"))
		test_stall_one_way();
	if (test__start_subtest("stalled sink: leaves the map"))
		test_stall_delete();
	if (test__start_subtest("stalled sink: source is closed"))
		test_stall_close();
	for (r = stalls; r < stalls + ARRAY_SIZE(stalls); r++) {
		if (r->in_family != AF_INET || r->action != TO_EGRESS)
			continue;
		snprintf(s, sizeof(s), "stalled sink: bytes: %s", r->name);
		if (test__start_subtest(s))
			test_stall_bytes(r);
	}
	if (test__start_subtest("stalled sink: udp to vsock stream"))
		test_stall_udp();
	for (r = stalls; r < stalls + ARRAY_SIZE(stalls); r++) {
		if (r->in_sotype != SOCK_STREAM ||
		    r->out_sotype != SOCK_STREAM || r->action != TO_EGRESS)
			continue;
		snprintf(s, sizeof(s), "stalled sink: broken: %s", r->name);
		if (test__start_subtest(s))
			test_stall_broken(r);

		/* The end of TCP comes behind what has no space */
		if (r->in_family == AF_INET)
			continue;
		snprintf(s, sizeof(s), "end in order: %s", r->name);
		if (test__start_subtest(s))
			test_stall_shutdown(r, false);
		snprintf(s, sizeof(s), "end in order: %s: leaves the map",
			 r->name);
		if (test__start_subtest(s))
			test_stall_shutdown(r, true);
	}
	if (test__start_subtest("end in order: not of ingress"))
		test_stall_shutdown_ingress();
	for (r = records; r < records + ARRAY_SIZE(records); r++) {
		snprintf(s, sizeof(s), "redirect records: %s", r->name);
		if (test__start_subtest(s))
			test_records(r, false);
		snprintf(s, sizeof(s), "redirect records: %s: slow reader",
			 r->name);
		if (test__start_subtest(s))
			test_records(r, true);
	}
	for (r = record_streams;
	     r < record_streams + ARRAY_SIZE(record_streams); r++) {
		snprintf(s, sizeof(s), "redirect a large record: to %s", r->name);
		if (test__start_subtest(s))
			test_record_to_stream(r);
	}
	if (test__start_subtest("redirect a record that is too large"))
		test_record_too_large();

	if (test__start_subtest("monitor: large datagrams: a packet each"))
		test_monitor_datagrams();
	if (test__start_subtest("monitor: credit updates: one by one"))
		test_monitor_updates(false);
	if (test__start_subtest("monitor: credit updates: queued before"))
		test_monitor_updates(true);

	for (action = NO_PROG; action <= PASS; action++) {
		if (start("shutdown for reading", SOCK_STREAM, action, ""))
			test_shutdown_rd(action);
		if (start("end of file wakes reader", SOCK_STREAM, action,
			  ": close"))
			test_eof_wakes_reader(action, true);
		if (start("end of file wakes reader", SOCK_STREAM, action,
			  ": shutdown"))
			test_eof_wakes_reader(action, false);
		if (start("interrupted", SOCK_STREAM, action, ""))
			test_interrupted(action, 0);
		if (start("interrupted", SOCK_STREAM, action, ": timeout"))
			test_interrupted(action, LIMIT_SEC * 1000);
		if (start("not data", SOCK_STREAM, action, ""))
			test_not_data(action);
		if (start("sendfile", SOCK_STREAM, action, ""))
			test_sendfile(action);
		if (start("two readers", SOCK_STREAM, action, ""))
			test_two_readers(action);
		if (start("namespace", SOCK_STREAM, action, ""))
			test_namespace(action);
	}

	signal(SIGPIPE, old);
}
