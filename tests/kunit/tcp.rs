// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of TCP sockets of the kernel, over the loopback device.

use kernel::prelude::*;

#[kunit_tests(rds_tcp)]
mod suite {
    use crate::{
        kapi::net::{
            packet::TakeLimits,
            tcp::{
                TcpAddr,
                TcpSocket,
                TcpState, //
            },
            tcp_events::{
                TcpRead,
                TcpSource, //
            },
            NetRef, //
        },
        kunit::tcp_ends::{
            bytes,
            connected,
            send,
            Events,
            HOST,
            PORT, //
        }, //
    };
    use kernel::{
        prelude::*,
        sync::atomic::Relaxed,
        time::{
            delay::fsleep,
            Delta, //
        }, //
    };

    #[test]
    fn pieces_arrive_as_one_stream() -> Result {
        let ends = connected()?;
        assert_eq!(ends.left.peer_addr().port, PORT);
        assert_eq!(ends.right.peer_addr(), ends.left.local_addr());
        assert_eq!(ends.right.peer_addr().addr, HOST);
        assert_eq!(send(&ends.left, &[b"head", b"", b"rest"])?, 8);
        let mut to = [0; 16];
        let peeked = ends
            .right_events
            .until(|| bytes(ends.right.peek(&mut to)))?;
        assert_eq!(peeked, 8);
        assert_eq!(ends.right.recv(&mut to), TcpRead::Bytes(8));
        assert_eq!(&to[..8], b"headrest");
        assert_eq!(ends.right.recv(&mut to), TcpRead::Nothing);
        assert!(ends.right_events.readable.load(Relaxed) > 0);
        Ok(())
    }

    const PART: usize = 16 << 10;

    /// Limits that permit parts of a few bytes, and any share of their packet.
    fn limits(most: usize) -> TakeLimits {
        TakeLimits {
            least: 1,
            most: most as u32,
            any_share: true,
        }
    }

    #[test]
    fn bytes_stay_in_their_packets() -> Result {
        let ends = connected()?;
        let mut sent = KVec::new();
        for index in 0..PART {
            sent.push((index % 251) as u8, GFP_KERNEL)?;
        }
        assert_eq!(send(&ends.left, &[b"head", &sent])?, 4 + PART);
        let mut to = [0; 4];
        ends.right_events
            .until(|| bytes(ends.right.recv(&mut to)))?;
        let mut parts = KVec::new();
        let mut left = PART - 1;
        while left > 0 {
            let part = ends
                .right_events
                .until(|| ends.right.take(limits(left), usize::MAX))?;
            left -= part.len();
            parts.push(part, GFP_KERNEL)?;
        }
        let rest = ends
            .right_events
            .until(|| bytes(ends.right.recv(&mut to)))?;
        assert_eq!((rest, to[0]), (1, sent[PART - 1]));
        // They outlive their socket. Bytes that are not there cannot be read.
        drop(ends);
        let mut copy = KVVec::new();
        let mut beyond = true;
        for part in &parts {
            assert!(part.true_size() >= part.len());
            part.append_to(&mut copy, 0, 1)?;
            part.append_to(&mut copy, 1, part.len() - 1)?;
            beyond &= part.append_to(&mut copy, 1, part.len()).is_err();
        }
        assert_eq!(copy[..], sent[..PART - 1]);
        assert!(beyond);
        Ok(())
    }

    #[test]
    fn few_bytes_are_to_be_copied() -> Result {
        let ends = connected()?;
        let sent = KVec::from_elem(7u8, PART, GFP_KERNEL)?;
        assert_eq!(send(&ends.left, &[&sent[..64]])?, 64);
        let mut to = [0; 64];
        ends.right_events
            .until(|| bytes(ends.right.peek(&mut to)).filter(|count| *count == 64))?;
        // Their packet has more than twice the memory.
        let good = TakeLimits {
            any_share: false,
            ..limits(64)
        };
        let short = ends.right.take(good, usize::MAX);
        let half = ends.right.take(limits(32), usize::MAX);
        assert_eq!(half.map(|part| part.len()), Some(32));
        assert_eq!(ends.right.recv(&mut to), TcpRead::Bytes(32));
        assert_eq!(send(&ends.left, &[&sent])?, PART);
        ends.right_events
            .until(|| bytes(ends.right.peek(&mut to)))?;
        let many = TakeLimits {
            least: 2 * PART as u32,
            ..limits(PART)
        };
        let found = [
            ends.right.take(limits(PART), 5),
            ends.right.take(limits(PART), 0),
            ends.right.take(many, usize::MAX),
        ];
        let first = ends.right.take(limits(PART), usize::MAX);
        let held = first.as_ref().map_or(0, |part| part.true_size());
        assert!(short.is_none() && found.iter().all(Option::is_none));
        assert!(held >= PART / 4);
        Ok(())
    }

    #[test]
    fn a_socket_accepts_bytes_while_it_has_room() -> Result {
        let ends = connected()?;
        let chunk = KVec::from_elem(7u8, 64 << 10, GFP_KERNEL)?;
        let mut sent = 0;
        loop {
            match send(&ends.left, &[&chunk])? {
                0 => break,
                count => sent += count,
            }
            // The peer reads nothing.
            assert!(sent < 256 << 20);
        }
        let mut to = KVec::from_elem(0u8, 64 << 10, GFP_KERNEL)?;
        let mut got = 0;
        while got < sent {
            got += ends
                .right_events
                .until(|| bytes(ends.right.recv(&mut to)))?;
        }
        assert_eq!(got, sent);
        // There is room again, and an event has said so.
        ends.left_events
            .until(|| send(&ends.left, &[b"more"]).ok().filter(|sent| *sent > 0))?;
        assert!(ends.left_events.writable.load(Relaxed) > 0);
        Ok(())
    }

    #[test]
    fn a_connection_with_unread_bytes_is_not_aborted() -> Result {
        let mut ends = connected()?;
        assert_eq!(send(&ends.left, &[b"unread"])?, 6);
        let mut to = [0; 16];
        ends.right_events
            .until(|| bytes(ends.right.peek(&mut to)))?;
        ends.right.unwatch();
        assert_eq!(ends.right.abort_if_read(), None);
        assert_eq!(ends.right.recv(&mut to), TcpRead::Bytes(6));
        assert!(ends.right.abort_if_read().is_some());
        // The peer gets a reset, and nothing more can be read there.
        let ended = || (ends.left.state() == TcpState::Ended).then_some(());
        ends.left_events.until(ended)?;
        assert_eq!(ends.left.recv(&mut to), TcpRead::End);
        assert!(send(&ends.left, &[b"late"]).is_err());
        Ok(())
    }

    #[test]
    fn a_closed_window_stays_closed() -> Result {
        let ends = connected()?;
        ends.right.close_window();
        let mut chunk = KVec::from_elem(7u8, 64 << 10, GFP_KERNEL)?;
        let mut received = 0;
        for _ in 0..256 {
            send(&ends.left, &[&chunk])?;
            received += bytes(ends.right.recv(&mut chunk)).unwrap_or(0);
        }
        // 16 MiB were to be sent, and the first window is far smaller.
        assert!(received < 1 << 20);
        Ok(())
    }

    #[test]
    fn the_acknowledgement_of_tcp_is_an_event() -> Result {
        let ends = connected()?;
        let (events, mut sent) = (&ends.left_events, ends.left.snd_una());
        let before = events.writable.load(Relaxed);
        ends.left.report_acks(true);
        // An ACK that arrives before it is asked for is no event.
        for _ in 0..100 {
            assert_eq!(send(&ends.left, &[b"four"])?, 4);
            sent = sent.wrapping_add(4);
            ends.left.ask_for_acks();
            events.until(|| (ends.left.snd_una() == sent).then_some(()))?;
            if events.writable.load(Relaxed) > before {
                break;
            }
        }
        assert!(events.writable.load(Relaxed) > before);
        // The peer has answered, so it owes nothing.
        let (_, owes) = ends.left.last_ack();
        assert!(!owes);
        Ok(())
    }

    #[test]
    fn bytes_that_arrived_before_a_reset_can_be_read() -> Result {
        let ends = connected()?;
        assert_eq!(send(&ends.left, &[b"last words"])?, 10);
        let mut to = [0; 16];
        ends.right_events
            .until(|| bytes(ends.right.peek(&mut to)))?;
        ends.left.abort();
        let ended = || (ends.right.state() == TcpState::Ended).then_some(());
        ends.right_events.until(ended)?;
        assert_eq!(ends.right.recv(&mut to), TcpRead::Bytes(10));
        assert_eq!(ends.right.recv(&mut to), TcpRead::End);
        Ok(())
    }

    #[test]
    fn connections_share_a_port() -> Result {
        let addr = TcpAddr {
            addr: HOST,
            port: PORT - 1,
            scope: 0,
        };
        let (first, second) = (
            TcpSocket::for_peer(&NetRef::init()?, HOST)?,
            TcpSocket::for_peer(&NetRef::init()?, HOST)?,
        );
        first.bind(&addr)?;
        second.bind(&addr)?;
        Ok(())
    }

    #[test]
    fn a_peer_without_room_answers() -> Result {
        let ends = connected()?;
        let chunk = KVec::from_elem(7u8, 64 << 10, GFP_KERNEL)?;
        while send(&ends.left, &[&chunk])? > 0 {}
        // TCP asks for room again and again. No event reports the answers.
        for _ in 0..3 {
            let (before, _) = ends.left.last_ack();
            let answers = (0..500).any(|_| {
                fsleep(Delta::from_millis(10));
                ends.left.last_ack().0 != before
            });
            assert!(answers);
        }
        assert_eq!(ends.left.state(), TcpState::Open);
        Ok(())
    }

    #[test]
    fn few_unread_bytes_may_be_lost() -> Result {
        let ends = connected()?;
        assert_eq!(send(&ends.left, &[b"unread"])?, 6);
        let mut to = [0; 16];
        ends.right_events
            .until(|| bytes(ends.right.peek(&mut to)).filter(|count| *count == 6))?;
        assert!(!ends.right.abort_up_to(5));
        assert!(ends.right.abort_up_to(6));
        let ended = || (ends.left.state() == TcpState::Ended).then_some(());
        ends.left_events.until(ended)
    }

    #[test]
    fn connecting_without_a_listener_fails() -> Result {
        let events = Events::new()?;
        let mut socket = TcpSocket::for_peer(&NetRef::init()?, HOST)?;
        socket.watch(events.clone())?;
        let peer = TcpAddr {
            addr: HOST,
            port: PORT,
            scope: 0,
        };
        socket.connect(&peer)?;
        // The reset may be there before the first look.
        let ended = || socket.state() == TcpState::Ended && events.state.load(Relaxed) > 0;
        events.until(|| ended().then_some(()))
    }
}
