// SPDX-License-Identifier: GPL-2.0

//! Negotiation between all kinds of peers: proposals and replies of this module against those of
//! the others. Finally both sides agree on version, type of service and fragments, or there is no
//! connection.

use crate::proto::ib_private::*;
use crate::proto::wire::FragmentSize::{self, K16, K4, K8};

const SIZES: [FragmentSize; 3] = [K4, K8, K16];

/// A peer, and its behaviour.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Peer {
    Ours(FragmentSize),
    /// Linux 7.2: proposes 3.1, knows 4.0 and 4.1, and knows no fragment sizes.
    Mainline,
    /// UEK: proposes 4.1, and after a refusal 3.1, unless there is a type of service. Uses 4096
    /// bytes below 4.1, unless the other side announces the same size.
    Uek(FragmentSize),
    /// From before the type of service: 3.1 only, the other fields are 0.
    Old,
}

fn peers() -> Vec<Peer> {
    let mut peers = vec![Peer::Mainline, Peer::Old];
    peers.extend(SIZES.map(Peer::Ours));
    peers.extend(SIZES.map(Peer::Uek));
    peers
}

/// Parameters that one side considers agreed: version, type of service, fragment bytes.
type Belief = ((u8, u8), u8, u32);

impl Peer {
    /// Returns the fragment size of a UEK peer that reads `announced`.
    fn uek_fragment(own: FragmentSize, version: (u8, u8), announced: u16) -> u32 {
        let (own, announced) = (own.bytes(), u32::from(announced));
        match own.min(announced) {
            size if own == announced => size,
            size @ (8192 | 16384) if version >= (4, 1) => size,
            _ => 4096,
        }
    }

    /// Returns the reason that this peer gives for refusing a version.
    fn rejection(self) -> Rejection {
        match self {
            Peer::Old => Rejection::Unexplained,
            _ => Rejection::Version,
        }
    }

    /// Returns the request that the peer sends after these refusals.
    fn request(self, tos: u8, refusals: Refusals) -> Private {
        let (here, there) = addrs();
        let fields = |major, minor, minor_mask, tos, frag_size| Private {
            saddr: here,
            daddr: there,
            major,
            minor,
            minor_mask,
            tos,
            frag_size,
            ..Private::default()
        };
        match self {
            Peer::Ours(limit) => {
                Private::new(here, there, tos, Version::proposed(tos, refusals), limit, 0)
            }
            Peer::Mainline => fields(3, 1, 3, tos, 0),
            Peer::Uek(own) if refusals != Refusals::default() && tos == 0 => {
                fields(3, 1, 3, 0, own.bytes() as u16)
            }
            Peer::Uek(own) => fields(4, 1, 3, tos, own.bytes() as u16),
            Peer::Old => fields(3, 1, 1, 0, 0),
        }
    }

    /// Returns the peer's reply and its belief from then on, or `None` if it refuses.
    fn reply(self, request: &Private) -> Option<(Private, Belief)> {
        let (major, minor) = match (request.major, request.minor, request.minor_mask & 3) {
            (3, 1, _) => (3, 1),
            (4, _, 0) => return None,
            (4, _, mask) => (4, u8::from(mask > 1)),
            _ => return None,
        };
        let mut reply = Private {
            saddr: request.daddr,
            daddr: request.saddr,
            frag_size: 0,
            major,
            minor,
            ..*request
        };
        let fragment = match self {
            Peer::Ours(limit) => {
                let agreed = negotiate(request, limit).ok()?;
                let (here, there) = (request.daddr, request.saddr);
                reply = Private::new(here, there, request.tos, agreed.version, agreed.fragment, 0);
                agreed.fragment.bytes()
            }
            Peer::Mainline => 4096,
            Peer::Uek(own) => {
                let size = Self::uek_fragment(own, (major, minor), request.frag_size);
                reply.frag_size = size as u16;
                size
            }
            Peer::Old if major != 3 => return None,
            Peer::Old => {
                reply.tos = 0;
                4096
            }
        };
        let belief = ((reply.major, reply.minor), reply.tos, fragment);
        Some((reply, belief))
    }

    /// Returns the peer's belief after a reply to its request, or `None` if it gives up.
    fn accept(self, request: &Private, reply: &Private) -> Option<Belief> {
        let version = (reply.major, reply.minor);
        let fragment = match self {
            Peer::Ours(_) => {
                let agreed = check_reply(request, reply).ok()?;
                assert_eq!((agreed.version.major(), agreed.version.minor()), version);
                agreed.fragment.bytes()
            }
            Peer::Uek(own) => Self::uek_fragment(own, version, reply.frag_size),
            Peer::Mainline | Peer::Old => 4096,
        };
        Some((version, request.tos, fragment))
    }
}

fn addrs() -> (Addr, Addr) {
    (Addr::from_v4([10, 0, 0, 1]), Addr::from_v4([10, 0, 0, 2]))
}

/// Emits and parses the data, as on the wire.
fn travel(private: &Private) -> Private {
    Private::parse_v4(&private.emit_v4().unwrap()).unwrap()
}

/// Connects until an attempt works or twelve have failed. In the first `races` attempts the peer
/// connects itself and refuses. Returns what both believe, and the number of refusals.
fn connect(active: Peer, passive: Peer, tos: u8, races: u32) -> Option<(Belief, u32)> {
    let mut refusals = Refusals::default();
    for refused in 0..12 {
        let request = travel(&active.request(tos, refusals));
        if refused < races {
            refusals = refusals.after(Rejection::Version, false);
            continue;
        }
        let Some((reply, theirs)) = passive.reply(&request) else {
            refusals = refusals.after(passive.rejection(), false);
            continue;
        };
        let reply = travel(&reply);
        let Some(ours) = active.accept(&request, &reply) else {
            continue;
        };
        assert_eq!(
            ours, theirs,
            "{active:?} to {passive:?} tos {tos} races {races}"
        );
        return Some((ours, refused));
    }
    None
}

#[test]
fn both_sides_agree_or_there_is_no_connection() {
    let mut connected = 0;
    for limit in SIZES {
        for peer in peers() {
            for (tos, races) in [(0, 0), (0, 1), (0, 2), (0, 3), (7, 0), (7, 1), (7, 2)] {
                for (active, passive) in [(Peer::Ours(limit), peer), (peer, Peer::Ours(limit))] {
                    let outcome = connect(active, passive, tos, races);
                    // The old 3.1 cannot carry a type of service, so no connection is possible.
                    let cannot = passive == Peer::Old && tos != 0;
                    assert_eq!(
                        outcome.is_some(),
                        !cannot,
                        "{active:?} to {passive:?} tos {tos} races {races}"
                    );
                    connected += u32::from(outcome.is_some());
                }
            }
        }
    }
    assert_eq!(connected, 3 * (8 * 7 * 2 - 3));
}

#[test]
fn the_best_that_the_peer_can_do_comes_out() {
    for limit in SIZES {
        for tos in [0, 7] {
            for other in SIZES {
                let best = (((4, 1), tos, limit.min(other).bytes()), 0);
                for peer in [Peer::Ours(other), Peer::Uek(other)] {
                    assert_eq!(connect(Peer::Ours(limit), peer, tos, 0), Some(best));
                    assert_eq!(connect(peer, Peer::Ours(limit), tos, 0), Some(best));
                }
            }
            let ours = Peer::Ours(limit);
            let (new, old) = ((4, 1), (3, 1));
            let outcome = connect(ours, Peer::Mainline, tos, 0);
            assert_eq!(outcome, Some(((new, tos, 4096), 0)));
            let outcome = connect(Peer::Mainline, ours, tos, 0);
            assert_eq!(outcome, Some(((old, tos, 4096), 0)));
        }
        let outcome = connect(Peer::Ours(limit), Peer::Old, 0, 0);
        assert_eq!(outcome, Some((((3, 1), 0, 4096), 8)));
    }
}

/// No request is sent that a peer of 3.1 would take for one without a type of service.
#[test]
fn a_type_of_service_is_not_proposed_in_3_1() {
    let mut refusals = Refusals::default();
    for _ in 0..10 {
        let request = Peer::Ours(K8).request(7, refusals);
        refusals = refusals.after(Peer::Old.rejection(), false);
        assert_eq!((request.major, request.minor), (4, 1));
        assert!(Peer::Old.reply(&request).is_none());
    }
}
