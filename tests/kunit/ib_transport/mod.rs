// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the IB transport on a fake device: a suite decides how each work request ends.
//! Only the connection manager is replaced, and connections are established at once.

mod bench;
mod ends;
mod mr_pool;
mod operations;
mod pauses;
mod receives;
mod refusals;
mod sends;
mod starvation;
