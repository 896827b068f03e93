// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the handshakes of a node with one path, with a fake TCP transport.

use kernel::prelude::*;

#[kunit_tests(rds_mprds)]
mod suite {
    use crate::{
        kunit::tcp_bench::{
            of_c,
            probe,
            receive,
            Bench, //
        },
        proto::wire::{
            Flags,
            Header, //
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
        let counts = (
            bench.counted("send_pong"),
            bench.counted("send_pong_dropped"),
        );
        drop(bench);
        assert_eq!(counts, (4097, 903));
        Ok(())
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
