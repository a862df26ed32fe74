// SPDX-License-Identifier: GPL-2.0
/*
 * The example of Documentation/networking/vsock-sockmap.rst, and its tests. The
 * page shows the lines between the two markers.
 */

#include <time.h>

#include "vsock_sockmap_helpers.h"

/* The page begins here */
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "vsock_sockmap_example.skel.h"

/* Redirects what source receives to target, which sends it */
static struct vsock_sockmap_example *redirect(int source, int target)
{
	struct vsock_sockmap_example *skel;
	int prog, from, to, key = 0;

	skel = vsock_sockmap_example__open_and_load();
	if (!skel)
		return NULL;

	prog = bpf_program__fd(skel->progs.redirect);
	from = bpf_map__fd(skel->maps.source);
	to = bpf_map__fd(skel->maps.target);

	/* The target enters first: packets that find no target are dropped */
	if (bpf_prog_attach(prog, from, BPF_SK_SKB_VERDICT, 0) ||
	    bpf_map_update_elem(to, &key, &target, BPF_NOEXIST) ||
	    bpf_map_update_elem(from, &key, &source, BPF_NOEXIST)) {
		vsock_sockmap_example__destroy(skel);
		return NULL;
	}

	return skel;
}

/* Passes the end of each stream on, until both connections are over */
static int pass_ends(int a, int b)
{
	struct pollfd ends[] = {
		{ .fd = a, .events = POLLRDHUP },
		{ .fd = b, .events = POLLRDHUP },
	};
	const int other[] = { b, a };
	char byte;
	int i;

	/* poll() skips a negative descriptor */
	while (ends[0].fd >= 0 || ends[1].fd >= 0) {
		if (poll(ends, 2, -1) < 0)
			return -1;

		for (i = 0; i < 2; i++) {
			/* The connection, or the redirect to it, has failed */
			if (ends[i].revents & (POLLERR | POLLNVAL))
				return -1;

			if (ends[i].revents & ends[i].events & POLLRDHUP) {
				/* Data is left that was not redirected */
				if (recv(ends[i].fd, &byte, 1, MSG_DONTWAIT) > 0)
					return -1;
				shutdown(other[i], SHUT_WR);
				ends[i].events = 0;
			}

			/* Both directions are over: all data has been sent */
			if (ends[i].revents & POLLHUP)
				ends[i].fd = -1;
		}
	}

	return 0;
}

/* Accepts one vsock client, and connects it to a UNIX server */
static int serve(int listener, const char *path)
{
	struct vsock_sockmap_example *answers = NULL, *requests = NULL;
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int client, server, err = -1;

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	client = accept(listener, NULL, NULL);
	server = socket(AF_UNIX, SOCK_STREAM, 0);
	if (client < 0 || server < 0 ||
	    connect(server, (struct sockaddr *)&addr, sizeof(addr)))
		goto out;

	/* The second call redirects requests that have arrived already */
	answers = redirect(server, client);
	requests = redirect(client, server);
	if (answers && requests)
		err = pass_ends(client, server);
out:
	vsock_sockmap_example__destroy(requests);
	vsock_sockmap_example__destroy(answers);
	if (server >= 0)
		close(server);
	if (client >= 0)
		close(client);
	return err;
}

/* The page ends here */

struct server {
	int listener;
	const char *path;
};

static void *run_pass_ends(void *arg)
{
	const int *ends = arg;

	return (void *)(long)pass_ends(ends[0], ends[1]);
}

static void *run_serve(void *arg)
{
	const struct server *s = arg;

	return (void *)(long)serve(s->listener, s->path);
}

/* Waits for a thread. If it does not end in time, it is left running. */
static void expect_success(pthread_t thread, const char *name)
{
	struct timespec limit;
	void *ret = NULL;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += LIMIT_SEC;
	if (ASSERT_OK(pthread_timedjoin_np(thread, &ret, &limit), name))
		ASSERT_NULL(ret, name);
}

static void expect_end(int fd, const char *name)
{
	char byte;

	ASSERT_EQ(recv_timeout(fd, &byte, 1, MSG_DONTWAIT, LIMIT_SEC), 0, name);
}

static void say(int from, int to, const char *text)
{
	xsend(from, text, strlen(text), MSG_NOSIGNAL);
	expect_bytes(to, text, strlen(text));
}

/* The client ends first, and the server still answers */
static void talk(int client, int server)
{
	say(client, server, "request");
	say(server, client, "answer");
	say(client, server, "last request");
	ASSERT_OK(shutdown(client, SHUT_WR), "end the requests");
	expect_end(server, "end of the requests");

	say(server, client, "last answer");
	xclose(server);
	expect_end(client, "end of the answers");
	xclose(client);
}

static void test_redirect(void)
{
	int ends[2] = { -1, -1 }, client = -1, server = -1;
	struct vsock_sockmap_example *requests, *answers;
	pthread_t thread;

	if (create_pair(AF_VSOCK, SOCK_STREAM, &ends[0], &client) ||
	    create_pair(AF_UNIX, SOCK_STREAM, &ends[1], &server))
		goto close;

	answers = redirect(ends[1], ends[0]);
	requests = redirect(ends[0], ends[1]);
	if (ASSERT_OK_PTR(answers, "answers") &&
	    ASSERT_OK_PTR(requests, "requests") &&
	    !xpthread_create(&thread, NULL, run_pass_ends, ends)) {
		talk(client, server);
		client = -1;
		server = -1;
		expect_success(thread, "pass_ends");
	}

	vsock_sockmap_example__destroy(requests);
	vsock_sockmap_example__destroy(answers);
close:
	close_fd(&client);
	close_fd(&server);
	close_fd(&ends[0]);
	close_fd(&ends[1]);
}

/*
 * The client sends a request before its connection is in a map. With the C
 * version that request would wait for the next one.
 */
static void test_serve(void)
{
	int client = -1, server = -1, listener = -1;
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	pthread_t thread;
	struct server s;

	if (!rust_only())
		return;

	snprintf(addr.sun_path, sizeof(addr.sun_path),
		 "/tmp/vsock_sockmap_example.%d", getpid());
	s.path = addr.sun_path;
	s.listener = socket_loopback(AF_VSOCK, SOCK_STREAM);
	listener = xsocket(AF_UNIX, SOCK_STREAM, 0);
	client = xsocket(AF_VSOCK, SOCK_STREAM, 0);
	if (s.listener < 0 || listener < 0 || client < 0 ||
	    xbind(listener, (struct sockaddr *)&addr, sizeof(addr)) ||
	    xlisten(listener, 1) ||
	    xgetsockname(s.listener, sockaddr(&ss), &len) ||
	    xconnect(client, sockaddr(&ss), len))
		goto close;

	xsend(client, "early request", 13, 0);
	if (xpthread_create(&thread, NULL, run_serve, &s))
		goto close;

	server = accept_timeout(listener, NULL, NULL, LIMIT_SEC);
	if (ASSERT_OK_FD(server, "accept")) {
		expect_bytes(server, "early request", 13);
		talk(client, server);
		client = -1;
	}
	close_fd(&client);
	client = -1;
	expect_success(thread, "serve");
close:
	close_fd(&client);
	close_fd(&listener);
	close_fd(&s.listener);
	unlink(s.path);
}

void test_vsock_sockmap_example(void)
{
	if (test__start_subtest("both directions"))
		test_redirect();
	if (test__start_subtest("serve a client"))
		test_serve();
}
