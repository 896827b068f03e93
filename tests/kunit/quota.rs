// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the limit on connections that several nodes share.

use kernel::prelude::*;

#[kunit_tests(rds_quota)]
mod suite {
    use crate::{
        conn::{
            Bounds,
            ConnKey,
            ConnQuota,
            Node,
            NodeLimits,
            Transports,
            Tunables, //
        },
        kapi::{
            net::NetRef,
            sync::OwnedQueue,
            task::UserId, //
        },
        kunit::transport,
        loop_transport::Loop,
        proto::idle::IdleTimeouts,
        recv_pool::{
            Counters,
            Limit,
            PoolShared,
            Unmapped, //
        },
        socket::SharedState, //
    };
    use core::{
        net::Ipv6Addr,
        ops::Range, //
    };
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

    const USER: Option<UserId> = Some(UserId::new(7));
    const BOUNDS: Bounds = Bounds {
        all: 64,
        per_peer: 64,
    };

    /// Nodes that share a quota.
    struct Bench {
        nodes: [Arc<Node>; 2],
        unmapped: Unmapped,
    }

    impl Bench {
        fn new() -> Result<Self> {
            let queue = Arc::new(OwnedQueue::new(c"rds_kunit")?, GFP_KERNEL)?;
            let pool_shared = PoolShared {
                most: Arc::new(Limit::new(4 << 20), GFP_KERNEL)?,
                counters: Arc::new(Counters::new(), GFP_KERNEL)?,
                queue: queue.clone(),
            };
            let shared = SharedState::new(queue.clone(), 1 << 20)?;
            let transports = Transports::new().with(Arc::new(Loop, GFP_KERNEL)?);
            let limits = NodeLimits {
                quota: Some(ConnQuota::new(BOUNDS)?),
                ..NodeLimits::of_one(BOUNDS)?
            };
            let node = || {
                Node::new(
                    NetRef::init()?,
                    shared.clone(),
                    transports.clone(),
                    queue.clone(),
                    Arc::new(Tunables::new(), GFP_KERNEL)?,
                    limits.clone(),
                    IdleTimeouts::new(0),
                )
            };
            Ok(Self {
                nodes: [node()?, node()?],
                unmapped: Unmapped::new(&pool_shared)?,
            })
        }

        /// Returns how many connections with these numbers a user gets.
        fn connect(&self, node: usize, numbers: Range<u16>) -> usize {
            let Some(node) = self.nodes.get(node) else {
                return 0;
            };
            let may = |n: &u16| {
                let key = ConnKey {
                    faddr: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, *n),
                    ..transport::key()
                };
                let has_place = node.has_place(&key, USER);
                let pools = || Ok(self.unmapped.pools().clone());
                node.connection(key, USER, pools).is_ok() && has_place
            };
            numbers.filter(may).count()
        }
    }

    #[test]
    fn a_user_has_one_share_in_all_nodes() -> Result {
        let bench = Bench::new()?;
        let first = bench.connect(0, 0..20);
        let second = bench.connect(1, 20..40);
        let full = bench.connect(0, 40..41);
        // Connections that exist need no room.
        let known = bench.connect(0, 0..20);
        bench.nodes[0].stop();
        let again = bench.connect(1, 50..80);
        bench.nodes[1].stop();
        assert_eq!((first, second, full), (20, 12, 0));
        assert_eq!((known, again), (20, 20));
        Ok(())
    }
}
