// SPDX-License-Identifier: GPL-2.0
//! Real-time priority, for a program with a thread that monitors the other ones.

use std::io;

use rds_socket::Error;

/// Gives the calling thread the lowest real-time priority (`SCHED_RR`): it runs before all threads
/// without one.
pub fn run_before_others() -> Result<(), Error> {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: `param` is valid for reads; process 0 is the calling thread.
    let ret = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &param) };
    if ret != 0 {
        let hint = Some("real-time priority is root's, or that of who has CAP_SYS_NICE");
        let error = Error::new("take real-time priority", io::Error::last_os_error());
        return Err(error.with_hint(hint));
    }
    Ok(())
}
