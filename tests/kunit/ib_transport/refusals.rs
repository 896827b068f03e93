// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of operations that a connection cannot carry.

use kernel::prelude::*;

#[kunit_tests(rds_ib_refusals)]
mod suite {
    use super::super::bench::*;
    use crate::{
        kapi::{
            net::FakeSocket,
            rdma::{
                fake::local_piece,
                OperationItem,
                Verb, //
            },
            sync::{
                Fifo,
                Item, //
            }, //
        },
        kunit::transport,
        msg::{
            FollowUp,
            Message,
            RdmaOp, //
        },
        proto::faults::Admission,
        socket::Socket,
        stats::Counter, //
    };
    use kernel::{
        prelude::*,
        sync::atomic::Relaxed, //
    };

    const PORT: u16 = 4000;
    /// Number of operations that one transmission ends.
    const AT_ONCE: u32 = 256;
    const COUNT: u32 = 3 * AT_ONCE + 1;

    /// Any number of operations may wait for a link, and its peer may serve none of them.
    #[test]
    fn many_operations_without_a_responder_end_in_batches() -> Result {
        assert_eq!(end_all(COUNT, 0)?, AT_ONCE);
        Ok(())
    }

    /// The third operation exceeds the limit, as each area counts.
    #[test]
    fn operations_of_many_areas_end_in_smaller_batches() -> Result {
        assert_eq!(end_all(20, 100)?, 300);
        Ok(())
    }

    /// Ends `count` operations of `areas` areas each, which the peer does not serve. Returns the
    /// most that one transmission has ended.
    fn end_all(count: u32, areas: usize) -> Result<u32> {
        let bench = Bench::new(Setup::default())?;
        let sk = FakeSocket::<Socket>::new()?;
        bench.wire.waits.store(true, Relaxed);
        let connection = bench.connection()?;
        bench.send(&connection, 1)?;
        bench.await_receives(1, RECEIVES)?;
        let qp = bench.qp().ok_or(ENODEV)?;
        let pools = bench.pools().ok_or(ENODEV)?;
        for token in 0..count {
            let op = transport::operation(&sk, token.into(), areas, false)?;
            let local = local_piece(&qp.handler().device.pd, 8);
            let read = OperationItem::new(Verb::Read, local, 2, 0x9000, true, op.clone());
            let mut to_post = Fifo::new();
            to_post.push_back(Item::new(read, GFP_KERNEL)?);
            let how = (false, FollowUp::Nothing);
            let op = RdmaOp::new(&op, to_post, how, None, Admission::default())?;
            let mut message = Message::empty(&pools, PORT, PORT)?;
            message.ops.operation = Some(op);
            connection.send(message).map_err(|_| EINVAL)?;
        }
        qp.handler().shared.set_initiator_depth(0);
        bench.establish();
        bench.await_counted(Counter::SendDropOperation, count.into())?;
        let most = connection.path.most_ended();
        bench.await_sends(1, MAP + 1)?;
        drop(qp);
        let left = bench.end(connection);
        assert_eq!(left, 0);
        Ok(most)
    }
}
