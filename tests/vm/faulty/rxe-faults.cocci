// SPDX-License-Identifier: GPL-2.0
//
// Calls the faults of rxe_faults.c at the places where an adapter fails: completions, posts, work
// requests for regions, state changes of queue pairs, and messages of the connection manager. Has
// rxe_strict.c check each access to memory. Gives the device of no bus the operations of
// rxe_guarded.c.
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
expression err, qp, wr, mask, length, rq, attr, rxe;
@@
(
-	err = validate_send_wr(qp, wr, mask, length);
+	err = rxe_fault_post_send(qp) ?: validate_send_wr(qp, wr, mask, length);
|
-	err = rxe_qp_chk_attr(rxe, qp, attr, mask);
+	err = rxe_fault_modify(qp, attr, mask) ?: rxe_qp_chk_attr(rxe, qp, attr, mask);
)

@ depends on post @
expression err, rq, wr;
@@
 rxe_post_recv(...)
 {
	<...
-	err = post_one_recv(rq, wr);
+	err = rxe_fault_post_recv(qp) ?: post_one_recv(rq, wr);
	...>
 }

@ depends on post @
@@
 #include "rxe_hw_counters.h"
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
+	rxe_strict_access(mr->ibmr.device, iova, length, dir == RXE_TO_MR_OBJ);
	rxe_mr_copy_dma(mr, iova, addr, length, dir);

@ depends on access @
expression dma, domain;
symbol address;
@@
+	if (rxe_is_guarded(dma))
+		return rxe_guarded_page(address);
	domain = iommu_get_domain_for_dev(dma);

@ depends on access @
@@
 #include "rxe_loc.h"
+#include "rxe_faults.h"

@ depends on post @
expression dev, mask;
@@
+	rxe_guard(dev);
	dma_set_mask_and_coherent(dev, mask);
