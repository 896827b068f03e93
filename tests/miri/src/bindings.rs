// SPDX-License-Identifier: GPL-2.0

//! `bindings`: an allocator, and a device that records the work requests it gets and may refuse
//! them.

#![allow(non_camel_case_types, non_upper_case_globals, non_snake_case)]

use crate::page::PAGE_SIZE;
use core::{
    ffi::{c_char, c_int, c_void},
    ptr,
};
use std::{
    alloc::{alloc_zeroed, dealloc, Layout},
    cell::RefCell,
};

extern "C" {
    fn aligned_alloc(align: usize, size: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
}

pub(crate) unsafe fn rds_rust_kmalloc(size: usize, _atomic: bool) -> *mut c_void {
    // `kmalloc` guarantees the alignment that the size has.
    let align = 1 << size.trailing_zeros().clamp(3, 12);
    // SAFETY: The alignment is a power of two, and the size is a multiple of it.
    unsafe { aligned_alloc(align, size.next_multiple_of(align)) }
}

pub(crate) unsafe fn kfree(memory: *mut c_void) {
    // SAFETY: The caller passes ownership of memory from `rds_rust_kmalloc`.
    unsafe { free(memory) }
}

pub(crate) unsafe fn kmalloc_size_roundup(_bytes: usize) -> usize {
    unimplemented!("the kernel knows")
}

// The page allocator aligns pages to their size.
fn pages(order: u32) -> Layout {
    Layout::from_size_align(PAGE_SIZE << order, PAGE_SIZE << order).unwrap()
}

pub(crate) unsafe fn rds_rust_alloc_shard(
    _node: c_int,
    order: u32,
    _smallest: u32,
    _may_sleep: bool,
) -> *mut c_void {
    // MAX_PAGE_ORDER.
    if order > 10 {
        return ptr::null_mut();
    }
    // SAFETY: The size is not zero.
    unsafe { alloc_zeroed(pages(order)).cast() }
}

pub(crate) unsafe fn rds_rust_free_shard(memory: *mut c_void, order: u32) {
    // SAFETY: The caller passes ownership of memory from `rds_rust_alloc_shard`.
    unsafe { dealloc(memory.cast(), pages(order)) }
}

pub(crate) unsafe fn rds_rust_node_of(_memory: *const c_void) -> c_int {
    0
}

pub(crate) enum ib_device {}
pub(crate) enum ib_qp {}

#[derive(Clone, Copy, Default)]
pub(crate) struct ib_sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct wr_id {
    pub(crate) wr_id: u64,
}

macro_rules! work_requests {
    ($($name:ident { $($more:ident: $type:ty),* })*) => {$(
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            pub(crate) next: *mut $name,
            pub(crate) __bindgen_anon_1: wr_id,
            pub(crate) sg_list: *mut ib_sge,
            pub(crate) num_sge: c_int,
            $(pub(crate) $more: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    next: ptr::null_mut(),
                    __bindgen_anon_1: wr_id::default(),
                    sg_list: ptr::null_mut(),
                    num_sge: 0,
                    $($more: 0,)*
                }
            }
        }
    )*};
}
work_requests! {
    ib_recv_wr {}
    ib_send_wr { opcode: u32, send_flags: c_int }
}

#[derive(Clone, Copy, Default)]
pub(crate) struct rds_ib_operation {
    pub(crate) opcode: u32,
    pub(crate) signaled: bool,
    pub(crate) lkey: u32,
    pub(crate) length: u32,
    pub(crate) address: u64,
    pub(crate) rkey: u32,
    pub(crate) remote_address: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) compare_add_mask: u64,
    pub(crate) swap_mask: u64,
}

pub(crate) const EDESTADDRREQ: u32 = 89;
pub(crate) const EMSGSIZE: u32 = 90;
pub(crate) const EPROTOTYPE: u32 = 91;
pub(crate) const ENOPROTOOPT: u32 = 92;
pub(crate) const ESOCKTNOSUPPORT: u32 = 94;
pub(crate) const EOPNOTSUPP: u32 = 95;
pub(crate) const EAFNOSUPPORT: u32 = 97;
pub(crate) const EADDRINUSE: u32 = 98;
pub(crate) const EADDRNOTAVAIL: u32 = 99;
pub(crate) const ENETDOWN: u32 = 100;
pub(crate) const ENETUNREACH: u32 = 101;
pub(crate) const ECONNRESET: u32 = 104;
pub(crate) const ENOBUFS: u32 = 105;
pub(crate) const ENOTCONN: u32 = 107;
pub(crate) const ETIMEDOUT: u32 = 110;
pub(crate) const ECONNREFUSED: u32 = 111;
pub(crate) const ENOIOCTLCMD: u32 = 515;

pub(crate) const ib_wr_opcode_IB_WR_RDMA_WRITE: u32 = 0;
pub(crate) const ib_wr_opcode_IB_WR_SEND: u32 = 2;
pub(crate) const ib_wr_opcode_IB_WR_RDMA_READ: u32 = 4;
pub(crate) const ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP: u32 = 5;
pub(crate) const ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD: u32 = 6;
pub(crate) const ib_wr_opcode_IB_WR_MASKED_ATOMIC_CMP_AND_SWP: u32 = 12;
pub(crate) const ib_wr_opcode_IB_WR_MASKED_ATOMIC_FETCH_AND_ADD: u32 = 13;
pub(crate) const ib_send_flags_IB_SEND_FENCE: u32 = 1;
pub(crate) const ib_send_flags_IB_SEND_SIGNALED: u32 = 2;
pub(crate) const ib_send_flags_IB_SEND_SOLICITED: u32 = 4;
pub(crate) const ib_wc_status_IB_WC_SUCCESS: u32 = 0;
pub(crate) const ib_wc_status_IB_WC_WR_FLUSH_ERR: u32 = 5;
pub(crate) const ib_wc_status_IB_WC_REM_INV_REQ_ERR: u32 = 9;
pub(crate) const ib_wc_status_IB_WC_REM_ACCESS_ERR: u32 = 10;
pub(crate) const ib_wc_status_IB_WC_REM_OP_ERR: u32 = 11;

pub(crate) unsafe fn ib_wc_status_msg(_status: u32) -> *const c_char {
    c"status".as_ptr()
}

/// A work request that the device has not completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) wr_id: u64,
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) signaled: bool,
    /// An RDMA or atomic operation, whose memory is not a buffer.
    pub(crate) operates: bool,
}

/// The device of a thread.
pub(crate) struct Device {
    pub(crate) given: Vec<Given>,
    /// Number of work requests that it still accepts, or `None` for no limit.
    pub(crate) takes: Option<usize>,
    /// Number of bytes that are DMA-mapped.
    pub(crate) mapped: usize,
    /// Number of unmapped mappings since a lock was taken, and its maximum.
    pub(crate) unmapped: usize,
    pub(crate) most_unmapped: usize,
}

thread_local! {
    static DEVICE: RefCell<Device> = const {
        RefCell::new(Device {
            given: Vec::new(),
            takes: None,
            mapped: 0,
            unmapped: 0,
            most_unmapped: 0,
        })
    };
}

/// Calls `f` with the device and returns its result.
pub(crate) fn device<R>(f: impl FnOnce(&mut Device) -> R) -> R {
    DEVICE.with_borrow_mut(f)
}

impl Device {
    fn take(&mut self, given: Given) -> bool {
        if self.takes == Some(0) {
            return false;
        }
        self.takes = self.takes.map(|left| left - 1);
        self.given.push(given);
        true
    }
}

pub(crate) unsafe fn rds_rust_ib_dma_map(
    _device: *mut ib_device,
    memory: *mut c_void,
    len: usize,
    address: &mut u64,
) -> c_int {
    device(|device| device.mapped += len);
    *address = memory.expose_provenance() as u64;
    0
}

pub(crate) unsafe fn rds_rust_ib_dma_bounce_bytes(_device: *mut ib_device, _address: u64) -> usize {
    0
}

pub(crate) unsafe fn rds_rust_ib_dma_unmap(_device: *mut ib_device, _address: u64, len: usize) {
    device(|device| {
        device.mapped -= len;
        device.unmapped += 1;
        device.most_unmapped = device.most_unmapped.max(device.unmapped);
    });
}

const ENOMEM: c_int = -12;

macro_rules! post {
    ($name:ident, $wr:ty, $signaled:expr) => {
        pub(crate) unsafe fn $name(_qp: *mut ib_qp, wr: *const $wr, bad: &mut *const $wr) -> c_int {
            let mut at = wr;
            while !at.is_null() {
                // SAFETY: The caller passes a well-formed chain.
                let wr = unsafe { &*at };
                assert_eq!(wr.num_sge, 1);
                // SAFETY: As above.
                let sge = unsafe { &*wr.sg_list };
                let given = Given {
                    wr_id: wr.__bindgen_anon_1.wr_id,
                    address: sge.addr,
                    length: sge.length,
                    signaled: $signaled(wr),
                    operates: false,
                };
                if !device(|device| device.take(given)) {
                    *bad = at;
                    return ENOMEM;
                }
                at = wr.next;
            }
            0
        }
    };
}
post!(rds_rust_ib_post_recv, ib_recv_wr, |_: &ib_recv_wr| true);
post!(rds_rust_ib_post_send, ib_send_wr, |wr: &ib_send_wr| {
    wr.send_flags & ib_send_flags_IB_SEND_SIGNALED as c_int != 0
});

pub(crate) unsafe fn rds_rust_ib_post_operation(
    _qp: *mut ib_qp,
    operation: &rds_ib_operation,
    wr_id: u64,
) -> c_int {
    let given = Given {
        wr_id,
        address: operation.address,
        length: operation.length,
        signaled: operation.signaled,
        operates: true,
    };
    if device(|device| device.take(given)) {
        0
    } else {
        ENOMEM
    }
}
