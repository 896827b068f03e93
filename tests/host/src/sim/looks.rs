// SPDX-License-Identifier: GPL-2.0

//! What a node does without being told: every now and then it looks whether its connection is idle, and listens for a
//! peer that it waits for. So both know in the end what there is.

use super::tests::SECOND;
use super::{Cm, Happening, Time, World, MS};
use crate::proto::connect::{Event, State, Timing};
use crate::proto::idle::{IdleDecision as OfIdle, IdleTimeouts};
use crate::proto::keepalive::{KeepaliveDecision as OfSilence, KeepaliveLimit};

/// How long a peer may be silent: what the module begins with.
const KEEPALIVE_SECS: u32 = 30;
const SILENCE: KeepaliveLimit = KeepaliveLimit::new(KEEPALIVE_SECS);

/// How long idle connections stay: what the module begins with.
const IDLE_SECS: u32 = 600;
const PATIENCE: IdleTimeouts = IdleTimeouts::new(IDLE_SECS);

/// How long a message takes at the most when the two agree and the network is calm.
pub(super) const DELIVERY: Time = 500 * MS;

impl World {
    /// Looks whether the connection of a node is idle, and does what is to be done.
    pub(super) fn check(&mut self, node: usize) {
        let decision = self.nodes[node].check(self.now, self.idle_timeouts);
        if self.trace {
            eprintln!("{:>10}   node {node} {decision:?}", "");
        }
        match decision {
            OfIdle::Keep => {}
            OfIdle::Acknowledge => self.acknowledge(node),
            OfIdle::Close => self.feed(node, Event::Idle),
            OfIdle::Forget => {}
            OfIdle::EndForRoom | OfIdle::ForgetForRoom if !self.nodes[node].has_room => {
                if decision == OfIdle::EndForRoom {
                    self.feed(node, Event::Idle);
                }
                // Before the worker comes to what the peer wants.
                if let Some(to) = self.nodes[node].request.take() {
                    self.send_cm(node, Cm::Reject { to });
                }
                let generation = self.rng.next() as u32;
                self.nodes[node].forget(generation);
            }
            OfIdle::EndForRoom | OfIdle::ForgetForRoom => {}
        }
        if self.now < self.looks_until {
            let period = u64::from(self.idle_timeouts.period_ms()) * MS;
            self.after(period, Happening::Look { node });
        }
    }

    /// Listens for the peer of a node, and does what is to be done.
    pub(super) fn listen(&mut self, node: usize) {
        let decision = self.nodes[node].listen(self.now, SILENCE);
        if self.trace {
            eprintln!("{:>10}   node {node} listens: {decision:?}", "");
        }
        match decision {
            OfSilence::Keep => {}
            OfSilence::Ask => {
                self.nodes[node].ask();
                self.pump(node);
            }
            OfSilence::GiveUp => self.feed(node, Event::Lost),
        }
        if self.now < self.looks_until {
            let period = u64::from(SILENCE.period_ms()) * MS;
            self.after(period, Happening::Listen { node });
        }
    }

    /// Whether a node is up, and what it is up on is not there any more.
    pub(super) fn is_unaware(&self, node: usize) -> bool {
        let (this, other) = (&self.nodes[node], &self.nodes[1 - node]);
        let broken = this
            .endpoint
            .is_some_and(|id| self.links.get(&id).is_some_and(|link| link.1));
        this.state() == State::Up && (broken || this.peer_endpoint != other.endpoint)
    }

    /// Whether neither has anything to do until a message comes, or somebody looks.
    pub(super) fn rests(&self) -> bool {
        let [a, b] = &self.nodes;
        match self.states() {
            [State::Up, State::Up] => {
                let linked = a.peer_endpoint == b.endpoint && b.peer_endpoint == a.endpoint;
                linked && a.drained() && b.drained()
            }
            [State::Down, State::Down] => !a.pending() && !b.pending(),
            // The other one has told, but that was lost.
            [State::Up, State::Down] => a.drained() && !b.pending(),
            [State::Down, State::Up] => b.drained() && !a.pending(),
            _ => false,
        }
    }

    /// Whether both are up, and what each has to say gets through; or both are down, and have nothing to say. C RDS
    /// never looks: what it is up on may be gone for as long as nobody says anything.
    pub(super) fn settled(&self) -> bool {
        let unaware = |node: usize| self.nodes[node].is_ours() && self.is_unaware(node);
        self.rests() && !(0..2).any(unaware)
    }

    /// Whether something waits for the peer of a node that is up on nothing, and looks.
    pub(super) fn waits(&self) -> bool {
        (0..2).any(|node| {
            let this = &self.nodes[node];
            this.is_ours() && self.is_unaware(node) && this.pending()
        })
    }

    /// Nobody sends anything from here on, and who is up on nothing finds that out by looking. Where something waits
    /// for the peer both are up in the end, and otherwise both are down, or up. Returns how long that took; `None` if
    /// it is not so after the time that it may take. `looked`: the looks at idle connections have begun long ago, and
    /// what they have sent has arrived.
    pub(super) fn find_out(mut self, looked: bool) -> Option<Time> {
        self.idle_timeouts = PATIENCE;
        let idle_period = u64::from(PATIENCE.period_ms()) * MS;
        let silence_period = u64::from(SILENCE.period_ms()) * MS;
        let waits = self.waits();
        let limit = match (waits, looked) {
            (true, _) => u64::from(KEEPALIVE_SECS) * SECOND / 2 + silence_period,
            // It is seen to be idle, and acknowledges.
            (false, false) => 2 * idle_period,
            // It is closed.
            (false, true) => u64::from(IDLE_SECS) * SECOND + idle_period,
        } + self.allowance();
        self.looks_until = self.now + limit;
        for node in 0..2 {
            if !self.nodes[node].is_ours() {
                continue;
            }
            if looked {
                // Seen for the first time, acknowledged, and still up.
                for _ in 0..3 {
                    self.nodes[node].check(self.now, PATIENCE);
                }
            }
            let first = self.rng.below(idle_period);
            self.after(first, Happening::Look { node });
            let first = self.rng.below(silence_period);
            self.after(first, Happening::Listen { node });
        }
        let time = self.settle(limit, Self::settled)?;
        let up = self.states() == [State::Up; 2];
        (up || !waits).then_some(time)
    }

    /// How long a message may take from here on. A node that does not know that its connection broke before
    /// it was proven backs off when it notices.
    pub(super) fn allowance(&self) -> Time {
        let backs_off =
            |node| self.is_unaware(node) && self.now < self.nodes[node].up_since + SECOND;
        if (0..2).any(backs_off) {
            DELIVERY + u64::from(Timing::default().backoff_max_ms) * MS
        } else {
            DELIVERY
        }
    }

    /// Runs until it is so, at the most for a while; returns how long that took.
    pub(super) fn settle(&mut self, limit: Time, is_so: fn(&Self) -> bool) -> Option<Time> {
        let start = self.now;
        while !is_so(self) {
            if self.now >= start + limit {
                return None;
            }
            self.step(start + limit);
        }
        Some(self.now - start)
    }

    /// One happening, or none until `end`.
    pub(super) fn step(&mut self, end: Time) {
        match self.agenda.peek() {
            Some(std::cmp::Reverse((time, _, _))) if *time <= end => {
                self.run_one();
            }
            _ => self.now = end,
        }
    }
}
