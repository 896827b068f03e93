// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/xmit.rs`.

use crate::proto::xmit::{self, *};

/// A queue that has room to send and to which the peer puts no limit.
#[derive(Clone, Copy, Default)]
struct Queue {
    first: Option<FirstUnsent>,
    map: bool,
    header: bool,
    packs: bool,
    delays: bool,
    no_credit: bool,
}

impl Unsent for Queue {
    fn first(&self) -> Option<FirstUnsent> {
        self.first
    }

    fn is_map_due(&self) -> bool {
        self.map
    }

    fn is_header_due(&self) -> bool {
        self.header
    }

    fn can_pack(&self) -> bool {
        self.packs
    }

    fn can_delay(&self) -> bool {
        self.delays
    }

    fn may_send(&self) -> bool {
        !self.no_credit
    }
}

const MESSAGE: FirstUnsent = FirstUnsent {
    is_partially_sent: false,
    has_to_operate: false,
    reads_next: false,
};
const PARTIAL: FirstUnsent = FirstUnsent {
    is_partially_sent: true,
    ..MESSAGE
};
const OPERATION: FirstUnsent = FirstUnsent {
    has_to_operate: true,
    ..MESSAGE
};
const READ: FirstUnsent = FirstUnsent {
    reads_next: true,
    ..OPERATION
};
const PARTIAL_READ: FirstUnsent = FirstUnsent {
    is_partially_sent: true,
    ..READ
};

/// A link with room that has nothing in flight.
const ROOM: LinkRoom = LinkRoom {
    room: 1,
    in_flight: 0,
    report_every: 16,
    reads: None,
};

fn all_queues() -> impl Iterator<Item = Queue> {
    let firsts = [
        None,
        Some(MESSAGE),
        Some(PARTIAL),
        Some(OPERATION),
        Some(READ),
        Some(PARTIAL_READ),
    ];
    firsts.into_iter().flat_map(|first| {
        (0..32u32).map(move |bits| Queue {
            first,
            map: bits & 1 != 0,
            header: bits & 2 != 0,
            packs: bits & 4 != 0 && first == Some(MESSAGE),
            delays: bits & 8 != 0 && first == Some(MESSAGE) && bits & 1 == 0,
            no_credit: bits & 16 != 0,
        })
    })
}

#[test]
fn nothing_is_next_exactly_if_nothing_waits() {
    for queue in all_queues() {
        assert_eq!(
            xmit::is_idle(&queue),
            xmit::next(&queue) == NextSend::Nothing
        );
    }
}

#[test]
fn nothing_comes_between_the_parts_of_a_message() {
    for queue in all_queues() {
        match queue.first {
            Some(PARTIAL) => assert_eq!(xmit::next(&queue), NextSend::Fragment),
            Some(PARTIAL_READ) => assert_eq!(
                xmit::next(&queue),
                NextSend::Operation {
                    header_first: false
                }
            ),
            _ => {}
        }
    }
}

#[test]
fn the_map_goes_before_packed_messages_and_these_before_others() {
    for queue in all_queues() {
        let is_partial = queue.first.is_some_and(|first| first.is_partially_sent);
        let next = xmit::next(&queue);
        assert_eq!(next == NextSend::Map, queue.map && !is_partial);
        assert_eq!(next == NextSend::Packed, queue.packs && !queue.map);
    }
}

#[test]
fn a_header_waits_for_a_message_but_not_for_an_operation() {
    let queue = |first| Queue {
        first,
        header: true,
        ..Queue::default()
    };
    let next = |first| xmit::next(&queue(first));
    assert_eq!(next(None), NextSend::Header);
    assert_eq!(next(Some(MESSAGE)), NextSend::Fragment);
    assert_eq!(
        next(Some(OPERATION)),
        NextSend::Operation { header_first: true }
    );
    assert_eq!(
        xmit::next(&Queue {
            header: false,
            ..queue(Some(OPERATION))
        }),
        NextSend::Operation {
            header_first: false
        }
    );
}

#[test]
fn a_link_without_room_or_credit_pauses_whatever_waits() {
    for queue in all_queues() {
        let full = LinkRoom { room: 0, ..ROOM };
        assert_eq!(xmit::pause(&queue, &full, 0), Some(Pause::NoRoom));
        let expected = queue.no_credit.then_some(Pause::NoCredit);
        assert_eq!(xmit::pause(&queue, &ROOM, 0), expected);
    }
}

#[test]
fn short_messages_wait_only_for_frames_of_which_one_reports() {
    let short = Queue {
        first: Some(MESSAGE),
        delays: true,
        ..Queue::default()
    };
    let pause = |queue: &Queue, in_flight| {
        let link = LinkRoom { in_flight, ..ROOM };
        xmit::pause(queue, &link, 0)
    };
    assert_eq!(pause(&short, 31), None);
    assert_eq!(pause(&short, 32), Some(Pause::Packing));
    let long = Queue {
        delays: false,
        ..short
    };
    assert_eq!(pause(&long, 32), None);
}

#[test]
fn copies_pause_only_if_a_frame_in_flight_reports() {
    let long = Queue {
        first: Some(PARTIAL),
        ..Queue::default()
    };
    let pause = |in_flight, copied| {
        let link = LinkRoom { in_flight, ..ROOM };
        xmit::pause(&long, &link, copied)
    };
    assert_eq!(pause(16, (128 << 10) - 1), None);
    assert_eq!(pause(15, 128 << 10), None);
    assert_eq!(pause(16, 128 << 10), Some(Pause::Copied));
    assert_eq!(pause(15, u32::MAX), None);
}

#[test]
fn only_reads_follow_a_read_and_none_is_the_first() {
    let rules = |awaits_reads, awaits_first_frame| LinkRoom {
        reads: Some(ReadRules {
            awaits_reads,
            awaits_first_frame,
        }),
        ..ROOM
    };
    for queue in all_queues().filter(|queue| !queue.no_credit) {
        let first = queue.first.unwrap_or(MESSAGE);
        // What goes next is a read, and not a map or a header before it.
        let is_read = first.reads_next
            && !matches!(
                xmit::next(&queue),
                NextSend::Map | NextSend::Operation { header_first: true }
            );
        let waits = |awaits_reads, awaits_first| {
            xmit::pause(&queue, &rules(awaits_reads, awaits_first), 0) == Some(Pause::Reads)
        };
        assert!(!waits(false, false));
        assert_eq!(waits(true, false), !is_read);
        assert_eq!(waits(false, true), is_read);
        assert!(waits(true, true));
        assert_eq!(xmit::pause(&queue, &ROOM, 0), None);
    }
}
