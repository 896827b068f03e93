/* SPDX-License-Identifier: GPL-2.0 */
/* Fault injection: devices refuse what is posted to a send queue, lose it, or lack what they have. */
#ifndef RDS_RUST_HELPERS_FAULT_H
#define RDS_RUST_HELPERS_FAULT_H

#include <rdma/ib_verbs.h>

/* Fault injection comes and goes with the module. */
void rds_faults_begin(void);
void rds_faults_end(void);

/* What a device lacks: bits of /sys/kernel/debug/rds_faults/mask_caps when the device appears. */
enum rds_fault_cap {
	RDS_LACKS_REGISTRATION = 1,
	RDS_LACKS_ATOMICS = 2,
	/* RDMA reads and atomics from here, and those of peers. */
	RDS_LACKS_INITIATOR_DEPTH = 4,
	RDS_LACKS_RESPONDER_RESOURCES = 8,
};

#ifdef CONFIG_FAULT_INJECTION_DEBUG_FS
bool rds_post_fails(void);
bool rds_registration_is_lost(void);
bool rds_device_lacks(enum rds_fault_cap cap);
#else
static inline bool rds_post_fails(void)
{
	return false;
}

static inline bool rds_registration_is_lost(void)
{
	return false;
}

static inline bool rds_device_lacks(enum rds_fault_cap cap)
{
	return false;
}
#endif

static inline int rds_post(struct ib_qp *qp, const struct ib_send_wr *wr,
			   const struct ib_send_wr **bad_wr)
{
	if (rds_post_fails()) {
		if (bad_wr)
			*bad_wr = wr;
		return -ENOMEM;
	}
	return ib_post_send(qp, wr, bad_wr);
}

#endif
