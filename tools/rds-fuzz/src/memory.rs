// SPDX-License-Identifier: GPL-2.0
//! Memory for the buffers of calls: valid, invalid, and valid up to a point.

use std::io;
use std::mem::size_of;
use std::ptr;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result};
use libc::c_void;

use crate::call::{Area, Place};

/// Room for the valid buffers of one call, in bytes.
const POOL: usize = 24 << 20;
/// Bytes of read-only memory.
const READ_ONLY: usize = 4 << 20;
const PAGE: usize = 4096;

/// The memory of one thread.
pub(crate) struct Memory {
    pool: *mut u8,
    used: usize,
    read_only: *mut u8,
}

fn map(size: usize, protection: i32, flags: i32) -> Result<*mut u8> {
    // SAFETY: A new mapping replaces nothing.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size,
            protection,
            libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error()).context("mmap");
    }
    Ok(at.cast())
}

/// Returns words that processes share, with the value 0.
pub(crate) fn shared(words: usize) -> Result<&'static [AtomicU64]> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let at = map(words * size_of::<AtomicU64>(), protection, libc::MAP_SHARED)?;
    // SAFETY: The mapping has as many words, all zero, and stays until the process ends.
    Ok(unsafe { std::slice::from_raw_parts(at.cast(), words) })
}

impl Memory {
    pub(crate) fn new() -> Result<Self> {
        let pool = map(
            POOL + PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_NORESERVE,
        )?;
        // SAFETY: The page after the pool is part of the mapping that was made for it.
        let guard = unsafe { pool.add(POOL) };
        // SAFETY: Nothing refers to that page.
        if unsafe { libc::mprotect(guard.cast(), PAGE, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error()).context("mprotect");
        }
        Ok(Self {
            pool,
            used: 0,
            read_only: map(READ_ONLY, libc::PROT_READ, libc::MAP_PRIVATE)?,
        })
    }

    /// Allows the next call to use all of the memory.
    pub(crate) fn reset(&mut self) {
        self.used = 0;
    }

    /// Places a buffer; returns the address for the kernel.
    pub(crate) fn put(&mut self, area: &Area) -> *mut c_void {
        match area.place {
            // Buffers beyond the limit go to the end.
            Place::Good if self.used + area.size <= POOL / 2 => {
                let offset = self.used;
                self.used += area.size.next_multiple_of(64);
                self.copy(offset, &area.content)
            }
            Place::Good | Place::End => self.copy(POOL - area.size, &area.content),
            Place::Across => {
                let half = area.size / 2;
                self.copy(POOL - half, &area.content[..half.min(area.content.len())])
            }
            Place::ReadOnly => self.read_only.cast(),
            Place::Unmapped => self.copy(POOL, &[]),
            Place::Kernel => 0xffff_8880_0010_0000_usize as *mut c_void,
            Place::Top => (usize::MAX - 16) as *mut c_void,
            Place::Null => ptr::null_mut(),
        }
    }

    fn copy(&mut self, offset: usize, content: &[u8]) -> *mut c_void {
        assert!(offset + content.len() <= POOL);
        // SAFETY: The offset is within the mapping, or at its end.
        let at = unsafe { self.pool.add(offset) };
        // SAFETY: There is room up to the end of the pool, into which no reference points.
        unsafe { ptr::copy_nonoverlapping(content.as_ptr(), at, content.len()) };
        at.cast()
    }
}
