// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the handshakes of a node with one path, with a fake TCP transport.

use kernel::prelude::*;

#[kunit_tests(rds_mprds)]
mod suite {
    use crate::{
        kunit::{
            tcp_bench::{
                acknowledge_all,
                of_c,
                probe,
                receive,
                receive_full_map,
                Bench,
                PORTS, //
            },
            wait::eventually, //
        },
        proto::wire::{
            Flags,
            Header,
            PING_PORT, //
        }, //
    };
    use kernel::prelude::*;

    #[test]
    fn an_answer_has_the_number_of_paths() -> Result {
        let bench = Bench::new(0)?;
        let connection = bench.connect()?;
        receive(&connection, &probe(1, 1))?;
        let answer = bench.answer();
        let answered = bench.counted("send_pong");
        drop(bench);
        assert_eq!(answered, 1);
        let exthdr = answer.map(|it| it.exthdr);
        assert_eq!(
            exthdr,
            Some([5, 0, 1, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        );
        Ok(())
    }

    /// The peer acknowledges no answer, so all of them stay in memory.
    #[test]
    fn answers_to_probes_are_limited() -> Result {
        let bench = Bench::new(0)?;
        let connection = bench.connect()?;
        for sequence in 1..=5000 {
            receive(&connection, &probe(sequence, 1))?;
        }
        let counts = pongs(&bench);
        drop(bench);
        assert_eq!(counts, (4098, 902));
        Ok(())
    }

    /// One answer at a time needs no room among the pongs, whatever ports are full at the peer.
    /// After an answer without memory the node probes, and nothing acknowledges that.
    #[test]
    fn pings_leave_room_for_the_answer_to_a_probe() -> Result {
        let bench = Bench::new(0)?;
        let connection = bench.connect()?;
        let mut counts = [(0, 0); 2];
        for ((first, probes), count) in [(1, 1), (10_001, 2)].into_iter().zip(&mut counts) {
            for sequence in first..first + 4200 {
                receive(&connection, &ping(sequence))?;
            }
            for number in 0..probes {
                receive(&connection, &probe(first + 9000 + number, 1))?;
            }
            *count = pongs(&bench);
            let ack = Header {
                ack: bench.answer().ok_or(ENODEV)?.sequence,
                ..Header::default()
            };
            receive(&connection, &ack)?;
            if probes == 1 {
                // The node may probe by itself meanwhile.
                let acknowledge = || acknowledge_all(&connection).is_ok();
                eventually(|| acknowledge() && connection.path.sent() == 0)?;
            }
        }
        eventually(|| connection.path.sent() < 4000)?;
        receive_full_map(&connection, &Header::congestion_update(0, 1, 0))?;
        receive(&connection, &probe(20_001, 1))?;
        let full = pongs(&bench);
        drop((connection, bench));
        assert_eq!(counts, [(4098, 103), (8196, 207)]);
        assert_eq!(full, (8197, 207));
        Ok(())
    }

    /// C RDS does not answer them, and gets one path then. Another node of this module counts on
    /// the answer.
    #[test]
    fn a_probe_is_answered_even_if_pings_are_not() -> Result {
        let bench = Bench::new(0)?;
        bench.node.tunables.answer_no_pings();
        let connection = bench.connect()?;
        receive(&connection, &ping(1))?;
        let before = (
            bench.counted("send_pong"),
            bench.counted("recv_drop_no_sock"),
        );
        receive(&connection, &probe(2, 1))?;
        let after = (
            bench.counted("send_pong"),
            bench.counted("recv_drop_no_sock"),
        );
        drop(bench);
        assert_eq!((before, after), ((0, 1), (1, 1)));
        Ok(())
    }

    /// Returns a ping of a program.
    fn ping(sequence: u64) -> Header {
        Header {
            sequence,
            sport: PORTS.start,
            dport: PING_PORT,
            ..Header::default()
        }
    }

    /// Returns the numbers of pongs that were sent and dropped.
    fn pongs(bench: &Bench) -> (u64, u64) {
        (
            bench.counted("send_pong"),
            bench.counted("send_pong_dropped"),
        )
    }

    /// The position of a forgotten connection has the generation of the peer. So the probe of a
    /// restarted peer is no duplicate, even if it is marked as sent before.
    #[test]
    fn a_restart_is_seen_after_the_connection_was_forgotten() -> Result {
        let bench = Bench::new(1)?;
        let connection = bench.connect()?;
        receive(&connection, &probe(1, 1))?;
        // So nothing waits for the peer.
        let ack = Header {
            ack: bench.answer().ok_or(ENODEV)?.sequence,
            ..Header::default()
        };
        receive(&connection, &ack)?;
        bench.forget(&connection)?;
        let connection = bench.connect()?;
        let again = Header {
            flags: Flags::RETRANSMITTED,
            ..probe(1, 1)
        };
        receive(&connection, &again)?;
        let same = (
            bench.counted("send_pong"),
            bench.counted("recv_drop_old_seq"),
        );
        let restarted = Header {
            exthdr: of_c(2),
            ..again
        };
        bench.forget(&connection)?;
        let connection = bench.connect()?;
        receive(&connection, &restarted)?;
        let other = (
            bench.counted("send_pong"),
            bench.counted("recv_drop_old_seq"),
        );
        drop(bench);
        assert_eq!(same, (1, 1));
        assert_eq!(other, (2, 1));
        Ok(())
    }
}
