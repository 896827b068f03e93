// SPDX-License-Identifier: GPL-2.0
//! Marks in the stream of instructions, for a profiler that sees every instruction
//! (`scripts/insntrace`).

/// A no-op whose operand the profiler knows.
macro_rules! mark {
    ($instruction:literal) => {
        #[cfg(target_arch = "x86_64")]
        #[allow(unsafe_code)]
        // SAFETY: the instruction does nothing.
        unsafe {
            core::arch::asm!($instruction, options(nomem, nostack, preserves_flags))
        }
    };
}

/// Marks the begin of the operations to count.
pub(crate) fn start() {
    mark!("nop dword ptr [rax + rax + 0x52445301]");
}

/// Marks the end of the operations to count.
pub(crate) fn stop() {
    mark!("nop dword ptr [rax + rax + 0x52445302]");
}
