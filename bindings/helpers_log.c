// SPDX-License-Identifier: GPL-2.0
/* C functions for what administrators read: the kernel log and debugfs. */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/ratelimit.h>
#include <linux/seq_file.h>

#include "helpers.h"

#define RDS_RATELIMIT(name, factor) \
	RATELIMIT_STATE_INIT(name, DEFAULT_RATELIMIT_INTERVAL, (factor) * DEFAULT_RATELIMIT_BURST)

/* Kinds 0 and 1 are about connections, which also have limits of their own. */
static struct ratelimit_state rds_log_limits[] = {
	RDS_RATELIMIT(rds_log_limits[0], 4),
	RDS_RATELIMIT(rds_log_limits[1], 4),
	RDS_RATELIMIT(rds_log_limits[2], 1),
	RDS_RATELIMIT(rds_log_limits[3], 1),
};

/**
 * rds_rust_printk_ratelimit_init() - begin the first interval of each limit
 *
 * Otherwise the first message would begin it, and those of other CPUs meanwhile would be lost. To
 * be called once, before any message.
 */
void rds_rust_printk_ratelimit_init(void)
{
	unsigned int kind;

	for (kind = 0; kind < ARRAY_SIZE(rds_log_limits); kind++) {
		struct ratelimit_state *limit = &rds_log_limits[kind];

		limit->begin = jiffies;
		atomic_set(&limit->rs_n_left, limit->burst);
		limit->flags |= RATELIMIT_INITIALIZED;
	}
}

/**
 * rds_rust_printk_ratelimit() - check whether a message may be logged
 * @kind: kind of message, 0 to 3; each kind has its own limit.
 *
 * Return: true if the message may be logged.
 */
bool rds_rust_printk_ratelimit(unsigned int kind)
{
	return __ratelimit(&rds_log_limits[kind]);
}

#ifdef RDS_RUST_KUNIT
/**
 * rds_rust_printk_ratelimit_busy() - rds_rust_printk_ratelimit() while another message is checked
 * @kind: as for rds_rust_printk_ratelimit(). There is room for the message.
 *
 * Return: true if the message may be logged.
 */
bool rds_rust_printk_ratelimit_busy(unsigned int kind)
{
	struct ratelimit_state *limit = &rds_log_limits[kind];
	unsigned long flags;
	bool may;

	atomic_inc(&limit->rs_n_left);
	raw_spin_lock_irqsave(&limit->lock, flags);
	may = rds_rust_printk_ratelimit(kind);
	raw_spin_unlock_irqrestore(&limit->lock, flags);
	return may;
}
#endif

/* debugfs */

static int rds_view_show(struct seq_file *m, void *unused)
{
	struct rds_view *view = m->private;

	return view->show(m, view->data);
}

/* This module is the owner of the files. */
DEFINE_SHOW_ATTRIBUTE(rds_view);

struct dentry *rds_rust_debugfs_dir(const char *name)
{
	return debugfs_create_dir(name, NULL);
}

void rds_rust_debugfs_file(const char *name, struct dentry *dir, struct rds_view *view)
{
	debugfs_create_file(name, 0400, dir, view, &rds_view_fops);
}

void rds_rust_debugfs_remove(struct dentry *dir)
{
	debugfs_remove(dir);
}

bool rds_rust_seq_is_full(struct seq_file *m)
{
	return seq_has_overflowed(m);
}
