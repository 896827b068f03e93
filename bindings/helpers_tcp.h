/* SPDX-License-Identifier: GPL-2.0 */
/* C functions for TCP sockets of the kernel. */
#ifndef RDS_RUST_HELPERS_TCP_H
#define RDS_RUST_HELPERS_TCP_H

#include <linux/net.h>
#include <linux/types.h>
#include <linux/uio.h>

/* Events of a socket. */
enum rds_tcp_event {
	/* A listener has a connection to accept. */
	RDS_TCP_ACCEPTABLE,
	/* Bytes have arrived. The receiver may call rds_rust_tcp_recv_locked(). */
	RDS_TCP_READABLE,
	RDS_TCP_WRITABLE,
	RDS_TCP_STATE,
};

/* States of a connection, as far as they matter here. */
enum rds_tcp_state {
	RDS_TCP_CONNECTING,
	RDS_TCP_OPEN,
	/* The peer sends nothing more. What has arrived can still be read. */
	RDS_TCP_ENDED,
};

/* Receiver of the events of a socket. It must not move or be freed while it is attached. */
struct rds_tcp_hook {
	void (*event)(struct rds_tcp_hook *hook, enum rds_tcp_event event, struct sock *sk);
	/* The socket is a listener. The stack does not lock it for its events. */
	bool listens;
	/* Report each ACK of the peer's TCP, not only that there is room. */
	bool each_ack;
	/* Report no room: a send is under way. */
	bool sending;
};

/* An address and a port in host byte order. IPv4 as an IPv4-mapped address. */
struct rds_tcp_addr {
	u8 addr[16];
	u32 scope;
	u16 port;
};

int rds_rust_tcp_create(struct net *net, bool v6, struct socket **sock);
void rds_rust_tcp_tune(struct socket *sock, unsigned int rto_max_ms, int syn_retries);
int rds_rust_tcp_bind(struct socket *sock, const struct rds_tcp_addr *addr);
int rds_rust_tcp_connect(struct socket *sock, const struct rds_tcp_addr *addr);
void rds_rust_tcp_prepare_listener(struct socket *sock);
int rds_rust_tcp_listen(struct socket *sock, int backlog);
int rds_rust_tcp_accept(struct socket *listener, struct socket **sock);
void rds_rust_tcp_local_addr(const struct socket *sock, struct rds_tcp_addr *out);
void rds_rust_tcp_peer_addr(const struct socket *sock, struct rds_tcp_addr *out);
void rds_rust_tcp_port_range(const struct net *net, u16 *low, u16 *high);
bool rds_rust_tcp_is_reserved(const struct net *net, u16 port);
int rds_rust_tcp_attach(struct socket *sock, struct rds_tcp_hook *hook);
void rds_rust_tcp_detach(struct socket *sock);
void rds_rust_tcp_report_acks(struct rds_tcp_hook *hook, bool on);
void rds_rust_tcp_set_buffers(struct socket *sock, int send, int receive);
enum rds_tcp_state rds_rust_tcp_state(const struct socket *sock);
bool rds_rust_tcp_is_writable(const struct socket *sock);
int rds_rust_tcp_send(struct socket *sock, struct rds_tcp_hook *hook, struct kvec *vec,
		      size_t count, size_t len);
int rds_rust_tcp_recv(struct socket *sock, void *to, size_t len, bool peek);
int rds_rust_tcp_recv_locked(struct sock *sk, void *to, size_t len);
bool rds_rust_tcp_has_unread(const struct sock *sk);
u32 rds_rust_tcp_snd_una(const struct socket *sock);
int rds_rust_tcp_cpu(const struct socket *sock);
u32 rds_rust_tcp_last_ack(const struct socket *sock, bool *owes);
void rds_rust_tcp_ask_for_acks(struct socket *sock);
void rds_rust_tcp_close_window(struct socket *sock);
bool rds_rust_tcp_abort_up_to(struct socket *sock, u32 most);
bool rds_rust_tcp_abort_if_read(struct socket *sock, u32 *snd_una);
u32 rds_rust_tcp_abort(struct socket *sock);

#endif
