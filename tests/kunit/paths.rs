// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of several paths of a connection, with a fake TCP transport.

use kernel::prelude::*;

#[kunit_tests(rds_paths)]
mod suite {
    use crate::{
        conn::{
            Connection,
            EndpointEvent, //
        },
        kapi::{
            net::FakeSocket,
            task::UserId, //
        },
        kunit::{
            tcp_bench::{
                acknowledge_all,
                again,
                answer,
                answer_probe,
                connect_to_higher,
                negotiate,
                probe,
                receive,
                receive_full_map,
                without_generation,
                Bench,
                PORTS, //
            },
            wait::eventually, //
        },
        msg::Message,
        proto::{
            exthdr::SPACE,
            mprds::PathCount,
            wire::{
                Header,
                PING_PORT, //
            }, //
        },
        socket::{
            SndbufCharge,
            Socket, //
        }, //
    };
    use kernel::{
        prelude::*,
        sync::atomic::Relaxed, //
    };

    #[test]
    fn ports_use_several_paths_until_the_peer_restarts() -> Result {
        let bench = Bench::with_paths(PathCount::Eight)?;
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Eight, 1..=2, 1)?;
        bench.queue.flush();
        let first = connection.path.info().next_tx;
        for port in PORTS {
            let message = Message::empty(bench.wire.unmapped.pools(), port, port)?;
            connection.send_by_port(message).map_err(|_| EINVAL)?;
        }
        let on_first = connection.path.info().next_tx - first;
        let on_others = PORTS.len() as u64 - on_first;
        let before = bench.counted("send_moved");
        let net = connection.key.net;
        bench
            .node
            .reset_connections(net, connection.key.laddr, None, 0);
        bench.queue.flush();
        receive(&connection, &probe(3, 2))?;
        let moved = eventually(|| bench.counted("send_moved") == on_others);
        // All ports use the first path now.
        let first = connection.path.info().next_tx;
        for port in PORTS {
            let message = Message::empty(bench.wire.unmapped.pools(), port, port)?;
            connection.send_by_port(message).map_err(|_| EINVAL)?;
        }
        let again = connection.path.info().next_tx - first;
        drop(bench);
        assert_eq!(before, 0);
        assert!(on_first > 0 && on_others > on_first);
        assert!(moved.is_ok());
        assert!(again >= PORTS.len() as u64);
        Ok(())
    }

    #[test]
    fn a_restarted_peer_has_new_numbers_on_all_paths() -> Result {
        let bench = Bench::with_paths(PathCount::Eight)?;
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Eight, 1..=2, 1)?;
        let other = bench.path(&connection, 2).ok_or(ENODEV)?;
        let wanted = other.want_for_peer();
        bench.queue.flush();
        for sequence in [1, 9] {
            receive(&other, &again(sequence))?;
        }
        let new = bench.counted("recv_drop_old_seq");
        receive(&other, &again(5))?;
        let duplicate = bench.counted("recv_drop_old_seq");
        let net = connection.key.net;
        bench
            .node
            .reset_connections(net, connection.key.laddr, None, 0);
        bench.queue.flush();
        receive(&connection, &probe(3, 2))?;
        // The worker of the first path lets the other ones move their messages.
        for _ in 0..2 {
            bench.queue.flush();
        }
        receive(&other, &again(5))?;
        let after = bench.counted("recv_drop_old_seq");
        drop((other, connection));
        drop(bench);
        assert!(wanted);
        assert_eq!((new, duplicate, after), (0, 1, 1));
        Ok(())
    }

    /// A path asks the first one at long intervals, and is told when it is allowed. The first path
    /// does not come up again once nothing waits.
    #[test]
    fn a_message_on_another_path_brings_up_the_first_one() -> Result {
        let bench = Bench::with_paths(PathCount::Two)?;
        bench.node.tunables.set_delays(120_000);
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Two, 1..=2, 1)?;
        let other = bench.path(&connection, 1).ok_or(ENODEV)?;
        acknowledge_all(&connection)?;
        bench.end_link(&connection)?;
        bench.queue.flush();
        let rests_before = rests(&connection);
        bench.send(&other)?;
        let negotiated = negotiate(&bench, &connection, PathCount::Two, 3..=4, 1);
        let sent = eventually(|| other.path.sent() == 1);
        acknowledge_all(&other)?;
        acknowledge_all(&connection)?;
        bench.end_link(&connection)?;
        bench.queue.flush();
        let rests_after = rests(&connection);
        drop((other, connection));
        drop(bench);
        assert!(rests_before && rests_after);
        assert!(negotiated.is_ok() && sent.is_ok());
        Ok(())
    }

    #[test]
    fn the_first_path_comes_up_again_for_messages_on_others() -> Result {
        let bench = Bench::with_paths(PathCount::Two)?;
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Two, 1..=2, 1)?;
        let other = bench.path(&connection, 1).ok_or(ENODEV)?;
        bench.send(&other)?;
        let sent = eventually(|| other.path.sent() == 1);
        acknowledge_all(&connection)?;
        let before = bench.prepared(&connection);
        bench.end_link(&connection)?;
        let again = eventually(|| bench.prepared(&connection) == 2);
        drop((other, connection));
        drop(bench);
        assert!(sent.is_ok() && again.is_ok());
        assert_eq!(before, 1);
        Ok(())
    }

    /// The node with the lower address connects again at once. The peer may have restarted, which
    /// only the first path shows.
    #[test]
    fn a_path_that_breaks_waits_for_the_first_one() -> Result {
        let bench = Bench::with_paths(PathCount::Two)?;
        let connection = connect_to_higher(&bench)?;
        eventually(|| bench.path(&connection, 1).is_some())?;
        let other = bench.path(&connection, 1).ok_or(ENODEV)?;
        bench.send(&other)?;
        let sent = eventually(|| other.path.sent() == 1);
        // A link that has lasted does not wait for its backoff.
        let lasts = eventually(|| !other.path.has_timer());
        bench.end_link(&connection)?;
        let again = eventually(|| bench.prepared(&connection) == 2);
        bench.end_link(&other)?;
        bench.queue.flush();
        let waits = bench.prepared(&other) == 1;
        receive(&connection, &probe(4, 1))?;
        let allowed = eventually(|| bench.prepared(&other) == 2);
        drop((other, connection));
        drop(bench);
        assert_eq!(
            (sent, lasts, again, allowed),
            (Ok(()), Ok(()), Ok(()), Ok(()))
        );
        assert!(waits);
        Ok(())
    }

    /// The frames of a link may arrive before this node knows that it is up.
    #[test]
    fn a_probe_on_another_path_ends_an_attempt() -> Result {
        let bench = Bench::with_paths(PathCount::Two)?;
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Two, 1..=2, 1)?;
        let other = bench.path(&connection, 1).ok_or(ENODEV)?;
        bench.wire.is_slow.store(true, Relaxed);
        bench.send(&other)?;
        let connects = eventually(|| bench.prepared(&other) == 1);
        bench.queue.flush();
        let before = bench.counted("conn_attempt_failed");
        receive(&other, &probe(1, 2))?;
        bench.queue.flush();
        let after = bench.counted("conn_attempt_failed");
        drop((other, connection));
        drop(bench);
        assert!(connects.is_ok());
        assert_eq!((before, after), (0, 1));
        Ok(())
    }

    /// The sweep that the end of a socket has left to a path may come after the move.
    #[test]
    fn messages_of_closed_sockets_do_not_survive_a_move() -> Result {
        let bench = Bench::with_paths(PathCount::Two)?;
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Two, 1..=2, 1)?;
        let other = bench.path(&connection, 1).ok_or(ENODEV)?;
        let sk = FakeSocket::<Socket>::new()?;
        let mut message = Message::empty(bench.wire.unmapped.pools(), PORTS.start, PORTS.start)?;
        let charge = SndbufCharge::take(&sk, None, 1, usize::MAX);
        message.charge_to(charge.map_err(|_| ENOMEM)?);
        other.send(message).map_err(|_| EINVAL)?;
        drop(sk);
        let sent = eventually(|| other.path.sent() == 1);
        let net = connection.key.net;
        bench
            .node
            .reset_connections(net, connection.key.laddr, None, 0);
        bench.queue.flush();
        receive(&connection, &probe(3, 2))?;
        let moved = eventually(|| bench.counted("send_moved") == 1);
        let dropped = eventually(|| bench.counted("send_drop_closed") == 1);
        drop((other, connection));
        drop(bench);
        assert_eq!((sent, moved, dropped), (Ok(()), Ok(()), Ok(())));
        Ok(())
    }

    /// A peer without generations may use several paths before their number shows that it has
    /// restarted. Messages on these paths may have arrived.
    #[test]
    fn paths_that_a_restarted_peer_has_used_keep_their_messages() -> Result {
        let bench = Bench::with_paths(PathCount::Eight)?;
        let connection = bench.connect()?;
        let answered = |number, paths| {
            let exthdr = without_generation(paths);
            let answer = Header {
                exthdr,
                ..answer(number, 1)
            };
            answer_probe(&bench, &connection, number, &answer)
        };
        answered(1, 8)?;
        answered(2, 8)?;
        let path = |path| bench.path(&connection, path);
        eventually(|| (1..8).all(|other| path(other).is_some()))?;
        for other in 1..8 {
            bench.send(&path(other).ok_or(ENODEV)?)?;
        }
        // Otherwise the probes are sent again, and the peer would answer them, too.
        acknowledge_all(&connection)?;
        let laddr = connection.key.laddr;
        bench
            .node
            .reset_connections(connection.key.net, laddr, None, 0);
        answered(3, 4)?;
        answered(4, 4)?;
        let moves = eventually(|| bench.counted("send_moved") >= 4);
        // The worker of the first path lets the other ones move their messages.
        for _ in 0..2 {
            bench.queue.flush();
        }
        let moved = bench.counted("send_moved");
        let is_sent = |other| path(other).is_some_and(|other| other.path.sent() == 1);
        let sent = eventually(|| (1..4).all(is_sent));
        drop(bench);
        assert!(moves.is_ok() && sent.is_ok());
        assert_eq!(moved, 4);
        Ok(())
    }

    /// A peer would wait for paths for which this node has no room.
    #[test]
    fn paths_without_room_are_not_offered() -> Result {
        for (per_peer, paths) in [(1, 1), (7, 4)] {
            let bench = Bench::with(0, PathCount::Eight, per_peer)?;
            let connection = bench.connect()?;
            answer_probe(&bench, &connection, 1, &answer(1, 1))?;
            eventually(|| bench.counted("conn_refused_limit") > 0)?;
            if paths > 1 {
                answer_probe(&bench, &connection, 2, &answer(2, 1))?;
            }
            bench.queue.flush();
            receive(&connection, &probe(3, 1))?;
            let offered = bench.answer().map(|it| it.exthdr);
            let used = bench.used_paths(&connection)?;
            drop(bench);
            assert!(offered.is_some_and(|it| it.starts_with(&[5, 0, paths])));
            assert_eq!(used, usize::from(paths));
        }
        Ok(())
    }

    /// A ping on another path may overtake the map that says that its port has room. Maps of C RDS
    /// may come on that path, too.
    #[test]
    fn a_ping_of_this_module_on_another_path_is_answered_without_the_map() -> Result {
        let bench = Bench::with_paths(PathCount::Eight)?;
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Eight, 1..=2, 1)?;
        let [ours, of_c] = [1, 2].map(|path| bench.path(&connection, path));
        let (ours, of_c) = (ours.ok_or(ENODEV)?, of_c.ok_or(ENODEV)?);
        let without_generation = Header {
            exthdr: [0; SPACE],
            ..Header::congestion_update(0, 1, 0)
        };
        receive_full_map(&connection, &without_generation)?;
        let is_full = connection.is_congested(PORTS.start);
        receive_full_map(&ours, &Header::congestion_update(0, 1, 1))?;
        let counts = || {
            (
                bench.counted("send_pong"),
                bench.counted("send_pong_dropped"),
            )
        };
        let ping = Header {
            sequence: 3,
            sport: PORTS.start,
            dport: PING_PORT,
            ..Header::default()
        };
        let before = counts();
        receive(&ours, &ping)?;
        let after_ours = counts();
        receive(&of_c, &ping)?;
        let after_c = counts();
        receive(&connection, &ping)?;
        let after_first = counts();
        drop(bench);
        assert!(is_full);
        assert_eq!(before, (0, 0));
        assert_eq!((after_ours, after_c, after_first), ((1, 0), (1, 1), (1, 2)));
        Ok(())
    }

    /// The second of two maps on different paths may be the older one, so the port may have room.
    /// The node with the lower address connects all paths for C RDS.
    #[test]
    fn maps_of_c_whose_order_is_unknown_are_requested_again() -> Result {
        let bench = Bench::with_paths(PathCount::Eight)?;
        let connection = bench.connect_as_lower()?;
        negotiate(&bench, &connection, PathCount::Eight, 1..=2, 1)?;
        let other = bench.path(&connection, 1).ok_or(ENODEV)?;
        let last = bench.path(&connection, 7).ok_or(ENODEV)?;
        let up = eventually(|| [&other, &last].iter().all(|it| bench.prepared(it) == 1));
        let (on_first, on_others) = (bench.map_frames(0), bench.map_frames(1));
        let of_c = Header {
            exthdr: [0; SPACE],
            ..Header::congestion_update(0, 1, 0)
        };
        receive_full_map(&connection, &of_c)?;
        receive_full_map(&other, &of_c)?;
        // One with messages under way is not chosen.
        bench.send(&other)?;
        let requested = eventually(|| bench.counted("cong_update_requested") == 1);
        let again = eventually(|| (2..8).any(|it| bench.endpoints(it) == 2));
        let left_alone = bench.prepared(&other) == 1;
        drop((other, last, connection));
        drop(bench);
        assert!(up.is_ok());
        // The map of this node on another path might come too late there.
        assert!(on_first > 0 && on_others == 0);
        assert!(requested.is_ok() && again.is_ok() && left_alone);
        Ok(())
    }

    /// The node with the lower address connects all paths for C RDS. Before the first handshake on
    /// a link only the last link shows which implementation the peer runs.
    #[test]
    fn a_new_link_to_this_module_connects_only_the_first_path() -> Result {
        let bench = Bench::with_paths(PathCount::Eight)?;
        let connection = bench.connect_as_lower()?;
        let introduction = Header::congestion_update(0, 1, 0);
        receive_full_map(&connection, &introduction)?;
        negotiate(&bench, &connection, PathCount::Eight, 1..=2, 1)?;
        bench.end_link(&connection)?;
        bench.send(&connection)?;
        let again = eventually(|| bench.prepared(&connection) == 2);
        // The link is up after that.
        bench.queue.flush();
        receive_full_map(&connection, &introduction)?;
        receive(&connection, &probe(3, 1))?;
        // The worker of the first path lets the other ones connect.
        for _ in 0..2 {
            bench.queue.flush();
        }
        let connected = (1..8).filter(|path| bench.endpoints(*path) > 0).count();
        drop(connection);
        drop(bench);
        assert_eq!((again, connected), (Ok(()), 0));
        Ok(())
    }

    /// The map introduces this node on another path. It does so while the first path has no link.
    #[test]
    fn another_path_of_this_module_begins_with_a_map() -> Result {
        let bench = Bench::with_paths(PathCount::Two)?;
        let connection = bench.connect()?;
        receive_full_map(&connection, &Header::congestion_update(0, 1, 0))?;
        negotiate(&bench, &connection, PathCount::Two, 1..=2, 1)?;
        let other = bench.path(&connection, 1).ok_or(ENODEV)?;
        bench.wire.is_slow.store(true, Relaxed);
        bench.send(&other)?;
        let connects = eventually(|| bench.prepared(&other) == 1);
        bench.queue.flush();
        bench.end_link(&connection)?;
        bench.queue.flush();
        let before = bench.map_frames(1);
        bench.report(&other, EndpointEvent::Established)?;
        let begins = eventually(|| bench.map_frames(1) > 0);
        drop((other, connection));
        drop(bench);
        assert!(connects.is_ok());
        assert_eq!(before, 0);
        assert!(begins.is_ok());
        Ok(())
    }

    /// A peer that has sent a message is no stranger, on any path.
    #[test]
    fn unused_paths_do_not_count_as_strangers() -> Result {
        let bench = Bench::with_paths(PathCount::Eight)?;
        let connection = bench.connect_for(Some(UserId::PEERS))?;
        let before = bench.node.strangers();
        receive(&connection, &again(1))?;
        connection.look_for_message();
        negotiate(&bench, &connection, PathCount::Eight, 1..=2, 1)?;
        connection.look_for_message();
        let after = bench.node.strangers();
        drop(connection);
        drop(bench);
        assert_eq!((before, after), (1, 0));
        Ok(())
    }

    /// A probe counts as a message, and anybody can make this node have a connection.
    #[test]
    fn a_stranger_gets_no_probe_before_its_first_message() -> Result {
        let bench = Bench::with_paths(PathCount::Eight)?;
        let connection = bench.connect_for(Some(UserId::PEERS))?;
        bench.queue.flush();
        let is_used = connection.look_for_message();
        let before = (is_used, bench.counted("send_probe"), bench.node.strangers());
        receive(&connection, &again(1))?;
        let is_used = connection.look_for_message();
        bench.queue.flush();
        let after = (is_used, bench.counted("send_probe"), bench.node.strangers());
        drop(connection);
        drop(bench);
        assert_eq!(before, (false, 0, 1));
        assert_eq!(after, (true, 1, 0));
        Ok(())
    }

    /// Another path is added with an answer, which may be read before the first message.
    #[test]
    fn a_path_from_before_the_first_message_is_of_no_stranger() -> Result {
        let bench = Bench::with_paths(PathCount::Two)?;
        let connection = bench.connect_for(Some(UserId::PEERS))?;
        receive(&connection, &answer(1, 1))?;
        eventually(|| bench.path(&connection, 1).is_some())?;
        let other = bench.path(&connection, 1).ok_or(ENODEV)?;
        bench.queue.flush();
        let of_stranger = || [&connection, &other].map(|it| it.is_of_stranger());
        let before = of_stranger();
        connection.look_for_message();
        let after = of_stranger();
        drop((other, connection));
        drop(bench);
        assert_eq!((before, after), ([true; 2], [false; 2]));
        Ok(())
    }

    /// Returns `true` if a path has no link, and none is wanted.
    fn rests(path: &Connection) -> bool {
        const RESTING: u8 = 0x80;
        path.path.info().flags & RESTING != 0
    }
}
