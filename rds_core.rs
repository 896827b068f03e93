// SPDX-License-Identifier: GPL-2.0

//! Reliable Datagram Sockets: the module, its registrations and the order of their teardown.

use kernel::prelude::*;

mod bindings;
mod cong;
mod conn;
mod kapi;
mod loop_transport;
mod msg;
mod proto;
mod recv_pool;
mod sock;

use conn::Node;
use kapi::net::Registration;
use kernel::sync::Arc;
use msg::Socket;

module! {
    type: RdsModule,
    name: "rds_rust",
    authors: ["The rds_rust maintainers"],
    description: "Reliable Datagram Sockets",
    license: "GPL v2",
    alias: ["net-pf-21", "rds_rdma", "rds_tcp"],
}

/// What the module has registered. Fields are dropped in this order.
struct RdsModule {
    _family: Registration<Socket>,
    node: Arc<Node>,
}

impl kernel::Module for RdsModule {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let node = Node::new(None)?;
        let family = Registration::new(module, node.clone()).inspect_err(|error| {
            if *error == EEXIST {
                pr_err!("AF_RDS is taken: unload the C modules first (rmmod rds_rdma rds_tcp rds)\n");
            }
        })?;
        Ok(Self {
            _family: family,
            node,
        })
    }
}

impl Drop for RdsModule {
    fn drop(&mut self) {
        self.node.stop();
    }
}
