// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The options of a socket.

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::addr::RawAddr;
use crate::error::{reset_hint, tos_hint, transport_hint};
use crate::info::{read_table, Answer, Table};
use crate::notices::Span;
use crate::reset::request;
use crate::socket::check;
use crate::{Error, RdsSocket, AF_RDS, SOL_RDS};

const RDS_CANCEL_SENT_TO: i32 = 1;
const RDS_RECVERR: i32 = 5;
const RDS_CONG_MONITOR: i32 = 6;
const SO_RDS_MSG_RXPATH_LATENCY: i32 = 10;

const SO_RDS_TRANSPORT: i32 = 8;
const RDS_TRANS_NONE: i32 = -1;

// SIOCPROTOPRIVATE
const SIOCRDSSETTOS: libc::c_ulong = 0x89e0;

/// The transport that carries the messages of a bound socket.
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

impl RdsSocket {
    /// Sets the type of service, which selects a separate connection to each peer. It can be set
    /// only once, after bind and before the first message.
    pub fn set_tos(&self, tos: u8) -> Result<(), Error> {
        self.ioctl_tos(tos).map_err(|e| {
            let hint = tos_hint(e.raw_os_error());
            Error::new(format!("set type of service {tos}"), e).with_hint(hint)
        })
    }

    fn ioctl_tos(&self, tos: u8) -> io::Result<()> {
        // Sockets of other families give the number another meaning, and some of them write to the
        // pointer.
        if self.option(libc::SOL_SOCKET, libc::SO_DOMAIN)? != AF_RDS {
            return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        }
        // SAFETY: of an RDS socket the kernel reads one byte.
        let ret = unsafe { libc::ioctl(self.raw(), SIOCRDSSETTOS, &tos) };
        check(ret).map(drop)
    }

    /// Selects non-blocking calls, which is the default, or blocking ones. A non-blocking call that
    /// would have to wait fails with `EAGAIN`, or a send with `ENOBUFS`.
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<(), Error> {
        let mut value = i32::from(nonblocking);
        // SAFETY: the kernel reads an `int`.
        let ret = unsafe { libc::ioctl(self.raw(), libc::FIONBIO, &mut value) };
        check(ret)
            .map(drop)
            .map_err(|e| Error::new("choose whether an RDS socket waits", e))
    }

    /// Sets the time limit of a send on a blocking socket, after which it fails with `ETIMEDOUT`.
    /// `None`: there is no limit.
    pub fn set_send_timeout(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.set_timeout(libc::SO_SNDTIMEO, timeout)
            .map_err(|e| Error::new("set SO_SNDTIMEO", e))
    }

    /// Sets the time limit of a receive on a blocking socket, after which it fails with
    /// `ETIMEDOUT`. `None`: there is no limit.
    pub fn set_receive_timeout(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.set_timeout(libc::SO_RCVTIMEO, timeout)
            .map_err(|e| Error::new("set SO_RCVTIMEO", e))
    }

    /// Selects whether [`Self::recv_with`] reports the time at which each message was queued here.
    pub fn set_timestamps(&self, on: bool) -> Result<(), Error> {
        self.set_option(libc::SOL_SOCKET, libc::SO_TIMESTAMP, on.into())
            .map_err(|e| Error::new("set SO_TIMESTAMP", e))
    }

    /// Selects the spans for which [`Self::recv_with`] reports the latency of each message: each at
    /// most once, or none.
    pub fn set_latency_trace(&self, spans: &[Span]) -> Result<(), Error> {
        let mut value = [0u8; 1 + Span::ALL.len()];
        let what = "set SO_RDS_MSG_RXPATH_LATENCY";
        let too_many = || Error::new(what, io::Error::from_raw_os_error(libc::EINVAL));
        if spans.len() > Span::ALL.len() {
            return Err(too_many());
        }
        let numbers = spans.iter().map(|span| span.number());
        let all = std::iter::once(spans.len() as u8).chain(numbers);
        value.iter_mut().zip(all).for_each(|(to, from)| *to = from);
        self.set_bytes(SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY, &value)
            .map_err(|e| Error::new(what, e))
    }

    /// Selects whether failures of operations are reported that did not ask for it (`RDS_RECVERR`).
    /// Operations of this crate always ask for it. With `rds_rust` the option has no effect, as a
    /// failure is always reported.
    pub fn set_recverr(&self, on: bool) -> Result<(), Error> {
        self.set_option(SOL_RDS, RDS_RECVERR, on.into())
            .map_err(|e| Error::new("set RDS_RECVERR", e))
    }

    /// Pins the transport of a socket that is not bound yet.
    pub fn set_transport(&self, transport: Transport) -> Result<(), Error> {
        self.set_option(SOL_RDS, SO_RDS_TRANSPORT, transport.into())
            .map_err(|e| {
                let hint = transport_hint(e.raw_os_error());
                Error::new(format!("choose the transport {transport:?}"), e).with_hint(hint)
            })
    }

    /// Returns the transport; `None` before bind.
    pub fn transport(&self) -> Result<Option<Transport>, Error> {
        let number = self
            .option(SOL_RDS, SO_RDS_TRANSPORT)
            .map_err(|e| Error::new("read the transport", e))?;
        Ok((number != RDS_TRANS_NONE).then(|| number.into()))
    }

    /// Sets the limit of payload bytes that are sent and not yet acknowledged, which also limits
    /// one message. Returns the limit that the kernel has set: an unprivileged caller gets no more
    /// than `net.core.wmem_max`.
    pub fn set_send_limit(&self, bytes: usize) -> Result<usize, Error> {
        self.set_buffer(bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
            .map_err(|e| Error::new(format!("set SO_SNDBUF to {bytes}"), e))
    }

    /// Sets the limit of payload bytes that wait to be received, beyond which the port is
    /// congested. Returns the limit that the kernel has set: an unprivileged caller gets no more
    /// than `net.core.rmem_max`.
    pub fn set_receive_limit(&self, bytes: usize) -> Result<usize, Error> {
        self.set_buffer(bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
            .map_err(|e| Error::new(format!("set SO_RCVBUF to {bytes}"), e))
    }

    /// Makes the kernel report congested destinations that may have room again, from now on.
    /// [`Self::recv_with`] returns them. [`crate::PollFd::READABLE`] announces them, and not
    /// [`crate::PollFd::UNCONGESTED`].
    pub fn monitor_congestion(&self) -> Result<(), Error> {
        self.set_option(SOL_RDS, RDS_CONG_MONITOR, 1)
            .map_err(|e| Error::new("have congestion monitored (RDS_CONG_MONITOR)", e))
    }

    /// Drops the messages to `to` that are sent and not acknowledged.
    pub fn cancel_sent_to(&self, to: SocketAddr) -> Result<(), Error> {
        let raw = RawAddr::from(to);
        self.set_bytes(SOL_RDS, RDS_CANCEL_SENT_TO, raw.bytes())
            .map_err(|e| Error::new(format!("cancel what was sent to {to}"), e))
    }

    /// Resets the connection from `local` to `peer` with this type of service, which connects
    /// again. No message is lost. The socket has to be bound.
    pub fn reset_connection(&self, local: IpAddr, peer: IpAddr, tos: u8) -> Result<(), Error> {
        let what = || format!("reset the connection from {local} to {peer}");
        let errno = io::Error::from_raw_os_error;
        let (number, bytes) = request(local, peer, tos)
            .ok_or_else(|| Error::new(what(), errno(libc::EAFNOSUPPORT)))?;
        self.set_bytes(SOL_RDS, number, &bytes).map_err(|e| {
            let hint = reset_hint(e.raw_os_error());
            Error::new(what(), e).with_hint(hint)
        })
    }

    /// Returns a snapshot of the table of the option `number` (`RDS_INFO_*`). It is `None` if the
    /// kernel does not have it, or if its transport is not loaded. The socket need not be bound.
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

    /// Sets a buffer size. The kernel doubles the value and RDS halves it: the net effect is the
    /// value itself.
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

    /// Sets a time limit of at least 1 microsecond, as 0 would mean no limit.
    fn set_timeout(&self, name: i32, timeout: Option<Duration>) -> io::Result<()> {
        let micros = match timeout {
            Some(timeout) => timeout.as_nanos().div_ceil(1000).max(1),
            None => 0,
        };
        let too_long = |_| io::Error::from_raw_os_error(libc::EINVAL);
        let seconds = libc::time_t::try_from(micros / 1_000_000).map_err(too_long)?;
        let value = libc::timeval {
            tv_sec: seconds,
            tv_usec: (micros % 1_000_000) as libc::suseconds_t,
        };
        let len = mem::size_of_val(&value) as libc::socklen_t;
        let value = (&raw const value).cast();
        // SAFETY: the value is valid for `len` bytes.
        let ret = unsafe { libc::setsockopt(self.raw(), libc::SOL_SOCKET, name, value, len) };
        check(ret).map(drop)
    }

    fn set_option(&self, level: i32, name: i32, value: i32) -> io::Result<()> {
        self.set_bytes(level, name, &value.to_ne_bytes())
    }

    /// Sets an option without addresses in it.
    fn set_bytes(&self, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
        let (start, len) = (value.as_ptr().cast(), value.len() as libc::socklen_t);
        // SAFETY: the value is valid for its length.
        let ret = unsafe { libc::setsockopt(self.raw(), level, name, start, len) };
        check(ret).map(drop)
    }

    /// Sets an option of RDS that is a structure of numbers.
    ///
    /// # Safety
    ///
    /// Addresses among the numbers have to be valid for the kernel's accesses.
    pub(crate) unsafe fn set_numbers(&self, name: i32, numbers: &[u64]) -> io::Result<()> {
        let len = mem::size_of_val(numbers) as libc::socklen_t;
        let value = numbers.as_ptr().cast();
        // SAFETY: the numbers are valid for `len` bytes. By the caller's promise, so is the memory
        // that they point to.
        let ret = unsafe { libc::setsockopt(self.raw(), SOL_RDS, name, value, len) };
        check(ret).map(drop)
    }

    pub(crate) fn option(&self, level: i32, name: i32) -> io::Result<i32> {
        let mut len = mem::size_of::<i32>() as libc::socklen_t;
        let mut value = 0i32;
        let out: *mut i32 = &mut value;
        // SAFETY: the value is valid for `len` bytes.
        let ret = unsafe { libc::getsockopt(self.raw(), level, name, out.cast(), &mut len) };
        check(ret)?;
        Ok(value)
    }
}
