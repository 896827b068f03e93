// SPDX-License-Identifier: GPL-2.0

//! Notification of changes to local network addresses.
//!
//! C headers: [`include/linux/notifier.h`](srctree/include/linux/notifier.h),
//! [`include/linux/inetdevice.h`](srctree/include/linux/inetdevice.h),
//! [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use super::{
    NetRef,
    NetUse, //
};
use crate::bindings;
use core::marker::PhantomPinned;
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// Receiver of change notifications.
pub(crate) trait Watch: Send + Sync + 'static {
    /// Called after a change. The callee looks up the new state itself.
    ///
    /// # Context
    ///
    /// Any context except hard interrupts, with locks of the network stack or of the RDMA core
    /// held. It must not sleep. It must not take a lock under which the network stack or the RDMA
    /// core is called.
    fn changed(self: &Arc<Self>);
}

/// C interface of one notifier chain.
///
/// The block passed to its functions must be initialised and must not move while it is registered.
/// The namespace must be alive. `unregister` takes a registered block and its namespace. There are
/// no other requirements.
struct NotifierChain {
    register: unsafe fn(*mut bindings::net, *mut bindings::notifier_block) -> c_int,
    /// Removes the block. After it returns, the callback neither runs nor will run.
    unregister: unsafe fn(*mut bindings::net, *mut bindings::notifier_block),
}

/// Changes of IPv4 addresses. Callbacks run with RTNL held.
const INET: NotifierChain = NotifierChain {
    register: |_, block| {
        // SAFETY: As `NotifierChain` says.
        unsafe { bindings::register_inetaddr_notifier(block) }
    },
    unregister: |_, block| {
        // SAFETY: As `NotifierChain` says.
        unsafe { bindings::unregister_inetaddr_notifier(block) };
    },
};

/// Changes of IPv6 addresses. Callbacks run under RCU.
const INET6: NotifierChain = NotifierChain {
    register: |_, block| {
        // SAFETY: As `NotifierChain` says.
        unsafe { bindings::rds_rust_register_inet6addr_notifier(block) }
    },
    unregister: |_, block| {
        // SAFETY: As `NotifierChain` says.
        unsafe { bindings::rds_rust_unregister_inet6addr_notifier(block) };
    },
};

/// Events of network devices in the namespace. Callbacks run with RTNL held.
const NETDEV: NotifierChain = NotifierChain {
    register: |net, block| {
        // SAFETY: As `NotifierChain` says.
        unsafe { bindings::register_netdevice_notifier_net(net, block) }
    },
    unregister: |net, block| {
        // SAFETY: As `NotifierChain` says.
        unsafe { bindings::unregister_netdevice_notifier_net(net, block) };
    },
};

/// Predicate that selects events of interest, by namespace, event number and subject.
///
/// # Safety
///
/// The namespace must be alive. The subject must be what the chain passes to its callbacks.
type Filter = unsafe fn(*mut bindings::net, c_ulong, *mut c_void) -> bool;

/// A callback in a notifier chain. Dropping it removes it from the chain, which sleeps.
///
/// # Invariants
///
/// While `registered` is set, `raw` is in the chain.
#[repr(C)]
#[pin_data(PinnedDrop)]
struct Block<W: Watch> {
    /// The first field, so that callbacks can cast it to the block.
    #[pin]
    raw: Opaque<bindings::notifier_block>,
    watcher: Arc<W>,
    net: NetUse,
    chain: &'static NotifierChain,
    filter: Filter,
    registered: bool,
    #[pin]
    _pin: PhantomPinned,
}

impl<W: Watch> Block<W> {
    /// # Safety
    ///
    /// `filter` must be for subjects of `chain`.
    unsafe fn new(
        watcher: &Arc<W>,
        net: &NetUse,
        chain: &'static NotifierChain,
        filter: Filter,
    ) -> impl PinInit<Self, Error> {
        let (watcher, net) = (watcher.clone(), net.clone());
        pin_init!(Self {
            raw <- Opaque::ffi_init(|slot: *mut bindings::notifier_block| {
                let raw = bindings::notifier_block {
                    notifier_call: Some(Self::called),
                    ..Default::default()
                };
                // SAFETY: The slot is uninitialised and may be written.
                unsafe { slot.write(raw) };
            }),
            watcher,
            net,
            chain,
            filter,
            registered: false,
            _pin: PhantomPinned,
        }? Error)
        .pin_chain(|this| {
            // SAFETY: `raw` is initialised, and pinned until `drop` has unregistered it.
            to_result(unsafe { (this.chain.register)(this.net.as_raw(), this.raw.get()) })?;
            // INVARIANT: Registered just now.
            *this.project().registered = true;
            Ok(())
        })
    }

    /// # Safety
    ///
    /// Only for the kernel, as `notifier_call` of a registered block of type `W`.
    unsafe extern "C" fn called(
        block: *mut bindings::notifier_block,
        event: c_ulong,
        subject: *mut c_void,
    ) -> c_int {
        // CAST: a small number.
        const NOTIFY_DONE: c_int = bindings::NOTIFY_DONE as c_int;
        // SAFETY: `raw` is the first field of a block that lives while it is registered.
        let this = unsafe { &*block.cast::<Self>() };
        // SAFETY: By `new` the filter is for subjects of this chain. `net` keeps the namespace.
        if unsafe { (this.filter)(this.net.as_raw(), event, subject) } {
            this.watcher.changed();
        }
        NOTIFY_DONE
    }
}

#[pinned_drop]
impl<W: Watch> PinnedDrop for Block<W> {
    fn drop(self: Pin<&mut Self>) {
        if self.registered {
            // SAFETY: By the type invariants the block is registered.
            unsafe { (self.chain.unregister)(self.net.as_raw(), self.raw.get()) };
        }
    }
}

/// A registered [`Watch`] for addresses and network devices of a network namespace. It must be
/// dropped before the namespace ends, which waits for that.
///
/// [`Watch::changed`] is called after the change, so a lookup from there on finds the new state.
/// Dropping the registration sleeps. [`Watch::changed`] may run during the drop, but not after it.
#[pin_data]
pub(crate) struct AddressWatch<W: Watch> {
    #[pin]
    inet: Block<W>,
    #[pin]
    inet6: Block<W>,
    #[pin]
    netdev: Block<W>,
}

// SAFETY: The blocks may be unregistered on any thread, and `W` may be used from all of them.
unsafe impl<W: Watch> Send for AddressWatch<W> {}
// SAFETY: A shared reference offers no operation.
unsafe impl<W: Watch> Sync for AddressWatch<W> {}

impl<W: Watch> AddressWatch<W> {
    /// Registers `watcher`.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the namespace has ended.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep; takes RTNL.
    pub(crate) fn new(watcher: &Arc<W>, net: &NetRef) -> Result<Pin<KBox<Self>>> {
        let net = net.try_use()?;
        KBox::try_pin_init(
            try_pin_init!(Self {
                // SAFETY: The filter is for IPv4 addresses.
                inet <- unsafe { Block::new(watcher, &net, &INET, inet_matters) },
                // SAFETY: The filter is for IPv6 addresses.
                inet6 <- unsafe { Block::new(watcher, &net, &INET6, inet6_matters) },
                // SAFETY: The filter accepts any subject.
                netdev <- unsafe { Block::new(watcher, &net, &NETDEV, netdev_matters) },
            }),
            GFP_KERNEL,
        )
    }
}

/// Returns `true` if an IPv4 address belongs to the namespace.
///
/// # Safety
///
/// The subject must be an `in_ifaddr` of a network device. The namespace must be alive.
unsafe fn inet_matters(net: *mut bindings::net, _event: c_ulong, subject: *mut c_void) -> bool {
    // SAFETY: By the caller's guarantee the subject is an address of this type.
    unsafe { bindings::rds_rust_ifa_is_of(subject, net) }
}

/// Returns `true` if an IPv6 address belongs to the namespace.
///
/// # Safety
///
/// The subject must be an `inet6_ifaddr` of a network device. The namespace must be alive.
unsafe fn inet6_matters(net: *mut bindings::net, _event: c_ulong, subject: *mut c_void) -> bool {
    // SAFETY: By the caller's guarantee the subject is an address of this type.
    unsafe { bindings::rds_rust_ifa6_is_of(subject, net) }
}

/// Returns `true` if a network device event may change which RDMA device has an address.
fn netdev_matters(_net: *mut bindings::net, event: c_ulong, _subject: *mut c_void) -> bool {
    // CAST: event numbers are small.
    matches!(
        event as u32,
        bindings::netdev_cmd_NETDEV_UP
            | bindings::netdev_cmd_NETDEV_DOWN
            | bindings::netdev_cmd_NETDEV_UNREGISTER
            | bindings::netdev_cmd_NETDEV_CHANGEADDR
            | bindings::netdev_cmd_NETDEV_CHANGEUPPER
            | bindings::netdev_cmd_NETDEV_POST_TYPE_CHANGE
            | bindings::netdev_cmd_NETDEV_BONDING_FAILOVER
    )
}
