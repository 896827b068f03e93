// SPDX-License-Identifier: GPL-2.0

//! Waits of `sendmsg(2)` for buffers of the pools, and before an operation begins.

use super::operation::OpRequest;
use crate::{
    conn::Connection,
    kapi::{
        errno::Errno,
        net::{
            poll,
            Sock,
            Timeout, //
        },
        task::UserId, //
    },
    proto::faults::Admission,
    socket::{
        BounceCharge,
        Bound,
        Socket, //
    },
    stats::Counter, //
};
use kernel::prelude::*;

/// Time after which a call looks for buffers of the pools, or a nonblocking one for bounce buffers,
/// again.
const BUFFER_RETRY_NS: u64 = 20_000_000;

/// Most waits of a call for buffers of the pools: a minute.
const MOST_PAUSES: u32 = 3_000;

/// Ends a call that must not wait: `poll(2)` reports in `wait_ns` nanoseconds when to call again.
///
/// # Errors
///
/// - `EAGAIN`, always, unless there is no memory.
/// - `ENOMEM`
fn refuse_to_wait<T>(sk: &Sock<Socket>, wait_ns: u64) -> Result<T> {
    sk.note_no_room();
    sk.node.wake_writers_after(sk, wait_ns)?;
    Err(EAGAIN)
}

/// Waits for `wait_ns` nanoseconds, or ends a call that must not wait.
///
/// # Errors
///
/// - `EAGAIN` if the call must not wait. Then `poll(2)` reports when to call again.
/// - `ETIMEDOUT` after `SO_SNDTIMEO`.
/// - `ERESTARTSYS` after a signal.
/// - `ENOMEM`
fn pause(sk: &Sock<Socket>, timeout: &mut Timeout, wait_ns: u64) -> Result {
    if timeout.is_nonblocking() {
        return refuse_to_wait(sk, wait_ns);
    }
    match sk.pause(timeout, wait_ns)? {
        true => Ok(()),
        false => Err(Errno::TimedOut.into()),
    }
}

/// Waits until the program may begin an operation. Operations of a user are delayed after the peer
/// has refused others of that user.
///
/// # Errors
///
/// - `EAGAIN` if the call must not wait. Then `poll(2)` reports when to call again.
/// - `ETIMEDOUT` after `SO_SNDTIMEO`.
/// - `ERESTARTSYS` after a signal.
/// - `ENOMEM`
pub(super) fn await_op_delay(
    sk: &Sock<Socket>,
    connection: &Connection,
    timeout: &mut Timeout,
) -> Result<Admission> {
    let user = UserId::current();
    let mut held = false;
    let admission = loop {
        let wait_ns = match connection.fault_limiter.admit(user, sk.standing()) {
            Ok(admission) => break admission,
            Err(wait_ns) => wait_ns,
        };
        if !core::mem::replace(&mut held, true) {
            sk.node.stats.inc(Counter::SendOpHeld);
        }
        pause(sk, timeout, wait_ns)?;
    };
    if sk.node.retry_timers.remove(sk) {
        // Another thread may have waited for this turn with an operation for another peer.
        sk.wake_writers(poll::OUT);
    }
    Ok(admission)
}

/// Waits for bounce buffers for an operation, if the device needs them.
///
/// # Errors
///
/// - `EAGAIN` if the call must not wait. Then `poll(2)` reports when to call again.
/// - `ETIMEDOUT` after `SO_SNDTIMEO`.
/// - `ERESTARTSYS` after a signal.
/// - `EOPNOTSUPP` if the transport of the socket has no RDMA operations.
/// - `ENOMEM`
pub(super) fn await_bounce(
    sk: &Sock<Socket>,
    bound: &Bound,
    request: &OpRequest,
    timeout: &mut Timeout,
) -> Result<Option<BounceCharge>> {
    let rdma = sk.node.transports.rdma(bound.transport)?;
    let Some(limit) = rdma.bounce_limit(bound.addr, bound.scope)? else {
        return Ok(None);
    };
    let account = sk.account()?;
    let take = || {
        let bytes = request.bounce_bytes();
        BounceCharge::new(&sk.node, account, bytes, limit)
    };
    let room = &sk.node.shared.bounce_room;
    let mut held = false;
    loop {
        let charge = take();
        if charge.is_some() {
            return Ok(charge);
        }
        if !core::mem::replace(&mut held, true) {
            sk.node.stats.inc(Counter::SendOpHeld);
        }
        if timeout.is_nonblocking() {
            return refuse_to_wait(sk, BUFFER_RETRY_NS);
        }
        sk.await_room(&room.waiters)?;
        room.await_release();
        // Room that was released before wakes nobody.
        let charge = take();
        if charge.is_some() {
            return Ok(charge);
        }
        // A socket that is woken is off the list.
        if !sk.wait_to_write(timeout, || !room.waiters.has(sk))? {
            return Err(Errno::TimedOut.into());
        }
    }
}

/// Waits until a pool that was at its limit may have room.
///
/// The call looks again after [`BUFFER_RETRY_NS`], so no wake-up can get lost. Buffers return from
/// messages, send rings and the queues of other users, and the limit may be raised. Waking all
/// waiters at each of these events would cost more the more there are, and each event has room for
/// few of them.
///
/// `pauses` counts the waits of the call. After [`MOST_PAUSES`] the call ends, because the message
/// may need more than the pool can ever have.
///
/// # Errors
///
/// - `EAGAIN` if the call must not wait. Then `poll(2)` reports when to call again.
/// - `ETIMEDOUT` after `SO_SNDTIMEO`.
/// - `ERESTARTSYS` after a signal.
/// - `ENOMEM` after the last pause.
#[cold]
pub(super) fn await_pool(sk: &Sock<Socket>, timeout: &mut Timeout, pauses: &mut u32) -> Result {
    if *pauses == MOST_PAUSES {
        return Err(ENOMEM);
    }
    *pauses = pauses.saturating_add(1);
    pause(sk, timeout, BUFFER_RETRY_NS)
}
