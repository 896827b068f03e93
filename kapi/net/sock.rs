// SPDX-License-Identifier: GPL-2.0

//! `struct sock` with the protocol's own data behind it.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use super::{bound::BindNode, Protocol};
use crate::{bindings, kapi::errno::Errno};
use core::{marker::PhantomData, ops::Deref, ptr::NonNull};
use kernel::{
    prelude::*,
    sync::aref::{ARef, AlwaysRefCounted},
    types::Opaque,
};

/// The events of `poll(2)`.
///
/// Source: `include/uapi/linux/eventpoll.h`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PollMask(pub(crate) u32);

/// The bits of [`PollMask`].
pub(crate) mod poll {
    use super::PollMask;

    pub(crate) const IN: PollMask = PollMask(0x0001 | 0x0040);
    pub(crate) const OUT: PollMask = PollMask(0x0004 | 0x0100);
    pub(crate) const ERR: PollMask = PollMask(0x0008);
    pub(crate) const WRBAND: PollMask = PollMask(0x0200);
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

/// How long a call may wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timeout {
    /// In jiffies. Zero also for a call that may wait, but whose socket has a time limit below zero.
    left: c_long,
    nonblocking: bool,
}

impl Timeout {
    /// Whether the caller asked for an answer at once.
    pub(crate) fn is_nonblocking(self) -> bool {
        self.nonblocking
    }
}

/// The receive buffer of a socket.
pub(crate) struct RecvBuffer {
    /// `sk_rcvbuf`: twice what the program asked for, in bytes.
    pub(crate) bytes: usize,
    /// Whether the program wants to know when messages arrived.
    pub(crate) stamps: bool,
}

/// A socket of protocol `T`: the C structure, then what we have, in one allocation.
///
/// # Invariants
///
/// All parts are initialised and live until the C reference count drops to zero.
#[repr(C)]
pub(crate) struct Sock<T: Protocol> {
    sk: Opaque<bindings::sock>,
    ours: RdsSock<T>,
}

/// The part of a socket that C knows nothing about.
#[pin_data]
pub(super) struct RdsSock<T: Protocol> {
    place: BindNode<T>,
    #[pin]
    data: T,
}

impl<T: Protocol> RdsSock<T> {
    pub(super) fn new(data: impl PinInit<T>) -> impl PinInit<Self> {
        pin_init!(Self {
            place: BindNode::new(),
            data <- data,
        })
    }
}

// SAFETY: `struct sock` may be used from any thread; a protocol's data may by itself, and so may its
// place, which only the list that it is on changes.
unsafe impl<T: Protocol> Send for Sock<T> {}
// SAFETY: As above.
unsafe impl<T: Protocol> Sync for Sock<T> {}

// SAFETY: The count is that of `struct sock`; the object lives until it drops to zero.
unsafe impl<T: Protocol> AlwaysRefCounted for Sock<T> {
    fn inc_ref(&self) {
        // SAFETY: `self` is alive, so its count is not zero.
        unsafe { bindings::rds_sock_hold(self.sk.get()) }
    }

    unsafe fn dec_ref(this: NonNull<Self>) {
        // SAFETY: The caller gives up one reference that it holds; `sk` is the first field.
        unsafe { bindings::rds_sock_put(this.as_ptr().cast()) }
    }
}

impl<T: Protocol> Deref for Sock<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.ours.data
    }
}

impl<T: Protocol> Sock<T> {
    /// The socket behind a C pointer.
    ///
    /// # Safety
    ///
    /// `sk` must be a socket of this protocol, fully created, and alive for `'a`.
    pub(super) unsafe fn from_raw<'a>(sk: *mut bindings::sock) -> &'a Self {
        // SAFETY: The caller says what `sk` is: the first field of a live `Sock<T>`.
        unsafe { &*sk.cast::<Self>() }
    }

    /// Where our part of a socket is.
    ///
    /// # Safety
    ///
    /// `sk` must point to an object of `size_of::<Self>()` bytes.
    pub(super) unsafe fn ours_of(sk: *mut bindings::sock) -> *mut RdsSock<T> {
        // SAFETY: The caller says that the object is that large, so the field is inside it.
        unsafe { &raw mut (*sk.cast::<Self>()).ours }
    }

    #[inline]
    pub(super) fn place(&self) -> &BindNode<T> {
        &self.ours.place
    }

    /// Where the socket is bound, once it is. Any context.
    #[inline]
    pub(crate) fn bound(&self) -> Option<&T::Bound> {
        self.place().bound()
    }

    pub(super) fn as_raw(&self) -> *mut bindings::sock {
        self.sk.get()
    }

    /// Another reference to this socket.
    pub(crate) fn hold(&self) -> ARef<Self> {
        self.into()
    }

    /// `sk_sndbuf`: twice what the program asked for, in bytes.
    #[inline]
    pub(crate) fn sndbuf(&self) -> usize {
        // SAFETY: `self` is alive by the type invariants.
        let bytes = unsafe { bindings::rds_sk_sndbuf(self.as_raw()) };
        usize::try_from(bytes).unwrap_or(0)
    }

    /// `sk_rcvbuf`: twice what the program asked for, in bytes.
    #[inline]
    pub(crate) fn rcvbuf(&self) -> usize {
        // SAFETY: `self` is alive by the type invariants.
        let bytes = unsafe { bindings::rds_sk_rcvbuf(self.as_raw()) };
        usize::try_from(bytes).unwrap_or(0)
    }

    /// The number of the socket's inode; 0 once the program has closed it.
    pub(crate) fn inode(&self) -> u64 {
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_sk_inode(self.as_raw()) }
    }

    /// Whether the caller administers the socket's network namespace.
    pub(crate) fn is_net_admin(&self) -> bool {
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_sk_net_admin(self.as_raw()) }
    }

    /// What a message that is being delivered has to know.
    #[inline]
    pub(crate) fn recv_buffer(&self) -> RecvBuffer {
        const STAMPS: u32 = 1 << 31;
        // SAFETY: `self` is alive by the type invariants.
        let both = unsafe { bindings::rds_sk_recv_buffer(self.as_raw()) };
        RecvBuffer {
            bytes: (both & !STAMPS) as usize,
            stamps: both & STAMPS != 0,
        }
    }

    /// `SO_SNDTIMEO`, or no time at all for a non-blocking call.
    pub(crate) fn send_timeout(&self, nonblock: bool) -> Timeout {
        // SAFETY: `self` is alive by the type invariants.
        let left = unsafe { bindings::rds_sk_sndtimeo(self.as_raw(), nonblock) };
        Timeout {
            left,
            nonblocking: nonblock,
        }
    }

    /// `SO_RCVTIMEO`, or no time at all for a non-blocking call.
    pub(crate) fn recv_timeout(&self, nonblock: bool) -> Timeout {
        // SAFETY: `self` is alive by the type invariants.
        let left = unsafe { bindings::rds_sk_rcvtimeo(self.as_raw(), nonblock) };
        Timeout {
            left,
            nonblocking: nonblock,
        }
    }

    /// Whether an error or an entry of the error queue waits to be read.
    pub(crate) fn has_error(&self) -> bool {
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_sk_has_error(self.as_raw()) }
    }

    /// Sets the error that the program has not read yet. The caller wakes readers. Any context.
    pub(crate) fn set_error(&self, error: Errno) {
        // CAST: the discriminants are the positive error numbers.
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_sk_set_error(self.as_raw(), error as c_int) }
    }

    /// Fails with the error that the program has not read yet, which is read then. Any context.
    pub(crate) fn take_error(&self) -> Result {
        // SAFETY: `self` is alive by the type invariants.
        kernel::error::to_result(unsafe { bindings::rds_sk_take_error(self.as_raw()) })
    }

    /// Sleeps until `ready` holds or `timeout` is over, which it updates to what remains.
    ///
    /// Returns whether `ready` held. Fails with ERESTARTSYS after a signal. Process context.
    ///
    /// [`Self::wake_readers`] wakes one of those who wait here. Whoever has waited and leaves something to read has to
    /// call it.
    pub(crate) fn wait_to_read(
        &self,
        timeout: &mut Timeout,
        ready: impl FnMut() -> bool,
    ) -> Result<bool> {
        self.wait(poll::IN, true, timeout, ready)
    }

    /// As [`Self::wait_to_read`], but [`Self::wake_writers`] wakes all who wait here.
    pub(crate) fn wait_to_write(
        &self,
        timeout: &mut Timeout,
        ready: impl FnMut() -> bool,
    ) -> Result<bool> {
        self.wait(poll::OUT, false, timeout, ready)
    }

    /// Sleeps for a while, or until `timeout` is over, which it updates to what remains.
    ///
    /// Returns whether some of that remains. Fails with ERESTARTSYS after a signal. Process context.
    pub(crate) fn pause(&self, timeout: &mut Timeout, ns: u64) -> Result<bool> {
        let ms = u32::try_from(ns.div_ceil(1_000_000)).unwrap_or(u32::MAX);
        // CAST: at most half of what a `long` has.
        let wanted = kernel::time::msecs_to_jiffies(ms).max(1) as c_long;
        let mut pause = Timeout {
            left: wanted.min(timeout.left),
            ..*timeout
        };
        let passed = pause.left;
        // A waker finds nothing that is ready.
        self.wait_to_write(&mut pause, || false)?;
        if timeout.left != c_long::MAX {
            timeout.left = timeout.left.saturating_sub(passed);
        }
        Ok(timeout.left > 0)
    }

    /// Waits for what the events tell of; `alone`: one of those who wait is woken at a time.
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
            // SAFETY: `arg` is the closure that `wait` passes below, and nothing else uses it.
            let ready = unsafe { &mut *arg.cast::<F>() };
            ready()
        }

        let arg: *mut F = &mut ready;
        // SAFETY: `self` is alive by the type invariants; the condition gets the closure it is for,
        // which outlives the call.
        let left = unsafe {
            bindings::rds_sk_wait(
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

    /// Wakes who waits for something to read. Any context; the caller holds no lock that a waker
    /// might take.
    #[inline]
    pub(crate) fn wake_readers(&self, events: PollMask) {
        const SOCK_WAKE_WAITD: c_int = 1;
        const POLL_IN: c_int = 1;
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_sk_wake(self.as_raw(), events.0, SOCK_WAKE_WAITD, POLL_IN) }
    }

    /// A call that must not wait finds no room to write: if the program wants signals, the next [`Self::wake_writers`] sends
    /// one. The caller looks again then. Any context.
    #[cold]
    pub(crate) fn note_no_room(&self) {
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_sk_note_no_room(self.as_raw()) }
    }

    /// Wakes who waits for room to write. Any context, as [`Self::wake_readers`].
    #[inline]
    pub(crate) fn wake_writers(&self, events: PollMask) {
        const SOCK_WAKE_SPACE: c_int = 2;
        const POLL_OUT: c_int = 2;
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_sk_wake(self.as_raw(), events.0, SOCK_WAKE_SPACE, POLL_OUT) }
    }
}

/// The value of a `setsockopt(2)` call.
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

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The first `N` bytes. Fails with EINVAL if there are fewer, EFAULT if they can't be read.
    pub(crate) fn read<const N: usize>(&self) -> Result<[u8; N]> {
        if self.len < N {
            return Err(EINVAL);
        }
        let mut out = [0; N];
        // SAFETY: `out` has room for `N` bytes; by `new` the source is one the kernel vouches for,
        // and user memory is checked by the copy.
        let ret = unsafe { bindings::rds_sockptr_read(out.as_mut_ptr().cast(), self.ptr, N) };
        kernel::error::to_result(ret)?;
        Ok(out)
    }

    /// The first `N` bytes, or all if there are fewer, and how many those are. Fails with EFAULT.
    pub(crate) fn read_up_to<const N: usize>(&self) -> Result<([u8; N], usize)> {
        let mut out = [0; N];
        let len = self.len.min(N);
        // SAFETY: `out` has room for `len` bytes; by `new` the source is one the kernel vouches for,
        // and user memory is checked by the copy.
        let ret = unsafe { bindings::rds_sockptr_read(out.as_mut_ptr().cast(), self.ptr, len) };
        kernel::error::to_result(ret)?;
        Ok((out, len))
    }

    /// An `int` option.
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

    /// Room in the caller's buffer, in bytes; negative if the caller said so.
    pub(crate) fn len(&self) -> i32 {
        self.opt.optlen
    }

    /// Tells the caller how many bytes there are, or would have been.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.opt.optlen = i32::try_from(len).unwrap_or(i32::MAX);
    }

    /// Appends bytes to the caller's buffer. Fails with EFAULT.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result {
        // SAFETY: The source is a slice; the iterator is the one of this call.
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
