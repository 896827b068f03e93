// SPDX-License-Identifier: GPL-2.0

//! Limit on a user's attempts to connect to peers that have never answered.
//!
//! An attempt to reach a dead peer takes seconds and leads nowhere. It makes several CM ids, each
//! of which takes the CM's global mutex a few times. If the next hop is known, it also makes a
//! queue pair with its receives, and on iWARP a thread waits for TCP. All users share that mutex,
//! the workqueue of the connections and the CPUs. So one user with thousands of dead peers would
//! delay the first connections of others.
//!
//! Therefore only some attempts of a user are in progress at a time. The other connections of that
//! user look again later. Attempts that peers answer take milliseconds, so their user hardly
//! notices the limit.

/// Number of attempts of a user that may be in progress.
pub(crate) const MOST: usize = 128;

/// Number of attempts from which on only first ones begin. So a peer that has not been tried yet
/// does not wait for those that were tried in vain.
pub(crate) const MOST_REPEATED: usize = MOST / 2;

/// Range of the delay in milliseconds.
const SHORTEST_DELAY_MS: usize = 10;
const LONGEST_DELAY_MS: usize = 60_000;

/// Returns `true` if an attempt may begin while `running` attempts of the same user are in
/// progress. `repeated` means that an attempt for the same connection has failed before.
pub(crate) const fn may_begin(running: usize, repeated: bool) -> bool {
    running < if repeated { MOST_REPEATED } else { MOST }
}

/// Returns the time in milliseconds after which a connection looks again whether its attempt may
/// begin. `connections` is the number of connections of the user that have never been up.
///
/// The time grows with that number. So the connections of a user together look at most some 5,000
/// times per second for first attempts, and 700 times for repeated ones, however many there are.
pub(crate) fn delay_ms(connections: usize, repeated: bool) -> u32 {
    let delay = match repeated {
        true => connections.saturating_mul(2),
        false => connections / 4,
    };
    let delay = delay.clamp(SHORTEST_DELAY_MS, LONGEST_DELAY_MS);
    u32::try_from(delay).unwrap_or(u32::MAX)
}
