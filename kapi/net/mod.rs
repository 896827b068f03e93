// SPDX-License-Identifier: GPL-2.0

//! Socket layer: protocol family, sockets, messages, addresses and network namespaces.

mod addr;
mod bind_node;
mod bound;
#[cfg(rds_kunit)]
mod fake;
mod family;
mod local;
mod msghdr;
mod netns;
mod notify;
pub(crate) mod packet;
mod sock;
#[cfg(CONFIG_RDS_RUST_TCP)]
pub(crate) mod tcp;
#[cfg(CONFIG_RDS_RUST_TCP)]
pub(crate) mod tcp_events;
pub(crate) mod timestamp;
pub(crate) mod user;

pub(crate) use addr::{
    IpBits,
    SockAddr,
    SockAddrError, //
};
pub(crate) use bound::BoundList;
#[cfg(rds_kunit)]
pub(crate) use fake::FakeSocket;
pub(crate) use family::{
    Registration,
    SOCK_SEQPACKET, //
};
pub(crate) use local::Locality;
pub(crate) use msghdr::{
    flags as msg_flags,
    Aligned,
    RecvMsg,
    SendMsg, //
};
pub(crate) use netns::{
    Net,
    NetRef,
    NetUse,
    Pernet,
    PernetRegistration, //
};
pub(crate) use notify::{
    AddressWatch,
    Watch, //
};
pub(crate) use sock::{
    poll,
    PollMask,
    Protocol,
    Sock,
    SockOptIn,
    SockOptOut,
    Timeout, //
};
