// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the congestion maps of this node's addresses and of peers.

use kernel::prelude::*;

#[kunit_tests(rds_cong_map)]
mod suite {
    use crate::{
        cong::{
            MapCount,
            MapKey,
            MapRoom,
            NextRound,
            Registry,
            Remote, //
        },
        conn::{
            Bounds,
            NodeLimits, //
        },
        kapi::{
            net::Net,
            sync::OwnedQueue, //
        },
        proto::{
            cong_bits::WORDS,
            cong_pace::BURST, //
        },
        socket::{
            Bound,
            NetState,
            SharedState,
            TransportId, //
        }, //
    };
    use core::net::{
        Ipv4Addr,
        Ipv6Addr, //
    };
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

    const PORT: u16 = 4000;
    const NOW: u64 = 5_000_000_000;

    /// A link-local address, which may exist on each link.
    fn on_link(scope: u32) -> MapKey {
        MapKey {
            net: Net::init(),
            addr: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
            scope,
        }
    }

    /// Returns `true` if peers on a link are notified that the port is full.
    fn is_full(maps: &Registry, scope: u32) -> bool {
        let mut word = [0xff; 8];
        maps.copy_fragment(on_link(scope), u32::from(PORT / 64 * 8), &mut word);
        u64::from_le_bytes(word) >> (PORT % 64) & 1 == 1
    }

    #[test]
    fn the_same_address_on_another_link_has_a_map_of_its_own() -> Result {
        let maps = Registry::new(MapRoom::new(usize::MAX, usize::MAX)?)?;
        let news = maps.mark(on_link(2), PORT, true, NOW, None)?;
        let told = [2, 3].map(|scope| is_full(&maps, scope));
        let other = maps.mark(on_link(3), PORT, true, NOW, None)?;
        let cleared = maps.mark(on_link(3), PORT, false, NOW, None)?;
        let left = [2, 3].map(|scope| is_full(&maps, scope));
        assert_eq!((news, other, cleared), (true, true, true));
        assert_eq!((told, left), ([true, false], [true, false]));
        Ok(())
    }

    /// Two paths to C RDS may both find no map, and allocate one. The second one must not replace
    /// the first one, whose full ports have waiters.
    #[test]
    fn the_map_of_a_peer_is_stored_once() -> Result {
        let at = u32::from(PORT / 64 * 8);
        let bit = 1u64 << (PORT % 64);
        let remote = KBox::pin_init(Remote::new(), GFP_KERNEL)?;
        let mut fresh = Some(KBox::new([0; WORDS], GFP_KERNEL)?);
        remote.update(at, &bit.to_le_bytes())?;
        drop(remote.lock_with(&mut fresh));
        let is_full = remote.is_congested(PORT);
        let freed = remote.update(at, &[0; 8])?;
        assert!(is_full && fresh.is_some());
        assert_eq!(freed, bit);
        Ok(())
    }

    #[test]
    fn maps_of_several_nodes_share_their_room() -> Result {
        let room = MapRoom::new(2, 2)?;
        let [first, second] = [Registry::new(room.clone())?, Registry::new(room)?];
        let marked = |maps: &Registry, scope| maps.mark(on_link(scope), PORT, true, NOW, None);
        let taken = [marked(&first, 2), marked(&second, 2)];
        let refused = [marked(&first, 3), marked(&second, 3)];
        // A map that is there needs no more.
        let cleared = first.mark(on_link(2), PORT, false, NOW, None);
        drop(first);
        let again = marked(&second, 3);
        assert_eq!(taken, [Ok(true); 2]);
        assert_eq!(refused, [Err(ENOMEM); 2]);
        assert_eq!((cleared, again), (Ok(true), Ok(true)));
        Ok(())
    }

    #[test]
    fn namespaces_of_users_leave_half_of_the_maps_to_root() -> Result {
        let room = MapRoom::new(4, 4)?;
        let registry = |is_of_user| Registry::new(room.of(is_of_user));
        let [user, other, root] = [registry(true)?, registry(true)?, registry(false)?];
        let marked =
            |maps: &Registry, scope| maps.mark(on_link(scope), PORT, true, NOW, None).is_ok();
        let of_users = [&user, &other, &user].map(|maps| marked(maps, 2) && marked(maps, 3));
        let of_root = [2, 3, 4].map(|scope| marked(&root, scope));
        assert_eq!(of_users, [true, false, true]);
        assert_eq!(of_root, [true, true, false]);
        Ok(())
    }

    #[test]
    fn one_node_has_a_limit_and_uses_maps_again() -> Result {
        const LATER: u64 = NOW + 1_000_000_000;
        let maps = Registry::new(MapRoom::new(8, 2)?)?;
        let mark = |scope, full, now| maps.mark(on_link(scope), PORT, full, now, None);
        let taken = [mark(2, true, NOW), mark(3, true, NOW)];
        let refused = mark(4, true, NOW);
        // The peers have to get the cleared map first.
        let cleared = [mark(2, false, NOW), mark(4, true, LATER)];
        let sent = maps.next_round(NOW) == NextRound::Send(on_link(2));
        let during = mark(4, true, LATER);
        maps.end_round(on_link(2));
        let again = mark(4, true, LATER);
        let told = [2, 3, 4].map(|scope| is_full(&maps, scope));
        let fourth = maps.next_round(LATER) != NextRound::Done;
        assert_eq!(taken, [Ok(true); 2]);
        assert_eq!((refused, cleared), (Err(ENOMEM), [Ok(true), Err(ENOMEM)]));
        assert_eq!((sent, during, again), (true, Err(ENOMEM), Ok(true)));
        assert_eq!((told, fourth), ([false, true, true], true));
        Ok(())
    }

    #[test]
    fn a_changed_map_is_sent_once() -> Result {
        let maps = Registry::new(MapRoom::new(usize::MAX, usize::MAX)?)?;
        let none = maps.next_round(NOW) == NextRound::Done;
        maps.mark(on_link(2), PORT, true, NOW, None)?;
        maps.mark(on_link(2), PORT + 1, true, NOW, None)?;
        let sent = maps.next_round(NOW) == NextRound::Send(on_link(2));
        let once = maps.next_round(NOW) == NextRound::Done;
        // A peer may have been left out until the end of the round.
        let during = [2, 3].map(|scope| maps.is_unsent(on_link(scope)));
        maps.end_round(on_link(2));
        let after = maps.is_unsent(on_link(2));
        // It says the same as before.
        maps.mark(on_link(2), PORT, true, NOW, None)?;
        let same = maps.next_round(NOW) == NextRound::Done;
        maps.mark(on_link(2), PORT, false, NOW, None)?;
        let again = maps.next_round(NOW) == NextRound::Send(on_link(2));
        assert!(none && sent && once && same && again);
        assert_eq!((during, after), ([true, false], false));
        Ok(())
    }

    #[test]
    fn a_map_that_always_changes_waits_and_delays_no_other() -> Result {
        const MS: u64 = 1_000_000;
        let maps = Registry::new(MapRoom::new(usize::MAX, usize::MAX)?)?;
        let mut sent = 0;
        while {
            maps.mark(on_link(2), PORT, sent % 2 == 0, NOW, None)?;
            maps.next_round(NOW) == NextRound::Send(on_link(2))
        } {
            sent += 1;
        }
        let wait = (
            maps.wait(on_link(2), NOW),
            maps.next_round(NOW) == NextRound::Wait(MS),
        );
        maps.mark(on_link(3), PORT, true, NOW, None)?;
        let other = (
            maps.wait(on_link(3), NOW),
            maps.next_round(NOW) == NextRound::Send(on_link(3)),
        );
        // The change that had to wait is not forgotten.
        let later = maps.next_round(NOW + MS) == NextRound::Send(on_link(2));
        assert_eq!(
            (sent, wait, other, later),
            (BURST, (MS, true), (0, true), true)
        );
        Ok(())
    }

    /// Rounds of the first map take longer than their interval, so it is always due.
    #[test]
    fn maps_that_always_change_take_turns() -> Result {
        const ROUND: u64 = 2_000_000;
        let maps = Registry::new(MapRoom::new(usize::MAX, usize::MAX)?)?;
        let mut sent = [0, 0];
        for round in 0..20u64 {
            for scope in [2, 3] {
                maps.mark(on_link(scope), PORT, round % 2 == 0, NOW, None)?;
            }
            match maps.next_round(NOW + round * ROUND) {
                NextRound::Send(key) if key == on_link(2) => sent[0] += 1,
                NextRound::Send(_) => sent[1] += 1,
                NextRound::Wait(_) | NextRound::Done => {}
            }
        }
        assert_eq!(sent, [10, 10]);
        Ok(())
    }

    /// The map that has waited for longest is sent first and used again first.
    #[test]
    fn many_maps_keep_their_order() -> Result {
        const COUNT: u32 = 100;
        const LATER: u64 = NOW + 1_000_000_000;
        let most = COUNT as usize;
        let maps = Registry::new(MapRoom::new(most, most)?)?;
        let mut begun = 0;
        for n in (1..=COUNT).rev() {
            maps.mark(on_link(n), PORT, true, NOW, None)?;
            let now = NOW + u64::from(COUNT - n);
            begun += u32::from(maps.begin_round(on_link(n), now));
            maps.end_round(on_link(n));
        }
        for n in 1..=COUNT {
            maps.mark(on_link(n), PORT, false, LATER, None)?;
        }
        let mut in_order = 0;
        for n in (1..=COUNT).rev() {
            let next = maps.next_round(LATER + u64::from(COUNT - n));
            in_order += u32::from(next == NextRound::Send(on_link(n)));
            maps.end_round(on_link(n));
        }
        let refused = maps.mark(on_link(101), PORT, true, NOW, None);
        let taken = maps.mark(on_link(101), PORT, true, 2 * LATER, None);
        // Only an address without a map need not wait at that time.
        let waits = [99, 100].map(|n| maps.wait(on_link(n), NOW) > 0);
        assert_eq!((begun, in_order), (COUNT, COUNT));
        assert_eq!((refused, taken), (Err(ENOMEM), Ok(true)));
        assert_eq!(waits, [true, false]);
        Ok(())
    }

    #[test]
    fn users_of_the_initial_namespace_leave_maps_to_others() -> Result {
        const LATER: u64 = NOW + 1_000_000_000;
        let maps = Registry::new(MapRoom::with_shares(4)?)?;
        let [hog, other] = [MapCount::new()?, MapCount::new()?];
        let has_map = |scope, user, now| {
            let marked = maps.mark(on_link(scope), PORT, true, now, user);
            marked.is_ok()
        };
        let of_hog = [1, 2, 3].map(|scope| has_map(scope, Some(&hog), NOW));
        let of_other = [4, 5].map(|scope| has_map(scope, Some(&other), NOW));
        // A map is charged once, to the first who needs it.
        let shared = maps.mark(on_link(4), PORT + 1, true, NOW, Some(&hog));
        let of_root = [6, 7].map(|scope| has_map(scope, None, NOW));
        maps.mark(on_link(1), PORT, false, NOW, None)?;
        maps.begin_round(on_link(1), NOW);
        maps.end_round(on_link(1));
        let again = [(3, Some(&hog)), (7, None)].map(|(scope, user)| has_map(scope, user, LATER));
        assert_eq!(of_hog, [true, true, false]);
        assert_eq!((of_other, shared), ([true, false], Ok(true)));
        assert_eq!((of_root, again), ([true, false], [false, true]));
        Ok(())
    }

    #[test]
    fn the_initial_namespace_has_a_limit() -> Result {
        let bounds = Bounds {
            all: 64,
            per_peer: 64,
        };
        let maps = Registry::new(NodeLimits::of_one(bounds)?.maps.of(false))?;
        let user = MapCount::new()?;
        let mark = |scope| maps.mark(on_link(scope), PORT, true, NOW, Some(&user));
        let marked = (1..=2100).filter(|scope| mark(*scope).is_ok()).count();
        assert_eq!(marked, 2048);
        Ok(())
    }

    #[test]
    fn loopback_addresses_have_no_map() -> Result {
        let queue = Arc::new(OwnedQueue::new(c"rds_kunit")?, GFP_KERNEL)?;
        let state = NetState::new(SharedState::new(queue, 1 << 20)?, MapRoom::new(8, 8)?)?;
        let v4 = Ipv4Addr::new(127, 3, 2, 1).to_ipv6_mapped();
        let v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
        let mut unsent = [false; 3];
        for (addr, unsent) in [v4, Ipv6Addr::LOCALHOST, v6].into_iter().zip(&mut unsent) {
            let net = Net::init();
            let bound = Bound {
                addr,
                port: PORT,
                scope: 0,
                transport: TransportId::Tcp,
            };
            state.mark_port(net, &bound, true, None)?;
            let scope = 0;
            *unsent = state.cong.is_unsent(MapKey { net, addr, scope });
        }
        assert_eq!(unsent, [false, false, true]);
        Ok(())
    }
}
