// SPDX-License-Identifier: GPL-2.0
//! The reached kernel code, if the kernel has KCOV, for code that was built with it.
//!
//! Source: Documentation/dev-tools/kcov.rst of the kernel.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

use crate::memory::shared;

const DEVICE: &str = "/sys/kernel/debug/kcov";
/// Largest number of words that the kernel writes for one call.
const WORDS: usize = 1 << 16;
const KCOV_INIT_TRACE: u64 = 0x8008_6301;
const KCOV_ENABLE: u64 = 0x6364;
const KCOV_TRACE_PC: u64 = 0;

/// The addresses that all processes reached: a hash table in shared memory. 0 is a free slot.
pub(crate) struct Reached {
    slots: &'static [AtomicU64],
}

impl Reached {
    /// A multiple of the module's number of addresses.
    const SLOTS: usize = 1 << 16;

    pub(crate) fn new() -> Result<Self> {
        let slots = shared(Self::SLOTS)?;
        Ok(Self { slots })
    }

    fn add(&self, address: u64) {
        let start = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        for at in 0..Self::SLOTS {
            let slot = &self.slots[(start as usize + at) % Self::SLOTS];
            match slot.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(there) if there == address => return,
                Err(_) => {}
            }
        }
    }

    /// Returns all addresses, sorted.
    pub(crate) fn sorted(&self) -> Vec<u64> {
        let all = self.slots.iter().map(|x| x.load(Ordering::Relaxed));
        let mut all: Vec<_> = all.filter(|x| *x != 0).collect();
        all.sort_unstable();
        all
    }
}

/// The coverage of a thread, call by call.
pub(crate) struct Coverage<'a> {
    _device: File,
    /// The number of addresses, and the addresses.
    words: &'static [AtomicU64],
    reached: &'a Reached,
}

impl<'a> Coverage<'a> {
    /// Starts to record the calling thread.
    pub(crate) fn start(reached: &'a Reached) -> Result<Self> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open(DEVICE)
            .context(DEVICE)?;
        let control = |number, value: u64| {
            // SAFETY: These requests take a number, and no pointer.
            match unsafe { libc::ioctl(device.as_raw_fd(), number, value) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()).context(DEVICE),
            }
        };
        control(KCOV_INIT_TRACE, WORDS as u64)?;
        // SAFETY: A new mapping replaces nothing.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                WORDS * 8,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                device.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context(DEVICE);
        }
        // SAFETY: The mapping has as many words, and stays until the process ends.
        let words = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), WORDS) };
        control(KCOV_ENABLE, KCOV_TRACE_PC)?;
        Ok(Self {
            _device: device,
            words,
            reached,
        })
    }

    /// Begins a call.
    pub(crate) fn begin(&self) {
        self.words[0].store(0, Ordering::Relaxed);
    }

    /// Ends a call, and adds its addresses.
    pub(crate) fn end(&self) {
        let count = self.words[0].load(Ordering::Relaxed) as usize;
        for address in self.words[1..].iter().take(count) {
            self.reached.add(address.load(Ordering::Relaxed));
        }
    }
}
