/* SPDX-License-Identifier: GPL-2.0 */
/* C functions for the RDMA wrappers of kapi/. */
#ifndef RDS_RUST_HELPERS_RDMA_H
#define RDS_RUST_HELPERS_RDMA_H

#include <linux/irq_poll.h>
#include <linux/irq_work.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

/*
 * Limits and capabilities of a device, from its attributes and its first port, for
 * kapi/rdma/device.rs.
 */
struct rds_rust_ib_limits {
	u32 max_qp_wr;
	u32 max_cqe;
	u32 max_qp_rd_atom;
	u32 max_qp_init_rd_atom;
	u32 max_fast_reg_page_list_len;
	bool iwarp;
	bool mem_mgt_extensions;
	bool atomics;
	bool masked_atomics;
	bool virt_dma;
	bool reads_run_on;
};

/* device */
int rds_rust_ib_node_type(const struct ib_device *device);
int rds_rust_ib_numa_node(struct ib_device *device);
void rds_rust_ib_name(const struct ib_device *device, char name[IB_DEVICE_NAME_MAX]);
bool rds_rust_ib_device_try_get(struct ib_device *device);
u32 rds_rust_ib_device_index(const struct ib_device *device);
void rds_rust_ib_limits(const struct ib_device *device, struct rds_rust_ib_limits *limits);
u32 rds_rust_ib_port_mbits(struct ib_device *device);

/* protection domain */
struct ib_pd *rds_rust_ib_alloc_pd(struct ib_device *device);
void rds_rust_ib_dealloc_pd(struct ib_pd *pd);
u32 rds_rust_ib_pd_lkey(const struct ib_pd *pd);

/* completion queue and queue pair */
struct ib_cq *rds_rust_ib_create_cq(struct ib_device *device, ib_comp_handler handler,
				    void (*event_handler)(struct ib_event *, void *), void *context,
				    u32 cqe, u32 *vector);
void rds_rust_ib_destroy_cq(struct ib_cq *cq);
int rds_rust_ib_poll_cq(struct ib_cq *cq, int count, struct ib_wc *wcs);
bool rds_rust_ib_rearm_cq(struct ib_cq *cq);
int rds_rust_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			  const struct ib_send_wr **bad_wr);
int rds_rust_ib_post_last_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			       const struct ib_send_wr **bad_wr);
int rds_rust_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			  const struct ib_recv_wr **bad_wr);
int rds_rust_ib_set_rnr_timer(struct ib_qp *qp, u8 timer);
int rds_rust_ib_qp_to_error(struct ib_qp *qp);
u32 rds_rust_ib_qpn(const struct ib_qp *qp);
u32 rds_rust_ib_peer_qpn(struct ib_qp *qp);

/* Polling of a completion queue in a softirq. @iop is the first member. */
struct rds_poll {
	struct irq_poll iop;
	struct irq_work kick;
};

void rds_rust_poll_init(struct rds_poll *poll, int budget, irq_poll_fn *fn);
void rds_rust_poll_sched(struct rds_poll *poll);
void rds_rust_poll_sync(struct rds_poll *poll);

/* memory */
int rds_rust_ib_dma_map(struct ib_device *device, void *memory, size_t size, u64 *address);
void rds_rust_ib_dma_unmap(struct ib_device *device, u64 address, size_t size);
size_t rds_rust_ib_dma_bounce_bytes(struct ib_device *device, u64 address);
size_t rds_rust_ib_bounce_bytes(struct ib_device *device);
size_t rds_rust_ib_operation_bounce_bytes(struct ib_device *device);
void rds_rust_ib_dma_sync_for_cpu(struct ib_device *device, u64 address, size_t size);
void rds_rust_ib_dma_sync_for_device(struct ib_device *device, u64 address, size_t size);

/* connection manager */
struct rdma_cm_id *rds_rust_rdma_create_id(struct net *net, rdma_cm_event_handler handler,
					   void *context);
void *rds_rust_rdma_context(const struct rdma_cm_id *id);
bool rds_rust_rdma_refuses_by_reset(const struct rdma_cm_id *id);
void rds_rust_rdma_set_context(struct rdma_cm_id *id, rdma_cm_event_handler handler, void *context);
bool rds_rust_rdma_has_sa(const struct rdma_cm_id *id);
void rds_rust_rdma_set_service_level(struct rdma_cm_id *id, u8 level);
struct ib_device *rds_rust_rdma_bound_device(const struct rdma_cm_id *id);
struct ib_device *rds_rust_rdma_device(const struct rdma_cm_id *id);
int rds_rust_rdma_connect_locked(struct rdma_cm_id *id, struct rdma_conn_param *param,
				 unsigned int timeout_ms);
u32 rds_rust_rdma_interface(const struct rdma_cm_id *id);
bool rds_rust_rdma_path_is_up(const struct rdma_cm_id *id);
bool rds_rust_rdma_is_multicast(struct rdma_cm_id *id);
/* The path of a CM id. */
struct rds_rust_rdma_path {
	u8 local_gid[16];
	u8 peer_gid[16];
	u8 service_level;
};

void rds_rust_rdma_path(struct rdma_cm_id *id, struct rds_rust_rdma_path *path);
/* The GIDs that a request over RoCE names. */
struct rds_rust_rdma_named {
	u8 local_gid[16];
	u8 peer_gid[16];
};

bool rds_rust_rdma_named(const struct rdma_cm_id *id, struct rds_rust_rdma_named *named);
struct ib_qp *rds_rust_rdma_qp(const struct rdma_cm_id *id);
const struct sockaddr_storage *rds_rust_rdma_local_addr(const struct rdma_cm_id *id);
const struct sockaddr_storage *rds_rust_rdma_remote_addr(const struct rdma_cm_id *id);

#endif
