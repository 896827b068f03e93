// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the table of connections and its bounds.

use kernel::prelude::*;

#[kunit_tests(rds_conn_table)]
mod suite {
    use crate::{
        conn::{
            AttemptGroup,
            Bounds,
            ConnKey,
            ConnTable,
            Full,
            PositionPlace,
            Positions,
            TableSlot, //
        },
        kapi::{
            net::Net,
            task::UserId, //
        },
        proto::{
            attempts::{
                AttemptKind::{
                    First,
                    Repeated,
                    Waited, //
                },
                AttemptPlace,
                MOST,
                MOST_ASKED,
                MOST_REPEATED, //
            },
            rx::RecvState, //
        },
        socket::TransportId, //
    };
    use core::net::Ipv6Addr;
    use kernel::prelude::*;

    const FIRST: Result<Option<AttemptPlace>, u32> = Ok(Some(AttemptPlace::First));
    const REPEATED: Result<Option<AttemptPlace>, u32> = Ok(Some(AttemptPlace::Repeated));

    #[test]
    fn a_peer_is_counted_over_addresses_and_types_of_service() -> Result {
        let mut table = table(100, 3);
        for key in [key(1, 9, 0), key(1, 9, 1), key(2, 9, 0), key(1, 8, 0)] {
            assert_eq!(add(&mut table, key)?, Ok(()));
        }
        let full = Err(Full::Peer(addr(9), 3));
        assert_eq!(add(&mut table, key(3, 9, 0))?, full);
        assert_eq!(table.has_room(&key(3, 9, 7), None), full);
        assert_eq!(add(&mut table, key(3, 8, 0))?, Ok(()));
        assert_eq!(table.len(), 5);
        // Another scope is another peer.
        let other = ConnKey {
            scope: 1,
            ..key(3, 9, 0)
        };
        assert_eq!(add(&mut table, other)?, Ok(()));

        assert_eq!(table.remove(&key(3, 9, 0)), None);
        assert_eq!(table.has_room(&key(3, 9, 0), None), full);
        assert!(table.remove(&key(2, 9, 0)).is_some());
        assert_eq!(add(&mut table, key(3, 9, 0))?, Ok(()));
        assert_eq!(add(&mut table, key(4, 9, 0))?, full);
        Ok(())
    }

    #[test]
    fn transports_have_connections_between_the_same_addresses() -> Result {
        let mut table = table(100, 2);
        assert_eq!(add(&mut table, key(1, 9, 0))?, Ok(()));
        assert_eq!(add(&mut table, over_tcp(key(1, 9, 0)))?, Ok(()));
        assert_eq!(table.len(), 2);
        // The limit of a peer counts both.
        let full = Err(Full::Peer(addr(9), 2));
        assert_eq!(table.has_room(&key(2, 9, 0), None), full);
        // Both are among those of the local address.
        let (local, peer) = (addr(1), Some(addr(9)));
        let least = ConnKey::least_of(Net::init(), local, peer);
        let mut seen = 0;
        let mut next = table.cursor_lower_bound_mut(&least);
        while let Some(cursor) = next {
            assert!(cursor.current().0.is_of(Net::init(), local, peer));
            seen += 1;
            next = cursor.move_next();
        }
        assert_eq!(seen, 2);
        assert_eq!(table.remove(&key(1, 9, 0)), Some(1));
        assert!(table.get(&key(1, 9, 0)).is_none());
        assert_eq!(table.get(&over_tcp(key(1, 9, 0))), Some(&1));
        Ok(())
    }

    #[test]
    fn each_transport_has_its_position() -> Result {
        let mut positions = positions(10, 10);
        keep(&mut positions, key(1, 9, 0))?;
        assert!(positions.remove(&over_tcp(key(1, 9, 0))).is_none());
        keep(&mut positions, over_tcp(key(1, 9, 0)))?;
        assert!(positions.remove(&key(1, 9, 0)).is_some());
        assert!(positions.remove(&over_tcp(key(1, 9, 0))).is_some());
        Ok(())
    }

    #[test]
    fn paths_are_side_by_side() -> Result {
        let mut table = table(100, 3);
        let first = over_tcp(key(1, 9, 0));
        for path in [2, 0, 1] {
            assert_eq!(add(&mut table, over_path(path, first))?, Ok(()));
        }
        let full = Err(Full::Peer(addr(9), 3));
        assert_eq!(table.has_room(&over_path(3, first), None), full);
        let mut next = table.cursor_lower_bound_mut(&first);
        for path in 0..3 {
            let cursor = next.ok_or(ENOENT)?;
            assert!(*cursor.current().0 == over_path(path, first));
            next = cursor.move_next();
        }
        assert!(next.is_none());
        assert!(table.remove(&over_path(1, first)).is_some());
        assert!(table.get(&over_path(1, first)).is_none());
        assert_eq!(table.len(), 2);
        // Each has its own position.
        let mut positions = positions(10, 10);
        keep(&mut positions, over_path(1, first))?;
        assert!(positions.remove(&first).is_none());
        assert!(positions.remove(&over_path(1, first)).is_some());
        Ok(())
    }

    #[test]
    fn all_are_counted() -> Result {
        let mut table = table(4, 100);
        for n in 1..=4 {
            assert_eq!(add(&mut table, key(1, n, 0))?, Ok(()));
        }
        assert_eq!(add(&mut table, key(1, 5, 0))?, Err(Full::All(4)));
        for n in 1..=4 {
            assert!(table.remove(&key(1, n, 0)).is_some());
            assert!(table.remove(&key(1, n, 0)).is_none());
        }
        assert_eq!(table.len(), 0);
        for n in 5..=8 {
            assert_eq!(add(&mut table, key(1, n, 0))?, Ok(()));
        }
        assert_eq!(table.take().0.values().count(), 4);
        assert_eq!(add(&mut table, key(1, 5, 0))?, Ok(()));
        Ok(())
    }

    #[test]
    fn one_is_always_allowed() -> Result {
        let mut table = table(0, 0);
        assert_eq!(add(&mut table, key(1, 1, 0))?, Ok(()));
        assert_eq!(add(&mut table, key(1, 2, 0))?, Err(Full::All(1)));
        Ok(())
    }

    #[test]
    fn it_is_crowded_before_it_is_full() -> Result {
        let mut table = table(32, 16);
        for n in 1..=14 {
            add(&mut table, key(n, 9, 0))?.map_err(|_| EINVAL)?;
        }
        assert!(!table.is_near_limit(&key(1, 9, 0), None));
        add(&mut table, key(15, 9, 0))?.map_err(|_| EINVAL)?;
        assert!(table.is_near_limit(&key(1, 9, 0), None));
        assert!(!table.is_near_limit(&key(1, 8, 0), None));
        for n in 1..=15 {
            add(&mut table, key(1, 20 + n, 0))?.map_err(|_| EINVAL)?;
        }
        assert!(table.is_near_limit(&key(1, 8, 0), None));
        Ok(())
    }

    /// Otherwise he alone would make the node close the connections of others.
    #[test]
    fn one_user_does_not_make_it_crowded() -> Result {
        const USER: UserId = UserId::new(7);
        let mut table = table(512, 512);
        let mut count = 0;
        while add_for(&mut table, key(1, count, 0), Some(USER))?.is_ok() {
            // Their peers answer.
            table.note_answer(USER);
            count += 1;
        }
        let near = table.is_near_limit(&key(1, 1, 0), None);
        assert_eq!((count, near), (512 / 8 * 7, false));
        Ok(())
    }

    #[test]
    fn a_walk_comes_by_all_that_stay() -> Result {
        let mut table = table(100, 100);
        for n in 1..=10 {
            add(&mut table, key(n, 9, 0))?.map_err(|_| EINVAL)?;
        }
        let mut seen = KVec::new();
        let mut next = None;
        for round in 0..3 {
            let mut batch = KVec::new();
            next = table.walk(next, 3, |value| {
                assert!(batch.push(*value, GFP_KERNEL).is_ok());
            });
            assert_eq!(next.is_none(), round == 2);
            for value in batch {
                seen.push(value, GFP_KERNEL)?;
            }
            // Removes a connection that the walk has passed, and the one at which it continues.
            table.remove(&key(1, 9, 0));
            table.remove(&key(4, 9, 0));
        }
        assert!(seen.iter().copied().eq([1u16, 2, 3, 5, 6, 7, 8, 9, 10]));
        assert_eq!(
            table.walk(None, 0, |_| {}).map(|key| key.laddr),
            Some(addr(2))
        );
        Ok(())
    }

    #[test]
    fn a_user_leaves_room_for_others() -> Result {
        let mut table = table(256, 1000);
        let mut local = 0;
        // Each user may take half of the remaining places, and at least 16.
        for (user, most) in [(1, 128), (2, 64), (3, 32), (4, 16), (5, 16)] {
            for _ in 0..most {
                local += 1;
                let user = Some(UserId::new(user));
                assert_eq!(add_for(&mut table, key(local, local, 0), user)?, Ok(()));
            }
            let full = match table.len() {
                256 => Full::All(256),
                _ => Full::Unanswered(most),
            };
            let user = Some(UserId::new(user));
            assert_eq!(add_for(&mut table, key(999, 999, 0), user)?, Err(full));
        }
        for n in 241..=256 {
            assert!(table.remove(&key(n, n, 0)).is_some());
            table.note_answer(UserId::new(5));
            table.note_removed(&key(n, n, 0), UserId::new(5));
        }
        // Connections of peers are not limited by this. Neither is a user whose connections were
        // all removed.
        assert_eq!(add(&mut table, key(999, 999, 0))?, Ok(()));
        let (first, fifth) = (Some(UserId::new(1)), Some(UserId::new(5)));
        let full = Err(Full::Unanswered(128));
        assert_eq!(add_for(&mut table, key(998, 998, 0), first)?, full);
        assert_eq!(add_for(&mut table, key(998, 998, 0), fifth)?, Ok(()));
        for n in 1..=128 {
            table.note_answer(UserId::new(1));
            table.note_removed(&key(n, n, 0), UserId::new(1));
        }
        assert_eq!(add_for(&mut table, key(997, 997, 0), first)?, Ok(()));
        Ok(())
    }

    #[test]
    fn a_user_whose_peers_answer_leaves_an_eighth_to_others() -> Result {
        let mut table = table(256, 1000);
        let mut local = 0;
        for (user, most) in [(1, 224), (2, 28)] {
            let user = UserId::new(user);
            for _ in 0..most {
                local += 1;
                assert_eq!(
                    add_for(&mut table, key(local, local, 0), Some(user))?,
                    Ok(())
                );
                table.note_answer(user);
            }
            let full = Err(Full::User(most));
            assert_eq!(add_for(&mut table, key(999, 999, 0), Some(user))?, full);
        }
        // Connections of peers are not limited by this.
        assert_eq!(add(&mut table, key(999, 999, 0))?, Ok(()));
        let first = UserId::new(1);
        for n in 1..=16 {
            assert!(table.remove(&key(n, n, 0)).is_some());
            table.note_removed(&key(n, n, 0), first);
        }
        assert_eq!(
            add_for(&mut table, key(998, 998, 0), Some(first))?,
            Err(Full::User(208))
        );
        for n in 17..=32 {
            assert!(table.remove(&key(n, n, 0)).is_some());
            table.note_removed(&key(n, n, 0), first);
        }
        assert_eq!(add_for(&mut table, key(998, 998, 0), Some(first))?, Ok(()));
        Ok(())
    }

    /// With many types of service and paths he alone could keep others from that peer.
    #[test]
    fn a_user_leaves_an_eighth_of_those_with_a_peer_to_others() -> Result {
        let mut table = table(65536, 256);
        let mut local = 0;
        for (user, most) in [(1, 224), (2, 28)] {
            let user = Some(UserId::new(user));
            for _ in 0..most {
                local += 1;
                assert_eq!(add_for(&mut table, key(local, 9, 0), user)?, Ok(()));
            }
            let full = Err(Full::UserWithPeer(addr(9), most));
            assert_eq!(add_for(&mut table, key(999, 9, 0), user)?, full);
            // His connections with another peer have a share of their own.
            assert_eq!(add_for(&mut table, key(local, 8, 0), user)?, Ok(()));
        }
        let (first, third) = (UserId::new(1), Some(UserId::new(3)));
        assert_eq!(add_for(&mut table, key(300, 9, 0), third)?, Ok(()));
        for local in 301..=303 {
            // Peers may have the rest.
            let peers = Some(UserId::PEERS);
            assert_eq!(add_for(&mut table, key(local, 9, 0), peers)?, Ok(()));
        }
        let full = Err(Full::Peer(addr(9), 256));
        assert_eq!(add_for(&mut table, key(304, 9, 0), third)?, full);
        for n in 1..=28 {
            assert!(table.remove(&key(n, 9, 0)).is_some());
            table.note_removed(&key(n, 9, 0), first);
        }
        let full = Err(Full::UserWithPeer(addr(9), 196));
        assert_eq!(add_for(&mut table, key(305, 9, 0), Some(first))?, full);
        assert!(table.remove(&key(29, 9, 0)).is_some());
        table.note_removed(&key(29, 9, 0), first);
        assert_eq!(add_for(&mut table, key(305, 9, 0), Some(first))?, Ok(()));
        Ok(())
    }

    /// His own idle connections make room for others of his, and nobody else's do.
    #[test]
    fn a_user_is_near_the_end_of_his_share() -> Result {
        let mut table = table(65536, 256);
        let user = |number| Some(UserId::new(number));
        let mut near = [0; 2];
        for local in 1..=224 {
            assert_eq!(add_for(&mut table, key(local, 9, 0), user(1))?, Ok(()));
            for (peer, near) in (8..).zip(&mut near) {
                *near += u32::from(table.is_near_limit(&key(999, peer, 0), user(1)));
            }
        }
        let of_another = table.is_near_limit(&key(999, 9, 0), user(2));
        let [elsewhere, here] = near;
        assert!((1..16).contains(&here));
        assert_eq!((elsewhere, of_another), (0, false));
        Ok(())
    }

    #[test]
    fn peers_have_no_share_of_a_peer() -> Result {
        let mut table = table(65536, 256);
        for n in 1..=256 {
            let peers = Some(UserId::PEERS);
            assert_eq!(add_for(&mut table, key(n, 9, 0), peers)?, Ok(()));
        }
        Ok(())
    }

    #[test]
    fn peers_over_tcp_count_as_one_user() -> Result {
        let peers = UserId::PEERS;
        let mut table = table(1024, 1024);
        for n in 1..=512 {
            assert_eq!(table.has_many_strangers(), n > 256);
            assert_eq!(add_for(&mut table, key(n, n, 0), Some(peers))?, Ok(()));
        }
        let full = Err(Full::Unanswered(512));
        assert_eq!(add_for(&mut table, key(999, 999, 0), Some(peers))?, full);
        assert_eq!(table.has_room(&key(999, 999, 0), None), Ok(()));
        for _ in 0..512 {
            table.note_answer(peers);
        }
        assert!(!table.has_many_strangers());
        assert_eq!(add_for(&mut table, key(999, 999, 0), Some(peers))?, Ok(()));
        Ok(())
    }

    #[test]
    fn strangers_delay_no_attempts_for_peers() {
        let (peers, strangers) = (AttemptGroup::Peers, AttemptGroup::Strangers);
        let mut table = table(64, 64);
        for (group, waiting) in [(strangers, 100), (peers, 50)] {
            // They are also counted for connections of others.
            for _ in 0..MOST_REPEATED {
                assert_eq!(table.begin_attempt(group, Repeated), REPEATED);
            }
            for _ in 0..waiting {
                table.note_waiting(group, true);
            }
            assert_eq!(table.begin_attempt(group, Repeated), Err(2 * waiting));
            // One that asks has a place.
            assert_eq!(table.begin_attempt(group, First), FIRST);
            table.note_waiting(group, false);
            assert_eq!(table.begin_attempt(group, Repeated), Err(2 * waiting - 2));
        }
        table.end_attempt(peers, AttemptPlace::First);
        assert_eq!(table.begin_attempt(peers, Repeated), Err(98));
        table.end_attempt(peers, AttemptPlace::Repeated);
        assert_eq!(table.begin_attempt(peers, Repeated), REPEATED);
        assert_eq!(table.begin_attempt(strangers, Repeated), Err(198));
    }

    /// Those that ask could otherwise keep others from being tried again.
    #[test]
    fn peers_that_ask_leave_places_to_others() {
        let mut table = table(64, 64);
        for group in [AttemptGroup::Peers, AttemptGroup::Strangers] {
            for _ in 0..MOST_ASKED {
                assert_eq!(table.begin_attempt(group, First), FIRST);
            }
            assert_eq!(table.begin_attempt(group, First), Err(10));
            assert_eq!(table.begin_attempt(group, Repeated), REPEATED);
            assert_eq!(table.begin_attempt(group, Waited), REPEATED);
        }
    }

    #[test]
    fn attempts_are_limited_for_each_user() -> Result {
        let (one, two) = (UserId::new(1), UserId::new(2));
        let of = AttemptGroup::User;
        let mut table = table(4000, 4000);
        for n in 1..=400 {
            let user = Some(if n <= 300 { one } else { two });
            assert_eq!(add_for(&mut table, key(n, n, 0), user)?, Ok(()));
        }
        // Only first attempts may take all places.
        for _ in 0..MOST_REPEATED {
            assert_eq!(table.begin_attempt(of(one), Repeated), REPEATED);
        }
        assert_eq!(table.begin_attempt(of(one), Repeated), Err(600));
        for _ in MOST_REPEATED..MOST {
            assert_eq!(table.begin_attempt(of(one), First), FIRST);
        }
        assert_eq!(table.begin_attempt(of(one), First), Err(75));
        assert_eq!(table.begin_attempt(of(two), Repeated), REPEATED);
        table.end_attempt(of(one), AttemptPlace::Repeated);
        assert_eq!(table.begin_attempt(of(one), First), FIRST);
        assert_eq!(table.begin_attempt(of(one), Repeated), Err(600));
        // The number of connections does not change that of attempts.
        for _ in 1..=300 {
            table.note_answer(one);
        }
        assert_eq!(table.begin_attempt(of(one), First), Err(10));
        for _ in 1..MOST_REPEATED {
            table.end_attempt(of(one), AttemptPlace::Repeated);
        }
        for _ in MOST_REPEATED..=MOST {
            table.end_attempt(of(one), AttemptPlace::First);
        }
        // Nothing is counted for a user without connections.
        for n in 1..=300 {
            table.note_removed(&key(n, n, 0), one);
        }
        assert_eq!(table.begin_attempt(of(one), Repeated), Ok(None));
        drop(table.take());
        assert_eq!(table.begin_attempt(of(two), Repeated), Ok(None));
        table.end_attempt(of(two), AttemptPlace::Repeated);
        Ok(())
    }

    #[test]
    fn the_number_of_positions_is_limited() -> Result {
        let mut positions = positions(2, 100);
        for n in 1..=2 {
            assert!(positions.has_room(&key(1, n, 0)));
            keep(&mut positions, key(1, n, 0))?;
        }
        assert!(!positions.has_room(&key(1, 3, 0)));
        assert!(positions.remove(&key(1, 3, 0)).is_none());
        assert!(!positions.has_room(&key(1, 3, 0)));
        assert!(positions.remove(&key(1, 2, 0)).is_some());
        assert!(positions.remove(&key(1, 2, 0)).is_none());
        assert!(positions.has_room(&key(1, 3, 0)));
        keep(&mut positions, key(1, 3, 0))?;
        assert!(!positions.has_room(&key(1, 2, 0)));
        assert!(positions.remove(&key(1, 1, 0)).is_some());
        assert!(positions.remove(&key(1, 3, 0)).is_some());
        Ok(())
    }

    #[test]
    fn a_peer_beyond_its_limit_loses_the_oldest_position() -> Result {
        let mut positions = positions(4, 2);
        // The order differs from that of the keys.
        for key in [key(1, 8, 0), key(2, 9, 3), key(1, 9, 7)] {
            keep(&mut positions, key)?;
        }
        assert!(positions.has_room(&key(3, 9, 0)));
        keep(&mut positions, key(3, 9, 0))?;
        assert!(positions.remove(&key(2, 9, 3)).is_none());
        keep(&mut positions, key(2, 9, 0))?;
        assert!(positions.remove(&key(1, 9, 7)).is_none());
        // Other peers keep their positions. Without free room, a position only replaces one of the
        // same peer.
        keep(&mut positions, key(1, 7, 0))?;
        assert!(positions.has_room(&key(4, 9, 0)));
        assert!(!positions.has_room(&key(1, 6, 0)));
        for key in [key(1, 8, 0), key(3, 9, 0), key(2, 9, 0), key(1, 7, 0)] {
            assert!(positions.remove(&key).is_some());
        }
        Ok(())
    }

    #[test]
    fn the_latest_positions_of_a_peer_stay() -> Result {
        const MOST: u16 = 100;
        let mut positions = positions(1000, MOST.into());
        for n in 0..5 * MOST {
            // The keys are not in order, and another peer has positions, too.
            keep(&mut positions, key(n * 13 % 512, 9, 0))?;
            if n < MOST / 2 {
                keep(&mut positions, key(n, 8, 0))?;
            }
        }
        let left = |positions: &mut Positions, peer: u16, numbers: core::ops::Range<u16>| {
            numbers
                .filter(|n| positions.remove(&key(n * 13 % 512, peer, 0)).is_some())
                .count()
        };
        assert_eq!(left(&mut positions, 9, 0..4 * MOST), 0);
        assert_eq!(left(&mut positions, 9, 4 * MOST..5 * MOST), 100);
        assert_eq!(left(&mut positions, 8, 0..512), 50);
        Ok(())
    }

    #[test]
    fn one_position_is_always_kept() -> Result {
        let mut positions = positions(0, 0);
        assert!(positions.has_room(&key(1, 1, 0)));
        keep(&mut positions, key(1, 1, 0))?;
        assert!(positions.remove(&key(1, 1, 0)).is_some());
        Ok(())
    }

    fn positions(all: usize, per_peer: usize) -> Positions {
        Positions::new(Bounds { all, per_peer })
    }

    fn keep(positions: &mut Positions, key: ConnKey) -> Result {
        let position = RecvState::new().position();
        positions.insert(&key, position, PositionPlace::new()?);
        Ok(())
    }

    fn table(all: usize, per_peer: usize) -> ConnTable<u16> {
        ConnTable::new(Bounds { all, per_peer })
    }

    /// Adds a connection. The values are the local addresses.
    fn add(table: &mut ConnTable<u16>, key: ConnKey) -> Result<Result<(), Full>> {
        add_for(table, key, None)
    }

    fn add_for(
        table: &mut ConnTable<u16>,
        key: ConnKey,
        user: Option<UserId>,
    ) -> Result<Result<(), Full>> {
        let [.., local] = key.laddr.segments();
        Ok(table.insert(key, local, user, TableSlot::new()?))
    }

    fn addr(n: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n)
    }

    fn over_tcp(key: ConnKey) -> ConnKey {
        ConnKey {
            transport: TransportId::Tcp,
            ..key
        }
    }

    fn over_path(path: u8, key: ConnKey) -> ConnKey {
        ConnKey { path, ..key }
    }

    fn key(local: u16, peer: u16, tos: u8) -> ConnKey {
        ConnKey {
            net: Net::init(),
            laddr: addr(local),
            faddr: addr(peer),
            scope: 0,
            tos,
            transport: TransportId::Ib,
            path: 0,
        }
    }
}
