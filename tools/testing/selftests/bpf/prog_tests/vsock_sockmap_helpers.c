// SPDX-License-Identifier: GPL-2.0
/*
 * Helpers that the vsock_sockmap_* tests share. This file is in prog_tests, as
 * test_xsk.c is, because it includes a skeleton: the Makefile generates the
 * skeletons before it compiles this folder, but not before other helpers.
 *
 * The kernel has vsock's sockmap support in C or in Rust
 * (CONFIG_VSOCKETS_SOCKMAP_RUST). Some subtests fail with the C version, and
 * some of these leave a task that cannot be killed. rust_only() skips them.
 */

#include <signal.h>

#include <sys/ioctl.h>
#include <sys/time.h>

#include <linux/sockios.h>
#include <linux/vm_sockets.h>

#include "vsock_sockmap_helpers.h"
#include "test_vsock_sockmap.skel.h"

#define KSYM_LINE_MAX	1024

/*
 * Streams with a source other than TCP. While the target stalls, the end of
 * such a source still arrives. The end of a TCP source would wait in the send
 * buffer of its peer, behind data.
 */
const struct redir stream_redirs[] = {
	{ "vsock stream to vsock stream",
	  AF_VSOCK, SOCK_STREAM, AF_VSOCK, SOCK_STREAM, TO_EGRESS },
	{ "vsock stream to unix stream",
	  AF_VSOCK, SOCK_STREAM, AF_UNIX, SOCK_STREAM, TO_EGRESS },
	{ "vsock stream to tcp",
	  AF_VSOCK, SOCK_STREAM, AF_INET, SOCK_STREAM, TO_EGRESS },
	{ "unix stream to vsock stream",
	  AF_UNIX, SOCK_STREAM, AF_VSOCK, SOCK_STREAM, TO_EGRESS },
	{}
};

const struct redir vsock_to_unix = {
	.in_family = AF_VSOCK, .in_sotype = SOCK_STREAM,
	.out_family = AF_UNIX, .out_sotype = SOCK_STREAM,
	.action = TO_EGRESS,
};

const struct redir unix_dgram_to_vsock = {
	.in_family = AF_UNIX, .in_sotype = SOCK_DGRAM,
	.out_family = AF_VSOCK, .out_sotype = SOCK_STREAM,
	.action = TO_EGRESS,
};

/* The Rust version has Rust symbols with vsock_sockmap in their names */
static bool vsock_sockmap_is_rust(void)
{
	static int is_rust = -1;
	char line[KSYM_LINE_MAX];
	const char *sym;
	FILE *f;
	int s;

	if (is_rust >= 0)
		return is_rust;

	/* A socket loads the module, and with it the symbols */
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

bool rust_only(void)
{
	if (vsock_sockmap_is_rust())
		return true;

	printf("%s:SKIP: this kernel has vsock's sockmap support in C\n",
	       __func__);
	test__skip();
	return false;
}

static const char * const sotype_names[] = {
	[SOCK_STREAM]		= "stream",
	[SOCK_SEQPACKET]	= "seqpacket",
};

static const char * const action_names[] = {
	[NO_PROG]		= "no program",
	[PASS]			= "pass",
	[DROP]			= "drop",
};

/* Runs a subtest once. The string what describes args in its name. */
static void run_one(const struct subtest *s, const char *what,
		    struct subtest_args *args)
{
	char name[MAX_TEST_NAME];

	snprintf(name, sizeof(name), "%s%s%s%s%s", s->name, *what ? ": " : "",
		 what, s->variant ? ": " : "", s->variant ?: "");
	if (!test__start_subtest(name))
		return;

	args->arg = s->arg;
	args->trace = s->trace;
	s->run(args);
}

static void run_sotypes(const struct subtest *s)
{
	struct subtest_args args = {};
	char what[MAX_TEST_NAME];
	int sotype, action;

	for (sotype = 0; sotype < ARRAY_SIZE(sotype_names); sotype++) {
		for (action = 0; action < ARRAY_SIZE(action_names); action++) {
			if (!(s->sotypes & BIT(sotype)) ||
			    !(s->actions & BIT(action)))
				continue;

			args.sotype = sotype;
			args.action = action;
			snprintf(what, sizeof(what), "%s: %s",
				 sotype_names[sotype], action_names[action]);
			run_one(s, what, &args);
		}
	}
}

void run_subtests(const struct subtest *subtests, size_t count)
{
	struct subtest_args args = {};
	const struct subtest *s;
	sighandler_t old;

	/* A send to a closed socket must fail its subtest, not end all tests */
	old = signal(SIGPIPE, SIG_IGN);

	for (s = subtests; s < subtests + count; s++) {
		if (s->sotypes) {
			run_sotypes(s);
		} else if (s->redirs) {
			args.redir = s->redirs;
			for (; args.redir->name; args.redir++)
				run_one(s, args.redir->name, &args);
		} else {
			run_one(s, "", &args);
		}
	}

	signal(SIGPIPE, old);
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

void teardown_pair(struct fixture *f)
{
	close_fd(&f->reader);
	close_fd(&f->writer);
	test_vsock_sockmap__destroy(f->skel);
}

/* Makes a pair that is in no map yet */
bool setup_pair(struct fixture *f, int sotype, enum action action)
{
	f->reader = -1;
	f->writer = -1;
	f->skel = load(action);
	if (!f->skel)
		return false;

	if (!create_pair(AF_VSOCK, sotype, &f->reader, &f->writer))
		return true;

	teardown_pair(f);
	return false;
}

bool enter_map(struct fixture *f)
{
	int map = bpf_map__fd(f->skel->maps.source);

	return !xbpf_map_update_elem(map, &u32(0), &u64(f->reader),
				     BPF_NOEXIST);
}

bool setup_in_map(struct fixture *f, int sotype, enum action action)
{
	if (!setup_pair(f, sotype, action))
		return false;

	if (enter_map(f))
		return true;

	teardown_pair(f);
	return false;
}

void teardown_redir(struct test_vsock_sockmap *skel, int in[2],
		    int out[2])
{
	close_fd(&in[0]);
	close_fd(&in[1]);
	close_fd(&out[0]);
	close_fd(&out[1]);
	test_vsock_sockmap__destroy(skel);
}

/*
 * Makes two pairs. What is written to in[1] arrives at in[0], the source. The
 * target is out[0], whose peer is out[1].
 */
struct test_vsock_sockmap *setup_redir(const struct redir *r, int in[2],
				       int out[2])
{
	struct test_vsock_sockmap *skel;
	int source, target;

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
	target = bpf_map__fd(skel->maps.target);
	if (xbpf_map_update_elem(target, &u32(0), &u64(out[0]), BPF_NOEXIST) ||
	    xbpf_map_update_elem(source, &u32(0), &u64(in[0]), BPF_NOEXIST))
		goto fail;

	return skel;
fail:
	teardown_redir(skel, in, out);
	return NULL;
}

bool expect_bytes(int fd, const char *want, size_t len)
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

bool expect_record(int fd, const char *want, size_t len)
{
	char buf[64];
	ssize_t n;

	n = recv_timeout(fd, buf, sizeof(buf), MSG_DONTWAIT, LIMIT_SEC);
	return ASSERT_EQ(n, len, "recv") &&
	       ASSERT_MEMEQ(buf, want, len, "payload");
}

void expect_errno(int fd, int flags, int err, const char *name)
{
	char buf[sizeof(hello)];
	ssize_t n;

	errno = 0;
	n = recv(fd, buf, sizeof(buf), flags);
	ASSERT_EQ(errno, err, name);
	ASSERT_EQ(n, -1, name);
}

/* Waits until a counter of the BPF program has come to a value */
bool expect_count_within(const __u64 *count, __u64 want, unsigned int ms,
			 const char *name)
{
	u64 start = get_time_ns();

	while (READ_ONCE(*count) < want && elapsed_ms(start) < ms)
		usleep(1000);
	return ASSERT_EQ(READ_ONCE(*count), want, name);
}

/* Waits until the owner has a number of bytes to read */
bool wait_inq(int fd, int want)
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

static void on_alarm(int sig __always_unused)
{
}

/*
 * Calls recv() without MSG_DONTWAIT, and interrupts it with a signal after some
 * ms. If the signal has no effect, another one follows.
 */
ssize_t recv_alarm(int fd, void *buf, size_t len, unsigned int ms)
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

bool set_vsock_buffer(int fd, unsigned long long bytes)
{
	return !xsetsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &bytes,
			    sizeof(bytes));
}

/* Sets the buffers that limit what goes from one socket to its peer */
bool limit_buffers(int family, int from, int to)
{
	int bytes = BUF_SIZE;

	/*
	 * Until the peer knows of the smaller buffer it would send too much,
	 * which resets the connection. So send a packet: its header has the
	 * size of the buffer.
	 */
	if (family == AF_VSOCK)
		return set_vsock_buffer(to, BUF_SIZE) &&
		       xsend(to, hello, sizeof(hello), 0) == sizeof(hello) &&
		       expect_bytes(from, hello, sizeof(hello));
	return !xsetsockopt(from, SOL_SOCKET, SO_SNDBUF, &bytes,
			    sizeof(bytes)) &&
	       !xsetsockopt(to, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

static const char * const later_names[] = {
	[LATER_SEND]		= "send",
	[LATER_SHUTDOWN]	= "shutdown",
	[LATER_CLOSE]		= "close",
};

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

bool start_later(struct later *l)
{
	return !xpthread_create(&l->thread, NULL, do_later, l);
}

void join_later(struct later *l)
{
	void *ret;

	if (!xpthread_join(l->thread, &ret))
		ASSERT_NEQ((long)ret, -1, later_names[l->what]);
}

/*
 * Returns bytes in which a lost or repeated packet shows: 251 is prime, so no
 * two packets near each other begin with the same byte.
 */
char *new_sequence(size_t len)
{
	char *buf = malloc(len);
	size_t i;

	if (!ASSERT_OK_PTR(buf, "malloc"))
		return NULL;

	for (i = 0; i < len; i++)
		buf[i] = i % 251;

	return buf;
}

/*
 * Sends something that is read at once. The reader then gives the credit back,
 * which also tells the sender how large the buffer is.
 */
bool send_greeting(int from, int to)
{
	static const char greeting[FILL_LEN];

	xsend(from, greeting, sizeof(greeting), 0);
	return expect_bytes(to, greeting, sizeof(greeting));
}

/*
 * Sends until nothing could be sent for some ms, and returns how many bytes
 * were sent. They are the bytes that read_sequence() expects, from pos on.
 */
size_t send_until_full_for(int fd, size_t pos, unsigned int ms)
{
	static unsigned char chunk[FILL_LEN];
	size_t sent = 0, i;
	u64 start = get_time_ns();
	ssize_t n;

	while (elapsed_ms(start) < ms && sent < FILL_MAX) {
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

/* Waits DELAY_MS, as a receiver that still handles data may free space */
size_t send_until_full(int fd, size_t pos)
{
	return send_until_full_for(fd, pos, DELAY_MS);
}

/* Reads and checks len bytes of the sequence, from pos on */
bool read_sequence(int fd, size_t pos, size_t len)
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

/* Makes a redirect and fills it: it has accepted *sent bytes and no more */
struct test_vsock_sockmap *setup_stall(const struct redir *r, int in[2],
				       int out[2], size_t *sent)
{
	struct test_vsock_sockmap *skel;
	int reader;

	/* With the C version a vsock source is never stopped */
	if (r->in_family == AF_VSOCK && !rust_only())
		return NULL;

	skel = setup_redir(r, in, out);
	if (!skel)
		return NULL;

	reader = redir_reader(r, out);
	if (!limit_buffers(r->in_family, in[1], in[0]) ||
	    !limit_buffers(r->out_family, out[0], out[1]) ||
	    (r->action == TO_INGRESS &&
	     !limit_buffers(r->out_family, out[1], out[0])) ||
	    !send_greeting(in[1], reader))
		goto fail;

	*sent = send_until_full(in[1], 0);
	if (ASSERT_GT(*sent, BUF_SIZE / 2, "sent") &&
	    ASSERT_LE(*sent, STALL_MAX, "sent"))
		return skel;
fail:
	teardown_redir(skel, in, out);
	return NULL;
}
