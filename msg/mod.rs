// SPDX-License-Identifier: GPL-2.0

//! Messages that are sent to other nodes, and their operations.

#![deny(unsafe_code)]

mod fragments;
mod message;
mod operation;
mod path_table;
mod place;
mod pong_budget;

pub(crate) use fragments::FrameError;
pub(crate) use message::{
    Message,
    MsgBuffers,
    MsgOps, //
};
pub(crate) use operation::{
    CompletionNotifier,
    FollowUp,
    NotifyRequest,
    Op,
    OpStatus,
    Owner,
    Posted,
    RdmaOp, //
};
pub(crate) use path_table::PathTable;
pub(crate) use place::MessagePlace;
pub(crate) use pong_budget::{
    PongBudget,
    PongSlot, //
};
