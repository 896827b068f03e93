// SPDX-License-Identifier: GPL-2.0
//! What the active end decides for both.

use std::time::Duration;

use anyhow::{ensure, Result};
use rds_socket::MAX_MESSAGE;
use serde::{Deserialize, Serialize};

use crate::message::HEADER;

/// Beyond this the threads are in each other's way.
const MAX_TASKS: u16 = 4096;

/// Beyond this a task needs too much memory for what it waits for.
const MAX_DEPTH: u32 = 1 << 16;

/// What a message may count in a buffer beyond its payload, as kernels may count the memory that it takes.
const OVERHEAD: u64 = 5120;

/// The kernel doubles what it is given, in an `int`.
const MAX_BUFFER: u64 = i32::MAX as u64 / 2;

/// A test, as the command line of the active end has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Options {
    /// Bytes of a request.
    pub(crate) req_bytes: u32,
    /// Bytes of an ack.
    pub(crate) ack_bytes: u32,
    /// Only the active end sends requests.
    pub(crate) one_way: bool,
    /// Requests from a task to another that wait for their ack.
    pub(crate) depth: u32,
    /// Tasks of each end.
    pub(crate) tasks: u16,
    /// Type of service.
    pub(crate) tos: Option<u8>,
    /// Fill and verify what is behind the headers.
    pub(crate) verify: bool,
    /// Print the summary alone.
    pub(crate) summary_only: bool,
    /// Print rows with real-time priority.
    pub(crate) rtprio: bool,
    /// Print each message.
    pub(crate) trace: bool,
    /// Seconds without progress that are a failure.
    pub(crate) timeout: u32,
}

impl Options {
    /// Whether they make sense. They may have come from another program.
    pub(crate) fn check(&self) -> Result<()> {
        for (bytes, what, option) in [
            (self.req_bytes, "request", "-q"),
            (self.ack_bytes, "ack", "-a"),
        ] {
            ensure!(
                (HEADER..=MAX_MESSAGE).contains(&(bytes as usize)),
                "{option} {bytes}: the size of a {what} is from {HEADER} to {MAX_MESSAGE} bytes"
            );
        }
        let (tasks, depth) = (self.tasks, self.depth);
        ensure!(
            (1..=MAX_TASKS).contains(&tasks),
            "-t {tasks}: from 1 to {MAX_TASKS} tasks"
        );
        ensure!(
            (1..=MAX_DEPTH).contains(&depth),
            "-d {depth}: from 1 to {MAX_DEPTH} requests"
        );
        ensure!(self.timeout > 0, "--timeout 0: at least a second");
        Ok(())
    }

    /// Bytes of the largest message.
    pub(crate) fn largest(&self) -> usize {
        self.req_bytes.max(self.ack_bytes) as usize
    }

    /// What the buffers of a socket have to hold: all messages to or from all tasks of the other end at once,
    /// and as much again.
    pub(crate) fn buffer(&self) -> usize {
        let pair = u64::from(self.req_bytes) + u64::from(self.ack_bytes) + 2 * OVERHEAD;
        // Each factor has a limit that keeps this far from an overflow.
        let bytes = u64::from(self.tasks) * u64::from(self.depth) * pair * 2;
        bytes.min(MAX_BUFFER) as usize
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }
}

#[cfg(test)]
pub(crate) fn example() -> Options {
    Options {
        req_bytes: 1024,
        ack_bytes: 64,
        one_way: false,
        depth: 4,
        tasks: 2,
        tos: None,
        verify: true,
        summary_only: false,
        rtprio: false,
        trace: false,
        timeout: 60,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_program_sends_is_checked() {
        assert!(example().check().is_ok());
        let bad: [fn(&mut Options); 8] = [
            |o| o.req_bytes = HEADER as u32 - 1,
            |o| o.req_bytes = u32::MAX,
            |o| o.ack_bytes = 0,
            |o| o.tasks = 0,
            |o| o.tasks = u16::MAX,
            |o| o.depth = 0,
            |o| o.depth = u32::MAX,
            |o| o.timeout = 0,
        ];
        for spoil in bad {
            let mut options = example();
            spoil(&mut options);
            assert!(options.check().is_err(), "{options:?}");
        }
    }

    #[test]
    fn buffers_have_a_limit() {
        assert_eq!(example().buffer(), 2 * 4 * (1024 + 64 + 2 * 5120) * 2);
        let large = Options {
            req_bytes: MAX_MESSAGE as u32,
            ack_bytes: MAX_MESSAGE as u32,
            tasks: MAX_TASKS,
            depth: MAX_DEPTH,
            ..example()
        };
        assert!(large.check().is_ok());
        assert_eq!(large.buffer() as u64, MAX_BUFFER);
    }
}
