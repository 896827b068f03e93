// SPDX-License-Identifier: GPL-2.0

//! Messages of `sendmsg(2)` and `recvmsg(2)`: `struct msghdr`.
//!
//! [`SendMsg`] and [`RecvMsg`] borrow the kernel's structure for one call. All copies to and from
//! the program go through them, and a fault is reported as `EFAULT`.
//!
//! C header: [`include/linux/socket.h`](srctree/include/linux/socket.h)

use super::{
    packet::PacketPart,
    SockAddr, //
};
use crate::{
    bindings,
    kapi::{
        errno::Errno,
        InlineBytes, //
    }, //
};
use core::slice;
use kernel::{
    error::to_result,
    iov::{
        IovIterDest,
        IovIterSource, //
    },
    prelude::*, //
};

/// Flags of both calls, as in `include/linux/socket.h`.
pub(crate) mod flags {
    /// `sendmmsg(2)` sends more messages right after this one.
    pub(crate) use crate::bindings::MSG_BATCH as BATCH;
    pub(crate) use crate::bindings::{
        MSG_CMSG_COMPAT as CMSG_COMPAT,
        MSG_CONFIRM as CONFIRM,
        MSG_CTRUNC as CTRUNC,
        MSG_DONTWAIT as DONTWAIT,
        MSG_EOR as EOR,
        MSG_ERRQUEUE as ERRQUEUE,
        MSG_MORE as MORE,
        MSG_NOSIGNAL as NOSIGNAL,
        MSG_OOB as OOB,
        MSG_PEEK as PEEK,
        MSG_TRUNC as TRUNC, //
    };
}

/// The message of a `sendmsg(2)` call.
pub(crate) struct SendMsg<'a> {
    msg: &'a mut bindings::msghdr,
    len: usize,
}

/// A control message that a program passed to `sendmsg(2)`.
pub(crate) struct Cmsg<'a> {
    pub(crate) level: i32,
    pub(crate) kind: i32,
    pub(crate) data: &'a [u8],
}

impl<'a> SendMsg<'a> {
    /// # Safety
    ///
    /// `msg` must be what the kernel passed to `proto_ops.sendmsg`, with its total length.
    pub(super) unsafe fn new(msg: &'a mut bindings::msghdr, len: usize) -> Self {
        Self { msg, len }
    }

    /// Returns the number of payload bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn flags(&self) -> u32 {
        self.msg.msg_flags
    }

    /// Returns the address that the program passed, if any.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        let len = usize::try_from(self.msg.msg_namelen).unwrap_or(0);
        if self.msg.msg_name.is_null() || len == 0 {
            return None;
        }
        // SAFETY: By `new` the kernel has copied `msg_namelen` bytes of the name from the program
        // to kernel memory.
        Some(unsafe { slice::from_raw_parts(self.msg.msg_name.cast(), len) })
    }

    /// Returns the control data, which the kernel has copied from the program.
    fn control(&self) -> &[u8] {
        // SAFETY: Both variants of the union are the same pointer.
        let control = unsafe { self.msg.__bindgen_anon_1.msg_control };
        if control.is_null() || self.msg.msg_controllen == 0 {
            return &[];
        }
        // SAFETY: By `new` the kernel copied `msg_controllen` bytes of control data to its memory.
        unsafe { slice::from_raw_parts(control.cast(), self.msg.msg_controllen) }
    }

    /// Returns `true` if there is control data.
    #[inline]
    pub(crate) fn has_control(&self) -> bool {
        !self.control().is_empty()
    }

    /// Iterates over the control messages. An error ends the iteration.
    ///
    /// # Errors
    ///
    /// `EINVAL` if a control message is malformed.
    pub(crate) fn cmsgs(&self) -> impl Iterator<Item = Result<Cmsg<'_>>> + '_ {
        let mut rest = self.control();
        core::iter::from_fn(move || {
            if rest.len() < CMSG_HEADER {
                return None;
            }
            let parse = |bytes: &'_ [u8]| -> Option<(usize, i32, i32)> {
                let (len, bytes) = bytes.split_first_chunk()?;
                let (level, bytes) = bytes.split_first_chunk()?;
                Some((
                    usize::from_ne_bytes(*len),
                    i32::from_ne_bytes(*level),
                    i32::from_ne_bytes(*bytes.first_chunk()?),
                ))
            };
            let (len, level, kind) = parse(rest)?;
            let Some(data) = rest.get(CMSG_HEADER..len) else {
                rest = &[];
                return Some(Err(EINVAL));
            };
            let next = len
                .checked_next_multiple_of(CMSG_ALIGN)
                .unwrap_or(usize::MAX);
            rest = rest.get(next..).unwrap_or(&[]);
            Some(Ok(Cmsg { level, kind, data }))
        })
    }

    fn iter(&mut self) -> &mut IovIterSource<'a> {
        // SAFETY: By `new` this is the iterator of a `sendmsg` call, a valid source for `'a`. `&mut
        // self` is exclusive.
        unsafe { IovIterSource::from_raw((&raw mut self.msg.msg_iter).cast()) }
    }

    /// Fills `out` with the next bytes of the payload.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the program's memory cannot be read, or if there are fewer bytes.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn copy_to_slice(&mut self, out: &mut [u8]) -> Result {
        if self.iter().copy_from_iter(out) == out.len() {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }

    /// Fills `out` with the next `len` bytes of the payload.
    ///
    /// # Errors
    ///
    /// - `EMSGSIZE` if `len` is more than `out` can hold.
    /// - `EFAULT` if the program's memory cannot be read.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn copy_to_inline<const N: usize>(
        &mut self,
        out: &mut InlineBytes<N>,
        len: usize,
    ) -> Result {
        let iter = self.iter();
        // SAFETY: The iterator returns the bytes that it initialised, from the start of `room`.
        let copied = unsafe { out.fill(len, |room| iter.copy_from_iter_raw(room).len()) };
        match copied {
            Some(copied) if copied == len => Ok(()),
            Some(_) => Err(EFAULT),
            None => Err(Errno::MessageTooLong.into()),
        }
    }

    /// Appends the next `len` bytes of the payload to `out`.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` if there is no memory.
    /// - `EFAULT` if the program's memory cannot be read.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn copy_to_vec(&mut self, out: &mut KVVec<u8>, len: usize) -> Result {
        out.reserve(len, GFP_KERNEL_ACCOUNT)?;
        let spare = out.spare_capacity_mut();
        let spare = spare.get_mut(..len).ok_or(EFAULT)?;
        let copied = self.iter().copy_from_iter_raw(spare).len();
        if copied != len {
            return Err(EFAULT);
        }
        // SAFETY: The `copied` elements behind the length were initialised just now.
        unsafe { out.inc_len(copied) };
        Ok(())
    }
}

/// Size of the header of a control message in bytes.
const CMSG_HEADER: usize = size_of::<bindings::cmsghdr>();
/// The same for 32-bit programs.
const COMPAT_CMSG_HEADER: usize = size_of::<bindings::compat_cmsghdr>();
/// Control messages begin at multiples of this number of bytes, as `CMSG_ALIGN()` says.
const CMSG_ALIGN: usize = size_of::<c_long>();

// The members are read one after another.
const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(bindings::cmsghdr, cmsg_len) == 0);
    assert!(offset_of!(bindings::cmsghdr, cmsg_level) == size_of::<usize>());
    assert!(offset_of!(bindings::cmsghdr, cmsg_type) == size_of::<usize>() + size_of::<i32>());
};

/// Data of a control message. Aligned, because the kernel may read it as 64-bit numbers.
#[repr(C, align(8))]
pub(crate) struct Aligned<const N: usize>(pub(crate) [u8; N]);

/// The message of a `recvmsg(2)` call.
pub(crate) struct RecvMsg<'a> {
    msg: &'a mut bindings::msghdr,
    room: usize,
    flags: u32,
}

impl<'a> RecvMsg<'a> {
    /// # Safety
    ///
    /// `msg` must be what the kernel passed to `proto_ops.recvmsg`, with its size and flags.
    pub(super) unsafe fn new(msg: &'a mut bindings::msghdr, room: usize, flags: u32) -> Self {
        Self { msg, room, flags }
    }

    /// Returns the size of the program's payload buffer in bytes.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Returns the flags that the program passed.
    pub(crate) fn flags(&self) -> u32 {
        self.flags
    }

    /// Sets flags in `msg_flags`, which the program gets back.
    pub(crate) fn add_flags(&mut self, flags: u32) {
        self.msg.msg_flags |= flags;
    }

    /// Copies payload to the program.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the program's memory cannot be written, or if its buffer is too small.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn copy_from_slice(&mut self, bytes: &[u8]) -> Result {
        // SAFETY: By `new` this is the iterator of a `recvmsg` call, a valid destination for `'a`.
        // `&mut self` is exclusive.
        let iter = unsafe { IovIterDest::from_raw((&raw mut self.msg.msg_iter).cast()) };
        if iter.copy_to_iter(bytes) == bytes.len() {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }

    /// Copies the first `len` bytes of a part of a packet to the program, which has room for them.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the program's memory cannot be written.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn copy_from_packet(&mut self, part: &PacketPart, len: usize) -> Result {
        part.copy_to(self.msg, len)
    }

    /// Returns `true` if there is room for a control message with `len` bytes of data.
    pub(crate) fn has_control_room(&self, len: usize) -> bool {
        let header = if self.msg.msg_flags & flags::CMSG_COMPAT != 0 {
            COMPAT_CMSG_HEADER
        } else {
            CMSG_HEADER
        };
        // SAFETY: Both variants of the union are the same pointer.
        let control = unsafe { self.msg.__bindgen_anon_1.msg_control };
        !control.is_null() && self.msg.msg_controllen >= header.saturating_add(len)
    }

    /// Passes a control message to the program. If there is too little room, the kernel truncates
    /// the message and sets `MSG_CTRUNC`.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the program's memory cannot be written.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn put_control<const N: usize>(
        &mut self,
        level: c_int,
        kind: c_int,
        data: &Aligned<N>,
    ) -> Result {
        let len = c_int::try_from(N).map_err(|_| EINVAL)?;
        let data = core::ptr::from_ref(data).cast_mut();
        // SAFETY: By `new` the message is that of a `recvmsg` call. The data has `len` bytes, which
        // are only read. For 32-bit programs the kernel reads timestamps as 64-bit numbers, which
        // are aligned.
        let ret = unsafe { bindings::put_cmsg(self.msg, level, kind, len, data.cast()) };
        to_result(ret)
    }

    /// Passes the sender's address to the program, if the program supplied a buffer.
    pub(crate) fn set_name(&mut self, addr: &SockAddr) {
        if self.msg.msg_name.is_null() {
            return;
        }
        let (bytes, len) = addr.encode();
        // SAFETY: By `new` a name that is not null has room for a `sockaddr_storage` (128 bytes).
        unsafe {
            self.msg
                .msg_name
                .cast::<[u8; SockAddr::MAX_LEN]>()
                .write_unaligned(bytes)
        };
        // CAST: 16 or 28.
        self.msg.msg_namelen = len as c_int;
    }
}
