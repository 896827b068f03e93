// SPDX-License-Identifier: GPL-2.0
/* C functions for what administrators read: the kernel log and debugfs. */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/ratelimit.h>
#include <linux/seq_file.h>

#include "helpers.h"

#define RDS_RATELIMIT(name, factor) \
	RATELIMIT_STATE_INIT(name, DEFAULT_RATELIMIT_INTERVAL, (factor) * DEFAULT_RATELIMIT_BURST)

/**
 * rds_rust_printk_ratelimit() - check whether a message may be logged
 * @kind: kind of message, 0 to 3; each kind has its own limit. Those of kinds 0 and 1 are about
 *	connections, which also have limits of their own.
 *
 * Return: true if the message may be logged.
 */
bool rds_rust_printk_ratelimit(unsigned int kind)
{
	static struct ratelimit_state limits[] = {
		RDS_RATELIMIT(limits[0], 4),
		RDS_RATELIMIT(limits[1], 4),
		RDS_RATELIMIT(limits[2], 1),
		RDS_RATELIMIT(limits[3], 1),
	};

	return __ratelimit(&limits[kind]);
}

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
