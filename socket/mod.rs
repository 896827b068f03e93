// SPDX-License-Identifier: GPL-2.0

//! State of sockets: receive queue, charges, notifications and memory regions; what the sockets of
//! a network namespace share, and what all sockets share.

#![deny(unsafe_code)]

mod accounts;
mod address;
mod binds;
mod bounce_charge;
mod bounce_room;
mod cong_notify;
mod incoming;
mod memory;
mod msg_meta;
mod net_state;
mod notify_queue;
mod overrun;
mod reader_lock;
mod receive;
mod recv_buf;
mod recv_queue;
mod room_waiters;
mod send_room;
mod shared_room;
mod shared_state;
mod shares;
mod sndbuf_charge;
mod stamps;
mod state;
mod transport_id;
mod unread;
mod upper;
mod waiters;
mod waiting;

pub(crate) use accounts::{
    Account,
    AccountRef,
    Accounts, //
};
pub(crate) use address::{
    Bound,
    Peer, //
};
pub(crate) use binds::{
    BindError,
    BindKey,
    BindTable,
    FIRST_PORT, //
};
pub(crate) use bounce_charge::BounceCharge;
pub(crate) use bounce_room::BounceRoom;
pub(crate) use incoming::{
    Incoming,
    Keep,
    Payload,
    CHUNK,
    INLINE, //
};
#[cfg(rds_kunit)]
pub(crate) use memory::Memory;
pub(crate) use memory::{
    Ending,
    RegionKey, //
};
pub(crate) use msg_meta::MsgMeta;
pub(crate) use net_state::{
    map_key,
    NetState, //
};
pub(crate) use notify_queue::Notification;
pub(crate) use recv_buf::RecvBuf;
pub(crate) use room_waiters::RoomWaiters;
pub(crate) use shared_state::SharedState;
pub(crate) use shares::ChargeError;
pub(crate) use sndbuf_charge::SndbufCharge;
pub(crate) use stamps::{
    BadTraces,
    Stamps,
    Traces, //
};
pub(crate) use state::{
    CachedRoute,
    Socket,
    WaitingOn, //
};
pub(crate) use transport_id::TransportId;
pub(crate) use upper::{
    Upper,
    UpperConnection,
    UpperNode, //
};
pub(crate) use waiters::Waiters;
