// SPDX-License-Identifier: GPL-2.0

//! Service of network namespaces other than the initial one. They belong to the initial user
//! namespace: those of other users have no RDMA.
//!
//! # Operation
//!
//! A CM id keeps its namespace from ending, and nobody but this module ends the listeners and the
//! connections of RDS. So they exist only as long as sockets of the namespace are bound to
//! addresses of RDMA devices, which keep it as well. The first bind begins to listen. After the
//! last close the CM ids are kept for [`LINGER_MS`], because programs such as `rds-ping` use many
//! sockets one after another. Then the service ends: there is no listener, and connections are
//! down. The next bind begins again.
//!
//! # Context
//!
//! `Ib::service` is locked while the service begins and ends. Workers only look at `Ib::is_open`,
//! with `Path::worker` held. That is cleared first, so a worker that has seen it set has its
//! endpoint before the service ends the connection.

use super::ib::{
    Ib,
    ServedNode,
    Service, //
};
use crate::{
    cm::{
        laddr::{
            AddrEvents,
            LocalAddrs, //
        },
        Listeners, //
    },
    conn::Node,
    kapi::{
        net::IpBits,
        print::pr_warn_ratelimited,
        sync::cancel_delayed,
        task::without_io, //
    },
    socket::TransportId, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    workqueue::WorkItem, //
};

/// Time from the last close until the CM ids of a namespace are gone, and until it tries again to
/// listen.
const LINGER_MS: u32 = 1000;

/// Number of times that the service waits that long for messages of the CM that cannot be sent.
const MOST_WAITS: u32 = 10;

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Ib { self.linger }
}

impl WorkItem for Ib {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| this.service_again());
    }
}

impl Ib {
    /// Returns `true` if a device has an address. Called until the addresses are cached.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Sleeps. Not for CM handlers.
    #[cold]
    pub(super) fn claims_first(&self, addr: IpBits, scope: u32) -> Result<bool> {
        if !self.owners.may_have(&self.net, addr, scope) {
            return Ok(false);
        }
        without_io(|| self.cache_addrs())?;
        let addrs = self.addrs.as_ref();
        addrs.map_or(Ok(false), |addrs| addrs.has(addr, scope))
    }

    /// Creates the cache of addresses, unless the service has ended. Sleeps.
    fn cache_addrs(&self) -> Result {
        let mut service = self.service.lock();
        if service.ended || self.addrs.as_ref().is_some() {
            return Ok(());
        }
        let addrs = LocalAddrs::new(self.net.clone(), &self.owners)?;
        service.events = Some(AddrEvents::new(&addrs)?);
        let _: bool = self.addrs.populate(addrs.clone());
        addrs.start_later();
        Ok(())
    }

    /// Notes that a socket is about to be bound to an address of a device. May sleep.
    pub(super) fn begin_service(self: &Arc<Self>, node: &Arc<Node>) {
        if !self.is_init() {
            without_io(|| self.begin(node));
        }
    }

    fn begin(self: &Arc<Self>, node: &Arc<Node>) {
        let mut service = self.service.lock();
        service.sockets = service.sockets.saturating_add(1);
        if service.ended {
            return;
        }
        if service.active.is_none() {
            service.active = Some(ServedNode {
                node: node.clone(),
                listeners: None,
            });
            // Before requests of peers arrive.
            self.is_open.store(true, Relaxed);
        }
        self.listen(&mut service);
    }

    /// Creates the listeners, unless there are any, and tries again later if that fails. Until then
    /// this node connects to its peers.
    fn listen(self: &Arc<Self>, service: &mut Service) {
        let Service {
            active: Some(active),
            failure_logged,
            ..
        } = service
        else {
            return;
        };
        if active.listeners.is_some() {
            return;
        }
        match Listeners::new(&active.node, self) {
            Ok(listeners) => {
                active.listeners = Some(listeners);
                *failure_logged = false;
            }
            Err(error) => {
                if !core::mem::replace(failure_logged, true) {
                    pr_warn_ratelimited!("cannot listen in a network namespace: {error:?}\n");
                }
                self.owners.queue().arm(self.clone(), LINGER_MS);
            }
        }
    }

    /// Notes that such a socket was closed, or not bound. May sleep.
    pub(super) fn leave_service(self: &Arc<Self>) {
        if self.is_init() {
            return;
        }
        let mut service = self.service.lock();
        service.sockets = service.sockets.saturating_sub(1);
        service.waits = 0;
        if service.sockets == 0 && !service.ended {
            self.owners.queue().arm(self.clone(), LINGER_MS);
        }
    }

    /// Notes that a CM id is deferred, which keeps the namespace. Any context.
    pub(super) fn end_later(self: &Arc<Self>) {
        if !self.is_init() {
            self.owners.queue().arm_unless_set(self.clone(), LINGER_MS);
        }
    }

    /// Ends the service unless a socket uses it. Otherwise looks after the listeners.
    fn service_again(self: &Arc<Self>) {
        let mut service = self.service.lock();
        if service.ended {
            return;
        }
        if service.sockets > 0 {
            return self.listen(&mut service);
        }
        if let Some(active) = service.active.take() {
            let node = self.close(active);
            node.suspend(TransportId::Ib);
        }
        if !self.deferred.is_used() {
            return;
        }
        // Soft-RoCE must not lose its management queue pair, as long as that can be helped.
        if service.waits >= MOST_WAITS {
            self.clear_deferred();
        }
        service.waits = service.waits.saturating_add(1);
        // Others may have been deferred meanwhile.
        if self.deferred.is_used() {
            self.owners.queue().arm(self.clone(), LINGER_MS);
        }
    }

    /// Ends the listeners. Until the next service no connection gets an endpoint.
    fn close(&self, active: ServedNode) -> Arc<Node> {
        self.is_open.store(false, Relaxed);
        // No request arrives after the drop of the listeners.
        active.node
    }

    /// Destroys the CM ids that are deferred. The removal of a device waits for that.
    fn clear_deferred(&self) {
        // Without memory it only does not wait.
        let _section = self.section().ok();
        self.parking.clear_net(self.net.id());
    }
}

/// The service of a namespace, which has no socket when this is dropped.
///
/// The end has two parts, so that the connections can end together with those of other transports.
/// First [`Self::end`], then `Node::stop`, then the drop of this. Both sleep.
pub(crate) struct IbService(pub(crate) Arc<Ib>);

impl IbService {
    /// Ends the listeners, and with them the requests, for good.
    pub(crate) fn end(&self) {
        without_io(|| {
            let mut service = self.0.service.lock();
            service.ended = true;
            let active = service.active.take();
            drop(service);
            active.map(|active| self.0.close(active))
        });
    }
}

impl Drop for IbService {
    fn drop(&mut self) {
        self.end();
        without_io(|| {
            // Nobody defers another one, or sets the timer, because no connection is left.
            self.0.clear_deferred();
            cancel_delayed::<_, 0>(&self.0);
            drop(self.0.service.lock().events.take());
        });
    }
}
