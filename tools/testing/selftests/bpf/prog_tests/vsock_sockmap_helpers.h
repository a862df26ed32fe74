/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers that the vsock_sockmap_* tests share: they connect pairs of sockets,
 * put one socket of a pair into a map, and check what arrives. The subtests of
 * a test are the rows of a table, see struct subtest.
 */

#ifndef __VSOCK_SOCKMAP_HELPERS__
#define __VSOCK_SOCKMAP_HELPERS__

#include <errno.h>
#include <error.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sys/param.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <linux/bits.h>

#include "network_helpers.h"
#include "test_progs.h"
#include "testing_helpers.h"
#include "sockmap_helpers.h"

/* The time limit of a wait that might never end, in seconds */
#define LIMIT_SEC	3

/* By this time a thread that calls recv() is asleep, in ms */
#define DELAY_MS	200

/* An operation that takes longer than this has waited for something, in ms */
#define AT_ONCE_MS	1000

/* How early a kernel timeout can end, because it counts in ticks, in ms */
#define TICK_MS		10

/* The size of a limited socket buffer, in bytes */
#define BUF_SIZE	65536

/*
 * The length of one send of send_until_full(). BUF_SIZE is a multiple of it, so
 * the credit suffices for a whole record or for nothing. A seqpacket send with
 * less credit than it needs would send a part of its record, and then fail.
 */
#define FILL_LEN	4096

/* send_until_full() ends after this many bytes: more than all buffers hold */
#define FILL_MAX	(64 * BUF_SIZE)

/*
 * The most bytes that a stalled redirect accepts: the buffers on both sides of
 * the source and of the target, each twice for the overhead, and the packets on
 * their way.
 */
#define STALL_MAX	(10 * BUF_SIZE)

struct test_vsock_sockmap;
struct trace;

/* What happens to data that arrives at the socket in the map */
enum action {
	NO_PROG,
	PASS,
	DROP,
	TO_EGRESS,
	TO_INGRESS,
};

/*
 * The two pairs of a redirect. A list of redirects ends with one that has no
 * name.
 */
struct redir {
	const char *name;
	int in_family;
	int in_sotype;
	int out_family;
	int out_sotype;
	enum action action;
};

/* The arguments of a subtest */
struct subtest_args {
	int sotype;
	enum action action;
	const struct redir *redir;
	int arg;
	void (*trace)(struct trace *t, int reader, int writer);
};

/* Bits for the members sotypes and actions of struct subtest */
#define ON_STREAM	BIT(SOCK_STREAM)
#define ON_SEQPACKET	BIT(SOCK_SEQPACKET)
#define ON_BOTH		(ON_STREAM | ON_SEQPACKET)
#define WITH_NO_PROG	BIT(NO_PROG)
#define WITH_PASS	BIT(PASS)
#define WITH_DROP	BIT(DROP)
#define WITHOUT_DROP	(WITH_NO_PROG | WITH_PASS)
#define WITH_ANY	(WITHOUT_DROP | WITH_DROP)

/*
 * A row of the table of a test. To add a subtest, write a function and add a
 * row. A row with sotypes runs once for each pair of its sotypes and actions. A
 * row with redirs runs once for each of them. Other rows run once. The name of
 * a subtest has three parts, with a colon between them: name, what it runs for,
 * and variant.
 */
struct subtest {
	const char *name;
	void (*run)(const struct subtest_args *args);
	unsigned int sotypes;
	unsigned int actions;
	const struct redir *redirs;
	const char *variant;

	/* Passed on to run() */
	int arg;
	void (*trace)(struct trace *t, int reader, int writer);
};

void run_subtests(const struct subtest *subtests, size_t count);

/* A connected vsock pair */
struct fixture {
	struct test_vsock_sockmap *skel;
	int reader;	/* enters the map */
	int writer;	/* its peer, in no map */
};

/* A thread that does something to fd after DELAY_MS */
struct later {
	pthread_t thread;
	int fd;
	enum {
		LATER_SEND,
		LATER_SHUTDOWN,
		LATER_CLOSE,
	} what;
};

/* A short message, sent with the byte that terminates it */
static const char hello[] = "hello";

extern const struct redir stream_redirs[];
extern const struct redir vsock_to_unix;
extern const struct redir unix_dgram_to_vsock;

/* Skips the subtest and returns false if vsock's sockmap support is in C */
bool rust_only(void);

bool setup_pair(struct fixture *f, int sotype, enum action action);
bool enter_map(struct fixture *f);
bool setup_in_map(struct fixture *f, int sotype, enum action action);
void teardown_pair(struct fixture *f);

struct test_vsock_sockmap *setup_redir(const struct redir *r, int in[2],
				       int out[2]);
struct test_vsock_sockmap *setup_stall(const struct redir *r, int in[2],
				       int out[2], size_t *sent);
void teardown_redir(struct test_vsock_sockmap *skel, int in[2], int out[2]);

bool expect_bytes(int fd, const char *want, size_t len);
bool expect_record(int fd, const char *want, size_t len);
void expect_errno(int fd, int flags, int err, const char *name);
bool expect_count_within(const __u64 *count, __u64 want, unsigned int ms,
			 const char *name);
bool wait_inq(int fd, int want);
ssize_t recv_alarm(int fd, void *buf, size_t len, unsigned int ms);

bool set_vsock_buffer(int fd, unsigned long long bytes);
bool limit_buffers(int family, int from, int to);

bool start_later(struct later *l);
void join_later(struct later *l);

char *new_sequence(size_t len);
bool send_greeting(int from, int to);
size_t send_until_full(int fd, size_t pos);
size_t send_until_full_for(int fd, size_t pos, unsigned int ms);
bool read_sequence(int fd, size_t pos, size_t len);

/* Waits until a program has counted up to a number */
static inline bool expect_count(const __u64 *count, __u64 want,
				const char *name)
{
	return expect_count_within(count, want, LIMIT_SEC * 1000, name);
}

static inline u64 elapsed_ms(u64 start)
{
	return (get_time_ns() - start) / 1000000;
}

/* The end of a redirect at which the data comes out */
static inline int redir_reader(const struct redir *r, int out[2])
{
	return r->action == TO_EGRESS ? out[1] : out[0];
}

#endif
