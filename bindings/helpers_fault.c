// SPDX-License-Identifier: GPL-2.0
/* C functions for fault injection, in kernels that support it: /sys/kernel/debug/rds_faults. */
#include <linux/dcache.h>
#include <linux/debugfs.h>
#include <linux/fault-inject.h>

#include "helpers_fault.h"

#ifdef CONFIG_FAULT_INJECTION_DEBUG_FS

static struct {
	const char *name;
	struct fault_attr attr;
} faults[RDS_FAULTS] = {
	[RDS_FAIL_PIN] = { "fail_pin", FAULT_ATTR_INITIALIZER },
	[RDS_FAIL_MAP] = { "fail_map", FAULT_ATTR_INITIALIZER },
	[RDS_FAIL_ALLOC_MR] = { "fail_alloc_mr", FAULT_ATTR_INITIALIZER },
	[RDS_FAIL_DEREG_MR] = { "fail_dereg_mr", FAULT_ATTR_INITIALIZER },
	[RDS_FAIL_POST] = { "fail_post", FAULT_ATTR_INITIALIZER },
	[RDS_LOSE_REGISTRATION] = { "lose_registration", FAULT_ATTR_INITIALIZER },
	[RDS_LOSE_COMPLETION] = { "lose_completion", FAULT_ATTR_INITIALIZER },
	[RDS_CUT_PATH] = { "cut_path", FAULT_ATTR_INITIALIZER },
};

static struct dentry *dir;
static u32 masked_caps;
/* Index of the only device that fails; U32_MAX for all devices. */
static u32 failing_device = U32_MAX;

bool rds_rust_fails(enum rds_fault fault, const struct ib_device *device)
{
	u32 only = READ_ONCE(failing_device);

	return (only == U32_MAX || !device || only == device->index) &&
	       should_fail(&faults[fault].attr, 1);
}

bool rds_rust_device_lacks(enum rds_lack lack)
{
	return READ_ONCE(masked_caps) & lack;
}

bool rds_rust_lacks_sges_for(const struct ib_send_wr *wr)
{
	int most = 0;

	for (; wr; wr = wr->next)
		most = max(most, wr->num_sge);
	return most > 1 && rds_rust_device_lacks(RDS_LACKS_SGES);
}

void rds_rust_faults_begin(void)
{
	int i;

	dir = debugfs_create_dir("rds_faults", NULL);
	debugfs_create_x32("mask_caps", 0600, dir, &masked_caps);
	debugfs_create_u32("device", 0600, dir, &failing_device);
	for (i = 0; i < RDS_FAULTS; i++)
		fault_create_debugfs_attr(faults[i].name, dir, &faults[i].attr);
}

void rds_rust_faults_end(void)
{
	debugfs_remove(dir);
#ifndef FAULT_ATTR_DNAME_LEN
	/*
	 * Before Linux 7.3, fault_create_debugfs_attr() took references to these names instead of
	 * copying.
	 */
	for (int i = 0; i < RDS_FAULTS; i++) {
		dput(faults[i].attr.dname);
		faults[i].attr.dname = NULL;
	}
#endif
}

#else

void rds_rust_faults_begin(void)
{
}

void rds_rust_faults_end(void)
{
}

#endif
