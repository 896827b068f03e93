# SPDX-License-Identifier: GPL-2.0
"""Plugin of sos for RDS: the contents of rds-info --report, in an archive of sos.

Its place is sos/report/plugins/rds.py below the Python packages; it needs sos 4.
"""

from sos.report.plugins import IndependentPlugin, Plugin, SoSPredicate


class Rds(Plugin, IndependentPlugin):
    short_desc = "Reliable Datagram Sockets"
    plugin_name = "rds"
    profiles = ("network", "hardware", "cluster")
    packages = ("rds-rust-tools", "rds-tools")
    kernel_mods = ("rds_rust", "rds", "rds_rdma", "rds_tcp")

    def setup(self):
        for module in self.kernel_mods:
            self.add_copy_spec([f"/sys/module/{module}/{name}" for name in (
                "version", "srcversion", "refcnt", "initstate", "taint", "parameters", "notes")])
        self.add_copy_spec(["/proc/sys/net/rds", "/sys/kernel/debug/rds"])
        # An RDS socket of rds-info would load the module where that is allowed.
        loaded = SoSPredicate(self, kmods=self.kernel_mods)
        self.add_cmd_output(["rds-info -av", "rds-info -a --json", "rds-info --holders", "rds-info --version"], pred=loaded)
        # Not "mr", which shows keys for the memory of programs.
        self.add_cmd_output(["rdma link", "rdma resource show", "rdma resource show qp", "rdma resource show cm_id",
                             "rdma resource show cq"])
        self.add_cmd_output([f"modinfo {module}" for module in self.kernel_mods], pred=loaded)
