// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/attempts.rs`, also together with the connection machine.

use crate::proto::attempts::*;
use crate::proto::connect::*;
use std::collections::BTreeSet;

/// Milliseconds that an attempt to reach a dead peer takes, and one that is answered.
const DEAD_MS: u32 = 2000;
const LIVE_MS: u32 = 10;

/// A connection of the user: its machine, and its next event.
struct Conn {
    machine: Machine,
    next: Event,
    lives: bool,
    /// Place of the attempt that is in progress.
    place: Option<AttemptPlace>,
}

/// Connections of one user that have never been up.
struct User {
    conns: Vec<Conn>,
    /// Times of the next events, and the indices of their connections.
    due: BTreeSet<(u32, usize)>,
    now: u32,
    random: u32,
    /// Connections that have never been up.
    never_up: usize,
    attempts: Attempts,
    running: usize,
    most_running: usize,
    begun: usize,
    /// Times that a connection had to look again.
    looks: usize,
    /// The attempts are only for the peers.
    for_peers: bool,
    /// Connections that wait for such an attempt.
    waiting: usize,
}

impl User {
    fn new(dead: usize, live: usize) -> Self {
        let mut this = Self {
            conns: Vec::new(),
            due: BTreeSet::new(),
            now: 0,
            random: 1,
            never_up: 0,
            attempts: Attempts::default(),
            running: 0,
            most_running: 0,
            begun: 0,
            looks: 0,
            for_peers: false,
            waiting: 0,
        };
        this.want(dead, false);
        this.want(live, true);
        this
    }

    /// Returns connections whose dead peers may have something to send.
    fn for_peers(dead: usize) -> Self {
        Self {
            for_peers: true,
            ..Self::new(dead, 0)
        }
    }

    /// Adds connections that are wanted now.
    fn want(&mut self, count: usize, lives: bool) {
        for _ in 0..count {
            self.due.insert((self.now, self.conns.len()));
            self.conns.push(Conn {
                machine: Machine::new(),
                next: Event::Wanted,
                lives,
                place: None,
            });
        }
        self.never_up += count;
    }

    /// Feeds all events up to this time.
    fn run_until(&mut self, until: u32) {
        while let Some((now, at)) = self.due.pop_first() {
            if now > until {
                self.due.insert((now, at));
                break;
            }
            self.now = now;
            self.feed(at, now);
        }
        self.now = until;
    }

    /// Lets all peers that wait for a place ask for a connection, except the one of `silent`.
    fn ask(&mut self, silent: usize) {
        for (timer, at) in self.due.clone() {
            if at != silent && self.conns[at].machine.waits_for_place() {
                self.due.remove(&(timer, at));
                self.conns[at].next = Event::Wanted;
                self.feed(at, timer);
            }
        }
    }

    /// Feeds the next event of a connection, whose timer runs until `timer`.
    fn feed(&mut self, at: usize, timer: u32) {
        // Any generator that differs from call to call.
        self.random = self
            .random
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        let conn = &mut self.conns[at];
        let event = conn.next;
        let before = conn.machine.state();
        let mut wait_ms = 0;
        if conn.machine.begins_attempt(event) {
            let kind = AttemptKind::of(&conn.machine, event, self.for_peers);
            let most_first = if self.for_peers { MOST_ASKED } else { MOST };
            conn.place = self.attempts.begin(kind, most_first);
            if conn.place.is_some() {
                self.running += 1;
                self.begun += 1;
            } else {
                let others = if self.for_peers {
                    self.waiting
                } else {
                    self.never_up
                };
                wait_ms = delay_ms(others, kind);
                self.looks += 1;
            }
        }
        let inputs = Inputs {
            lower: true,
            pending: true,
            for_peer: self.for_peers,
            wait_ms,
            random: self.random,
            timing: Timing::default(),
        };
        let waited = conn.machine.waits_for_place();
        let outcome = conn.machine.handle(event, &inputs);
        self.waiting += usize::from(conn.machine.waits_for_place());
        self.waiting -= usize::from(waited);
        self.most_running = self.most_running.max(self.running);
        let delay = outcome.actions.clone().find_map(|action| match action {
            Action::Arm(delay) => Some(delay),
            _ => None,
        });
        let (delay, next) = match outcome.state {
            State::Preparing if conn.lives => (0, Event::Prepared),
            State::Preparing => (DEAD_MS, Event::Lost),
            State::Connecting => (LIVE_MS, Event::Established),
            // Without a new one the timer goes on.
            State::Waiting => (delay.unwrap_or(timer - self.now), Event::Timer),
            State::Up => (u32::MAX - self.now, Event::Idle),
            unexpected => panic!("{unexpected:?}"),
        };
        conn.next = next;
        self.due.insert((self.now + delay, at));
        self.never_up -= usize::from(outcome.state == State::Up);
        let attempts = |state| !matches!(state, State::Down | State::Waiting | State::Up);
        if attempts(before) && !attempts(outcome.state) {
            self.running -= 1;
            self.attempts.end(conn.place.take().unwrap());
        }
    }
}

/// Returns a machine without a connection, after one event. `waits`: no attempt may begin.
fn after(mut machine: Machine, event: Event, waits: bool) -> Machine {
    let inputs = Inputs {
        lower: true,
        pending: true,
        for_peer: true,
        wait_ms: waits.into(),
        random: 0,
        timing: Timing::default(),
    };
    let _ = machine.handle(event, &inputs);
    machine
}

#[test]
fn a_peer_that_asks_is_tried_as_if_none_had_failed() {
    use AttemptKind::*;
    use Event::*;
    let new = Machine::new;
    let waits = || after(new(), Wanted, true);
    let failed = || after(after(new(), Wanted, false), Lost, false);
    let failed_waits = || after(failed(), Timer, true);
    let kinds = |event, for_peer| {
        [new(), waits(), failed(), failed_waits()]
            .map(|machine| AttemptKind::of(&machine, event, for_peer))
    };
    assert!(failed().has_failed() && !failed().waits_for_place());
    assert!(failed_waits().has_failed() && failed_waits().waits_for_place());
    // The peer asks. Later the connection looks again by itself.
    assert_eq!(kinds(Wanted, true), [First; 4]);
    assert_eq!(kinds(Timer, true), [First, Waited, Repeated, Repeated]);
    // A program needs the connection. The event is no sign of the peer.
    for event in [Wanted, Timer] {
        assert_eq!(kinds(event, false), [First, First, Repeated, Repeated]);
    }
}

/// `Documentation/connections.md` has these numbers.
#[test]
fn first_and_repeated_attempts_have_places_of_their_own() {
    use AttemptKind::*;
    // Returns how many of each kind begin, one after the other.
    let begin = |kinds: &[AttemptKind], most_first| {
        let mut attempts = Attempts::default();
        let mut count = |kind| {
            let places = std::iter::from_fn(|| attempts.begin(kind, most_first));
            places.count()
        };
        kinds.iter().map(|kind| count(*kind)).collect::<Vec<_>>()
    };
    // Those of a user.
    assert_eq!(begin(&[First, Repeated], MOST), [128, 0]);
    assert_eq!(begin(&[Repeated, First], MOST), [64, 64]);
    // Those that only peers may need.
    for kinds in [[First, Repeated], [Repeated, First]] {
        assert_eq!(begin(&kinds, MOST_ASKED), [64, 64]);
    }
    assert_eq!(begin(&[First, Waited, Repeated], MOST_ASKED), [64, 64, 0]);
    assert_eq!(begin(&[Repeated, Waited, First], MOST_ASKED), [64, 64, 0]);
}

#[test]
fn the_place_of_an_attempt_that_has_ended_is_free() {
    for kind in [AttemptKind::First, AttemptKind::Repeated] {
        let mut attempts = Attempts::default();
        let places: Vec<_> = std::iter::from_fn(|| attempts.begin(kind, MOST_ASKED)).collect();
        assert!(!attempts.is_empty());
        attempts.end(places[0]);
        assert!(attempts.begin(kind, MOST_ASKED).is_some());
        assert!(attempts.begin(kind, MOST_ASKED).is_none());
        places.iter().for_each(|place| attempts.end(*place));
        assert!(attempts.is_empty());
    }
}

#[test]
fn a_few_connections_are_not_limited() {
    let mut user = User::new(MOST_REPEATED, 0);
    user.run_until(60_000);
    assert_eq!((user.most_running, user.looks), (MOST_REPEATED, 0));
}

#[test]
fn attempts_of_a_user_are_limited() {
    for dead in [MOST + 1, 1000, 20_000] {
        let mut user = User::new(dead, 0);
        user.run_until(20_000);
        assert_eq!(user.most_running, MOST, "{dead}");
        // Each attempt takes DEAD_MS. In the beginning all are first ones.
        assert!(
            user.begun <= MOST * (20_000 / DEAD_MS as usize + 1),
            "{}",
            user.begun
        );
        // At the beginning all of them look.
        assert!(
            user.looks <= dead + 20 * 5500,
            "{dead}: {} looks",
            user.looks
        );
    }
}

/// A user whose peers are dead reaches a new peer that lives as fast as without them.
#[test]
fn first_attempts_go_before_repeated_ones() {
    let mut user = User::new(MOST + 200, 0);
    user.run_until(60_000);
    assert!(user.conns.iter().all(|conn| conn.machine.has_failed()));
    assert!(user.running <= MOST_REPEATED, "{}", user.running);
    user.want(MOST_REPEATED, true);
    user.run_until(60_000 + LIVE_MS);
    let live = user.conns.iter().filter(|conn| conn.lives);
    assert!(live.clone().all(|conn| conn.machine.state() == State::Up));
}

#[test]
fn peers_that_answer_are_soon_connected() {
    let mut user = User::new(0, 5000);
    user.run_until(2_000);
    assert_eq!(user.never_up, 0);
}

/// Each dead peer gets its attempts, so one that comes back is reached.
#[test]
fn no_connection_starves() {
    let mut user = User::new(1000, 0);
    user.run_until(180_000);
    assert!(user.conns.iter().all(|conn| conn.machine.has_failed()));
    for conn in &mut user.conns {
        conn.lives = true;
    }
    user.run_until(180_000 + 30_000);
    assert_eq!(user.never_up, 0);
}

/// Thousands of dead C peers cost no more than those of a user, and none is forgotten.
#[test]
fn attempts_for_peers_are_limited_and_do_not_end() {
    let mut peers = User::for_peers(2000);
    peers.run_until(100_000);
    assert!(peers.most_running <= MOST);
    let (begun, looks) = (peers.begun, peers.looks);
    peers.run_until(200_000);
    assert!(peers.begun - begun <= MOST_REPEATED * (100_000 / DEAD_MS as usize + 1));
    assert!(peers.looks - looks <= 100 * 1000, "{}", peers.looks - looks);
    let mut states = peers.conns.iter().map(|conn| conn.machine.state());
    assert!(states.all(|state| state != State::Down));
}

/// A peer that asks lives, so it does not wait for thousands of dead ones.
#[test]
fn a_peer_that_asks_is_served_at_once() {
    let mut peers = User::for_peers(2000);
    peers.run_until(100_000);
    let waits = |conn: &Conn| conn.machine.waits_for_place();
    let at = peers.conns.iter().position(waits).unwrap();
    peers.due.retain(|(_, other)| *other != at);
    peers.due.insert((100_000, at));
    (peers.conns[at].next, peers.conns[at].lives) = (Event::Wanted, true);
    peers.run_until(100_000 + LIVE_MS);
    assert_eq!(peers.conns[at].machine.state(), State::Up);
}

/// Peers that ask again and again, and do not answer, delay others for a bounded time. That applies
/// to those that have failed before, and to those that have not.
#[test]
fn a_peer_that_does_not_ask_again_is_served_beside_those_that_do() {
    const ASKING: usize = 300;
    for fails_first in [true, false] {
        let mut peers = User::for_peers(ASKING + usize::from(fails_first));
        let silent = ASKING;
        let until = |peers: &mut User, seconds| {
            for _ in 0..10 * seconds {
                peers.run_until(peers.now + 100);
                peers.ask(silent);
            }
        };
        until(&mut peers, 60);
        if fails_first {
            assert!(peers.conns[silent].machine.has_failed());
            peers.conns[silent].lives = true;
        } else {
            peers.want(1, true);
        }
        // On average each waits until all others have had a place.
        let rounds = ASKING / MOST_REPEATED + 1;
        until(&mut peers, 10 * rounds * DEAD_MS as usize / 1000);
        assert_eq!(
            peers.conns[silent].machine.state(),
            State::Up,
            "{fails_first}"
        );
    }
}

#[test]
fn delays_are_in_range() {
    let delays = |kind| [0, 129, 5000, usize::MAX].map(|count| delay_ms(count, kind));
    assert_eq!(delays(AttemptKind::First), [10, 32, 1250, 60_000]);
    assert_eq!(delays(AttemptKind::Waited), [10, 32, 1250, 60_000]);
    assert_eq!(delays(AttemptKind::Repeated), [10, 258, 10_000, 60_000]);
}
