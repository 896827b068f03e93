// SPDX-License-Identifier: GPL-2.0

//! Code that only one driver needs, a file for each. Who has another device may skip this folder.

mod rxe;
mod siw;

pub(crate) use rxe::{DeferredCmId, DeferredDestroy};
pub(crate) use siw::ReadQuiesceQueue;
