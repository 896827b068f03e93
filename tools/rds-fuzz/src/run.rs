// SPDX-License-Identifier: GPL-2.0
//! Makes the calls.

use std::io;
use std::mem;
use std::net::IpAddr;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Result;
use libc::{c_int, c_void, socklen_t};
use rand::rngs::SmallRng;
use rand::SeedableRng;
use rds_socket::AF_RDS;

use crate::call::{Area, Call, Chooser, Message, Place, NAMES, SLOTS};
use crate::coverage::{Coverage, Reached};
use crate::memory::{shared, Memory};

/// Number of error numbers that are counted separately.
pub(crate) const ERRORS: usize = 200;
/// Largest number of processes that `Call::Fork` creates at a time, and the number of calls of
/// each.
const FORKS: u64 = 8;
const CALLS_OF_A_FORK: usize = 200;
/// Time limit of a waiting call, in microseconds.
const PATIENCE: i64 = 20_000;

/// The counts of all processes.
pub(crate) struct Counts {
    words: &'static [AtomicU64],
}

impl Counts {
    const SIZE: usize = NAMES.len() * ERRORS + 1;

    pub(crate) fn new() -> Result<Self> {
        let words = shared(Self::SIZE)?;
        Ok(Self { words })
    }

    /// Returns the number of calls that ended with an error; 0 is success.
    pub(crate) fn of(&self, call: usize, error: usize) -> u64 {
        self.words[call * ERRORS + error].load(Ordering::Relaxed)
    }

    fn add(&self, call: usize, error: usize) {
        self.words[call * ERRORS + error.min(ERRORS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    fn forks(&self) -> &AtomicU64 {
        &self.words[Self::SIZE - 1]
    }
}

/// State that all threads of all processes share.
pub(crate) struct Common<'a> {
    /// The addresses that are bound and sent to.
    pub(crate) hosts: &'a [IpAddr],
    pub(crate) counts: Counts,
    /// The reached addresses, if they are recorded.
    pub(crate) reached: Option<Reached>,
    /// The end of the run.
    pub(crate) end: Instant,
}

impl Common<'_> {
    /// Returns the coverage of the calling thread.
    fn coverage(&self) -> Result<Option<Coverage<'_>>> {
        self.reached.as_ref().map(Coverage::start).transpose()
    }
}

/// The sockets of a process.
pub(crate) type Sockets = [AtomicI32; SLOTS];

/// One thread.
pub(crate) struct Runner<'a> {
    chooser: Chooser<'a, SmallRng>,
    memory: Memory,
    sockets: &'a Sockets,
    common: &'a Common<'a>,
    coverage: Option<Coverage<'a>>,
}

fn result(value: i64) -> usize {
    if value >= 0 {
        0
    } else {
        io::Error::last_os_error().raw_os_error().unwrap_or(0) as usize
    }
}

impl<'a> Runner<'a> {
    pub(crate) fn new(seed: u64, sockets: &'a Sockets, common: &'a Common<'a>) -> Result<Self> {
        Ok(Self {
            chooser: Chooser {
                rng: SmallRng::seed_from_u64(seed),
                hosts: common.hosts,
            },
            memory: Memory::new()?,
            sockets,
            common,
            coverage: common.coverage()?,
        })
    }

    /// Makes calls until the end.
    pub(crate) fn run(&mut self) {
        for slot in 0..SLOTS {
            let call = self.chooser.socket(slot);
            self.call(&call);
        }
        while Instant::now() < self.common.end {
            self.step();
        }
    }

    fn step(&mut self) {
        let call = self.chooser.next();
        self.memory.reset();
        if let Some(coverage) = &self.coverage {
            coverage.begin();
        }
        let error = self.call(&call);
        if let Some(coverage) = &self.coverage {
            coverage.end();
        }
        self.common.counts.add(call.number(), error);
    }

    fn fd(&self, slot: usize) -> c_int {
        self.sockets[slot].load(Ordering::Relaxed)
    }

    /// Puts a descriptor, or -1, into a slot; closes the descriptor that was there.
    fn put(&self, slot: usize, fd: c_int) -> usize {
        let old = self.sockets[slot].swap(fd, Ordering::Relaxed);
        // SAFETY: Only the sockets of this process own the descriptors in slots.
        result(unsafe { libc::close(old) }.into())
    }

    fn call(&mut self, call: &Call) -> usize {
        match call {
            Call::Socket { slot, name } => self.socket(*slot, name.as_ref()),
            Call::Close { slot } => self.put(*slot, -1),
            Call::Dup { slot, to } => {
                // SAFETY: Any number is allowed.
                let fd = unsafe { libc::dup(self.fd(*slot)) };
                if fd >= 0 {
                    self.put(*to, fd);
                }
                result(fd.into())
            }
            Call::Bind { slot, name } => self.bind(self.fd(*slot), name),
            Call::Connect { slot, name } => {
                let at = self.memory.put(name);
                // SAFETY: The kernel checks the address.
                result(
                    unsafe { libc::connect(self.fd(*slot), at.cast(), name.length as socklen_t) }
                        .into(),
                )
            }
            Call::Send { slot, message } => {
                let (header, _pieces) = self.header(message);
                // SAFETY: The header is valid; the kernel checks the pointers in it.
                result(unsafe { libc::sendmsg(self.fd(*slot), &header, message.flags) } as i64)
            }
            Call::Recv { slot, message } => {
                let (mut header, _pieces) = self.header(message);
                // SAFETY: The header is valid; it does not point to an object of this program.
                result(unsafe { libc::recvmsg(self.fd(*slot), &mut header, message.flags) } as i64)
            }
            Call::Set {
                slot,
                level,
                option,
                value,
            } => {
                let at = self.memory.put(value);
                let length = value.length as socklen_t;
                // SAFETY: The kernel checks the address.
                result(
                    unsafe { libc::setsockopt(self.fd(*slot), *level, *option, at, length) }.into(),
                )
            }
            Call::Get {
                slot,
                level,
                option,
                value,
                length,
            } => {
                let at = self.memory.put(value);
                let length = self.length(value, *length);
                // SAFETY: The address is not that of an object of this program.
                result(
                    unsafe { libc::getsockopt(self.fd(*slot), *level, *option, at, length) }.into(),
                )
            }
            Call::Ioctl {
                slot,
                number,
                value,
            } => {
                let at = self.memory.put(value);
                // SAFETY: The address is not that of an object of this program.
                result(unsafe { libc::ioctl(self.fd(*slot), *number, at) }.into())
            }
            Call::Name {
                slot,
                peer,
                value,
                length,
            } => {
                let at = self.memory.put(value);
                let length = self.length(value, *length);
                let call = if *peer {
                    libc::getpeername
                } else {
                    libc::getsockname
                };
                // SAFETY: The address is not that of an object of this program.
                result(unsafe { call(self.fd(*slot), at.cast(), length) }.into())
            }
            Call::Poll { slot } => {
                let mut fd = libc::pollfd {
                    fd: self.fd(*slot),
                    events: -1,
                    revents: 0,
                };
                // SAFETY: The array has one entry.
                result(unsafe { libc::poll(&mut fd, 1, 0) }.into())
            }
            // SAFETY: Any number is allowed.
            Call::Shutdown { slot } => result(unsafe { libc::shutdown(self.fd(*slot), 2) }.into()),
            Call::Fork { seed } => self.fork(*seed),
            Call::Unshare => unshare(),
        }
    }

    fn bind(&mut self, fd: c_int, name: &Area) -> usize {
        let at = self.memory.put(name);
        // SAFETY: The kernel checks the address.
        result(unsafe { libc::bind(fd, at.cast(), name.length as socklen_t) }.into())
    }

    fn socket(&mut self, slot: usize, name: Option<&Area>) -> usize {
        // SAFETY: The call has no preconditions.
        let fd = unsafe { libc::socket(AF_RDS, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return result(-1);
        }
        let time = libc::timeval {
            tv_sec: 0,
            tv_usec: PATIENCE,
        };
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            let size = mem::size_of_val(&time) as socklen_t;
            // SAFETY: The value is valid for its length.
            unsafe {
                libc::setsockopt(
                    fd,
                    libc::SOL_SOCKET,
                    option,
                    ptr::from_ref(&time).cast(),
                    size,
                )
            };
        }
        if let Some(name) = name {
            self.bind(fd, name);
        }
        self.put(slot, fd);
        0
    }

    /// Returns the location of a length that is read and written.
    fn length(&mut self, value: &Area, place: Place) -> *mut socklen_t {
        let content = (value.length as u32).to_ne_bytes().to_vec();
        self.memory
            .put(&Area {
                place,
                content,
                size: 4,
                length: 4,
            })
            .cast()
    }

    fn header(&mut self, message: &Message) -> (libc::msghdr, Vec<libc::iovec>) {
        let mut pieces: Vec<libc::iovec> = Vec::with_capacity(message.pieces.len());
        for piece in &message.pieces {
            let at = self.memory.put(piece);
            pieces.push(libc::iovec {
                iov_base: at,
                iov_len: piece.length as usize,
            });
        }
        let mut put = |area: &Option<Area>| -> (*mut c_void, u64) {
            area.as_ref()
                .map_or((ptr::null_mut(), 0), |x| (self.memory.put(x), x.length))
        };
        let (name, name_length) = put(&message.name);
        let (control, control_length) = put(&message.control);
        let header = libc::msghdr {
            msg_name: name,
            msg_namelen: name_length as socklen_t,
            msg_iov: pieces.as_mut_ptr(),
            msg_iovlen: pieces.len(),
            msg_control: control,
            msg_controllen: control_length as usize,
            msg_flags: 0,
        };
        (header, pieces)
    }

    fn fork(&mut self, seed: u64) -> usize {
        let forks = self.common.counts.forks();
        if forks.fetch_add(1, Ordering::Relaxed) >= FORKS {
            forks.fetch_sub(1, Ordering::Relaxed);
            return libc::EAGAIN as usize;
        }
        // SAFETY: The child continues with this thread alone, which owns its memory.
        let pid = unsafe { libc::fork() };
        if pid != 0 {
            return result(pid.into());
        }
        self.chooser.rng = SmallRng::seed_from_u64(seed);
        // A child is not recorded together with its parent. It goes on even if it cannot record
        // itself.
        self.coverage = self.common.coverage().ok().flatten();
        for _ in 0..CALLS_OF_A_FORK {
            if Instant::now() >= self.common.end {
                break;
            }
            self.step();
        }
        forks.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: A copy of the process needs none of the actions of exit().
        unsafe { libc::_exit(0) }
    }
}

/// Moves the thread into a new network namespace, and brings up loopback there.
fn unshare() -> usize {
    // SAFETY: The call has no preconditions.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return result(-1);
    }
    // SAFETY: The call has no preconditions.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    // SAFETY: Zeros are valid for all of its fields.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as i16;
    // SAFETY: The request is valid.
    let up = unsafe { libc::ioctl(fd, libc::SIOCSIFFLAGS, &request) };
    let error = result(up.into());
    // SAFETY: This function owns the descriptor.
    unsafe { libc::close(fd) };
    error
}
