// SPDX-License-Identifier: GPL-2.0

//! Reliable Datagram Sockets: the module, its registrations and the order of their teardown.

use kernel::prelude::*;

mod bindings;

module! {
    type: RdsModule,
    name: "rds_rust",
    authors: ["The rds_rust maintainers"],
    description: "Reliable Datagram Sockets",
    license: "GPL v2",
    alias: ["net-pf-21", "rds_rdma", "rds_tcp"],
}

struct RdsModule;

impl kernel::Module for RdsModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        pr_info!("loaded\n");
        Ok(Self)
    }
}
