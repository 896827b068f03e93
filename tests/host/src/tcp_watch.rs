// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/tcp_watch.rs`.

use crate::proto::{tcp_watch::*, SECOND};

#[test]
fn a_peer_is_silent_only_while_it_owes_an_answer() {
    let mut watch = TcpWatch::new();
    let signs = |last_ack, owes| TcpSigns { last_ack, owes };
    assert!(watch.is_active(&signs(5, true)));
    assert!(!watch.is_active(&signs(5, true)));
    // It has no room: probes are answered, or the next one is not due.
    assert!(watch.is_active(&signs(6, true)));
    assert!(watch.is_active(&signs(6, false)));
    assert!(!watch.is_active(&signs(6, true)));
}

/// Returns the number of seconds after which a peer is given up that shows these signs.
fn stops_after(mut signs: impl FnMut(u64) -> StreamSigns) -> Option<u64> {
    let mut watch = TcpWatch::new();
    (0..1000).find(|second| watch.has_stopped(&signs(*second), second * SECOND))
}

const STOPPED: StreamSigns = StreamSigns {
    frames: 3,
    awaits_first: false,
    is_incomplete: true,
    starves: false,
};

#[test]
fn an_incomplete_message_has_to_go_on() {
    assert_eq!(stops_after(|_| STOPPED), Some(60));
    let goes_on = |second: u64| StreamSigns {
        frames: (second / 50) as u32,
        ..STOPPED
    };
    assert_eq!(stops_after(goes_on), None);
    let between = |_| StreamSigns {
        is_incomplete: false,
        ..STOPPED
    };
    assert_eq!(stops_after(between), None);
}

#[test]
fn a_peer_has_to_send_a_first_frame() {
    let silent = |_| StreamSigns {
        frames: 0,
        awaits_first: true,
        is_incomplete: false,
        ..STOPPED
    };
    assert_eq!(stops_after(silent), Some(60));
    let late = |second| StreamSigns {
        frames: u32::from(second >= 59),
        awaits_first: second < 59,
        ..silent(second)
    };
    assert_eq!(stops_after(late), None);
    let may_be_silent = |second| StreamSigns {
        awaits_first: false,
        ..silent(second)
    };
    assert_eq!(stops_after(may_be_silent), None);
}

#[test]
fn a_node_without_memory_waits_for_itself() {
    let starves = |second| StreamSigns {
        starves: second < 500,
        ..STOPPED
    };
    assert_eq!(stops_after(starves), Some(560));
}
