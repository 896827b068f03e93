// SPDX-License-Identifier: GPL-2.0
//
// Takes over the socket of a soft-iWARP connection before the reply is sent, and not after.
//
// siw_accept() sends the reply, and installs the callbacks for what arrives after that. The peer
// sends its first frame when it has the reply. If that is here before siw_accept() goes on,
// siw_cm_llp_data_ready() ignores it, and it lies unread until the next one comes. Where the active
// side waits for an answer before it sends more, the connection is never established.
//
// The comment on top of the function asks for this order. The queue pair is in RTS and its
// state_lock is free by then, so siw_rtr_data_ready() can handle the frame. A peer may send nothing
// before it has the reply, so the callbacks do not run too early. The event of a connection that
// waits for no frame still follows the reply.
//
// Changes: drivers/infiniband/sw/siw/siw_cm.c +6 -4

@@
identifier cep, qp, rv, wait_for_peer_rts, error;
@@
 	siw_dbg_cep(...);
+
+	/* The peer may answer the reply at once. */
+	if (wait_for_peer_rts) {
+		siw_sk_assign_rtr_upcalls(cep);
+	} else {
+		siw_qp_socket_assoc(cep, qp);
+	}
 	rv = siw_send_mpareqrep(...);
 	if (rv != 0)
 		goto error;
-	if (wait_for_peer_rts) {
-		siw_sk_assign_rtr_upcalls(cep);
-	} else {
-		siw_qp_socket_assoc(cep, qp);
+	if (!wait_for_peer_rts) {
 		rv = siw_cm_upcall(cep, IW_CM_EVENT_ESTABLISHED, 0);
 		if (rv)
 			goto error;
 	}
