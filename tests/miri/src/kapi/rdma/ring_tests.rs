// SPDX-License-Identifier: GPL-2.0

//! Tests of `kapi/rdma/qp_ring.rs` and `send_ring.rs`. The device accesses the memory of a work
//! request when it completes it.

use super::{
    domain::Domain,
    mapping::{LocalDmaMapping, Mapping},
    operation::{LocalPiece, Operation, OperationItem, PieceOwner, PostError, Verb},
    pd::Pd,
    qp_ring::{RecvRing, WrId, WrNumber},
    send_item::SendItem,
    send_ring::SendRing,
    wc_status::WcStatus,
    Arena, Batch,
};
use crate::{
    bindings::{self, device, Given},
    kapi::sync::{Fifo, Item},
    prelude::*,
    sync::Arc,
};
use core::ptr;
use std::sync::Mutex;

const SIZE: u32 = 64;
const SLOTS: u32 = 8;
const LKEY: u32 = 0;

/// Fewer steps under Miri, which is slow.
const STEPS: usize = if cfg!(miri) { 60 } else { 2000 };

/// A pointer to a queue pair, never dereferenced.
fn qp() -> *mut bindings::ib_qp {
    ptr::without_provenance_mut(1)
}

struct Fixture {
    arena: Arc<Arena>,
    pd: Pd,
    random: u32,
}

impl Fixture {
    fn new(seed: u32) -> Self {
        let pd = Pd::new();
        let arena = Arena::new(Some(&pd), None, SIZE).unwrap();
        arena.grow(1, 1, usize::MAX, true).unwrap();
        device(|device| (device.takes, device.given) = (None, Vec::new()));
        Self {
            arena,
            pd,
            random: seed,
        }
    }

    fn domain(&self) -> *const Domain {
        Arc::as_ptr(self.pd.domain())
    }

    fn below(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_mul(1664525).wrapping_add(1013904223);
        (self.random >> 8) as usize % end
    }

    fn in_use(&self) -> usize {
        self.arena.stats().in_use
    }

    fn send(&self, mark: u8) -> SendItem {
        let mut buf = Arena::take_one(&self.arena).unwrap();
        buf.bytes_mut().fill(mark);
        SendItem {
            buf: buf.freeze(),
            len: SIZE,
            solicited: false,
            fence: false,
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        assert_eq!(self.in_use(), 0);
        self.arena.revoke().unwrap();
        assert_eq!(device(|device| device.mapped), 0);
    }
}

/// Completes the oldest work request of the device and returns it.
fn next_given() -> Option<Given> {
    device(|device| (!device.given.is_empty()).then(|| device.given.remove(0)))
}

impl Given {
    fn memory(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.address as usize)
    }

    /// Returns the first byte, after checking that all bytes are equal.
    fn read(&self) -> u8 {
        // SAFETY: The device owns the memory until the completion is handled.
        let bytes = unsafe { core::slice::from_raw_parts(self.memory(), self.length as usize) };
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    }

    fn write(&self, mark: u8) {
        // SAFETY: As above.
        unsafe { self.memory().write_bytes(mark, self.length as usize) };
    }

    fn sent(&self) -> WrNumber {
        match WrId::of(self.wr_id) {
            WrId::Send(number) => number,
            _ => panic!("{:#x}", self.wr_id),
        }
    }

    fn received(&self) -> WrNumber {
        match WrId::of(self.wr_id) {
            WrId::Recv(number) => number,
            _ => panic!("{:#x}", self.wr_id),
        }
    }
}

/// Records the completions of work requests, and whether each was the operation's last.
#[derive(Default)]
struct Recorder(Mutex<Vec<(bool, u32)>>);

impl Operation for Recorder {
    fn number(&self) -> u64 {
        0
    }

    fn owner(&self) -> u64 {
        0
    }

    fn done(&self, last: bool, status: WcStatus) {
        self.0.lock().unwrap().push((last, status.0));
    }
}

fn operation(
    fixture: &Fixture,
    verb: Verb,
    local_mapping: Option<&Arc<LocalDmaMapping>>,
) -> OperationItem {
    let local = LocalPiece {
        lkey: 1,
        address: 0,
        len: 8,
        of: match local_mapping {
            Some(local_mapping) => PieceOwner::Mapping(local_mapping.clone()),
            None => PieceOwner::Region(fixture.pd.domain().clone()),
        },
    };
    let operation: Arc<dyn Operation> = Arc::new(Recorder::default(), GFP_KERNEL).unwrap();
    OperationItem::new(verb, local, 2, 0, true, operation)
}

fn item(operation: OperationItem) -> Item<OperationItem> {
    Item::new(operation, GFP_KERNEL).ok().unwrap()
}

#[test]
fn receives_come_back_in_order_and_once() {
    let mut fixture = Fixture::new(1);
    let mut ring = RecvRing::new(SLOTS, fixture.domain(), LKEY).unwrap();
    let mut batch = Batch::new();
    Arena::take(&fixture.arena, 4, &mut batch);
    assert!(ring.post(&mut batch, |_, _| ()).is_err(), "closed");
    assert_eq!(batch.len(), 4);
    // SAFETY: No other code uses the ring.
    unsafe { ring.open(qp()) };
    let mut marks = 0u8;
    for _ in 0..STEPS {
        let want = fixture.below(6);
        Arena::take(&fixture.arena, want, &mut batch);
        // Sometimes the device accepts only a part of a chain, or none.
        let takes = (fixture.below(4) == 0).then(|| fixture.below(5));
        device(|device| device.takes = takes);
        let before = (batch.len(), device(|device| device.given.len()));
        let posted = ring.post(&mut batch, |_, len| assert_eq!(len, SIZE as usize));
        let posted = posted.unwrap_or(0) as usize;
        let after = (batch.len(), device(|device| device.given.len()));
        assert_eq!((before.0 - posted, before.1 + posted), after);
        for _ in 0..fixture.below(6) {
            let Some(given) = next_given() else {
                break;
            };
            marks = marks.wrapping_add(1);
            given.write(marks);
            // Neither a later one nor a second report frees a buffer that the device may write.
            if let Some(later) = device(|device| device.given.first().copied()) {
                assert!(ring.complete(later.received()).is_none());
                later.write(0);
            }
            let buf = ring.complete(given.received()).unwrap();
            assert!(buf.bytes().iter().all(|byte| *byte == marks));
            assert!(ring.complete(given.received()).is_none());
        }
        assert_eq!(
            fixture.in_use(),
            batch.len() + device(|device| device.given.len())
        );
    }
    ring.close();
    assert!(ring.post(&mut batch, |_, _| ()).is_err(), "closed");
    // SAFETY: There is no queue pair.
    drop(unsafe { ring.take_slots() });
    drop(batch);
}

#[test]
fn sends_keep_their_buffers_until_they_are_done() {
    for (seed, wait_for_reads) in [(1, false), (2, true), (3, false)] {
        let mut fixture = Fixture::new(seed);
        let local_mapping = Arc::new(
            LocalDmaMapping {
                domain: fixture.pd.domain().clone(),
                mapping: Mutex::new(Some(Arc::new(Mapping, GFP_KERNEL).unwrap())),
            },
            GFP_KERNEL,
        )
        .unwrap();
        let mut ring = SendRing::new(SLOTS, fixture.domain(), LKEY, 3, wait_for_reads).unwrap();
        // SAFETY: No other code uses the ring.
        unsafe { ring.open(qp()) };
        let (mut mark, mut sent, mut done) = (0u8, 0u8, 0);
        let mut completed = Fifo::new();
        for _ in 0..STEPS {
            match fixture.below(5) {
                0 | 1 => {
                    mark = mark.wrapping_add(1);
                    let full = ring.space() == 0;
                    let result = ring.stage(fixture.send(mark), |_, _| ());
                    assert_eq!(result.is_err(), full);
                    if full {
                        mark = mark.wrapping_sub(1);
                    }
                }
                2 => {
                    let verb = [Verb::Read, Verb::Write][fixture.below(2)];
                    let from = (fixture.below(2) == 0).then_some(&local_mapping);
                    let full = ring.space() == 0;
                    let result = ring.operate(item(operation(&fixture, verb, from)));
                    assert_eq!(
                        result.err().map(|refused| refused.1),
                        full.then_some(PostError::NotNow)
                    );
                }
                3 => ring.submit().unwrap(),
                _ => {
                    // One signaled completion covers all requests up to it.
                    let Some(reported) =
                        device(|device| device.given.iter().position(|x| x.signaled))
                    else {
                        continue;
                    };
                    let mut last = None;
                    for _ in 0..=reported {
                        let given = next_given().unwrap();
                        last = Some(given.sent());
                        if !given.operates {
                            sent = sent.wrapping_add(1);
                            assert_eq!(given.read(), sent);
                        }
                        done += 1;
                    }
                    // The device may still read the others, also if the ring was full.
                    let number = last.unwrap();
                    assert!(ring.complete(number, WcStatus::SUCCESS, &mut completed));
                    if fixture.below(2) == 0 {
                        while ring.space() > 0 {
                            mark = mark.wrapping_add(1);
                            ring.stage(fixture.send(mark), |_, _| ()).unwrap();
                        }
                    }
                    let before = ring.in_flight();
                    assert!(!ring.complete(number, WcStatus::SUCCESS, &mut completed));
                    assert_eq!(ring.in_flight(), before);
                }
            }
            let progress = ring.progress();
            assert_eq!(progress.done, done);
            assert_eq!(progress.posted, done + u64::from(ring.in_flight()));
        }
        // The rest is flushed.
        let _ = ring.submit();
        while let Some(given) = next_given() {
            if !given.operates {
                sent = sent.wrapping_add(1);
                assert_eq!(given.read(), sent);
            }
            let status = WcStatus(bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR);
            ring.complete(given.sent(), status, &mut completed);
        }
        assert_eq!((ring.in_flight(), ring.progress().operates), (0, false));
        assert!(ring.stage(fixture.send(0), |_, _| ()).is_err(), "closed");
        // SAFETY: There is no queue pair.
        drop(unsafe { ring.take_slots() });
        drop(completed);
        assert_eq!(mark, sent);
    }
}

#[test]
fn requests_that_a_device_refuses_are_dropped_and_end_the_ring() {
    for takes in 0..5 {
        let fixture = Fixture::new(1);
        let mut ring = SendRing::new(SLOTS, fixture.domain(), LKEY, 16, false).unwrap();
        // SAFETY: No other code uses the ring.
        unsafe { ring.open(qp()) };
        for mark in 0..5 {
            ring.stage(fixture.send(mark), |_, _| ()).unwrap();
        }
        device(|device| device.takes = Some(takes));
        assert_eq!(ring.submit(), Err(ENOMEM));
        assert_eq!(ring.in_flight(), takes as u32);
        assert_eq!(fixture.in_use(), takes);
        assert!(ring.stage(fixture.send(9), |_, _| ()).is_err(), "closed");
        let mut completed = Fifo::new();
        while let Some(given) = next_given() {
            given.read();
            ring.complete(given.sent(), WcStatus::SUCCESS, &mut completed);
        }
        assert_eq!((ring.in_flight(), fixture.in_use()), (0, 0));
        assert!(completed.is_empty());
    }
}

/// soft-iWARP reports a READ that it cannot send while earlier ones wait for their responses.
#[test]
fn a_failure_that_overtakes_operations_does_not_release_their_memory() {
    let fixture = Fixture::new(1);
    let mut ring = SendRing::new(SLOTS, fixture.domain(), LKEY, 1, true).unwrap();
    // SAFETY: No other code uses the ring.
    unsafe { ring.open(qp()) };
    for _ in 0..3 {
        let posted = ring.operate(item(operation(&fixture, Verb::Read, None)));
        assert!(posted.is_ok());
    }
    let [first, second, third] = [(); 3].map(|()| next_given().unwrap().sent());
    let mut completed = Fifo::new();
    let failed = WcStatus(bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR);
    assert!(ring.complete(third, failed, &mut completed));
    assert_eq!((ring.in_flight(), completed.is_empty()), (3, true));
    assert!(ring.stage(fixture.send(0), |_, _| ()).is_err(), "closed");
    // A response may still arrive. The rest is flushed.
    assert!(ring.complete(first, WcStatus::SUCCESS, &mut completed));
    let flushed = WcStatus(bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR);
    assert!(ring.complete(second, flushed, &mut completed));
    assert_eq!(ring.in_flight(), 1);
    let results = [(); 3].map(|()| completed.pop_front().map(|item| item.status));
    assert_eq!(results, [Some(WcStatus::SUCCESS), Some(flushed), None]);
    // SAFETY: There is no queue pair.
    drop(unsafe { ring.take_slots() });
}

#[test]
fn numbers_of_work_requests_wrap() {
    let last = WrNumber::of((1 << 31) - 1);
    let next = WrNumber::of(1 << 31);
    assert_eq!((next.since(last), last.since(next)), (1, (1 << 31) - 1));
    assert_eq!(next, WrNumber::of(0));
    for number in [last, next] {
        assert!(WrId::of(number.send_id()) == WrId::Send(number));
    }
}

#[test]
fn an_operation_on_memory_that_was_taken_back_is_not_posted() {
    let fixture = Fixture::new(1);
    let mut ring = SendRing::new(SLOTS, fixture.domain(), LKEY, 16, false).unwrap();
    // SAFETY: No other code uses the ring.
    unsafe { ring.open(qp()) };
    let mapping = Arc::new(Mapping, GFP_KERNEL).unwrap();
    let local_mapping = Arc::new(
        LocalDmaMapping {
            domain: fixture.pd.domain().clone(),
            mapping: Mutex::new(Some(mapping)),
        },
        GFP_KERNEL,
    )
    .unwrap();
    let first = item(operation(&fixture, Verb::Read, Some(&local_mapping)));
    assert!(ring.operate(first).is_ok());
    // The ring holds its own reference to the mapping.
    let taken = local_mapping.mapping.lock().unwrap().take();
    drop(taken);
    let second = item(operation(&fixture, Verb::Read, Some(&local_mapping)));
    let (_, why) = ring.operate(second).err().unwrap();
    assert_eq!(why, PostError::Never);
    let given = next_given().unwrap();
    assert!(given.operates && given.signaled);
    let mut completed = Fifo::new();
    ring.complete(given.sent(), WcStatus::SUCCESS, &mut completed);
    let item = completed.pop_front().unwrap();
    item.operation.done(item.last, item.status);
}
