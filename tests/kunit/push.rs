// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of programs that send on a stream without its work, with a fake TCP transport.

use kernel::prelude::*;

#[kunit_tests(rds_push)]
mod suite {
    use crate::{
        conn::Connection,
        kunit::tcp_bench::{
            acknowledge_all,
            Bench,
            PORTS, //
        },
        msg::Message, //
    };
    use kernel::{
        prelude::*,
        sync::{
            atomic::Relaxed,
            Arc, //
        }, //
    };

    /// Many messages are sent with one call by the work.
    #[test]
    fn a_program_pushes_if_nothing_is_on_the_way() -> Result {
        let bench = Bench::new(0)?;
        let connection = bench.connect()?;
        let mut pushes = [(0, 0); 3];
        let (first, others) = pushes.split_at_mut(1);
        send(&bench, &connection)?;
        first.fill(bench.wire.pushes());
        for after in others {
            // One waits for its acknowledgement now.
            send(&bench, &connection)?;
            *after = bench.wire.pushes();
            acknowledge_all(&connection)?;
            send(&bench, &connection)?;
        }
        let last = bench.wire.pushes();
        drop(bench);
        assert_eq!(pushes, [(1, 0), (1, 0), (2, 0)]);
        assert_eq!(last, (3, 0));
        Ok(())
    }

    #[test]
    fn a_busy_stream_is_pushed_later() -> Result {
        let bench = Bench::new(0)?;
        let connection = bench.connect()?;
        bench.wire.is_busy.store(true, Relaxed);
        send(&bench, &connection)?;
        let busy = bench.wire.pushes();
        drop(bench);
        assert_eq!(busy, (1, 1));
        Ok(())
    }

    /// The work item or an interrupt must not take the locks of a program, so it leaves the frames
    /// to the work.
    #[test]
    fn only_programs_push() -> Result {
        let bench = Bench::new(0)?;
        let connection = bench.connect()?;
        bench.send(&connection)?;
        let pushes = bench.wire.pushes();
        let left = bench.wire.left_to_caller.load(Relaxed);
        acknowledge_all(&connection)?;
        send(&bench, &connection)?;
        let by_program = bench.wire.left_to_caller.load(Relaxed);
        acknowledge_all(&connection)?;
        bench.send(&connection)?;
        let after = bench.wire.left_to_caller.load(Relaxed);
        drop(bench);
        assert_eq!((pushes, left), ((0, 0), 0));
        assert_eq!((by_program, after), (1, 1));
        Ok(())
    }

    /// A program may lose its CPU before it pushes. What others have left to it must not wait.
    #[test]
    fn a_program_does_not_push_for_others() -> Result {
        let bench = Bench::new(0)?;
        let connection = bench.connect()?;
        let sent = || bench.wire.transmissions.load(Relaxed);
        let before = sent();
        *bench.wire.asks.lock() = Some(connection.clone());
        send(&bench, &connection)?;
        let after = sent() - before;
        let left = bench.wire.left_to_caller.load(Relaxed);
        drop(connection);
        drop(bench);
        assert_eq!((after, left), (2, 1));
        Ok(())
    }

    fn send(bench: &Bench, connection: &Arc<Connection>) -> Result {
        let message = Message::empty(bench.wire.unmapped.pools(), PORTS.start, PORTS.start)?;
        connection.send_by_port(message).map_err(|_| EINVAL)
    }
}
