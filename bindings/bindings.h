/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Input of bindgen: the kernel headers for which the `kernel` crate has no bindings, and the
 * functions of helpers.c. Only kapi/ may use the result.
 */
#ifndef RDS_RUST_BINDINGS_H
#define RDS_RUST_BINDINGS_H

/* Enums that appear in forward references must be complete before they do. */
#include <linux/hrtimer_types.h>

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/inetdevice.h>
#include <linux/net.h>
#include <linux/notifier.h>
#include <linux/poll.h>
#include <linux/socket.h>
#include <linux/sysctl.h>
#include <linux/uio.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/compat.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/sock.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "helpers.h"
#include "helpers_addr.h"
#include "helpers_fault.h"
#include "helpers_mr.h"
#include "helpers_params.h"
#include "helpers_pin.h"
#include "helpers_rdma.h"
#include "helpers_skb.h"
#include "helpers_tcp.h"
#include "helpers_trace.h"
#include "rds_trace.h"
#ifdef RDS_RUST_KUNIT
#include "helpers_fake.h"
#include "helpers_fake_socket.h"
#endif
#ifdef RDS_RUST_KUNIT_IOMMU
#include "helpers_kunit.h"
#endif

/* Numbers whose macros bindgen cannot evaluate. Kbuild removes the prefix from the result. */
const __poll_t RDS_RUST_CONST_EPOLLIN = EPOLLIN;
const __poll_t RDS_RUST_CONST_EPOLLOUT = EPOLLOUT;
const __poll_t RDS_RUST_CONST_EPOLLERR = EPOLLERR;
const __poll_t RDS_RUST_CONST_EPOLLRDNORM = EPOLLRDNORM;
const __poll_t RDS_RUST_CONST_EPOLLWRNORM = EPOLLWRNORM;
const __poll_t RDS_RUST_CONST_EPOLLWRBAND = EPOLLWRBAND;

#endif
