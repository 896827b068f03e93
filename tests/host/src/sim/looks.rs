// SPDX-License-Identifier: GPL-2.0

//! Periodic checks of a node: it checks whether its connection is idle, and whether a peer that it
//! waits for is silent. So both nodes finally notice a broken link.

use super::tests::SECOND;
use super::{Cm, Happening, Time, World, MS};
use crate::proto::connect::{Event, State, Timing};
use crate::proto::idle::{IdleDecision as OfIdle, IdleTimeouts};
use crate::proto::keepalive::{KeepaliveDecision as OfSilence, KeepaliveLimit};

/// Default keepalive limit of the module.
const KEEPALIVE_SECS: u32 = 30;
const SILENCE: KeepaliveLimit = KeepaliveLimit::new(KEEPALIVE_SECS);

/// Default idle timeout of the module.
const IDLE_SECS: u32 = 600;
const PATIENCE: IdleTimeouts = IdleTimeouts::new(IDLE_SECS);

/// Maximum time of a message when both nodes agree and the network is calm.
pub(super) const DELIVERY: Time = 500 * MS;

impl World {
    /// Checks whether the connection of a node is idle, and carries out the decision.
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
                // Before the worker handles the peer's request.
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

    /// Checks whether the peer of a node is silent, and carries out the decision.
    pub(super) fn listen(&mut self, node: usize) {
        let decision = self.nodes[node].listen(self.now, SILENCE);
        if self.trace {
            eprintln!("{:>10}   node {node} listens: {decision:?}", "");
        }
        match decision {
            OfSilence::Keep => {}
            OfSilence::Send => {
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

    /// Returns `true` if a node is up on a link that no longer exists.
    pub(super) fn is_unaware(&self, node: usize) -> bool {
        let (this, other) = (&self.nodes[node], &self.nodes[1 - node]);
        let broken = this
            .endpoint
            .is_some_and(|id| self.links.get(&id).is_some_and(|link| link.1));
        this.state() == State::Up && (broken || this.peer_endpoint != other.endpoint)
    }

    /// Returns `true` if neither node has anything to do until a message or a periodic check.
    pub(super) fn is_idle(&self) -> bool {
        let [a, b] = &self.nodes;
        match self.states() {
            [State::Up, State::Up] => {
                let linked = a.peer_endpoint == b.endpoint && b.peer_endpoint == a.endpoint;
                linked && a.drained() && b.drained()
            }
            [State::Down, State::Down] => !a.pending() && !b.pending(),
            // The other node has sent its disconnect, but that was lost.
            [State::Up, State::Down] => a.drained() && !b.pending(),
            [State::Down, State::Up] => b.drained() && !a.pending(),
            _ => false,
        }
    }

    /// Returns `true` if both are up and can send, or both are down with nothing to send. C RDS
    /// never checks: it may stay up on a lost link as long as neither node sends anything.
    pub(super) fn settled(&self) -> bool {
        let unaware = |node: usize| self.nodes[node].is_ours() && self.is_unaware(node);
        self.is_idle() && !(0..2).any(unaware)
    }

    /// Returns `true` if a message waits for the peer of a node that is up on a lost link and
    /// checks.
    pub(super) fn waits(&self) -> bool {
        (0..2).any(|node| {
            let this = &self.nodes[node];
            this.is_ours() && self.is_unaware(node) && this.pending()
        })
    }

    /// Lets the periodic checks find lost links while no messages are queued. If a message waits
    /// for the peer, both nodes must be up finally. Otherwise both must be down, or up.
    ///
    /// Returns the time that took, or `None` if it took longer than allowed. `looked`: checks for
    /// idle connections began long ago, and what they have sent has arrived.
    pub(super) fn find_out(mut self, looked: bool) -> Option<Time> {
        self.idle_timeouts = PATIENCE;
        let idle_period = u64::from(PATIENCE.period_ms()) * MS;
        let silence_period = u64::from(SILENCE.period_ms()) * MS;
        let waits = self.waits();
        let limit = match (waits, looked) {
            (true, _) => u64::from(KEEPALIVE_SECS) * SECOND / 2 + silence_period,
            // Found idle, and acknowledged.
            (false, false) => 2 * idle_period,
            // Closed.
            (false, true) => u64::from(IDLE_SECS) * SECOND + idle_period,
        } + self.allowance();
        self.looks_until = self.now + limit;
        for node in 0..2 {
            if !self.nodes[node].is_ours() {
                continue;
            }
            if looked {
                // Checked for the first time, acknowledged, and still up.
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

    /// Returns the maximum time of a message from here on. A connection that breaks before it was
    /// proven makes its node back off on noticing.
    pub(super) fn allowance(&self) -> Time {
        let backs_off =
            |node| self.is_unaware(node) && self.now < self.nodes[node].up_since + SECOND;
        if (0..2).any(backs_off) {
            DELIVERY + u64::from(Timing::default().backoff_max_ms) * MS
        } else {
            DELIVERY
        }
    }

    /// Runs until `is_so` holds, at most for `limit`. Returns the time that took.
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

    /// Runs one event, or advances to `end` if none is due before.
    pub(super) fn step(&mut self, end: Time) {
        match self.agenda.peek() {
            Some(std::cmp::Reverse((time, _, _))) if *time <= end => {
                self.run_one();
            }
            _ => self.now = end,
        }
    }
}
