// SPDX-License-Identifier: GPL-2.0
//
// Loses a datagram that soft-RoCE has no way to send, instead of the queue pair.
//
// rxe_requester() puts the queue pair into the error state when a send has no source address, no
// memory, no route, or is refused by the network below. For a datagram that is wrong: the next one
// goes to somebody else. Queue pair 1, which all messages of the connection manager use, stays in
// that state for good. No connection can be made over the device until it is deleted and made anew.
//
// An unreliable datagram may get lost anywhere, and hardware does not know what is behind the first
// hop. So the send is completed as one that is too long already is in the same function, and the CM
// repeats its message. What is wrong with the request itself (its memory, its opcode) is still an
// error.
//
// Changes: drivers/infiniband/sw/rxe/rxe_req.c +23 -0

@ helper @
typedef bool;
@@
+/* Completes a datagram that cannot be sent as one that got lost on its way. */
+static bool lose_datagram(struct rxe_qp *qp, struct rxe_send_wqe *wqe)
+{
+	if (qp_type(qp) != IB_QPT_UD && qp_type(qp) != IB_QPT_GSI)
+		return false;
+	wqe->first_psn = qp->req.psn;
+	wqe->last_psn = qp->req.psn;
+	qp->req.psn = (qp->req.psn + 1) & BTH_PSN_MASK;
+	qp->req.opcode = IB_OPCODE_UD_SEND_ONLY;
+	qp->req.wqe_index = queue_next_index(qp->sq.queue, qp->req.wqe_index);
+	wqe->state = wqe_state_done;
+	wqe->status = IB_WC_SUCCESS;
+	return true;
+}
+
 int rxe_requester(struct rxe_qp *qp)
 {
 ...
 }

@ use depends on helper @
@@
 rxe_requester(struct rxe_qp *qp)
 {
 ...
 if (unlikely(!skb)) {
+	if (lose_datagram(qp, wqe)) {
+		if (ah)
+			rxe_put(ah);
+		goto done;
+	}
 	...
 	goto err;
 }
 ...
 if (unlikely(err)) {
+	if (err == -EHOSTUNREACH && lose_datagram(qp, wqe)) {
+		kfree_skb(skb);
+		if (ah)
+			rxe_put(ah);
+		goto done;
+	}
 	...
 	kfree_skb(skb);
 	...
 	goto err;
 }
 ...
 err = rxe_xmit_packet(...);
 if (err) {
+	if (lose_datagram(qp, wqe))
+		goto done;
 	...
 	goto err;
 }
 ...
 }
