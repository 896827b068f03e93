// SPDX-License-Identifier: GPL-2.0

//! A simulated RDMA device for the KUnit suites, which decide how each posted work request ends.
//!
//! There is no CM: queue pairs are connected from their creation.

use super::{
    cm::Anchor,
    device::IbDevice,
    local_qp::{
        LocalQp,
        LocalVerbs,
        DEPTH, //
    },
    operation::{
        LocalPiece,
        PieceOwner, //
    },
    pd::Pd,
    qp::{
        Qp,
        QpHandler, //
    },
    verbs::QpConfig,
    wc_status::WcStatus, //
};
use crate::{
    bindings,
    kapi::sync::{
        new_spinlock_bh,
        SpinLockBh, //
    }, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

/// The way in which work requests end that are posted from now on.
pub(crate) type Script = bindings::rds_fake_script;
/// Progress of a queue pair.
pub(crate) type Queues = bindings::rds_rust_fake_queues;

/// Statuses of work requests, in addition to [`WcStatus::SUCCESS`].
pub(crate) const FLUSHED: WcStatus = WcStatus::FLUSHED;
pub(crate) const LOCAL_PROTECTION: WcStatus = WcStatus(bindings::ib_wc_status_IB_WC_LOC_PROT_ERR);
pub(crate) const REMOTE_ACCESS: WcStatus = WcStatus(bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR);
pub(crate) const RETRIES_EXCEEDED: WcStatus = WcStatus(bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR);
pub(crate) const NO_RECEIVE: WcStatus = WcStatus(bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR);

/// Status for a send that ends without a completion.
pub(crate) const LOST: WcStatus = WcStatus(u32::MAX);

/// Maximum number of outstanding work requests of a [`LocalQp`].
pub(crate) const LOCAL_DEPTH: u32 = DEPTH;

/// Opcodes and flags of receive completions, for [`Script::receive_opcode`] and
/// [`Script::receive_flags`].
pub(crate) const WRITE_WITH_IMMEDIATE: u32 = bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM;
pub(crate) const WITH_IMMEDIATE: u32 = bindings::ib_wc_flags_IB_WC_WITH_IMM;
pub(crate) const WITH_INVALIDATE: u32 = bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE;

/// Kind of a posted send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Frame,
    Read,
    Write,
    Other,
}

/// A send that has not ended.
pub(crate) struct Sent {
    pub(crate) kind: Kind,
    /// The send begins after the RDMA reads before it are complete (`IB_SEND_FENCE`).
    pub(crate) fence: bool,
    /// First bytes of the frame, if the send is one.
    pub(crate) bytes: [u8; 64],
}

/// A simulated device. Dropping it waits for the last reference.
///
/// # Invariants
///
/// The pointer is to a device, and `self` owns a reference to it.
pub(crate) struct FakeDevice(NonNull<bindings::ib_device>);

// SAFETY: All mutable state of the device is behind a lock.
unsafe impl Send for FakeDevice {}
// SAFETY: As above.
unsafe impl Sync for FakeDevice {}

impl FakeDevice {
    /// Creates a device. If `soft_iwarp` is set, the module takes it for soft-iWARP.
    ///
    /// A `direct` device never has bounce buffers, on any machine. With bounce buffers peers cannot
    /// access memory.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(soft_iwarp: bool, direct: bool) -> Result<Self> {
        // SAFETY: The function has no preconditions.
        let raw = unsafe { bindings::rds_rust_fake_alloc(soft_iwarp, direct) };
        // INVARIANT: The device is new, and its initial reference is passed to `self`.
        NonNull::new(raw).map(Self).ok_or(ENOMEM)
    }

    /// Adds drain functions to the driver, as mlx4, mlx5 and hns have them. Called before the queue
    /// pairs are created.
    pub(crate) fn set_own_drain(&self) {
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_fake_set_own_drain(self.raw()) };
    }

    /// Adds a port of 100 Gbit/s.
    pub(crate) fn add_port(&self) {
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_fake_add_port(self.raw()) };
    }

    /// Returns the number of queue pairs created by workers whose allocations may wait for I/O.
    pub(crate) fn made_with_io(&self) -> u32 {
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_fake_made_with_io(self.raw()) }
    }

    /// Returns the number of work requests that were refused because of [`Script::no_atomics`].
    pub(crate) fn refused(&self) -> u32 {
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_fake_refused(self.raw()) }
    }

    /// Returns the number of calls of the driver's drain functions.
    pub(crate) fn drained(&self) -> u32 {
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_fake_drained(self.raw()) }
    }

    fn raw(&self) -> *mut bindings::ib_device {
        self.0.as_ptr()
    }

    pub(crate) fn device(&self) -> &IbDevice {
        // SAFETY: The device is alive by the type invariants, and only `drop` frees it.
        unsafe { IbDevice::from_raw(self.raw()) }
    }

    /// Sets the script. Ends the work requests that the new script does not hold back any more.
    pub(crate) fn set_script(&self, script: Script) {
        // SAFETY: The device is alive by the type invariants; the script is copied.
        unsafe { bindings::rds_rust_fake_set_script(self.raw(), &script) };
    }

    /// Waits until `is_so` returns `true`. It is called after each change of the device.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT` if there is no change for 30 s.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn wait_until(&self, is_so: impl Fn() -> bool) -> Result {
        loop {
            // SAFETY: The device is alive by the type invariants.
            let seen = unsafe { bindings::rds_rust_fake_changes(self.raw()) };
            if is_so() {
                return Ok(());
            }
            // SAFETY: As above.
            if !unsafe { bindings::rds_rust_fake_await_change(self.raw(), seen) } {
                return Err(ETIMEDOUT);
            }
        }
    }

    /// Returns the number of MRs, and the number of MRs created so far.
    pub(crate) fn regions(&self) -> (u32, u32) {
        let mut made = 0;
        // SAFETY: The device is alive by the type invariants.
        let regions = unsafe { bindings::rds_rust_fake_regions(self.raw(), &mut made) };
        (regions, made)
    }

    /// Returns the number of the queue pair that was created last. 0 if there was none.
    pub(crate) fn last_qp(&self) -> u32 {
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_fake_last_qp(self.raw()) }
    }

    /// Returns the progress of a queue pair, if it exists.
    pub(crate) fn queues(&self, number: u32) -> Option<Queues> {
        let mut queues = Queues::default();
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_fake_queues(self.raw(), number, &mut queues) }.then_some(queues)
    }

    /// Waits until all completions of a queue pair have been handled.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT` if there is no change for 30 s.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn wait_settled(&self, number: u32) -> Result {
        self.wait_until(|| self.queues(number).is_none_or(|queues| queues.settled))
    }

    /// Returns the send that was posted after `index` others. `None` if it has ended, or was not
    /// posted.
    pub(crate) fn sent(&self, number: u32, index: u32) -> Option<Sent> {
        let mut raw = bindings::rds_rust_fake_send::default();
        // SAFETY: The device is alive by the type invariants.
        if !unsafe { bindings::rds_rust_fake_send(self.raw(), number, index, &mut raw) } {
            return None;
        }
        Some(Sent {
            kind: match raw.opcode {
                bindings::ib_wr_opcode_IB_WR_SEND => Kind::Frame,
                bindings::ib_wr_opcode_IB_WR_RDMA_READ => Kind::Read,
                bindings::ib_wr_opcode_IB_WR_RDMA_WRITE => Kind::Write,
                _ => Kind::Other,
            },
            fence: raw.flags & bindings::ib_send_flags_IB_SEND_FENCE != 0,
            bytes: raw.bytes,
        })
    }

    /// Ends up to `count` sends, oldest first. Returns the number of ended sends.
    ///
    /// A failure status puts the queue pair into the error state, which ends the remaining sends.
    pub(crate) fn end_sends(&self, number: u32, count: u32, status: WcStatus) -> u32 {
        // SAFETY: The device is alive by the type invariants.
        let end =
            || unsafe { bindings::rds_rust_fake_end_send(self.raw(), number, status.number()) };
        // CAST: at most `count`.
        (0..count).take_while(|_| end()).count() as u32
    }

    /// Ends the oldest receive with a frame. The completion reports a length of `byte_len` bytes.
    ///
    /// Returns `false` if there is no receive, or the frame does not fit.
    pub(crate) fn receive(
        &self,
        number: u32,
        frame: &[u8],
        byte_len: u32,
        status: WcStatus,
    ) -> bool {
        let (raw, status) = (self.raw(), status.number());
        // CAST: a frame is short.
        let len = frame.len() as u32;
        // SAFETY: The device is alive by the type invariants; the frame is copied.
        unsafe {
            bindings::rds_rust_fake_receive(raw, number, frame.as_ptr(), len, byte_len, status)
        }
    }

    /// Reports a completion with `wr_id`, even if no such work request was posted.
    pub(crate) fn report(&self, number: u32, wr_id: u64, status: WcStatus) -> bool {
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_fake_report(self.raw(), number, wr_id, status.number()) }
    }

    /// Reports a completion of nothing that was posted. It names a completion entry (`ib_cqe`)
    /// instead of a slot number.
    pub(crate) fn report_stray(&self, number: u32) -> bool {
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_fake_report_stray(self.raw(), number) }
    }

    /// Returns the number of calls of the handler in that completion entry.
    pub(crate) fn strays(&self) -> u32 {
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_fake_strays(self.raw()) }
    }

    /// Reports a fatal event of a queue pair (`IB_EVENT_QP_FATAL`).
    pub(crate) fn report_fatal(&self, number: u32) -> bool {
        self.report_event(number, bindings::ib_event_type_IB_EVENT_QP_FATAL)
    }

    /// Reports that the completion queue has lost completions (`IB_EVENT_CQ_ERR`). Returns `false`
    /// if it has no event handler.
    pub(crate) fn report_overrun(&self, number: u32) -> bool {
        self.report_event(number, bindings::ib_event_type_IB_EVENT_CQ_ERR)
    }

    /// Sets the service level of a route to 5. The network has set it to 2.
    ///
    /// Returns the resulting service level, plus 100 if the path is up, plus 1000 if a subnet
    /// administrator provides the route. Without `resolved` there is neither a device nor a route.
    pub(crate) fn service_level(&self, is_roce: bool, resolved: bool) -> i32 {
        let port = match is_roce {
            true => bindings::RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP,
            false => bindings::RDMA_CORE_PORT_IBA_IB,
        };
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_fake_service_level(self.raw(), port, resolved) }
    }

    /// Returns `true` if the device accesses memory through bounce buffers only.
    pub(crate) fn bounces(&self) -> bool {
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_fake_bounce_bytes(self.raw()) > 0 }
    }

    /// Reads or writes local memory of an operation, as the device does.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if the memory is in an MR, or its length is not that of `bytes`.
    pub(crate) fn access(&self, piece: &LocalPiece, bytes: &mut [u8], writes: bool) -> Result {
        if matches!(piece.of, PieceOwner::Region(_)) || piece.len as usize != bytes.len() {
            return Err(EINVAL);
        }
        let (start, len) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: The device is alive by the type invariants. `start` points to `len` bytes.
        to_result(unsafe {
            bindings::rds_rust_fake_access(self.raw(), piece.address, start, len, writes)
        })
    }

    fn report_event(&self, number: u32, event: u32) -> bool {
        // CAST: small.
        let event = event as c_int;
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_fake_event(self.raw(), number, event) }
    }
}

impl Drop for FakeDevice {
    fn drop(&mut self) {
        // SAFETY: By the type invariants `self` owns a reference to the device.
        unsafe { bindings::rds_rust_fake_free(self.raw()) };
    }
}

/// Replacement for a connection identifier.
#[pin_data]
struct FakeId {
    /// The queue pair, or null before it is created.
    #[pin]
    qp: SpinLockBh<RawQp>,
    _device: ARef<IbDevice>,
}

struct RawQp(*mut bindings::ib_qp);

// SAFETY: A queue pair may be used from any thread.
unsafe impl Send for RawQp {}

impl FakeId {
    fn new(pd: &Pd) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                qp <- new_spinlock_bh!(RawQp(ptr::null_mut()), "FakeId::qp"),
                _device: pd.device().into(),
            }),
            GFP_KERNEL,
        )
    }
}

impl Anchor for FakeId {
    fn create_qp(
        &self,
        pd: *mut bindings::ib_pd,
        attr: &mut bindings::ib_qp_init_attr,
    ) -> Result<*mut bindings::ib_qp> {
        // SAFETY: The caller's protection domain is alive.
        let qp = from_err_ptr(unsafe { bindings::rds_rust_fake_create_qp(pd, attr) })?;
        self.qp.lock().0 = qp;
        Ok(qp)
    }

    fn destroy_qp(&self) {
        let qp = core::mem::replace(&mut self.qp.lock().0, ptr::null_mut());
        // SAFETY: The caller owns the queue pair.
        unsafe { bindings::rds_rust_fake_destroy_qp(qp) };
    }
}

/// Creates a queue pair on the [`FakeDevice`] of `pd`.
///
/// # Errors
///
/// - `ENOMEM`, or those of [`Qp::create`].
///
/// # Context
///
/// May sleep.
pub(crate) fn queue_pair<H: QpHandler>(
    pd: &Arc<Pd>,
    config: QpConfig,
    handler: impl PinInit<H>,
    poll: H::Poll,
) -> Result<Arc<Qp<H>>> {
    let qp = Qp::new(FakeId::new(pd)?, pd, config, handler, poll)?;
    qp.open(config)?;
    Ok(qp)
}

/// Creates a queue pair for local work on the [`FakeDevice`] of `pd`.
///
/// # Errors
///
/// - `ENOMEM`, or those of [`Qp::create`].
///
/// # Context
///
/// May sleep.
pub(crate) fn local_queue_pair(pd: &Arc<Pd>) -> Result<Arc<LocalQp>> {
    LocalQp::of(LocalVerbs::new(FakeId::new(pd)?, pd)?)
}

/// Returns local memory of `len` bytes for an operation. It is in an MR, so the device does not
/// access it.
pub(crate) fn local_piece(pd: &Pd, len: u32) -> LocalPiece {
    LocalPiece {
        lkey: 1,
        address: 0x7000,
        len,
        of: PieceOwner::Region(pd.domain().clone()),
    }
}

/// Allocates memory of a program and returns its address. The calling task becomes that program.
///
/// The bytes of each page have the page's number as value. Consecutive pages are not physically
/// contiguous.
///
/// # Errors
///
/// - `ENOMEM`
///
/// # Context
///
/// Sleeps.
pub(crate) fn program_memory(bytes: usize) -> Result<u64> {
    // CAST: a `long` has as many bits as a `usize`.
    let bytes = bytes as c_ulong;
    // SAFETY: The function has no preconditions.
    match unsafe { bindings::rds_rust_fake_program_memory(bytes) } {
        0 => Err(ENOMEM),
        // CAST: as above.
        address => Ok(address as u64),
    }
}

/// Returns `true` if all bytes of such memory have the value `value`.
///
/// # Context
///
/// Sleeps.
pub(crate) fn program_has(address: u64, bytes: usize, value: u8) -> bool {
    // CAST: a `long` has as many bits as both.
    let (address, bytes) = (address as c_ulong, bytes as c_ulong);
    // SAFETY: The function has no preconditions.
    unsafe { bindings::rds_rust_fake_program_has(address, bytes, value) }
}
