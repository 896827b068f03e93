// SPDX-License-Identifier: GPL-2.0

//! Being told when addresses of this machine change.
//!
//! C headers: [`include/linux/notifier.h`](srctree/include/linux/notifier.h),
//! [`include/linux/inetdevice.h`](srctree/include/linux/inetdevice.h),
//! [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use crate::bindings;
use core::marker::PhantomPinned;
use kernel::{error::to_result, prelude::*, sync::Arc, types::Opaque};

/// Who is told of changes.
pub(crate) trait Watch: Send + Sync + 'static {
    /// Something has changed; what there is now can be seen by looking. Any context but a hard
    /// interrupt, with locks of the network stack or of the RDMA core held: must neither sleep nor
    /// take a lock that is held while either is called.
    fn changed(self: &Arc<Self>);
}

/// The C interface of a kind of events. Each function has no requirement but that the block is
/// initialised and, to unregister, registered; and that it stays where it is in between.
struct Chain {
    register: unsafe extern "C" fn(*mut bindings::notifier_block) -> c_int,
    /// When it returns the block's callback does not run, nor will it.
    unregister: unsafe fn(*mut bindings::notifier_block),
}

/// IPv4 addresses; called with RTNL held.
const INET: Chain = Chain {
    register: bindings::register_inetaddr_notifier,
    unregister: |block| {
        // SAFETY: As `Chain` says.
        unsafe { bindings::unregister_inetaddr_notifier(block) };
    },
};

/// IPv6 addresses; called under RCU.
const INET6: Chain = Chain {
    register: bindings::rds_register_inet6addr_notifier,
    unregister: |block| {
        // SAFETY: As `Chain` says.
        unsafe { bindings::rds_unregister_inet6addr_notifier(block) };
    },
};

/// Network devices of the initial namespace; called with RTNL held.
const NETDEV: Chain = Chain {
    register: bindings::rds_register_netdev_notifier,
    unregister: |block| {
        // SAFETY: As `Chain` says.
        unsafe { bindings::rds_unregister_netdev_notifier(block) };
    },
};

/// Whether an event is of interest; gets its number and its subject.
///
/// # Safety
///
/// The subject must be what the chain passes to its callbacks.
type Filter = unsafe fn(c_ulong, *mut c_void) -> bool;

/// A callback in a chain of events; it leaves the chain when it is dropped, which sleeps.
///
/// # Invariants
///
/// While `registered` is set, `raw` is in the chain.
#[repr(C)]
#[pin_data(PinnedDrop)]
struct Block<W: Watch> {
    /// First, so that callbacks find the rest.
    #[pin]
    raw: Opaque<bindings::notifier_block>,
    watcher: Arc<W>,
    chain: &'static Chain,
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
        chain: &'static Chain,
        filter: Filter,
    ) -> impl PinInit<Self, Error> {
        let watcher = watcher.clone();
        pin_init!(Self {
            raw <- Opaque::ffi_init(|slot: *mut bindings::notifier_block| {
                let raw = bindings::notifier_block {
                    notifier_call: Some(Self::called),
                    ..Default::default()
                };
                // SAFETY: The slot is ours to fill.
                unsafe { slot.write(raw) };
            }),
            watcher,
            chain,
            filter,
            registered: false,
            _pin: PhantomPinned,
        }? Error)
        .pin_chain(|this| {
            // SAFETY: `raw` is initialised, and pinned until `drop` has unregistered it.
            to_result(unsafe { (this.chain.register)(this.raw.get()) })?;
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
        const NOTIFY_DONE: c_int = 0;
        // SAFETY: `raw` is the first field of a block that lives while it is registered.
        let this = unsafe { &*block.cast::<Self>() };
        // SAFETY: By `new` the filter is for subjects of this chain.
        if unsafe { (this.filter)(event, subject) } {
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
            unsafe { (self.chain.unregister)(self.raw.get()) };
        }
    }
}

/// A registered [`Watch`] for the addresses of the initial network namespace and the network devices
/// that have them.
///
/// It is told after the change: what is looked up in [`Watch::changed`] or later is the new state.
/// Dropping it sleeps; [`Watch::changed`] may be called meanwhile, but not afterwards.
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
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<W: Watch> Sync for AddressWatch<W> {}

impl<W: Watch> AddressWatch<W> {
    /// Registers `watcher`. May sleep; takes RTNL.
    pub(crate) fn new(watcher: &Arc<W>) -> Result<Pin<KBox<Self>>> {
        KBox::try_pin_init(
            try_pin_init!(Self {
                // SAFETY: The filter takes IPv4 addresses.
                inet <- unsafe { Block::new(watcher, &INET, inet_is_init) },
                // SAFETY: The filter takes IPv6 addresses.
                inet6 <- unsafe { Block::new(watcher, &INET6, inet6_is_init) },
                // SAFETY: The filter takes anything.
                netdev <- unsafe { Block::new(watcher, &NETDEV, netdev_matters) },
            }),
            GFP_KERNEL,
        )
    }
}

/// Whether an IPv4 address is one of the initial namespace.
///
/// # Safety
///
/// The subject must be an `in_ifaddr` of a network device.
unsafe fn inet_is_init(_event: c_ulong, subject: *mut c_void) -> bool {
    // SAFETY: The caller says what the subject is.
    unsafe { bindings::rds_ifa_is_init(subject) }
}

/// Whether an IPv6 address is one of the initial namespace.
///
/// # Safety
///
/// The subject must be an `inet6_ifaddr` of a network device.
unsafe fn inet6_is_init(_event: c_ulong, subject: *mut c_void) -> bool {
    // SAFETY: The caller says what the subject is.
    unsafe { bindings::rds_ifa6_is_init(subject) }
}

/// Whether an event of a network device may change which RDMA device its addresses belong to.
fn netdev_matters(event: c_ulong, _subject: *mut c_void) -> bool {
    // CAST: the numbers are small.
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
