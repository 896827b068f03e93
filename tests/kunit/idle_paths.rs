// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of idle and forgotten paths of a connection, with a fake TCP transport.

use kernel::prelude::*;

#[kunit_tests(rds_idle_paths)]
mod suite {
    use crate::{
        conn::Connection,
        kapi::task::UserId,
        kunit::{
            tcp_bench::{
                acknowledge_all,
                again,
                answer,
                answer_probe,
                negotiate,
                probe,
                receive,
                Bench, //
            },
            wait::eventually, //
        },
        proto::mprds::PathCount, //
    };
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

    /// The position of a forgotten path is kept as long as the peer runs.
    #[test]
    fn a_forgotten_path_has_new_numbers_after_a_restart() -> Result {
        let forget =
            |bench: &Bench, connection: &_, other: &_| bench.forget_path(connection, other);
        assert_eq!(old_messages_after_forget(forget)?, [1, 0]);
        Ok(())
    }

    /// The generation of the peer is in the position of the first path.
    #[test]
    fn a_settled_path_keeps_its_position_for_others() -> Result {
        let forget = |bench: &Bench, connection: &Arc<Connection>, other: &Connection| {
            bench.forget_path(connection, other)?;
            forget_settled(bench, connection)
        };
        assert_eq!(old_messages_after_forget(forget)?, [1, 0]);
        Ok(())
    }

    /// A connection with one path also keeps the generation, as long as others have positions.
    #[test]
    fn positions_of_paths_outlive_a_setting_of_one_path() -> Result {
        let forget = |bench: &Bench, connection: &Arc<Connection>, other: &Connection| {
            bench.forget_path(connection, other)?;
            forget_settled(bench, connection)?;
            with_one_path(bench, |_| Ok(()))
        };
        assert_eq!(old_messages_after_forget(forget)?, [1, 0]);
        Ok(())
    }

    #[test]
    fn a_restart_with_one_path_ends_the_positions_of_others() -> Result {
        let forget = |bench: &Bench, connection: &Arc<Connection>, other: &Connection| {
            bench.forget_path(connection, other)?;
            forget_settled(bench, connection)?;
            with_one_path(bench, |only| {
                receive(only, &probe(3, 2))?;
                bench.queue.flush();
                acknowledge_all(only)
            })
        };
        assert_eq!(old_messages(2, forget)?, 0);
        Ok(())
    }

    /// Lets the connection have one path, and be forgotten after that.
    fn with_one_path(bench: &Bench, act: impl FnOnce(&Arc<Connection>) -> Result) -> Result {
        bench.wire.set_most(PathCount::One);
        let only = bench.connect()?;
        act(&only)?;
        bench.end_link(&only)?;
        forget_settled(bench, &only)?;
        bench.wire.set_most(PathCount::Two);
        Ok(())
    }

    /// The number of paths is not published before all of them have moved their messages.
    #[test]
    fn a_path_that_is_forgotten_does_not_move_for_ever() -> Result {
        let bench = Bench::with(1, PathCount::Two, 2)?;
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Two, 1..=2, 1)?;
        let other = bench.path(&connection, 1).ok_or(ENODEV)?;
        other.begin_move();
        acknowledge_all(&connection)?;
        bench.forget_path(&connection, &other)?;
        let connection = bench.connect()?;
        let again = negotiate(&bench, &connection, PathCount::Two, 3..=4, 1);
        drop(bench);
        assert!(again.is_ok());
        Ok(())
    }

    /// C RDS is told the number of paths once for each link.
    #[test]
    fn an_idle_first_path_keeps_the_others() -> Result {
        let bench = Bench::with(1, PathCount::Two, 64)?;
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Two, 1..=2, 1)?;
        acknowledge_all(&connection)?;
        // It is forgotten once it has been idle for as long as the first path, and is checked next.
        let another = bench.another(&connection)?;
        let is_idle = eventually(|| {
            connection.path.set_settled();
            another.has_ended()
        });
        let retires = connection.others_retire();
        let used = bench.used_paths(&connection);
        drop(bench);
        assert!(is_idle.is_ok() && !retires);
        assert_eq!(used, Ok(2));
        Ok(())
    }

    /// Near a limit they make room, unless one of them has messages under way.
    #[test]
    fn an_active_first_path_takes_the_others_back() -> Result {
        let bench = Bench::with(1, PathCount::Eight, 8)?;
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Eight, 1..=2, 1)?;
        let other = bench.path(&connection, 1).ok_or(ENODEV)?;
        bench.send(&other)?;
        acknowledge_all(&connection)?;
        let retires = eventually(|| {
            connection.path.set_settled();
            connection.others_retire()
        });
        bench.send(&connection)?;
        let back = eventually(|| !connection.others_retire());
        let used = bench.used_paths(&connection);
        drop(other);
        drop(bench);
        assert_eq!((retires, back), (Ok(()), Ok(())));
        assert!(used.is_ok_and(|used| used > 1));
        Ok(())
    }

    #[test]
    fn paths_are_added_once_there_is_room() -> Result {
        let bench = Bench::with(1, PathCount::Eight, 8)?;
        let connection = bench.connect()?;
        // It rests without messages, so it is forgotten once it is idle.
        let unused = bench.another(&connection)?;
        answer_probe(&bench, &connection, 1, &answer(1, 1))?;
        let refused = eventually(|| bench.counted("conn_refused_limit") > 0);
        // Nothing is left to negotiate.
        answer_probe(&bench, &connection, 2, &answer(2, 1))?;
        let before = bench.path(&connection, 7).is_some();
        let forgotten = eventually(|| unused.has_ended());
        let added = eventually(|| bench.path(&connection, 7).is_some());
        drop((unused, connection));
        drop(bench);
        assert_eq!((refused, forgotten, added), (Ok(()), Ok(()), Ok(())));
        assert!(!before);
        Ok(())
    }

    /// A path may get its first answer from the first one while it is forgotten.
    #[test]
    fn the_answer_of_a_forgotten_stranger_is_counted_once() -> Result {
        let bench = Bench::with(1, PathCount::One, 64)?;
        let connection = bench.connect_for(Some(UserId::PEERS))?;
        let other = bench.another_for(&connection, Some(UserId::PEERS))?;
        let before = bench.node.strangers();
        let ends = eventually(|| other.has_ended());
        let forgotten = bench.node.strangers();
        receive(&other, &again(1))?;
        let has_message = other.look_for_message();
        let after = bench.node.strangers();
        drop((other, connection));
        drop(bench);
        assert!(ends.is_ok() && has_message);
        assert_eq!((before, forgotten, after), (2, 1, 1));
        Ok(())
    }

    /// Waits until a connection without a link is forgotten, whose peer has nothing to retransmit.
    fn forget_settled(bench: &Bench, connection: &Arc<Connection>) -> Result {
        // Another connection to the peer makes the limit near, until it is forgotten, too.
        let another = bench.another(connection)?;
        eventually(|| {
            connection.path.set_settled();
            connection.has_ended() && another.has_ended()
        })
    }

    /// Calls [`old_messages`] without a restart of the peer, and with one.
    fn old_messages_after_forget(
        forget: impl Fn(&Bench, &Arc<Connection>, &Connection) -> Result,
    ) -> Result<[u64; 2]> {
        Ok([old_messages(1, &forget)?, old_messages(2, &forget)?])
    }

    /// Lets a connection be forgotten whose other path has received messages, and receives an old
    /// one there again. The peer had generation 1, and has this one then. Returns the number of
    /// messages that are dropped as duplicates.
    fn old_messages(
        generation: u8,
        forget: impl Fn(&Bench, &Arc<Connection>, &Connection) -> Result,
    ) -> Result<u64> {
        let bench = Bench::with(1, PathCount::Two, 2)?;
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Two, 1..=2, 1)?;
        let other = bench.path(&connection, 1).ok_or(ENODEV)?;
        for sequence in [1, 9] {
            receive(&other, &again(sequence))?;
        }
        acknowledge_all(&connection)?;
        forget(&bench, &connection, &other)?;
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Two, 3..=4, generation)?;
        let other = bench.path(&connection, 1).ok_or(ENODEV)?;
        // The peer connects this path only after that.
        eventually(|| !other.has_to_move())?;
        receive(&other, &again(5))?;
        Ok(bench.counted("recv_drop_old_seq"))
    }
}
