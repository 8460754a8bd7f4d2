/* A NIC with Data Center Bridging for programs that ask rtnetlink for one: an LD_PRELOAD library, for tests only.
 *
 * A veth has no DCB operations, so the kernel answers RTM_GETDCB and RTM_SETDCB for it with EOPNOTSUPP and lldpad calls the
 * device not capable. This library takes those two requests, for interfaces that it is told of, before the kernel sees them,
 * and answers from memory as an adapter with eight traffic classes and host-managed DCBX (IEEE and CEE) would. All else goes
 * to the kernel untouched. Written from the kernel's public headers (linux/dcbnl.h, linux/rtnetlink.h) alone.
 *
 * How answers travel: netlink lets root send from one socket to another, so the reply is sent from a socket of the library's
 * own to the asking socket, and waits in that socket's real receive queue. Blocking, polling, peeking and truncation are then
 * the kernel's, and only the sender's address has to be put right (0, "the kernel") where a program reads it.
 *
 * Environment:
 *   DCBNIC_IFS     comma separated interfaces that have DCB
 *   DCBNIC_RECORD  file that gets one JSON line for each setting made (optional)
 *   DCBNIC_STATE   file that holds the adapters' registers, shared by all processes that name it (optional; default: own
 *                  memory). With it `dcb ets show dev IF` shows what lldpad has programmed.
 *
 * This file: set up, netlink, what is put before the C library. dcbnic_message.c: attributes and the record. dcbnic_ieee.c and
 * dcbnic_commands.c: the requests.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dcbnic.h"

static ssize_t (*real_sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
static ssize_t (*real_sendmsg)(int, const struct msghdr *, int);
static ssize_t (*real_recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
static ssize_t (*real_recvmsg)(int, struct msghdr *, int);

static struct nic *nics; /* MAX_NICS of them; an empty name ends the list */
int record_fd = -1;
static int state_fd = -1, helper_fd = -1;
static uint32_t helper_pid;

/* ---- set up ---------------------------------------------------------------------------------------------------------- */

void die(const char *what)
{
	fprintf(stderr, "dcbnic: %s: %s\n", what, strerror(errno));
	_exit(127);
}

static void lock(void)
{
	if (state_fd >= 0 && flock(state_fd, LOCK_EX) != 0)
		die("lock DCBNIC_STATE");
}

static void unlock(void)
{
	if (state_fd >= 0)
		flock(state_fd, LOCK_UN);
}

/* The adapter as it comes up: DCB off, one traffic class in use, strict, no PFC, capable of eight classes. */
static void reset_nic(struct nic *nic, const char *name)
{
	memset(nic, 0, sizeof(*nic));
	snprintf(nic->name, sizeof(nic->name), "%s", name);
	nic->dcbx = DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_IEEE;
	nic->tcs_pg = nic->tcs_pfc = TCS;
	nic->ets.ets_cap = TCS;
	nic->ieee_pfc.pfc_cap = TCS;
	for (int tc = 0; tc < TCS; tc++) {
		nic->tx.up_map[tc] = nic->rx.up_map[tc] = (uint8_t)(1u << tc);
		nic->tx.bw_pct[tc] = nic->rx.bw_pct[tc] = 100;
	}
}

__attribute__((constructor)) static void start(void)
{
	const char *names = getenv("DCBNIC_IFS"), *state = getenv("DCBNIC_STATE"), *record = getenv("DCBNIC_RECORD");
	size_t size = MAX_NICS * sizeof(struct nic);

	real_sendto = (ssize_t(*)(int, const void *, size_t, int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "sendto");
	real_sendmsg = (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
	real_recvfrom = (ssize_t(*)(int, void *, size_t, int, struct sockaddr *, socklen_t *))dlsym(RTLD_NEXT, "recvfrom");
	real_recvmsg = (ssize_t(*)(int, struct msghdr *, int))dlsym(RTLD_NEXT, "recvmsg");
	if (!names || !*names)
		return;
	if (state) {
		state_fd = open(state, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (state_fd < 0 || ftruncate(state_fd, (off_t)size) != 0)
			die(state);
	}
	nics = mmap(NULL, size, PROT_READ | PROT_WRITE, state ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, state_fd, 0);
	if (nics == MAP_FAILED)
		die("memory for the adapters");
	if (record) {
		record_fd = open(record, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		if (record_fd < 0)
			die(record);
	}
	lock();
	while (*names) {
		size_t length = strcspn(names, ",");
		char name[IFNAMSIZ] = "";
		int i = 0;

		memcpy(name, names, length < IFNAMSIZ ? length : IFNAMSIZ - 1);
		while (i < MAX_NICS && nics[i].name[0] && strcmp(nics[i].name, name) != 0)
			i++;
		if (i < MAX_NICS && !nics[i].name[0])
			reset_nic(&nics[i], name);
		names += length + (names[length] == ',');
	}
	unlock();
}

static struct nic *find_nic(const char *name)
{
	for (int i = 0; nics && i < MAX_NICS && nics[i].name[0]; i++)
		if (strcmp(nics[i].name, name) == 0)
			return &nics[i];
	return NULL;
}

/* ---- netlink --------------------------------------------------------------------------------------------------------- */

static uint32_t port_of(int fd)
{
	struct sockaddr_nl address = {.nl_family = AF_NETLINK};
	socklen_t size = sizeof(address);

	if (getsockname(fd, (struct sockaddr *)&address, &size) != 0 || address.nl_pid == 0) {
		address = (struct sockaddr_nl){.nl_family = AF_NETLINK}; /* nl_pid 0: the kernel chooses */
		if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
			die("bind the asking socket");
		size = sizeof(address);
		if (getsockname(fd, (struct sockaddr *)&address, &size) != 0)
			die("port of the asking socket");
	}
	return address.nl_pid;
}

static void deliver(uint32_t port, struct nlmsghdr *header)
{
	struct sockaddr_nl to = {.nl_family = AF_NETLINK, .nl_pid = port};

	if (helper_fd < 0) {
		helper_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
		if (helper_fd < 0)
			die("helper socket");
		helper_pid = port_of(helper_fd);
	}
	header->nlmsg_pid = port;
	/* Never waits: a program that does not read its replies loses them, as it would with the kernel. */
	if (real_sendto(helper_fd, header, header->nlmsg_len, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EAGAIN)
		die("deliver a reply");
}

static void acknowledge(uint32_t port, const struct nlmsghdr *request, int error)
{
	struct {
		struct nlmsghdr header;
		struct nlmsgerr body;
		char rest[1024];
	} reply = {0};
	/* A refusal quotes the whole request, an acknowledgement only its header. */
	size_t quoted = error ? request->nlmsg_len - sizeof(*request) : 0;

	if (quoted > sizeof(reply.rest))
		quoted = sizeof(reply.rest);
	reply.header.nlmsg_type = NLMSG_ERROR;
	reply.header.nlmsg_flags = error ? 0 : NLM_F_CAPPED;
	reply.header.nlmsg_seq = request->nlmsg_seq;
	reply.header.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof(reply.body)) + quoted);
	reply.body.error = error;
	reply.body.msg = *request;
	memcpy(reply.rest, request + 1, quoted);
	deliver(port, &reply.header);
}

/* A socket that was connected to the kernel takes messages from the kernel alone. Disconnected, it still sends there. */
static void open_to_helper(int fd)
{
	struct sockaddr none = {.sa_family = AF_UNSPEC};

	if (connect(fd, &none, sizeof(none)) != 0)
		die("disconnect the asking socket");
}

/* True if the library took the message: a DCB request for one of its interfaces, on a route socket. */
static bool take(int fd, const void *data, size_t size)
{
	const struct nlmsghdr *request = data;
	const struct dcbmsg *dcb;
	const struct nlattr *head, *name;
	struct message m = {.length = NLMSG_LENGTH(sizeof(*dcb))};
	struct nlmsghdr *reply = (void *)m.buffer;
	char ifname[IFNAMSIZ] = "";
	size_t length;
	struct nic *nic;
	uint32_t port;
	int option = 0, error, saved = errno;
	socklen_t option_size = sizeof(option);

	if (!nics || size < NLMSG_LENGTH(sizeof(*dcb)) || request->nlmsg_len < NLMSG_LENGTH(sizeof(*dcb)) || request->nlmsg_len > size)
		return false;
	if (request->nlmsg_type != RTM_GETDCB && request->nlmsg_type != RTM_SETDCB)
		return false;
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &option, &option_size) != 0 || option != AF_NETLINK)
		return false;
	if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &option, &option_size) != 0 || option != NETLINK_ROUTE)
		return false;
	dcb = NLMSG_DATA(request);
	head = (const void *)((const char *)dcb + NLMSG_ALIGN(sizeof(*dcb)));
	length = request->nlmsg_len - NLMSG_LENGTH(sizeof(*dcb));
	name = find_attr(head, length, DCB_ATTR_IFNAME);
	if (!name)
		return false;
	memcpy(ifname, data_of(name), size_of(name) < IFNAMSIZ ? size_of(name) : IFNAMSIZ - 1);
	nic = find_nic(ifname);
	if (!nic)
		return false;

	memset(reply, 0, m.length);
	reply->nlmsg_type = request->nlmsg_type;
	reply->nlmsg_seq = request->nlmsg_seq;
	((struct dcbmsg *)NLMSG_DATA(reply))->cmd = dcb->cmd;
	port = port_of(fd);
	open_to_helper(fd);
	lock();
	error = answer(nic, dcb->cmd, head, length, &m);
	unlock();
	if (!error) {
		reply->nlmsg_len = m.length;
		deliver(port, reply);
	}
	if (error || request->nlmsg_flags & NLM_F_ACK)
		acknowledge(port, request, error);
	errno = saved;
	return true;
}

/* ---- what is put before the C library -------------------------------------------------------------------------------- */

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t to_size)
{
	return take(fd, data, size) ? (ssize_t)size : real_sendto(fd, data, size, flags, to, to_size);
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
	return sendto(fd, data, size, flags, NULL, 0);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	char flat[8192];
	size_t size = 0;

	for (size_t i = 0; i < message->msg_iovlen; i++) {
		const struct iovec *part = &message->msg_iov[i];

		if (part->iov_len > sizeof(flat) - size)
			return real_sendmsg(fd, message, flags);
		memcpy(flat + size, part->iov_base, part->iov_len);
		size += part->iov_len;
	}
	return take(fd, flat, size) ? (ssize_t)size : real_sendmsg(fd, message, flags);
}

static void from_kernel(void *name, socklen_t size)
{
	struct sockaddr_nl *from = name;

	if (helper_pid && from && size >= sizeof(*from) && from->nl_family == AF_NETLINK && from->nl_pid == helper_pid)
		from->nl_pid = 0;
}

ssize_t recvfrom(int fd, void *data, size_t size, int flags, struct sockaddr *from, socklen_t *from_size)
{
	ssize_t got = real_recvfrom(fd, data, size, flags, from, from_size);

	if (got >= 0 && from && from_size)
		from_kernel(from, *from_size);
	return got;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	ssize_t got = real_recvmsg(fd, message, flags);

	if (got >= 0)
		from_kernel(message->msg_name, message->msg_namelen);
	return got;
}
