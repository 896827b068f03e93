/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions for macros, static inlines and fields of structures that are opaque to bindgen, which
 * Rust cannot use. They convert and forward; they make no decisions.
 */
#ifndef RDS_RUST_HELPERS_H
#define RDS_RUST_HELPERS_H

#include <linux/completion.h>
#include <linux/debugfs.h>
#include <linux/net.h>
#include <linux/poll.h>
#include <linux/seq_file.h>
#include <linux/shrinker.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <net/sock.h>

/* sync */
void rds_rust_spin_lock_init(spinlock_t *lock, const char *name, struct lock_class_key *key);
void rds_rust_spin_lock_bh(spinlock_t *lock);
void rds_rust_spin_unlock_bh(spinlock_t *lock);
bool rds_rust_spin_trylock_bh(spinlock_t *lock);
void rds_rust_local_bh_disable(void);
void rds_rust_local_bh_enable(void);
void rds_rust_lockdep_assert_held(spinlock_t *lock);
void rds_rust_init_completion(struct completion *done);
bool rds_rust_wait_for_completion(struct completion *done, unsigned int timeout_ms);
struct workqueue_struct *rds_rust_alloc_workqueue(const char *name, unsigned int flags,
						  int max_active);
unsigned int rds_rust_arm_delayed_work(struct workqueue_struct *wq, struct delayed_work *dwork,
				       unsigned long delay, bool restart);
u64 rds_rust_ktime_get_ns(void);
u64 rds_rust_ktime_get_real_ns(void);
bool rds_rust_is_resource_admin(void);
u32 rds_rust_current_user(void);
bool rds_rust_is_killed(void);
unsigned int rds_rust_begin_noio(void);
void rds_rust_end_noio(unsigned int before);
u32 rds_rust_random_u32(void);
u64 __percpu *rds_rust_alloc_percpu_u64(size_t count);
void rds_rust_free_percpu_u64(u64 __percpu *counters);
void rds_rust_this_cpu_add(u64 __percpu *counter, u64 value);
void rds_rust_this_cpu_count(u64 __percpu *events, u64 __percpu *amount, u64 value);
u64 rds_rust_sum_percpu(u64 __percpu *counter);
void rds_rust_printk_ratelimit_init(void);
bool rds_rust_printk_ratelimit(unsigned int kind);
#ifdef RDS_RUST_KUNIT
bool rds_rust_printk_ratelimit_busy(unsigned int kind);
#endif

/* debugfs */
struct rds_view {
	int (*show)(struct seq_file *m, void *data);
	void *data;
};

struct dentry *rds_rust_debugfs_dir(const char *name);
void rds_rust_debugfs_file(const char *name, struct dentry *dir, struct rds_view *view);
void rds_rust_debugfs_remove(struct dentry *dir);
bool rds_rust_seq_is_full(struct seq_file *m);

/* mm */
void *rds_rust_kmalloc(size_t size, bool atomic);
void *rds_rust_alloc_shard(int node, unsigned int order, unsigned int smallest, bool may_sleep);
void rds_rust_free_shard(void *memory, unsigned int order);
int rds_rust_node_of(const void *memory);
struct shrinker *
rds_rust_shrinker_register(const char *name, long batch,
			   unsigned long (*count)(struct shrinker *, struct shrink_control *),
			   unsigned long (*scan)(struct shrinker *, struct shrink_control *),
			   void *data);
void *rds_rust_shrinker_data(const struct shrinker *shrinker);
unsigned long rds_rust_shrink_want(const struct shrink_control *control);
unsigned long rds_rust_totalram_pages(void);

/* net */
void *rds_rust_sock_alloc(struct net *net, struct socket *sock, struct proto *proto, int kern);
void rds_rust_sock_start(struct socket *sock, const struct proto_ops *ops,
			 void (*destruct)(struct sock *sk));
int rds_rust_socket_type(const struct socket *sock);
void rds_rust_sock_hold(struct sock *sk);
void rds_rust_sock_put(struct sock *sk);
void rds_rust_sock_release(struct socket *sock);
struct net *rds_rust_init_net(void);
u32 rds_rust_net_owner(const struct net *net, u32 none);

/* Calls of a registration of network namespaces. */
struct rds_pernet {
	void *context;
	int (*init)(void *context, struct net *net, void **slot);
	void (*exit)(void *context, void **slot);
};

int rds_rust_register_pernet(const struct rds_pernet *calls);
void rds_rust_unregister_pernet(void);
bool rds_rust_net_is_init(const struct net *net);
int rds_rust_sk_sndbuf(const struct sock *sk);
int rds_rust_sk_rcvbuf(const struct sock *sk);
u64 rds_rust_sk_inode(const struct sock *sk);
unsigned int rds_rust_sk_recv_buffer(const struct sock *sk);
unsigned int rds_rust_sk_timestamps(const struct sock *sk);
void rds_rust_sk_set_timestamps(struct sock *sk, bool on, bool new);
bool rds_rust_sk_net_admin(const struct sock *sk);
long rds_rust_sk_sndtimeo(const struct sock *sk, bool noblock);
long rds_rust_sk_rcvtimeo(const struct sock *sk, bool noblock);
bool rds_rust_sk_has_error(const struct sock *sk);
void rds_rust_sk_set_error(struct sock *sk, int error);
int rds_rust_sk_take_error(struct sock *sk);
long rds_rust_sk_wait(struct sock *sk, bool (*condition)(void *arg), void *arg, long timeout,
		      unsigned int events, bool alone);
void rds_rust_sk_note_no_room(struct sock *sk);
void rds_rust_sk_wake(struct sock *sk, unsigned int events, int how, int band);
void rds_rust_poll_wait(struct file *file, struct socket *sock, struct poll_table_struct *wait);
int rds_rust_sockptr_read(void *to, sockptr_t from, size_t len);

#endif
