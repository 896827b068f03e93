// SPDX-License-Identifier: GPL-2.0

//! KUnit suites, run when the module is loaded.

mod recv_pool;
