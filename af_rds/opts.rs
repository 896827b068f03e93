// SPDX-License-Identifier: GPL-2.0

//! Socket options and ioctls.
//!
//! Source: `include/uapi/linux/rds.h`.

use super::{
    info,
    rdma, //
};
use crate::{
    kapi::{
        errno::Errno,
        net::{
            poll,
            timestamp,
            user,
            Sock,
            SockAddr,
            SockOptIn,
            SockOptOut, //
        }, //
    },
    socket::{
        BadTraces,
        Peer,
        Socket,
        Traces,
        TransportId, //
    },
    uapi::{
        info::RDS6_INFO_CONN_PATHS,
        RDS_CANCEL_SENT_TO,
        RDS_CONG_MONITOR,
        RDS_FREE_MR,
        RDS_GET_MR,
        RDS_GET_MR_FOR_DEST,
        RDS_INFO_FIRST,
        RDS_RECVERR,
        RDS_TRANS_COUNT,
        RDS_TRANS_NONE,
        SIOCRDSGETTOS,
        SIOCRDSSETTOS,
        SOL_RDS,
        SO_RDS_MSG_RXPATH_LATENCY,
        SO_RDS_TRANSPORT, //
    }, //
};
use core::net::{
    Ipv4Addr,
    Ipv6Addr, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

/// Options of Oracle's UEK kernels. The connection reset has the number of `SO_RDS_TRANSPORT` and
/// is distinguished by its length; UEK has another number for the transport.
const UEK_CONN_RESET: c_int = 8;
const UEK_TRANSPORT: c_int = 9;
const UEK_CONN_RESET6: c_int = 11;

/// Returns the transport of a socket: that of its address, or else the one it selected.
fn transport(sk: &Sock<Socket>) -> Option<TransportId> {
    match sk.bound() {
        Some(bound) => Some(bound.transport),
        None => sk.control.lock().chosen,
    }
}

pub(super) fn set(sk: &Sock<Socket>, level: c_int, name: c_int, value: &SockOptIn<'_>) -> Result {
    match (level, name) {
        (SOL_RDS, RDS_CANCEL_SENT_TO) => cancel_sent_to(sk, value),
        (SOL_RDS, RDS_GET_MR) => rdma::get_mr(sk, value),
        (SOL_RDS, RDS_GET_MR_FOR_DEST) => rdma::get_mr_for_dest(sk, value),
        (SOL_RDS, RDS_FREE_MR) => rdma::free_mr(sk, value),
        (SOL_RDS, RDS_RECVERR) => {
            let on = value.read_int()? != 0;
            sk.control.lock().recverr = Some(on);
            Ok(())
        }
        (SOL_RDS, RDS_CONG_MONITOR) => {
            sk.cong_notify.set_monitor(value.read_int()? != 0);
            // Unread congestion may now be visible to waiting readers.
            sk.wake_readers(poll::IN | poll::WRBAND);
            Ok(())
        }
        (SOL_RDS, UEK_CONN_RESET) if value.len() == RESET_LEN => reset(sk, value),
        (SOL_RDS, SO_RDS_TRANSPORT | UEK_TRANSPORT) => choose_transport(sk, value),
        (SOL_RDS, UEK_CONN_RESET6) => reset6(sk, value),
        (SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY) => {
            let traces = Traces::parse(exactly(value)?);
            // As in C RDS, an invalid span clears the earlier selection, but too many spans do not.
            if traces != Err(BadTraces::TooMany) {
                sk.set_traces(traces.unwrap_or(Traces::NONE));
            }
            traces.map(|_| ()).map_err(|_| EFAULT)
        }
        (SOL_RDS, timestamp::SO_TIMESTAMP_OLD | timestamp::SO_TIMESTAMP_NEW) => {
            let on = c_int::from_ne_bytes(exactly(value)?) != 0;
            sk.set_timestamps(on, name == timestamp::SO_TIMESTAMP_NEW);
            Ok(())
        }
        _ => Err(Errno::NoProtocolOption.into()),
    }
}

/// Reads an option of exactly four bytes.
///
/// # Errors
///
/// - `EFAULT`, as on C RDS, if the length differs or the memory cannot be read.
fn exactly(value: &SockOptIn<'_>) -> Result<[u8; 4]> {
    if value.len() != size_of::<[u8; 4]>() {
        return Err(EFAULT);
    }
    value.read()
}

/// `RDS_CANCEL_SENT_TO`: cancels unacknowledged messages to an address and port.
fn cancel_sent_to(sk: &Sock<Socket>, value: &SockOptIn<'_>) -> Result {
    let bound = sk.bound().ok_or(Errno::NotConnected)?;
    if value.len() < SockAddr::MIN_LEN {
        return Err(EINVAL);
    }
    let (bytes, len) = value.read_up_to::<{ SockAddr::MAX_LEN }>()?;
    let to = match SockAddr::parse(bytes.get(..len).unwrap_or(&[])).map_err(|_| EINVAL)? {
        SockAddr::V4 { addr, port } => Peer {
            addr: addr.to_ipv6_mapped(),
            port,
            scope: 0,
        },
        SockAddr::V6 { addr, port, scope } => Peer {
            addr,
            port,
            // Other addresses have no scope.
            scope: if addr.is_unicast_link_local() {
                scope
            } else {
                0
            },
        },
    };
    sk.node.cancel_sent_to(sk, bound, &to);
    Ok(())
}

/// `SO_RDS_TRANSPORT`: selects the transport. A concurrent `bind(2)` may miss it; the socket then
/// has the transport of its address.
fn choose_transport(sk: &Sock<Socket>, value: &SockOptIn<'_>) -> Result {
    if transport(sk).is_some() {
        return Err(Errno::NotSupported.into());
    }
    if value.len() != size_of::<c_int>() {
        return Err(EINVAL);
    }
    let wanted = value.read_int()?;
    // All numbers below the count are known.
    if !(0..RDS_TRANS_COUNT).contains(&wanted) {
        return Err(EINVAL);
    }
    if wanted != TransportId::Tcp as c_int && !sk.net.is_init() {
        return Err(Errno::WrongProtocolType.into());
    }
    let wanted = TransportId::from_option(wanted)
        .filter(|id| sk.node.transports.get(*id).is_some())
        .ok_or(Errno::NoProtocolOption)?;
    let mut control = sk.control.lock();
    if control.chosen.is_some() {
        return Err(Errno::NotSupported.into());
    }
    control.chosen = Some(wanted);
    Ok(())
}

/// Bytes of UEK's `struct rds_reset`: type of service, 3 bytes of padding, local address, peer
/// address.
const RESET_LEN: usize = 12;
/// Bytes of UEK's `struct rds6_reset`, the IPv6 form.
const RESET6_LEN: usize = 36;

/// `RDS_CONN_RESET` of UEK: resets connections.
fn reset(sk: &Sock<Socket>, value: &SockOptIn<'_>) -> Result {
    if !sk.is_net_admin() {
        return Err(EACCES);
    }
    let [tos, _, _, _, a, b, c, d, p, q, r, s]: [u8; RESET_LEN] = value.read()?;
    let laddr = Ipv4Addr::new(a, b, c, d).to_ipv6_mapped();
    let faddr = Ipv4Addr::new(p, q, r, s);
    let faddr = (!faddr.is_unspecified()).then(|| faddr.to_ipv6_mapped());
    sk.node.reset_connections(sk.net, laddr, faddr, tos);
    Ok(())
}

/// `RDS6_CONN_RESET` of UEK: the IPv6 form.
fn reset6(sk: &Sock<Socket>, value: &SockOptIn<'_>) -> Result {
    if !sk.is_net_admin() {
        return Err(EACCES);
    }
    if value.len() != RESET6_LEN {
        return Err(EINVAL);
    }
    let bytes: [u8; RESET6_LEN] = value.read()?;
    let ([tos, ..], addrs) = bytes.split_first_chunk::<4>().ok_or(EINVAL)?;
    let (laddr, rest) = addrs.split_first_chunk::<16>().ok_or(EINVAL)?;
    let faddr = Ipv6Addr::from(*rest.first_chunk::<16>().ok_or(EINVAL)?);
    let faddr = (!faddr.is_unspecified()).then_some(faddr);
    sk.node
        .reset_connections(sk.net, Ipv6Addr::from(*laddr), faddr, *tos);
    Ok(())
}

/// Handles `getsockopt(2)` and returns its result: 0, or the size of a record for `RDS_INFO_*`.
pub(super) fn get(
    sk: &Sock<Socket>,
    level: c_int,
    name: c_int,
    mut value: SockOptOut<'_>,
) -> Result<c_int> {
    if level != SOL_RDS {
        return Err(Errno::NoProtocolOption.into());
    }
    if (RDS_INFO_FIRST..=RDS6_INFO_CONN_PATHS).contains(&name) {
        return info::get(sk, name, value);
    }
    let answer = match name {
        RDS_RECVERR => c_int::from(sk.control.lock().recverr == Some(true)),
        SO_RDS_TRANSPORT | UEK_TRANSPORT => transport(sk).map_or(RDS_TRANS_NONE, |t| t as c_int),
        _ => return Err(Errno::NoProtocolOption.into()),
    };
    // CAST: four.
    if value.len() < size_of::<c_int>() as c_int {
        return Err(EINVAL);
    }
    value.write(&answer.to_ne_bytes())?;
    value.set_len(size_of::<c_int>());
    Ok(0)
}

pub(super) fn ioctl(sk: &Sock<Socket>, cmd: c_uint, arg: usize) -> Result<c_int> {
    // CAST: commands are bits.
    match cmd as c_int {
        SIOCRDSSETTOS => {
            let tos: u8 = user::read(arg as u64)?;
            // As in C RDS, the socket must have a transport that takes types of service. TCP takes
            // each for 0.
            match transport(sk) {
                Some(TransportId::Ib) => {}
                Some(TransportId::Tcp) => return Ok(0),
                Some(TransportId::Loop) | None => return Err(ENOTTY),
            }
            // The type of service can be set only once.
            if sk.tos.cmpxchg(0, tos.into(), Relaxed).is_err() {
                return Err(EINVAL);
            }
            Ok(0)
        }
        SIOCRDSGETTOS => {
            let tos = match transport(sk) {
                Some(TransportId::Tcp) => 0,
                _ => sk.tos(),
            };
            user::write(arg as u64, tos)?;
            Ok(0)
        }
        _ => Err(Errno::NoIoctlCommand.into()),
    }
}
