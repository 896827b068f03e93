// SPDX-License-Identifier: GPL-2.0
//! Runs all streams until they are finished, one has a defect, or nothing moves any more.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use rds_socket::{poll, PollFd};

use crate::args::{Common, Role};
use crate::control::Totals;
use crate::endpoint::{Admit, Endpoint, Refused, RECEIVE_BUFFER};

/// Time in which a skipped message may still arrive, before it counts as lost.
const LATE: Duration = Duration::from_secs(5);

/// All sockets of this end.
pub(crate) struct Engine {
    endpoints: Vec<Endpoint>,
    count: u64,
    /// Number of expected streams.
    expected: usize,
    timeout: Duration,
    last_progress: Instant,
    /// Time at which the first stream began.
    start: Option<Instant>,
    buffer: Vec<u8>,
}

impl Engine {
    /// Opens the sockets.
    pub(crate) fn new(role: &Role) -> Result<Self> {
        let (common, expected) = match role {
            Role::Recv { common, senders } => (common, *senders as usize),
            Role::Send { common, .. } => (common, 0),
            Role::Both { common, .. } => (common, usize::from(common.sockets)),
        };
        let endpoints = (0..common.sockets).map(|index| open(role, common, index));
        Ok(Engine {
            endpoints: endpoints.collect::<Result<_>>()?,
            count: common.count,
            expected,
            timeout: common.timeout(),
            last_progress: Instant::now(),
            start: None,
            buffer: vec![0; RECEIVE_BUFFER],
        })
    }

    /// Runs to the end. An error is a defect, or a failure of the system.
    pub(crate) fn run(&mut self) -> Result<()> {
        self.last_progress = Instant::now();
        while !self.is_finished() {
            let sent = self.send_all()?;
            let received = self.wait_and_receive()?;
            self.note_progress(sent || received);
            let idle = self.last_progress.elapsed();
            if idle >= LATE.min(self.timeout) {
                self.check_loss()?;
            }
            if idle >= self.timeout {
                self.explain_stall()?;
            }
        }
        Ok(())
    }

    /// Returns the totals of sent and received messages, and the counts of refused sends.
    pub(crate) fn totals(&self) -> (Totals, Totals, Refused) {
        let mut all = (Totals::default(), Totals::default(), Refused::default());
        for endpoint in &self.endpoints {
            let (sent, received) = endpoint.totals();
            all.0.add(sent);
            all.1.add(received);
            all.2.full += endpoint.refused.full;
            all.2.congested += endpoint.refused.congested;
        }
        all
    }

    /// Returns the numbers of streams that were sent and received.
    pub(crate) fn streams(&self) -> (usize, usize) {
        let outgoing = self.endpoints.iter().map(|e| e.outgoing.len()).sum();
        (outgoing, self.incoming_streams())
    }

    /// Returns the time since the ends found each other.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.map_or(Duration::ZERO, |start| start.elapsed())
    }

    fn incoming_streams(&self) -> usize {
        self.endpoints.iter().map(|e| e.incoming.len()).sum()
    }

    fn is_finished(&self) -> bool {
        self.incoming_streams() == self.expected
            && self.endpoints.iter().all(|endpoint| {
                endpoint.outgoing.iter().all(|out| out.is_finished())
                    && endpoint
                        .incoming
                        .iter()
                        .all(|incoming| incoming.is_finished())
            })
    }

    fn note_progress(&mut self, progress: bool) {
        if progress {
            self.last_progress = Instant::now();
            self.start.get_or_insert(self.last_progress);
        }
    }

    fn send_all(&mut self) -> Result<bool> {
        let mut progress = false;
        for endpoint in &mut self.endpoints {
            progress |= endpoint.send()?;
        }
        Ok(progress)
    }

    fn wait_and_receive(&mut self) -> Result<bool> {
        let greetings = self.endpoints.iter().flat_map(|e| &e.outgoing);
        let greetings = greetings.filter_map(|out| out.greeting_due());
        let pings = self.endpoints.iter().flat_map(|e| &e.incoming);
        let pings = pings.filter_map(|incoming| incoming.ping_due());
        let repeat = greetings.chain(pings).min();
        let has_gap = self.endpoints.iter().flat_map(|e| &e.incoming);
        let has_gap = has_gap
            .into_iter()
            .any(|incoming| incoming.verifier.has_gap());
        let patience = if has_gap {
            self.timeout.min(LATE)
        } else {
            self.timeout
        };
        let deadline = self.last_progress + patience;
        let wake = repeat.map_or(deadline, |repeat| repeat.min(deadline));
        let wait = wake.saturating_duration_since(Instant::now());

        let mut fds: Vec<PollFd<'_>> = self
            .endpoints
            .iter()
            .map(|e| PollFd::new(&e.socket, e.events()))
            .collect();
        match poll(&mut fds, Some(wait)) {
            Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(false),
            result => result.context("cannot wait for the sockets")?,
        };
        let ready: Vec<[bool; 3]> = fds
            .iter()
            .map(|fd| [PollFd::WRITABLE, PollFd::READABLE, PollFd::ERROR].map(|e| fd.is(e)))
            .collect();

        let mut progress = false;
        for (endpoint, [writable, readable, error]) in self.endpoints.iter_mut().zip(ready) {
            if error {
                endpoint.check_error()?;
            }
            if writable {
                endpoint.writable();
            }
            if readable {
                progress |= endpoint.receive(&mut self.buffer)?;
            }
        }
        // The engine checks the number of streams, as a socket does not know the total.
        if self.incoming_streams() > self.expected {
            bail!(
                "foreign data: more senders than the {} expected",
                self.expected
            );
        }
        Ok(progress)
    }

    /// Fails if a message was skipped: it is not late any more, but lost.
    fn check_loss(&self) -> Result<()> {
        for endpoint in &self.endpoints {
            for incoming in &endpoint.incoming {
                if let Some(loss) = incoming.verifier.loss() {
                    bail!(
                        "{} to {}: {loss}",
                        incoming.status(self.count),
                        endpoint.local
                    );
                }
            }
        }
        Ok(())
    }

    /// Fails, and describes the streams that did not move.
    fn explain_stall(&mut self) -> Result<()> {
        let seconds = self.timeout.as_secs();
        self.endpoints.iter_mut().for_each(Endpoint::writable);
        let mut progress = self.send_all()?;
        for endpoint in &mut self.endpoints {
            progress |= endpoint.receive(&mut self.buffer)?;
        }
        if progress {
            bail!("poll() reported nothing for {seconds} s, but messages could be moved: a lost wake-up");
        }
        let mut waiting: Vec<String> = Vec::new();
        for endpoint in &self.endpoints {
            let outgoing = endpoint.outgoing.iter().filter(|out| !out.is_finished());
            waiting.extend(outgoing.map(|out| format!("{} {}", endpoint.local, out.status())));
            let incoming = endpoint
                .incoming
                .iter()
                .filter(|incoming| !incoming.is_finished());
            let status = incoming.map(|i| format!("{} {}", endpoint.local, i.status(self.count)));
            waiting.extend(status);
        }
        let missing = self.expected.saturating_sub(self.incoming_streams());
        if missing > 0 {
            waiting.push(format!("{missing} senders have not appeared"));
        }
        let unfinished = waiting.len();
        waiting.truncate(8);
        bail!(
            "no progress for {seconds} s; {unfinished} unfinished: {}",
            waiting.join("; ")
        )
    }
}

/// Opens the socket of this index and adds its streams.
fn open(role: &Role, common: &Common, index: u16) -> Result<Endpoint> {
    let local = nth(common.bind, index)?;
    match role {
        Role::Recv { .. } => Endpoint::open(common, local, Admit::Anyone),
        Role::Send { to, .. } => {
            let mut endpoint = Endpoint::open(common, local, Admit::Only(None))?;
            to.iter().for_each(|&to| endpoint.add_outgoing(to));
            Ok(endpoint)
        }
        Role::Both { to, .. } => {
            let to = nth(*to, index)?;
            let mut endpoint = Endpoint::open(common, local, Admit::Only(Some(to)))?;
            endpoint.add_outgoing(to);
            Ok(endpoint)
        }
    }
}

/// Returns the address `index` ports after `first`.
fn nth(first: SocketAddr, index: u16) -> Result<SocketAddr> {
    let mut addr = first;
    let port = first.port().checked_add(index);
    addr.set_port(port.with_context(|| format!("{first} has no {index} ports after it"))?);
    Ok(addr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_consecutive_and_end() {
        let first = "10.0.0.1:65530".parse().unwrap();
        assert_eq!(nth(first, 5).unwrap().port(), 65535);
        assert!(nth(first, 6).is_err());
    }
}
