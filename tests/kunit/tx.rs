// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of sequences and acknowledgements.

use crate::proto::{
    tx::*,
    wire::Flags, //
};
use kernel::prelude::*;

/// Port of the sender.
const PORT: u16 = 4000;

#[kunit_tests(rds_tx)]
mod suite {
    use super::*;

    #[test]
    fn some_messages_ask_for_an_ack() {
        let mut tx = SendState::new(AckPolicy::default());
        for sequence in 1..=66 {
            assert_eq!(tx.assign(PORT), sequence);
            let asks = tx.transmit(sequence, 0, Pressure::Low) == Flags::ACK_REQUIRED;
            assert_eq!(asks, sequence % 33 == 0);
        }
    }

    #[test]
    fn bytes_ask_for_an_ack_too() {
        let mut tx = SendState::new(AckPolicy {
            max_unacked_packets: 8,
            max_unacked_bytes: 1000,
        });
        assert_eq!(tx.transmit(1, 1000, Pressure::Low), Flags::NONE);
        assert_eq!(tx.transmit(2, 1, Pressure::Low), Flags::ACK_REQUIRED);
        assert_eq!(tx.transmit(3, 1001, Pressure::Low), Flags::ACK_REQUIRED);
    }

    #[test]
    fn acks() {
        let mut tx = SendState::new(AckPolicy::default());
        let _ = tx.transmit(3, 0, Pressure::Low);
        assert_eq!(tx.handle_ack(0), Ok(None));
        assert_eq!(tx.handle_ack(4), Err(AckError { ack: 4, sent: 3 }));
        assert_eq!(tx.handle_ack(2), Ok(Some(2)));
        assert_eq!(tx.handle_ack(2), Ok(None));
        assert_eq!(tx.handle_ack(3), Ok(Some(3)));
        assert_eq!(tx.handle_ack(1), Ok(None));
    }
}
