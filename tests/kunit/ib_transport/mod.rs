// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of this transport on a device that is made up: a suite decides how each work request ends. All is the
//! module's own code but for the connection manager, in whose place connections come up at once.

mod bench;
mod ends;
mod mr_pool;
mod receives;
mod sends;
