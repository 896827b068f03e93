// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The RDS socket.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;

use crate::addr::{AddrBuf, RawAddr};
use crate::error::{bind_hint, socket_hint};
use crate::memory::Area;
use crate::notices::Notices;
use crate::rdma::{region, region_for, Control, Cookie, Lifetime, RawControl, RDS_RDMA_INVALIDATE};
use crate::{Error, AF_RDS};

const RDS_GET_MR: i32 = 2;
const RDS_FREE_MR: i32 = 3;
const RDS_GET_MR_FOR_DEST: i32 = 7;

/// Room for control messages: those of about a hundred ended operations. The kernel keeps the
/// others.
const CONTROL_ROOM: usize = 4096;

/// A message that the kernel has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of the payload.
    pub len: usize,
    /// The cookie of the memory that [`Control::Register`] has registered.
    pub region: Option<Cookie>,
}

/// One received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes written to the caller's buffer.
    pub len: usize,
    /// The sender. `None` if there is no message: a notification of a finished RDMA operation, or
    /// of a congestion update. Both come only to sockets that asked for them.
    pub from: Option<SocketAddr>,
    /// The message was longer than the buffer; the rest is lost.
    pub truncated: bool,
}

/// An AF_RDS socket. It is non-blocking until [`RdsSocket::set_nonblocking`] changes that.
///
/// ```no_run
/// use rds_socket::RdsSocket;
///
/// let socket = RdsSocket::bound("192.0.2.1:4000".parse().unwrap())?;
/// socket.set_nonblocking(false)?;
/// socket.send_to(b"hello", "192.0.2.2:4000".parse().unwrap())?;
///
/// let mut buf = vec![0; rds_socket::MAX_MESSAGE];
/// let received = socket.recv_from(&mut buf)?;
/// println!("{:?} from {:?}", &buf[..received.len], received.from);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct RdsSocket {
    fd: OwnedFd,
}

impl AsFd for RdsSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for RdsSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl IntoRawFd for RdsSocket {
    fn into_raw_fd(self) -> RawFd {
        self.fd.into_raw_fd()
    }
}

impl FromRawFd for RdsSocket {
    unsafe fn from_raw_fd(fd: RawFd) -> Self {
        // SAFETY: by the promise of the caller the descriptor is open, and nothing else owns it.
        unsafe { OwnedFd::from_raw_fd(fd) }.into()
    }
}

/// A socket that another part of the program opened. If it is not one of RDS, the calls specific to
/// RDS fail.
impl From<OwnedFd> for RdsSocket {
    fn from(fd: OwnedFd) -> Self {
        RdsSocket { fd }
    }
}

impl From<RdsSocket> for OwnedFd {
    fn from(socket: RdsSocket) -> Self {
        socket.fd
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
        Ok(unsafe { RdsSocket::from_raw_fd(fd) })
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

    /// Sets the destination of [`Self::send`], or changes it. Nothing is sent, and messages of all
    /// other peers are received as before.
    pub fn connect(&self, addr: SocketAddr) -> Result<(), Error> {
        let raw = RawAddr::from(addr);
        // SAFETY: the address is valid for its length.
        let ret = unsafe { libc::connect(self.raw(), raw.as_ptr(), raw.len()) };
        check(ret)
            .map(drop)
            .map_err(|e| Error::new(format!("connect an RDS socket to {addr}"), e))
    }

    /// Returns the address that the socket is bound to.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        let mut buf = AddrBuf::new();
        let mut len = AddrBuf::capacity();
        // SAFETY: the buffer is valid for `len` bytes.
        let ret = unsafe { libc::getsockname(self.raw(), buf.as_mut_ptr(), &mut len) };
        check(ret)
            .and_then(|_| buf.get(len).ok_or_else(not_connected))
            .map_err(|e| Error::new("read the address of an RDS socket", e))
    }

    /// Returns the address that the socket is connected to.
    pub fn peer_addr(&self) -> Result<SocketAddr, Error> {
        let mut buf = AddrBuf::new();
        let mut len = AddrBuf::capacity();
        // SAFETY: the buffer is valid for `len` bytes.
        let ret = unsafe { libc::getpeername(self.raw(), buf.as_mut_ptr(), &mut len) };
        check(ret)
            .and_then(|_| buf.get(len).ok_or_else(not_connected))
            .map_err(|e| Error::new("read the peer of an RDS socket", e))
    }

    /// Queues one message for the peer that the socket is connected to.
    ///
    /// # Errors
    ///
    /// Those of [`Self::send_to`]. `ENOTCONN`: it is not connected.
    pub fn send(&self, payload: &[u8]) -> io::Result<usize> {
        let (start, len) = (payload.as_ptr().cast(), payload.len());
        // SAFETY: the payload is valid for its length.
        check_len(unsafe { libc::send(self.raw(), start, len, 0) })
    }

    /// Queues one message for `to`.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the send buffer is full. `ENOBUFS`: the destination is congested. A blocking
    /// socket has neither error, but `ETIMEDOUT` after [`Self::set_send_timeout`]. `EMSGSIZE`: the
    /// message exceeds the send buffer limit or [`crate::MAX_MESSAGE`].
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

    /// Queues one message for `to`, with an operation or a region. The memory that it names has to
    /// exist only during the call: the kernel keeps the pages until it no longer needs them.
    ///
    /// # Errors
    ///
    /// Those of [`Self::send_to`], after which nothing is registered, and those that
    /// [`Error::of_operation`] knows. `EINVAL`: the local memory of an atomic operation has less
    /// than eight bytes.
    pub fn send_with(
        &self,
        payload: &[u8],
        to: SocketAddr,
        control: Control<'_>,
    ) -> io::Result<Sent> {
        // An atomic operation writes eight bytes, and memory behind the area may have another
        // owner.
        if matches!(&control, Control::Atomic { local, .. } if local.len() < mem::size_of::<u64>())
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
        // SAFETY: address, payload and control message outlive the call and are valid for the
        // lengths in `msg`. So is the memory to which the control message points. Of these the
        // kernel only writes to the cookie, which exists for that purpose. Devices only write to
        // `Memory`, to which nothing has a reference.
        let ret = unsafe { libc::sendmsg(self.raw(), &msg, 0) };
        Ok(Sent {
            len: check_len(ret)?,
            region: registers.then(|| written(&cookie)),
        })
    }

    /// Receives the next message from the receive queue, without its control messages.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is no message.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<Received> {
        self.receive(buf, &mut []).map(|(received, _)| received)
    }

    /// Receives the next message from the receive queue, or notifications of ended operations.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is nothing to receive. `EBADMSG`: a control message makes no sense.
    pub fn recv_with(&self, buf: &mut [u8]) -> io::Result<(Received, Notices)> {
        let mut control = [0; CONTROL_ROOM];
        let (received, len) = self.receive(buf, &mut control)?;
        let notices = Notices::parse(control.get(..len).unwrap_or_default())?;
        Ok((received, notices))
    }

    /// Receives a message; also returns the number of bytes of control messages.
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
        // SAFETY: name, iov, buffer and room for control messages outlive the call and are valid
        // for the lengths in `msg`.
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
        // SAFETY: the memory is valid, and so is the cookie, which the kernel writes.
        unsafe { self.set_numbers(RDS_GET_MR, &args) }.map_err(|e| {
            Error::of_operation(format!("register {} bytes of memory", area.len()), e)
        })?;
        Ok(written(&cookie))
    }

    /// Does the same with `RDS_GET_MR_FOR_DEST`, which names the peer that shall get the cookie. No
    /// kernel denies access to other peers because of that.
    pub fn register_for(
        &self,
        destination: SocketAddr,
        area: Area<'_>,
        lifetime: Lifetime,
    ) -> Result<Cookie, Error> {
        let mut cookie = 0;
        let args = region_for(destination, region(area, lifetime, &mut cookie));
        // SAFETY: the memory is valid, and so is the cookie, which the kernel writes.
        unsafe { self.set_numbers(RDS_GET_MR_FOR_DEST, &args) }.map_err(|e| {
            let what = format!("register {} bytes of memory for {destination}", area.len());
            Error::of_operation(what, e)
        })?;
        Ok(written(&cookie))
    }

    /// Ends a region that [`Self::register`] or [`Control::Register`] has created. Peers may still
    /// use it for a short time.
    pub fn free(&self, region: Cookie) -> Result<(), Error> {
        self.end_region(region, 0)
    }

    /// Ends a region, and waits until no peer can use it.
    pub fn invalidate(&self, region: Cookie) -> Result<(), Error> {
        self.end_region(region, RDS_RDMA_INVALIDATE)
    }

    fn end_region(&self, region: Cookie, flags: u64) -> Result<(), Error> {
        let args = [region.number(), flags];
        // SAFETY: none of the numbers is an address.
        unsafe { self.set_numbers(RDS_FREE_MR, &args) }
            .map_err(|e| Error::new(format!("free the region {region:?}"), e))
    }

    /// Takes the error that [`crate::PollFd::ERROR`] announced.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let errno = self.option(libc::SOL_SOCKET, libc::SO_ERROR)?;
        Ok((errno != 0).then(|| io::Error::from_raw_os_error(errno)))
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn not_connected() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOTCONN)
}

/// Returns a cookie that the kernel has written, which the compiler cannot see.
fn written(cookie: &u64) -> Cookie {
    // SAFETY: a reference is valid for reads.
    Cookie::new(unsafe { ptr::from_ref(cookie).read_volatile() })
}

pub(crate) fn check(ret: i32) -> io::Result<i32> {
    if ret < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ret)
}

fn check_len(ret: isize) -> io::Result<usize> {
    usize::try_from(ret).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::options::Transport;
    use crate::Span;

    #[test]
    fn descriptors_come_and_go() {
        let (ours, _theirs) = UnixDatagram::pair().unwrap();
        let number = ours.as_raw_fd();
        let socket = RdsSocket::from(OwnedFd::from(ours));
        assert_eq!(
            (socket.as_raw_fd(), socket.as_fd().as_raw_fd()),
            (number, number)
        );
        // SAFETY: nothing else owns it.
        let socket = unsafe { RdsSocket::from_raw_fd(socket.into_raw_fd()) };
        assert_eq!(OwnedFd::from(socket).as_raw_fd(), number);
    }

    #[test]
    fn other_sockets_get_errors() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let socket = RdsSocket::from(OwnedFd::from(ours));
        let number = |error: Error| error.io_error().raw_os_error();
        assert_eq!(
            number(socket.set_tos(4).unwrap_err()),
            Some(libc::EAFNOSUPPORT)
        );
        assert!(socket.set_transport(Transport::Rdma).is_err());
        assert!(socket.set_recverr(true).is_err());
        assert!(socket.set_latency_trace(&Span::ALL).is_err());
        let four = [Span::Start; 4];
        assert_eq!(
            number(socket.set_latency_trace(&four).unwrap_err()),
            Some(libc::EINVAL)
        );
        assert!(socket.local_addr().is_err());
        assert!(socket.peer_addr().is_err());
        // The socket has the calls that all sockets have.
        assert_eq!(socket.send(b"hello").unwrap(), 5);
        theirs.recv(&mut [0; 5]).unwrap();
        socket.set_timestamps(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        let error = socket.recv_from(&mut []).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        socket.set_nonblocking(false).unwrap();
        let soon = Some(std::time::Duration::from_nanos(1));
        socket.set_receive_timeout(soon).unwrap();
        assert!(socket.recv_from(&mut []).is_err());
        socket.set_send_timeout(None).unwrap();
    }
}
