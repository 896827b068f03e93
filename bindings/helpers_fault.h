/* SPDX-License-Identifier: GPL-2.0 */
/* Fault injection: devices fail, or hide capabilities. */
#ifndef RDS_RUST_HELPERS_FAULT_H
#define RDS_RUST_HELPERS_FAULT_H

#include <rdma/ib_verbs.h>

/* Called when the module is loaded and unloaded. */
void rds_rust_faults_begin(void);
void rds_rust_faults_end(void);

/* Operations that can be made to fail. */
enum rds_fault {
	/*
	 * Memory cannot be pinned, like that of files whose pages are the storage itself (FS-DAX).
	 */
	RDS_FAIL_PIN,
	/* Memory cannot be mapped for the device. */
	RDS_FAIL_MAP,
	/* The device cannot allocate a memory region. */
	RDS_FAIL_ALLOC_MR,
	/* The device cannot deregister a memory region. */
	RDS_FAIL_DEREG_MR,
	/* A work request for a send queue is refused. */
	RDS_FAIL_POST,
	/* A work request that registers or invalidates a memory region never completes. */
	RDS_LOSE_REGISTRATION,
	/* A work request of a connection's send queue never completes. */
	RDS_LOSE_COMPLETION,
	/* The connection manager's messages have no path. */
	RDS_CUT_PATH,
	RDS_FAULTS,
};

/*
 * Capabilities that devices lack: bits of /sys/kernel/debug/rds_faults/mask_caps. Most are read
 * only when a device appears.
 */
enum rds_lack {
	RDS_LACKS_REGISTRATION = 1,
	RDS_LACKS_ATOMICS = 2,
	/* RDMA reads and atomics of this node, and those of peers. */
	RDS_LACKS_INITIATOR_DEPTH = 4,
	RDS_LACKS_RESPONDER_RESOURCES = 8,
	/* More than one scatter/gather entry in a work request. Read at any time. */
	RDS_LACKS_SGES = 16,
	/* More than eight pages in a memory region. */
	RDS_LACKS_REGION_PAGES = 32,
	/* Masked atomics, although the device reports them. */
	RDS_LACKS_MASKED_ATOMICS = 64,
	/*
	 * All atomics, although the device reports them. Refused with another errno, like mlx5.
	 * Read at any time.
	 */
	RDS_REFUSES_ATOMICS = 128,
	/*
	 * Masks, although the device reports them: masked atomics run as plain ones. For some
	 * operands the result is the same.
	 */
	RDS_IGNORES_MASKS = 256,
};

#ifdef CONFIG_FAULT_INJECTION_DEBUG_FS
/*
 * Faults are limited to the device with the index in /sys/kernel/debug/rds_faults/device, if that
 * is set. Faults without a device (NULL) are not limited.
 */
bool rds_rust_fails(enum rds_fault fault, const struct ib_device *device);
bool rds_rust_device_lacks(enum rds_lack lack);
bool rds_rust_lacks_sges_for(const struct ib_send_wr *wr);
#else
static inline bool rds_rust_fails(enum rds_fault fault, const struct ib_device *device)
{
	return false;
}

static inline bool rds_rust_device_lacks(enum rds_lack lack)
{
	return false;
}

static inline bool rds_rust_lacks_sges_for(const struct ib_send_wr *wr)
{
	return false;
}
#endif

static inline int rds_post(struct ib_qp *qp, const struct ib_send_wr *wr,
			   const struct ib_send_wr **bad_wr)
{
	if (rds_rust_lacks_sges_for(wr) || rds_rust_fails(RDS_FAIL_POST, qp->device)) {
		if (bad_wr)
			*bad_wr = wr;
		return -EINVAL;
	}
	return ib_post_send(qp, wr, bad_wr);
}

#endif
