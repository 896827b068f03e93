// SPDX-License-Identifier: GPL-2.0

//! Registration of a protocol family, and its C callbacks, which call a [`Protocol`].
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use super::{
    sock::ProtoSock,
    Net,
    Protocol,
    RecvMsg,
    SendMsg,
    Sock,
    SockAddr,
    SockOptIn,
    SockOptOut, //
};
use crate::{
    bindings,
    kapi::compat::init_at, //
};
use core::{
    marker::{
        PhantomData,
        PhantomPinned, //
    },
    ptr,
    slice,
    sync::atomic::{
        AtomicPtr,
        Ordering, //
    }, //
};
use kernel::{
    error::{
        from_result,
        to_result, //
    },
    prelude::*,
    types::Opaque, //
};

/// A socket type of [`Protocol::create`].
// CAST: a small number.
pub(crate) const SOCK_SEQPACKET: c_int = bindings::sock_type_SOCK_SEQPACKET as c_int;

/// The structures to which the socket core keeps pointers while the family is registered.
struct Tables<T: Protocol> {
    proto: Opaque<bindings::proto>,
    ops: bindings::proto_ops,
    family: bindings::net_proto_family,
    context: T::Context,
}

/// Tables of the registered family. A static, because the socket core passes no context to
/// `create`. The module registers one family.
static TABLES: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// A registered protocol family. Dropping it unregisters the family.
///
/// The socket core holds a reference to the module for each open socket. So no socket is left when
/// this is dropped.
///
/// # Invariants
///
/// `tables` is registered with the socket core, and [`TABLES`] points to it.
pub(crate) struct Registration<T: Protocol> {
    tables: KBox<Tables<T>>,
    _pin: PhantomPinned,
}

// SAFETY: A family may be registered and unregistered on different threads.
unsafe impl<T: Protocol> Send for Registration<T> {}
// SAFETY: A shared reference to a registration offers no operation.
unsafe impl<T: Protocol> Sync for Registration<T> {}

impl<T: Protocol> Registration<T> {
    /// Registers the family.
    ///
    /// Programs can create sockets from here on. The kernel does not wait for them if loading of
    /// the module fails later. So this must be the last step that can fail.
    ///
    /// # Errors
    ///
    /// - `EEXIST` if the family's number is in use.
    /// - `ENOMEM` if there is no memory.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(module: &'static ThisModule, context: T::Context) -> Result<Self> {
        // The socket is one slab object; the alignment of the data must not exceed that of the
        // slab.
        const { assert!(align_of::<Sock<T>>() <= 8) };
        let owner = module.as_ptr().cast();
        let mut proto = bindings::proto {
            owner,
            obj_size: u32::try_from(size_of::<Sock<T>>()).map_err(|_| EOVERFLOW)?,
            ..Default::default()
        };
        for (to, from) in proto.name.iter_mut().zip(T::NAME) {
            // CAST: the name is ASCII.
            *to = *from as c_char;
        }
        let tables = KBox::new(
            Tables {
                proto: Opaque::new(proto),
                ops: Callbacks::<T>::ops(owner),
                family: bindings::net_proto_family {
                    family: T::FAMILY,
                    create: Some(Callbacks::<T>::create),
                    owner,
                },
                context,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: The structure is in a box that is freed only after `proto_unregister`.
        to_result(unsafe { bindings::proto_register(tables.proto.get(), 1) })?;
        TABLES.store(ptr::from_ref(&*tables).cast_mut().cast(), Ordering::Release);
        // SAFETY: As above, until `sock_unregister`.
        let result = to_result(unsafe { bindings::sock_register(&tables.family) });
        if let Err(error) = result {
            TABLES.store(ptr::null_mut(), Ordering::Release);
            // SAFETY: The proto was registered above, and no socket can have been created.
            unsafe { bindings::proto_unregister(tables.proto.get()) };
            return Err(error);
        }
        // INVARIANT: Registered just now.
        Ok(Self {
            tables,
            _pin: PhantomPinned,
        })
    }
}

impl<T: Protocol> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the family is registered.
        unsafe { bindings::sock_unregister(T::FAMILY) };
        TABLES.store(ptr::null_mut(), Ordering::Release);
        // SAFETY: By the type invariants the proto is registered. No socket is left, because each
        // one held a reference to the module.
        unsafe { bindings::proto_unregister(self.tables.proto.get()) };
    }
}

/// The C callbacks of protocol `T`.
struct Callbacks<T>(PhantomData<T>);

/// Returns the socket of a callback.
///
/// # Safety
///
/// `sock` must be what the socket core passed to a callback of protocol `T` other than `create`.
/// Then its `sk` was made by [`Callbacks::create`], and is alive for the duration of the callback.
unsafe fn sock_of<'a, T: Protocol>(sock: *mut bindings::socket) -> &'a Sock<T> {
    // SAFETY: By the caller's guarantee `sock` is alive.
    let sk = unsafe { (*sock).sk };
    // SAFETY: By the caller's guarantee `sk` was made by [`Callbacks::create`].
    unsafe { Sock::from_raw(sk) }
}

/// Returns the address bytes of a callback.
///
/// # Safety
///
/// `addr` and `len` must be what the socket core passed to `bind` or `connect`. That is an address
/// in memory of the socket core, alive for the duration of the callback.
unsafe fn addr_of<'a>(addr: *mut bindings::sockaddr_unsized, len: c_int) -> &'a [u8] {
    let len = usize::try_from(len).unwrap_or(0);
    // SAFETY: By the caller's guarantee there are `len` bytes.
    unsafe { slice::from_raw_parts(addr.cast::<u8>(), len) }
}

impl<T: Protocol> Callbacks<T> {
    fn ops(owner: *mut bindings::module) -> bindings::proto_ops {
        bindings::proto_ops {
            family: T::FAMILY,
            owner,
            release: Some(Self::release),
            bind: Some(Self::bind),
            connect: Some(Self::connect),
            socketpair: Some(bindings::sock_no_socketpair),
            accept: Some(bindings::sock_no_accept),
            getname: Some(Self::getname),
            poll: Some(Self::poll),
            ioctl: Some(Self::ioctl),
            // The layout of the ioctl arguments is the same for 32-bit programs.
            #[cfg(CONFIG_COMPAT)]
            compat_ioctl: Some(Self::ioctl),
            listen: Some(bindings::sock_no_listen),
            shutdown: Some(bindings::sock_no_shutdown),
            setsockopt: Some(Self::setsockopt),
            getsockopt_iter: Some(Self::getsockopt),
            sendmsg: Some(Self::sendmsg),
            recvmsg: Some(Self::recvmsg),
            mmap: Some(bindings::sock_no_mmap),
            ..Default::default()
        }
    }

    /// # Safety
    ///
    /// Only for the socket core, as `net_proto_family.create` of a registered family.
    unsafe extern "C" fn create(
        net: *mut bindings::net,
        sock: *mut bindings::socket,
        protocol: c_int,
        kern: c_int,
    ) -> c_int {
        // SAFETY: The socket core passes a new socket and its live namespace.
        from_result(|| unsafe { Self::try_create(net, sock, protocol, kern) }.map(|()| 0))
    }

    /// # Safety
    ///
    /// The arguments must be those of a `create` callback.
    unsafe fn try_create(
        net: *mut bindings::net,
        sock: *mut bindings::socket,
        protocol: c_int,
        kern: c_int,
    ) -> Result {
        let tables = TABLES.load(Ordering::Acquire);
        if tables.is_null() {
            return Err(EAGAIN);
        }
        // SAFETY: The socket core holds a reference to the module during this call. Nothing can
        // fail after the registration, so a failed load does not free the tables either.
        let tables = unsafe { &*tables.cast::<Tables<T>>() };
        // SAFETY: By the caller's guarantee `sock` is alive.
        let kind = unsafe { bindings::rds_rust_socket_type(sock) };
        // SAFETY: By the caller's guarantee `net` is alive.
        let ns = unsafe { Net::from_raw(net) };
        let init = T::create(&tables.context, ns, kind, protocol)?;
        // SAFETY: By the caller's guarantee `net` and `sock` are alive; the proto is registered.
        let sk = unsafe { bindings::rds_rust_sock_alloc(net, sock, tables.proto.get(), kern) };
        if sk.is_null() {
            return Err(ENOMEM);
        }
        // SAFETY: `obj_size` from `Registration::new` makes the object large enough.
        let rds = unsafe { Sock::<T>::rds_of(sk.cast()) };
        // SAFETY: `rds` is uninitialised memory of the right size and stays where it is.
        unsafe { init_at(rds, ProtoSock::new(init)) };
        // SAFETY: Both parts of the socket are initialised now; the tables outlive every socket.
        unsafe { bindings::rds_rust_sock_start(sock, &tables.ops, Some(Self::destruct)) };
        Ok(())
    }

    /// Drops the protocol's part of a socket after the last reference is gone.
    ///
    /// # Context
    ///
    /// Any context.
    ///
    /// # Safety
    ///
    /// Only for the socket core, as `sk_destruct` of a socket that [`Self::try_create`] completed.
    unsafe extern "C" fn destruct(sk: *mut bindings::sock) {
        // SAFETY: `destruct` is set only on sockets that `try_create` completed.
        let rds = unsafe { Sock::<T>::rds_of(sk) };
        // SAFETY: The protocol's part is initialised. C calls this once, before it frees the
        // object.
        unsafe { ptr::drop_in_place(rds) };
    }

    /// # Safety
    ///
    /// Only for the socket core, as `proto_ops.release` of a socket of `T`.
    unsafe extern "C" fn release(sock: *mut bindings::socket) -> c_int {
        // SAFETY: `sock` is valid. Its `sk` is null if the creation of the socket failed.
        if !unsafe { (*sock).sk }.is_null() {
            // SAFETY: A callback of the socket core.
            T::release(unsafe { sock_of(sock) });
            // SAFETY: `sock` has an `sk`; this call drops the reference that `sock` holds.
            unsafe { bindings::rds_rust_sock_release(sock) };
        }
        0
    }

    /// # Safety
    ///
    /// Only for the socket core, as `proto_ops.bind` of a socket of `T`.
    unsafe extern "C" fn bind(
        sock: *mut bindings::socket,
        addr: *mut bindings::sockaddr_unsized,
        len: c_int,
    ) -> c_int {
        // SAFETY: A callback of the socket core.
        let sk = unsafe { sock_of(sock) };
        // SAFETY: As above.
        let addr = unsafe { addr_of(addr, len) };
        from_result(|| T::bind(sk, addr).map(|()| 0))
    }

    /// # Safety
    ///
    /// Only for the socket core, as `proto_ops.connect` of a socket of `T`.
    unsafe extern "C" fn connect(
        sock: *mut bindings::socket,
        addr: *mut bindings::sockaddr_unsized,
        len: c_int,
        _flags: c_int,
    ) -> c_int {
        // SAFETY: A callback of the socket core.
        let sk = unsafe { sock_of(sock) };
        // SAFETY: As above.
        let addr = unsafe { addr_of(addr, len) };
        from_result(|| T::connect(sk, addr).map(|()| 0))
    }

    /// # Safety
    ///
    /// Only for the socket core, as `proto_ops.getname` of a socket of `T`.
    unsafe extern "C" fn getname(
        sock: *mut bindings::socket,
        addr: *mut bindings::sockaddr,
        peer: c_int,
    ) -> c_int {
        const SOCKADDR_LEN: usize = size_of::<bindings::sockaddr>();
        // SAFETY: A callback of the socket core.
        let name = T::name(unsafe { sock_of(sock) }, peer != 0);
        from_result(|| {
            let (bytes, len) = name?.map_or(([0; SockAddr::MAX_LEN], SOCKADDR_LEN), |a| a.encode());
            let out = addr.cast::<u8>();
            // SAFETY: The socket core passes room for a `sockaddr_storage` (128 bytes), which need
            // not be initialised.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), out, bytes.len()) };
            // CAST: at most 28.
            Ok(len as c_int)
        })
    }

    /// # Safety
    ///
    /// Only for the socket core, as `proto_ops.poll` of a socket of `T`.
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        sock: *mut bindings::socket,
        wait: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: The socket core passes the arguments of `poll` unchanged.
        unsafe { bindings::rds_rust_poll_wait(file, sock, wait) };
        // SAFETY: A callback of the socket core.
        T::poll(unsafe { sock_of(sock) }).0
    }

    /// # Safety
    ///
    /// Only for the socket core, as `proto_ops.ioctl` of a socket of `T`.
    unsafe extern "C" fn ioctl(sock: *mut bindings::socket, cmd: c_uint, arg: c_ulong) -> c_int {
        // SAFETY: A callback of the socket core.
        let sk = unsafe { sock_of(sock) };
        from_result(|| T::ioctl(sk, cmd, arg))
    }

    /// # Safety
    ///
    /// Only for the socket core, as `proto_ops.setsockopt` of a socket of `T`.
    unsafe extern "C" fn setsockopt(
        sock: *mut bindings::socket,
        level: c_int,
        name: c_int,
        value: bindings::sockptr_t,
        len: c_uint,
    ) -> c_int {
        // SAFETY: A callback of the socket core.
        let sk = unsafe { sock_of(sock) };
        // SAFETY: A callback of the socket core.
        let value = unsafe { SockOptIn::new(value, len as usize) };
        from_result(|| T::setsockopt(sk, level, name, value).map(|()| 0))
    }

    /// # Safety
    ///
    /// Only for the socket core, as `proto_ops.getsockopt_iter` of a socket of `T`.
    unsafe extern "C" fn getsockopt(
        sock: *mut bindings::socket,
        level: c_int,
        name: c_int,
        opt: *mut bindings::sockopt_t,
    ) -> c_int {
        // SAFETY: A callback of the socket core.
        let sk = unsafe { sock_of(sock) };
        // SAFETY: The socket core passes the option of this call; nothing else uses it meanwhile.
        let value = SockOptOut::new(unsafe { &mut *opt });
        from_result(|| T::getsockopt(sk, level, name, value))
    }

    /// # Safety
    ///
    /// Only for the socket core, as `proto_ops.sendmsg` of a socket of `T`.
    unsafe extern "C" fn sendmsg(
        sock: *mut bindings::socket,
        msg: *mut bindings::msghdr,
        len: usize,
    ) -> c_int {
        // SAFETY: A callback of the socket core.
        let sk = unsafe { sock_of(sock) };
        // SAFETY: The socket core passes the message of this call; nothing else uses it meanwhile.
        let msg = unsafe { &mut *msg };
        // SAFETY: The message and its length are those of the callback.
        let msg = unsafe { SendMsg::new(msg, len) };
        from_result(|| length(T::sendmsg(sk, msg)?))
    }

    /// # Safety
    ///
    /// Only for the socket core, as `proto_ops.recvmsg` of a socket of `T`.
    unsafe extern "C" fn recvmsg(
        sock: *mut bindings::socket,
        msg: *mut bindings::msghdr,
        room: usize,
        flags: c_int,
    ) -> c_int {
        // SAFETY: A callback of the socket core.
        let sk = unsafe { sock_of(sock) };
        // SAFETY: The socket core passes the message of this call; nothing else uses it meanwhile.
        let msg = unsafe { &mut *msg };
        // CAST: the flags are bits.
        // SAFETY: The message, its size and the flags are those of the callback.
        let msg = unsafe { RecvMsg::new(msg, room, flags as u32) };
        from_result(|| length(T::recvmsg(sk, msg)?))
    }
}

/// Converts a number of bytes to the result of a system call.
fn length(bytes: usize) -> Result<c_int> {
    c_int::try_from(bytes).map_err(|_| EOVERFLOW)
}
