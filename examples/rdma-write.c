// SPDX-License-Identifier: GPL-2.0
/*
 * rdma-write LOCAL: a server that writes to the memory of its clients, until it is killed.
 * rdma-write LOCAL SERVER: a client that registers memory, and prints what the server has written.
 * LOCAL and SERVER are IPv4 addresses of RDMA devices. To build: cc -o rdma-write rdma-write.c
 */
#include <arpa/inet.h>
#include <err.h>
#include <linux/rds.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static const char text[] = "written by the peer";
static char memory[sizeof(text)];
static struct sockaddr_in peer = { .sin_family = AF_INET };
static struct {
	struct cmsghdr header;
	union { __u64 cookie; struct rds_rdma_notify end; char room[128]; };
} control;
static struct msghdr message = { &peer, sizeof(peer), .msg_control = &control };

/* Sends an empty message to the peer, with a control message if size is not 0. */
static void put(int fd, int type, const void *data, size_t size)
{
	control.header = (struct cmsghdr){ CMSG_LEN(size), SOL_RDS, type };
	memcpy(control.room, data, size);
	message.msg_controllen = size ? CMSG_SPACE(size) : 0;
	if (sendmsg(fd, &message, 0) < 0)
		err(1, "sendmsg");
}

/* Waits for a message or a notification. Returns the type of its control message, or 0. */
static int get(int fd)
{
	message.msg_namelen = sizeof(peer);
	message.msg_controllen = sizeof(control);
	if (recvmsg(fd, &message, 0) < 0)
		err(1, "recvmsg");
	return CMSG_FIRSTHDR(&message) ? control.header.cmsg_type : 0;
}

static void serve(int fd)
{
	struct rds_iovec local = { (uintptr_t)text, sizeof(text) };
	struct rds_rdma_args write = { .remote_vec = { 0, sizeof(text) }, .nr_local = 1,
		.local_vec_addr = (uintptr_t)&local,
		.flags = RDS_RDMA_READWRITE | RDS_RDMA_NOTIFY_ME };

	for (;;) {
		while (get(fd) != RDS_CMSG_RDMA_DEST)	/* A write has ended. */
			dprintf(1, "status %d\n", control.end.status);
		write.cookie = control.cookie;
		put(fd, RDS_CMSG_RDMA_ARGS, &write, sizeof(write));
	}
}

int main(int argc, char **argv)
{
	int fd = socket(AF_RDS, SOCK_SEQPACKET, 0);
	struct sockaddr_in local = { .sin_family = AF_INET, .sin_port = htons(4700) };
	struct rds_get_mr_args region = { .vec = { (uintptr_t)memory, sizeof(memory) },
		.flags = RDS_RDMA_READWRITE | RDS_RDMA_USE_ONCE };

	if (argc < 2 || !inet_aton(argv[1], &local.sin_addr) ||
	    bind(fd, (struct sockaddr *)&local, sizeof(local)))
		err(1, "usage: rdma-write LOCAL [SERVER]; bind");
	if (argc == 2)
		serve(fd);
	/* The ping makes a connection. C RDS does not register memory without one. */
	inet_aton(argv[2], &peer.sin_addr);
	put(fd, 0, "", 0);
	get(fd);
	peer.sin_port = local.sin_port;
	put(fd, RDS_CMSG_RDMA_MAP, &region, sizeof(region));
	get(fd);	/* The written data is there before this message. */
	return puts(memory) < 0;
}
