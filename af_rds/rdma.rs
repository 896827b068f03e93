// SPDX-License-Identifier: GPL-2.0

//! Registration of program memory for access by peers.
//!
//! Source: `include/uapi/linux/rds.h`, rds-rdma(7).

use crate::{
    kapi::{
        errno::Errno,
        net::{
            user,
            Sock,
            SockOptIn, //
        },
        pin::PinnedMemory,
        rdma::Access, //
    },
    proto::rdma::{
        Cookie,
        MAX_BYTES, //
    },
    rdma_mem::RdmaOps,
    socket::{
        Bound,
        Ending,
        RegionKey,
        Socket, //
    },
    uapi::rdma::{
        FreeMr,
        GetMr,
        RdmaFlags, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// Maximum number of pages that a region touches.
const MAX_PAGES: u64 = MAX_BYTES / PAGE_SIZE as u64 + 1;

/// `RDS_GET_MR`: registers memory.
pub(super) fn get_mr(sk: &Sock<Socket>, value: &SockOptIn<'_>) -> Result {
    if value.len() != GetMr::LEN {
        return Err(EINVAL);
    }
    let bytes: [u8; GetMr::LEN] = value.read()?;
    register(sk, &GetMr::parse(&bytes).ok_or(EINVAL)?).map(|_| ())
}

/// `RDS_GET_MR_FOR_DEST`: as `RDS_GET_MR`. The destination is ignored, because devices grant access
/// to any holder of the key.
pub(super) fn get_mr_for_dest(sk: &Sock<Socket>, value: &SockOptIn<'_>) -> Result {
    if value.len() != GetMr::LEN_FOR_DEST {
        return Err(EINVAL);
    }
    let bytes: [u8; GetMr::LEN_FOR_DEST] = value.read()?;
    let args = bytes.last_chunk().ok_or(EINVAL)?;
    register(sk, &GetMr::parse(args).ok_or(EINVAL)?).map(|_| ())
}

/// Registers memory and writes its cookie to the program. Returns the cookie, and the key that
/// undoes the registration.
///
/// Peers may write whatever the flags say, as in C RDS: programs that follow rds-rdma(7) do not set
/// `READWRITE` here. Memory that is not writable is registered read-only, unless that flag is set.
///
/// # Errors
///
/// - `ENOTCONN` if the socket is not bound.
/// - `EOPNOTSUPP` if its transport has no RDMA.
/// - `EINVAL` if the area is invalid.
/// - `EPERM` if the process may not lock memory at all. As in C RDS, this is checked before the
///   size, except that the area must not wrap around.
/// - `EMSGSIZE` if the area is too large.
/// - `EFAULT` if the memory is not accessible.
/// - Those of [`PinnedMemory::pin`] and of the device.
pub(super) fn register(sk: &Sock<Socket>, args: &GetMr) -> Result<(Cookie, RegionKey)> {
    let bound = sk.bound().ok_or(Errno::NotConnected)?;
    let rdma = sk.node.transports.rdma(bound.transport)?;
    if args.area.wraps(PAGE_SIZE as u64) {
        return Err(EINVAL);
    }
    if !PinnedMemory::is_permitted() {
        return Err(EPERM);
    }
    let len = u32::try_from(args.area.bytes).map_err(|_| EINVAL)?;
    let pages = args.area.pages(PAGE_SIZE as u64).ok_or(EINVAL)?;
    if pages > MAX_PAGES {
        return Err(Errno::MessageTooLong.into());
    }
    let read_only_will_do = !args.flags.contains(RdmaFlags::READWRITE);
    let memory = match pin(rdma, bound, args.area.address, len, true) {
        Err(error) if error == EFAULT && read_only_will_do => {
            pin(rdma, bound, args.area.address, len, false)?
        }
        other => other?,
    };
    let access = if memory.is_writable() {
        Access::Writable { atomics: true }
    } else {
        Access::Readable
    };
    let region = rdma.register(bound.addr, bound.scope, memory, access)?;
    let cookie = region.cookie();
    let ending = Ending {
        once: args.flags.contains(RdmaFlags::USE_ONCE),
        at_once: args.flags.contains(RdmaFlags::INVALIDATE),
    };
    let key = sk.memory.add(region, ending)?;
    if args.cookie_address != 0 {
        user::write(args.cookie_address, cookie.to_bits()).inspect_err(|_| sk.memory.undo(key))?;
    }
    Ok((cookie, key))
}

/// Pins memory of the program.
///
/// At the limit on pinned memory, this waits until the device of the local address has released its
/// memory, and tries again. Other devices are not waited for.
pub(super) fn pin(
    rdma: &dyn RdmaOps,
    bound: &Bound,
    address: u64,
    len: u32,
    writable: bool,
) -> Result<PinnedMemory> {
    match PinnedMemory::pin(address, len, writable) {
        Err(error) if error == ENOMEM => {
            rdma.flush_memory(bound.addr, bound.scope)?;
            PinnedMemory::pin(address, len, writable)
        }
        other => other,
    }
}

/// `RDS_FREE_MR`: releases a region.
///
/// Without a cookie it waits until no peer can access any region released before, by any socket.
/// The wait covers the device of the local address, and those on which this socket had regions.
///
/// # Errors
///
/// - `EINVAL` if there is no such region.
/// - `ENOMEM`
pub(super) fn free_mr(sk: &Sock<Socket>, value: &SockOptIn<'_>) -> Result {
    if value.len() != FreeMr::LEN {
        return Err(EINVAL);
    }
    let bytes: [u8; FreeMr::LEN] = value.read()?;
    let args = FreeMr::parse(&bytes).ok_or(EINVAL)?;
    match args.cookie {
        Some(cookie) => {
            let (mr_device, ending) = sk.memory.remove(cookie).ok_or(EINVAL)?;
            if ending.at_once || args.flags.contains(RdmaFlags::INVALIDATE) {
                mr_device.flush();
            }
        }
        None => {
            let Some(bound) = sk.bound() else {
                // As in C RDS, a socket with a selected transport may ask. It cannot have regions
                // yet.
                let chosen = sk.control.lock().chosen;
                return chosen.map(|_| ()).ok_or(EINVAL);
            };
            let rdma = sk.node.transports.rdma(bound.transport);
            let rdma = rdma.map_err(|_| EINVAL)?;
            for mr_device in sk.memory.mr_devices()? {
                mr_device.flush();
            }
            rdma.flush_memory(bound.addr, bound.scope)?;
        }
    }
    Ok(())
}
