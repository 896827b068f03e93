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
            SocketBudget,
            SocketSlot,
            TableSlot,
            Transports,
            Tunables, //
        },
        kapi::{
            net::{
                Net,
                NetRef, //
            },
            sync::OwnedQueue,
            task::UserId, //
        },
        kunit::transport,
        loop_transport::Loop,
        msg::PongBudget,
        proto::{
            attempts::{
                self,
                AttemptKind,
                AttemptPlace, //
            },
            idle::IdleTimeouts, //
        },
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

    /// Number of sockets that may wait.
    const SOCKETS: usize = 6;

    /// Nodes that share their limits.
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
                sockets: SocketBudget::new(SOCKETS)?,
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
            self.connect_for(USER, Net::init(), node, numbers)
        }

        /// The same for any user in a network namespace.
        fn connect_for(
            &self,
            user: Option<UserId>,
            net: Net,
            node: usize,
            numbers: Range<u16>,
        ) -> usize {
            let Some(node) = self.nodes.get(node) else {
                return 0;
            };
            let may = |n: &u16| {
                let key = ConnKey {
                    net,
                    faddr: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, *n),
                    ..transport::key()
                };
                let has_place = node.has_place(&key, user);
                let pools = || Ok(self.unmapped.pools().clone());
                node.connection(key, user, pools).is_ok() && has_place
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

    #[test]
    fn peers_of_a_namespace_leave_room_to_those_of_others() -> Result {
        let bench = Bench::new()?;
        let peers = Some(UserId::PEERS);
        let [one, two] = [Net::other(1), Net::other(2)];
        // Half of the room, and then half of the rest.
        let first = bench.connect_for(peers, one, 0, 0..64);
        let second = bench.connect_for(peers, two, 1, 0..64);
        let user = bench.connect_for(USER, two, 1, 100..164);
        bench.nodes[0].stop();
        bench.nodes[1].stop();
        assert_eq!((first, second), (32, 16));
        assert_eq!(user, 16);
        Ok(())
    }

    /// Programs of all containers may run as root.
    #[test]
    fn users_of_a_namespace_of_root_leave_room_to_those_of_others() -> Result {
        let bench = Bench::new()?;
        let [one, two] = [Net::other(1), Net::other(2)];
        let first = bench.connect_for(USER, one, 0, 0..64);
        let second = bench.connect_for(USER, two, 1, 0..64);
        bench.nodes[0].stop();
        bench.nodes[1].stop();
        assert_eq!((first, second), (32, 16));
        Ok(())
    }

    #[test]
    fn a_user_has_one_share_in_all_his_namespaces() -> Result {
        let limits = NodeLimits {
            quota: Some(ConnQuota::new(BOUNDS)?),
            ..NodeLimits::of_one(BOUNDS)?
        };
        let mut charges = KVec::new();
        let mut count = [0; 2];
        for (index, count) in count.iter_mut().enumerate() {
            for n in 0..64 {
                let key = ConnKey {
                    net: Net::other(index + 1),
                    faddr: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, n),
                    ..transport::key()
                };
                let charge = limits.charge_for(key, USER, true).ok_or(EINVAL)?;
                *count += usize::from(charge.charge(TableSlot::new()?).is_ok());
                charges.push(charge, GFP_KERNEL)?;
            }
        }
        drop(charges);
        assert_eq!(count, [32, 0]);
        Ok(())
    }

    #[test]
    fn attempts_of_a_user_are_limited_in_all_namespaces() -> Result {
        let quota = ConnQuota::new(Bounds {
            all: 1024,
            per_peer: 1024,
        })?;
        let limits = NodeLimits {
            quota: Some(quota),
            ..NodeLimits::of_one(BOUNDS)?
        };
        let charge = |net, user| {
            let key = ConnKey {
                net,
                ..transport::key()
            };
            let charge = limits.charge_for(key, user, true).ok_or(EINVAL)?;
            charge.charge(TableSlot::new()?).map_err(|_| ENOMEM)?;
            Ok::<_, Error>(charge)
        };
        let (first, second) = (charge(Net::other(1), USER)?, charge(Net::other(2), USER)?);
        let other = charge(Net::other(3), Some(UserId::new(8)))?;
        let peers = charge(Net::other(4), None)?;
        let kind = AttemptKind::First;
        for charge in [&first, &second].iter().cycle().take(attempts::MOST) {
            assert!(matches!(charge.begin_attempt(kind), Ok(Some(_))));
        }
        let refused = [&first, &second].map(|it| it.begin_attempt(kind).is_err());
        let others = [&other, &peers].map(|it| it.begin_attempt(kind).is_ok());
        second.end_attempt(AttemptPlace::First);
        let again = first.begin_attempt(kind).is_ok();
        assert_eq!((refused, others, again), ([true; 2], [true; 2], true));
        Ok(())
    }

    #[test]
    fn sockets_that_wait_have_one_limit_in_all_nodes() -> Result {
        let bench = Bench::new()?;
        let [first, second] = &bench.nodes;
        let mut slots = KVec::new();
        for node in [first, second].iter().cycle().take(SOCKETS) {
            slots.push(node.socket_slot(), GFP_KERNEL)?;
        }
        let taken = slots.iter().flatten().count();
        // Those that got none must not count.
        let full = [first, second, first].map(|node| node.socket_slot().is_none());
        drop(slots.pop());
        let again = second.socket_slot();
        let one = (again.is_some(), first.socket_slot().is_none());
        drop((slots, again));
        let all = [(); SOCKETS].map(|()| first.socket_slot());
        assert_eq!((taken, full), (SOCKETS, [true; 3]));
        assert_eq!(one, (true, true));
        assert!(all.iter().all(Option::is_some) && second.socket_slot().is_none());
        Ok(())
    }

    #[test]
    fn namespaces_of_users_leave_half_of_the_waiting_sockets_to_root() -> Result {
        let budget = SocketBudget::new(SOCKETS)?;
        let count = |slots: &[Option<SocketSlot>]| slots.iter().flatten().count();
        let of_users = [(); SOCKETS].map(|()| budget.take(true));
        let of_root = [(); SOCKETS].map(|()| budget.take(false));
        assert_eq!((count(&of_users), count(&of_root)), (3, 3));
        drop(of_users);
        // Those of root take the place of users, too.
        let more = [(); SOCKETS].map(|()| budget.take(false));
        let none = budget.take(true);
        assert_eq!((count(&more), none.is_none()), (3, true));
        Ok(())
    }

    #[test]
    fn namespaces_of_users_leave_half_of_the_pongs_to_root() -> Result {
        let budget = PongBudget::new()?;
        let mut slots = KVec::new();
        let mut take_all = |is_of_user| {
            let mut count = 0;
            while let Some(slot) = budget.take(is_of_user, false) {
                slots.push(slot, GFP_KERNEL)?;
                count += 1;
            }
            Ok::<_, Error>(count)
        };
        let of_users = take_all(true)?;
        // Each connection may have a few, whatever others have.
        let few = [(); 16].map(|()| budget.take(true, true));
        let taken = (of_users, take_all(false)?, take_all(true)?);
        assert!(few.iter().all(Option::is_some));
        assert_eq!(taken, (8192, 8192, 0));
        Ok(())
    }

    #[test]
    fn attempts_have_a_distance_outside_of_the_initial_namespace() {
        let [initial, other] = [Tunables::new(), Tunables::of_other()].map(|tunables| {
            tunables.set_delays(1);
            tunables.timing().backoff_max_ms
        });
        assert_eq!((initial, other), (1, 1000));
    }
}
