// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the choice between transports.

use kernel::prelude::*;

#[kunit_tests(rds_transports)]
mod suite {
    use crate::{
        conn::{
            Connection,
            Endpoint,
            Transports, //
        },
        kapi::{
            errno::Errno,
            net::{
                IpBits,
                Net, //
            }, //
        },
        kunit::transport::WithoutMemory,
        loop_transport::Loop,
        recv_pool::Pools,
        socket::{
            Bound,
            Peer,
            TransportId, //
        }, //
    };
    use core::net::{
        Ipv4Addr,
        Ipv6Addr, //
    };
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

    const NODE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    const OTHER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

    #[test]
    fn an_address_selects_its_transport() -> Result {
        let transports = all()?;
        let v4 = Ipv4Addr::new(127, 3, 2, 1).to_ipv6_mapped();
        for loopback in [Ipv6Addr::LOCALHOST, v4] {
            let found = serving(&transports, loopback, None)?;
            assert_eq!(found, Some(TransportId::Loop));
        }
        assert_eq!(serving(&transports, NODE, None)?, Some(TransportId::Ib));
        Ok(())
    }

    #[test]
    fn a_selected_transport_excludes_others() -> Result {
        let transports = all()?;
        let chosen = Some(TransportId::Ib);
        assert_eq!(serving(&transports, Ipv6Addr::LOCALHOST, chosen)?, None);
        assert_eq!(serving(&transports, NODE, chosen)?, chosen);
        Ok(())
    }

    #[test]
    fn a_node_without_a_network_has_loopback_addresses() -> Result {
        let transports = Transports::new().with(Arc::new(Loop, GFP_KERNEL)?);
        let loopback = Ipv6Addr::LOCALHOST;
        let found = serving(&transports, loopback, None)?;
        assert_eq!(found, Some(TransportId::Loop));
        assert_eq!(serving(&transports, NODE, None)?, None);
        // It has neither memory regions nor connections.
        assert_eq!(
            transports.rdma(TransportId::Loop).err(),
            Some(Errno::NotSupported.into())
        );
        let pools = transports.pools(&bound(loopback, TransportId::Loop));
        assert_eq!(pools.err(), Some(Errno::NetUnreachable.into()));
        Ok(())
    }

    /// The programs of a user would have any number of connections with each peer, from as many
    /// addresses.
    #[test]
    fn a_loopback_address_reaches_no_other_node() -> Result {
        let transports = all()?;
        let v4 = Ipv4Addr::new(127, 3, 2, 1).to_ipv6_mapped();
        let errors = [v4, Ipv6Addr::LOCALHOST, NODE].map(|addr| {
            let pools = transports.pools(&bound(addr, TransportId::Ib));
            pools.err()
        });
        let unreachable = Some(Errno::NetUnreachable.into());
        assert_eq!(errors, [unreachable, unreachable, Some(ENODEV)]);
        Ok(())
    }

    #[test]
    fn an_address_reaches_itself_by_loop() -> Result {
        let transports = all()?;
        let at_node = bound(NODE, TransportId::Ib);
        assert_eq!(
            transports.reaching(Net::init(), &at_node, &peer(NODE)),
            TransportId::Loop
        );
        assert_eq!(
            transports.reaching(Net::init(), &at_node, &peer(OTHER)),
            TransportId::Ib
        );
        let at_loopback = bound(Ipv6Addr::LOCALHOST, TransportId::Loop);
        assert_eq!(
            transports.reaching(Net::init(), &at_loopback, &peer(OTHER)),
            TransportId::Loop
        );
        Ok(())
    }

    fn peer(addr: Ipv6Addr) -> Peer {
        Peer {
            addr,
            port: 1,
            scope: 0,
        }
    }

    /// A network that has all addresses.
    struct Network;

    impl WithoutMemory for Network {
        fn pools(&self) -> Result<Arc<Pools>> {
            Err(ENODEV)
        }

        fn prepare(self: Arc<Self>, _: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
            Err(ENODEV)
        }
    }

    fn all() -> Result<Transports> {
        let network = Arc::new(Network, GFP_KERNEL)?;
        let loopback = Arc::new(Loop, GFP_KERNEL)?;
        Ok(Transports::new().with(loopback).with(network))
    }

    fn serving(
        transports: &Transports,
        addr: Ipv6Addr,
        chosen: Option<TransportId>,
    ) -> Result<Option<TransportId>> {
        let addr = IpBits::new(addr);
        match addr.is_loopback() {
            true => transports.serving_loopback(Net::init(), addr, chosen),
            false => transports.serving(Net::init(), addr, 0, || chosen),
        }
    }

    fn bound(addr: Ipv6Addr, transport: TransportId) -> Bound {
        Bound {
            addr,
            port: 4000,
            scope: 0,
            transport,
        }
    }
}
