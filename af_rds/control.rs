// SPDX-License-Identifier: GPL-2.0

//! Requests in the control messages of `sendmsg(2)`: memory to announce, and an operation.

use super::{
    operation::OpRequest,
    rdma, //
};
use crate::{
    kapi::{
        errno::Errno,
        net::{
            SendMsg,
            Sock, //
        }, //
    },
    proto::{
        faults::Admission,
        rdma::Cookie, //
    },
    socket::{
        BounceCharge,
        MsgMeta,
        RegionKey,
        Socket, //
    },
    uapi::{
        rdma::{
            AtomicArgs,
            AtomicKind,
            GetMr,
            Transfer, //
        },
        RDS_CMSG_ATOMIC_CSWP,
        RDS_CMSG_ATOMIC_FADD,
        RDS_CMSG_MASKED_ATOMIC_CSWP,
        RDS_CMSG_MASKED_ATOMIC_FADD,
        RDS_CMSG_RDMA_ARGS,
        RDS_CMSG_RDMA_DEST,
        RDS_CMSG_RDMA_MAP,
        SOL_RDS, //
    }, //
};
use kernel::prelude::*;

/// Memory of the sender that a message announces to its receiver.
pub(super) enum MrArg {
    /// Memory that the program has registered before.
    Known(Cookie),
    /// Memory to register with the message.
    New(GetMr),
}

impl MrArg {
    /// Registers the memory if necessary. Returns the cookie, and the key with which to undo a
    /// registration.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if the socket has no region with this cookie.
    /// - Those of [`rdma::register`].
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(super) fn cookie(self, sk: &Sock<Socket>) -> Result<(Cookie, Option<RegionKey>)> {
        match self {
            Self::Known(cookie) if !sk.memory.has(cookie) => Err(EINVAL),
            Self::Known(cookie) => Ok((cookie, None)),
            Self::New(args) => rdma::register(sk, &args).map(|(it, key)| (it, Some(key))),
        }
    }
}

/// Requests of the control messages.
#[derive(Default)]
pub(super) struct Control {
    pub(super) memory: Option<MrArg>,
    pub(super) operation: Option<OpRequest>,
    /// The time at which the operation was admitted.
    pub(super) admission: Admission,
    /// Charge for bounce buffers of the operation, if it needs them.
    pub(super) bounce: Option<BounceCharge>,
}

impl Control {
    /// Returns the memory of the requests in a message on the loop transport, in bytes.
    pub(super) fn meta_size(&self) -> usize {
        self.memory.as_ref().map_or(0, |_| MsgMeta::SIZE)
    }

    /// Sets the memory to announce.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if it is already set.
    fn set_memory(&mut self, mr: MrArg) -> Result {
        match self.memory.replace(mr) {
            None => Ok(()),
            Some(_) => Err(EINVAL),
        }
    }

    /// Sets the operation.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if it is already set.
    fn set_operation(&mut self, request: OpRequest) -> Result {
        match self.operation.replace(request) {
            None => Ok(()),
            Some(_) => Err(EINVAL),
        }
    }
}

/// Parses the control messages. Returns `None` if there are no requests.
///
/// # Errors
///
/// - `EINVAL` for a control message of `SOL_RDS` that is invalid, repeated or unknown.
/// - `ENOMEM`
#[cold]
pub(super) fn control_of(msg: &SendMsg<'_>) -> Result<Option<KBox<Control>>> {
    let mut control = Control::default();
    for cmsg in msg.cmsgs() {
        let cmsg = cmsg?;
        if cmsg.level != SOL_RDS {
            continue;
        }
        let atomic = |kind| -> Result<OpRequest> {
            let args = AtomicArgs::parse(kind, cmsg.data).ok_or(EINVAL)?;
            Ok(OpRequest::Atomic(args))
        };
        match cmsg.kind {
            RDS_CMSG_RDMA_DEST => {
                let bits = cmsg.data.first_chunk().ok_or(EINVAL)?;
                let cookie = Cookie::from_bits(u64::from_ne_bytes(*bits));
                control.set_memory(MrArg::Known(cookie))?;
            }
            RDS_CMSG_RDMA_MAP => {
                let args = cmsg.data.first_chunk().ok_or(EINVAL)?;
                control.set_memory(MrArg::New(GetMr::parse(args).ok_or(EINVAL)?))?;
            }
            RDS_CMSG_RDMA_ARGS => {
                let args = cmsg.data.first_chunk().ok_or(EINVAL)?;
                control.set_operation(OpRequest::Transfer(Transfer::parse(args)?))?;
            }
            RDS_CMSG_ATOMIC_FADD => control.set_operation(atomic(AtomicKind::FetchAdd)?)?,
            RDS_CMSG_ATOMIC_CSWP => control.set_operation(atomic(AtomicKind::CompareSwap)?)?,
            RDS_CMSG_MASKED_ATOMIC_FADD => {
                control.set_operation(atomic(AtomicKind::MaskedFetchAdd)?)?
            }
            RDS_CMSG_MASKED_ATOMIC_CSWP => {
                control.set_operation(atomic(AtomicKind::MaskedCompareSwap)?)?;
            }
            _ => return Err(EINVAL),
        }
    }
    if control.memory.is_none() && control.operation.is_none() {
        return Ok(None);
    }
    Ok(Some(KBox::new(control, GFP_KERNEL)?))
}

/// Returns the error for a message that is too long. As with C RDS, errors of control messages have
/// priority.
#[cold]
pub(super) fn too_long(msg: &SendMsg<'_>) -> Error {
    for cmsg in msg.cmsgs() {
        match cmsg {
            Err(error) => return error,
            Ok(it) if it.level == SOL_RDS && it.kind == RDS_CMSG_RDMA_ARGS => {
                if it.data.len() < Transfer::LEN {
                    return EINVAL;
                }
            }
            Ok(_) => {}
        }
    }
    Errno::MessageTooLong.into()
}
