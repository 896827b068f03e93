// SPDX-License-Identifier: GPL-2.0
//! The cost of operations on memory of the peer.

use anyhow::{ensure, Context, Result};
use rds_socket::{
    poll, Area, Atomic, Control, Cookie, Direction, Ended, Lifetime, Memory, PollFd, RdsSocket,
    Status,
};
use rustix::io::Errno;

use crate::measure::{repeat, Effort, Samples};
use crate::traffic::{receive, Pair, RdsPair};

/// Bytes of the number that is added to.
const NUMBER: usize = 8;

/// Registers memory and frees the region.
pub(crate) fn regions(pair: &RdsPair, size: usize, effort: Effort) -> Result<Samples> {
    let [socket, _] = pair.ends();
    let memory = Memory::new(size)?;
    let area = all_of(&memory, size)?;
    repeat(effort, 1, || {
        Ok(socket.free(socket.register(area, Lifetime::UntilFreed)?)?)
    })
}

/// Moves bytes between the memory of end 0 and a region of end 1, one operation at a time.
pub(crate) fn transfers(
    pair: &RdsPair,
    direction: Direction,
    size: usize,
    effort: Effort,
) -> Result<Samples> {
    operations(pair, size, effort, |region, local| Control::Transfer {
        direction,
        region,
        at: 0,
        local: vec![local],
        token: 1,
    })
}

/// Adds to a number in a region of end 1, one operation at a time.
pub(crate) fn additions(pair: &RdsPair, effort: Effort) -> Result<Samples> {
    operations(pair, NUMBER, effort, |region, local| Control::Atomic {
        operation: Atomic::FetchAdd { add: 1 },
        region,
        at: 0,
        local,
        token: 1,
    })
}

fn operations(
    pair: &RdsPair,
    size: usize,
    effort: Effort,
    control: impl for<'a> Fn(Cookie, Area<'a>) -> Control<'a>,
) -> Result<Samples> {
    pair.connect()?;
    let (ours, theirs) = (Memory::new(size)?, Memory::new(size)?);
    let local = all_of(&ours, size)?;
    let [user, owner] = pair.ends();
    let region = owner.register(all_of(&theirs, size)?, Lifetime::UntilFreed)?;
    let to = owner.local_addr()?;
    let samples = repeat(effort, 1, || {
        user.send_with(&[], to, control(region, local))
            .context("cannot send")?;
        wait_for_end(user)?;
        // Each operation has an empty message, which the peer receives after the operation's
        // effect.
        receive(pair, 1, 0, &mut [])
    })?;
    owner.free(region)?;
    Ok(samples)
}

fn all_of(memory: &Memory, size: usize) -> Result<Area<'_>> {
    memory.area(0, size).context("memory of another length")
}

/// Waits until the kernel reports the end of the operation, which must be successful.
fn wait_for_end(socket: &RdsSocket) -> Result<()> {
    loop {
        poll(&mut [PollFd::new(socket, PollFd::READABLE)], None)?;
        match socket.recv_with(&mut []) {
            Ok((_, notices)) => {
                let wanted = Ended {
                    token: 1,
                    status: Status::Success,
                };
                ensure!(notices.ended == [wanted], "it ended with {notices:?}");
                return Ok(());
            }
            Err(e) if e.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => {}
            Err(e) => return Err(e).context("cannot receive"),
        }
    }
}
