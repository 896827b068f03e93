// SPDX-License-Identifier: GPL-2.0
//! One socket and its streams.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use anyhow::{bail, Context, Result};
use rds_socket::{is_congested, Events, PollFd, RdsSocket, MAX_MESSAGE, PING_PORT};

use crate::args::Common;
use crate::control::{Control, Plan, Totals};
use crate::outgoing::{check_plans, Outgoing, REPEAT_INTERVAL};
use crate::pings::{Earlier, Pings};
use crate::verifier::Verifier;
use rds_content::Key;

/// Messages to send, or to receive, before the other sockets have their turn.
const BURST: usize = 64;

/// The phase of the receiving end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Receiving,
    /// All messages came, and the confirmation is followed by pings. A pong proves that the
    /// confirmation was delivered. Then the socket can be closed without loss.
    Closing {
        /// The pings before the confirmation.
        earlier: Earlier,
        /// The next ping is due at this time.
        ping_due: Instant,
    },
    Finished,
}

/// The receiving end of a stream.
#[derive(Debug)]
pub(crate) struct Incoming {
    from: SocketAddr,
    phase: Phase,
    pub(crate) verifier: Verifier,
}

impl Incoming {
    pub(crate) fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Returns the time of the next ping.
    pub(crate) fn ping_due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Closing { ping_due, .. } => Some(ping_due),
            Phase::Receiving | Phase::Finished => None,
        }
    }

    /// Describes the event that it waits for.
    pub(crate) fn status(&self, count: u64) -> String {
        let doing = match self.phase {
            Phase::Receiving => "waiting for more",
            Phase::Closing { .. } => {
                "the sender's kernel has not answered a ping (net.rds.ping_enable?)"
            }
            Phase::Finished => "finished",
        };
        let received = self.verifier.totals().messages;
        format!(
            "from {}: {received} of {count} received, {doing}",
            self.from
        )
    }
}

/// The senders that are admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Admit {
    Anyone,
    Only(Option<SocketAddr>),
}

/// Counts of refused sends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refused {
    /// `EAGAIN`
    pub(crate) full: u64,
    /// `ENOBUFS`
    pub(crate) congested: u64,
}

/// One socket and its streams.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) socket: RdsSocket,
    pub(crate) local: SocketAddr,
    pub(crate) outgoing: Vec<Outgoing>,
    pub(crate) incoming: Vec<Incoming>,
    pub(crate) refused: Refused,
    admit: Admit,
    plan: Plan,
    options: Common,
    /// Messages to send before any data, in order. Empty messages are pings.
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Pings to the hosts of senders.
    pings: HashMap<IpAddr, Pings>,
    /// The kernel refused the last message because the send buffer is full.
    full: bool,
    turn: usize,
}

impl Endpoint {
    /// Binds a socket to `local` and configures it by `options`.
    pub(crate) fn open(options: &Common, local: SocketAddr, admit: Admit) -> Result<Self> {
        let socket = RdsSocket::new()?;
        if let Some(transport) = options.transport {
            socket.set_transport(transport.into())?;
        }
        socket.bind(local)?;
        if let Some(tos) = options.tos {
            socket.set_tos(tos)?;
        }
        let largest = options.sizes.max();
        let wanted = options.sndbuf.unwrap_or((2 * largest).max(MIN_SEND_LIMIT));
        let limit = socket.set_send_limit(wanted)?;
        if limit < largest {
            bail!(
                "--sizes {} needs a send buffer of {largest} bytes, and this one has {limit}: give a \
                 larger --sndbuf, run as root, or raise net.core.wmem_max",
                options.sizes
            );
        }
        if let Some(rcvbuf) = options.rcvbuf {
            socket.set_receive_limit(rcvbuf)?;
        }
        let plan = Plan {
            seed: options.seed,
            count: options.count,
            sizes: options.sizes.digest(),
        };
        Ok(Endpoint {
            local: socket.local_addr()?,
            socket,
            outgoing: Vec::new(),
            incoming: Vec::new(),
            refused: Refused::default(),
            admit,
            plan,
            options: options.clone(),
            replies: VecDeque::new(),
            pings: HashMap::new(),
            full: false,
            turn: 0,
        })
    }

    /// Adds a stream to `to`.
    pub(crate) fn add_outgoing(&mut self, to: SocketAddr) {
        let key = Key::new(self.options.seed, self.local, to);
        self.outgoing
            .push(Outgoing::new(key, self.plan, self.options.sizes, to));
    }

    /// Returns the events to poll for after [`Self::send`]. Only a full send buffer makes a socket
    /// unwritable, so congested streams must not ask for that event.
    pub(crate) fn events(&self) -> Events {
        if self.full {
            return PollFd::READABLE | PollFd::WRITABLE;
        }
        if !self.replies.is_empty() {
            return PollFd::READABLE | PollFd::UNCONGESTED;
        }
        let mut events = PollFd::READABLE;
        if self.outgoing.iter().any(|out| out.congested) {
            events |= PollFd::UNCONGESTED;
        }
        if self
            .outgoing
            .iter()
            .any(|out| out.has_data() && !out.congested)
        {
            events |= PollFd::WRITABLE;
        }
        events
    }

    /// Notes that the send buffer has room again.
    pub(crate) fn writable(&mut self) {
        self.full = false;
    }

    /// Sends all messages that can be sent. Returns `true` if the other end made progress.
    ///
    /// Tries congested destinations each time: the kernel wakes a poller at the end of congestion
    /// only if a send was refused since the last poll.
    pub(crate) fn send(&mut self) -> Result<bool> {
        self.greet();
        self.ping();
        while let Some((to, message)) = self.replies.pop_front() {
            if !self.full && self.offer(&message, to)? {
                continue;
            }
            self.replies.push_front((to, message));
            break;
        }
        self.outgoing
            .iter_mut()
            .for_each(|out| out.congested = false);
        let mut progress = false;
        for _ in 0..BURST {
            if self.full || !self.replies.is_empty() || !self.send_one()? {
                break;
            }
            progress = true;
        }
        Ok(progress)
    }

    fn greet(&mut self) {
        let now = Instant::now();
        for out in &mut self.outgoing {
            if let Some(hello) = out.greeting(now) {
                self.replies.push_back((out.to, hello.encode().to_vec()));
            }
        }
    }

    /// Pings the hosts of senders whose messages all came. Repeats that until one has answered,
    /// because a kernel may drop an answer.
    fn ping(&mut self) {
        let now = Instant::now();
        for incoming in &mut self.incoming {
            let Phase::Closing { ping_due, .. } = &mut incoming.phase else {
                continue;
            };
            if now < *ping_due {
                continue;
            }
            *ping_due = now + REPEAT_INTERVAL;
            let mut to = incoming.from;
            to.set_port(PING_PORT);
            self.pings.entry(to.ip()).or_default().note_ping();
            self.replies.push_back((to, Vec::new()));
        }
    }

    /// Sends a message of the next stream that has one.
    fn send_one(&mut self) -> Result<bool> {
        for _ in 0..self.outgoing.len() {
            self.turn = (self.turn + 1) % self.outgoing.len();
            let out = &mut self.outgoing[self.turn];
            if !out.has_data() || out.congested {
                continue;
            }
            let to = out.to;
            match sent(
                self.socket.send_to(out.message(), to),
                &mut self.refused,
                to,
            )? {
                Outcome::Sent => {
                    out.message_sent();
                    return Ok(true);
                }
                Outcome::Congested => out.congested = true,
                Outcome::Full => {
                    self.full = true;
                    return Ok(false);
                }
            }
        }
        Ok(false)
    }

    /// Offers a control message; returns `true` if the kernel accepted it.
    fn offer(&mut self, message: &[u8], to: SocketAddr) -> Result<bool> {
        let outcome = sent(self.socket.send_to(message, to), &mut self.refused, to)?;
        self.full = outcome == Outcome::Full;
        Ok(outcome == Outcome::Sent)
    }

    /// Receives all available messages. Returns `true` if the other end made progress.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Result<bool> {
        let mut progress = false;
        for _ in 0..BURST {
            let received = match self.socket.recv_from(buffer) {
                Ok(received) => received,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => {
                    return Err(e).with_context(|| format!("cannot receive at {}", self.local))
                }
            };
            let Some(from) = received.from else {
                bail!(
                    "{} received {} bytes without a source address",
                    self.local,
                    received.len
                );
            };
            let message = &buffer[..received.len];
            let result = match Control::decode(message) {
                Some(control) => self.control(from, control),
                None if from.port() == PING_PORT && message.is_empty() => self.pong(from),
                None => self.data(from, message, received.truncated).map(|()| true),
            };
            progress |= result.with_context(|| format!("from {from} to {}", self.local))?;
        }
        Ok(progress)
    }

    /// Takes the error that `poll` announced.
    pub(crate) fn check_error(&self) -> Result<()> {
        match self.socket.take_error().context("cannot read SO_ERROR")? {
            Some(e) => bail!("the socket {} failed: {e}", self.local),
            None => Ok(()),
        }
    }

    fn control(&mut self, from: SocketAddr, control: Control) -> Result<bool> {
        match control {
            Control::Hello(theirs) => self.hello(from, theirs),
            Control::Welcome(theirs) => self.out_to(from)?.welcomed(theirs),
            Control::Done(totals) => self.out_to(from)?.confirmed(totals).map(|()| true),
        }
    }

    fn out_to(&mut self, to: SocketAddr) -> Result<&mut Outgoing> {
        let out = self.outgoing.iter_mut().find(|out| same(out.to, to));
        out.context("foreign data: an answer to messages that were not sent")
    }

    fn hello(&mut self, from: SocketAddr, theirs: Plan) -> Result<bool> {
        let welcome = Control::Welcome(self.plan).encode();
        if let Err(error) = check_plans(self.plan, theirs) {
            // The sender can then report the reason, too. It is not worth a wait.
            let _ = self.socket.send_to(&welcome, from);
            return Err(error);
        }
        let known = self.incoming.iter().find(|incoming| incoming.from == from);
        if known.is_some_and(|incoming| incoming.verifier.totals().messages > 0) {
            bail!("reordering: a greeting came after data");
        }
        let new = known.is_none();
        if new {
            let admitted = match self.admit {
                Admit::Anyone => true,
                Admit::Only(peer) => peer.is_some_and(|peer| same(peer, from)),
            };
            if !admitted {
                bail!("foreign data: a greeting from a sender that is not expected");
            }
            let key = Key::new(self.options.seed, from, self.local);
            let verifier = Verifier::new(key, self.options.sizes, self.options.count);
            self.incoming.push(Incoming {
                from,
                phase: Phase::Receiving,
                verifier,
            });
        }
        self.replies.push_back((from, welcome.to_vec()));
        Ok(new)
    }

    fn data(&mut self, from: SocketAddr, message: &[u8], truncated: bool) -> Result<()> {
        let incoming = self
            .incoming
            .iter_mut()
            .find(|incoming| incoming.from == from);
        let Some(incoming) = incoming else {
            bail!(
                "foreign data: {} bytes from a sender that has not greeted",
                message.len()
            );
        };
        if let Err(defect) = incoming.verifier.accept(message, truncated) {
            bail!("{defect}");
        }
        if incoming.verifier.is_complete() {
            let done = Control::Done(incoming.verifier.totals()).encode();
            self.replies.push_back((from, done.to_vec()));
            incoming.phase = Phase::Closing {
                earlier: self.pings.entry(from.ip()).or_default().earlier(),
                ping_due: Instant::now(),
            };
        }
        Ok(())
    }

    fn pong(&mut self, from: SocketAddr) -> Result<bool> {
        let pings = self.pings.entry(from.ip()).or_default();
        if !pings.note_pong() {
            bail!("foreign data: an answer to a ping that was not sent");
        }
        let mut progress = false;
        for incoming in &mut self.incoming {
            if let Phase::Closing { earlier, .. } = incoming.phase {
                if incoming.from.ip() == from.ip() && pings.prove(earlier) {
                    incoming.phase = Phase::Finished;
                    progress = true;
                }
            }
        }
        Ok(progress)
    }

    /// Adds up the sent and the received messages.
    pub(crate) fn totals(&self) -> (Totals, Totals) {
        let (mut sent, mut received) = (Totals::default(), Totals::default());
        self.outgoing.iter().for_each(|out| sent.add(out.totals()));
        self.incoming
            .iter()
            .for_each(|incoming| received.add(incoming.verifier.totals()));
        (sent, received)
    }
}

/// Room for some messages even if all are small.
const MIN_SEND_LIMIT: usize = 256 << 10;

/// Size of a buffer that no message fills.
pub(crate) const RECEIVE_BUFFER: usize = MAX_MESSAGE + 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Sent,
    /// The send buffer is full.
    Full,
    /// The destination is congested.
    Congested,
}

fn sent(result: io::Result<usize>, refused: &mut Refused, to: SocketAddr) -> Result<Outcome> {
    match result {
        Ok(_) => Ok(Outcome::Sent),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            refused.full += 1;
            Ok(Outcome::Full)
        }
        Err(e) if is_congested(&e) => {
            refused.congested += 1;
            Ok(Outcome::Congested)
        }
        Err(e) => Err(e).with_context(|| format!("cannot send to {to}")),
    }
}

/// Returns `true` if two addresses are the same, with an IPv4 address in either form.
fn same(a: SocketAddr, b: SocketAddr) -> bool {
    (a.ip().to_canonical(), a.port()) == (b.ip().to_canonical(), b.port())
}
