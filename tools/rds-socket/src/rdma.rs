// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What programs tell the kernel, and it tells them, of memory that peers use: the structures of `linux/rds.h`.

use std::fmt;

use crate::control::encode;
use crate::memory::Area;

const RDS_CMSG_RDMA_ARGS: i32 = 1;
pub(crate) const RDS_CMSG_RDMA_DEST: i32 = 2;
const RDS_CMSG_RDMA_MAP: i32 = 3;
const RDS_CMSG_ATOMIC_FADD: i32 = 6;

const RDS_RDMA_READWRITE: u64 = 1;
const RDS_RDMA_FENCE: u64 = 2;
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

    pub(crate) fn number(self) -> u64 {
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

/// Which way bytes go in a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the peer's memory.
    Write,
    /// From the peer's memory. The message that comes with it is sent when all is read.
    Read,
}

/// What a message has beyond its payload.
#[derive(Clone, Debug)]
pub enum Control<'a> {
    /// The cookie of a region of this socket's.
    Region(Cookie),
    /// Registers memory, and tells the peer its cookie.
    Register(Area<'a>, Lifetime),
    /// Moves bytes between local memory and the first bytes of a region of the peer's.
    Transfer {
        /// Which way.
        direction: Direction,
        /// The peer's.
        region: Cookie,
        /// Each of them has a byte at least.
        local: Vec<Area<'a>>,
        /// What the kernel tells the end of it with.
        token: u64,
    },
    /// Adds to the number in the first eight bytes of a region of the peer's.
    FetchAdd {
        /// The peer's.
        region: Cookie,
        /// Gets the number that was there.
        local: Area<'a>,
        /// What is added.
        add: u64,
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
                let args = [region.0, 0, bytes, place, count, flags, *token];
                encode(RDS_CMSG_RDMA_ARGS, &args)
            }
            Control::FetchAdd {
                region,
                local,
                add,
                token,
            } => {
                let local = local.address();
                let flags = RDS_RDMA_NOTIFY_ME;
                let args = [region.0, local, 0, *add, 0, 0, 0, flags, *token];
                encode(RDS_CMSG_ATOMIC_FADD, &args)
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

    /// The data of the only control message.
    fn numbers(control: &RawControl<'_>, kind: i32) -> Vec<u64> {
        let all: Vec<_> = decode(&control.bytes).collect();
        assert_eq!((all.len(), all[0].0), (1, kind));
        let words = all[0].1.chunks_exact(8);
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
                local: local.to_vec(),
                token: 9,
            });
            let numbers = numbers(&raw, 1);
            assert_eq!(numbers[..3], [7, 0, 150]);
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

        let raw = raw(Control::FetchAdd {
            region: Cookie(5),
            local: area,
            add: 77,
            token: 3,
        });
        let wanted = [5, area.address(), 0, 77, 0, 0, 0, 0x20, 3];
        assert_eq!(numbers(&raw, 6), wanted);
    }
}
