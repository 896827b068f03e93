// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The structures of `linux/rds.h` for memory that peers access.

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

/// The cookie of a region: registered memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cookie(u64);

impl Cookie {
    /// Creates a cookie from a number that the kernel returned or is given.
    pub const fn new(number: u64) -> Self {
        Cookie(number)
    }

    /// Returns the number, which a program may also send to its peer in a message.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({:#x})", self.0)
    }
}

/// The lifetime of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// The region ends when a message of a peer reports its use.
    Once,
    /// The region ends when it is freed, or when the socket is closed.
    UntilFreed,
}

impl Lifetime {
    /// Returns the flags of such a region, to which peers may write.
    fn flags(self) -> u64 {
        match self {
            Lifetime::Once => RDS_RDMA_READWRITE | RDS_RDMA_USE_ONCE,
            Lifetime::UntilFreed => RDS_RDMA_READWRITE,
        }
    }
}

/// Encodes `struct rds_get_mr_args`; the call that uses it writes to `cookie`.
pub(crate) fn region(area: Area<'_>, lifetime: Lifetime, cookie: *mut u64) -> [u64; 4] {
    let len = area.len() as u64;
    [area.address(), len, cookie as u64, lifetime.flags()]
}

/// Encodes `struct rds_get_mr_for_dest_args`: room for any address, and the numbers of [`region`].
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

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the peer's memory.
    Write,
    /// From the peer's memory. The message that carries it is sent when all bytes are read.
    Read,
}

/// An operation on a number of 64 bits. It is atomic among all operations through the same device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Adds to the number.
    FetchAdd {
        /// The addend.
        add: u64,
    },
    /// Replaces the number, if it has the expected value.
    CompareSwap {
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Adds to each of the fields of the number.
    MaskedFetchAdd {
        /// The addend.
        add: u64,
        /// Bits without a carry to the next one: the highest of each field.
        no_carry: u64,
    },
    /// Replaces some bits of the number, if some of its bits have the expected value.
    MaskedCompareSwap {
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
        /// The bits that are compared.
        compare_mask: u64,
        /// The bits that are replaced.
        swap_mask: u64,
    },
}

impl Atomic {
    /// Returns the kind of control message, and the numbers in it.
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

/// The control message that a message carries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Control<'a> {
    /// The cookie of a region of this socket.
    Region(Cookie),
    /// Registers memory, and sends its cookie to the peer.
    Register(Area<'a>, Lifetime),
    /// Moves bytes between local memory and a region of the peer.
    Transfer {
        /// The direction.
        direction: Direction,
        /// The peer's region.
        region: Cookie,
        /// Offset of the bytes in the region.
        at: u64,
        /// Local memory. Each area has at least one byte.
        local: Vec<Area<'a>>,
        /// The token in the kernel's report of the end.
        token: u64,
    },
    /// Changes a number in a region of the peer.
    Atomic {
        /// The operation.
        operation: Atomic,
        /// The peer's region.
        region: Cookie,
        /// Offset of the number in the region. In the peer's memory it is at a multiple of eight.
        at: u64,
        /// Receives the previous value of the number; also at a multiple of eight.
        local: Area<'a>,
        /// The token in the kernel's report of the end.
        token: u64,
    },
}

/// A control message, with the memory to which it points.
pub(crate) struct RawControl<'a> {
    pub(crate) bytes: Vec<u8>,
    /// Array of `struct rds_iovec`.
    _areas: Vec<[u64; 2]>,
    _memory: Control<'a>,
}

impl<'a> RawControl<'a> {
    /// Encodes a control message. The kernel writes the cookie of registered memory to `cookie`.
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

    /// Returns the data of the only control message.
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
