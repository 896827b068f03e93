// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What programs tell the kernel of memory that peers use: the structures of `linux/rds.h`.

use std::fmt;
use std::net::SocketAddr;

use crate::addr::RawAddr;
use crate::control::encode;
use crate::memory::Area;

const RDS_CMSG_RDMA_ARGS: i32 = 1;
pub(crate) const RDS_CMSG_RDMA_DEST: i32 = 2;
const RDS_CMSG_RDMA_MAP: i32 = 3;
const RDS_CMSG_ATOMIC_FADD: i32 = 6;
const RDS_CMSG_ATOMIC_CSWP: i32 = 7;
const RDS_CMSG_MASKED_ATOMIC_FADD: i32 = 8;
const RDS_CMSG_MASKED_ATOMIC_CSWP: i32 = 9;

const RDS_RDMA_READWRITE: u64 = 1;
const RDS_RDMA_FENCE: u64 = 2;
pub(crate) const RDS_RDMA_INVALIDATE: u64 = 4;
const RDS_RDMA_USE_ONCE: u64 = 8;
const RDS_RDMA_NOTIFY_ME: u64 = 0x20;

/// Names a region: memory that is registered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cookie(u64);

impl Cookie {
    /// With the number that the kernel gave or is given.
    pub const fn new(number: u64) -> Self {
        Cookie(number)
    }

    /// The number, which a program may also send to its peer in a message.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({:#x})", self.0)
    }
}

/// How long a region is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Until a peer's message says that it has used it.
    Once,
    /// Until it is freed, or the socket is closed.
    UntilFreed,
}

impl Lifetime {
    /// The flags of such a region, which peers may write to.
    fn flags(self) -> u64 {
        match self {
            Lifetime::Once => RDS_RDMA_READWRITE | RDS_RDMA_USE_ONCE,
            Lifetime::UntilFreed => RDS_RDMA_READWRITE,
        }
    }
}

/// `struct rds_get_mr_args`; `cookie` is written to by the call that it is for.
pub(crate) fn region(area: Area<'_>, lifetime: Lifetime, cookie: *mut u64) -> [u64; 4] {
    let len = area.len() as u64;
    [area.address(), len, cookie as u64, lifetime.flags()]
}

/// `struct rds_get_mr_for_dest_args`: room for any address, and what [`region`] has.
pub(crate) fn region_for(destination: SocketAddr, region: [u64; 4]) -> [u64; 20] {
    let mut args = [0; 20];
    let address = RawAddr::from(destination);
    for (word, bytes) in args.iter_mut().zip(address.bytes().chunks(8)) {
        let mut padded = [0; 8];
        padded
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, &from)| *to = from);
        *word = u64::from_ne_bytes(padded);
    }
    args[16..].copy_from_slice(&region);
    args
}

/// Which way bytes go in a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the peer's memory.
    Write,
    /// From the peer's memory. The message that comes with it is sent when all is read.
    Read,
}

/// What is done with a number of 64 bits, at once for all that do so through the same device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Adds to it.
    FetchAdd {
        /// What is added.
        add: u64,
    },
    /// Takes another one for it, if it is the one that is expected.
    CompareSwap {
        /// What it has to be.
        compare: u64,
        /// What it becomes.
        swap: u64,
    },
    /// Adds to each of the fields that it consists of.
    MaskedFetchAdd {
        /// What is added.
        add: u64,
        /// Bits that nothing is carried over from: the highest of each field.
        no_carry: u64,
    },
    /// Takes other bits for some of it, if some of it is as expected.
    MaskedCompareSwap {
        /// What it has to be.
        compare: u64,
        /// What it becomes.
        swap: u64,
        /// Which bits are compared.
        compare_mask: u64,
        /// Which bits are changed.
        swap_mask: u64,
    },
}

impl Atomic {
    /// The kind of control message, and the numbers in it.
    fn numbers(self) -> (i32, [u64; 4]) {
        match self {
            Atomic::FetchAdd { add } => (RDS_CMSG_ATOMIC_FADD, [add, 0, 0, 0]),
            Atomic::CompareSwap { compare, swap } => (RDS_CMSG_ATOMIC_CSWP, [compare, swap, 0, 0]),
            Atomic::MaskedFetchAdd { add, no_carry } => {
                (RDS_CMSG_MASKED_ATOMIC_FADD, [add, no_carry, 0, 0])
            }
            Atomic::MaskedCompareSwap {
                compare,
                swap,
                compare_mask,
                swap_mask,
            } => {
                let numbers = [compare, swap, compare_mask, swap_mask];
                (RDS_CMSG_MASKED_ATOMIC_CSWP, numbers)
            }
        }
    }
}

/// What a message has beyond its payload.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Control<'a> {
    /// The cookie of a region of this socket's.
    Region(Cookie),
    /// Registers memory, and tells the peer its cookie.
    Register(Area<'a>, Lifetime),
    /// Moves bytes between local memory and a region of the peer's.
    Transfer {
        /// Which way.
        direction: Direction,
        /// The peer's.
        region: Cookie,
        /// How many bytes of the region come before those that are meant.
        at: u64,
        /// Each of them has a byte at least.
        local: Vec<Area<'a>>,
        /// What the kernel tells the end of it with.
        token: u64,
    },
    /// Changes a number in a region of the peer's.
    Atomic {
        /// How.
        operation: Atomic,
        /// The peer's.
        region: Cookie,
        /// How many bytes of the region come before the number, which is at a multiple of eight in
        /// its memory.
        at: u64,
        /// Gets the number that was there, at a multiple of eight as well.
        local: Area<'a>,
        /// What the kernel tells the end of it with.
        token: u64,
    },
}

/// A control message, with what it has the addresses of.
pub(crate) struct RawControl<'a> {
    pub(crate) bytes: Vec<u8>,
    /// Of `struct rds_iovec`.
    _areas: Vec<[u64; 2]>,
    _memory: Control<'a>,
}

impl<'a> RawControl<'a> {
    /// `cookie` is where the kernel writes that of what it registers.
    pub(crate) fn new(control: Control<'a>, cookie: *mut u64) -> Self {
        let mut areas = Vec::new();
        let bytes = match &control {
            Control::Region(cookie) => encode(RDS_CMSG_RDMA_DEST, &[cookie.0]),
            Control::Register(area, lifetime) => {
                encode(RDS_CMSG_RDMA_MAP, &region(*area, *lifetime, cookie))
            }
            Control::Transfer {
                direction,
                region,
                at,
                local,
                token,
            } => {
                areas.extend(local.iter().map(|area| [area.address(), area.len() as u64]));
                let bytes = areas.iter().map(|[_, bytes]| bytes).sum();
                let flags = match direction {
                    Direction::Write => RDS_RDMA_READWRITE,
                    Direction::Read => RDS_RDMA_FENCE,
                } | RDS_RDMA_NOTIFY_ME;
                let (place, count) = (areas.as_ptr() as u64, areas.len() as u64);
                let args = [region.0, *at, bytes, place, count, flags, *token];
                encode(RDS_CMSG_RDMA_ARGS, &args)
            }
            Control::Atomic {
                operation,
                region,
                at,
                local,
                token,
            } => {
                let (kind, [a, b, c, d]) = operation.numbers();
                let local = local.address();
                let flags = RDS_RDMA_NOTIFY_ME;
                encode(kind, &[region.0, local, *at, a, b, c, d, flags, *token])
            }
        };
        RawControl {
            bytes,
            _areas: areas,
            _memory: control,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::decode;
    use crate::memory::Memory;
    use crate::SOL_RDS;

    /// The data of the only control message.
    fn numbers(control: &RawControl<'_>, kind: i32) -> Vec<u64> {
        let all: Vec<_> = decode(&control.bytes).collect();
        assert_eq!((all.len(), all[0].0, all[0].1), (1, SOL_RDS, kind));
        let words = all[0].2.chunks_exact(8);
        words
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
            .collect()
    }

    fn raw(control: Control<'_>) -> RawControl<'_> {
        RawControl::new(control, std::ptr::null_mut())
    }

    #[test]
    fn transfers_are_as_the_kernel_has_them() {
        let memory = Memory::new(300).unwrap();
        let local = [memory.area(0, 100).unwrap(), memory.area(100, 50).unwrap()];
        for (direction, flags) in [(Direction::Write, 0x21), (Direction::Read, 0x22)] {
            let raw = raw(Control::Transfer {
                direction,
                region: Cookie(7),
                at: 40,
                local: local.to_vec(),
                token: 9,
            });
            let numbers = numbers(&raw, 1);
            assert_eq!(numbers[..3], [7, 40, 150]);
            assert_eq!(numbers[3], raw._areas.as_ptr() as u64);
            assert_eq!(numbers[4..], [2, flags, 9]);
            let start = local[0].address();
            assert_eq!(raw._areas, [[start, 100], [start + 100, 50]]);
        }
    }

    #[test]
    fn other_controls_are_as_the_kernel_has_them() {
        let memory = Memory::new(300).unwrap();
        let area = memory.area(8, 100).unwrap();
        let region = raw(Control::Region(Cookie(5)));
        assert_eq!(numbers(&region, 2), [5]);

        let mut cookie = 0;
        let place = std::ptr::from_mut(&mut cookie);
        let registered = RawControl::new(Control::Register(area, Lifetime::Once), place);
        let wanted = [area.address(), 100, place as u64, 9];
        assert_eq!(numbers(&registered, 3), wanted);

        let four = Atomic::MaskedCompareSwap {
            compare: 1,
            swap: 2,
            compare_mask: 3,
            swap_mask: 4,
        };
        let two = Atomic::MaskedFetchAdd {
            add: 77,
            no_carry: 8,
        };
        let (compare, swap) = (1, 2);
        for (operation, kind, wanted) in [
            (Atomic::FetchAdd { add: 77 }, 6, [77, 0, 0, 0]),
            (Atomic::CompareSwap { compare, swap }, 7, [1, 2, 0, 0]),
            (two, 8, [77, 8, 0, 0]),
            (four, 9, [1, 2, 3, 4]),
        ] {
            let raw = raw(Control::Atomic {
                operation,
                region: Cookie(5),
                at: 16,
                local: area,
                token: 3,
            });
            let [a, b, c, d] = wanted;
            let wanted = [5, area.address(), 16, a, b, c, d, 0x20, 3];
            assert_eq!(numbers(&raw, kind), wanted);
        }
    }

    #[test]
    fn a_region_for_a_peer_has_its_address_before_it() {
        let args = region_for("10.1.2.3:258".parse().unwrap(), [1, 2, 3, 4]);
        let bytes: Vec<u8> = args.into_iter().flat_map(u64::to_ne_bytes).collect();
        // Room for an address, and four numbers.
        assert_eq!(bytes.len(), 128 + 32);
        assert_eq!(bytes[2..8], [1, 2, 10, 1, 2, 3]);
        assert_eq!(
            (args[2..16].iter().sum::<u64>(), &args[16..]),
            (0, &[1, 2, 3, 4][..])
        );
        let args = region_for("[::7]:1".parse().unwrap(), [0; 4]);
        assert_eq!(args[2].to_ne_bytes()[7], 7);
    }
}
