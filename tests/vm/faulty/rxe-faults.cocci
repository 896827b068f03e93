// SPDX-License-Identifier: GPL-2.0
//
// Calls the faults of rxe_faults.c at the places where an adapter fails: completions, posts, work
// requests for regions, queue pairs, regions that end, events, and messages of the connection
// manager. Has rxe_strict.c check each access to memory, and fails an access to what is not mapped
// as an adapter does. Gives the device of no bus the operations of rxe_guarded.c.
// Applies on top of configs/patches: scripts/faulty-device.sh.

@ notify @
identifier cq;
@@
-rxe_cq_post
+rxe_cq_post_now
 (struct rxe_cq *cq, ...)
 {
 	<...
-	cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
+	rxe_fault_notify(cq);
	...>
 }

@ depends on notify @
@@
 #include "rxe_queue.h"
+#include "rxe_faults.h"

@ local @
expression ret, qp, rkey, wqe;
@@
(
-	ret = rxe_invalidate_mr(qp, rkey);
+	ret = rxe_fault_region(qp, IB_WR_LOCAL_INV) ?: rxe_invalidate_mr(qp, rkey);
|
-	ret = rxe_reg_fast_mr(qp, wqe);
+	ret = rxe_fault_region(qp, IB_WR_REG_MR) ?: rxe_reg_fast_mr(qp, wqe);
)

@ depends on local @
expression err, qp, pkt, skb;
@@
-	err = rxe_xmit_packet(qp, pkt, skb);
+	err = rxe_fault_send(qp, pkt, skb);

@ depends on local @
@@
 #include "rxe_queue.h"
+#include "rxe_faults.h"

@ post @
expression err, qp, mask, attr, rxe;
@@
-	err = rxe_qp_chk_attr(rxe, qp, attr, mask);
+	err = rxe_fault_modify(qp, attr, mask) ?: rxe_qp_chk_attr(rxe, qp, attr, mask);

@ depends on post @
expression err;
identifier qp, wr;
@@
 rxe_post_send_kernel(struct rxe_qp *qp, const struct ib_send_wr *wr, ...)
 {
+	const struct ib_send_wr *first = wr;
	<...
-	err = post_one_send(qp, wr);
+	err = rxe_fault_post_send(qp, wr != first) ?: post_one_send(qp, wr);
	...>
 }

@ depends on post @
expression err, rq;
identifier ibqp, wr;
symbol qp;
@@
 rxe_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr, ...)
 {
+	const struct ib_recv_wr *first = wr;
+	struct rxe_seen_recv seen;
	<...
-	err = post_one_recv(rq, wr);
+	err = rxe_fault_post_recv(qp, wr != first) ?: post_one_recv(rq, rxe_fault_recv(qp, wr, &seen));
	...>
 }

@ depends on post @
symbol qp, wqe;
expression number;
@@
	wqe->ssn = number;
+	rxe_fault_send_memory(qp, wqe);

@ depends on post @
expression err, rxe, init;
symbol qp;
@@
 rxe_create_qp(...)
 {
	<...
-	err = rxe_qp_chk_init(rxe, init);
+	err = rxe_fault_create_qp(qp, init) ?: rxe_qp_chk_init(rxe, init);
	...>
 }

@ depends on post @
identifier mr;
@@
 rxe_dereg_mr(...)
 {
	...
+	rxe_fault_dereg_mr(mr);
	if (atomic_read(&mr->num_mw) > 0) { ... }
	...
 }

@ depends on post @
@@
 #include "rxe_hw_counters.h"
+#include "rxe_faults.h"

// The completer finds a request that has failed by itself only after its queue pair has failed.
@ failed @
identifier qp, wqe, err;
symbol wc, cqe;
@@
 flush_send_wqe(struct rxe_qp *qp, struct rxe_send_wqe *wqe)
 {
	...
-	err = rxe_cq_post(qp->scq, &cqe, 0);
+	rxe_fault_flush_send(qp, wqe, wc);
+	err = rxe_cq_post(qp->scq, &cqe, 0);
	...
 }

@ depends on failed @
@@
 #include "rxe_queue.h"
+#include "rxe_faults.h"

@ flush @
expression qp, wqe, err;
@@
+	rxe_fault_flush_recv(qp, wqe);
	err = flush_recv_wqe(qp, wqe);

@ depends on flush @
identifier ibqp;
expression event, context;
@@
-	ibqp->event_handler(event, context);
+	rxe_fault_event(event, ibqp);

@ depends on flush @
expression err, pd, dma, addr, length;
symbol qp;
@@
	err = copy_data(pd, IB_ACCESS_LOCAL_WRITE, dma, addr, length, RXE_TO_MR_OBJ);
+	if (err == -EFAULT)
+		qp->resp.status = IB_WC_LOC_PROT_ERR;

@ depends on flush @
symbol qp;
@@
	do_class_ac_error(qp, AETH_NAK_REM_OP_ERR,
-			  IB_WC_LOC_QP_OP_ERR
+			  qp->resp.status == IB_WC_LOC_PROT_ERR ? IB_WC_LOC_PROT_ERR : IB_WC_LOC_QP_OP_ERR
	);

@ depends on flush @
@@
 #include "rxe_queue.h"
+#include "rxe_faults.h"

@ init @
@@
 rxe_module_init(void)
 {
	...
	rdma_link_register(&rxe_link_ops);
+	rxe_faults_init();
	...
 }

@ depends on init @
@@
 rxe_module_exit(void)
 {
	...
	ib_unregister_driver(...);
+	rxe_faults_exit();
	...
 }

@ depends on init @
@@
 #include "rxe_loc.h"
+#include "rxe_faults.h"

@ access @
expression mr, iova, addr, length, dir;
@@
-	rxe_mr_copy_dma(mr, iova, addr, length, dir);
-	return 0;
+	return rxe_strict_access(mr->ibmr.device, iova, length, dir == RXE_TO_MR_OBJ) ?:
+	       rxe_mr_copy_dma(mr, iova, addr, length, dir);

@ depends on access @
symbol page;
@@
-static void
+static int
 rxe_mr_copy_dma(...)
 {
	...
	while (...) {
		...
		if (!page)
-			return;
+			return -EFAULT;
		...
	}
+	return 0;
 }

@ depends on access @
symbol found;
expression address, text;
@@
-	if (WARN(!found, text, address))
+	if (!found) {
+		rxe_strict_violate(UNMAPPED, address, 1, false);
		return NULL;
+	}

@ depends on access @
expression dma, domain;
symbol address;
@@
+	if (rxe_is_guarded(dma))
+		return rxe_guarded_page(address);
	domain = iommu_get_domain_for_dev(dma);

@ depends on access @
expression mr, addr;
@@
	mr->page_info[mr->nbuf].offset = addr & (PAGE_SIZE - 1);
+	rxe_strict_region(mr, mr->nbuf, rxe_fault_region_page(mr, addr));

@ depends on access @
identifier mr, index, info, page_offset, bytes, va;
symbol dir;
@@
 rxe_mr_copy_xarray(struct rxe_mr *mr, ...)
 {
	<...
	unsigned long index = rxe_mr_iova_to_index(...);
	...
	page_offset += info->offset;
	bytes = min_t(...);
+	if (rxe_strict_region_access(mr, index, page_offset, bytes, dir == RXE_TO_MR_OBJ))
+		return -EFAULT;
	va = kmap_local_page(info->page);
	...>
 }

@ depends on access @
expression mr, iova, addr, length, dir;
@@
 rxe_mr_copy(...)
 {
	<...
-	rxe_mr_copy_xarray(mr, iova, addr, length, dir)
+	rxe_strict_copy(mr, iova, addr, length, dir, rxe_mr_copy_xarray)
	...>
 }

@ depends on access @
expression mr;
@@
 rxe_invalidate_mr(...)
 {
	<...
-	mr->state = RXE_MR_STATE_FREE;
+	rxe_strict_region_ends(mr);
	...>
 }

@ depends on access @
identifier mr, info;
expression index, page_offset, found;
@@
 rxe_mr_do_atomic_op(struct rxe_mr *mr, ...)
 {
	<...
	index = rxe_mr_iova_to_index(...);
	info = &mr->page_info[index];
	...
	page_offset += info->offset;
+	if (rxe_strict_region_access(mr, index, page_offset, sizeof(u64), false) ||
+	    rxe_strict_region_access(mr, index, page_offset, sizeof(u64), true))
+		return RESPST_ERR_RKEY_VIOLATION;
	found = info->page;
	...>
 }

@ depends on access @
@@
 #include "rxe_loc.h"
+#include "rxe_faults.h"

@ depends on post @
expression dev, mask;
@@
+	rxe_guard(dev);
	dma_set_mask_and_coherent(dev, mask);

// Linux 7.3 keeps the number of the queue pair of the CM when that is destroyed. So a device has no
// other one after its move to another network namespace.
@ gsi @
identifier work, qp;
@@
 rxe_qp_do_cleanup(struct work_struct *work)
 {
 	struct rxe_qp *qp = ...;
 	unsigned long flags;
+
+	if (qp_type(qp) == IB_QPT_GSI)
+		to_rdev(qp->ibqp.device)->port.qp_gsi_index = 0;
 	...
 }
