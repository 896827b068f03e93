// SPDX-License-Identifier: GPL-2.0
//! Sends the pings and waits for the answers.
//!
//! A pong carries nothing that identifies its ping. So there are a few sockets, each with its own
//! port, and each has at most one ping in flight.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{bail, Context};
use rds_socket::{is_congested, poll, Error, Events, PollFd, RdsSocket, PING_PORT};
use rds_tools_common::Progress;

use crate::args::Args;
use crate::stats::{answer, failure, Stats};

const SOCKETS: usize = 8;

/// The state of the ping of a socket. `number` counts from 1, `since` is the time of the first
/// attempt.
enum State {
    Unused,
    /// The kernel refused the ping; try again when one of these poll events comes.
    Blocked {
        number: u64,
        since: Instant,
        events: Events,
    },
    Sent {
        number: u64,
        since: Instant,
    },
    Answered {
        number: u64,
        since: Instant,
    },
}

struct Slot {
    socket: RdsSocket,
    state: State,
}

impl Slot {
    fn is_free(&self) -> bool {
        matches!(self.state, State::Unused | State::Answered { .. })
    }

    /// Returns the number of the ping that waits for an answer, and the time of its first attempt.
    fn waiting(&self) -> Option<(u64, Instant)> {
        match self.state {
            State::Blocked { number, since, .. } | State::Sent { number, since } => {
                Some((number, since))
            }
            State::Unused | State::Answered { .. } => None,
        }
    }

    fn events(&self) -> Events {
        match self.state {
            State::Blocked { events, .. } => PollFd::READABLE | events,
            _ => PollFd::READABLE,
        }
    }
}

/// A run of pings.
pub(crate) struct Pinger<'a, W> {
    args: &'a Args,
    source: SocketAddr,
    destination: SocketAddr,
    slots: Vec<Slot>,
    stats: Stats,
    /// In place of the lines of answers.
    progress: Option<Progress>,
    out: W,
}

impl<'a, W: Write> Pinger<'a, W> {
    /// Binds each socket to `source`, with a port that the kernel chooses.
    pub(crate) fn new(
        args: &'a Args,
        source: SocketAddr,
        destination: SocketAddr,
        out: W,
    ) -> Result<Self, Error> {
        let slots = (0..SOCKETS)
            .map(|_| {
                Ok(Slot {
                    socket: open(args, source)?,
                    state: State::Unused,
                })
            })
            .collect::<Result<_, Error>>()?;
        Ok(Pinger {
            args,
            source,
            destination,
            slots,
            stats: Stats::default(),
            progress: args.quiet.then(|| Progress::new(args.count, "pings")),
            out,
        })
    }

    /// Sends pings until all are answered or timed out, or until `stop` becomes readable.
    pub(crate) fn run(&mut self, stop: &UnixStream) -> anyhow::Result<()> {
        let mut next_ping = Instant::now();
        let mut next_slot = 0;
        loop {
            self.expire()?;
            self.retry()?;

            let all_sent = self
                .args
                .count
                .is_some_and(|count| self.stats.sent >= count);
            if all_sent && self.slots.iter().all(Slot::is_free) {
                return Ok(());
            }
            // Round robin: a late second answer to a ping then finds its socket unused for a while.
            let free = (0..SOCKETS).map(|i| (next_slot + i) % SOCKETS);
            let free = free
                .clone()
                .find(|&i| self.slots[i].is_free())
                .filter(|_| !all_sent);
            let now = Instant::now();
            if let Some(slot) = free.filter(|_| now >= next_ping) {
                next_slot = (slot + 1) % SOCKETS;
                // Counted from the plan, not from now, which keeps the rate. There is no burst to
                // replace pings that had to wait for a free socket.
                next_ping = (next_ping + self.args.interval).max(now);
                self.stats.sent += 1;
                self.send(slot, self.stats.sent, now)?;
            }

            let expiries = self
                .slots
                .iter()
                .filter_map(|s| Some(s.waiting()?.1 + self.args.timeout));
            let wake = expiries.chain(free.is_some().then_some(next_ping)).min();
            let wait = wake.map(|at| at.saturating_duration_since(Instant::now()));
            if self.wait(stop, wait)? {
                return Ok(());
            }
        }
    }

    /// Returns the counts, and the output.
    pub(crate) fn finish(self) -> (Stats, W) {
        (self.stats, self.out)
    }

    /// Waits for the sockets and handles received messages. Returns `true` if `stop` became
    /// readable.
    fn wait(&mut self, stop: &UnixStream, timeout: Option<Duration>) -> anyhow::Result<bool> {
        let mut fds: Vec<PollFd<'_>> = self
            .slots
            .iter()
            .map(|slot| PollFd::new(&slot.socket, slot.events()))
            .collect();
        fds.push(PollFd::new(stop, PollFd::READABLE));
        match poll(&mut fds, timeout) {
            Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(false),
            result => result.context("cannot wait for the sockets")?,
        };
        let stopped = fds.pop().is_some_and(|fd| fd.is(PollFd::READABLE));
        let readable: Vec<bool> = fds
            .iter()
            .map(|fd| fd.is(PollFd::READABLE | PollFd::ERROR))
            .collect();
        for (slot, _) in readable
            .iter()
            .enumerate()
            .filter(|(_, &readable)| readable)
        {
            self.receive(slot)?;
        }
        Ok(stopped)
    }

    fn send(&mut self, slot: usize, number: u64, since: Instant) -> anyhow::Result<()> {
        let result = self.slots[slot].socket.send_to(&[], self.destination);
        self.slots[slot].state = match result {
            Ok(_) => State::Sent { number, since },
            Err(e) if e.kind() == ErrorKind::Interrupted => State::Blocked {
                number,
                since,
                events: PollFd::WRITABLE,
            },
            Err(e) if e.kind() == ErrorKind::WouldBlock => State::Blocked {
                number,
                since,
                events: PollFd::WRITABLE,
            },
            // Congestion. The socket stays writable; an update of the peer's map wakes the poll.
            Err(e) if is_congested(&e) => State::Blocked {
                number,
                since,
                events: PollFd::UNCONGESTED,
            },
            Err(e) => {
                self.print(&failure(number, &e.to_string()))?;
                State::Unused
            }
        };
        Ok(())
    }

    /// Sends again the pings that the kernel refused.
    fn retry(&mut self) -> anyhow::Result<()> {
        for slot in 0..SOCKETS {
            if let State::Blocked { number, since, .. } = self.slots[slot].state {
                self.send(slot, number, since)?;
            }
        }
        Ok(())
    }

    /// Gives up pings that were not answered in time.
    fn expire(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        for slot in 0..SOCKETS {
            let Some((number, since)) = self.slots[slot].waiting() else {
                continue;
            };
            if now.duration_since(since) < self.args.timeout {
                continue;
            }
            let seconds = self.args.timeout.as_secs_f64();
            let why = match self.slots[slot].state {
                State::Blocked { .. } => format!("not sent within {seconds} s: congested"),
                _ => format!("no answer within {seconds} s"),
            };
            self.print(&failure(number, &why))?;
            // RDS repeats the ping until the socket is closed, and a late answer must not count for
            // a later ping. So continue with another port.
            self.slots[slot] = Slot {
                socket: open(self.args, self.source)?,
                state: State::Unused,
            };
        }
        Ok(())
    }

    /// Receives all messages of one socket.
    fn receive(&mut self, slot: usize) -> anyhow::Result<()> {
        loop {
            let received = match self.slots[slot].socket.recv_from(&mut []) {
                Ok(received) => received,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e).context("cannot receive from an RDS socket"),
            };
            let now = Instant::now();
            // Only the ping port answers pings; any other message has arrived at this port by
            // mistake.
            let Some(from) = received.from.filter(|from| from.port() == PING_PORT) else {
                continue;
            };
            let other = Some(from.ip()).filter(|&ip| ip != self.destination.ip());
            match self.slots[slot].state {
                State::Sent { number, since } => {
                    let rtt = now.duration_since(since);
                    self.stats.answered(rtt);
                    self.slots[slot].state = State::Answered { number, since };
                    self.report(&answer(number, rtt, other, false))?;
                }
                State::Answered { number, since } => {
                    self.stats.duplicate();
                    self.report(&answer(number, now.duration_since(since), other, true))?;
                }
                State::Unused | State::Blocked { .. } => {}
            }
        }
        if let Some(e) = self.slots[slot]
            .socket
            .take_error()
            .context("cannot read SO_ERROR")?
        {
            bail!("an RDS socket failed: {e}");
        }
        Ok(())
    }

    /// Prints an answer, or shows that there was one.
    fn report(&mut self, line: &str) -> anyhow::Result<()> {
        match &self.progress {
            Some(progress) => {
                progress.set(self.stats.answers());
                Ok(())
            }
            None => self.print(line),
        }
    }

    fn print(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.out, "{line}").context("cannot write the output")
    }
}

fn open(args: &Args, source: SocketAddr) -> Result<RdsSocket, Error> {
    let socket = RdsSocket::bound(source)?;
    if let Some(tos) = args.tos {
        socket.set_tos(tos)?;
    }
    Ok(socket)
}
