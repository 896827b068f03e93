// SPDX-License-Identifier: GPL-2.0
//
// Keeps a queue pair of soft-RoCE until its task has been scheduled for a packet.
//
// rxe_rcv() hands the packet over together with the reference that it has to the queue pair, and
// then schedules the task. The task may be running: it takes the packet, drops that reference, and
// if it was the last one the queue pair goes. rxe_sched_task() then finds no reference ("WARNING:
// ... at rxe_sched_task", called by rxe_resp_queue_pkt() or rxe_comp_queue_pkt()), schedules the
// task of what is freed, and the task drops a reference that nobody took.
//
// The caller's reference is there until the packet is queued, so another one can be taken before
// that.
//
// Changes: drivers/infiniband/sw/rxe/rxe_recv.c +4 -0

@@
statement S;
@@
 rxe_rcv_pkt(struct rxe_pkt_info *pkt, struct sk_buff *skb)
 {
+	struct rxe_qp *qp = pkt->qp;
+
+	/* The packet and its reference may be gone as soon as it is queued. */
+	rxe_get(qp);
 	if (...) S
 	else
 	rxe_comp_queue_pkt(...);
+	rxe_put(qp);
 }
