// SPDX-License-Identifier: GPL-2.0
/*
 * The packets that vsock sends for a sockmap, as a vsockmon device shows them.
 * A large datagram is one packet. A redirect sends no more credit updates than
 * a socket whose owner reads the same data.
 */

#include <endian.h>
#include <net/if.h>

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_vsock.h>
#include <linux/vm_sockets.h>
#include <linux/vsockmon.h>

#include "netlink_helpers.h"
#include "vsock_sockmap_helpers.h"
#include "test_vsock_sockmap.skel.h"

/* The size of a receive buffer that holds all packets of a subtest, in bytes */
#define MONITOR_RCVBUF	(16 * 1024 * 1024)

/* A vsockmon device, and a socket that receives a copy of each vsock packet */
struct monitor {
	int fd;
	int ifindex;
};

/* Makes a device called name if ifindex is 0. Otherwise deletes that device. */
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
		ASSERT_OK(change_monitor(NULL, m->ifindex), "delete monitor");
}

static bool open_monitor(struct monitor *m)
{
	struct sockaddr_ll addr = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
	};
	int rcvbuf = MONITOR_RCVBUF;
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
	m->fd = xsocket(AF_PACKET, SOCK_RAW, 0);
	if (m->fd >= 0 &&
	    !xsetsockopt(m->fd, SOL_SOCKET, SO_RCVBUFFORCE, &rcvbuf,
			 sizeof(rcvbuf)) &&
	    !xbind(m->fd, (void *)&addr, sizeof(addr)))
		return true;

	close_monitor(m);
	return false;
}

/* A summary of the packets that one socket has sent */
struct seen {
	unsigned int with_data;
	unsigned int credit_updates;
	size_t bytes;
};

/* Sums up what a socket has sent, until nothing more comes */
static struct seen sum_up(const struct monitor *m, int fd)
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

	if (xgetsockname(fd, (void *)&addr, &addr_len))
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

	xgetsockopt(m->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &len);
	ASSERT_EQ(stats.tp_drops, 0, "packets that were not seen");
	return seen;
}

/* A datagram of 64 KiB is sent in one packet */
static void test_monitor_datagrams(const struct subtest_args *args)
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

	seen = sum_up(&m, out[0]);
	ASSERT_EQ(seen.bytes, COUNT * LEN, "bytes that were seen");
	ASSERT_EQ(seen.with_data, COUNT, "packets with data");
out:
	free(buf);
	close_monitor(&m);
teardown:
	teardown_redir(skel, in, out);
}

/*
 * Returns how many credit updates the receiver sends for some writes, or -1.
 * The reader reads the data: after each write, or after all writes if queued.
 * If map is not -1, the receiver enters the map: before the writes, or after
 * them if queued.
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
		return sum_up(m, receiver).credit_updates;

	if (!wait_inq(receiver, sizeof(buf)) ||
	    (map >= 0 && xbpf_map_update_elem(map, &u32(0), &u64(receiver),
					      BPF_NOEXIST)) ||
	    !expect_bytes(reader, buf, sizeof(buf)))
		return -1;

	return sum_up(m, receiver).credit_updates;
}

/*
 * The source of a redirect sends its peer no more credit updates than an owner
 * that receives the same data.
 */
static void test_monitor_updates(const struct subtest_args *args)
{
	int in[2], out[2], pair[2] = { -1, -1 };
	struct test_vsock_sockmap *skel;
	int source, plain, redirected;
	bool queued = args->arg;
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

static const struct subtest subtests[] = {
	{ "monitor: large datagrams: a packet each", test_monitor_datagrams },
	{ "monitor: credit updates: one by one", test_monitor_updates,
	  .arg = false },
	{ "monitor: credit updates: queued before", test_monitor_updates,
	  .arg = true },
};

/* Alone: the monitor sees all vsock packets of the system */
void serial_test_vsock_sockmap_monitor(void)
{
	run_subtests(subtests, ARRAY_SIZE(subtests));
}
