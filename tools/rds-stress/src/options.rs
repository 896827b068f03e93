// SPDX-License-Identifier: GPL-2.0
//! The parameters that the active end sets for both.

use std::fmt;
use std::time::Duration;

use anyhow::{ensure, Result};
use rds_socket::{MAX_MESSAGE, MAX_TRANSFER};
use serde::{Deserialize, Serialize};

use crate::message::HEADER;

/// Largest number of tasks: with more, the threads impede each other.
const MAX_TASKS: u16 = 4096;

/// Largest depth: with more, a task needs too much memory for its outstanding requests.
const MAX_DEPTH: u32 = 1 << 16;

/// Bytes that a message may count in a buffer beyond its payload, as kernels may count all of its
/// memory.
const OVERHEAD: u64 = 5120;

/// Largest buffer size, as the kernel doubles the given value in an `int`.
const MAX_BUFFER: u64 = i32::MAX as u64 / 2;

/// Largest number of buffers, as in Oracle's tool.
const MAX_BUFFERS: u32 = 512;

/// Size of a page: memory that does not begin with a page begins in the first one.
const MAX_ALIGNMENT: u32 = 4096;

/// The operation of a task that answers a request, on memory of the task that asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// RDMA write to it.
    Write,
    /// RDMA read from it.
    Read,
    /// Atomic addition to a number in it.
    FetchAdd,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Write => "RDMA write",
            Operation::Read => "RDMA read",
            Operation::FetchAdd => "fetch-and-add",
        })
    }
}

/// The kinds of transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// Both, alternating.
    #[default]
    ReadWrite,
    ReadOnly,
    WriteOnly,
}

/// The operations of a test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rdma {
    /// Bytes of each local buffer of a transfer. 0: no transfers.
    pub(crate) bytes: u32,
    /// Local buffers of a transfer.
    pub(crate) buffers: u32,
    pub(crate) mode: Mode,
    /// Atomic additions.
    pub(crate) atomics: bool,
    /// Regions end with their first use.
    pub(crate) use_once: bool,
    /// Registers with RDS_GET_MR, and not with the message that carries the cookie.
    pub(crate) use_get_mr: bool,
    /// Registers once for all requests.
    pub(crate) cache_mrs: bool,
    /// Bytes of the first page that are not used.
    pub(crate) alignment: u32,
}

impl Rdma {
    /// Returns `true` if each request has an operation.
    pub(crate) fn is_on(&self) -> bool {
        self.bytes > 0 || self.atomics
    }

    /// Returns the bytes of a transfer.
    pub(crate) fn transfer(&self) -> usize {
        self.bytes as usize * self.buffers as usize
    }

    /// Returns the bytes of the largest operation.
    pub(crate) fn largest(&self) -> usize {
        let number = if self.atomics { size_of::<u64>() } else { 0 };
        self.transfer().max(number)
    }

    /// Returns the operation for the number `turn`; they alternate.
    pub(crate) fn operation(&self, turn: u64) -> Operation {
        let transfers: &[Operation] = match self.mode {
            _ if self.bytes == 0 => &[],
            Mode::ReadWrite => &[Operation::Write, Operation::Read],
            Mode::ReadOnly => &[Operation::Read],
            Mode::WriteOnly => &[Operation::Write],
        };
        let all = transfers.len() as u64 + u64::from(self.atomics);
        let turn = (turn % all.max(1)) as usize;
        transfers.get(turn).copied().unwrap_or(Operation::FetchAdd)
    }

    /// Fails if the parameters do not make sense.
    fn check(&self) -> Result<()> {
        let (bytes, buffers, alignment) = (self.bytes, self.buffers, self.alignment);
        ensure!(
            (1..=MAX_BUFFERS).contains(&buffers),
            "-I {buffers}: from 1 to {MAX_BUFFERS} buffers"
        );
        ensure!(
            u64::from(bytes) * u64::from(buffers) <= MAX_TRANSFER as u64,
            "-D {bytes} -I {buffers}: all buffers have up to {MAX_TRANSFER} bytes"
        );
        ensure!(
            alignment < MAX_ALIGNMENT,
            "--rdma-alignment {alignment}: less than {MAX_ALIGNMENT} bytes"
        );
        ensure!(
            !self.atomics || alignment % 8 == 0,
            "--rdma-alignment {alignment}: atomic operations need a multiple of 8"
        );
        ensure!(
            !(self.cache_mrs && self.use_once),
            "--rdma-cache-mrs 1 and --rdma-use-once 1: a region that goes with its use cannot be used again"
        );
        ensure!(
            !self.cache_mrs || self.use_get_mr,
            "--rdma-cache-mrs 1 and --rdma-use-get-mr 0: what is registered with a message is so for that message"
        );
        Ok(())
    }
}

/// Formats the row of `--show-params`.
impl fmt::Display for Rdma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {:<10}", "RDMA opts")?;
        for (is, name) in [
            (self.use_once, "use_once"),
            (self.use_get_mr, "use_get_mr"),
            (true, "use_fence"),
            (self.cache_mrs, "cache_mrs"),
            (self.atomics, "atomics"),
        ] {
            if is {
                write!(f, " {name}")?;
            }
        }
        if self.alignment > 0 {
            write!(f, " align={}", self.alignment)?;
        }
        writeln!(f)
    }
}

/// The options that only concern one end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Own {
    /// Shows the load of the CPUs.
    pub(crate) report_cpu: bool,
    /// Shows the distribution of round trip times.
    pub(crate) histogram: bool,
    /// Shows percentiles of round trip times.
    pub(crate) latencies: bool,
    /// Reports round trips that take more microseconds.
    pub(crate) outliers: Option<u32>,
    /// If the test ends early, drops the sent messages in the kernel.
    pub(crate) cancel_sent_to: bool,
    /// Seconds of rows after which the test ends early.
    pub(crate) abort_after: Option<u32>,
}

impl Own {
    /// Returns `true` if a round trip of this duration has to be reported.
    pub(crate) fn is_outlier(&self, rtt: Duration) -> bool {
        let most = self.outliers.map(u128::from);
        most.is_some_and(|most| rtt.as_micros() > most)
    }
}

/// The parameters of a test, from the command line of the active end.
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
    /// Fills and verifies the content behind the headers.
    pub(crate) verify: bool,
    /// Prints only the summary.
    pub(crate) summary_only: bool,
    /// Prints rows with real-time priority.
    pub(crate) rtprio: bool,
    /// Prints each message.
    pub(crate) trace: bool,
    /// Prints rows for scripts.
    pub(crate) perfdata: bool,
    /// Waits for notifications of congested ports that may have room again.
    pub(crate) monitor: bool,
    /// Seconds without progress that are a failure.
    pub(crate) timeout: u32,
    pub(crate) rdma: Rdma,
}

impl Options {
    /// Fails if the parameters do not make sense. They may have come from another program.
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
        self.rdma.check()
    }

    /// Returns the bytes of the largest message.
    pub(crate) fn largest(&self) -> usize {
        self.req_bytes.max(self.ack_bytes) as usize
    }

    /// Returns the necessary size of a socket's buffers: twice the size of all messages to or from
    /// all tasks of the other end.
    pub(crate) fn buffer(&self) -> usize {
        let pair = u64::from(self.req_bytes) + u64::from(self.ack_bytes) + 2 * OVERHEAD;
        // The limits of the factors keep this far from an overflow.
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
        perfdata: false,
        monitor: true,
        timeout: 60,
        rdma: Rdma {
            buffers: 1,
            use_once: true,
            ..Rdma::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_another_program_are_checked() {
        assert!(example().check().is_ok());
        let bad: [fn(&mut Options); 16] = [
            |o| o.req_bytes = HEADER as u32 - 1,
            |o| o.req_bytes = u32::MAX,
            |o| o.ack_bytes = 0,
            |o| o.tasks = 0,
            |o| o.tasks = u16::MAX,
            |o| o.depth = 0,
            |o| o.depth = u32::MAX,
            |o| o.timeout = 0,
            |o| o.rdma.buffers = 0,
            |o| o.rdma.buffers = MAX_BUFFERS + 1,
            |o| o.rdma.bytes = MAX_TRANSFER as u32 + 1,
            |o| (o.rdma.bytes, o.rdma.buffers) = (u32::MAX, MAX_BUFFERS),
            |o| o.rdma.alignment = MAX_ALIGNMENT,
            |o| (o.rdma.atomics, o.rdma.alignment) = (true, 4),
            |o| o.rdma.cache_mrs = true,
            |o| (o.rdma.cache_mrs, o.rdma.use_once) = (true, false),
        ];
        for spoil in bad {
            let mut options = example();
            spoil(&mut options);
            assert!(options.check().is_err(), "{options:?}");
        }
    }

    #[test]
    fn operations_take_turns() {
        use Operation::{FetchAdd, Read, Write};
        let turns = |bytes, mode, atomics| {
            let rdma = Rdma {
                bytes,
                mode,
                atomics,
                ..example().rdma
            };
            assert_eq!(rdma.is_on(), bytes > 0 || atomics);
            [0, 1, 2, 3, u64::MAX].map(|turn| rdma.operation(turn))
        };
        let both = [Write, Read, Write, Read, Read];
        assert_eq!(turns(1, Mode::ReadWrite, false), both);
        assert_eq!(turns(1, Mode::ReadOnly, false), [Read; 5]);
        assert_eq!(turns(1, Mode::WriteOnly, false), [Write; 5]);
        assert_eq!(turns(0, Mode::ReadWrite, true), [FetchAdd; 5]);
        let all = [Write, Read, FetchAdd, Write, Write];
        assert_eq!(turns(1, Mode::ReadWrite, true), all);
        turns(0, Mode::ReadWrite, false);
    }

    #[test]
    fn outliers_take_longer() {
        let is = |outliers, micros| {
            let own = Own {
                outliers,
                ..Own::default()
            };
            own.is_outlier(Duration::from_micros(micros))
        };
        assert_eq!((is(Some(500), 500), is(Some(500), 501)), (false, true));
        assert_eq!((is(Some(0), 1), is(None, u64::MAX)), (true, false));
    }

    #[test]
    fn an_operation_is_no_less_than_a_number() {
        let sizes = |bytes, buffers, atomics| {
            let rdma = Rdma {
                bytes,
                buffers,
                atomics,
                ..example().rdma
            };
            (rdma.transfer(), rdma.largest())
        };
        assert_eq!(sizes(0, 1, false), (0, 0));
        assert_eq!(sizes(0, 1, true), (0, 8));
        assert_eq!(sizes(3, 2, true), (6, 8));
        assert_eq!(sizes(1000, 3, true), (3000, 3000));
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
