// SPDX-License-Identifier: GPL-2.0

//! Negotiation of the number of paths to a peer over TCP: multipath RDS, or mprds.
//!
//! A probe is an empty message from port 1 to port 0. Its answer is one from port 0 to port 1. Both
//! are numbered messages of the first path, with the extensions of a [`Handshake`]. Each node uses
//! the smaller one of its own number of paths and the peer's.
//!
//! - *Peers.* Older ones send no number, or no SPORT_IDX: they connect from any port. If they
//!   connect a path again, it may meet another one at the other end. So they get one path. Nothing
//!   identifies them before the first handshake, therefore this node begins with the number 1.
//! - *Numbers.* C RDS chooses a path by a mask, and would leave some of 3 paths unused. So this
//!   node uses 1, 2, 4 or 8. It offers 2 to a peer that offers 3, and both use that.
//! - *Growth.* The number does not shrink while the peer runs: messages may wait on each path. A
//!   peer that restarts draws another generation. Without generations, it may have restarted
//!   before each link of the first path. It has if the number is smaller once all is negotiated.
//! - *Offers.* C RDS uses as many paths as it is offered, and relies on the node with the lower
//!   address to make them. It may be set not to answer probes. So it gets one path until it has
//!   answered one. A peer of this module answers each, and begins with the number 1 or none.
//! - *Room.* A node may have no memory or room for all paths, and its peer would wait for them. So
//!   the caller adds paths before they are offered, see [`Mprds::set_ready`].
//! - *Use.* Paths are accepted once this node has offered their number. It uses them once the peer
//!   has answered a probe that had the number, and so is ready for them.
//! - *Probes.* The node that has accepted the first path probes at once, like C RDS. The other one
//!   does when a handshake arrives, or after a second. Probes without an answer are repeated, five
//!   in all, and five with each larger number. A peer that may use several paths gets more, slowly:
//!   what waits on these paths needs the answer. To such a peer the first ones have no number: C
//!   RDS changes nothing then.
//! - *Answers.* To a peer of this module, a smaller number than before is a restart. So an answer
//!   has no number until the peer is known to answer probes, and the caller has tried to add paths.
//!   Those to probes of an earlier link are sent again on the next one, also without a number.
//!   Answers without one end no negotiation.
//!
//! Only handshakes on the first path are passed to [`Mprds::receive`], and each only once.
//!
//! Ownership: none, this state has only numbers. Errors: none; what makes no sense is ignored.

use super::{
    exthdr::{
        Extension,
        Extensions,
        ExthdrWriter,
        SPACE, //
    },
    tcp_role,
    wire::{
        Header,
        PING_PORT,
        PROBE_PORT, //
    },
    SECOND, //
};
use core::num::NonZeroU32;

/// Time between two probes.
const PERIOD_NS: u64 = SECOND;

/// Maximum number of probes with the same number of paths that follow each other so soon.
const PROBES: u8 = 5;

/// Time between two probes after those. Answers do not take that long.
const SLOW_PERIOD_NS: u64 = 10 * SECOND;

/// Number of paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathCount {
    #[default]
    One,
    Two,
    Four,
    Eight,
}

impl PathCount {
    /// Returns the largest count that is not above `number`, or the smallest one.
    pub(crate) const fn at_most(number: u16) -> Self {
        match number {
            0 | 1 => Self::One,
            2 | 3 => Self::Two,
            4..=7 => Self::Four,
            _ => Self::Eight,
        }
    }

    /// Returns the number.
    pub(crate) const fn number(self) -> u16 {
        1 << self as u16
    }

    /// Returns `true` if there is a path with this index.
    pub(crate) const fn has(self, index: u8) -> bool {
        (index as u16) < self.number()
    }
}

/// Kind of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeKind {
    /// The receiver has to answer.
    Probe,
    /// The answer to a probe.
    Answer,
}

impl HandshakeKind {
    /// Returns the kind of an empty message between these ports. `None` if it is no handshake.
    pub(crate) const fn of(sport: u16, dport: u16) -> Option<Self> {
        match (sport, dport) {
            (PROBE_PORT, PING_PORT) => Some(Self::Probe),
            (PING_PORT, PROBE_PORT) => Some(Self::Answer),
            _ => None,
        }
    }
}

/// Extensions of a probe or its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handshake {
    /// NPATHS: the number of paths that the sender is ready for. Without it nothing changes.
    pub(crate) paths: Option<u16>,
    /// GEN_NUM: a number that the sender has drawn when it was started.
    pub(crate) generation: Option<NonZeroU32>,
    /// SPORT_IDX: the ports from which the sender connects have the index of the path.
    pub(crate) has_port_index: bool,
}

impl Handshake {
    /// Returns the handshake in a header, and its kind. `None` if the header is of no handshake.
    #[inline]
    pub(crate) fn of(header: &Header) -> Option<(HandshakeKind, Self)> {
        let kind = HandshakeKind::of(header.sport, header.dport)?;
        if header.len != 0 {
            return None;
        }
        let mut this = Self::default();
        for extension in Extensions::new(&header.exthdr) {
            match extension {
                Extension::NPaths(number) => this.paths = Some(number),
                Extension::GenNum(number) => this.generation = NonZeroU32::new(number),
                Extension::SportIdx(_) => this.has_port_index = true,
                _ => {}
            }
        }
        Some((kind, this))
    }

    /// Returns the extensions, in the order of C RDS.
    pub(crate) fn emit(self) -> [u8; SPACE] {
        let mut writer = ExthdrWriter::new();
        // There is room for all.
        if let Some(number) = self.paths {
            let _ = writer.push(Extension::NPaths(number));
        }
        if let Some(number) = self.generation {
            let _ = writer.push(Extension::GenNum(number.get()));
        }
        if self.has_port_index {
            let _ = writer.push(Extension::SportIdx(0));
        }
        writer.finish()
    }
}

/// Knowledge about the peer since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PeerPaths {
    generation: Option<NonZeroU32>,
    has_port_index: bool,
    /// It answers probes: it has, or has shown that it is of this module.
    answers: bool,
    /// The largest number that it has offered. A peer of this module begins with 1, too.
    offered: PathCount,
    /// Paths for which this node is ready, also before a link that began with less knowledge.
    ready: PathCount,
    /// Paths for which it has tried to be, likewise.
    tried: PathCount,
    /// The largest number that was sent to it, also before a link that began with less knowledge.
    sent: PathCount,
    /// Paths that this node uses.
    agreed: PathCount,
    /// Paths that may have messages, also from before a link that began with less knowledge.
    used: PathCount,
}

impl PeerPaths {
    /// Returns the number of paths that the peer may use.
    fn accepted(&self) -> PathCount {
        match self.offered {
            PathCount::One => self.sent,
            offered => self.sent.min(offered),
        }
    }
}

/// Handshakes on the present link of the first path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Exchange {
    /// The peer has sent one.
    received: bool,
    /// The peer has sent one with its final number. Answers without one may be to probes of earlier
    /// links.
    numbered: bool,
    /// This node has sent one with a number.
    sent_number: bool,
    /// Probes before the slow ones, and the time of the next one, as long as the link is up.
    probes: Option<(u8, u64)>,
    /// Number of the last probe that was requested from the caller.
    wanted: Option<PathCount>,
    /// Number in the last probe.
    asked: Option<PathCount>,
    /// Probes that may still be answered, and those of them with a smaller number than the last.
    unanswered: u8,
    outdated: u8,
    /// Number in the last probe that was answered. The peer answers them in order.
    confirmed: Option<PathCount>,
}

/// Result of the negotiation so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Negotiated {
    /// Number of paths for messages.
    pub(crate) paths: PathCount,
    /// Number of paths for which the caller has to be ready before they are offered.
    pub(crate) wanted: PathCount,
    /// Number in the next handshake. It and the next field are only compared: a change wakes the
    /// worker.
    next: Option<PathCount>,
    /// A handshake has arrived on the present link, so the peer is known to be the same.
    has_begun: bool,
}

/// Negotiation with one peer.
#[derive(Clone, Debug)]
pub(crate) struct Mprds {
    /// Most paths that this node uses.
    most: PathCount,
    /// Generation to send. This module sends none, the models of the tests do.
    generation: Option<NonZeroU32>,
    /// `None` before the first handshake, unless the generation was kept: see [`Self::resume`].
    peer: Option<PeerPaths>,
    link: Exchange,
}

impl Mprds {
    /// Creates the state for a peer from which nothing has arrived.
    pub(crate) const fn new(most: PathCount, generation: Option<NonZeroU32>) -> Self {
        Self {
            most,
            generation,
            peer: None,
            link: Exchange {
                received: false,
                numbered: false,
                sent_number: false,
                probes: None,
                wanted: None,
                asked: None,
                unanswered: 0,
                outdated: 0,
                confirmed: None,
            },
        }
    }

    /// Continues after the connection to the peer was forgotten. Only the generation in its last
    /// handshake is known. Called before anything arrives.
    pub(crate) fn resume(&mut self, generation: Option<NonZeroU32>) {
        self.peer = generation.map(|_| PeerPaths {
            generation,
            ..PeerPaths::default()
        });
    }

    /// Returns the generation in the last handshake of the peer, for [`Self::resume`].
    pub(crate) fn peer_generation(&self) -> Option<NonZeroU32> {
        self.peer.and_then(|peer| peer.generation)
    }

    /// Notes that the first path has a link. `accepted`: the peer has connected.
    pub(crate) fn up(&mut self, now: u64, accepted: bool) {
        // With one path it has something to say only after the peer.
        let begins = accepted && self.most > PathCount::One;
        let delay = if begins { 0 } else { PERIOD_NS };
        self.link.probes = Some((PROBES, now.saturating_add(delay)));
    }

    /// Notes that the first path has no link any more.
    pub(crate) fn down(&mut self) {
        self.link = Exchange::default();
    }

    /// Returns the number of paths to offer, for which the caller has to be ready before.
    fn wanted(&self) -> PathCount {
        match self.peer {
            Some(peer) if self.link.received && peer.has_port_index && peer.answers => {
                match peer.offered {
                    PathCount::One => self.most,
                    offered => self.most.min(offered),
                }
            }
            _ => PathCount::One,
        }
    }

    /// Returns the number of paths that are offered.
    fn offer(&self) -> PathCount {
        let ready = self.peer.map_or(PathCount::One, |peer| peer.ready);
        self.wanted().min(ready)
    }

    /// Notes that the caller has tried to add [`Negotiated::wanted`] paths, and that `ready` of
    /// them exist. It keeps these as long as the peer may need them.
    ///
    /// The caller then calls [`Self::check`].
    pub(crate) fn set_ready(&mut self, wanted: PathCount, ready: PathCount) {
        if let Some(peer) = &mut self.peer {
            peer.tried = peer.tried.max(wanted);
            peer.ready = peer.ready.max(ready);
        }
    }

    /// Returns the number for the next handshake. `None` if it must have none: the peer may use
    /// several paths, or may have restarted with only one. Nor is there one until the caller has
    /// tried to add paths: a smaller number than before means a restart to the peer.
    fn number(&self) -> Option<PathCount> {
        let tried = self.peer.map_or(PathCount::One, |peer| peer.tried);
        let is_tried = self.wanted() <= tried;
        let may_have_less = self.is_final() || !self.may_have_several();
        (is_tried && may_have_less).then(|| self.offer())
    }

    /// Returns `true` if what has arrived on the present link decides which number is offered.
    fn is_final(&self) -> bool {
        let is_final = |peer: PeerPaths| peer.answers || !peer.has_port_index;
        let is_known = self.peer.is_some_and(is_final) || self.most == PathCount::One;
        self.link.received && is_known
    }

    /// Returns `true` if the peer or this node may use several paths, or have messages there.
    fn may_have_several(&self) -> bool {
        let number = self.peer.map(|peer| peer.sent.max(peer.used));
        number > Some(PathCount::One)
    }

    /// Returns the content of a handshake that is being sent now.
    pub(crate) fn send(&mut self, kind: HandshakeKind) -> Handshake {
        let number = self.number();
        let number = number.filter(|_| kind == HandshakeKind::Probe || self.is_final());
        self.link.sent_number |= number.is_some();
        if let (Some(peer), Some(number)) = (&mut self.peer, number) {
            peer.sent = peer.sent.max(number);
        }
        if kind == HandshakeKind::Probe {
            let (link, asked) = (&mut self.link, Some(number.unwrap_or_default()));
            if link.asked < asked {
                link.outdated = link.unanswered;
            }
            link.asked = asked;
            link.unanswered = link.unanswered.saturating_add(1);
        }
        Handshake {
            paths: number.map(PathCount::number),
            generation: self.generation,
            has_port_index: true,
        }
    }

    /// Returns `true` if a handshake shows by its generation that the peer has restarted. Messages
    /// of its new life may be marked as retransmitted, and have smaller numbers.
    pub(crate) fn shows_restart(&self, handshake: &Handshake) -> bool {
        let before = self.peer_generation();
        let known = before.is_some() && handshake.generation.is_some();
        known && before != handshake.generation && !self.link.received
    }

    /// Handles a handshake that has arrived on the first path. Returns `true` if the peer has
    /// restarted. Then the caller drops the links of the other paths, moves their messages to the
    /// first one, and expects new sequence numbers on all.
    ///
    /// The caller then calls [`Self::check`].
    pub(crate) fn receive(&mut self, kind: HandshakeKind, handshake: &Handshake) -> bool {
        // A peer does not restart during a link, so only the first handshake shows its generation.
        let (peer, restarted) = match self.peer {
            Some(peer) if self.link.received => (peer, false),
            before => Self::recognise(before, handshake),
        };
        let (peer, link) = (self.peer.insert(peer), &mut self.link);
        link.received = true;
        peer.has_port_index |= handshake.has_port_index;
        // C RDS always offers several.
        let begins = handshake.paths.is_none_or(|number| number <= 1);
        peer.answers |= kind == HandshakeKind::Answer || begins;
        if let Some(number) = handshake.paths {
            // Probes of this module begin with 1. An answer may be to a probe of an earlier link.
            let answers = kind == HandshakeKind::Answer && link.unanswered > 0;
            link.numbered |= answers || number > 1;
            peer.offered = peer.offered.max(PathCount::at_most(number));
        }
        if kind == HandshakeKind::Answer {
            link.unanswered = link.unanswered.saturating_sub(1);
            match link.outdated.checked_sub(1) {
                Some(left) => link.outdated = left,
                None => link.confirmed = link.asked,
            }
        }
        if let Some(confirmed) = link.confirmed.filter(|_| peer.has_port_index) {
            peer.agreed = peer.agreed.max(confirmed.min(peer.offered));
        }
        restarted | self.shrinks()
    }

    /// Notes the paths that are used from now on. Returns `true` if they are fewer than before,
    /// which is known once nothing else has to be negotiated.
    fn shrinks(&mut self) -> bool {
        let is_settled = self.is_settled();
        let Some(peer) = &mut self.peer else {
            return false;
        };
        let shrinks = is_settled && peer.used > peer.agreed;
        if shrinks || peer.used < peer.agreed {
            peer.used = peer.agreed;
        }
        shrinks
    }

    /// Returns the peer of the first handshake on a link, and `true` if it has restarted.
    fn recognise(before: Option<PeerPaths>, handshake: &Handshake) -> (PeerPaths, bool) {
        let new = PeerPaths {
            generation: handshake.generation,
            ..PeerPaths::default()
        };
        match before {
            None => (new, false),
            Some(peer) if peer.generation != handshake.generation => (new, true),
            Some(peer) if peer.generation.is_some() => (peer, false),
            // It may have restarted.
            Some(PeerPaths {
                ready,
                tried,
                sent,
                used,
                ..
            }) => {
                let new = PeerPaths {
                    ready,
                    tried,
                    sent,
                    used,
                    ..new
                };
                (new, false)
            }
        }
    }

    /// Notes that a handshake has arrived on another path: the peer uses that as the first one. It
    /// has restarted, and has no index in its ports. The caller drops the link of that path.
    pub(crate) fn receive_elsewhere(&mut self) {
        if let Some(peer) = self.peer.as_mut().filter(|_| !self.link.received) {
            *peer = PeerPaths {
                used: peer.used,
                ..PeerPaths::default()
            };
        }
    }

    /// Returns `true` if no more probes are needed on this link.
    fn is_settled(&self) -> bool {
        let link = &self.link;
        let is_confirmed = link.numbered && link.confirmed >= Some(self.offer());
        let done = |peer: PeerPaths| !peer.has_port_index || is_confirmed;
        match self.most {
            // The peer may use more paths. It asks once, and there may be no memory for the answer.
            PathCount::One => !link.received || link.sent_number,
            _ => link.received && self.peer.is_some_and(done),
        }
    }

    /// Returns `true` if the caller has to send a probe on the first path. Called after
    /// [`Self::up`] and [`Self::receive`], and at the time that [`Self::next_check`] returns.
    pub(crate) fn check(&mut self, now: u64) -> bool {
        let settled = self.is_settled();
        let Some((left, time)) = self.link.probes.filter(|_| !settled) else {
            return false;
        };
        let number = Some(self.number().unwrap_or_default());
        // A larger number is sent at once.
        let grows = self.link.received && self.link.wanted < number && self.most > PathCount::One;
        let is_slow = left == 0 && !grows;
        if !grows && (now < time || (is_slow && !self.may_have_several())) {
            return false;
        }
        if is_slow {
            // Those before were lost.
            self.link.unanswered = 0;
            self.link.outdated = 0;
        }
        // Its answer comes after those to the other probes, of which some may be lost.
        let left = if grows { PROBES } else { left };
        let left = left.saturating_sub(1);
        let period = if left == 0 { SLOW_PERIOD_NS } else { PERIOD_NS };
        self.link.probes = Some((left, now.saturating_add(period)));
        self.link.wanted = number;
        true
    }

    /// Returns the time of the next [`Self::check`]. `None` if nothing is to be done by then.
    pub(crate) fn next_check(&self) -> Option<u64> {
        let (left, time) = self.link.probes.filter(|_| !self.is_settled())?;
        (left > 0 || self.may_have_several()).then_some(time)
    }

    /// Returns `true` if a handshake has arrived on the present link.
    pub(crate) const fn has_begun(&self) -> bool {
        self.link.received
    }

    /// Returns the number of paths for messages.
    pub(crate) fn paths(&self) -> PathCount {
        self.peer.map_or(PathCount::One, |peer| peer.agreed)
    }

    /// Returns the present result.
    pub(crate) fn outcome(&self) -> Negotiated {
        Negotiated {
            paths: self.paths(),
            wanted: self.wanted(),
            next: self.number(),
            has_begun: self.has_begun(),
        }
    }

    /// Returns `true` if this node may connect a path. The others wait until the peer is known to
    /// be the same.
    pub(crate) fn may_connect(&self, index: u8) -> bool {
        index == 0 || (self.link.received && self.paths().has(index))
    }

    /// Returns the path of a connection that the peer has made from `port`. `None` if there is no
    /// such path, so that the caller resets the connection.
    pub(crate) fn incoming(&self, port: u16) -> Option<u8> {
        match self.peer {
            Some(peer) if peer.has_port_index => {
                let index = tcp_role::path_of(port);
                peer.accepted().has(index).then_some(index)
            }
            _ => Some(0),
        }
    }
}
