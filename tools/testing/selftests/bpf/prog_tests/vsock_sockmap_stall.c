// SPDX-License-Identifier: GPL-2.0
/*
 * A target or an owner that does not read. Its source stops after a bounded
 * number of bytes, and nothing is lost. The kernel does nothing meanwhile, and
 * continues as soon as the target reads, leaves the map or breaks.
 */

#include <dirent.h>

#include <linux/sock_diag.h>

#include "vsock_sockmap_helpers.h"
#include "test_vsock_sockmap.skel.h"

/* A stalled redirect wakes workers less often than this, per second */
#define STALL_WAKEUPS	20

/* A reader never waits longer than this for more data, in ms */
#define STALL_GAP_MS	10

/* Number of measurements. The best counts: other work can disturb some. */
#define STALL_TRIES	5

/* Beside stream_redirs: streams with a TCP source */
static const struct redir tcp_redirs[] = {
	{ "tcp to vsock stream",
	  AF_INET, SOCK_STREAM, AF_VSOCK, SOCK_STREAM, TO_EGRESS },
	{ "tcp to unix stream",
	  AF_INET, SOCK_STREAM, AF_UNIX, SOCK_STREAM, TO_EGRESS },
	{ "tcp to tcp",
	  AF_INET, SOCK_STREAM, AF_INET, SOCK_STREAM, TO_EGRESS },
	{}
};

/* Redirects of records and datagrams, and redirects to ingress */
static const struct redir other_redirs[] = {
	{ "vsock seqpacket to vsock seqpacket",
	  AF_VSOCK, SOCK_SEQPACKET, AF_VSOCK, SOCK_SEQPACKET, TO_EGRESS },
	{ "vsock stream to unix dgram",
	  AF_VSOCK, SOCK_STREAM, AF_UNIX, SOCK_DGRAM, TO_EGRESS },
	{ "vsock stream to unix stream, ingress",
	  AF_VSOCK, SOCK_STREAM, AF_UNIX, SOCK_STREAM, TO_INGRESS },
	{ "unix dgram to vsock stream",
	  AF_UNIX, SOCK_DGRAM, AF_VSOCK, SOCK_STREAM, TO_EGRESS },
	{ "unix dgram to vsock seqpacket",
	  AF_UNIX, SOCK_DGRAM, AF_VSOCK, SOCK_SEQPACKET, TO_EGRESS },
	{ "tcp to tcp, ingress",
	  AF_INET, SOCK_STREAM, AF_INET, SOCK_STREAM, TO_INGRESS },
	{}
};

/* An owner that does not read stops its peer, as outside of the map */
static void test_bounded(const struct subtest_args *args)
{
	struct fixture f;
	size_t sent;

	if (!rust_only() || !setup_pair(&f, args->sotype, PASS))
		return;
	if (!set_vsock_buffer(f.reader, BUF_SIZE) || !enter_map(&f))
		goto out;

	send_greeting(f.writer, f.reader);

	sent = send_until_full(f.writer, 0);
	ASSERT_GT(sent, BUF_SIZE / 2, "sent");
	ASSERT_LE(sent, 4 * BUF_SIZE, "sent");
	read_sequence(f.reader, 0, sent);
	ASSERT_GT(send_until_full(f.writer, sent), BUF_SIZE / 2,
		  "sent when that was read");
out:
	teardown_pair(&f);
}

/* A target that does not read stops the source, and nothing is lost */
static void test_stall(const struct subtest_args *args)
{
	const struct redir *r = args->redir;
	struct test_vsock_sockmap *skel;
	int in[2], out[2], reader;
	size_t sent, more;

	skel = setup_stall(r, in, out, &sent);
	if (!skel)
		return;

	reader = redir_reader(r, out);
	if (read_sequence(reader, 0, sent)) {
		more = send_until_full(in[1], sent);
		ASSERT_GT(more, BUF_SIZE / 2, "sent when that was read");
		read_sequence(reader, sent, more);
	}
	teardown_redir(skel, in, out);
}

/* The sum of what all kernel workers have done since boot */
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

/* Checks that the kernel's workers do nothing for a second */
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
	/* They have run since the boot, if they were found */
	ASSERT_GT(after.waits, 0, "wake-ups since the boot");
	ASSERT_LT(waits, STALL_WAKEUPS, "wake-ups in a second");
	ASSERT_LT(ticks, limit, "busy ticks in a second");
}

/* A redirect that waits costs no CPU time */
static void test_stall_idle(const struct subtest_args *args)
{
	const struct redir *r = args->redir;
	struct test_vsock_sockmap *skel;
	int in[2], out[2];
	size_t sent;

	skel = setup_stall(r, in, out, &sent);
	if (!skel)
		return;

	expect_idle();
	teardown_redir(skel, in, out);
}

/*
 * A UNIX target is connected to a third socket, whose receive queue is full.
 * The backlog only notices that when it tries to send.
 */
static void test_stall_third_socket(const struct subtest_args *args)
{
	enum { COUNT = 50 };
	const struct redir r = {
		.in_family = AF_UNIX, .in_sotype = SOCK_DGRAM,
		.out_family = AF_UNIX, .out_sotype = SOCK_DGRAM,
		.action = TO_EGRESS,
	};
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	struct test_vsock_sockmap *skel;
	int in[2], out[2], fd, i;

	skel = setup_redir(&r, in, out);
	if (!skel)
		return;

	fd = socket_loopback(AF_UNIX, SOCK_DGRAM);
	if (fd < 0 || xgetsockname(fd, sockaddr(&addr), &len) ||
	    xconnect(out[0], sockaddr(&addr), len))
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

/* Returns the longest time that a reader waits for more of len bytes, in ms */
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

/* A redirect continues as soon as the target reads */
static void test_stall_resume(const struct subtest_args *args)
{
	const struct redir *r = args->redir;
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
		sent = send_until_full(in[1], 0);
		ASSERT_GT(sent, BUF_SIZE / 2, "sent");
	}
	ASSERT_LT(gap, STALL_GAP_MS, "longest gap, ms");
	teardown_redir(skel, in, out);
}

/* Packets for a target that left are dropped, and their credit comes back */
static void test_stall_delete(const struct subtest_args *args)
{
	const struct redir *r = &stream_redirs[0];
	struct test_vsock_sockmap *skel;
	int in[2], out[2], target;
	size_t sent;

	skel = setup_stall(r, in, out, &sent);
	if (!skel)
		return;

	target = bpf_map__fd(skel->maps.target);
	if (!xbpf_map_delete_elem(target, &u32(0))) {
		skel->bss->redirect = false;
		skel->data->verdict = SK_DROP;
		/* FILL_MAX is more than the credit, so all credit came back */
		settimeo(in[1], LIMIT_SEC * 1000);
		ASSERT_EQ(send_until_full(in[1], 0), FILL_MAX,
			  "sent to nobody");
	}
	teardown_redir(skel, in, out);
}

/* Sends single bytes, each of which needs much more memory than one byte */
static void send_single_bytes(int fd)
{
	u64 start = get_time_ns();
	int i = 0;

	while (i < BUF_SIZE / 2 && elapsed_ms(start) < DELAY_MS) {
		if (send(fd, "x", 1, MSG_DONTWAIT) != 1)
			continue;
		start = get_time_ns();
		i++;
	}
}

/* For a TCP source, the memory of the bytes is bounded too */
static void test_stall_bytes(const struct subtest_args *args)
{
	const struct redir *r = args->redir;
	u32 info[SK_MEMINFO_VARS];
	socklen_t len = sizeof(info);
	struct test_vsock_sockmap *skel;
	int in[2], out[2], one = 1;
	u64 start;

	skel = setup_redir(r, in, out);
	if (!skel)
		return;

	if (!limit_buffers(r->in_family, in[1], in[0]) ||
	    !limit_buffers(r->out_family, out[0], out[1]) ||
	    xsetsockopt(in[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		goto out;

	send_until_full(out[0], 0);
	send_single_bytes(in[1]);

	/* Skbs that the backlog merges lose their charge: wait for others */
	start = get_time_ns();
	do {
		usleep(DELAY_MS * 1000);
		if (xgetsockopt(in[0], SOL_SOCKET, SO_MEMINFO, info, &len))
			goto out;
	} while (info[SK_MEMINFO_RMEM_ALLOC] <= FILL_LEN &&
		 elapsed_ms(start) < LIMIT_SEC * 1000);
	ASSERT_GT(info[SK_MEMINFO_RMEM_ALLOC], FILL_LEN, "memory");
	ASSERT_LE(info[SK_MEMINFO_RMEM_ALLOC],
		  info[SK_MEMINFO_RCVBUF] + BUF_SIZE, "memory");
out:
	teardown_redir(skel, in, out);
}

/* UDP cannot stop its peer: what the target has no room for is lost */
static void test_stall_udp(const struct subtest_args *args)
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

	if (!limit_buffers(r.in_family, in[1], in[0]) ||
	    !limit_buffers(r.out_family, out[0], out[1]))
		goto out;
	sent = send_until_full(in[1], 0);
	do {
		n = recv_timeout(out[1], buf, sizeof(buf), MSG_DONTWAIT, 1);
		had += n > 0 ? n : 0;
	} while (n > 0);
	ASSERT_EQ(sent, FILL_MAX, "sent");
	ASSERT_GT(had, BUF_SIZE / 2, "received");
	ASSERT_LE(had, STALL_MAX, "received");
out:
	teardown_redir(skel, in, out);
}

/* Packets for a broken target are dropped, and their credit comes back */
static void test_stall_broken(const struct subtest_args *args)
{
	const struct redir *r = args->redir;
	struct test_vsock_sockmap *skel;
	int in[2], out[2];
	size_t sent;

	skel = setup_stall(r, in, out, &sent);
	if (!skel)
		return;

	close(out[1]);
	/* A window probe of TCP can take longer than DELAY_MS */
	ASSERT_GE(send_until_full_for(in[1], 0, LIMIT_SEC * 1000), FILL_MAX,
		  "sent to nobody");
	close(out[0]);
	close(in[0]);
	close(in[1]);
	test_vsock_sockmap__destroy(skel);
}

/* What a source had received when it was closed still reaches the target */
static void test_stall_close(const struct subtest_args *args)
{
	const struct redir *r = &stream_redirs[0];
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

static const struct subtest subtests[] = {
	{ "bounded", test_bounded, ON_BOTH, WITH_PASS },
	{ "stalled target", test_stall, .redirs = stream_redirs },
	{ "stalled target", test_stall, .redirs = tcp_redirs },
	{ "stalled target", test_stall, .redirs = other_redirs },
	{ "stalled target: idle", test_stall_idle, .redirs = stream_redirs },
	{ "stalled target: idle", test_stall_idle, .redirs = tcp_redirs },
	{ "stalled target: idle: unix dgram to a third socket",
	  test_stall_third_socket },
	{ "stalled target: resumes at once", test_stall_resume,
	  .redirs = stream_redirs },
	{ "stalled target: resumes at once", test_stall_resume,
	  .redirs = tcp_redirs },
	{ "stalled target: leaves the map", test_stall_delete },
	{ "stalled target: source is closed", test_stall_close },
	{ "stalled target: bytes", test_stall_bytes, .redirs = tcp_redirs },
	{ "stalled target: udp to vsock stream", test_stall_udp },
	{ "stalled target: broken", test_stall_broken,
	  .redirs = stream_redirs },
	{ "stalled target: broken", test_stall_broken, .redirs = tcp_redirs },
};

/* Alone: it counts how often all kworkers of the system run */
void serial_test_vsock_sockmap_stall(void)
{
	run_subtests(subtests, ARRAY_SIZE(subtests));
}
