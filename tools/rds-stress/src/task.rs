// SPDX-License-Identifier: GPL-2.0
//! A task: one socket, and a stream to each task of the other end.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use rds_socket::{
    is_congested, poll, Ended, Error, Notices, PollFd, Ports, RdsSocket, Received, Sent,
};
use rustix::thread::gettid;

use crate::message::{Defect, Op};
use crate::options::{Options, Own};
use crate::rdma::Operations;
use crate::session::say;
use crate::stats::Counters;
use crate::stream::{Incoming, Stream};

/// Interval at which a task checks if the phase has changed.
const TURN: Duration = Duration::from_millis(100);

/// Messages to receive before the task sends again.
const BURST: usize = 64;

/// The phase of all tasks of an end. It only advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// No work: not all tasks have their socket.
    Waiting,
    /// Sends requests.
    Running,
    /// Sends no more requests.
    Draining,
    /// No more messages are expected; the tasks end.
    Finished,
    /// The tasks end at once.
    Aborted,
}

/// The phase, which the tasks read.
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
            3 => Phase::Finished,
            _ => Phase::Aborted,
        }
    }
}

/// One task.
#[derive(Debug)]
pub(crate) struct Task {
    socket: RdsSocket,
    local: SocketAddr,
    /// Ordered by the ports of the peers.
    streams: Vec<Stream>,
    first_port: u16,
    options: Options,
    own: Own,
    /// The task sends requests, and not only acks.
    asks: bool,
    counters: Arc<Counters>,
    /// The kernel refused a message because the send buffer is full, or because the destination is
    /// congested.
    full: bool,
    congested: bool,
    last_progress: Instant,
    buffer: Vec<u8>,
}

impl Task {
    /// Opens the socket of `local`, with a stream to each task of the end whose first socket is
    /// `peer`.
    pub(crate) fn open(
        local: SocketAddr,
        peer: SocketAddr,
        options: &Options,
        own: &Own,
        asks: bool,
    ) -> Result<Self> {
        let socket = RdsSocket::bound(local)?;
        if options.monitor {
            socket.monitor_congestion()?;
        }
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
        let mut streams = Vec::with_capacity(options.tasks.into());
        for (index, port) in ports.take(options.tasks.into()).enumerate() {
            let mut stream = Stream::new(local, SocketAddr::new(peer.ip(), port));
            stream.operations = Operations::new(index, local, stream.to, options)?;
            streams.push(stream);
        }
        Ok(Task {
            socket,
            local,
            streams,
            first_port: peer.port(),
            options: options.clone(),
            own: own.clone(),
            asks,
            counters: Arc::new(Counters::new(own.latencies)),
            full: false,
            congested: false,
            last_progress: Instant::now(),
            buffer: vec![0; largest],
        })
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Works until the last phase. Calls `drained` once, when there are no more requests to send
    /// and all are answered.
    pub(crate) fn run(&mut self, shared: &Shared, drained: impl FnOnce()) -> Result<()> {
        let mut drained = Some(drained);
        while shared.get() == Phase::Waiting {
            std::thread::sleep(TURN / 10);
        }
        self.last_progress = Instant::now();
        loop {
            let phase = shared.get();
            if phase == Phase::Aborted {
                return self.abort();
            }
            // The end of an operation may come after the ack that carried it.
            if phase == Phase::Finished && self.streams.iter().all(|s| s.under_way() == 0) {
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
        self.streams.iter().all(Stream::is_quiet)
    }

    /// Offers messages to the kernel until the send buffer is full. With RDS_CONG_MONITOR a
    /// congested destination waits for the kernel's notification. Otherwise a message is offered to
    /// it each time, as the kernel reports the end of a congestion only to sockets that were
    /// refused since.
    fn send_all(&mut self, may_ask: bool) -> Result<()> {
        (self.full, self.congested) = (false, false);
        for stream in &mut self.streams {
            if stream.congested && self.options.monitor {
                self.congested = true;
                continue;
            }
            while let Some(header) = stream.next(may_ask, &self.options) {
                let size = header.op.size(&self.options);
                let message = self
                    .buffer
                    .get_mut(..size)
                    .context("a message beyond the largest")?;
                stream.write(header, message, &self.options);
                let (local, to) = (self.local, stream.to);
                let control = stream.control(&self.socket, header);
                let control = control
                    .with_context(|| format!("cannot send {header:?} from {local} to {to}"))?;
                let start = Instant::now();
                let result = match control {
                    Some(control) => self.socket.send_with(message, to, control),
                    None => self
                        .socket
                        .send_to(message, to)
                        .map(|len| Sent { len, region: None }),
                };
                let now = Instant::now();
                let region = match result {
                    Ok(Sent { len, region }) => {
                        ensure!(len == size, "the kernel took {len} of {size} bytes");
                        region
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        self.full = true;
                        return Ok(());
                    }
                    Err(e) if is_congested(&e) => {
                        (self.congested, stream.congested) = (true, true);
                        break;
                    }
                    Err(e) => {
                        let what = format!("send from {local} to {to}");
                        let error = match &stream.operations {
                            Some(_) => Error::of_operation(what, e),
                            None => Error::new(what, e),
                        };
                        return Err(error.into());
                    }
                };
                stream.sent(header, region, now);
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
            let (received, notices) = match self.receive_one() {
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                result => result.with_context(|| format!("cannot receive at {}", self.local))?,
            };
            let now = Instant::now();
            if notices.uncongested != Ports::default() {
                for stream in &mut self.streams {
                    stream.congested &= !notices.uncongested.contain(stream.to.port());
                }
            }
            for ended in &notices.ended {
                self.end_operation(ended)?;
                self.last_progress = now;
            }
            // This is not a message.
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
                Incoming::Ack(rtt) => {
                    self.counters.received_ack(rtt);
                    if self.own.is_outlier(rtt) {
                        eprintln!("Found RTT = {:#x}", rtt.as_micros());
                    }
                }
            }
            let moved = stream.accept_control(&self.socket, header, notices.region);
            self.counters
                .moved(moved.with_context(|| format!("{from} to {}", self.local))?);
            self.last_progress = now;
            if self.options.trace {
                eprintln!("{} from {from}: {header:?}", self.local);
            }
        }
        Ok(())
    }

    fn receive_one(&mut self) -> io::Result<(Received, Notices)> {
        // Only a socket that was refused gets a notification of the end of a congestion.
        if self.options.rdma.is_on() || self.congested {
            return self.socket.recv_with(&mut self.buffer);
        }
        let received = self.socket.recv_from(&mut self.buffer)?;
        Ok((received, Notices::default()))
    }

    fn end_operation(&mut self, ended: &Ended) -> Result<()> {
        let index = usize::try_from(ended.token / u64::from(self.options.depth));
        let stream = index.ok().and_then(|index| self.streams.get_mut(index));
        let Some((to, operations)) = stream.and_then(|s| Some((s.to, s.operations.as_mut()?)))
        else {
            bail!(
                "{}: foreign data: {ended:?} belongs to no operation",
                self.local
            );
        };
        let moved = operations.ended(ended);
        self.counters
            .moved(moved.with_context(|| format!("{} to {to}", self.local))?);
        if self.options.trace {
            eprintln!("{} to {to}: {ended:?}", self.local);
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
        let under_way: usize = self.streams.iter().map(Stream::under_way).sum();
        let why = match (self.full, self.congested) {
            (true, _) => ": the send buffer is full",
            (_, true) => ": the other end is congested",
            _ => "",
        };
        bail!(
            "{}: no progress for {} s: {waiting} {}s without an answer, {owed} {}s not sent, {under_way} \
             operations that have not ended{why}",
            self.local,
            self.options.timeout,
            Op::Request,
            Op::Ack,
        )
    }

    /// Ends the test early.
    fn abort(&self) -> Result<()> {
        if !self.own.cancel_sent_to {
            return Ok(());
        }
        let thread = gettid();
        for Stream { to, .. } in &self.streams {
            let start = Instant::now();
            self.socket.cancel_sent_to(*to)?;
            let took = start.elapsed().as_millis();
            let (ip, port, thread) = (to.ip(), to.port(), thread.as_raw_nonzero());
            say(&format!(
                "RDS_CANCEL_SENT_TO({ip}:{port})[{thread}] took {took} msec\n"
            ))?;
        }
        Ok(())
    }

    /// Both ends have all sent messages, so any further message is one too many.
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
