// SPDX-License-Identifier: GPL-2.0
/*
 * C functions for fault injection, in kernels that have such. /sys/kernel/debug/rds_faults has fail_post,
 * lose_registration, for work requests that register memory or end that, and never complete, and mask_caps.
 */
#include <linux/debugfs.h>
#include <linux/fault-inject.h>

#include "helpers_fault.h"

#ifdef CONFIG_FAULT_INJECTION_DEBUG_FS

static DECLARE_FAULT_ATTR(fail_post);
static DECLARE_FAULT_ATTR(lose_registration);
static struct dentry *dir;
static u32 masked_caps;

bool rds_post_fails(void)
{
	return should_fail(&fail_post, 1);
}

bool rds_registration_is_lost(void)
{
	return should_fail(&lose_registration, 1);
}

bool rds_device_lacks(enum rds_fault_cap cap)
{
	return READ_ONCE(masked_caps) & cap;
}

void rds_faults_begin(void)
{
	dir = debugfs_create_dir("rds_faults", NULL);
	debugfs_create_x32("mask_caps", 0600, dir, &masked_caps);
	fault_create_debugfs_attr("fail_post", dir, &fail_post);
	fault_create_debugfs_attr("lose_registration", dir, &lose_registration);
}

void rds_faults_end(void)
{
	debugfs_remove(dir);
}

#else

void rds_faults_begin(void)
{
}

void rds_faults_end(void)
{
}

#endif
