// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of order, duplicates and reassembly.

use crate::proto::{
    rx::*,
    wire::*, //
};
use kernel::prelude::*;

#[kunit_tests(rds_rx)]
mod suite {
    use super::*;

    #[test]
    fn two_fragments() {
        let mut rx = RecvState::new();
        let header = message(1, 4097, Flags::ACK_REQUIRED);
        assert_eq!(rx.handle(&header, 4096), Ok(piece(0, 4096, false)));
        assert_eq!(rx.handle(&Header::default(), 0), Ok(Step::PureAck));
        assert!(!rx.take_ack_required());
        assert_eq!(rx.handle(&header, 1), Ok(piece(4096, 1, true)));
        assert!(rx.take_ack_required());
        assert_eq!(rx.ack(), 1);
    }

    #[test]
    fn payload_has_to_fit_the_length() {
        let mut rx = RecvState::new();
        let header = message(1, 4096, Flags::NONE);
        for received in [0, 4095, 4097] {
            let error = RxError::FragmentSize {
                expected: 4096,
                received,
            };
            assert_eq!(rx.handle(&header, received), Err(error));
        }
        assert_eq!(rx.ack(), 0);
    }

    #[test]
    fn messages_do_not_mix() {
        let mut rx = RecvState::new();
        assert!(rx.handle(&message(1, 8192, Flags::NONE), 4096).is_ok());
        let error = RxError::Interleaved {
            expected: 1,
            received: 2,
        };
        assert_eq!(rx.handle(&message(2, 8192, Flags::NONE), 4096), Err(error));
        rx.link_lost();
        let again = message(1, 1, Flags::RETRANSMITTED);
        assert_eq!(rx.handle(&again, 1), Ok(piece(0, 1, true)));
    }

    #[test]
    fn duplicates_are_acknowledged_again() {
        let mut rx = RecvState::new();
        assert_eq!(
            rx.handle(&message(7, 0, Flags::NONE), 0),
            Ok(piece(0, 0, true))
        );
        rx.link_lost();
        assert_eq!(rx.ack(), 0);
        let step = rx.handle(&message(7, 0, Flags::RETRANSMITTED), 0);
        let duplicate = Step::Data {
            offset: 0,
            len: 0,
            first: true,
            last: true,
            duplicate: true,
        };
        assert_eq!(step, Ok(duplicate));
        assert_eq!(rx.ack(), 7);
        assert_eq!(rx.next_sequence(), 8);
    }

    #[test]
    fn a_new_generation_starts_over() {
        let mut rx = RecvState::new();
        for generation in [10, 11] {
            let map = Header::congestion_update(0, generation, 0);
            assert!(rx.handle(&map, 4096).is_ok());
            assert!(rx.handle(&map, 4096).is_ok());
            assert_eq!(rx.next_sequence(), 1);
            let step = rx.handle(&message(7, 0, Flags::RETRANSMITTED), 0);
            assert_eq!(step, Ok(piece(0, 0, true)));
            assert_eq!(rx.next_sequence(), 8);
            rx.link_lost();
        }
    }

    #[test]
    fn the_last_sequence_does_not_overflow() {
        let mut rx = RecvState::new();
        let header = message(u64::MAX, 0, Flags::NONE);
        assert_eq!(rx.handle(&header, 0), Ok(piece(0, 0, true)));
        assert_eq!(rx.next_sequence(), 0);
    }

    fn message(sequence: u64, len: u32, flags: Flags) -> Header {
        Header {
            sequence,
            len,
            sport: 1000,
            dport: 2000,
            flags,
            ..Header::default()
        }
    }

    fn piece(offset: u32, len: u32, last: bool) -> Step {
        Step::Data {
            offset,
            len,
            first: offset == 0,
            last,
            duplicate: false,
        }
    }
}
