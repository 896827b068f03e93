// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Memory that devices and peers may access while the program has it.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};

use crate::Error;

/// Pages of this program.
///
/// There is never a reference to them, because a device may write to registered memory: bytes are
/// copied in and out. No other object gets the pages too early. If this is dropped while a device
/// still uses them, the kernel keeps them until the device has finished.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages belong to the process, not to a thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Allocates `len` bytes from the start of a page on, initially zero.
    pub fn new(len: usize) -> Result<Self, Error> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
            .map_err(|e| Error::new(format!("get {len} bytes of memory"), e))
    }

    /// Maps `len` bytes of a file from `offset` on, a multiple of the page size. The file may be
    /// memory that is shared with other processes, or huge pages (`memfd_create()`, tmpfs,
    /// hugetlbfs). Bytes that a peer writes are in the file.
    ///
    /// The file may be truncated later. A program that accesses bytes behind its end is killed by
    /// SIGBUS.
    pub fn of_file(file: &impl AsFd, offset: u64, len: usize) -> Result<Self, Error> {
        let fd = file.as_fd().as_raw_fd();
        let too_far = |_| io::Error::from_raw_os_error(libc::EOVERFLOW);
        libc::off_t::try_from(offset)
            .map_err(too_far)
            .and_then(|offset| Self::map(len, libc::MAP_SHARED, fd, offset))
            .map_err(|e| Error::new(format!("map {len} bytes of a file"), e))
    }

    fn map(len: usize, flags: i32, fd: i32, offset: libc::off_t) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without MAP_FIXED the kernel chooses a place where nothing is.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let null = || io::Error::from_raw_os_error(libc::ENOMEM);
        let start = NonNull::new(start.cast()).ok_or_else(null)?;
        Ok(Memory { start, len })
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no bytes, which the kernel does not allow.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns an area of all bytes.
    pub fn all(&self) -> Area<'_> {
        Area {
            start: self.start,
            len: self.len,
            memory: PhantomData,
        }
    }

    /// Returns `len` bytes from `at` on; `None` if they exceed the memory.
    pub fn area(&self, at: usize, len: usize) -> Option<Area<'_>> {
        self.all().part(at, len)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the pages were mapped with this length, and no area of them is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Some bytes that devices and peers may access: a part of [`Memory`], or memory that a program has
/// leaked for that purpose.
// INVARIANT: for `'a` `len` bytes from `start` on are valid for reads and writes, and nothing has a
// reference to them.
#[derive(Clone, Copy, Debug)]
pub struct Area<'a> {
    start: NonNull<u8>,
    len: usize,
    memory: PhantomData<&'a Memory>,
}

impl Area<'static> {
    /// Creates an area of memory that the program never frees: a peer may write to it as long as
    /// the program runs.
    ///
    /// ```
    /// let buffer = Box::leak(vec![0u8; 4096].into_boxed_slice());
    /// let area = rds_socket::Area::of_leaked(buffer);
    /// area.write(b"hello");
    /// ```
    pub fn of_leaked(bytes: &'static mut [u8]) -> Self {
        Area {
            len: bytes.len(),
            start: NonNull::from(bytes).cast(),
            memory: PhantomData,
        }
    }
}

impl<'a> Area<'a> {
    /// Creates an area of the program's own memory, such as that of an allocator for huge pages, or
    /// of another library.
    ///
    /// # Safety
    ///
    /// The `len` bytes from `start` on are valid for reads and writes for all of `'a`. Nothing else
    /// reads or writes them or has a reference to them. This also holds after `'a`, until no device
    /// uses them. That is the case when a region of them is freed with
    /// [`RdsSocket::invalidate`](crate::RdsSocket::invalidate), or has ended otherwise. The end of
    /// each operation with them as its local memory must also be known.
    pub unsafe fn from_raw_parts(start: NonNull<u8>, len: usize) -> Self {
        let memory = PhantomData;
        Area { start, len, memory }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns `len` bytes from `at` on; `None` if they exceed the area.
    pub fn part(&self, at: usize, len: usize) -> Option<Area<'a>> {
        if at.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: `at` is not beyond the end of the bytes that are valid by the invariant.
        let start = unsafe { self.start.add(at) };
        Some(Area {
            start,
            len,
            ..*self
        })
    }

    /// Copies bytes to `out`, as many as the shorter one has.
    pub fn read(&self, out: &mut [u8]) {
        let len = self.len.min(out.len());
        // SAFETY: by the invariant all bytes are valid, and they are not part of any Rust object.
        // A device may write to them meanwhile, and any value of a byte is valid.
        unsafe { ptr::copy_nonoverlapping(self.start.as_ptr(), out.as_mut_ptr(), len) };
    }

    /// Copies bytes from `bytes`, as many as the shorter one has.
    pub fn write(&self, bytes: &[u8]) {
        let len = self.len.min(bytes.len());
        // SAFETY: as above; nothing has a reference to the pages, so they may change.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr(), len) };
    }

    /// Returns the number in the first eight bytes.
    pub fn number(&self) -> u64 {
        let mut bytes = [0; 8];
        self.read(&mut bytes);
        u64::from_ne_bytes(bytes)
    }

    /// Returns the address in the kernel's form.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn written_bytes_are_read() {
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
    fn memory_that_was_given_away() {
        let area = Area::of_leaked(Box::leak(vec![7; 10].into_boxed_slice()));
        area.part(2, 3).unwrap().write(b"abcd");
        let mut out = [0; 11];
        area.read(&mut out);
        assert_eq!(&out, b"\x07\x07abc\x07\x07\x07\x07\x07\0");
        assert!(area.part(2, 9).is_none());
        assert!(Area::of_leaked(&mut []).is_empty());
    }

    #[test]
    fn raw_memory() {
        let memory = Memory::new(100).unwrap();
        let start = memory.area(10, 0).unwrap().start;
        // SAFETY: it is of `memory`, which is there longer, and only this thread has it.
        let area = unsafe { Area::from_raw_parts(start, 20) };
        area.write(b"abc");
        let mut out = [0; 3];
        memory.area(10, 3).unwrap().read(&mut out);
        assert_eq!((&out, area.len()), (b"abc", 20));
    }

    #[test]
    fn files_are_shared() {
        // SAFETY: the name is a string that ends with a zero.
        let fd = unsafe { libc::memfd_create(c"rds-socket".as_ptr(), 0) };
        assert!(fd >= 0);
        // SAFETY: it was just opened, and nothing else owns it.
        let file = unsafe { std::fs::File::from_raw_fd(fd) };
        file.set_len(8192).unwrap();
        let memory = Memory::of_file(&file, 4096, 4096).unwrap();
        assert_eq!((memory.len(), memory.is_empty()), (4096, false));
        memory.area(5, 3).unwrap().write(b"abc");
        let mut out = [0; 4];
        file.read_exact_at(&mut out, 4096 + 4).unwrap();
        assert_eq!(&out, b"\0abc");
        let error = Memory::of_file(&file, 1, 4096).unwrap_err();
        assert_eq!(error.io_error().raw_os_error(), Some(libc::EINVAL));
        assert!(Memory::of_file(&file, u64::MAX, 1).is_err());
    }

    #[test]
    fn memory_beyond_the_address_space() {
        let error = Memory::new(usize::MAX / 2).unwrap_err().to_string();
        assert!(error.contains("bytes of memory"), "{error}");
    }
}
