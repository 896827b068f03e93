// SPDX-License-Identifier: GPL-2.0

//! Network namespaces: their identity, calls of functions in them, and their beginning and end.
//!
//! C header: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use crate::{
    bindings,
    kapi::{
        sync::Gate,
        task::UserId, //
    }, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    error::{
        from_result,
        to_result, //
    },
    prelude::*,
    sync::Arc,
    types::ForeignOwnable, //
};

/// Identity of a network namespace.
///
/// It is a number for comparison, not a reference. So it remains safe to use after the namespace is
/// freed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Net {
    key: usize,
    init: bool,
}

impl Net {
    /// Returns the identity of a namespace.
    ///
    /// # Safety
    ///
    /// `net` must point to a live namespace.
    pub(super) unsafe fn from_raw(net: *mut bindings::net) -> Self {
        Self {
            key: net as usize,
            // SAFETY: By the caller's guarantee the namespace is alive.
            init: unsafe { bindings::rds_rust_net_is_init(net) },
        }
    }

    /// Returns the initial network namespace.
    pub(crate) fn init() -> Self {
        // SAFETY: The function has no preconditions.
        let net = unsafe { bindings::rds_rust_init_net() };
        // SAFETY: The initial namespace is never freed.
        unsafe { Self::from_raw(net) }
    }

    /// Returns a namespace that does not exist.
    #[cfg(rds_kunit)]
    pub(crate) fn other(number: usize) -> Self {
        Self {
            key: number,
            init: false,
        }
    }

    /// Returns a number that identifies the namespace, as input of a hash function.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.key as u64
    }

    /// Returns `true` for the initial network namespace.
    pub(crate) fn is_init(&self) -> bool {
        self.init
    }
}

/// A namespace, and the gate of those who use it.
///
/// # Invariants
///
/// From the creation of this object until [`Gate::close`] has returned, `raw` points to a live
/// namespace whose addresses, sockets and settings have not ended.
#[pin_data]
struct OpenNet {
    raw: NonNull<bindings::net>,
    id: Net,
    owner: Option<UserId>,
    #[pin]
    gate: Gate,
}

// SAFETY: The functions of a namespace may be called on any thread.
unsafe impl Send for OpenNet {}
// SAFETY: They may be called from several threads at once.
unsafe impl Sync for OpenNet {}

/// A network namespace. It may have ended: the reference does not keep it from that.
#[derive(Clone)]
pub(crate) struct NetRef(Arc<OpenNet>);

/// A use of a network namespace, for which its end waits.
///
/// # Invariants
///
/// The use has entered the gate, and leaves it when it is dropped.
pub(crate) struct NetUse(Arc<OpenNet>);

impl NetRef {
    /// # Safety
    ///
    /// `raw` must point to a live namespace. Before it begins to end, the caller closes the gate.
    unsafe fn new(raw: *mut bindings::net) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or(EINVAL)?;
        // SAFETY: By the caller's guarantee the namespace is alive.
        let id = unsafe { Net::from_raw(raw.as_ptr()) };
        let none = UserId::PEERS.number();
        // SAFETY: As above.
        let owner = unsafe { bindings::rds_rust_net_owner(raw.as_ptr(), none) };
        // INVARIANT: The caller has promised that.
        let open = Arc::pin_init(
            pin_init!(OpenNet {
                raw,
                id,
                owner: (owner != none).then_some(UserId::from_number(owner)),
                gate <- Gate::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok(Self(open))
    }

    /// Returns the initial namespace, which does not end.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn init() -> Result<Self> {
        // SAFETY: The function has no preconditions.
        let raw = unsafe { bindings::rds_rust_init_net() };
        // SAFETY: The initial namespace never ends.
        unsafe { Self::new(raw) }
    }

    /// Returns the initial namespace as if it belonged to a user.
    #[cfg(rds_kunit)]
    pub(crate) fn init_of(owner: UserId) -> Result<Self> {
        let Self(init) = Self::init()?;
        // INVARIANT: The initial namespace never ends.
        let open = Arc::pin_init(
            pin_init!(OpenNet {
                raw: init.raw,
                id: init.id,
                owner: Some(owner),
                gate <- Gate::new(),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self(open))
    }

    /// Returns the identity of the namespace.
    pub(crate) fn id(&self) -> Net {
        self.0.id
    }

    /// Returns the user to whom resources of the namespace are charged. `None` if it belongs to the
    /// initial user namespace, and so to root.
    pub(crate) fn owner(&self) -> Option<UserId> {
        self.0.owner
    }

    /// Begins a use of the namespace. Returns `None` if it has ended.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn enter(&self) -> Option<NetUse> {
        // INVARIANT: Entered just now.
        self.0.gate.enter().then(|| NetUse(self.0.clone()))
    }

    /// Begins a use of the namespace.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if it has ended.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn try_use(&self) -> Result<NetUse> {
        self.enter().ok_or(ENODEV)
    }

    /// Ends the namespace: none can use it any more, and those that do have to leave first.
    fn close(&self) {
        self.0.gate.close();
    }
}

impl NetUse {
    /// Returns the namespace, which is alive as long as `self`.
    pub(in crate::kapi) fn as_raw(&self) -> *mut bindings::net {
        self.0.raw.as_ptr()
    }
}

impl Clone for NetUse {
    fn clone(&self) -> Self {
        let open = self.0.clone();
        // INVARIANT: A closed gate is not empty while `self` is in it, so its end waits in any
        // case.
        open.gate.join();
        Self(open)
    }
}

impl Drop for NetUse {
    fn drop(&mut self) {
        self.0.gate.leave();
    }
}

/// Receiver of the beginning and the end of network namespaces.
pub(crate) trait Pernet: Send + Sync + 'static {
    /// Called for each namespace that exists, and for each new one before programs can use it.
    ///
    /// # Errors
    ///
    /// An error is that of the creation of the namespace, or of the registration.
    ///
    /// # Context
    ///
    /// Sleeps, with the lock of all registrations of namespaces held.
    fn begin(&self, net: NetRef) -> Result;

    /// Called when a namespace ends, for which [`Self::begin`] has succeeded. No program uses it
    /// any more. Its routes and devices are still there. The end then waits for each [`NetUse`].
    ///
    /// # Context
    ///
    /// Sleeps, with the lock of all registrations of namespaces held.
    fn end(&self, net: Net);
}

/// A registered [`Pernet`]. Dropping it ends all namespaces for the receiver, which sleeps.
///
/// # Invariants
///
/// The calls of `T` are registered, with the object of `_receiver` as their context.
pub(crate) struct PernetRegistration<T: Pernet> {
    _receiver: Arc<T>,
    _calls: PhantomData<PernetCalls<T>>,
}

impl<T: Pernet> PernetRegistration<T> {
    /// Registers a receiver.
    ///
    /// # Errors
    ///
    /// - `EBUSY` if there is another registration of the module.
    /// - `ENOMEM`
    /// - Those of [`Pernet::begin`].
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn new(receiver: Arc<T>) -> Result<Self> {
        let calls = bindings::rds_pernet {
            context: Arc::as_ptr(&receiver).cast_mut().cast(),
            init: Some(PernetCalls::<T>::init),
            exit: Some(PernetCalls::<T>::exit),
        };
        // SAFETY: The context is kept until `drop` has unregistered the calls.
        to_result(unsafe { bindings::rds_rust_register_pernet(&calls) })?;
        // INVARIANT: Registered just now.
        Ok(Self {
            _receiver: receiver,
            _calls: PhantomData,
        })
    }
}

impl<T: Pernet> Drop for PernetRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the calls are registered.
        unsafe { bindings::rds_rust_unregister_pernet() };
    }
}

/// The C calls of a receiver.
struct PernetCalls<T>(PhantomData<T>);

impl<T: Pernet> PernetCalls<T> {
    /// # Safety
    ///
    /// Only for the helpers, as `init` of a registration with a context of type `T`.
    unsafe extern "C" fn init(
        context: *mut c_void,
        net: *mut bindings::net,
        slot: *mut *mut c_void,
    ) -> c_int {
        // SAFETY: The context lives while it is registered.
        let receiver = unsafe { &*context.cast::<T>() };
        from_result(|| {
            // SAFETY: The namespace begins, and `exit` closes the gate before it ends.
            let net = unsafe { NetRef::new(net) }?;
            if let Err(error) = receiver.begin(net.clone()) {
                net.close();
                return Err(error);
            }
            // SAFETY: The slot belongs to this registration, until `exit` has run.
            unsafe { slot.write(net.0.into_foreign().cast()) };
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Only for the helpers, as `exit` of a registration with a context of type `T`.
    unsafe extern "C" fn exit(context: *mut c_void, slot: *mut *mut c_void) {
        // SAFETY: The context lives while it is registered.
        let receiver = unsafe { &*context.cast::<T>() };
        // SAFETY: `init` has written the slot.
        let open = unsafe { slot.read() };
        // SAFETY: `init` has written this reference, which is taken once.
        let net = NetRef(unsafe { Arc::<OpenNet>::from_foreign(open.cast()) });
        receiver.end(net.id());
        net.close();
    }
}
