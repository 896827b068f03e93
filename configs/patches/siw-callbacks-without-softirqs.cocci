// SPDX-License-Identifier: GPL-2.0
//
// Disables softirqs while a callback of a soft-iWARP socket holds the socket's sk_callback_lock.
//
// TCP calls them from a softirq, or from a process that handles data which arrived while the
// process owned the socket. In the process softirqs are enabled, and siw_qp_llp_data_ready() takes
// the lock as if they were disabled. A softirq takes the write lock of another socket, in
// inet_child_forget(), for a connection that has not been accepted when its listener is closed.
// Lockdep reports "inconsistent {IN-SOFTIRQ-W} -> {SOFTIRQ-ON-R} usage". If a process closes the
// listener, it reports the nesting of the locks, with siw_destroy_listen() in the trace. Lockdep is
// off from then on.
//
// All writers of the lock disable softirqs. Nothing in these callbacks sleeps, as most of the time
// they run in softirqs.
//
// Changes: drivers/infiniband/sw/siw/siw_cm.c +7 -7
// Changes: drivers/infiniband/sw/siw/siw_qp.c +4 -4

@@
expression sk;
@@
-read_lock(&sk->sk_callback_lock);
+read_lock_bh(&sk->sk_callback_lock);

@@
expression sk;
@@
-read_unlock(&sk->sk_callback_lock);
+read_unlock_bh(&sk->sk_callback_lock);
