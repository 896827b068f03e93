// SPDX-License-Identifier: GPL-2.0
/*
 * ping LOCAL PEER: sends three pings to a node, and prints the round-trip times.
 *
 * The peer's kernel answers messages to port 0. To build: cc -o ping ping.c
 */
#include <err.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

/* Parses an IPv4 or IPv6 address, with port 0. For bind() that is a port of the kernel's choice. */
static struct addrinfo *address(const char *host)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_DGRAM }, *found;

	if (getaddrinfo(host, "0", &hints, &found))
		errx(1, "%s is no address", host);
	return found;
}

static void wait_for(int fd, short events)
{
	struct pollfd ready = { .fd = fd, .events = events };

	if (poll(&ready, 1, 60000) != 1)
		errx(1, "no answer");
}

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "usage: ping LOCAL PEER");
	struct addrinfo *local = address(argv[1]), *peer = address(argv[2]);
	int fd = socket(AF_RDS, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

	if (fd < 0)
		err(1, "socket");
	if (bind(fd, local->ai_addr, local->ai_addrlen))
		err(1, "bind");
	for (int i = 1; i <= 3; i++) {
		struct timespec start, end;

		clock_gettime(CLOCK_MONOTONIC, &start);
		while (sendto(fd, NULL, 0, 0, peer->ai_addr, peer->ai_addrlen) < 0)
			if (errno == EAGAIN)		/* The send buffer of this socket is full. */
				wait_for(fd, POLLOUT);
			else if (errno == ENOBUFS)	/* The peer's port is congested. */
				wait_for(fd, POLLWRBAND);
			else
				err(1, "sendto");
		while (recv(fd, NULL, 0, 0) < 0)
			if (errno == EAGAIN)
				wait_for(fd, POLLIN);
			else
				err(1, "recv");
		clock_gettime(CLOCK_MONOTONIC, &end);
		end.tv_sec -= start.tv_sec;
		end.tv_nsec -= start.tv_nsec;
		printf("%d: %ld usec\n", i, end.tv_sec * 1000000 + end.tv_nsec / 1000);
	}
	return 0;
}
