/* SPDX-License-Identifier: GPL-2.0 */
/* Sockets for the KUnit suites; see helpers_fake_socket.c. */
#ifndef RDS_RUST_HELPERS_FAKE_SOCKET_H
#define RDS_RUST_HELPERS_FAKE_SOCKET_H

#include <linux/net.h>
#include <net/sock.h>

struct socket *rds_rust_fake_socket(void);
struct sock *rds_rust_fake_sk(struct socket *sock);
void rds_rust_fake_close(struct socket *sock);

#endif
