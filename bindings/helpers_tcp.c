// SPDX-License-Identifier: GPL-2.0
/* C functions for the wrappers of TCP sockets in kapi/net/tcp.rs. */
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ipv6.h>
#include <linux/string.h>
#include <linux/tcp.h>
#include <linux/user_namespace.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "helpers_tcp.h"

/*
 * The functions that the kernel gives to each new TCP socket. They are the same for all, and an
 * accepted socket has those of its listener instead.
 */
static void (*stock_data_ready)(struct sock *sk);
static void (*stock_write_space)(struct sock *sk);
static void (*stock_state_change)(struct sock *sk);

/*
 * The caller holds the lock of the callbacks, and RCU only if the stack does. A program of BPF may
 * have put the socket into a map, which uses the same field.
 */
static struct rds_tcp_hook *hook_of(const struct sock *sk)
{
	if (__locked_read_sk_user_data_with_flags(sk, SK_USER_DATA_PSOCK))
		return NULL;
	return __locked_read_sk_user_data_with_flags(sk, 0);
}

static void report(struct sock *sk, enum rds_tcp_event event)
{
	struct rds_tcp_hook *hook;

	read_lock_bh(&sk->sk_callback_lock);
	hook = hook_of(sk);
	if (hook && hook->listens && event == RDS_TCP_READABLE)
		event = RDS_TCP_ACCEPTABLE;
	if (hook)
		hook->event(hook, event, sk);
	read_unlock_bh(&sk->sk_callback_lock);
}

static void data_ready(struct sock *sk)
{
	report(sk, RDS_TCP_READABLE);
}

static void state_change(struct sock *sk)
{
	report(sk, RDS_TCP_STATE);
}

static void write_space(struct sock *sk)
{
	struct rds_tcp_hook *hook;

	read_lock_bh(&sk->sk_callback_lock);
	hook = hook_of(sk);
	if (hook && !READ_ONCE(hook->sending) &&
	    (READ_ONCE(hook->each_ack) || sk_stream_is_writeable(sk))) {
		if (sk->sk_socket)
			clear_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
		hook->event(hook, RDS_TCP_WRITABLE, sk);
	}
	read_unlock_bh(&sk->sk_callback_lock);
}

/* Most bytes of a buffer in a namespace of a user. */
#define USER_BUFFER (256U << 10)

/* Any user can be the administrator of a namespace, but not of the initial user namespace. */
static bool is_of_user(const struct sock *sk)
{
	return sock_net(sk)->user_ns != &init_user_ns;
}

/* The size of a buffer in a namespace of a user, whose settings want a size or 0. */
static int user_buffer(unsigned int wanted, u32 most)
{
	return min3(wanted ?: USER_BUFFER, USER_BUFFER, most);
}

/**
 * rds_rust_tcp_create() - create a TCP socket
 * @net: its network namespace
 * @v6: whether its family is IPv6
 * @out: the socket, which does not keep the namespace from ending
 *
 * Its memory, and that of the sockets that it accepts, is limited in a namespace of a user.
 *
 * Return: 0 or an error.
 */
int rds_rust_tcp_create(struct net *net, bool v6, struct socket **out)
{
	struct socket *sock;
	int error;

	/* Without it the kernel would look for a module, under the lock of all namespaces. */
	if (v6 && !ipv6_mod_enabled())
		return -EAFNOSUPPORT;
	error = sock_create_kern(net, v6 ? PF_INET6 : PF_INET, SOCK_STREAM, IPPROTO_TCP, &sock);
	if (error)
		return error;
	WRITE_ONCE(stock_data_ready, READ_ONCE(sock->sk->sk_data_ready));
	WRITE_ONCE(stock_write_space, READ_ONCE(sock->sk->sk_write_space));
	WRITE_ONCE(stock_state_change, READ_ONCE(sock->sk->sk_state_change));
	/* As net.core.bypass_prot_mem of the namespace may say otherwise. */
	if (is_of_user(sock->sk))
		sock->sk->sk_bypass_prot_mem = 0;
	rds_rust_tcp_set_buffers(sock, 0, 0);
	*out = sock;
	return 0;
}

void rds_rust_tcp_tune(struct socket *sock, unsigned int rto_max_ms, int syn_retries)
{
	struct sock *sk = sock->sk;

	/* The task's page fragment may be in use by the caller of the worker. */
	sk->sk_use_task_frag = false;
	sk->sk_allocation = GFP_NOIO | __GFP_NOWARN;
	/* Connections to different peers may have the same port. */
	sock_set_reuseaddr(sk);
	sock_no_linger(sk);
	tcp_sock_set_nodelay(sk);
	sock_set_keepalive(sk);
	tcp_sock_set_keepcnt(sk, 5);
	tcp_sock_set_keepidle(sk, 5);
	tcp_sock_set_keepintvl(sk, 5);
	tcp_sock_set_syncnt(sk, syn_retries);
	lock_sock(sk);
	WRITE_ONCE(inet_csk(sk)->icsk_rto_max, msecs_to_jiffies(rto_max_ms));
	release_sock(sk);
}

/**
 * rds_rust_tcp_set_buffers() - fix the sizes of the buffers of a socket
 * @sock: TCP socket
 * @send: bytes of its send buffer, or 0 if TCP chooses the size
 * @receive: the same of its receive buffer
 *
 * In a namespace of a user the sizes are fixed, and limited as those of programs are, to at most
 * 256 KiB. Otherwise its settings net.ipv4.tcp_rmem and tcp_wmem, which he may change, would be the
 * limits. Sockets that wait at a listener are not charged to the memory cgroup of the user.
 */
void rds_rust_tcp_set_buffers(struct socket *sock, int send, int receive)
{
	struct sock *sk = sock->sk;

	if (is_of_user(sk)) {
		send = user_buffer(send, READ_ONCE(sysctl_wmem_max));
		receive = user_buffer(receive, READ_ONCE(sysctl_rmem_max));
	}
	lock_sock(sk);
	if (send) {
		sk->sk_userlocks |= SOCK_SNDBUF_LOCK;
		WRITE_ONCE(sk->sk_sndbuf, max_t(int, send, SOCK_MIN_SNDBUF));
	}
	if (receive) {
		sk->sk_userlocks |= SOCK_RCVBUF_LOCK;
		WRITE_ONCE(sk->sk_rcvbuf, max_t(int, receive, SOCK_MIN_RCVBUF));
	}
	release_sock(sk);
}

union any_addr {
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* Fills in an address for a socket of either family, and returns its length. */
static int to_sockaddr(const struct socket *sock, const struct rds_tcp_addr *from,
		       union any_addr *to)
{
	memset(to, 0, sizeof(*to));
	if (sock->sk->sk_family == AF_INET) {
		to->v4.sin_family = AF_INET;
		to->v4.sin_port = htons(from->port);
		memcpy(&to->v4.sin_addr, from->addr + 12, sizeof(to->v4.sin_addr));
		return sizeof(to->v4);
	}
	to->v6.sin6_family = AF_INET6;
	to->v6.sin6_port = htons(from->port);
	memcpy(&to->v6.sin6_addr, from->addr, sizeof(to->v6.sin6_addr));
	to->v6.sin6_scope_id = from->scope;
	return sizeof(to->v6);
}

int rds_rust_tcp_bind(struct socket *sock, const struct rds_tcp_addr *addr)
{
	union any_addr to;
	int len = to_sockaddr(sock, addr, &to);

	return kernel_bind(sock, (struct sockaddr_unsized *)&to, len);
}

int rds_rust_tcp_connect(struct socket *sock, const struct rds_tcp_addr *addr)
{
	union any_addr to;
	int len = to_sockaddr(sock, addr, &to);
	int error = kernel_connect(sock, (struct sockaddr_unsized *)&to, len, O_NONBLOCK);

	return error == -EINPROGRESS ? 0 : error;
}

int rds_rust_tcp_listen(struct socket *sock, int backlog)
{
	return kernel_listen(sock, backlog);
}

/**
 * rds_rust_tcp_prepare_listener() - prepare a listener for all addresses
 * @sock: unbound socket
 *
 * The sysctl bindv6only must not exclude IPv4 peers.
 */
void rds_rust_tcp_prepare_listener(struct socket *sock)
{
	struct sock *sk = sock->sk;

	lock_sock(sk);
	sk->sk_reuse = SK_CAN_REUSE;
	sk->sk_ipv6only = false;
	release_sock(sk);
}

/**
 * rds_rust_tcp_accept() - accept a connection
 * @listener: a listening socket
 * @out: the new socket, without a hook
 *
 * Return: 0, -EAGAIN if there is none, or an error.
 */
int rds_rust_tcp_accept(struct socket *listener, struct socket **out)
{
	struct socket *sock;
	struct sock *sk;
	int error = kernel_accept(listener, &sock, O_NONBLOCK);

	if (error)
		return error;
	/* The functions of the listener were copied, but not its hook. */
	sk = sock->sk;
	write_lock_bh(&sk->sk_callback_lock);
	WRITE_ONCE(sk->sk_data_ready, READ_ONCE(stock_data_ready));
	WRITE_ONCE(sk->sk_write_space, READ_ONCE(stock_write_space));
	WRITE_ONCE(sk->sk_state_change, READ_ONCE(stock_state_change));
	write_unlock_bh(&sk->sk_callback_lock);
	*out = sock;
	return 0;
}

static void from_sock(const struct sock *sk, bool peer, struct rds_tcp_addr *out)
{
	const struct inet_sock *inet = inet_sk(sk);
	struct in6_addr addr;

#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6)
		addr = peer ? sk->sk_v6_daddr : sk->sk_v6_rcv_saddr;
	else
#endif
		ipv6_addr_set_v4mapped(peer ? inet->inet_daddr : inet->inet_rcv_saddr, &addr);
	memset(out, 0, sizeof(*out));
	memcpy(out->addr, &addr, sizeof(out->addr));
	out->scope = READ_ONCE(sk->sk_bound_dev_if);
#if IS_ENABLED(CONFIG_IPV6)
	/* An accepted socket is bound to its interface only if the peer is link-local. */
	if (sk->sk_family == AF_INET6 && !out->scope &&
	    ipv6_addr_type(&sk->sk_v6_rcv_saddr) & IPV6_ADDR_LINKLOCAL)
		out->scope = READ_ONCE(inet6_sk(sk)->mcast_oif);
#endif
	out->port = ntohs(peer ? inet->inet_dport : inet->inet_sport);
}

void rds_rust_tcp_local_addr(const struct socket *sock, struct rds_tcp_addr *out)
{
	from_sock(sock->sk, false, out);
}

void rds_rust_tcp_peer_addr(const struct socket *sock, struct rds_tcp_addr *out)
{
	from_sock(sock->sk, true, out);
}

void rds_rust_tcp_port_range(const struct net *net, u16 *low, u16 *high)
{
	int from, to;

	inet_get_local_port_range(net, &from, &to);
	*low = from;
	*high = to;
}

bool rds_rust_tcp_is_reserved(const struct net *net, u16 port)
{
	return inet_is_local_reserved_port(net, port);
}

/**
 * rds_rust_tcp_attach() - report the events of a socket
 * @sock: socket without a hook
 * @hook: its receiver, until rds_rust_tcp_detach()
 *
 * A socket that a listener accepts does not inherit the hook.
 *
 * Return: 0, or -EBUSY if a map of BPF has the socket.
 */
int rds_rust_tcp_attach(struct socket *sock, struct rds_tcp_hook *hook)
{
	struct sock *sk = sock->sk;

	write_lock_bh(&sk->sk_callback_lock);
	if (rcu_access_pointer(__sk_user_data(sk))) {
		write_unlock_bh(&sk->sk_callback_lock);
		return -EBUSY;
	}
	__rcu_assign_sk_user_data_with_flags(sk, hook, SK_USER_DATA_NOCOPY);
	WRITE_ONCE(sk->sk_data_ready, data_ready);
	WRITE_ONCE(sk->sk_write_space, write_space);
	WRITE_ONCE(sk->sk_state_change, state_change);
	write_unlock_bh(&sk->sk_callback_lock);
	return 0;
}

/**
 * rds_rust_tcp_detach() - end the reports of a socket
 * @sock: socket with a hook
 *
 * The hook neither runs nor will run afterwards.
 */
void rds_rust_tcp_detach(struct socket *sock)
{
	struct sock *sk = sock->sk;

	/*
	 * The socket lock excludes a function that the stack has read before it is replaced. That
	 * of a listener is called without it, under RCU, and finds no hook. The kernel waits for
	 * RCU before it frees the text of a module.
	 */
	lock_sock(sk);
	write_lock_bh(&sk->sk_callback_lock);
	rcu_assign_sk_user_data(sk, NULL);
	WRITE_ONCE(sk->sk_data_ready, READ_ONCE(stock_data_ready));
	WRITE_ONCE(sk->sk_write_space, READ_ONCE(stock_write_space));
	WRITE_ONCE(sk->sk_state_change, READ_ONCE(stock_state_change));
	write_unlock_bh(&sk->sk_callback_lock);
	release_sock(sk);
}

/* Sets whether each ACK that is asked for is reported. Callbacks may run meanwhile. */
void rds_rust_tcp_report_acks(struct rds_tcp_hook *hook, bool on)
{
	WRITE_ONCE(hook->each_ack, on);
}

enum rds_tcp_state rds_rust_tcp_state(const struct socket *sock)
{
	switch (inet_sk_state_load(sock->sk)) {
	case TCP_SYN_SENT:
	case TCP_SYN_RECV:
		return RDS_TCP_CONNECTING;
	case TCP_ESTABLISHED:
		return RDS_TCP_OPEN;
	default:
		return RDS_TCP_ENDED;
	}
}

/* Tells whether there is room. A send that takes nothing then lacks memory. */
bool rds_rust_tcp_is_writable(const struct socket *sock)
{
	return sk_stream_is_writeable(sock->sk);
}

/**
 * rds_rust_tcp_send() - send without waiting
 * @sock: connected socket
 * @hook: its receiver of events, or NULL
 * @vec: pieces to send
 * @count: number of pieces
 * @len: sum of their lengths
 *
 * TCP itself reports room if it finds no memory and has nothing in flight. That would make the
 * caller try again at once, so nothing is reported meanwhile. The caller looks whether there is
 * room instead.
 *
 * Return: the number of bytes that TCP has taken, -EAGAIN if there is no room, or an error.
 */
int rds_rust_tcp_send(struct socket *sock, struct rds_tcp_hook *hook, struct kvec *vec,
		      size_t count, size_t len)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	int sent;

	if (hook)
		WRITE_ONCE(hook->sending, true);
	sent = kernel_sendmsg(sock, &msg, vec, count, len);
	if (hook)
		WRITE_ONCE(hook->sending, false);
	/* Before the caller looks for room. Pairs with tcp_check_space(). */
	smp_mb();
	return sent;
}

/* Checks without the lock whether a receive would find anything. An event follows what comes
 * later.
 */
static bool may_receive(const struct sock *sk)
{
	return !skb_queue_empty_lockless(&sk->sk_receive_queue) || READ_ONCE(sk->sk_backlog.tail) ||
	       READ_ONCE(sk->sk_err) || READ_ONCE(sk->sk_shutdown) ||
	       inet_sk_state_load(sk) != TCP_ESTABLISHED;
}

/**
 * rds_rust_tcp_recv() - receive without waiting
 * @sock: connected socket
 * @to: memory for the bytes
 * @len: its length
 * @peek: whether to leave the bytes in the socket
 *
 * Return: the number of bytes, 0 at the end, -EAGAIN if there are none yet, or an error.
 */
int rds_rust_tcp_recv(struct socket *sock, void *to, size_t len, bool peek)
{
	struct kvec vec = { .iov_base = to, .iov_len = len };
	struct msghdr msg = {};

	if (!may_receive(sock->sk))
		return -EAGAIN;
	return kernel_recvmsg(sock, &msg, &vec, 1, len, MSG_DONTWAIT | (peek ? MSG_PEEK : 0));
}

/* Copies bytes for rds_rust_tcp_recv_locked(). */
static int copy_bytes(read_descriptor_t *desc, struct sk_buff *skb, unsigned int offset, size_t len)
{
	char *to = desc->arg.data;

	len = min(len, desc->count);
	if (!len)
		return 0;
	if (skb_copy_bits(skb, offset, to + desc->written, len))
		return -EFAULT;
	desc->written += len;
	desc->count -= len;
	return len;
}

/**
 * rds_rust_tcp_recv_locked() - receive in the event RDS_TCP_READABLE
 * @sk: the socket of the event
 * @to: memory for the bytes
 * @len: its length
 *
 * Leaves urgent bytes, which only a process can skip.
 *
 * Return: the number of bytes, or -EAGAIN if there are none.
 */
int rds_rust_tcp_recv_locked(struct sock *sk, void *to, size_t len)
{
	read_descriptor_t desc = { .count = len, .arg.data = to };
	int got;

	if (skb_queue_empty(&sk->sk_receive_queue))
		return -EAGAIN;
	got = tcp_read_sock(sk, &desc, copy_bytes);
	return got > 0 ? got : -EAGAIN;
}

/* Checks whether a process has more to receive, or the end of the stream. */
bool rds_rust_tcp_has_unread(const struct sock *sk)
{
	return !skb_queue_empty(&sk->sk_receive_queue) ||
	       READ_ONCE(sk->sk_shutdown) & RCV_SHUTDOWN;
}

/* The first sequence number that the peer's TCP has not acknowledged. */
u32 rds_rust_tcp_snd_una(const struct socket *sock)
{
	return READ_ONCE(tcp_sk(sock->sk)->snd_una);
}

/* The CPU that has processed the last packet, or a negative number if there was none. */
int rds_rust_tcp_cpu(const struct socket *sock)
{
	return READ_ONCE(sock->sk->sk_incoming_cpu);
}

/**
 * rds_rust_tcp_last_ack() - signs of life of the peer
 * @sock: connected socket
 * @owes: whether TCP waits for an ack, of bytes or of a probe
 *
 * Return: the time of the last ack, in jiffies.
 */
u32 rds_rust_tcp_last_ack(const struct socket *sock, bool *owes)
{
	const struct tcp_sock *tp = tcp_sk(sock->sk);

	*owes = READ_ONCE(tp->packets_out) || READ_ONCE(inet_csk(sock->sk)->icsk_probes_out);
	return READ_ONCE(tp->rcv_tstamp);
}

/* Makes the next ACK of the peer's TCP an event. */
void rds_rust_tcp_ask_for_acks(struct socket *sock)
{
	set_bit(SOCK_NOSPACE, &sock->flags);
	/* The caller looks at snd_una again. */
	smp_mb__after_atomic();
}

/*
 * Keeps the peer from sending more than its window, so that reading comes to an end. Without a
 * receive buffer the window does not open again, and what does not fit is not acknowledged.
 */
void rds_rust_tcp_close_window(struct socket *sock)
{
	struct sock *sk = sock->sk;

	lock_sock(sk);
	sk->sk_userlocks |= SOCK_RCVBUF_LOCK;
	WRITE_ONCE(sk->sk_rcvbuf, 0);
	release_sock(sk);
}

/**
 * rds_rust_tcp_abort_if_read() - reset a connection unless bytes wait to be read
 * @sock: connected socket without a hook
 * @snd_una: the last value of the sequence number, if the connection was reset
 *
 * The peer's TCP may believe that RDS has what this one has acknowledged. It acknowledges only with
 * the socket lock held, so nothing can be acknowledged and lost.
 *
 * Return: true if the connection was reset.
 */
bool rds_rust_tcp_abort_if_read(struct socket *sock, u32 *snd_una)
{
	struct sock *sk = sock->sk;
	bool done;

	lock_sock(sk);
	done = skb_queue_empty(&sk->sk_receive_queue);
	if (done) {
		*snd_una = tcp_sk(sk)->snd_una;
		sk->sk_prot->disconnect(sk, O_NONBLOCK);
	}
	release_sock(sk);
	return done;
}

/**
 * rds_rust_tcp_abort_up_to() - reset a connection unless more bytes wait to be read
 * @sock: connected socket
 * @most: number of bytes that may be lost
 *
 * See rds_rust_tcp_abort_if_read() about the lock.
 *
 * Return: true if the connection was reset.
 */
bool rds_rust_tcp_abort_up_to(struct socket *sock, u32 most)
{
	struct sock *sk = sock->sk;
	bool done;

	lock_sock(sk);
	done = (u32)tcp_inq(sk) <= most;
	if (done)
		sk->sk_prot->disconnect(sk, O_NONBLOCK);
	release_sock(sk);
	return done;
}

/* Resets a connection, and returns the number of bytes that were not read. They are lost. */
u32 rds_rust_tcp_abort(struct socket *sock)
{
	struct sock *sk = sock->sk;
	u32 lost;

	lock_sock(sk);
	lost = max(tcp_inq(sk), 0);
	sk->sk_prot->disconnect(sk, O_NONBLOCK);
	release_sock(sk);
	return lost;
}
