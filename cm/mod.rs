// SPDX-License-Identifier: GPL-2.0

//! Connection management: the listeners that peers connect to, and the local addresses.
//!
//! The transport is above this folder. The listeners hand valid requests to it as a
//! [`RequestSink`].

#![deny(unsafe_code)]

pub(crate) mod laddr;
mod listener;

pub(crate) use listener::{
    Listeners,
    RequestSink, //
};
