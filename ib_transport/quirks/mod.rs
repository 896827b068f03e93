// SPDX-License-Identifier: GPL-2.0

//! Code that only one driver needs, a file for each. Readers with other devices may skip this
//! folder.
//!
//! - `rxe`, soft-RoCE: it loses its management queue pair if a CM message cannot be routed. So CM
//!   ids and requests wait until their path is up.
//! - `siw`, soft-iWARP: it checks the key of an MR only at the start of a READ response. So memory
//!   is released after the responses in progress.
//!
//! Three checks for single drivers are too short to be here: `CmEvent::rejected` (a rejection that
//! is a reset of TCP), `QpContext::is_awaiting_first_frame` (a frame that soft-iWARP may miss), and
//! `QpContext::failed` (soft-RoCE flushes everything if it has no memory to send).
//!
//! Properties that whole families of devices share, such as those of iWARP, are in
//! [`DeviceCaps`](crate::kapi::rdma::DeviceCaps).

mod rxe;
mod siw;

pub(crate) use rxe::{
    DeferredBudget,
    DeferredCmId,
    DeferredDestroy, //
};
pub(crate) use siw::ReadQuiesceQueue;
