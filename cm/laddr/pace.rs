// SPDX-License-Identifier: GPL-2.0

//! Pace of the rounds that look up all addresses again.
//!
//! A host with many containers has an event of a network device every few milliseconds. A round
//! checks all connections of all devices, which takes long if there are thousands. So rounds that
//! take up to 0.2 s get a tenth of the time of a CPU.
//!
//! Ownership: the caller keeps the time and the state. Errors: none.

/// Delay from an event to a round, in milliseconds, because events come in groups.
const DELAY_MS: u32 = 20;

/// Rest after a round, as a multiple of its duration.
const REST: u64 = 9;

/// Maximum rest, in nanoseconds. The move of an address is noticed that late.
const MAX_REST_NS: u64 = 2_000_000_000;

const MS: u64 = 1_000_000;

/// Returns the time before which no further round begins, after one from `begun` to `ended`. All
/// times are nanoseconds of one clock.
pub(crate) fn next_round(begun: u64, ended: u64) -> u64 {
    let rest = ended.saturating_sub(begun).saturating_mul(REST);
    ended.saturating_add(rest.min(MAX_REST_NS))
}

/// Returns the delay in milliseconds from an event at time `now` to a round that must not begin
/// before `not_before`.
pub(crate) fn delay_ms(now: u64, not_before: u64) -> u32 {
    let left = not_before.saturating_sub(now).div_ceil(MS);
    // CAST: at most 2,000.
    DELAY_MS.max(left as u32)
}
