// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of several paths to C RDS with the higher address, with a fake TCP transport. It
//! neither connects another path nor asks for it.

use kernel::prelude::*;

#[kunit_tests(rds_paths_to_c)]
mod suite {
    use crate::{
        conn::{
            Connection,
            EndpointEvent, //
        },
        kunit::{
            tcp_bench::{
                acknowledge_all,
                answer,
                answer_probe,
                connect_to_higher,
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
        sync::{
            atomic::Relaxed,
            Arc, //
        }, //
    };

    /// Number of paths.
    const PATHS: u8 = 8;

    /// Returns the paths of a connection that exist.
    fn paths<'a>(
        bench: &'a Bench,
        first: &'a Connection,
    ) -> impl Iterator<Item = Arc<Connection>> + 'a {
        (0..PATHS).filter_map(move |path| bench.path(first, path))
    }

    /// Waits for some checks of idle connections, in which no path has to be kept for its peer.
    fn check_all(bench: &Bench, first: &Connection) -> Result {
        for _ in 0..2 {
            // It rests without messages, so it is forgotten once it is idle.
            let unused = bench.to_another_peer(first)?;
            eventually(|| {
                paths(bench, first).for_each(|path| path.path.set_settled());
                unused.has_ended()
            })?;
        }
        Ok(())
    }

    #[test]
    fn near_a_limit_paths_stay_as_long_as_the_first_one_is_up() -> Result {
        let bench = Bench::with(1, PathCount::Eight, 8)?;
        let connection = connect_to_higher(&bench)?;
        let count = || paths(&bench, &connection).count();
        let before = eventually(|| count() == usize::from(PATHS));
        acknowledge_all(&connection)?;
        let checked = check_all(&bench, &connection);
        let after = count();
        drop(connection);
        drop(bench);
        assert_eq!((before, checked), (Ok(()), Ok(())));
        assert_eq!(after, usize::from(PATHS));
        Ok(())
    }

    /// C RDS may have messages on paths for which there is no room.
    #[test]
    fn near_a_limit_the_first_path_stays_if_others_are_missing() -> Result {
        let bench = Bench::with(1, PathCount::Eight, 1)?;
        let connection = bench.connect_as_lower()?;
        receive(&connection, &probe(1, 1))?;
        answer_probe(&bench, &connection, 1, &answer(2, 1))?;
        let refused = eventually(|| bench.counted("conn_refused_limit") > 0);
        acknowledge_all(&connection)?;
        let checked = check_all(&bench, &connection);
        let has_ended = connection.has_ended();
        drop(connection);
        drop(bench);
        assert_eq!((refused, checked), (Ok(()), Ok(())));
        assert!(!has_ended);
        Ok(())
    }

    /// The first path wakes the others, so a peer that is gone costs little.
    #[test]
    fn without_messages_a_path_waits_long_for_the_first_one() -> Result {
        const LONG: u64 = 20_000_000_000;
        let bench = Bench::with_paths(PathCount::Eight)?;
        let connection = connect_to_higher(&bench)?;
        eventually(|| paths(&bench, &connection).count() == usize::from(PATHS))?;
        let other = bench.path(&connection, 1).ok_or(ENODEV)?;
        eventually(|| bench.prepared(&other) == 1)?;
        bench.wire.is_slow.store(true, Relaxed);
        bench.end_link(&connection)?;
        let again = eventually(|| bench.prepared(&connection) == 2);
        bench.end_link(&other)?;
        let waits = eventually(|| other.path.timer_left_ns() > LONG);
        bench.report(&connection, EndpointEvent::Established)?;
        bench.queue.flush();
        receive(&connection, &probe(4, 1))?;
        let allowed = eventually(|| bench.prepared(&other) == 2);
        drop((other, connection));
        drop(bench);
        assert_eq!((again, waits, allowed), (Ok(()), Ok(()), Ok(())));
        Ok(())
    }
}
