/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Input of bindgen for uapi/mod.rs. In the kernel's build the headers are the kernel's, for the
 * host tests those that the system has for programs.
 */
#include <linux/socket.h>
#include <linux/sockios.h>
#include <linux/uio.h>
#include <linux/rds.h>
