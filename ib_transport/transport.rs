// SPDX-License-Identifier: GPL-2.0

//! Interface of the transport to connections and sockets, and to the listeners.

use super::{
    endpoint::{
        IbEndpoint,
        IncomingConnection, //
    },
    endpoint_list::Hold,
    ib::{
        Ib,
        IbShared, //
    },
    private::socket_addr, //
};
use crate::{
    cm::RequestSink,
    conn::{
        Connection,
        Endpoint,
        Node,
        Request,
        Transport, //
    },
    kapi::{
        errno::Errno,
        net::{
            IpBits,
            Net, //
        },
        pin::PinnedMemory,
        rdma::{
            Access,
            IbDevice,
            IncomingRequest, //
        }, //
    },
    proto::{
        ib_private::Agreed,
        wire::FragmentSize, //
    },
    rdma_mem::{
        Mapped,
        MrDevice,
        OnRelease,
        OpKind,
        RdmaOps,
        RemoteMemory, //
    },
    recv_pool::{
        PoolUsage,
        Pools, //
    },
    socket::TransportId, //
};
use core::net::Ipv6Addr;
use kernel::{
    fmt,
    prelude::*,
    sync::Arc, //
};

impl Transport for Ib {
    fn id(&self) -> TransportId {
        TransportId::Ib
    }

    fn fragment(&self) -> FragmentSize {
        self.fragment
    }

    fn claims(&self, _net: Net, addr: IpBits, scope: u32) -> Result<bool> {
        match self.addrs.as_ref() {
            Some(addrs) => addrs.has(addr, scope),
            None => self.claims_first(addr, scope),
        }
    }

    fn begin_use(self: Arc<Self>, node: &Arc<Node>) {
        self.begin_service(node);
    }

    fn end_use(self: Arc<Self>) {
        self.leave_service();
    }

    fn pools(&self, addr: Ipv6Addr, scope: u32) -> Result<Arc<Pools>> {
        let device = self.device_of(addr, scope)?;
        let pools = device.as_ref().map(|device| &device.pools);
        Ok(pools.unwrap_or(self.unmapped.pools()).clone())
    }

    fn rdma(&self) -> Option<&dyn RdmaOps> {
        // The queue pair that registers memory would keep another namespace from ending.
        self.is_init().then_some(self as &dyn RdmaOps)
    }

    fn pool_limit(&self) -> usize {
        self.pool_shared.most.shared_bytes()
    }

    fn add_pools(&self, pool_usage: &mut PoolUsage) {
        if !self.is_init() {
            return;
        }
        self.unmapped.pools().add_to(pool_usage);
        for device in self.devices.lock().iter() {
            device.pools.add_to(pool_usage);
        }
    }

    fn for_each_counter(&self, each: &mut dyn FnMut(&'static str, u64)) {
        // All namespaces have the same names. The numbers are of the machine.
        let is_init = self.is_init();
        let each = &mut |name, value| each(name, if is_init { value } else { 0 });
        // Those of all transports: their pools share these counters.
        self.pool_shared.counters.for_each(each);
        let mut kept = 0usize;
        for device in self.devices.lock().iter() {
            kept = kept.saturating_add(device.pd.kept());
        }
        // MRs that their devices failed to destroy: see Documentation/rdma.md.
        each("ib_mr_kept", kept as u64);
    }

    fn for_each_pools(&self, each: &mut dyn FnMut(&dyn fmt::Display, &Pools)) {
        if !self.is_init() {
            return;
        }
        for at in 0.. {
            // `each` is called without the lock.
            let device = self.devices.lock().get(at).cloned();
            let Some(device) = device else {
                break;
            };
            let rdma = device.pd.device();
            rdma.with_name(|name| each(&name, &device.pools));
        }
        each(&"none", self.unmapped.pools());
    }

    fn prepare(self: Arc<Self>, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
        IbEndpoint::resolve(&self, connection)
    }
}

impl RdmaOps for Ib {
    fn register(
        &self,
        addr: Ipv6Addr,
        scope: u32,
        memory: PinnedMemory,
        access: Access,
    ) -> Result<KBox<dyn RemoteMemory>> {
        let device = self.device_of(addr, scope)?.ok_or(ENODEV)?;
        let access = match access {
            Access::Writable { .. } => Access::Writable {
                atomics: device.caps.atomics,
            },
            other => other,
        };
        let addr = socket_addr(addr, 0, scope);
        let held = device.regions.register(&addr, memory, access)?;
        Ok(KBox::new(held, GFP_KERNEL)?)
    }

    fn max_contiguous_map(&self, addr: Ipv6Addr, scope: u32) -> Result<u64> {
        let device = self.device_of(addr, scope)?.ok_or(ENODEV)?;
        Ok(device.regions.max_contiguous_map())
    }

    fn bounce_limit(&self, addr: Ipv6Addr, scope: u32) -> Result<Option<usize>> {
        let device = self.device_of(addr, scope)?;
        Ok(device.and_then(|device| device.caps.bounce_limit))
    }

    fn map(
        &self,
        addr: Ipv6Addr,
        scope: u32,
        memory: PinnedMemory,
        needs: OpKind,
        then: Arc<dyn OnRelease>,
    ) -> Result<Mapped> {
        let device = self.device_of(addr, scope)?.ok_or(ENODEV)?;
        let caps = &device.caps;
        let has = |masked| caps.max_initiator_depth > 0 && !device.pd.refuses_atomics(masked);
        let able = match needs {
            OpKind::Write => true,
            OpKind::Read => caps.max_initiator_depth > 0,
            OpKind::Atomic => caps.atomics && has(false),
            OpKind::MaskedAtomic => caps.masked_atomics && has(true),
        };
        if !able {
            return Err(Errno::NotSupported.into());
        }
        let access = match needs {
            OpKind::Write => Access::Source,
            _ => Access::Sink {
                by_peer: caps.read_sink_is_remote,
            },
        };
        let addr = socket_addr(addr, 0, scope);
        let (held, pieces) = device.regions.map(&addr, memory, access, then)?;
        Ok(Mapped {
            memory: KBox::new(held, GFP_KERNEL_ACCOUNT)?,
            pieces,
            completion_is_local_only: needs == OpKind::Write && caps.writes_complete_locally,
        })
    }

    fn flush_memory(&self, addr: Ipv6Addr, scope: u32) -> Result {
        if let Some(device) = self.device_of(addr, scope)? {
            device.regions.flush();
        }
        Ok(())
    }
}

impl RequestSink for Ib {
    type Hold = Hold;

    fn hold(&self, device: &IbDevice) -> Option<(Hold, Arc<Pools>)> {
        IbShared::hold(self, device)
    }

    fn park(this: &Arc<Self>, request: IncomingRequest) -> bool {
        this.park_request(request)
    }

    fn incoming(
        this: &Arc<Self>,
        request: IncomingRequest,
        agreed: Agreed,
        credit: u32,
        hold: Hold,
    ) -> Result<KBox<dyn Request>> {
        let incoming = IncomingConnection::new(this.clone(), request, agreed, credit, hold);
        Ok(KBox::new(incoming, GFP_KERNEL)?)
    }
}
