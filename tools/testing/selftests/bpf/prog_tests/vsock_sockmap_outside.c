// SPDX-License-Identifier: GPL-2.0
/*
 * The owner of a vsock socket sees the same in a sockmap as outside of it. Each
 * scenario runs in both places and writes what it sees into a trace; the traces
 * must be equal. One subtest does that in another network namespace.
 */

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <linux/sockios.h>

#include "sysctl_helpers.h"
#include "vsock_sockmap_helpers.h"
#include "test_vsock_sockmap.skel.h"

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

/* Notes all that one receive returns, and what is left after it */
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

/* A buffer that is not mapped, and one whose mapping ends too early */
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

/* A socket that is closed with data unread resets the connection */
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

/* Edge-triggered: an event for data that arrives, none for data that is left */
static void trace_epoll(struct trace *t, int reader, int writer)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP | EPOLLET };
	int epfd, i, n, inq;

	epfd = epoll_create1(0);
	if (!ASSERT_OK_FD(epfd, "epoll_create1"))
		return;
	if (!ASSERT_OK(epoll_ctl(epfd, EPOLL_CTL_ADD, reader, &ev),
		       "epoll_ctl"))
		goto out;

	for (i = 0; i < 3; i++) {
		n = epoll_wait(epfd, &ev, 1, 0);
		note(t, "before: %d\n", n);
		xsend(writer, hello, sizeof(hello), 0);
		n = epoll_wait(epfd, &ev, 1, LIMIT_SEC * 1000);
		note(t, "arrived: %d %x\n", n, n > 0 ? ev.events : 0);
		/*
		 * Wait for the whole message. A stream can have more bytes,
		 * which earlier rounds have left.
		 */
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

/* Less data than SO_RCVLOWAT is not readable, even after its verdict */
static void trace_rcvlowat(struct trace *t, int reader, int writer)
{
	int lowat = 8;

	xsetsockopt(reader, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof(lowat));
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

/* Many packets, read in odd pieces: their credit has to come back */
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
			n = recv_timeout(reader, buf,
					 1 + (had * 31) % sizeof(buf),
					 MSG_DONTWAIT, LIMIT_SEC);
			if (!ASSERT_GT(n, 0, "recv"))
				return;
			for (i = 0; i < n; i++)
				sum = sum * 31 + buf[i];
		}
		note(t, "%zu %zu %u\n", sent, had, sum);
	}
}

/* Runs a scenario in the map and outside of it, and compares the traces */
static void test_as_outside(const struct subtest_args *args)
{
	struct trace in = {}, outside = {};
	struct fixture f;
	int p0, p1;

	if (!rust_only() || !setup_in_map(&f, args->sotype, args->action))
		return;

	if (create_pair(AF_VSOCK, args->sotype, &p0, &p1))
		goto out;

	args->trace(&outside, p0, p1);
	args->trace(&in, f.reader, f.writer);
	ASSERT_GT(outside.len, 0, "trace");
	ASSERT_STREQ(in.text, outside.text, "in the map");
	/* The reset scenario has closed the writers */
	if (fcntl(p1, F_GETFD) >= 0)
		xclose(p1);
	if (fcntl(f.writer, F_GETFD) < 0)
		f.writer = -1;
	xclose(p0);
out:
	teardown_pair(&f);
}

struct private_net {
	int listener;
	int reader;
	int writer;
};

/* Runs in a thread of its own, which enters another network namespace */
static void *in_private_net(void *arg)
{
	struct private_net *net = arg;

	/* The mode applies to namespaces that are made from here on */
	if (unshare(CLONE_NEWNET) ||
	    sysctl_set_or_fail("/proc/sys/net/vsock/child_ns_mode", NULL,
			       "local") ||
	    unshare(CLONE_NEWNET))
		return (void *)-1L;

	net->listener = socket_loopback(AF_VSOCK, SOCK_STREAM);
	if (net->listener < 0 ||
	    create_pair(AF_VSOCK, SOCK_STREAM, &net->reader, &net->writer))
		return (void *)-1L;
	return NULL;
}

/* A map can hold sockets of several namespaces; each stays in its own one */
static void test_namespace(const struct subtest_args *args)
{
	struct private_net net = { -1, -1, -1 };
	struct sockaddr_storage addr;
	struct trace in = {}, outside = {};
	socklen_t len = sizeof(addr);
	pthread_t thread;
	struct fixture f;
	void *ret;
	int map, fd;

	if (!rust_only() || !setup_in_map(&f, SOCK_STREAM, args->action))
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

	fd = xsocket(AF_VSOCK, SOCK_STREAM, 0);
	if (fd >= 0 && !xgetsockname(net.listener, sockaddr(&addr), &len))
		ASSERT_NEQ(connect(fd, sockaddr(&addr), len), 0,
			   "connect from here");
	close_fd(&fd);
out:
	close_fd(&net.listener);
	close_fd(&net.reader);
	close_fd(&net.writer);
	teardown_pair(&f);
}

static const struct subtest subtests[] = {
	{ "as outside", test_as_outside, ON_BOTH, WITHOUT_DROP,
	  .variant = "peek", .trace = trace_peek },
	{ "as outside", test_as_outside, ON_SEQPACKET, WITHOUT_DROP,
	  .variant = "records", .trace = trace_records },
	{ "as outside", test_as_outside, ON_SEQPACKET, WITHOUT_DROP,
	  .variant = "empty record", .trace = trace_empty },
	{ "as outside", test_as_outside, ON_BOTH, WITHOUT_DROP,
	  .variant = "flags", .trace = trace_flags },
	{ "as outside", test_as_outside, ON_BOTH, WITHOUT_DROP,
	  .variant = "bad memory", .trace = trace_bad_memory },
	{ "as outside", test_as_outside, ON_BOTH, WITHOUT_DROP,
	  .variant = "half-close", .trace = trace_half_close },
	{ "as outside", test_as_outside, ON_BOTH, WITHOUT_DROP,
	  .variant = "reset", .trace = trace_reset },
	{ "as outside", test_as_outside, ON_BOTH, WITHOUT_DROP,
	  .variant = "shutdown for reading", .trace = trace_shut_rd },
	{ "as outside", test_as_outside, ON_BOTH, WITHOUT_DROP,
	  .variant = "epoll", .trace = trace_epoll },
	{ "as outside", test_as_outside, ON_STREAM, WITHOUT_DROP,
	  .variant = "SO_RCVLOWAT", .trace = trace_rcvlowat },
	{ "as outside", test_as_outside, ON_STREAM, WITHOUT_DROP,
	  .variant = "volume", .trace = trace_volume },
	{ "namespace", test_namespace, ON_STREAM, WITHOUT_DROP },
};

void test_vsock_sockmap_outside(void)
{
	run_subtests(subtests, ARRAY_SIZE(subtests));
}
