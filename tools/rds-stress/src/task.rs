// SPDX-License-Identifier: GPL-2.0
//! A task: one socket, and a stream to each task of the other end.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use rds_socket::{is_congested, poll, PollFd, RdsSocket};

use crate::message::{Defect, Op};
use crate::options::Options;
use crate::stats::Counters;
use crate::stream::{Incoming, Stream};

/// How often a task looks whether the phase has changed.
const TURN: Duration = Duration::from_millis(100);

/// Messages to receive before it is the turn of those to send.
const BURST: usize = 64;

/// What all tasks of an end do. It only moves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Nothing: not all tasks have their socket.
    Waiting,
    /// Send requests.
    Running,
    /// Send no more of them.
    Draining,
    /// Nothing is to come any more. End.
    Finished,
}

/// The phase, which the tasks look up.
#[derive(Debug, Default)]
pub(crate) struct Shared(AtomicU8);

impl Shared {
    pub(crate) fn set(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Release);
    }

    fn get(&self) -> Phase {
        match self.0.load(Ordering::Acquire) {
            0 => Phase::Waiting,
            1 => Phase::Running,
            2 => Phase::Draining,
            _ => Phase::Finished,
        }
    }
}

/// One task.
#[derive(Debug)]
pub(crate) struct Task {
    socket: RdsSocket,
    local: SocketAddr,
    /// By the order of their ports.
    streams: Vec<Stream>,
    first_port: u16,
    options: Options,
    /// It sends requests, not just acks.
    asks: bool,
    counters: Arc<Counters>,
    /// The kernel refused a message because the send buffer is full, or because the destination is congested.
    full: bool,
    congested: bool,
    last_progress: Instant,
    buffer: Vec<u8>,
}

impl Task {
    /// Opens the socket of `local`, with a stream to each task of the end whose first socket is `peer`.
    pub(crate) fn open(
        local: SocketAddr,
        peer: SocketAddr,
        options: &Options,
        asks: bool,
    ) -> Result<Self> {
        let socket = RdsSocket::bound(local)?;
        if let Some(tos) = options.tos {
            socket.set_tos(tos)?;
        }
        let limit = socket.set_send_limit(options.buffer())?;
        let largest = options.largest();
        ensure!(
            limit >= largest,
            "messages of {largest} bytes need a send buffer as large, and this one has {limit}: run as root, \
             or raise net.core.wmem_max"
        );
        socket.set_receive_limit(options.buffer())?;
        let ports = peer.port()..=u16::MAX;
        let peers = ports
            .take(options.tasks.into())
            .map(|port| SocketAddr::new(peer.ip(), port));
        Ok(Task {
            socket,
            local,
            streams: peers.map(|to| Stream::new(local, to)).collect(),
            first_port: peer.port(),
            options: options.clone(),
            asks,
            counters: Arc::default(),
            full: false,
            congested: false,
            last_progress: Instant::now(),
            buffer: vec![0; largest],
        })
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Works until the phase is the last. Calls `drained` once, when there are no more requests to send and
    /// all are answered.
    pub(crate) fn run(&mut self, shared: &Shared, drained: impl FnOnce()) -> Result<()> {
        let mut drained = Some(drained);
        while shared.get() == Phase::Waiting {
            std::thread::sleep(TURN / 10);
        }
        self.last_progress = Instant::now();
        loop {
            let phase = shared.get();
            if phase == Phase::Finished {
                return self.end();
            }
            self.send_all(phase == Phase::Running && self.asks)?;
            if phase == Phase::Draining && self.is_quiet() {
                if let Some(drained) = drained.take() {
                    drained();
                }
            }
            self.wait()?;
            self.receive()?;
            self.check_progress()?;
        }
    }

    fn is_quiet(&self) -> bool {
        self.streams
            .iter()
            .all(|s| s.waiting() == 0 && s.owed() == 0)
    }

    /// Offers what there is, until the send buffer is full. A congested destination is offered a message each
    /// time, as the kernel tells of the end of a congestion only who was refused since.
    fn send_all(&mut self, may_ask: bool) -> Result<()> {
        (self.full, self.congested) = (false, false);
        for stream in &mut self.streams {
            while let Some(header) = stream.next(may_ask, &self.options) {
                let size = header.op.size(&self.options);
                let message = self
                    .buffer
                    .get_mut(..size)
                    .context("a message beyond the largest")?;
                stream.write(header, message, &self.options);
                let start = Instant::now();
                let result = self.socket.send_to(message, stream.to);
                let now = Instant::now();
                match result {
                    Ok(sent) => ensure!(sent == size, "the kernel took {sent} of {size} bytes"),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        self.full = true;
                        return Ok(());
                    }
                    Err(e) if is_congested(&e) => {
                        self.congested = true;
                        break;
                    }
                    Err(e) => {
                        let (local, to) = (self.local, stream.to);
                        return Err(e).with_context(|| format!("cannot send from {local} to {to}"));
                    }
                }
                stream.sent(header, now);
                self.counters.sent(header.op, now - start);
                self.last_progress = now;
                if self.options.trace {
                    eprintln!("{} to {}: {header:?}", self.local, stream.to);
                }
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        let mut events = PollFd::READABLE;
        if self.full {
            events |= PollFd::WRITABLE;
        }
        if self.congested {
            events |= PollFd::UNCONGESTED;
        }
        let mut fds = [PollFd::new(&self.socket, events)];
        match poll(&mut fds, Some(TURN)) {
            Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(()),
            result => result.context("cannot wait for a socket")?,
        };
        if fds.iter().any(|fd| fd.is(PollFd::ERROR)) {
            if let Some(error) = self.socket.take_error().context("cannot read SO_ERROR")? {
                return Err(error).with_context(|| format!("the socket {} failed", self.local));
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        for _ in 0..BURST {
            let received = match self.socket.recv_from(&mut self.buffer) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                result => result.with_context(|| format!("cannot receive at {}", self.local))?,
            };
            let now = Instant::now();
            // Not a message.
            let Some(from) = received.from else { continue };
            let message = self.buffer.get(..received.len).unwrap_or_default();
            let index = from.port().checked_sub(self.first_port).map(usize::from);
            let stream = index.and_then(|i| self.streams.get_mut(i));
            let Some(stream) = stream.filter(|stream| stream.to == from) else {
                bail!(
                    "{from} to {}: foreign data: no task of the other end is there",
                    self.local
                );
            };
            let accepted = stream.accept(message, received.truncated, now, &self.options);
            let (header, incoming) = match accepted {
                Ok(accepted) => accepted,
                Err(defect) => bail!("{from} to {}: {defect}", self.local),
            };
            match incoming {
                Incoming::Request => self.counters.received_request(),
                Incoming::Ack(rtt) => self.counters.received_ack(rtt),
            }
            self.last_progress = now;
            if self.options.trace {
                eprintln!("{} from {from}: {header:?}", self.local);
            }
        }
        Ok(())
    }

    /// Fails if something is due and nothing has moved for too long.
    fn check_progress(&self) -> Result<()> {
        if self.last_progress.elapsed() < self.options.timeout() || self.is_quiet() {
            return Ok(());
        }
        let waiting: usize = self.streams.iter().map(Stream::waiting).sum();
        let owed: u64 = self.streams.iter().map(Stream::owed).sum();
        let why = match (self.full, self.congested) {
            (true, _) => ": the send buffer is full",
            (_, true) => ": the other end is congested",
            _ => "",
        };
        bail!(
            "{}: no progress for {} s: {waiting} {}s without an answer, {owed} {}s not sent{why}",
            self.local,
            self.options.timeout,
            Op::Request,
            Op::Ack,
        )
    }

    /// Both ends have all that was sent, so whatever there is is one too many.
    fn end(&mut self) -> Result<()> {
        match self.socket.recv_from(&mut self.buffer) {
            Ok(received) if received.from.is_some() => {
                bail!("{}: {}", self.local, Defect::Surplus { len: received.len })
            }
            Err(e) if e.kind() != ErrorKind::WouldBlock => {
                Err(e).with_context(|| format!("cannot receive at {}", self.local))
            }
            _ => Ok(()),
        }
    }
}
