// SPDX-License-Identifier: GPL-2.0
//
// Marks a packet as one without a queue pair before soft-RoCE may drop it for the first time.
//
// rxe_rcv() drops a packet together with the queue pair in pkt->qp. It clears that field only after
// two checks that can fail: those of the length and of the destination. The field is in the control
// block of the packet, where IP had its own data. With IPv6 that data is not zero. So a packet for
// an address that its device has lost makes the kernel drop a reference to a random address, and
// crash.
//
// No earlier check reads the field.
//
// Changes: drivers/infiniband/sw/rxe/rxe_recv.c +1 -1

@@
@@
 rxe_rcv(struct sk_buff *skb)
 {
 ...
+pkt->qp = NULL;
 if (unlikely(skb->len < RXE_BTH_BYTES)) goto drop;
 ...
-pkt->qp = NULL;
 ...
 }
