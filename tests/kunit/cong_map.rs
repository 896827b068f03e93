// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the congestion maps of this node's addresses and of peers.

use kernel::prelude::*;

#[kunit_tests(rds_cong_map)]
mod suite {
    use crate::{
        cong::{
            MapKey,
            MapRoom,
            NextRound,
            Registry,
            Remote, //
        },
        kapi::net::Net,
        proto::{
            cong_bits::WORDS,
            cong_pace::BURST, //
        }, //
    };
    use core::net::Ipv6Addr;
    use kernel::prelude::*;

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
        let news = maps.mark(on_link(2), PORT, true, NOW)?;
        let told = [2, 3].map(|scope| is_full(&maps, scope));
        let other = maps.mark(on_link(3), PORT, true, NOW)?;
        let cleared = maps.mark(on_link(3), PORT, false, NOW)?;
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
        let marked = |maps: &Registry, scope| maps.mark(on_link(scope), PORT, true, NOW);
        let taken = [marked(&first, 2), marked(&second, 2)];
        let refused = [marked(&first, 3), marked(&second, 3)];
        // A map that is there needs no more.
        let cleared = first.mark(on_link(2), PORT, false, NOW);
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
        let marked = |maps: &Registry, scope| maps.mark(on_link(scope), PORT, true, NOW).is_ok();
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
        let mark = |scope, full, now| maps.mark(on_link(scope), PORT, full, now);
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
        maps.mark(on_link(2), PORT, true, NOW)?;
        maps.mark(on_link(2), PORT + 1, true, NOW)?;
        let sent = maps.next_round(NOW) == NextRound::Send(on_link(2));
        let once = maps.next_round(NOW) == NextRound::Done;
        // A peer may have been left out until the end of the round.
        let during = [2, 3].map(|scope| maps.is_unsent(on_link(scope)));
        maps.end_round(on_link(2));
        let after = maps.is_unsent(on_link(2));
        // It says the same as before.
        maps.mark(on_link(2), PORT, true, NOW)?;
        let same = maps.next_round(NOW) == NextRound::Done;
        maps.mark(on_link(2), PORT, false, NOW)?;
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
            maps.mark(on_link(2), PORT, sent % 2 == 0, NOW)?;
            maps.next_round(NOW) == NextRound::Send(on_link(2))
        } {
            sent += 1;
        }
        let wait = (
            maps.wait(on_link(2), NOW),
            maps.next_round(NOW) == NextRound::Wait(MS),
        );
        maps.mark(on_link(3), PORT, true, NOW)?;
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
                maps.mark(on_link(scope), PORT, round % 2 == 0, NOW)?;
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
}
