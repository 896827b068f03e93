// SPDX-License-Identifier: GPL-2.0
/*
 * C functions for the socket and synchronisation wrappers of kapi/: macros, static inlines and
 * fields of structures that are opaque to bindgen.
 */
#include <linux/gfp.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/poll.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/user_namespace.h>
#include <linux/workqueue.h>
#include <net/net_namespace.h>
#include <net/sock.h>

#include "helpers.h"

/*
 * The module! macro has no version. Programs that look for the version of RDS expect that of C RDS.
 */
MODULE_VERSION("4.0");
/* Version of this module, from the file VERSION. */
MODULE_INFO(release, RDS_RUST_RELEASE);

/* sync */

void rds_rust_spin_lock_init(spinlock_t *lock, const char *name, struct lock_class_key *key)
{
#if defined(CONFIG_DEBUG_SPINLOCK) && defined(CONFIG_PREEMPT_RT)
	__spin_lock_init(lock, name, key, false);
#elif defined(CONFIG_DEBUG_SPINLOCK)
	__raw_spin_lock_init(spinlock_check(lock), name, key, LD_WAIT_CONFIG);
#else
	spin_lock_init(lock);
#endif
}

void rds_rust_spin_lock_bh(spinlock_t *lock)
{
	spin_lock_bh(lock);
}

void rds_rust_spin_unlock_bh(spinlock_t *lock)
{
	spin_unlock_bh(lock);
}

void rds_rust_local_bh_disable(void)
{
	local_bh_disable();
}

void rds_rust_local_bh_enable(void)
{
	local_bh_enable();
}

bool rds_rust_spin_trylock_bh(spinlock_t *lock)
{
	return spin_trylock_bh(lock);
}

void rds_rust_lockdep_assert_held(spinlock_t *lock)
{
	lockdep_assert_held(lock);
}

void rds_rust_init_completion(struct completion *done)
{
	init_completion(done);
}

/**
 * rds_rust_wait_for_completion() - wait for a completion for a limited time
 * @done: the completion
 * @timeout_ms: limit in milliseconds
 *
 * Sleeps.
 *
 * Return: false if the time has expired.
 */
bool rds_rust_wait_for_completion(struct completion *done, unsigned int timeout_ms)
{
	return wait_for_completion_timeout(done, msecs_to_jiffies(timeout_ms)) > 0;
}

struct workqueue_struct *rds_rust_alloc_workqueue(const char *name, unsigned int flags,
						  int max_active)
{
	return alloc_workqueue("%s", flags, max_active, name);
}

/**
 * rds_rust_arm_delayed_work() - start the timer of a work item
 * @wq: queue for the item
 * @dwork: the item
 * @delay: time in jiffies
 * @restart: restart a timer that is running
 *
 * The caller passes a reference to the item for the timer. A running timer that is cancelled leaves
 * its reference over. The caller's is left over if the running timer stays, or if another task
 * starts the timer or waits for its cancellation.
 *
 * Return: the number of references to the item that are left over.
 */
unsigned int rds_rust_arm_delayed_work(struct workqueue_struct *wq, struct delayed_work *dwork,
				       unsigned long delay, bool restart)
{
	unsigned int left = 0;

	/* Another task may start the timer between both calls. */
	while (!queue_delayed_work(wq, dwork, delay)) {
		if (!restart || !cancel_delayed_work(dwork))
			return left + 1;
		left++;
	}
	return left;
}

u64 rds_rust_ktime_get_ns(void)
{
	return ktime_get_ns();
}

u64 rds_rust_ktime_get_real_ns(void)
{
	return ktime_get_real_ns();
}

/**
 * rds_rust_is_resource_admin() - check whether the caller may exceed limits of users
 *
 * Return: true if the caller has CAP_SYS_RESOURCE. Denials are not audited.
 */
bool rds_rust_is_resource_admin(void)
{
	return ns_capable_noaudit(&init_user_ns, CAP_SYS_RESOURCE);
}

bool rds_rust_is_killed(void)
{
	return fatal_signal_pending(current);
}

unsigned int rds_rust_begin_noio(void)
{
	return memalloc_noio_save();
}

void rds_rust_end_noio(unsigned int before)
{
	memalloc_noio_restore(before);
}

u32 rds_rust_random_u32(void)
{
	return get_random_u32();
}

u64 __percpu *rds_rust_alloc_percpu_u64(size_t count)
{
	return __alloc_percpu_gfp(array_size(count, sizeof(u64)), __alignof__(u64),
				  GFP_KERNEL_ACCOUNT);
}

void rds_rust_free_percpu_u64(u64 __percpu *counters)
{
	free_percpu(counters);
}

void rds_rust_this_cpu_add(u64 __percpu *counter, u64 value)
{
	this_cpu_add(*counter, value);
}

/**
 * rds_rust_this_cpu_count() - count an event and an amount
 * @events: counter that is incremented
 * @amount: counter to which @value is added
 * @value: amount of this event
 */
void rds_rust_this_cpu_count(u64 __percpu *events, u64 __percpu *amount, u64 value)
{
	this_cpu_inc(*events);
	this_cpu_add(*amount, value);
}

u64 rds_rust_sum_percpu(u64 __percpu *counter)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*per_cpu_ptr(counter, cpu));
	return sum;
}

/* mm */

/**
 * rds_rust_kmalloc() - allocate memory
 * @size: size in bytes
 * @atomic: do not sleep
 *
 * Memory is charged to the program unless @atomic. Kernel threads are not charged.
 *
 * Return: the memory, or NULL.
 */
void *rds_rust_kmalloc(size_t size, bool atomic)
{
	gfp_t gfp = atomic ? GFP_ATOMIC : GFP_KERNEL_ACCOUNT;

	/* A constant size lets the compiler select the cache. */
	if (size > 128 && size <= 192)
		return kmalloc(192, gfp);
	if (size > 192 && size <= 256)
		return kmalloc(256, gfp);
	return kmalloc(size, gfp);
}

/**
 * rds_rust_alloc_shard() - allocate zeroed memory for buffers
 * @node: NUMA node, or NUMA_NO_NODE
 * @order: number of pages, as a power of two
 * @smallest: smallest order that the caller would accept
 * @may_sleep: the allocation may sleep
 *
 * Orders above @smallest are only taken if they are available at once. They use no reclaim, no
 * compaction, no reserves and no other node, because a smaller order will do. For the smallest
 * order no process is killed. An allocation that may sleep is charged to the calling program, if
 * there is one.
 *
 * Return: the memory, or NULL.
 */
void *rds_rust_alloc_shard(int node, unsigned int order, unsigned int smallest, bool may_sleep)
{
	gfp_t gfp = __GFP_ZERO | __GFP_COMP | __GFP_NOWARN | (may_sleep ? __GFP_ACCOUNT : 0);
	struct page *page;

	if (order > smallest)
		gfp |= GFP_NOWAIT | __GFP_NORETRY | (node == NUMA_NO_NODE ? 0 : __GFP_THISNODE);
	else
		gfp |= may_sleep ? GFP_KERNEL | __GFP_RETRY_MAYFAIL : GFP_ATOMIC;
	page = alloc_pages_node(node, gfp, order);
	return page ? page_address(page) : NULL;
}

int rds_rust_node_of(const void *memory)
{
	return page_to_nid(virt_to_page(memory));
}

void rds_rust_free_shard(void *memory, unsigned int order)
{
	__free_pages(virt_to_page(memory), order);
}

/* kapi/shrinker.rs repeats these numbers, because bindgen cannot evaluate their casts. */
static_assert(SHRINK_STOP == ULONG_MAX && SHRINK_EMPTY == ULONG_MAX - 1);

struct shrinker *
rds_rust_shrinker_register(const char *name, long batch,
			   unsigned long (*count)(struct shrinker *, struct shrink_control *),
			   unsigned long (*scan)(struct shrinker *, struct shrink_control *),
			   void *data)
{
	struct shrinker *shrinker = shrinker_alloc(0, "%s", name);

	if (!shrinker)
		return NULL;
	shrinker->count_objects = count;
	shrinker->scan_objects = scan;
	shrinker->batch = batch;
	shrinker->private_data = data;
	shrinker_register(shrinker);
	return shrinker;
}

void *rds_rust_shrinker_data(const struct shrinker *shrinker)
{
	return shrinker->private_data;
}

unsigned long rds_rust_shrink_want(const struct shrink_control *control)
{
	return control->nr_to_scan;
}

unsigned long rds_rust_totalram_pages(void)
{
	return totalram_pages();
}

/* net */

void *rds_rust_sock_alloc(struct net *net, struct socket *sock, struct proto *proto, int kern)
{
	struct sock *sk = sk_alloc(net, PF_RDS, GFP_KERNEL, proto, kern);

	if (sk)
		sock_init_data(sock, sk);
	return sk;
}

void rds_rust_sock_start(struct socket *sock, const struct proto_ops *ops,
			 void (*destruct)(struct sock *sk))
{
	sock->ops = ops;
	sock->sk->sk_protocol = 0;
	sock->sk->sk_destruct = destruct;
	sock_prot_inuse_add(sock_net(sock->sk), sock->sk->sk_prot, 1);
}

int rds_rust_socket_type(const struct socket *sock)
{
	return sock->type;
}

void rds_rust_sock_hold(struct sock *sk)
{
	sock_hold(sk);
}

void rds_rust_sock_put(struct sock *sk)
{
	sock_put(sk);
}

/**
 * rds_rust_sock_release() - end the life of a socket for user space
 * @sock: the socket
 *
 * The last reference may be dropped much later.
 */
void rds_rust_sock_release(struct socket *sock)
{
	struct sock *sk = sock->sk;

	sock_prot_inuse_add(sock_net(sk), sk->sk_prot, -1);
	sock_orphan(sk);
	sock->sk = NULL;
	sock_put(sk);
}

int rds_rust_sk_sndbuf(const struct sock *sk)
{
	return READ_ONCE(sk->sk_sndbuf);
}

int rds_rust_sk_rcvbuf(const struct sock *sk)
{
	return READ_ONCE(sk->sk_rcvbuf);
}

u64 rds_rust_sk_inode(const struct sock *sk)
{
	return sock_i_ino(sk);
}

/**
 * rds_rust_sk_recv_buffer() - read the size of the receive buffer and the timestamp option
 * @sk: the socket
 *
 * Return: sk_rcvbuf, which is not negative. The highest bit is set if receive timestamps are
 * enabled.
 */
unsigned int rds_rust_sk_recv_buffer(const struct sock *sk)
{
	return READ_ONCE(sk->sk_rcvbuf) | (unsigned int)sock_flag(sk, SOCK_RCVTSTAMP) << 31;
}

/**
 * rds_rust_sk_timestamps() - read the options for receive timestamps
 * @sk: the socket
 *
 * Return: 1 if timestamps are enabled, plus 2 for nanoseconds, plus 4 for the newer option number.
 */
unsigned int rds_rust_sk_timestamps(const struct sock *sk)
{
	return sock_flag(sk, SOCK_RCVTSTAMP) | sock_flag(sk, SOCK_RCVTSTAMPNS) << 1 |
	       sock_flag(sk, SOCK_TSTAMP_NEW) << 2;
}

/**
 * rds_rust_sk_set_timestamps() - set SO_TIMESTAMP
 * @sk: the socket
 * @on: enable timestamps, in microseconds
 * @new: the program used the newer of the two option numbers
 *
 * Takes the socket lock; may sleep.
 */
void rds_rust_sk_set_timestamps(struct sock *sk, bool on, bool new)
{
	lock_sock(sk);
	sock_valbool_flag(sk, SOCK_RCVTSTAMP, on);
	sock_valbool_flag(sk, SOCK_TSTAMP_NEW, on && new);
	sock_reset_flag(sk, SOCK_RCVTSTAMPNS);
	release_sock(sk);
}

/**
 * rds_rust_sk_net_admin() - check whether the caller administers the socket's network namespace
 * @sk: the socket
 *
 * Return: true if the caller has CAP_NET_ADMIN there.
 */
bool rds_rust_sk_net_admin(const struct sock *sk)
{
	return ns_capable(sock_net(sk)->user_ns, CAP_NET_ADMIN);
}

long rds_rust_sk_sndtimeo(const struct sock *sk, bool noblock)
{
	return sock_sndtimeo(sk, noblock);
}

long rds_rust_sk_rcvtimeo(const struct sock *sk, bool noblock)
{
	return sock_rcvtimeo(sk, noblock);
}

bool rds_rust_sk_has_error(const struct sock *sk)
{
	return READ_ONCE(sk->sk_err) || !skb_queue_empty_lockless(&sk->sk_error_queue);
}

/**
 * rds_rust_sk_set_error() - report an error to the program
 * @sk: the socket
 * @error: positive errno
 *
 * The program reads the error once: through a call that takes it, or through SO_ERROR.
 */
void rds_rust_sk_set_error(struct sock *sk, int error)
{
	WRITE_ONCE(sk->sk_err, error);
}

/**
 * rds_rust_sk_take_error() - take the error that was set for the program
 * @sk: the socket
 *
 * Return: 0 or a negative errno.
 */
int rds_rust_sk_take_error(struct sock *sk)
{
	return sock_error(sk);
}

struct rds_sleeper {
	struct wait_queue_entry wait;
	__poll_t events;
};

/* Wakes only sleepers whose events match, because readers and writers share a queue. */
static int rds_sleeper_wake(struct wait_queue_entry *wait, unsigned int mode, int sync, void *key)
{
	struct rds_sleeper *sleeper = container_of(wait, struct rds_sleeper, wait);

	if (key && !(key_to_poll(key) & sleeper->events))
		return 0;
	return autoremove_wake_function(wait, mode, sync, key);
}

/**
 * rds_rust_sk_wait() - wait for a condition on the socket's wait queue
 * @sk: the socket
 * @condition: function that returns true if the wait is over
 * @arg: argument of @condition
 * @timeout: limit in jiffies
 * @events: poll events that may change the condition
 * @alone: wait exclusively: one such waiter is woken at a time
 *
 * Sleeps.
 *
 * Return: the rest of @timeout, at least 1, if @condition is true. 0 after the timeout,
 * -ERESTARTSYS after a signal.
 */
long rds_rust_sk_wait(struct sock *sk, bool (*condition)(void *arg), void *arg, long timeout,
		      unsigned int events, bool alone)
{
	struct rds_sleeper sleeper = { .events = (__force __poll_t)events };
	wait_queue_head_t *queue = sk_sleep(sk);
	long left = timeout;

	might_sleep();
	init_wait_entry(&sleeper.wait, alone ? WQ_FLAG_EXCLUSIVE : 0);
	sleeper.wait.func = rds_sleeper_wake;
	for (;;) {
		long error = prepare_to_wait_event(queue, &sleeper.wait, TASK_INTERRUPTIBLE);

		/* An exclusive waiter that was woken checks even after the timeout or a signal. */
		if (condition(arg)) {
			left = left ?: 1;
			break;
		}
		if (error) {
			left = error;
			break;
		}
		if (!left)
			break;
		left = schedule_timeout(left);
	}
	finish_wait(queue, &sleeper.wait);
	return left;
}

/**
 * rds_rust_sk_note_no_room() - request SIGIO when there is room to send
 * @sk: the socket
 *
 * The caller checks for room again afterwards.
 */
void rds_rust_sk_note_no_room(struct sock *sk)
{
	sk_set_bit(SOCKWQ_ASYNC_NOSPACE, sk);
	/* Pairs with the returner of room, which returns it first and then checks this bit. */
	smp_mb__after_atomic();
}

/**
 * rds_rust_sk_wake() - wake waiters of a socket and send SIGIO
 * @sk: the socket
 * @events: poll events that have occurred
 * @how: SOCK_WAKE_* for SIGIO
 * @band: POLL_* for SIGIO
 */
void rds_rust_sk_wake(struct sock *sk, unsigned int events, int how, int band)
{
	__poll_t mask = (__force __poll_t)events;
	struct socket_wq *wq;

	rcu_read_lock();
	wq = rcu_dereference(sk->sk_wq);
	if (skwq_has_sleeper(wq)) {
		/*
		 * One reader is not enough: it reports the news only if its buffer has room for
		 * control messages.
		 */
		if (mask & EPOLLWRBAND)
			__wake_up(&wq->wait, TASK_INTERRUPTIBLE, 0, poll_to_key(mask));
		else
			wake_up_interruptible_sync_poll(&wq->wait, mask);
	}
	sk_wake_async_rcu(sk, how, band);
	rcu_read_unlock();
}

void rds_rust_poll_wait(struct file *file, struct socket *sock, struct poll_table_struct *wait)
{
	sock_poll_wait(file, sock, wait);
}

/* Copies the value of a socket option. Returns 0 with all bytes copied, or -EFAULT. */
int rds_rust_sockptr_read(void *to, sockptr_t from, size_t len)
{
	return copy_from_sockptr(to, from, len) ? -EFAULT : 0;
}
