// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of receives: impossible completions, and buffers that the device refuses.

use kernel::prelude::*;

#[kunit_tests(rds_ib_receives)]
mod suite {
    use super::super::bench::*;
    use crate::{
        ib_transport::recv_ring::{
            Least,
            RecvRingPolicy, //
        },
        kapi::{
            rdma::{
                fake::{
                    Script,
                    FLUSHED,
                    LOCAL_PROTECTION,
                    WITH_IMMEDIATE,
                    WITH_INVALIDATE,
                    WRITE_WITH_IMMEDIATE, //
                },
                WcStatus, //
            },
            sync::{
                new_spinlock_bh,
                SpinLockBh, //
            },
            time, //
        },
        proto::{
            packed::{
                Packer,
                LONGEST_FRAME, //
            },
            starvation::Shortage,
            wire::{
                Flags,
                FragmentSize,
                Header, //
            }, //
        },
        stats::Counter, //
    };
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

    /// Returns the effect of a first frame that the device reports with length `byte_len` and a
    /// status. The numbers are: connections that end, frames that are dropped for their contents,
    /// and leaked buffers.
    fn first_frame(byte_len: u32, status: WcStatus) -> Result<(u64, u64, usize)> {
        first_frame_with(Script::default(), byte_len, status).map(|(effect, _)| effect)
    }

    /// The same with a device that runs `script`. Also returns how many receives were used by
    /// something other than a send.
    fn first_frame_with(
        script: Script,
        byte_len: u32,
        status: WcStatus,
    ) -> Result<((u64, u64, usize), u64)> {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        bench.fake.set_script(script);
        let arrived = bench.fake.receive(1, &[0; Header::LEN], byte_len, status);
        bench.await_end(1)?;
        bench.await_sends(2, MAP + 1)?;
        let resets = bench.counted(Counter::ConnReset);
        let dropped =
            bench.counted(Counter::RecvDropBadHeader) + bench.counted(Counter::RecvDropBadFragment);
        let misused = bench.counted(Counter::IbRxMisused);
        let left = bench.end(connection);
        if !arrived {
            return Err(ENOENT);
        }
        Ok(((resets, dropped, left), misused))
    }

    #[test]
    fn a_frame_without_room_for_a_header_ends_its_connection() -> Result {
        assert_eq!(first_frame(10, WcStatus::SUCCESS)?, (1, 1, 0));
        Ok(())
    }

    #[test]
    fn an_acknowledgement_without_a_buffer_is_tried_again_now_and_then() -> Result {
        /// Time between two attempts, in nanoseconds.
        const PAUSE: u64 = 20_000_000;
        let bench = Bench::new(Setup::small_pools())?;
        let connection = bench.connect()?;
        let taken = bench.take_buffers(0)?;
        let mut frame = [0; Header::LEN];
        let header = Header {
            sequence: 1,
            sport: 4000,
            dport: 4000,
            flags: Flags::ACK_REQUIRED,
            ..Header::default()
        };
        header.emit(&mut frame);
        let begin = time::monotonic_ns();
        // CAST: small.
        let len = Header::LEN as u32;
        let arrived = bench.fake.receive(1, &frame, len, WcStatus::SUCCESS);
        bench.await_counted(Counter::IbAckSendFailure, 4)?;
        let tries = bench.counted(Counter::IbAckSendFailure);
        let elapsed = time::monotonic_ns() - begin;
        let before = bench.posted(1);
        drop(taken);
        bench.await_sends(1, MAP + 2)?;
        let ack = bench.header(1, MAP + 1).map(|it| (it.ack, it.sequence));
        let resets = bench.counted(Counter::ConnReset);
        let left = bench.end(connection);
        assert!(arrived);
        // The first attempt follows the message at once.
        assert!(tries <= elapsed / PAUSE + 2);
        assert_eq!((before, ack), (Some(MAP + 1), Some((1, 0))));
        assert_eq!((resets, left), (0, 0));
        Ok(())
    }

    #[test]
    fn a_frame_that_is_longer_than_its_buffer_ends_its_connection() -> Result {
        assert_eq!(first_frame(u32::MAX, WcStatus::SUCCESS)?, (1, 1, 0));
        Ok(())
    }

    #[test]
    fn a_receive_that_fails_ends_its_connection() -> Result {
        // A failed receive has no valid length.
        for status in [FLUSHED, LOCAL_PROTECTION] {
            assert_eq!(first_frame(u32::MAX, status)?, (1, 0, 0));
        }
        Ok(())
    }

    /// Returns the effect of a first frame that is too short, reported with this opcode and these
    /// flags. See [`first_frame_with`].
    fn first_frame_as(receive_opcode: u32, receive_flags: u32) -> Result<((u64, u64, usize), u64)> {
        let script = Script {
            receive_opcode,
            receive_flags,
            ..Script::default()
        };
        first_frame_with(script, 10, WcStatus::SUCCESS)
    }

    #[test]
    fn only_data_of_a_send_is_taken_for_a_frame() -> Result {
        let written = first_frame_as(WRITE_WITH_IMMEDIATE, WITH_IMMEDIATE)?;
        let invalidated = first_frame_as(0, WITH_INVALIDATE)?;
        // Immediate data do no harm.
        let immediate = first_frame_as(0, WITH_IMMEDIATE)?;
        let ended = ((1, 0, 0), 1);
        assert_eq!((written, invalidated), (ended, ended));
        assert_eq!(immediate, ((1, 1, 0), 0));
        Ok(())
    }

    #[test]
    fn a_receive_that_the_device_refuses_is_posted_a_moment_later() -> Result {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        bench.await_receives(1, RECEIVES)?;
        bench.fake.set_script(Script {
            receive_error: ENOMEM.to_errno(),
            ..Script::default()
        });
        // The ring is refilled when a quarter of it is used.
        for _ in 0..RECEIVES / 4 {
            bench.hear(1, 0, 0)?;
        }
        bench.await_receives(1, RECEIVES)?;
        let from_thread = bench.counted(Counter::IbRxRefillFromThread);
        let resets = bench.counted(Counter::ConnReset);
        let left = bench.end(connection);
        assert_eq!((from_thread, resets, left), (1, 0, 0));
        Ok(())
    }

    /// Receives `count` frames, all of which wait to be polled when the first one is.
    fn hear_at_once(bench: &Bench, count: u32, mut next: impl FnMut(&mut [u8]) -> usize) -> Result {
        let softirqs: Arc<SpinLockBh<()>> =
            Arc::pin_init(new_spinlock_bh!((), "hear_at_once"), GFP_KERNEL)?;
        let mut frame = KVec::from_elem(0, LONGEST_FRAME as usize, GFP_KERNEL)?;
        let off = softirqs.lock();
        let mut arrived = 0;
        for _ in 0..count {
            let len = next(&mut frame);
            // CAST: a frame is small.
            let byte_len = len as u32;
            let frame = frame.get(..len).unwrap_or_default();
            arrived += u32::from(bench.fake.receive(1, frame, byte_len, WcStatus::SUCCESS));
        }
        drop(off);
        if arrived < count {
            return Err(ENOENT);
        }
        bench.fake.wait_settled(1)
    }

    #[test]
    fn a_run_ends_after_many_messages_however_few_frames_they_are_in() -> Result {
        const FRAMES: u32 = 64;
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        bench.await_receives(1, RECEIVES)?;
        // The ring grows.
        let mut posted = RECEIVES;
        while posted < FRAMES {
            hear_at_once(&bench, posted, |frame| {
                Header::default().emit(frame.first_chunk_mut().unwrap_or(&mut [0; Header::LEN]));
                Header::LEN
            })?;
            posted *= 2;
            bench.await_receives(1, posted.min(FRAMES))?;
        }
        let acks = bench.counted(Counter::IbAckSent);
        let mut sequence = 0;
        hear_at_once(&bench, FRAMES, |frame| {
            let mut packer = Packer::new(frame);
            while packer.has_room(0) {
                sequence += 1;
                let header = Header {
                    sequence,
                    flags: Flags::ACK_REQUIRED,
                    sport: 4000,
                    dport: 4000,
                    ..Header::default()
                };
                packer.push(&header, &[]);
            }
            packer.len() as usize
        })?;
        // Each run acknowledges once.
        let runs = bench.counted(Counter::IbAckSent) - acks;
        let dropped = bench.counted(Counter::RecvDropNoSock);
        let resets = bench.counted(Counter::ConnReset);
        let left = bench.end(connection);
        assert_eq!((dropped, resets, left), (sequence, 0, 0));
        assert!(dropped > u64::from(FRAMES) * 80);
        assert!(runs > 6);
        Ok(())
    }

    #[test]
    fn as_many_receives_are_posted_as_are_wanted_and_no_more_than_there_is_room_for() -> Result {
        let mut posted = KVec::new();
        for min_recv_wr in [0, 40, 4096] {
            let setup = Setup {
                min_recv_wr,
                ..Setup::default()
            };
            let bench = Bench::new(setup)?;
            let connection = bench.connect()?;
            let queues = bench.fake.queues(1).ok_or(ENOENT)?;
            posted.push(queues.receives_posted, GFP_KERNEL)?;
            bench.end(connection);
        }
        assert_eq!(posted[..], [RECEIVES, 40, 382]);
        Ok(())
    }

    /// Two starved ends with flow control send each other a header each second.
    #[test]
    fn the_buffer_of_a_header_ends_no_lack_of_buffers() {
        const SIZE: FragmentSize = FragmentSize::K8;
        for controlled in [true, false] {
            let mut ring = RecvRingPolicy::new(SIZE, 100, Least::Wanted(0), controlled);
            ring.starvation.wait(0, Shortage::Limit, SIZE, 0, false);
            let before = ring.activity().1;
            ring.note_posted(1, false);
            let with_header = ring.activity().1;
            ring.note_posted(1, false);
            let with_two = ring.activity().1;
            ring.depth.arrive();
            ring.depth.arrive();
            ring.starvation.wait(0, Shortage::Limit, SIZE, 0, false);
            let empty = ring.activity().1;
            ring.note_posted(1, true);
            let with_new = ring.activity().1;
            assert_eq!((before, with_header, with_two), (true, controlled, false));
            assert_eq!((empty, with_new), (true, false));
        }
    }

    #[test]
    fn an_idle_endpoint_is_checked_once_in_a_period() -> Result {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        let device = bench.qp().ok_or(ENOENT)?.handler().device.clone();
        // The first call ends the period at the latest.
        device.service_ring();
        let idle = device.service_ring();
        bench.qp().ok_or(ENOENT)?.handler().service_soon();
        let asked = device.service_ring();
        drop(device);
        let left = bench.end(connection);
        assert_eq!((idle, asked, left), (0, 1, 0));
        Ok(())
    }
}
