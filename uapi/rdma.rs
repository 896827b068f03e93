// SPDX-License-Identifier: GPL-2.0

//! Arguments and results of RDMA, as programs pass them: registration, operations, notifications.
//!
//! All numbers are in host byte order.

use super::{
    rds_atomic_args,
    rds_free_mr_args,
    rds_get_mr_args,
    rds_get_mr_for_dest_args,
    rds_iovec,
    rds_rdma_args,
    rds_rdma_notify,
    RDS_RDMA_CANCELED,
    RDS_RDMA_DROPPED,
    RDS_RDMA_FENCE,
    RDS_RDMA_INVALIDATE,
    RDS_RDMA_NOTIFY_ME,
    RDS_RDMA_OTHER_ERROR,
    RDS_RDMA_READWRITE,
    RDS_RDMA_REMOTE_ERROR,
    RDS_RDMA_SILENT,
    RDS_RDMA_SUCCESS,
    RDS_RDMA_USE_ONCE,
    UIO_MAXIOV, //
};
use crate::proto::rdma::{
    Cookie,
    MAX_BYTES, //
};
use core::mem::offset_of;

/// Most [`Area`]s of local memory of one operation.
// CAST: a small number.
pub(crate) const MAX_LOCAL: u64 = UIO_MAXIOV as u64;

/// `RDS_RDMA_*`: flags of a registration or of an operation. Other bits are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RdmaFlags(pub(crate) u64);

// CAST: each number is one bit.
impl RdmaFlags {
    /// Registration: peers may write, too. Operation: a write to the peer's memory.
    pub(crate) const READWRITE: Self = Self(RDS_RDMA_READWRITE as u64);
    /// Operation: the message is sent only when the operation is done. Otherwise it may arrive
    /// before all data is read.
    pub(crate) const FENCE: Self = Self(RDS_RDMA_FENCE as u64);
    /// Registration, or the call that frees the region: the key must be invalid when that call
    /// returns.
    pub(crate) const INVALIDATE: Self = Self(RDS_RDMA_INVALIDATE as u64);
    /// Registration: the region is freed when a peer reports that it has used it.
    pub(crate) const USE_ONCE: Self = Self(RDS_RDMA_USE_ONCE as u64);
    /// Operation: the program is notified of the result.
    pub(crate) const NOTIFY_ME: Self = Self(RDS_RDMA_NOTIFY_ME as u64);
    /// Operation: the peer's program is not notified, and a message without payload is not sent.
    pub(crate) const SILENT: Self = Self(RDS_RDMA_SILENT as u64);

    pub(crate) const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Arguments of a program: the bytes of a C structure.
#[derive(Clone, Copy)]
struct Args<'a>(&'a [u8]);

impl Args<'_> {
    /// Returns the 64-bit number at this offset.
    fn number(self, at: usize) -> Option<u64> {
        let bytes = self.0.get(at..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*bytes))
    }

    fn cookie(self, at: usize) -> Option<Cookie> {
        Some(Cookie::from_bits(self.number(at)?))
    }

    fn flags(self, at: usize) -> Option<RdmaFlags> {
        Some(RdmaFlags(self.number(at)?))
    }

    /// Returns the `struct rds_iovec` at this offset.
    fn area(self, at: usize) -> Option<Area> {
        let area = Args(self.0.get(at..)?);
        Some(Area {
            address: area.number(offset_of!(rds_iovec, addr))?,
            bytes: area.number(offset_of!(rds_iovec, bytes))?,
        })
    }
}

/// Memory of a program: `struct rds_iovec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl Area {
    pub(crate) const LEN: usize = size_of::<rds_iovec>();

    pub(crate) fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        Args(bytes).area(0)
    }

    /// Splits the area at the first multiple of `boundary` behind its start. The second part is
    /// `None` if the area ends before.
    pub(crate) fn split(self, boundary: u64) -> (Self, Option<Self>) {
        let before = self.address.checked_rem(boundary).unwrap_or(0);
        let room = boundary.saturating_sub(before);
        let first = Self {
            address: self.address,
            bytes: self.bytes.min(room),
        };
        let second = Self {
            address: self.address.saturating_add(room),
            bytes: self.bytes.saturating_sub(room),
        };
        (first, (second.bytes > 0).then_some(second))
    }

    /// Returns `true` if the area, or its last page, does not end before the last address.
    pub(crate) fn wraps(&self, page_size: u64) -> bool {
        let end = self.address.checked_add(self.bytes);
        end.and_then(|end| end.checked_next_multiple_of(page_size))
            .is_none()
    }

    /// Returns the number of pages that the area touches, or `None` if it is empty or wraps around.
    pub(crate) fn pages(&self, page_size: u64) -> Option<u64> {
        let last = self.address.checked_add(self.bytes.checked_sub(1)?)?;
        let first_page = self.address.checked_div(page_size)?;
        last.checked_div(page_size)?
            .checked_sub(first_page)?
            .checked_add(1)
    }
}

/// `struct rds_get_mr_args`, and the end of `struct rds_get_mr_for_dest_args`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GetMr {
    pub(crate) area: Area,
    /// Address to which the cookie is written; 0 if the program does not want it.
    pub(crate) cookie_address: u64,
    pub(crate) flags: RdmaFlags,
}

impl GetMr {
    pub(crate) const LEN: usize = size_of::<rds_get_mr_args>();
    /// Size of `struct rds_get_mr_for_dest_args`: the arguments follow a `struct sockaddr_storage`.
    pub(crate) const LEN_FOR_DEST: usize = size_of::<rds_get_mr_for_dest_args>();

    pub(crate) fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let args = Args(bytes);
        Some(Self {
            area: args.area(offset_of!(rds_get_mr_args, vec))?,
            cookie_address: args.number(offset_of!(rds_get_mr_args, cookie_addr))?,
            flags: args.flags(offset_of!(rds_get_mr_args, flags))?,
        })
    }
}

// The end of the longer structure has the layout of the shorter one.
#[allow(clippy::arithmetic_side_effects)] // The compiler evaluates it.
const _: () = {
    const START: usize = GetMr::LEN_FOR_DEST - GetMr::LEN;
    assert!(offset_of!(rds_get_mr_for_dest_args, vec) == START);
    assert!(
        offset_of!(rds_get_mr_for_dest_args, cookie_addr)
            == START + offset_of!(rds_get_mr_args, cookie_addr)
    );
    assert!(
        offset_of!(rds_get_mr_for_dest_args, flags) == START + offset_of!(rds_get_mr_args, flags)
    );
};

/// `struct rds_free_mr_args`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeMr {
    /// Region to free. `None` for all regions that were freed before and may still be in use.
    pub(crate) cookie: Option<Cookie>,
    pub(crate) flags: RdmaFlags,
}

impl FreeMr {
    pub(crate) const LEN: usize = size_of::<rds_free_mr_args>();

    pub(crate) fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let args = Args(bytes);
        let cookie = args.number(offset_of!(rds_free_mr_args, cookie))?;
        Some(Self {
            cookie: (cookie != 0).then_some(Cookie::from_bits(cookie)),
            flags: args.flags(offset_of!(rds_free_mr_args, flags))?,
        })
    }
}

/// Reason for which the arguments of an operation are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgError {
    /// The arguments contradict each other.
    Invalid,
    /// The operation exceeds a limit.
    TooLarge,
}

/// `struct rds_rdma_args`: a write to a peer's memory, or a read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) cookie: Cookie,
    /// Area of the peer's memory. Its address is relative to the offset in the cookie.
    pub(crate) remote: Area,
    /// Address of the array of [`Area`]s.
    pub(crate) local_address: u64,
    /// Number of these [`Area`]s: 1 to [`MAX_LOCAL`].
    pub(crate) local_count: u64,
    pub(crate) flags: RdmaFlags,
    /// The program's name for the operation in its notification.
    pub(crate) token: u64,
}

impl Transfer {
    pub(crate) const LEN: usize = size_of::<rds_rdma_args>();

    pub(crate) fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, ArgError> {
        let this = Self::read(Args(bytes)).ok_or(ArgError::Invalid)?;
        // Checked in the same order as in C, which determines the error.
        match this.local_count {
            _ if this.remote.bytes > MAX_BYTES => Err(ArgError::TooLarge),
            0 => Err(ArgError::Invalid),
            1..=MAX_LOCAL => Ok(this),
            _ => Err(ArgError::TooLarge),
        }
    }

    fn read(args: Args<'_>) -> Option<Self> {
        Some(Self {
            cookie: args.cookie(offset_of!(rds_rdma_args, cookie))?,
            remote: args.area(offset_of!(rds_rdma_args, remote_vec))?,
            local_address: args.number(offset_of!(rds_rdma_args, local_vec_addr))?,
            local_count: args.number(offset_of!(rds_rdma_args, nr_local))?,
            flags: args.flags(offset_of!(rds_rdma_args, flags))?,
            token: args.number(offset_of!(rds_rdma_args, user_token))?,
        })
    }

    /// Returns the start of the operation in the address space of the peer's key.
    ///
    /// # Errors
    ///
    /// [`ArgError::Invalid`] if the operation would exceed that address space.
    pub(crate) fn remote_address(&self) -> Result<u64, ArgError> {
        let from = u64::from(self.cookie.offset).checked_add(self.remote.address);
        let from = from.ok_or(ArgError::Invalid)?;
        from.checked_add(self.remote.bytes)
            .ok_or(ArgError::Invalid)?;
        Ok(from)
    }

    /// Returns the maximum size of bounce buffers for the local memory, in bytes.
    ///
    /// They consist of half pages. An area takes whole pages, and at most one page more for its
    /// ends.
    pub(crate) const fn bounce_bytes(&self, page_size: u64) -> u64 {
        let ends = self.local_count.saturating_mul(page_size);
        self.remote.bytes.saturating_add(ends)
    }

    /// Returns the number of bytes of the local memory.
    ///
    /// # Errors
    ///
    /// - [`ArgError::Invalid`] if an area is empty or wraps around, or if there are more bytes than
    ///   the peer's memory has.
    /// - [`ArgError::TooLarge`] if the number exceeds 32 bits.
    pub(crate) fn local_bytes(
        &self,
        mut areas: impl Iterator<Item = Area>,
        page_size: u64,
    ) -> Result<u32, ArgError> {
        let bytes = areas.try_fold(0u64, |sum, area| {
            area.pages(page_size)?;
            sum.checked_add(area.bytes)
        });
        let bytes = bytes.ok_or(ArgError::Invalid)?;
        if bytes > self.remote.bytes {
            return Err(ArgError::Invalid);
        }
        u32::try_from(bytes).map_err(|_| ArgError::TooLarge)
    }
}

/// Modification that an atomic operation makes. All numbers are in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Adds `add`. No carry goes beyond a bit that is set in `boundary`.
    FetchAdd { add: u64, boundary: u64 },
    /// Compares the bits in `compare_mask`, and replaces those in `swap_mask`.
    CompareSwap {
        compare: u64,
        swap: u64,
        compare_mask: u64,
        swap_mask: u64,
    },
}

impl Change {
    /// Returns a compare-and-swap without masks.
    const fn swap(compare: u64, swap: u64) -> Self {
        Self::CompareSwap {
            compare,
            swap,
            compare_mask: u64::MAX,
            swap_mask: u64::MAX,
        }
    }

    /// Returns `true` if the masks make a difference. Few devices support masks.
    pub(crate) fn is_masked(self) -> bool {
        !matches!(
            self,
            Self::FetchAdd { boundary: 0, .. }
                | Self::CompareSwap {
                    compare_mask: u64::MAX,
                    swap_mask: u64::MAX,
                    ..
                }
        )
    }
}

/// Kind of the control message that requests an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicKind {
    FetchAdd,
    CompareSwap,
    MaskedFetchAdd,
    MaskedCompareSwap,
}

/// `struct rds_atomic_args` of Oracle's kernel (UEK), whose headers Linux does not have.
#[repr(C)]
struct uek_atomic_args {
    cookie: u64,
    local_addr: u64,
    remote_addr: u64,
    swap_add: u64,
    compare: u64,
    flags: u64,
    user_token: u64,
}

/// `struct rds_atomic_args`: a change of eight bytes of a peer's memory. Oracle's kernel (UEK) has
/// a shorter one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtomicArgs {
    pub(crate) cookie: Cookie,
    /// Address to which the previous value is written: a multiple of 8.
    pub(crate) local_address: u64,
    /// Address in the peer's memory, relative to the offset in the cookie.
    remote_address: u64,
    pub(crate) change: Change,
    pub(crate) flags: RdmaFlags,
    pub(crate) token: u64,
}

impl AtomicArgs {
    pub(crate) const LEN: usize = size_of::<rds_atomic_args>();
    /// Size of the structure in UEK.
    pub(crate) const UEK_LEN: usize = size_of::<uek_atomic_args>();
    /// Number of bytes that are changed.
    pub(crate) const BYTES: u32 = 8;

    /// Parses the arguments; their length distinguishes the two forms. Returns `None` if the length
    /// fits neither, or if the UEK form cannot express the request.
    pub(crate) fn parse(kind: AtomicKind, bytes: &[u8]) -> Option<Self> {
        let args = Args(bytes);
        match bytes.len() {
            Self::UEK_LEN => Self::parse_uek(kind, args),
            Self::LEN.. => Self::parse_linux(kind, args),
            _ => None,
        }
    }

    fn parse_linux(kind: AtomicKind, args: Args<'_>) -> Option<Self> {
        Some(Self {
            cookie: args.cookie(offset_of!(rds_atomic_args, cookie))?,
            local_address: args.number(offset_of!(rds_atomic_args, local_addr))?,
            remote_address: args.number(offset_of!(rds_atomic_args, remote_addr))?,
            change: Self::change(kind, args)?,
            flags: args.flags(offset_of!(rds_atomic_args, flags))?,
            token: args.number(offset_of!(rds_atomic_args, user_token))?,
        })
    }

    fn change(kind: AtomicKind, args: Args<'_>) -> Option<Change> {
        /// Reads an operand: a field of a member of the union.
        macro_rules! operand {
            ($member:ident.$field:ident) => {
                args.number(offset_of!(rds_atomic_args, __bindgen_anon_1.$member.$field))?
            };
        }

        Some(match kind {
            AtomicKind::FetchAdd => Change::FetchAdd {
                add: operand!(fadd.add),
                boundary: 0,
            },
            AtomicKind::CompareSwap => Change::swap(operand!(cswp.compare), operand!(cswp.swap)),
            AtomicKind::MaskedFetchAdd => Change::FetchAdd {
                add: operand!(m_fadd.add),
                boundary: operand!(m_fadd.nocarry_mask),
            },
            AtomicKind::MaskedCompareSwap => Change::CompareSwap {
                compare: operand!(m_cswp.compare),
                swap: operand!(m_cswp.swap),
                compare_mask: operand!(m_cswp.compare_mask),
                swap_mask: operand!(m_cswp.swap_mask),
            },
        })
    }

    fn parse_uek(kind: AtomicKind, args: Args<'_>) -> Option<Self> {
        Some(Self {
            cookie: args.cookie(offset_of!(uek_atomic_args, cookie))?,
            local_address: args.number(offset_of!(uek_atomic_args, local_addr))?,
            remote_address: args.number(offset_of!(uek_atomic_args, remote_addr))?,
            change: Self::change_of_uek(kind, args)?,
            flags: args.flags(offset_of!(uek_atomic_args, flags))?,
            token: args.number(offset_of!(uek_atomic_args, user_token))?,
        })
    }

    /// Parses UEK's operands: the value to add or swap in, and the compare value. The latter must
    /// be 0 for an addition. There are no masks.
    fn change_of_uek(kind: AtomicKind, args: Args<'_>) -> Option<Change> {
        let value = args.number(offset_of!(uek_atomic_args, swap_add))?;
        let compare = args.number(offset_of!(uek_atomic_args, compare))?;
        match (kind, compare) {
            (AtomicKind::FetchAdd, 0) => Some(Change::FetchAdd {
                add: value,
                boundary: 0,
            }),
            (AtomicKind::CompareSwap, _) => Some(Change::swap(compare, value)),
            _ => None,
        }
    }

    /// Returns the address of the eight bytes in the address space of the peer's key.
    ///
    /// # Errors
    ///
    /// [`ArgError::Invalid`] if it exceeds that address space, or is not a multiple of 8, which
    /// would end the connection.
    pub(crate) fn remote_address(&self) -> Result<u64, ArgError> {
        const BYTES: u64 = AtomicArgs::BYTES as u64;
        u64::from(self.cookie.offset)
            .checked_add(self.remote_address)
            .filter(|at| at % BYTES == 0 && at.checked_add(BYTES).is_some())
            .ok_or(ArgError::Invalid)
    }
}

/// Status of an operation as reported to programs: `RDS_RDMA_SUCCESS` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Status {
    Success = RDS_RDMA_SUCCESS,
    /// The peer has no such memory, or does not permit the operation on it.
    RemoteError = RDS_RDMA_REMOTE_ERROR,
    /// The program has cancelled the operation.
    Canceled = RDS_RDMA_CANCELED,
    /// The connection ended before the operation was known to be done, and it was not tried again.
    Dropped = RDS_RDMA_DROPPED,
    OtherError = RDS_RDMA_OTHER_ERROR,
}

impl Status {
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        use Status::*;
        [Success, RemoteError, Canceled, Dropped, OtherError]
            .into_iter()
            .find(|status| *status as i32 == number)
    }
}

/// Size of [`notification`] in bytes.
pub(crate) const NOTIFICATION: usize = size_of::<rds_rdma_notify>();

/// Returns `struct rds_rdma_notify`. The bytes behind the status are zero.
pub(crate) fn notification(token: u64, status: Status) -> [u8; NOTIFICATION] {
    let mut bytes = [0; NOTIFICATION];
    let mut put = |at: usize, field: &[u8]| {
        let places = bytes.iter_mut().skip(at);
        for (to, from) in places.zip(field) {
            *to = *from;
        }
    };
    put(
        offset_of!(rds_rdma_notify, user_token),
        &token.to_ne_bytes(),
    );
    put(
        offset_of!(rds_rdma_notify, status),
        &(status as i32).to_ne_bytes(),
    );
    bytes
}
