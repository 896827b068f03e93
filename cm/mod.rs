// SPDX-License-Identifier: GPL-2.0

//! Connection management: the listeners that peers connect to, and the local addresses.

#![deny(unsafe_code)]

pub(crate) mod laddr;
mod listener;

pub(crate) use listener::Listeners;
