// SPDX-License-Identifier: GPL-2.0

//! Waits of `sendmsg(2)` before an operation begins.

use crate::conn::{Connection, Counter};
use crate::kapi::{
    errno::Errno,
    net::{poll, Sock, Timeout},
    task::UserId,
};
use crate::msg::Socket;
use kernel::prelude::*;

/// Waits until the program may begin an operation. Operations of a user are delayed after the peer
/// has refused others of that user.
///
/// # Errors
///
/// - `EAGAIN` if the call must not wait. Then `poll(2)` reports when to call again.
/// - `ETIMEDOUT` after `SO_SNDTIMEO`.
/// - `ERESTARTSYS` after a signal.
/// - `ENOMEM`
pub(super) fn await_turn(
    sk: &Sock<Socket>,
    connection: &Connection,
    timeout: &mut Timeout,
) -> Result {
    let user = UserId::current();
    let mut held = false;
    while let Err(wait_ns) = connection.offenders.turn(user, sk.standing()) {
        if !core::mem::replace(&mut held, true) {
            sk.node.stats.inc(Counter::SendOpHeld);
        }
        if timeout.is_nonblocking() {
            sk.note_no_room();
            sk.node.call_again(sk, wait_ns)?;
            return Err(EAGAIN);
        }
        if !sk.pause(timeout, wait_ns)? {
            return Err(Errno::TimedOut.into());
        }
    }
    if sk.node.turns.remove(sk) {
        // Another thread may have waited for this turn with an operation for another peer.
        sk.wake_writers(poll::OUT);
    }
    Ok(())
}
