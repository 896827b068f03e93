// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of several paths to C RDS with the higher address, with a fake TCP transport. It
//! neither connects another path nor asks for it.

use kernel::prelude::*;

#[kunit_tests(rds_paths_to_c)]
mod suite {
    use crate::{
        conn::Connection,
        kunit::{
            tcp_bench::{
                acknowledge_all,
                answer,
                answer_probe,
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
            let unused = bench.another(first)?;
            eventually(|| {
                paths(bench, first).for_each(|path| path.path.set_settled());
                unused.has_ended()
            })?;
        }
        Ok(())
    }

    /// Returns a connection to the peer with eight paths that it may use.
    fn connect(bench: &Bench) -> Result<Arc<Connection>> {
        let connection = bench.connect_as_lower()?;
        receive(&connection, &probe(1, 1))?;
        for number in 1..=2 {
            answer_probe(bench, &connection, number, &answer(1 + number, 1))?;
        }
        Ok(connection)
    }

    #[test]
    fn near_a_limit_paths_stay_as_long_as_the_first_one_is_up() -> Result {
        let bench = Bench::with(1, PathCount::Eight, 9)?;
        let connection = connect(&bench)?;
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
}
