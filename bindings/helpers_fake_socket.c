// SPDX-License-Identifier: GPL-2.0
/* C functions for the KUnit suites: sockets that belong to no program. */
#include <linux/net.h>
#include <net/net_namespace.h>

#include "helpers_fake_socket.h"

/**
 * rds_rust_fake_socket() - create a socket of this module
 *
 * Sleeps.
 *
 * Return: the socket for rds_rust_fake_close(), or NULL.
 */
struct socket *rds_rust_fake_socket(void)
{
	struct socket *sock;

	return sock_create_kern(&init_net, PF_RDS, SOCK_SEQPACKET, 0, &sock) ? NULL : sock;
}

/**
 * rds_rust_fake_sk() - get the protocol's part of a socket
 * @sock: the socket
 *
 * Return: the part, which exists until rds_rust_fake_close().
 */
struct sock *rds_rust_fake_sk(struct socket *sock)
{
	return sock->sk;
}

/**
 * rds_rust_fake_close() - close a socket of rds_rust_fake_socket()
 * @sock: the socket
 *
 * Sleeps.
 */
void rds_rust_fake_close(struct socket *sock)
{
	sock_release(sock);
}
