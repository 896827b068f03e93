// SPDX-License-Identifier: GPL-2.0

//! What programs say about memory that peers may use, and about the use of peers' memory.
//!
//! All numbers are in the byte order of the machine.
//!
//! Source: `include/uapi/linux/rds.h`.

use super::exthdr::{self, Extension, Extensions};

/// The most payload that one operation moves, in bytes.
pub(crate) const MAX_BYTES: u64 = 1 << 20;
/// The most pieces of local memory of one operation.
pub(crate) const MAX_LOCAL: u64 = 1024;

/// By what a program's memory is known to its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cookie {
    pub(crate) rkey: u32,
    /// Where the memory begins, from where the key counts, in bytes.
    pub(crate) offset: u32,
}

impl Cookie {
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self {
            // CAST: the lower half, and the upper one.
            rkey: bits as u32,
            offset: (bits >> 32) as u32,
        }
    }

    pub(crate) const fn to_bits(self) -> u64 {
        (self.offset as u64) << 32 | self.rkey as u64
    }
}

/// What a message says beside its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RdmaExthdrs {
    /// The receiver may use this memory of the sender's.
    pub(crate) memory: Option<Cookie>,
    /// The sender has used memory of the receiver's that has this key.
    pub(crate) used: Option<u32>,
}

impl RdmaExthdrs {
    /// Reads the extensions of a header. `None` if there are none that mean anything to us.
    #[inline]
    pub(crate) fn read(space: &[u8; exthdr::SPACE]) -> Option<Self> {
        if *space == [0; exthdr::SPACE] {
            return None;
        }
        let mut this = Self::default();
        for extension in Extensions::new(space) {
            match extension {
                Extension::RdmaDest { rkey, offset } => this.memory = Some(Cookie { rkey, offset }),
                Extension::Rdma { rkey } => this.used = Some(rkey),
                _ => {}
            }
        }
        (this != Self::default()).then_some(this)
    }

    /// The extensions of the header.
    pub(crate) fn emit(self) -> [u8; exthdr::SPACE] {
        let mut writer = exthdr::Writer::new();
        // There is room for both.
        if let Some(rkey) = self.used {
            let _ = writer.push(Extension::Rdma { rkey });
        }
        if let Some(Cookie { rkey, offset }) = self.memory {
            let _ = writer.push(Extension::RdmaDest { rkey, offset });
        }
        writer.finish()
    }
}

/// `RDS_RDMA_*`: what is asked of a region or of an operation. Others mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(pub(crate) u64);

impl Flags {
    /// A region: peers may write, too. An operation: it writes to the peer's memory.
    pub(crate) const READWRITE: Self = Self(0x01);
    /// An operation: the message is sent when it is done. Otherwise it may arrive before all is read.
    pub(crate) const FENCE: Self = Self(0x02);
    /// The key is to be good no more when the call that frees the region returns: of that call, or of the region.
    pub(crate) const INVALIDATE: Self = Self(0x04);
    /// The region goes when a peer says that it has used it.
    pub(crate) const USE_ONCE: Self = Self(0x08);
    /// The program wants to hear how the operation ended.
    pub(crate) const NOTIFY_ME: Self = Self(0x20);
    /// The peer's program is not to hear of the operation.
    pub(crate) const SILENT: Self = Self(0x40);

    pub(crate) const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Takes 64-bit numbers off the front of what a program gave.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }
}

/// Memory of a program, as it names it: `struct rds_iovec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl Area {
    pub(crate) const LEN: usize = 16;

    pub(crate) fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        Self::take(&mut Words(bytes))
    }

    fn take(words: &mut Words<'_>) -> Option<Self> {
        Some(Self {
            address: words.next()?,
            bytes: words.next()?,
        })
    }

    /// What is before the first multiple of `boundary` within it, and what is from there on.
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

    /// How many pages it has a part of. `None` if it has no bytes, or wraps around.
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
    /// Where the program wants the cookie.
    pub(crate) cookie_address: u64,
    pub(crate) flags: Flags,
}

impl GetMr {
    pub(crate) const LEN: usize = 32;
    /// Behind the destination's `struct sockaddr_storage`.
    pub(crate) const LEN_FOR_DEST: usize = 128 + Self::LEN;

    pub(crate) fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut words = Words(bytes);
        Some(Self {
            area: Area::take(&mut words)?,
            cookie_address: words.next()?,
            flags: Flags(words.next()?),
        })
    }
}

/// `struct rds_free_mr_args`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeMr {
    /// `None` for all that was freed before, and may still be in use.
    pub(crate) cookie: Option<Cookie>,
    pub(crate) flags: Flags,
}

impl FreeMr {
    pub(crate) const LEN: usize = 16;

    pub(crate) fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut words = Words(bytes);
        let cookie = words.next()?;
        Some(Self {
            cookie: (cookie != 0).then_some(Cookie::from_bits(cookie)),
            flags: Flags(words.next()?),
        })
    }
}

/// Why an operation cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgError {
    /// It contradicts itself.
    Invalid,
    /// It is more than one operation may be.
    TooLarge,
}

/// `struct rds_rdma_args`: a write to a peer's memory, or a read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) cookie: Cookie,
    /// In the peer's memory; the address counts from where the cookie says that it begins.
    pub(crate) remote: Area,
    /// Where the program has its [`Area`]s.
    pub(crate) local_address: u64,
    /// How many they are: 1 to [`MAX_LOCAL`].
    pub(crate) local_count: u64,
    pub(crate) flags: Flags,
    /// What the program calls it by when it hears of its end.
    pub(crate) token: u64,
}

impl Transfer {
    pub(crate) const LEN: usize = 56;

    pub(crate) fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, ArgError> {
        let mut words = Words(bytes);
        let this = Self::take(&mut words).ok_or(ArgError::Invalid)?;
        // In the order in which C looks at them.
        match this.local_count {
            _ if this.remote.bytes > MAX_BYTES => Err(ArgError::TooLarge),
            0 => Err(ArgError::Invalid),
            1..=MAX_LOCAL => Ok(this),
            _ => Err(ArgError::TooLarge),
        }
    }

    fn take(words: &mut Words<'_>) -> Option<Self> {
        Some(Self {
            cookie: Cookie::from_bits(words.next()?),
            remote: Area::take(words)?,
            local_address: words.next()?,
            local_count: words.next()?,
            flags: Flags(words.next()?),
            token: words.next()?,
        })
    }

    /// Where in the peer's memory it begins, as devices name it. Fails if that is nowhere.
    pub(crate) fn remote_address(&self) -> Result<u64, ArgError> {
        let from = u64::from(self.cookie.offset).checked_add(self.remote.address);
        let from = from.ok_or(ArgError::Invalid)?;
        from.checked_add(self.remote.bytes)
            .ok_or(ArgError::Invalid)?;
        Ok(from)
    }

    /// How many bytes the local memory has. Fails if a piece is not memory, or if there is more than the peer has.
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

/// What an atomic operation does. All numbers are in the byte order of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Each bit of `boundary` is the last that a carry goes to.
    FetchAdd { add: u64, boundary: u64 },
    /// Looks at the bits of `compare_mask`, and changes those of `swap_mask`.
    CompareSwap {
        compare: u64,
        swap: u64,
        compare_mask: u64,
        swap_mask: u64,
    },
}

impl Change {
    /// Without masks.
    const fn swap(compare: u64, swap: u64) -> Self {
        Self::CompareSwap {
            compare,
            swap,
            compare_mask: u64::MAX,
            swap_mask: u64::MAX,
        }
    }

    /// Whether the masks make a difference: few devices have masks.
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

/// Which control message asks for an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicKind {
    FetchAdd,
    CompareSwap,
    MaskedFetchAdd,
    MaskedCompareSwap,
}

/// `struct rds_atomic_args`: a change of eight bytes of a peer's memory. Oracle's kernel (UEK) has a shorter one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtomicArgs {
    pub(crate) cookie: Cookie,
    /// Where the program wants what was there before: a multiple of 8.
    pub(crate) local_address: u64,
    /// From where the cookie says that the peer's memory begins.
    remote_address: u64,
    pub(crate) change: Change,
    pub(crate) flags: Flags,
    pub(crate) token: u64,
}

impl AtomicArgs {
    pub(crate) const LEN: usize = 72;
    /// That of UEK.
    pub(crate) const UEK_LEN: usize = 56;
    /// How many bytes are changed.
    pub(crate) const BYTES: u32 = 8;

    /// The length tells the two forms apart. `None` if it is that of none, or if the one of UEK does not have what is asked
    /// for.
    pub(crate) fn parse(kind: AtomicKind, bytes: &[u8]) -> Option<Self> {
        let change = match bytes.len() {
            Self::UEK_LEN => Self::change_of_uek,
            Self::LEN.. => Self::change,
            _ => return None,
        };
        let mut words = Words(bytes);
        Some(Self {
            cookie: Cookie::from_bits(words.next()?),
            local_address: words.next()?,
            remote_address: words.next()?,
            change: change(kind, &mut words)?,
            flags: Flags(words.next()?),
            token: words.next()?,
        })
    }

    fn change(kind: AtomicKind, words: &mut Words<'_>) -> Option<Change> {
        let [a, b, c, d] = [words.next()?, words.next()?, words.next()?, words.next()?];
        let add = |boundary| Change::FetchAdd { add: a, boundary };
        Some(match kind {
            AtomicKind::FetchAdd => add(0),
            AtomicKind::CompareSwap => Change::swap(a, b),
            AtomicKind::MaskedFetchAdd => add(b),
            AtomicKind::MaskedCompareSwap => Change::CompareSwap {
                compare: a,
                swap: b,
                compare_mask: c,
                swap_mask: d,
            },
        })
    }

    /// What is to be added or put there, and what is compared, which has to be 0 for a sum. There are no masks.
    fn change_of_uek(kind: AtomicKind, words: &mut Words<'_>) -> Option<Change> {
        let (value, compare) = (words.next()?, words.next()?);
        match (kind, compare) {
            (AtomicKind::FetchAdd, 0) => Some(Change::FetchAdd {
                add: value,
                boundary: 0,
            }),
            (AtomicKind::CompareSwap, _) => Some(Change::swap(compare, value)),
            _ => None,
        }
    }

    /// Where in the peer's memory the bytes are, as devices name it. Fails if that is nowhere, or not a multiple of 8,
    /// which would end the connection.
    pub(crate) fn remote_address(&self) -> Result<u64, ArgError> {
        const BYTES: u64 = AtomicArgs::BYTES as u64;
        u64::from(self.cookie.offset)
            .checked_add(self.remote_address)
            .filter(|at| at % BYTES == 0 && at.checked_add(BYTES).is_some())
            .ok_or(ArgError::Invalid)
    }
}

/// How an operation ended, as programs hear of it: `RDS_RDMA_SUCCESS` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Status {
    Success = 0,
    /// The peer's memory is not there, or not for that.
    RemoteError = 1,
    /// The program has cancelled it.
    Canceled = 2,
    /// The connection ended before it was known to be done, and it was not tried again.
    Dropped = 3,
    OtherError = 4,
}

impl Status {
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        use Status::*;
        [Success, RemoteError, Canceled, Dropped, OtherError]
            .into_iter()
            .find(|status| *status as i32 == number)
    }
}

/// Bytes of [`notification`].
pub(crate) const NOTIFICATION: usize = 16;

/// `struct rds_rdma_notify`: token, status, and four bytes of nothing.
pub(crate) fn notification(token: u64, status: Status) -> [u8; NOTIFICATION] {
    let mut bytes = [0; NOTIFICATION];
    let (head, tail) = bytes.split_at_mut(8);
    head.copy_from_slice(&token.to_ne_bytes());
    if let Some(place) = tail.first_chunk_mut() {
        *place = (status as i32).to_ne_bytes();
    }
    bytes
}
