// SPDX-License-Identifier: GPL-2.0
//! The calls of a fuzzer and their random choice: pure, so that a seed always gives the same calls.

use std::net::IpAddr;

use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};
use rds_socket::SOL_RDS;

/// Largest number of sockets of a process.
pub(crate) const SLOTS: usize = 8;

/// The location of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Memory of the program.
    Good,
    /// The buffer ends with the last mapped byte.
    End,
    /// The last bytes of the buffer are not mapped.
    Across,
    /// Read-only memory.
    ReadOnly,
    /// Unmapped memory.
    Unmapped,
    /// An address of the kernel.
    Kernel,
    /// The end of the address space.
    Top,
    /// A null pointer.
    Null,
}

/// A buffer of a call.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    pub(crate) place: Place,
    /// The first bytes of the buffer.
    pub(crate) content: Vec<u8>,
    /// Bytes of memory.
    pub(crate) size: usize,
    /// The length in bytes that the call passes to the kernel.
    pub(crate) length: u64,
}

/// A list of buffers, and control messages.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) name: Option<Area>,
    pub(crate) pieces: Vec<Area>,
    pub(crate) control: Option<Area>,
    pub(crate) flags: i32,
}

/// A call; `slot` selects the socket.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    /// Opens a socket, and binds it if there is a name.
    Socket {
        slot: usize,
        name: Option<Area>,
    },
    Close {
        slot: usize,
    },
    Dup {
        slot: usize,
        to: usize,
    },
    Bind {
        slot: usize,
        name: Area,
    },
    Connect {
        slot: usize,
        name: Area,
    },
    Send {
        slot: usize,
        message: Message,
    },
    Recv {
        slot: usize,
        message: Message,
    },
    Set {
        slot: usize,
        level: i32,
        option: i32,
        value: Area,
    },
    Get {
        slot: usize,
        level: i32,
        option: i32,
        value: Area,
        length: Place,
    },
    Ioctl {
        slot: usize,
        number: u64,
        value: Area,
    },
    Name {
        slot: usize,
        peer: bool,
        value: Area,
        length: Place,
    },
    Poll {
        slot: usize,
    },
    Shutdown {
        slot: usize,
    },
    /// Another process continues with the same sockets.
    Fork {
        seed: u64,
    },
    /// The thread continues in a new network namespace.
    Unshare,
}

/// The names of the calls, in the order of [`Call::number`].
pub(crate) const NAMES: [&str; 15] = [
    "socket",
    "close",
    "dup",
    "bind",
    "connect",
    "sendmsg",
    "recvmsg",
    "setsockopt",
    "getsockopt",
    "ioctl",
    "getname",
    "poll",
    "shutdown",
    "fork",
    "unshare",
];

impl Call {
    /// Returns the index of the call's name in [`NAMES`].
    pub(crate) fn number(&self) -> usize {
        match self {
            Self::Socket { .. } => 0,
            Self::Close { .. } => 1,
            Self::Dup { .. } => 2,
            Self::Bind { .. } => 3,
            Self::Connect { .. } => 4,
            Self::Send { .. } => 5,
            Self::Recv { .. } => 6,
            Self::Set { .. } => 7,
            Self::Get { .. } => 8,
            Self::Ioctl { .. } => 9,
            Self::Name { .. } => 10,
            Self::Poll { .. } => 11,
            Self::Shutdown { .. } => 12,
            Self::Fork { .. } => 13,
            Self::Unshare => 14,
        }
    }
}

const SOL_SOCKET: i32 = 1;
/// Numbers at or next to a value with a meaning for the kernel.
const EDGES: [u64; 24] = [
    0,
    1,
    3,
    4,
    7,
    8,
    15,
    16,
    27,
    28,
    64,
    127,
    128,
    4095,
    4096,
    4097,
    65535,
    65536,
    1 << 20,
    (1 << 20) + 1,
    (1 << 31) - 1,
    1 << 31,
    u32::MAX as u64,
    u64::MAX,
];
/// Largest size of a buffer's memory, in bytes.
const MOST: u64 = 1 << 21;
const PORTS: [u16; 8] = [0, 1, 4001, 4002, 4003, 4004, 4005, 65535];
const FLAGS: [i32; 14] = [
    0x1,
    0x2,
    0x4,
    0x20,
    0x40,
    0x80,
    0x100,
    0x800,
    0x2000,
    0x4000,
    0x8000,
    0x0400_0000,
    0x2000_0000,
    0x4000_0000,
];
const DONTWAIT: i32 = 0x40;

/// Encodes a `struct sockaddr_in` or `sockaddr_in6`.
fn raw_name(host: IpAddr, port: u16, scope: u32) -> Vec<u8> {
    let mut raw = Vec::new();
    match host {
        IpAddr::V4(v4) => {
            raw.extend(2u16.to_ne_bytes());
            raw.extend(port.to_be_bytes());
            raw.extend(v4.octets());
            raw.extend([0; 8]);
        }
        IpAddr::V6(v6) => {
            raw.extend(10u16.to_ne_bytes());
            raw.extend(port.to_be_bytes());
            raw.extend([0; 4]);
            raw.extend(v6.octets());
            raw.extend(scope.to_ne_bytes());
        }
    }
    raw
}

/// Chooses calls.
pub(crate) struct Chooser<'a, R> {
    pub(crate) rng: R,
    pub(crate) hosts: &'a [IpAddr],
}

impl<R: Rng> Chooser<'_, R> {
    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        *list.choose(&mut self.rng).expect("no list is empty")
    }

    fn slot(&mut self) -> usize {
        self.rng.random_range(0..SLOTS)
    }

    /// Returns `true` once in `times`.
    fn rarely(&mut self, times: u32) -> bool {
        self.rng.random_ratio(1, times)
    }

    fn edge(&mut self) -> u64 {
        let edge = self.of(&EDGES);
        match self.rng.random_range(0..8) {
            0 => edge.wrapping_add(1),
            1 => edge.wrapping_sub(1),
            _ => edge,
        }
    }

    fn place(&mut self) -> Place {
        use Place::{Across, End, Good, Kernel, Null, ReadOnly, Top, Unmapped};
        if self.rarely(8) {
            self.of(&[Across, ReadOnly, Unmapped, Kernel, Top, Null])
        } else {
            self.of(&[Good, End])
        }
    }

    /// Returns a buffer for `content`, now and then with another length.
    fn area(&mut self, content: Vec<u8>) -> Area {
        let size = content.len();
        self.buffer(content, size)
    }

    /// Returns a buffer with `size` bytes of memory, of which `content` are the first.
    fn buffer(&mut self, mut content: Vec<u8>, size: usize) -> Area {
        let mut length = size as u64;
        if self.rarely(8) {
            length = self.edge();
        } else if self.rarely(8) {
            length = length.wrapping_add_signed(self.rng.random_range(-2..=2));
        }
        if !content.is_empty() && self.rarely(8) {
            let at = self.rng.random_range(0..content.len());
            content[at] = self.rng.random();
        }
        // A buffer at the end of mapped memory then ends where the length says.
        let size = if length < MOST { length as usize } else { size };
        content.truncate(size);
        Area {
            place: self.place(),
            content,
            size,
            length,
        }
    }

    fn number(&mut self) -> Vec<u8> {
        let value: i32 = match self.rng.random_range(0..4) {
            0 => self.rng.random_range(0..4),
            1 => self.edge() as i32,
            _ => self.of(&[0, 1, -1, 4096, 100_000]),
        };
        value.to_ne_bytes().to_vec()
    }

    /// Returns a `struct sockaddr_in` or `sockaddr_in6`.
    fn name(&mut self) -> Area {
        let host = self.of(self.hosts);
        let port = self.of(&PORTS);
        let mut raw = raw_name(host, port, self.rng.random_range(0..4));
        if self.rarely(20) {
            let other = self.of(&[0u16, 1, 2, 10, 21, 0xFFFF]);
            raw[..2].copy_from_slice(&other.to_ne_bytes());
        }
        self.area(raw)
    }

    fn control(&mut self) -> Option<Area> {
        if !self.rarely(3) {
            return None;
        }
        let mut raw = Vec::new();
        for _ in 0..self.rng.random_range(1..4) {
            let kind: i32 = self.rng.random_range(-1..16);
            let size = self.of(&[0usize, 4, 8, 16, 24, 32, 56, 64, 72]);
            let mut length = 16 + size as u64;
            if self.rarely(8) {
                length = self.edge();
            }
            raw.extend(length.to_ne_bytes());
            raw.extend(if self.rarely(10) { 1 } else { SOL_RDS }.to_ne_bytes());
            raw.extend(kind.to_ne_bytes());
            for _ in 0..size.div_ceil(8) {
                let word = if self.rarely(2) { self.edge() } else { 0 };
                raw.extend(word.to_ne_bytes());
            }
        }
        Some(self.area(raw))
    }

    fn flags(&mut self) -> i32 {
        let mut flags = if self.rarely(8) { 0 } else { DONTWAIT };
        while self.rarely(6) {
            flags |= self.of(&FLAGS);
        }
        flags
    }

    fn pieces(&mut self, large: bool) -> Vec<Area> {
        let count = if self.rarely(20) {
            1025
        } else {
            self.rng.random_range(0..4)
        };
        (0..count)
            .map(|_| {
                let size = match self.rng.random_range(0..10) {
                    0 if large && count < 4 => self.rng.random_range(0..=(1 << 20) + 1),
                    1..=3 if count < 4 => self.rng.random_range(0..20_000),
                    _ => self.rng.random_range(0..100),
                };
                self.buffer(Vec::new(), size)
            })
            .collect()
    }

    fn message(&mut self, sending: bool) -> Message {
        let name = (!self.rarely(3)).then(|| {
            if sending {
                self.name()
            } else {
                self.buffer(Vec::new(), 128)
            }
        });
        Message {
            name,
            pieces: self.pieces(sending),
            control: if sending {
                self.control()
            } else if self.rarely(2) {
                let size = self.edge().min(2000) as usize;
                Some(self.buffer(Vec::new(), size))
            } else {
                None
            },
            flags: self.flags(),
        }
    }

    /// Returns level, number and value of an option.
    fn option(&mut self) -> (i32, i32, Area) {
        if self.rarely(5) {
            // Options of all sockets. Time limits are left out, as no call may wait for long.
            let option = self.of(&[7, 8, 29, 35, 60, 63, 64]);
            let value = self.number();
            return (SOL_SOCKET, option, self.area(value));
        }
        let option = if self.rarely(20) {
            self.rng.random()
        } else {
            self.rng.random_range(0..14)
        };
        let value = match option {
            1 => return (SOL_RDS, option, self.name()),
            2 | 3 | 7 => {
                let mut words: Vec<u8> = Vec::new();
                if option == 7 {
                    words = self.name().content;
                    words.resize(128, 0);
                }
                for _ in 0..4 {
                    words.extend(self.edge().to_ne_bytes());
                }
                words
            }
            10 => (0..4).map(|_| self.rng.random_range(0..5)).collect(),
            8 | 11 if self.rarely(2) => vec![0; if option == 8 { 12 } else { 36 }],
            _ => self.number(),
        };
        (SOL_RDS, option, self.area(value))
    }

    /// Returns a call that opens a socket. Most sockets are bound to a host of the list, as little
    /// else can be done with unbound ones.
    pub(crate) fn socket(&mut self, slot: usize) -> Call {
        let name = (!self.rarely(4)).then(|| {
            let host = self.of(self.hosts);
            let port = if self.rarely(2) { 0 } else { self.of(&PORTS) };
            let content = raw_name(host, port, 0);
            let size = content.len();
            Area {
                place: Place::Good,
                content,
                size,
                length: size as u64,
            }
        });
        Call::Socket { slot, name }
    }

    /// Returns the next call.
    pub(crate) fn next(&mut self) -> Call {
        let slot = self.slot();
        match self.rng.random_range(0..1000) {
            0..60 => self.socket(slot),
            60..75 => Call::Close { slot },
            75..85 => Call::Dup {
                slot,
                to: self.slot(),
            },
            85..195 => Call::Bind {
                slot,
                name: self.name(),
            },
            195..235 => Call::Connect {
                slot,
                name: self.name(),
            },
            235..500 => Call::Send {
                slot,
                message: self.message(true),
            },
            500..730 => Call::Recv {
                slot,
                message: self.message(false),
            },
            730..800 => {
                let (level, option, value) = self.option();
                Call::Set {
                    slot,
                    level,
                    option,
                    value,
                }
            }
            800..880 => {
                let option = match self.rng.random_range(0..8) {
                    0 => self.rng.random(),
                    1 => self.rng.random_range(0..14),
                    _ => self.rng.random_range(10_000..10_019),
                };
                let size = self.rng.random_range(0..10_000);
                let level = if self.rarely(10) { SOL_SOCKET } else { SOL_RDS };
                Call::Get {
                    slot,
                    level,
                    option,
                    value: self.buffer(Vec::new(), size),
                    length: self.place(),
                }
            }
            880..905 => {
                let number = self.of(&[0x89E0, 0x89E1, 0x541B, 0x8905]);
                let value = self.number();
                Call::Ioctl {
                    slot,
                    number,
                    value: self.area(value),
                }
            }
            905..930 => {
                let peer = self.rng.random();
                Call::Name {
                    slot,
                    peer,
                    value: self.buffer(Vec::new(), 28),
                    length: self.place(),
                }
            }
            930..990 => Call::Poll { slot },
            990..994 => Call::Shutdown { slot },
            994..998 => Call::Fork {
                seed: self.rng.random(),
            },
            _ => Call::Unshare,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::SeedableRng;

    use super::*;

    fn calls(seed: u64, count: usize) -> Vec<Call> {
        let hosts = ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        let mut chooser = Chooser {
            rng: SmallRng::seed_from_u64(seed),
            hosts: &hosts,
        };
        (0..count).map(|_| chooser.next()).collect()
    }

    #[test]
    fn a_seed_gives_the_same_calls() {
        assert_eq!(
            format!("{:?}", calls(7, 200)),
            format!("{:?}", calls(7, 200))
        );
        assert_ne!(
            format!("{:?}", calls(7, 200)),
            format!("{:?}", calls(8, 200))
        );
    }

    #[test]
    fn every_call_comes() {
        let found = calls(1, 20_000);
        for (number, name) in NAMES.iter().enumerate() {
            assert!(found.iter().any(|x| x.number() == number), "no {name}");
        }
    }

    #[test]
    fn no_buffer_is_larger_than_there_is_room_for() {
        for call in calls(2, 5000) {
            if let Call::Send { message, .. } | Call::Recv { message, .. } = call {
                assert!(message.pieces.iter().all(|x| x.size as u64 <= MOST));
            }
        }
    }
}
