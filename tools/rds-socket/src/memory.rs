// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Memory that devices and peers may use while the program has it.

use std::io;
use std::ptr::{self, NonNull};

use crate::Error;

/// Pages of this program, zero at first.
///
/// There is never a reference to them, since a device may write to what is registered: bytes are copied in and out. Nor
/// are they ever another object's: if this ends while a device still uses them, the kernel keeps them until it does not.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages belong to the process, not to a thread.
unsafe impl Send for Memory {}

impl Memory {
    /// `len` bytes from the first of a page on.
    pub fn new(len: usize) -> Result<Self, Error> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: without MAP_FIXED the kernel chooses a place where nothing is.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            return Err(Error::new(format!("get {len} bytes of memory"), error));
        }
        let null = || io::Error::from_raw_os_error(libc::ENOMEM);
        let start = NonNull::new(start.cast())
            .ok_or_else(|| Error::new(format!("get {len} bytes of memory"), null()))?;
        Ok(Memory { start, len })
    }

    /// `len` bytes from `at` on; `None` if they are not all there.
    pub fn area(&self, at: usize, len: usize) -> Option<Area<'_>> {
        let end = at.checked_add(len)?;
        (end <= self.len).then_some(Area {
            memory: self,
            at,
            len,
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the pages were mapped with this length, and no area of them is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Some bytes of [`Memory`].
// INVARIANT: `at + len` is at most the length of the memory.
#[derive(Clone, Copy, Debug)]
pub struct Area<'a> {
    memory: &'a Memory,
    at: usize,
    len: usize,
}

impl<'a> Area<'a> {
    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// `len` bytes from `at` on; `None` if they are not all there.
    pub fn part(&self, at: usize, len: usize) -> Option<Area<'a>> {
        let end = at.checked_add(len)?;
        if end > self.len {
            return None;
        }
        self.memory.area(self.at.checked_add(at)?, len)
    }

    /// Copies as much as both have into `out`.
    pub fn read(&self, out: &mut [u8]) {
        let len = self.len.min(out.len());
        // SAFETY: by the invariant all bytes are there, and they are not part of any Rust object. What a device
        // writes meanwhile makes them other bytes, of which each is a value.
        unsafe { ptr::copy_nonoverlapping(self.start(), out.as_mut_ptr(), len) };
    }

    /// Copies as much as both have from `bytes`.
    pub fn write(&self, bytes: &[u8]) {
        let len = self.len.min(bytes.len());
        // SAFETY: as above; nothing has a reference to the pages, so they may change.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start(), len) };
    }

    /// The number in the first eight bytes.
    pub fn number(&self) -> u64 {
        let mut bytes = [0; 8];
        self.read(&mut bytes);
        u64::from_ne_bytes(bytes)
    }

    /// As the kernel wants it told.
    pub(crate) fn address(&self) -> u64 {
        self.start() as u64
    }

    fn start(&self) -> *mut u8 {
        self.memory.start.as_ptr().wrapping_add(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let memory = Memory::new(100).unwrap();
        let area = memory.area(10, 20).unwrap();
        area.write(b"twenty bytes, no less");
        let mut out = [0; 30];
        memory.area(9, 30).unwrap().read(&mut out);
        assert_eq!(&out[..22], b"\0twenty bytes, no les\0");
        let part = area.part(7, 8).unwrap();
        assert_eq!(part.number(), u64::from_ne_bytes(*b"bytes, n"));
        assert_eq!(part.address(), area.address() + 7);
    }

    #[test]
    fn areas_end_where_the_memory_ends() {
        let memory = Memory::new(100).unwrap();
        assert!(memory.area(100, 0).is_some_and(|area| area.is_empty()));
        for (at, len) in [
            (0, 101),
            (101, 0),
            (1, 100),
            (usize::MAX, 1),
            (1, usize::MAX),
        ] {
            assert!(memory.area(at, len).is_none(), "{at} {len}");
        }
        let area = memory.area(50, 10).unwrap();
        assert_eq!(area.part(2, 8).unwrap().len(), 8);
        for (at, len) in [(0, 11), (11, 0), (3, 8), (usize::MAX, 2)] {
            assert!(area.part(at, len).is_none(), "{at} {len}");
        }
    }

    #[test]
    fn memory_that_nobody_has() {
        let error = Memory::new(usize::MAX / 2).unwrap_err().to_string();
        assert!(error.contains("bytes of memory"), "{error}");
    }
}
