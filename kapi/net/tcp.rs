// SPDX-License-Identifier: GPL-2.0

//! TCP sockets of the kernel.
//!
//! C headers: [`include/linux/net.h`](srctree/include/linux/net.h),
//! [`include/net/tcp.h`](srctree/include/net/tcp.h)
//!
//! # Operation
//!
//! No call here waits for the peer. A socket reports its events to the [`TcpEvents`] that watches
//! it. In the event itself it may only receive ([`LockedSocket`](super::tcp_events::LockedSocket)).
//! All else is done by work that it queues.
//!
//! # Ownership
//!
//! A [`TcpSocket`] owns its socket. Dropping it resets the connection: what was not read is lost.
//! A socket does not keep its namespace from ending. That end waits until the socket is dropped.

use super::{
    packet::{
        PacketPart,
        TakeLimits, //
    },
    tcp_events::{
        AnyHook,
        Hook,
        TcpEvents,
        TcpRead,
        TcpSource, //
    },
    NetRef,
    NetUse, //
};
use crate::{
    bindings,
    kapi::errno::Errno, //
};
use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    net::Ipv6Addr,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc, //
};

/// An address and a port. IPv4 addresses are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpAddr {
    pub(crate) addr: Ipv6Addr,
    pub(crate) port: u16,
    /// Index of the interface of a link-local address, otherwise 0.
    pub(crate) scope: u32,
}

impl TcpAddr {
    fn raw(&self) -> bindings::rds_tcp_addr {
        bindings::rds_tcp_addr {
            addr: self.addr.octets(),
            scope: self.scope,
            port: self.port,
        }
    }

    fn from_raw(raw: &bindings::rds_tcp_addr) -> Self {
        let addr = Ipv6Addr::from(raw.addr);
        Self {
            addr,
            port: raw.port,
            scope: raw.scope,
        }
    }
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpState {
    Connecting,
    Open,
    /// The peer sends nothing more. What has arrived can still be read.
    Ended,
}

/// Bytes of several pieces to send with one call.
///
/// # Invariants
///
/// The first `count` of `pieces` are initialised. The others are not, as that would cost more than
/// a short message.
pub(crate) struct SendBatch<'a> {
    pieces: [MaybeUninit<bindings::kvec>; SendBatch::PIECES],
    count: usize,
    len: usize,
    _bytes: PhantomData<&'a [u8]>,
}

impl<'a> SendBatch<'a> {
    /// Maximum number of pieces.
    pub(crate) const PIECES: usize = 64;

    /// Creates an empty batch.
    pub(crate) fn new() -> Self {
        // INVARIANT: None is counted.
        Self {
            pieces: [const { MaybeUninit::uninit() }; Self::PIECES],
            count: 0,
            len: 0,
            _bytes: PhantomData,
        }
    }

    /// Adds a piece. Returns `false` if there is no room for it.
    pub(crate) fn add(&mut self, bytes: &'a [u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let Some(piece) = self.pieces.get_mut(self.count) else {
            return false;
        };
        piece.write(bindings::kvec {
            // TCP only reads it.
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        });
        // INVARIANT: Initialised just now.
        self.count = self.count.saturating_add(1);
        self.len = self.len.saturating_add(bytes.len());
        true
    }
}

/// A TCP socket.
///
/// # Invariants
///
/// - `raw` is a live socket that `self` owns.
/// - `hook` is the hook that is attached to it, if any.
/// - `listens` is set if it is a listener.
/// - `net` is a use of its namespace.
pub(crate) struct TcpSocket {
    raw: NonNull<bindings::socket>,
    hook: Option<KBox<dyn AnyHook>>,
    /// The socket is a listener.
    listens: bool,
    net: NetUse,
}

// SAFETY: The stack locks a socket, which may be used and released on any thread.
unsafe impl Send for TcpSocket {}
// SAFETY: As above.
unsafe impl Sync for TcpSocket {}

impl TcpSocket {
    fn new(net: &NetRef, v6: bool) -> Result<Self> {
        let net = net.try_use()?;
        let mut raw = ptr::null_mut();
        // SAFETY: The namespace is alive. The function writes the new socket to `raw`.
        to_result(unsafe { bindings::rds_rust_tcp_create(net.as_raw(), v6, &mut raw) })?;
        // INVARIANT: The new socket has no other owner, and no hook.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            hook: None,
            listens: false,
            net,
        })
    }

    /// Sets what all sockets of connections have: no delay of short segments, keepalive, and limits
    /// on the time for which a peer may be silent.
    fn tune(&self) {
        // TCP sends again, and asks for room, at least so often. It gives a peer up that has taken
        // back its window and is silent for more than twice this time. With less it would do so
        // before the caller. No user timeout is set: it would also end a connection whose peer
        // answers and has no room.
        const RTO_MAX_MS: c_uint = 10_000;
        const SYN_RETRIES: c_int = 2;
        // SAFETY: By the type invariants the socket is alive.
        unsafe { bindings::rds_rust_tcp_tune(self.raw.as_ptr(), RTO_MAX_MS, SYN_RETRIES) };
    }

    /// Creates a socket for a connection that is made from here.
    ///
    /// # Errors
    ///
    /// - `EAFNOSUPPORT` without IPv6 in the kernel, for an IPv6 address.
    /// - `ENODEV` if the namespace has ended.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn for_peer(net: &NetRef, peer: Ipv6Addr) -> Result<Self> {
        let socket = Self::new(net, peer.to_ipv4_mapped().is_none())?;
        socket.tune();
        Ok(socket)
    }

    /// Fixes the sizes of the buffers, in bytes. 0 leaves a size to TCP.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn set_buffers(&self, send: c_int, receive: c_int) {
        // SAFETY: By the type invariants the socket is alive.
        unsafe { bindings::rds_rust_tcp_set_buffers(self.raw.as_ptr(), send, receive) };
    }

    /// Binds the socket.
    ///
    /// # Errors
    ///
    /// - `EADDRINUSE`
    /// - `EADDRNOTAVAIL` if the address is not local.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn bind(&self, addr: &TcpAddr) -> Result {
        // SAFETY: By the type invariants the socket is alive.
        to_result(unsafe { bindings::rds_rust_tcp_bind(self.raw.as_ptr(), &addr.raw()) })
    }

    /// Starts to connect.
    ///
    /// # Errors
    ///
    /// - Those of `connect(2)`.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn connect(&self, peer: &TcpAddr) -> Result {
        // SAFETY: By the type invariants the socket is alive.
        to_result(unsafe { bindings::rds_rust_tcp_connect(self.raw.as_ptr(), &peer.raw()) })
    }

    /// Creates a listener on all addresses, of both families if the kernel has IPv6.
    ///
    /// # Errors
    ///
    /// - `EADDRINUSE`
    /// - `ENODEV` if the namespace has ended.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn listen(net: &NetRef, port: u16, backlog: c_int) -> Result<Self> {
        let mut socket = match Self::new(net, true) {
            Err(error) if error == Errno::AddressFamilyNotSupported.into() => {
                Self::new(net, false)?
            }
            socket => socket?,
        };
        socket.listens = true;
        // SAFETY: By the type invariants the socket is alive.
        unsafe { bindings::rds_rust_tcp_prepare_listener(socket.raw.as_ptr()) };
        socket.bind(&TcpAddr {
            addr: Ipv6Addr::UNSPECIFIED,
            port,
            scope: 0,
        })?;
        // SAFETY: As above.
        to_result(unsafe { bindings::rds_rust_tcp_listen(socket.raw.as_ptr(), backlog) })?;
        Ok(socket)
    }

    /// Accepts a connection. Returns `None` if there is none. After an error one may wait that no
    /// event reports.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    /// - `ENFILE`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn accept(&self) -> Result<Option<Self>> {
        let mut raw = ptr::null_mut();
        // SAFETY: By the type invariants the socket is alive. The function writes to `raw`.
        match to_result(unsafe { bindings::rds_rust_tcp_accept(self.raw.as_ptr(), &mut raw) }) {
            Err(error) if error == EAGAIN => return Ok(None),
            result => result?,
        }
        // INVARIANT: The new socket has no other owner, and no hook.
        let socket = Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            hook: None,
            listens: false,
            net: self.net.clone(),
        };
        socket.tune();
        Ok(Some(socket))
    }

    /// Reports the events of the socket to `events`, instead of an earlier receiver. Events that
    /// happened before are not reported.
    ///
    /// # Errors
    ///
    /// - `EBUSY` if a map of BPF has the socket.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn watch<E: TcpEvents>(&mut self, events: Arc<E>) -> Result {
        let hook = Hook::boxed(events, self.listens)?;
        self.unwatch();
        // SAFETY: The socket is alive by the type invariants. The hook is in a box, and is dropped
        // only when it is detached.
        to_result(unsafe { bindings::rds_rust_tcp_attach(self.raw.as_ptr(), hook.raw()) })?;
        // INVARIANT: Attached just now.
        self.hook = Some(hook);
        Ok(())
    }

    /// Ends the reports. No event is reported afterwards.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn unwatch(&mut self) {
        if self.hook.is_some() {
            // SAFETY: By the type invariants the socket is alive, and has a hook.
            unsafe { bindings::rds_rust_tcp_detach(self.raw.as_ptr()) };
            // INVARIANT: Detached just now.
            self.hook = None;
        }
    }

    /// Reports each acknowledgement of the peer's TCP that is asked for, or only that there is
    /// room.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn report_acks(&self, on: bool) {
        if let Some(hook) = &self.hook {
            // SAFETY: By the type invariants the hook is alive.
            unsafe { bindings::rds_rust_tcp_report_acks(hook.raw(), on) };
        }
    }

    /// Returns the local address.
    pub(crate) fn local_addr(&self) -> TcpAddr {
        let mut raw = bindings::rds_tcp_addr::default();
        // SAFETY: By the type invariants the socket is alive.
        unsafe { bindings::rds_rust_tcp_local_addr(self.raw.as_ptr(), &mut raw) };
        TcpAddr::from_raw(&raw)
    }

    /// Returns the address of the peer.
    pub(crate) fn peer_addr(&self) -> TcpAddr {
        let mut raw = bindings::rds_tcp_addr::default();
        // SAFETY: By the type invariants the socket is alive.
        unsafe { bindings::rds_rust_tcp_peer_addr(self.raw.as_ptr(), &mut raw) };
        TcpAddr::from_raw(&raw)
    }

    /// Returns the state of the connection.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn state(&self) -> TcpState {
        // SAFETY: By the type invariants the socket is alive.
        match unsafe { bindings::rds_rust_tcp_state(self.raw.as_ptr()) } {
            bindings::rds_tcp_state_RDS_TCP_CONNECTING => TcpState::Connecting,
            bindings::rds_tcp_state_RDS_TCP_OPEN => TcpState::Open,
            _ => TcpState::Ended,
        }
    }

    /// Sends a batch, as far as there is room. Returns the number of bytes. If it is 0, there will
    /// be an event, unless [`Self::is_writable`] returns `true` afterwards.
    ///
    /// # Errors
    ///
    /// - Those of the connection, which has ended.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn send(&self, batch: &mut SendBatch<'_>) -> Result<usize> {
        let hook = self.hook.as_ref().map_or(ptr::null_mut(), |it| it.raw());
        // SAFETY: Socket and hook are alive by the type invariants. Those of the batch say that
        // its pieces are initialised. Their bytes are alive as long as the batch.
        let sent = unsafe {
            bindings::rds_rust_tcp_send(
                self.raw.as_ptr(),
                hook,
                batch.pieces.as_mut_ptr().cast(),
                batch.count,
                batch.len,
            )
        };
        match usize::try_from(sent) {
            Ok(sent) => Ok(sent),
            Err(_) if sent == EAGAIN.to_errno() => Ok(0),
            Err(_) => to_result(sent).map(|()| 0),
        }
    }

    /// Returns `true` if there is room for more bytes.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn is_writable(&self) -> bool {
        // SAFETY: By the type invariants the socket is alive.
        unsafe { bindings::rds_rust_tcp_is_writable(self.raw.as_ptr()) }
    }

    fn receive(&self, to: &mut [u8], peek: bool) -> TcpRead {
        let (at, len) = (to.as_mut_ptr().cast(), to.len());
        // SAFETY: The socket is alive by the type invariants. At most `len` bytes are written.
        let got = unsafe { bindings::rds_rust_tcp_recv(self.raw.as_ptr(), at, len, peek) };
        match usize::try_from(got) {
            Ok(0) => TcpRead::End,
            Ok(got) => TcpRead::Bytes(got),
            Err(_) if got == EAGAIN.to_errno() => TcpRead::Nothing,
            Err(_) => TcpRead::End,
        }
    }

    /// Returns bytes like [`TcpSource::recv`], but leaves them in the socket.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn peek(&self, to: &mut [u8]) -> TcpRead {
        self.receive(to, true)
    }

    /// Returns the sequence number of the first byte that the peer's TCP has not acknowledged.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn snd_una(&self) -> u32 {
        // SAFETY: By the type invariants the socket is alive.
        unsafe { bindings::rds_rust_tcp_snd_una(self.raw.as_ptr()) }
    }

    /// Returns the CPU that has processed the last packet. `None` if there was none.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn cpu(&self) -> Option<u32> {
        // SAFETY: By the type invariants the socket is alive.
        u32::try_from(unsafe { bindings::rds_rust_tcp_cpu(self.raw.as_ptr()) }).ok()
    }

    /// Returns the time of the peer's last acknowledgement in jiffies, and `true` if TCP waits for
    /// another one.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn last_ack(&self) -> (u32, bool) {
        let mut owes = false;
        // SAFETY: By the type invariants the socket is alive. The function writes to `owes`.
        let last_ack = unsafe { bindings::rds_rust_tcp_last_ack(self.raw.as_ptr(), &mut owes) };
        (last_ack, owes)
    }

    /// Makes the next acknowledgement of the peer's TCP an event. The caller looks at
    /// [`Self::snd_una`] afterwards: the last one may have come before.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn ask_for_acks(&self) {
        // SAFETY: By the type invariants the socket is alive.
        unsafe { bindings::rds_rust_tcp_ask_for_acks(self.raw.as_ptr()) };
    }

    /// Makes TCP take no more than the peer may send already. What has arrived can still be read.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn close_window(&self) {
        // SAFETY: By the type invariants the socket is alive.
        unsafe { bindings::rds_rust_tcp_close_window(self.raw.as_ptr()) };
    }

    /// Resets the connection unless bytes wait to be read. Returns the last value of
    /// [`Self::snd_una`] if the connection was reset.
    ///
    /// The peer's TCP has an acknowledgement of all bytes that were read, and of no others.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn abort_if_read(&self) -> Option<u32> {
        let mut una = 0;
        // SAFETY: By the type invariants the socket is alive.
        let done = unsafe { bindings::rds_rust_tcp_abort_if_read(self.raw.as_ptr(), &mut una) };
        done.then_some(una)
    }

    /// Resets the connection unless more than `most` bytes wait to be read. Returns `true` if it
    /// was reset. The peer's TCP has an acknowledgement of no other bytes then.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn abort_up_to(&self, most: u32) -> bool {
        // SAFETY: By the type invariants the socket is alive.
        unsafe { bindings::rds_rust_tcp_abort_up_to(self.raw.as_ptr(), most) }
    }

    /// Resets the connection. Returns the number of bytes that wait to be read, and are lost.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn abort(&self) -> u32 {
        // SAFETY: By the type invariants the socket is alive.
        unsafe { bindings::rds_rust_tcp_abort(self.raw.as_ptr()) }
    }
}

impl TcpSource for TcpSocket {
    /// Receives bytes, up to the length of `to`, which is not 0. May sleep.
    fn recv(&self, to: &mut [u8]) -> TcpRead {
        self.receive(to, false)
    }

    /// Takes bytes like [`LockedSocket`](super::tcp_events::LockedSocket). May sleep.
    fn take(&self, limits: TakeLimits, held: usize) -> Option<PacketPart> {
        let request = limits.raw(held)?;
        // SAFETY: By the type invariants the socket is alive.
        let part = unsafe { bindings::rds_rust_skb_take(self.raw.as_ptr(), &request) };
        // SAFETY: Just returned.
        unsafe { PacketPart::from_raw(part) }
    }
}

impl Drop for TcpSocket {
    fn drop(&mut self) {
        self.unwatch();
        // SAFETY: By the type invariants `self` owns the socket.
        unsafe { bindings::sock_release(self.raw.as_ptr()) };
    }
}
