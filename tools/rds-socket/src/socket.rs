// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The RDS socket.

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use crate::addr::{AddrBuf, RawAddr};
use crate::error::{bind_hint, reset_hint, socket_hint, tos_hint, transport_hint};
use crate::info::{read_table, Answer, Table};
use crate::memory::Area;
use crate::rdma::{region, Control, Cookie, Lifetime, Notices, RawControl};
use crate::reset::request;
use crate::{Error, AF_RDS, SOL_RDS};

const RDS_CANCEL_SENT_TO: i32 = 1;
const RDS_GET_MR: i32 = 2;
const RDS_FREE_MR: i32 = 3;
const RDS_CONG_MONITOR: i32 = 6;

const SO_RDS_TRANSPORT: i32 = 8;
const RDS_TRANS_NONE: i32 = -1;

// SIOCPROTOPRIVATE
const SIOCRDSSETTOS: libc::c_ulong = 0x89e0;

/// What carries the messages of a bound socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RDMA: InfiniBand, RoCE or iWARP.
    Rdma,
    /// TCP port 16385.
    Tcp,
    /// Within this machine.
    Loopback,
    /// A number that this program does not know.
    Other(i32),
}

impl From<i32> for Transport {
    fn from(number: i32) -> Self {
        match number {
            0 => Transport::Rdma,
            2 => Transport::Tcp,
            3 => Transport::Loopback,
            other => Transport::Other(other),
        }
    }
}

impl From<Transport> for i32 {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Rdma => 0,
            Transport::Tcp => 2,
            Transport::Loopback => 3,
            Transport::Other(number) => number,
        }
    }
}

/// Room for control messages: those of about a hundred operations that have ended. The kernel keeps the others.
const CONTROL_ROOM: usize = 4096;

/// A message that the kernel has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of the payload.
    pub len: usize,
    /// The cookie of what [`Control::Register`] has registered.
    pub region: Option<Cookie>,
}

/// One received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes written to the caller's buffer.
    pub len: usize,
    /// The sender. `None` for what is no message: a notification of a finished RDMA operation or
    /// of a congestion update, which come only to sockets that asked for them.
    pub from: Option<SocketAddr>,
    /// The message was longer than the buffer; the rest is gone.
    pub truncated: bool,
}

/// A non-blocking AF_RDS socket.
#[derive(Debug)]
pub struct RdsSocket {
    fd: OwnedFd,
}

impl AsFd for RdsSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl RdsSocket {
    /// Creates an unbound socket.
    pub fn new() -> Result<Self, Error> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(AF_RDS, kind, 0) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            let hint = socket_hint(error.raw_os_error());
            return Err(Error::new("create an RDS socket", error).with_hint(hint));
        }
        // SAFETY: `fd` was just opened, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(RdsSocket { fd })
    }

    /// Creates a socket that is bound to `addr`; with port 0 the kernel chooses the port.
    pub fn bound(addr: SocketAddr) -> Result<Self, Error> {
        let socket = Self::new()?;
        socket.bind(addr)?;
        Ok(socket)
    }

    /// Binds to a local address, which also chooses the transport.
    pub fn bind(&self, addr: SocketAddr) -> Result<(), Error> {
        let raw = RawAddr::from(addr);
        // SAFETY: the address is valid for its length.
        let ret = unsafe { libc::bind(self.raw(), raw.as_ptr(), raw.len()) };
        check(ret).map(drop).map_err(|e| {
            let hint = bind_hint(e.raw_os_error());
            Error::new(format!("bind an RDS socket to {addr}"), e).with_hint(hint)
        })
    }

    /// The address that the socket is bound to.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        let mut buf = AddrBuf::new();
        let mut len = AddrBuf::capacity();
        // SAFETY: the buffer is valid for `len` bytes.
        let ret = unsafe { libc::getsockname(self.raw(), buf.as_mut_ptr(), &mut len) };
        let unbound = || io::Error::from_raw_os_error(libc::ENOTCONN);
        check(ret)
            .and_then(|_| buf.get(len).ok_or_else(unbound))
            .map_err(|e| Error::new("read the address of an RDS socket", e))
    }

    /// Queues one message for `to`.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the send buffer is full. `ENOBUFS`: the destination is congested. `EMSGSIZE`:
    /// more than the send buffer limit or [`crate::MAX_MESSAGE`].
    pub fn send_to(&self, payload: &[u8], to: SocketAddr) -> io::Result<usize> {
        let raw = RawAddr::from(to);
        // SAFETY: payload and address are valid for their lengths.
        let ret = unsafe {
            libc::sendto(
                self.raw(),
                payload.as_ptr().cast(),
                payload.len(),
                0,
                raw.as_ptr(),
                raw.len(),
            )
        };
        check_len(ret)
    }

    /// Queues one message for `to`, with an operation or a region. What it names has to be there only for the call:
    /// the kernel keeps the pages until it has done with them.
    ///
    /// # Errors
    ///
    /// Those of [`Self::send_to`], after which nothing is registered, and those that [`Error::of_operation`] knows. `EINVAL`:
    /// the local memory of an atomic operation has less than eight bytes.
    pub fn send_with(
        &self,
        payload: &[u8],
        to: SocketAddr,
        control: Control<'_>,
    ) -> io::Result<Sent> {
        // An atomic operation brings eight bytes, and what is behind the area may be another's.
        if matches!(&control, Control::FetchAdd { local, .. } if local.len() < mem::size_of::<u64>())
        {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let raw = RawAddr::from(to);
        let registers = matches!(control, Control::Register(..));
        let mut cookie = 0;
        let mut control = RawControl::new(control, &mut cookie);
        let mut iov = libc::iovec {
            iov_base: payload.as_ptr().cast_mut().cast(),
            iov_len: payload.len(),
        };
        // SAFETY: `msghdr` is integers and pointers, for which all-zero is a value.
        let mut msg: libc::msghdr = unsafe { mem::zeroed() };
        msg.msg_name = raw.as_ptr().cast_mut().cast();
        msg.msg_namelen = raw.len();
        msg.msg_iov = &mut iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control.bytes.as_mut_ptr().cast();
        msg.msg_controllen = control.bytes.len();
        // SAFETY: address, payload and control message outlive the call and are valid for the lengths in `msg`, as
        // is what the control message has the addresses of. The kernel writes to none of them but the cookie, which
        // is there for it, and devices write to `Memory` alone, which nothing has a reference to.
        let ret = unsafe { libc::sendmsg(self.raw(), &msg, 0) };
        Ok(Sent {
            len: check_len(ret)?,
            region: registers.then(|| written(&cookie)),
        })
    }

    /// Takes the next message from the receive queue, but not what came with it.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is none.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<Received> {
        self.receive(buf, &mut []).map(|(received, _)| received)
    }

    /// Takes the next message from the receive queue, or what there is to know of operations that have ended.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is none. `EBADMSG`: what came with it makes no sense.
    pub fn recv_with(&self, buf: &mut [u8]) -> io::Result<(Received, Notices)> {
        let mut control = [0; CONTROL_ROOM];
        let (received, len) = self.receive(buf, &mut control)?;
        let notices = Notices::parse(control.get(..len).unwrap_or_default())?;
        Ok((received, notices))
    }

    /// Returns also how many bytes of control messages there are.
    fn receive(&self, buf: &mut [u8], control: &mut [u8]) -> io::Result<(Received, usize)> {
        let mut name = AddrBuf::new();
        let mut iov = libc::iovec {
            iov_base: buf.as_mut_ptr().cast(),
            iov_len: buf.len(),
        };
        // SAFETY: `msghdr` is integers and pointers, for which all-zero is a value.
        let mut msg: libc::msghdr = unsafe { mem::zeroed() };
        msg.msg_name = name.as_mut_ptr().cast();
        msg.msg_namelen = AddrBuf::capacity();
        msg.msg_iov = &mut iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = control.len();
        // SAFETY: name, iov, buffer and room for control messages outlive the call and are valid for the lengths in
        // `msg`.
        let ret = unsafe { libc::recvmsg(self.raw(), &mut msg, 0) };
        let received = Received {
            len: check_len(ret)?,
            from: name.get(msg.msg_namelen),
            truncated: msg.msg_flags & libc::MSG_TRUNC != 0,
        };
        Ok((received, msg.msg_controllen))
    }

    /// Registers memory, for peers to read, write and do atomic operations on.
    pub fn register(&self, area: Area<'_>, lifetime: Lifetime) -> Result<Cookie, Error> {
        let mut cookie = 0;
        let args = region(area, lifetime, &mut cookie);
        // SAFETY: the memory is there, and so is the cookie, which the kernel writes.
        unsafe { self.set_numbers(RDS_GET_MR, &args) }.map_err(|e| {
            Error::of_operation(format!("register {} bytes of memory", area.len()), e)
        })?;
        Ok(written(&cookie))
    }

    /// Ends a region that [`Self::register`] or [`Control::Register`] has made.
    pub fn free(&self, region: Cookie) -> Result<(), Error> {
        let args = [region.number(), 0];
        // SAFETY: neither is an address.
        unsafe { self.set_numbers(RDS_FREE_MR, &args) }
            .map_err(|e| Error::new(format!("free the region {region:?}"), e))
    }

    /// Takes the error that [`crate::PollFd::ERROR`] announced.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let errno = self.option(libc::SOL_SOCKET, libc::SO_ERROR)?;
        Ok((errno != 0).then(|| io::Error::from_raw_os_error(errno)))
    }

    /// Sets the type of service, which selects a connection of its own to each peer. Once only,
    /// after bind and before the first message.
    pub fn set_tos(&self, tos: u8) -> Result<(), Error> {
        // SAFETY: the kernel reads one byte.
        let ret = unsafe { libc::ioctl(self.raw(), SIOCRDSSETTOS, &tos) };
        check(ret).map(drop).map_err(|e| {
            let hint = tos_hint(e.raw_os_error());
            Error::new(format!("set type of service {tos}"), e).with_hint(hint)
        })
    }

    /// Pins the transport of a socket that is not bound yet.
    pub fn set_transport(&self, transport: Transport) -> Result<(), Error> {
        self.set_option(SOL_RDS, SO_RDS_TRANSPORT, transport.into())
            .map_err(|e| {
                let hint = transport_hint(e.raw_os_error());
                Error::new(format!("choose the transport {transport:?}"), e).with_hint(hint)
            })
    }

    /// The transport; `None` before bind.
    pub fn transport(&self) -> Result<Option<Transport>, Error> {
        let number = self
            .option(SOL_RDS, SO_RDS_TRANSPORT)
            .map_err(|e| Error::new("read the transport", e))?;
        Ok((number != RDS_TRANS_NONE).then(|| number.into()))
    }

    /// Sets the limit of payload bytes that are sent and not yet acknowledged, which also limits
    /// one message. Returns the limit as the kernel has it: an unprivileged caller gets no more
    /// than `net.core.wmem_max`.
    pub fn set_send_limit(&self, bytes: usize) -> Result<usize, Error> {
        self.set_buffer(bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
            .map_err(|e| Error::new(format!("set SO_SNDBUF to {bytes}"), e))
    }

    /// Sets the limit of payload bytes that wait to be received, beyond which the port is
    /// congested. Returns the limit as the kernel has it: an unprivileged caller gets no more
    /// than `net.core.rmem_max`.
    pub fn set_receive_limit(&self, bytes: usize) -> Result<usize, Error> {
        self.set_buffer(bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
            .map_err(|e| Error::new(format!("set SO_RCVBUF to {bytes}"), e))
    }

    /// From now on the kernel tells which congested destinations may have room again: [`Self::recv_with`] brings
    /// it, and [`crate::PollFd::READABLE`] announces it, not [`crate::PollFd::UNCONGESTED`].
    pub fn monitor_congestion(&self) -> Result<(), Error> {
        self.set_option(SOL_RDS, RDS_CONG_MONITOR, 1)
            .map_err(|e| Error::new("have congestion monitored (RDS_CONG_MONITOR)", e))
    }

    /// Forgets what was sent to `to` and is not acknowledged.
    pub fn cancel_sent_to(&self, to: SocketAddr) -> Result<(), Error> {
        let raw = RawAddr::from(to);
        // SAFETY: the address is valid for its length.
        let ret = unsafe {
            let value = raw.as_ptr().cast();
            libc::setsockopt(self.raw(), SOL_RDS, RDS_CANCEL_SENT_TO, value, raw.len())
        };
        check(ret)
            .map(drop)
            .map_err(|e| Error::new(format!("cancel what was sent to {to}"), e))
    }

    /// Has the connection from `local` to `peer` with this type of service made anew. Nothing is lost. The socket
    /// has to be bound.
    pub fn reset_connection(&self, local: IpAddr, peer: IpAddr, tos: u8) -> Result<(), Error> {
        let what = || format!("reset the connection from {local} to {peer}");
        let errno = io::Error::from_raw_os_error;
        let (number, bytes) = request(local, peer, tos)
            .ok_or_else(|| Error::new(what(), errno(libc::EAFNOSUPPORT)))?;
        let (value, len) = (bytes.as_ptr().cast(), bytes.len() as libc::socklen_t);
        // SAFETY: the bytes are valid for their length.
        let ret = unsafe { libc::setsockopt(self.raw(), SOL_RDS, number, value, len) };
        check(ret).map(drop).map_err(|e| {
            let hint = reset_hint(e.raw_os_error());
            Error::new(what(), e).with_hint(hint)
        })
    }

    /// A snapshot of the table of the option `number` (`RDS_INFO_*`); `None` if the kernel does not have it,
    /// or the transport that it is of is not loaded. The socket need not be bound.
    pub fn table(&self, number: i32) -> Result<Option<Table>, Error> {
        match read_table(|room| self.ask_for_table(number, room)) {
            Ok(table) => Ok(Some(table)),
            Err(e) if e.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
            Err(e) => Err(Error::new(format!("read the RDS table {number}"), e)),
        }
    }

    fn ask_for_table(&self, number: i32, room: &mut [u8]) -> io::Result<Answer> {
        let too_long = |_| io::Error::from_raw_os_error(libc::EFBIG);
        let mut len = libc::socklen_t::try_from(room.len()).map_err(too_long)?;
        let out = room.as_mut_ptr().cast();
        // SAFETY: `out` is valid for writes of `len` bytes.
        let ret = unsafe { libc::getsockopt(self.raw(), SOL_RDS, number, out, &mut len) };
        match check(ret) {
            Ok(each) => Ok(Answer::Written {
                len: len as usize,
                each: each as usize,
            }),
            Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => Ok(Answer::TooShort {
                needed: len as usize,
            }),
            Err(e) => Err(e),
        }
    }

    /// The kernel doubles what it is given, and RDS halves it: the net effect is the value itself.
    fn set_buffer(&self, bytes: usize, force: i32, normal: i32) -> io::Result<usize> {
        let value = i32::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        match self.set_option(libc::SOL_SOCKET, force, value) {
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                self.set_option(libc::SOL_SOCKET, normal, value)?
            }
            other => other?,
        }
        let doubled = self.option(libc::SOL_SOCKET, normal)?;
        Ok(usize::try_from(doubled / 2).unwrap_or(0))
    }

    fn set_option(&self, level: i32, name: i32, value: i32) -> io::Result<()> {
        let len = mem::size_of::<i32>() as libc::socklen_t;
        let value: *const i32 = &value;
        // SAFETY: the value is valid for `len` bytes.
        let ret = unsafe { libc::setsockopt(self.raw(), level, name, value.cast(), len) };
        check(ret).map(drop)
    }

    /// Sets an option of RDS that is a structure of numbers.
    ///
    /// # Safety
    ///
    /// The addresses among them have to be valid for what the kernel does with them.
    unsafe fn set_numbers(&self, name: i32, numbers: &[u64]) -> io::Result<()> {
        let len = mem::size_of_val(numbers) as libc::socklen_t;
        let value = numbers.as_ptr().cast();
        // SAFETY: the numbers are valid for `len` bytes, and what they point to by the promise of the caller.
        let ret = unsafe { libc::setsockopt(self.raw(), SOL_RDS, name, value, len) };
        check(ret).map(drop)
    }

    fn option(&self, level: i32, name: i32) -> io::Result<i32> {
        let mut len = mem::size_of::<i32>() as libc::socklen_t;
        let mut value = 0i32;
        let out: *mut i32 = &mut value;
        // SAFETY: the value is valid for `len` bytes.
        let ret = unsafe { libc::getsockopt(self.raw(), level, name, out.cast(), &mut len) };
        check(ret)?;
        Ok(value)
    }

    fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// A cookie that the kernel has written, of which the compiler does not know.
fn written(cookie: &u64) -> Cookie {
    // SAFETY: a reference is valid for reads.
    Cookie::new(unsafe { ptr::from_ref(cookie).read_volatile() })
}

fn check(ret: i32) -> io::Result<i32> {
    if ret < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ret)
}

fn check_len(ret: isize) -> io::Result<usize> {
    usize::try_from(ret).map_err(|_| io::Error::last_os_error())
}
