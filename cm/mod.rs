// SPDX-License-Identifier: GPL-2.0

//! Connection management: the listeners that peers connect to.

#![deny(unsafe_code)]

mod listener;

pub(crate) use listener::Listeners;
