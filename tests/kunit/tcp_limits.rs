// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the limits over TCP for those whom nobody knows.

use kernel::prelude::*;

#[kunit_tests(rds_tcp_limits)]
mod suite {
    use crate::{
        conn::Connection,
        kapi::{
            net::NetRef,
            task::UserId,
            time, //
        },
        kunit::{
            tcp_bench::Bench,
            transport::pool_shared, //
        },
        proto::{
            mprds::PathCount,
            SECOND, //
        },
        recv_pool::Context,
        tcp_transport::{
            PartialLimit,
            Tcp,
            TcpShared,
            TcpTunables, //
        }, //
    };
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

    /// A connection, and the transport of its network namespace.
    type Peer = (Arc<Tcp>, Arc<Connection>);

    /// Returns a known peer and a stranger of the initial namespace, and known peers in those of
    /// two users.
    fn peers(bench: &Bench) -> Result<[Peer; 4]> {
        let shared = TcpShared::new(pool_shared(&bench.queue, 16 << 20)?)?;
        let tcp = |net| Tcp::new(&shared, net, Arc::new(TcpTunables::new(), GFP_KERNEL)?);
        let of_user = |user| tcp(NetRef::init_of(UserId::new(user))?);
        let initial = tcp(NetRef::init()?)?;
        let stranger = bench.connect_for(Some(UserId::PEERS))?;
        let known = bench.another(&stranger)?;
        Ok([
            (initial.clone(), known.clone()),
            (initial, stranger),
            (of_user(7)?, known.clone()),
            (of_user(8)?, known),
        ])
    }

    #[test]
    fn strangers_and_users_have_limits_of_their_own() -> Result {
        let bench = Bench::with(0, PathCount::One, 2)?;
        let peers = peers(&bench)?;
        let limited = peers
            .each_ref()
            .map(|(tcp, peer)| tcp.memory_to_read(peer, Context::MaySleep).limit.is_some());
        let [_, (of_strangers, _), (of_user, _), (of_other, _)] = &peers;
        let most = PartialLimit::of_pool(0).of_frame(true);
        let mut charges = [of_strangers, of_user].map(|tcp| tcp.partial_charge());
        let filled = charges.each_mut().map(|charge| charge.add(most, most));
        let add = |tcp: &Arc<Tcp>| tcp.partial_charge().add(1, most);
        let full = [of_strangers, of_user, of_other].map(|tcp| !add(tcp));
        drop(charges);
        let free = [of_strangers, of_user, of_other].map(add);
        drop(bench);
        assert_eq!(limited, [false, true, true, true]);
        // All namespaces of users have one limit.
        assert_eq!((filled, full, free), ([true; 2], [true; 3], [true; 3]));
        Ok(())
    }

    #[test]
    fn known_peers_strangers_and_users_are_given_up_in_turns_of_their_own() -> Result {
        let bench = Bench::with(0, PathCount::One, 2)?;
        let peers = peers(&bench)?;
        let now = time::monotonic_ns();
        let given_up = |now| {
            peers
                .each_ref()
                .map(|(tcp, peer)| tcp.may_give_up(peer, now))
        };
        let first = given_up(now);
        let at_once = given_up(now);
        let later = given_up(now + SECOND);
        drop(bench);
        // The users share their turns.
        assert_eq!(first, [true, true, true, false]);
        assert_eq!((at_once, later), ([false; 4], first));
        Ok(())
    }
}
