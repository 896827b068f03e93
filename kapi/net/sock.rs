// SPDX-License-Identifier: GPL-2.0

//! Sockets: `struct sock` followed by the protocol's own data.
//!
//! C owns the allocation and counts its references; `sk_destruct` drops the protocol's data.
//! Methods cover socket options, the pending error, waiting, and wake-ups.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use super::{
    bind_node::BindNode,
    Net,
    RecvMsg,
    SendMsg,
    SockAddr, //
};
use crate::{
    bindings,
    kapi::errno::Errno, //
};
use core::{
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::aref::{
        ARef,
        AlwaysRefCounted, //
    },
    types::Opaque, //
};

/// A set of `poll(2)` events.
///
/// Source: `include/uapi/linux/eventpoll.h`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PollMask(pub(crate) u32);

/// The bits of [`PollMask`].
pub(crate) mod poll {
    use super::PollMask;
    use crate::bindings::{
        EPOLLERR,
        EPOLLIN,
        EPOLLOUT,
        EPOLLRDNORM,
        EPOLLWRBAND,
        EPOLLWRNORM, //
    };

    pub(crate) const IN: PollMask = PollMask(EPOLLIN | EPOLLRDNORM);
    pub(crate) const OUT: PollMask = PollMask(EPOLLOUT | EPOLLWRNORM);
    pub(crate) const ERR: PollMask = PollMask(EPOLLERR);
    pub(crate) const WRBAND: PollMask = PollMask(EPOLLWRBAND);
}

impl core::ops::BitOr for PollMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl core::ops::BitOrAssign for PollMask {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// The time that a call may wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timeout {
    /// In jiffies. Also 0 for a blocking call on a socket whose time limit is negative.
    left: c_long,
    nonblocking: bool,
}

impl Timeout {
    /// Returns `true` if the program asked for a non-blocking call.
    pub(crate) fn is_nonblocking(self) -> bool {
        self.nonblocking
    }
}

/// Receive buffer settings of a socket.
pub(crate) struct RecvBuffer {
    /// `sk_rcvbuf` in bytes: twice the size that the program requested.
    pub(crate) bytes: usize,
    /// The program wants receive timestamps.
    pub(crate) stamps: bool,
}

/// The operations of a protocol family.
///
/// # Context
///
/// All methods are called in process context and may sleep.
pub(crate) trait Protocol: Send + Sync + Sized + 'static {
    const FAMILY: c_int;
    /// The protocol's name in `/proc/net/protocols`.
    const NAME: &'static [u8];

    /// The address to which a socket is bound, as the protocol represents it.
    type Bound: Send + Sync + 'static;

    /// Shared state from which new sockets are created.
    type Context: Send + Sync + 'static;

    /// Returns the initialiser of a new socket's data, for a type (`SOCK_*`) and a protocol.
    fn create(
        context: &Self::Context,
        net: Net,
        kind: c_int,
        protocol: c_int,
    ) -> Result<impl PinInit<Self>>;

    /// Handles `close(2)`. The socket stays alive until its last reference is dropped.
    fn release(sk: &Sock<Self>);

    fn bind(sk: &Sock<Self>, addr: &[u8]) -> Result;
    fn connect(sk: &Sock<Self>, addr: &[u8]) -> Result;

    /// Returns the address of the socket, or of its peer. `None` stands for `AF_UNSPEC`: not bound
    /// or not connected.
    fn name(sk: &Sock<Self>, peer: bool) -> Result<Option<SockAddr>>;

    /// Returns the events that are ready. The caller is already on the socket's wait queue.
    fn poll(sk: &Sock<Self>) -> PollMask;

    fn ioctl(sk: &Sock<Self>, cmd: c_uint, arg: usize) -> Result<c_int>;
    fn setsockopt(sk: &Sock<Self>, level: c_int, name: c_int, value: SockOptIn<'_>) -> Result;
    fn getsockopt(
        sk: &Sock<Self>,
        level: c_int,
        name: c_int,
        value: SockOptOut<'_>,
    ) -> Result<c_int>;
    fn sendmsg(sk: &Sock<Self>, msg: SendMsg<'_>) -> Result<usize>;
    fn recvmsg(sk: &Sock<Self>, msg: RecvMsg<'_>) -> Result<usize>;
}

/// A socket of protocol `T`: the C structure and the protocol's data in one allocation.
///
/// # Invariants
///
/// All parts are initialised and live until the C reference count drops to zero.
#[repr(C)]
pub(crate) struct Sock<T: Protocol> {
    sk: Opaque<bindings::sock>,
    rds: ProtoSock<T>,
}

/// The part of a socket that only this module uses.
#[pin_data]
pub(super) struct ProtoSock<T: Protocol> {
    place: BindNode<T::Bound, Sock<T>>,
    #[pin]
    data: T,
}

impl<T: Protocol> ProtoSock<T> {
    pub(super) fn new(data: impl PinInit<T>) -> impl PinInit<Self> {
        pin_init!(Self {
            place: BindNode::new(),
            data <- data,
        })
    }
}

// SAFETY: `struct sock` may be used from any thread, and so may the protocol's data. The list that
// contains the socket is the only one to change its place.
unsafe impl<T: Protocol> Send for Sock<T> {}
// SAFETY: As above.
unsafe impl<T: Protocol> Sync for Sock<T> {}

// SAFETY: The count is that of `struct sock`; the object lives until the count drops to zero.
unsafe impl<T: Protocol> AlwaysRefCounted for Sock<T> {
    fn inc_ref(&self) {
        // SAFETY: `self` is alive, so its count is not zero.
        unsafe { bindings::rds_rust_sock_hold(self.sk.get()) }
    }

    unsafe fn dec_ref(this: NonNull<Self>) {
        // SAFETY: The caller passes a reference that it holds; `sk` is the first field.
        unsafe { bindings::rds_rust_sock_put(this.as_ptr().cast()) }
    }
}

impl<T: Protocol> Deref for Sock<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.rds.data
    }
}

impl<T: Protocol> Sock<T> {
    /// Returns the socket behind a C pointer.
    ///
    /// # Safety
    ///
    /// `sk` must be a socket of this protocol, fully created, and alive for `'a`.
    pub(super) unsafe fn from_raw<'a>(sk: *mut bindings::sock) -> &'a Self {
        // SAFETY: By the caller's guarantee `sk` is the first field of a live `Sock<T>`.
        unsafe { &*sk.cast::<Self>() }
    }

    /// Returns a pointer to the protocol's part of a socket.
    ///
    /// # Safety
    ///
    /// `sk` must point to an object of `size_of::<Self>()` bytes.
    pub(super) unsafe fn rds_of(sk: *mut bindings::sock) -> *mut ProtoSock<T> {
        // SAFETY: By the caller's guarantee the object is large enough to contain the field.
        unsafe { &raw mut (*sk.cast::<Self>()).rds }
    }

    #[inline]
    pub(super) fn place(&self) -> &BindNode<T::Bound, Sock<T>> {
        &self.rds.place
    }

    /// Returns the bound address, or `None` if the socket is not bound.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn bound(&self) -> Option<&T::Bound> {
        self.place().bound()
    }

    pub(super) fn as_raw(&self) -> *mut bindings::sock {
        self.sk.get()
    }

    /// Takes a reference to this socket.
    pub(crate) fn hold(&self) -> ARef<Self> {
        self.into()
    }

    /// Returns `sk_sndbuf` in bytes: twice the size that the program requested.
    #[inline]
    pub(crate) fn sndbuf(&self) -> usize {
        // SAFETY: `self` is alive by the type invariants.
        let bytes = unsafe { bindings::rds_rust_sk_sndbuf(self.as_raw()) };
        usize::try_from(bytes).unwrap_or(0)
    }

    /// Returns `sk_rcvbuf` in bytes: twice the size that the program requested.
    #[inline]
    pub(crate) fn rcvbuf(&self) -> usize {
        // SAFETY: `self` is alive by the type invariants.
        let bytes = unsafe { bindings::rds_rust_sk_rcvbuf(self.as_raw()) };
        usize::try_from(bytes).unwrap_or(0)
    }

    /// Returns the socket's inode number, or 0 after the program has closed the socket.
    pub(crate) fn inode(&self) -> u64 {
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_rust_sk_inode(self.as_raw()) }
    }

    /// Returns `true` if the caller has `CAP_NET_ADMIN` in the socket's network namespace.
    pub(crate) fn is_net_admin(&self) -> bool {
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_rust_sk_net_admin(self.as_raw()) }
    }

    /// Returns the settings that apply to the delivery of a message.
    #[inline]
    pub(crate) fn recv_buffer(&self) -> RecvBuffer {
        const STAMPS: u32 = 1 << 31;
        // SAFETY: `self` is alive by the type invariants.
        let both = unsafe { bindings::rds_rust_sk_recv_buffer(self.as_raw()) };
        RecvBuffer {
            bytes: (both & !STAMPS) as usize,
            stamps: both & STAMPS != 0,
        }
    }

    /// Returns `SO_SNDTIMEO`, or zero for a non-blocking call.
    pub(crate) fn send_timeout(&self, nonblock: bool) -> Timeout {
        // SAFETY: `self` is alive by the type invariants.
        let left = unsafe { bindings::rds_rust_sk_sndtimeo(self.as_raw(), nonblock) };
        Timeout {
            left,
            nonblocking: nonblock,
        }
    }

    /// Returns `SO_RCVTIMEO`, or zero for a non-blocking call.
    pub(crate) fn recv_timeout(&self, nonblock: bool) -> Timeout {
        // SAFETY: `self` is alive by the type invariants.
        let left = unsafe { bindings::rds_rust_sk_rcvtimeo(self.as_raw(), nonblock) };
        Timeout {
            left,
            nonblocking: nonblock,
        }
    }

    /// Returns `true` if `sk_err` is set or the error queue has an entry.
    pub(crate) fn has_error(&self) -> bool {
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_rust_sk_has_error(self.as_raw()) }
    }

    /// Sets `sk_err`, which the program reads once. The caller wakes readers.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn set_error(&self, error: Errno) {
        // CAST: the discriminants are the positive error numbers.
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_rust_sk_set_error(self.as_raw(), error as c_int) }
    }

    /// Clears `sk_err` and returns it as an error.
    ///
    /// # Errors
    ///
    /// The pending error, if there is one.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn take_error(&self) -> Result {
        // SAFETY: `self` is alive by the type invariants.
        kernel::error::to_result(unsafe { bindings::rds_rust_sk_take_error(self.as_raw()) })
    }

    /// Sleeps until `ready` returns `true` or `timeout` ends. Updates `timeout` to the time left.
    ///
    /// Returns `true` if `ready` did. [`Self::wake_readers`] wakes one waiter. A waiter that leaves
    /// something to read must call it for the next one.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` after a signal.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn wait_to_read(
        &self,
        timeout: &mut Timeout,
        ready: impl FnMut() -> bool,
    ) -> Result<bool> {
        self.wait(poll::IN, true, timeout, ready)
    }

    /// Waits until `ready` returns `true`, like [`Self::wait_to_read`]. All waiters are woken by
    /// [`Self::wake_writers`].
    pub(crate) fn wait_to_write(
        &self,
        timeout: &mut Timeout,
        ready: impl FnMut() -> bool,
    ) -> Result<bool> {
        self.wait(poll::OUT, false, timeout, ready)
    }

    /// Sleeps for about `ns` nanoseconds or until `timeout` ends. Updates `timeout` to the time
    /// left.
    ///
    /// Returns `true` if there is time left.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` after a signal.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn pause(&self, timeout: &mut Timeout, ns: u64) -> Result<bool> {
        let ms = u32::try_from(ns.div_ceil(1_000_000)).unwrap_or(u32::MAX);
        // CAST: `msecs_to_jiffies()` returns at most half the range of a `long`.
        let wanted = kernel::time::msecs_to_jiffies(ms).max(1) as c_long;
        let mut pause = Timeout {
            left: wanted.min(timeout.left),
            ..*timeout
        };
        let passed = pause.left;
        // A wake-up does not end the pause, because the condition is never true.
        self.wait_to_write(&mut pause, || false)?;
        if timeout.left != c_long::MAX {
            timeout.left = timeout.left.saturating_sub(passed);
        }
        Ok(timeout.left > 0)
    }

    /// Waits for wake-ups with one of `events`. With `alone`, a wake-up reaches one waiter at a
    /// time.
    fn wait<F: FnMut() -> bool>(
        &self,
        events: PollMask,
        alone: bool,
        timeout: &mut Timeout,
        mut ready: F,
    ) -> Result<bool> {
        /// # Safety
        ///
        /// `arg` must point to an `F` that nothing else uses meanwhile.
        unsafe extern "C" fn condition<F: FnMut() -> bool>(arg: *mut c_void) -> bool {
            // SAFETY: `arg` is the closure that `wait` passes below; nothing else uses it
            // meanwhile.
            let ready = unsafe { &mut *arg.cast::<F>() };
            ready()
        }

        let arg: *mut F = &mut ready;
        // SAFETY: `self` is alive by the type invariants. The condition gets the closure for which
        // it was instantiated, and the closure outlives the call.
        let left = unsafe {
            bindings::rds_rust_sk_wait(
                self.as_raw(),
                Some(condition::<F>),
                arg.cast(),
                timeout.left,
                events.0,
                alone,
            )
        };
        if left < 0 {
            return Err(ERESTARTSYS);
        }
        timeout.left = left;
        Ok(left > 0)
    }

    /// Wakes one reader and all `poll(2)` callers, or all readers if `events` has [`poll::WRBAND`].
    /// Sends `SIGIO` if the program wants signals.
    ///
    /// # Context
    ///
    /// Any context. The caller holds no lock that a wake-up callback might take.
    #[inline]
    pub(crate) fn wake_readers(&self, events: PollMask) {
        // CAST: small numbers.
        const SOCK_WAKE_WAITD: c_int = bindings::SOCK_WAKE_WAITD as c_int;
        const POLL_IN: c_int = bindings::POLL_IN as c_int;
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_rust_sk_wake(self.as_raw(), events.0, SOCK_WAKE_WAITD, POLL_IN) }
    }

    /// Notes that a non-blocking call has found no room to write. The next [`Self::wake_writers`]
    /// then sends `SIGIO`, if the program wants signals. The caller checks for room again
    /// afterwards.
    ///
    /// # Context
    ///
    /// Any context.
    #[cold]
    pub(crate) fn note_no_room(&self) {
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_rust_sk_note_no_room(self.as_raw()) }
    }

    /// Wakes all waiters for room to write.
    ///
    /// # Context
    ///
    /// As for [`Self::wake_readers`].
    #[inline]
    pub(crate) fn wake_writers(&self, events: PollMask) {
        // CAST: small numbers.
        const SOCK_WAKE_SPACE: c_int = bindings::SOCK_WAKE_SPACE as c_int;
        const POLL_OUT: c_int = bindings::POLL_OUT as c_int;
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_rust_sk_wake(self.as_raw(), events.0, SOCK_WAKE_SPACE, POLL_OUT) }
    }
}

/// The value that a program passes to `setsockopt(2)`.
pub(crate) struct SockOptIn<'a> {
    ptr: bindings::sockptr_t,
    len: usize,
    _call: PhantomData<&'a ()>,
}

impl SockOptIn<'_> {
    /// # Safety
    ///
    /// `ptr` must be what the kernel passed to `proto_ops.setsockopt`, with its length, and the
    /// call must last as long as the lifetime.
    pub(super) unsafe fn new(ptr: bindings::sockptr_t, len: usize) -> Self {
        Self {
            ptr,
            len,
            _call: PhantomData,
        }
    }

    /// Returns the length of the value in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Reads the first `N` bytes.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if the value is shorter.
    /// - `EFAULT` if the program's memory cannot be read.
    pub(crate) fn read<const N: usize>(&self) -> Result<[u8; N]> {
        if self.len < N {
            return Err(EINVAL);
        }
        let mut out = [0; N];
        // SAFETY: `out` has room for `N` bytes. By `new` the source comes from the kernel, and the
        // copy checks user memory.
        let ret = unsafe { bindings::rds_rust_sockptr_read(out.as_mut_ptr().cast(), self.ptr, N) };
        kernel::error::to_result(ret)?;
        Ok(out)
    }

    /// Reads the first `N` bytes, or all of a shorter value. Returns them and their number.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the program's memory cannot be read.
    pub(crate) fn read_up_to<const N: usize>(&self) -> Result<([u8; N], usize)> {
        let mut out = [0; N];
        let len = self.len.min(N);
        // SAFETY: `out` has room for `len` bytes. By `new` the source comes from the kernel, and
        // the copy checks user memory.
        let ret =
            unsafe { bindings::rds_rust_sockptr_read(out.as_mut_ptr().cast(), self.ptr, len) };
        kernel::error::to_result(ret)?;
        Ok((out, len))
    }

    /// Reads the value of an `int` option. Errors are those of [`Self::read`].
    pub(crate) fn read_int(&self) -> Result<i32> {
        self.read().map(i32::from_ne_bytes)
    }
}

/// The buffer of a `getsockopt(2)` call.
pub(crate) struct SockOptOut<'a> {
    opt: &'a mut bindings::sockopt_t,
}

impl<'a> SockOptOut<'a> {
    pub(super) fn new(opt: &'a mut bindings::sockopt_t) -> Self {
        Self { opt }
    }

    /// Returns the size of the program's buffer in bytes. The program may have passed a negative
    /// number.
    pub(crate) fn len(&self) -> i32 {
        self.opt.optlen
    }

    /// Sets the length that the program gets back. It may be more than the buffer's size.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.opt.optlen = i32::try_from(len).unwrap_or(i32::MAX);
    }

    /// Appends bytes to the program's buffer.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the program's memory cannot be written, or if its buffer is full.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result {
        // SAFETY: The source is a slice; the iterator is that of this call.
        let copied = unsafe {
            bindings::_copy_to_iter(bytes.as_ptr().cast(), bytes.len(), &mut self.opt.iter_out)
        };
        if copied == bytes.len() {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }
}
