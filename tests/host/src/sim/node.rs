// SPDX-License-Identifier: GPL-2.0

//! One node of the simulation: its queues, and the driver that carries out the actions.

use super::{handshakes::Negotiation, Brain, Cm, EndpointId, Happening, Time, World, MS};
use crate::proto::connect::{Action, Event, Inputs, State, Timing};
use crate::proto::idle::{IdleDecision, IdleProgress, IdleSnapshot, IdleTimeouts, IdleTracker};
use crate::proto::keepalive::{self, Keepalive, KeepaliveLimit, LinkActivity, Through};
use crate::proto::mprds::{Handshake, HandshakeKind};
use crate::proto::rx::{RecvState, Step};
use crate::proto::tx::{AckPolicy, Pressure, SendState};
use crate::proto::wire::{fragment, fragments, Flags, FragmentSize, Header};
use std::collections::VecDeque;

/// A message that was queued.
#[derive(Clone, Copy, Debug)]
struct Message {
    sequence: u64,
    /// C RDS puts the sequence number less this one into the header.
    behind: u64,
    id: u32,
    len: u32,
    sent_before: bool,
    /// C RDS drops the message instead of sending it again.
    dropped: bool,
    /// A probe, which only makes the peer answer.
    asks: bool,
    /// A handshake about paths.
    handshake: Option<HandshakeKind>,
}

#[derive(Clone)]
pub(super) struct Node {
    brain: Brain,
    pub(super) endpoint: Option<EndpointId>,
    pub(super) peer_endpoint: Option<EndpointId>,
    /// The peer's endpoint in the request that waits for a decision.
    pub(super) request: Option<EndpointId>,
    next_queue_pair: u32,
    /// Generation of the timer.
    pub(super) timer: u64,
    tx: SendState,
    rx: RecvState,
    unsent: VecDeque<Message>,
    unacked: VecDeque<Message>,
    assembled: u32,
    /// Part of a message has arrived.
    partial: bool,
    ack_due: bool,
    /// Messages that the peer must receive: number and length of every message not cancelled.
    pub(super) sent: Vec<(u32, u32)>,
    /// Messages that have arrived from the peer.
    pub(super) delivered: Vec<(u32, u32)>,
    pub(super) duplicates: u32,
    pub(super) generation: u32,
    pub(super) life: u32,
    /// Messages that the node had queued in its last life.
    pub(super) sent_before_restart: Vec<(u32, u32)>,
    /// Number of messages queued since the peer restarted.
    pub(super) due_since_restart: usize,
    /// The sequence number that C RDS expects next.
    expected_by_c: u64,
    /// The numbers of C RDS begin again behind this one.
    behind: u64,
    pub(super) times_up: u32,
    /// Number of requests that the node has sent.
    pub(super) times_asked: u32,
    pub(super) up_since: Time,
    idle_tracker: IdleTracker,
    keepalive: Keepalive,
    /// Activity since the endpoint was created.
    pub(super) activity: LinkActivity,
    /// The last message that the peer has acknowledged.
    acked: u64,
    /// Idle connections need not be forgotten.
    pub(super) has_room: bool,
    pub(super) times_forgotten: u32,
    /// Number of times that a connection was forgotten, but the position of its peer was kept.
    pub(super) positions_kept: u32,
    /// `None` if the nodes have no handshakes.
    pub(super) negotiation: Option<Negotiation>,
}

impl Node {
    pub(super) fn new(brain: Brain, generation: u32, life: u32) -> Self {
        Node {
            brain,
            endpoint: None,
            peer_endpoint: None,
            request: None,
            next_queue_pair: 0,
            timer: 0,
            tx: SendState::new(AckPolicy::default()),
            rx: RecvState::new(),
            unsent: VecDeque::new(),
            unacked: VecDeque::new(),
            assembled: 0,
            partial: false,
            ack_due: false,
            sent: Vec::new(),
            delivered: Vec::new(),
            duplicates: 0,
            generation,
            life,
            sent_before_restart: Vec::new(),
            due_since_restart: 0,
            expected_by_c: 1,
            behind: 0,
            times_up: 0,
            times_asked: 0,
            up_since: 0,
            idle_tracker: IdleTracker::new(),
            keepalive: Keepalive::new(),
            activity: LinkActivity::default(),
            acked: 0,
            has_room: true,
            times_forgotten: 0,
            positions_kept: 0,
            negotiation: None,
        }
    }

    pub(super) fn is_ours(&self) -> bool {
        matches!(self.brain, Brain::Rust(_))
    }

    pub(super) fn state(&self) -> State {
        self.brain.state()
    }

    /// Returns an empty message with the next number.
    fn message(&mut self) -> Message {
        Message {
            sequence: self.tx.assign(0),
            behind: self.behind,
            id: 0,
            len: 0,
            sent_before: false,
            dropped: false,
            asks: false,
            handshake: None,
        }
    }

    pub(super) fn queue(&mut self, len: u32) {
        if self.state() != State::Up {
            self.probe();
        }
        let id = (self.life << 24) | self.tx.next_sequence() as u32;
        let message = self.message();
        self.unsent.push_back(Message { id, len, ..message });
        self.sent.push((id, len));
        self.due_since_restart += 1;
    }

    pub(super) fn cancel_newest(&mut self) {
        if self
            .unsent
            .back()
            .is_some_and(|message| !message.sent_before)
        {
            self.unsent.pop_back();
            self.sent.pop();
            self.due_since_restart = self.due_since_restart.saturating_sub(1);
        }
    }

    pub(super) fn pending(&self) -> bool {
        !self.unsent.is_empty() || !self.unacked.is_empty()
    }

    fn marks(&self) -> IdleProgress {
        let times_up = self.times_up.into();
        IdleProgress::new(
            self.tx.next_sequence(),
            self.rx.next_sequence(),
            times_up,
            true,
        )
    }

    pub(super) fn check(&mut self, now: Time, idle_timeouts: IdleTimeouts) -> IdleDecision {
        let state = self.state();
        let snapshot = IdleSnapshot {
            marks: self.marks(),
            up: state == State::Up,
            down: state == State::Down,
            pending: self.pending() || self.partial,
            for_peer: false,
            ack_due: self.ack_due,
            offers: false,
            unused: self.tx.is_unused() && self.rx.is_unused(),
            is_rds_rust: self.rx.peer_sent_generation(),
        };
        // The clock here counts microseconds.
        self.idle_tracker
            .check(&snapshot, now * 1000, idle_timeouts)
    }

    pub(super) fn listen(
        &mut self,
        now: Time,
        limit: KeepaliveLimit,
    ) -> keepalive::KeepaliveDecision {
        let waits = self.pending() || self.partial;
        if self.state() != State::Up || !waits {
            self.keepalive.pause();
            return keepalive::KeepaliveDecision::Keep;
        }
        let snapshot = keepalive::LinkSnapshot {
            times_up: self.times_up.into(),
            through: Through {
                acked: self.acked,
                next_rx: self.rx.next_sequence(),
            },
            waits,
            unsent: self.unsent.front().map(|first| first.sequence),
            activity: self.activity,
        };
        self.keepalive.check(&snapshot, now * 1000, limit)
    }

    /// Queues a probe behind all messages.
    pub(super) fn ask(&mut self) {
        let message = self.message();
        self.keepalive.note_queued(message.sequence);
        self.unsent.push_back(Message {
            len: 1,
            asks: true,
            ..message
        });
    }

    /// Queues a handshake behind all messages.
    pub(super) fn queue_handshake(&mut self, kind: HandshakeKind) {
        let message = self.message();
        self.unsent.push_back(Message {
            handshake: Some(kind),
            ..message
        });
    }

    /// Returns `true` if the peer has revealed that it runs this module.
    pub(super) fn knows_its_peer(&self) -> bool {
        self.rx.peer_sent_generation()
    }

    /// Forgets the connection to make room. The node will not recognise its peer afterwards.
    pub(super) fn forget(&mut self, generation: u32) {
        assert!(!self.pending() && self.endpoint.is_none());
        assert!(self.idle_tracker.is_about(&self.marks()));
        let begin_at = self.tx.next_sequence();
        self.tx = SendState::new(AckPolicy::default());
        self.tx.begin_at(begin_at);
        let position = self.rx.position();
        let position = position.with_probe_generation(self.peer_generation());
        let position = Some(position).filter(|_| !self.idle_tracker.is_settled());
        self.positions_kept += u32::from(position.is_some());
        self.rx = position.map_or_else(RecvState::new, RecvState::at);
        self.negotiate_for_same(position);
        self.brain = Brain::rust();
        self.generation = generation;
        self.idle_tracker = IdleTracker::new();
        self.keepalive = Keepalive::new();
        self.acked = begin_at - 1;
        self.times_forgotten += 1;
        self.life += 1;
    }

    /// Returns `true` if all queued messages have been sent at least once.
    pub(super) fn drained(&self) -> bool {
        self.unsent.is_empty()
    }

    pub(super) fn receive(&mut self, bytes: &[u8; 48], payload: usize) -> Result<(), String> {
        let mut header = Header::parse(bytes).map_err(|error| format!("{error:?}"))?;
        let handshake = Handshake::of(&header).filter(|_| self.negotiation.is_some());
        if !self.is_ours() {
            // C RDS ignores generations.
            header.exthdr = Default::default();
        }
        if handshake.is_some_and(|(_, it)| self.shows_restart(&it)) {
            self.rx.note_restart();
        }
        let acked = self.tx.handle_ack(self.sequence_of(header.ack));
        if let Some(acked) = acked.map_err(|error| format!("{error:?}"))? {
            self.acked = acked;
            while self.unacked.front().is_some_and(|m| m.sequence <= acked) {
                self.unacked.pop_front();
            }
        }
        let step = self.rx.handle(&header, payload);
        match step.map_err(|error| format!("{error:?}"))? {
            Step::PureAck | Step::Congestion { .. } => (),
            Step::Data {
                offset,
                len,
                last,
                duplicate,
                ..
            } => {
                if offset == 0 {
                    self.assembled = 0;
                }
                assert_eq!(self.assembled, offset);
                self.assembled += len;
                self.partial = !last;
                let duplicate = match self.is_ours() {
                    true => duplicate,
                    false => last && self.is_old_to_c(&header),
                };
                self.duplicates += u32::from(last && duplicate);
                let id = (u32::from(header.sport) << 16) | u32::from(header.dport);
                // A probe is not delivered.
                match handshake {
                    Some(handshake) if !duplicate => self.receive_handshake(handshake),
                    None if last && !duplicate && id != 0 => {
                        self.delivered.push((id, self.assembled));
                    }
                    _ => {}
                }
            }
        }
        self.ack_due |= self.rx.take_ack_required();
        Ok(())
    }

    /// Returns `true` if C RDS drops the message. C RDS knows neither restarts nor wrapping
    /// numbers.
    fn is_old_to_c(&mut self, header: &Header) -> bool {
        let old =
            header.sequence < self.expected_by_c && header.flags.contains(Flags::RETRANSMITTED);
        if !old {
            self.expected_by_c = header.sequence + 1;
        }
        old
    }

    /// Does what C RDS does when the generation of its peer is another one. Messages that it has
    /// not sent keep their old numbers.
    pub(super) fn begin_again_as_c(&mut self) {
        self.behind = self.tx.next_sequence() - 1;
        self.expected_by_c = 0;
        for message in &mut self.unacked {
            message.dropped = true;
        }
    }

    /// Returns the sequence number of an acknowledged message. C RDS over TCP does not look at
    /// `ack`, but that of this module is what TCP tells it.
    fn sequence_of(&self, ack: u64) -> u64 {
        if self.behind == 0 {
            return ack;
        }
        let acked = |message: &&Message| message.sequence - message.behind == ack;
        self.unacked.iter().find(acked).map_or(0, |it| it.sequence)
    }

    /// Numbers the messages of a new life after those of the former one, as the clock does.
    pub(super) fn begin_behind(&mut self, former: &Self) {
        self.tx.begin_at(former.tx.next_sequence() + 1000);
        self.acked = self.tx.next_sequence() - 1;
    }

    /// Moves unacknowledged messages back to the front of the queue, except a probe, which was for
    /// this link, and those that C RDS drops.
    fn requeue(&mut self) {
        self.unacked
            .retain(|message| !message.asks && !message.dropped);
        while let Some(message) = self.unacked.pop_back() {
            self.unsent.push_front(Message {
                sent_before: true,
                ..message
            });
        }
    }

    fn ack(&mut self) -> Header {
        self.ack_due = false;
        Header {
            ack: self.rx.ack(),
            ..Header::default()
        }
    }
}

impl World {
    /// Feeds the machine of a node and carries out its actions.
    pub(super) fn feed(&mut self, node: usize, event: Event) {
        let inputs = Inputs {
            lower: node == 0,
            pending: self.nodes[node].pending(),
            for_peer: false,
            wait_ms: 0,
            random: self.rng.next() as u32,
            timing: Timing::default(),
        };
        let actions = self.nodes[node].brain.handle(event, &inputs);
        if self.trace {
            let state = self.nodes[node].state();
            eprintln!(
                "{:>10}   node {node} {event:?} -> {state:?} {actions:?}",
                ""
            );
        }
        for action in actions {
            self.act(node, action);
        }
    }

    fn act(&mut self, node: usize, action: Action) {
        match action {
            Action::Prepare => {
                self.new_endpoint(node);
                self.local_step(node, Event::Step);
            }
            Action::Connect => {
                self.nodes[node].times_asked += 1;
                let from = self.nodes[node].endpoint.unwrap();
                self.send_cm(node, Cm::Request { from });
            }
            Action::Accept => {
                let to = self.nodes[node].request.take().unwrap();
                let from = self.new_endpoint(node);
                self.nodes[node].peer_endpoint = Some(to);
                self.send_cm(node, Cm::Reply { from, to });
            }
            Action::Reject => {
                let to = self.nodes[node].request.take().unwrap();
                self.send_cm(node, Cm::Reject { to });
            }
            Action::Teardown => {
                let from = self.nodes[node].endpoint.take().unwrap();
                match self.nodes[node].peer_endpoint.take() {
                    Some(to) => self.send_cm(node, Cm::Disconnect { to }),
                    None => self.send_cm(node, Cm::Withdraw { from }),
                }
                let this = &mut self.nodes[node];
                let ack_known_to_peer = this.tx.take_ack_known_to_peer();
                // C RDS over TCP reads no acknowledgements.
                if this.negotiation.is_none() {
                    this.rx.note_ack_known_to_peer(ack_known_to_peer);
                }
                this.rx.link_lost();
                self.nodes[node].end_handshakes();
                self.nodes[node].ack_due = false;
                self.nodes[node].partial = false;
                self.nodes[node].activity = LinkActivity::default();
            }
            Action::Arm(delay) => {
                self.nodes[node].timer += 1;
                let generation = self.nodes[node].timer;
                let expiry = Happening::Timer { node, generation };
                self.after(u64::from(delay) * MS, expiry);
            }
            Action::Disarm => self.nodes[node].timer += 1,
            Action::GoneUp => {
                self.nodes[node].times_up += 1;
                self.nodes[node].up_since = self.now;
                self.nodes[node].tx.reconnected();
                self.nodes[node].probe_unknown();
                self.send_map(node);
                self.pump(node);
            }
            Action::GoneDown => {
                self.nodes[node].requeue();
                self.nodes[node].probe();
            }
        }
    }

    fn new_endpoint(&mut self, node: usize) -> EndpointId {
        assert_eq!(self.nodes[node].endpoint, None);
        let number = self.nodes[node].next_queue_pair;
        self.nodes[node].next_queue_pair = (number + 1) % self.numbers;
        let id = self.name_endpoint(node, number);
        self.nodes[node].endpoint = Some(id);
        id
    }

    pub(super) fn name_endpoint(&mut self, node: usize, queue_pair: u32) -> EndpointId {
        self.owners.push(node);
        self.queue_pairs.push(queue_pair);
        self.owners.len() as EndpointId - 1
    }

    /// Begins a step of the endpoint, which ends in this event or fails.
    pub(super) fn local_step(&mut self, node: usize, event: Event) {
        let id = self.nodes[node].endpoint.unwrap();
        let event = if self.bad_luck() { Event::Lost } else { event };
        let delay = 10 + self.rng.below(2 * MS);
        self.after(delay, Happening::Endpoint { id, event });
    }

    /// Sends a header that acknowledges, if the node is up.
    pub(super) fn acknowledge(&mut self, node: usize) {
        if self.nodes[node].state() == State::Up {
            let ack = self.nodes[node].ack();
            self.send_frame(node, &ack, 0);
        }
    }

    fn send_map(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        let mut header = Header::congestion_update(this.ack().ack, this.generation, 0);
        if !this.is_ours() {
            header.exthdr = Default::default();
        }
        self.send_frame(node, &header, 4096);
        self.send_frame(node, &header, 4096);
    }

    /// Sends all queued messages.
    pub(super) fn pump(&mut self, node: usize) {
        if self.nodes[node].state() != State::Up {
            return;
        }
        while let Some(message) = self.nodes[node].unsent.pop_front() {
            let this = &mut self.nodes[node];
            this.unacked.push_back(message);
            this.tx.note_piggyback(message.sequence, this.rx.ack());
            let again = this.tx.was_sent(message.sequence);
            assert_eq!(again, message.sent_before);
            let mut flags = if again {
                this.tx.retransmit()
            } else {
                this.tx
                    .transmit(message.sequence, message.len, Pressure::Low)
            };
            if message.asks {
                flags = flags.with(Flags::ACK_REQUIRED);
            }
            for index in 0..fragments(message.len, FragmentSize::K4) {
                let mut header = Header {
                    sequence: message.sequence - message.behind,
                    len: message.len,
                    sport: (message.id >> 16) as u16,
                    dport: message.id as u16,
                    flags,
                    ..self.nodes[node].ack()
                };
                if let Some(kind) = message.handshake {
                    self.nodes[node].fill_handshake(&mut header, kind);
                }
                let piece = fragment(message.len, index, FragmentSize::K4).unwrap();
                self.send_frame(node, &header, piece.len as usize);
                if self.rng.percent(5) {
                    let ack = self.nodes[node].ack();
                    self.send_frame(node, &ack, 0);
                }
            }
        }
        if self.nodes[node].ack_due {
            self.acknowledge(node);
        }
    }
}
