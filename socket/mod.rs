// SPDX-License-Identifier: GPL-2.0

//! State of sockets: receive queue, charges, notifications and memory regions; what the sockets of
//! a network namespace share, and what all sockets share.
//!
//! # Files
//!
//! A file uses only those above it in this list:
//!
//! | File | Content |
//! |---|---|
//! | `transport_id`, `address` | Transports and addresses |
//! | `stamps`, `msg_meta`, `recv_buf` | Parts of a message |
//! | `cong_notify`, `notify_queue`, `memory`, `reader_lock`, `send_room` | Parts of a socket |
//! | `shared_room` | Use of memory that many share |
//! | `forward` | Forward declarations of the socket, its node and connections |
//! | `waiters`, `room_waiters` | Lists of sockets that wait |
//! | `accounts` | Accounts of users |
//! | `bounce_room` | Bounce buffers of the node |
//! | `sndbuf_charge` | Charge of a message to its sender |
//! | `incoming`, `recv_queue` | A message that has arrived, and the queue of those |
//! | `state` | A socket |
//! | `binds` | Table of bound sockets |
//! | `shared_state`, `net_state` | State that all sockets share, and that of a namespace |
//! | `upper` | Calls to the node and to connections |
//! | `waiting` | Lists that a socket is on |
//! | `shares`, `bounce_charge` | Charges to users |
//! | `overrun` | Limits on arriving messages, and reports of drops |
//! | `receive` | Delivery, reading, and congestion |
//! | `unread` | Snapshots of unread messages |

#![deny(unsafe_code)]

mod accounts;
mod address;
mod binds;
mod bounce_charge;
mod bounce_room;
mod cong_notify;
mod forward;
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
pub(crate) use forward::{
    Declared,
    Forward, //
};
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
    UpperConnection,
    UpperNode, //
};
pub(crate) use waiters::Waiters;
