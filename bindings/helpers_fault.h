/* SPDX-License-Identifier: GPL-2.0 */
/* Fault injection: devices fail, or lack what they have. */
#ifndef RDS_RUST_HELPERS_FAULT_H
#define RDS_RUST_HELPERS_FAULT_H

#include <rdma/ib_verbs.h>

/* Fault injection comes and goes with the module. */
void rds_rust_faults_begin(void);
void rds_rust_faults_end(void);

/* What does not go. */
enum rds_fault {
	/* Memory cannot be pinned, as that of files whose pages are the storage itself (FS-DAX). */
	RDS_FAIL_PIN,
	/* Memory is not mapped for the device. */
	RDS_FAIL_MAP,
	/* The device has no memory region left. */
	RDS_FAIL_ALLOC_MR,
	/* It keeps one that was to go. */
	RDS_FAIL_DEREG_MR,
	/* A work request for a send queue is refused. */
	RDS_FAIL_POST,
	/* One that registers memory, or ends that, never completes. */
	RDS_LOSE_REGISTRATION,
	/* A work request of a connection's send queue never completes. */
	RDS_LOSE_COMPLETION,
	/* Messages of the connection manager have no way out. */
	RDS_CUT_PATH,
	RDS_FAULTS,
};

/* What a device lacks: bits of /sys/kernel/debug/rds_faults/mask_caps, most of them when the device appears. */
enum rds_lack {
	RDS_LACKS_REGISTRATION = 1,
	RDS_LACKS_ATOMICS = 2,
	/* RDMA reads and atomics from here, and those of peers. */
	RDS_LACKS_INITIATOR_DEPTH = 4,
	RDS_LACKS_RESPONDER_RESOURCES = 8,
	/* More than one scatter/gather entry in a work request: at any time. */
	RDS_LACKS_SGES = 16,
	/* More than eight pages in a memory region. */
	RDS_LACKS_REGION_PAGES = 32,
	/* Masked atomics, though it says that it has them. */
	RDS_LACKS_MASKED_ATOMICS = 64,
	/* All atomics, though it says that it has them, and with another error number, as mlx5 does: at any time. */
	RDS_REFUSES_ATOMICS = 128,
	/* Masks, though it says that it has them: it takes masked atomics for plain ones, which do the same to some numbers. */
	RDS_IGNORES_MASKS = 256,
};

#ifdef CONFIG_FAULT_INJECTION_DEBUG_FS
/*
 * Only of the device whose index /sys/kernel/debug/rds_faults/device has, if that is one; what is of no device (NULL) at
 * any rate.
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
