// SPDX-License-Identifier: GPL-2.0

//! Models of `socket/cong_notify.rs`: congestion notifications that arrive while the sender reads
//! them.

use crate::{check, wait::WaitQueue};
use cong_notify::CongNotify;
use loom::{sync::Arc, thread};

#[path = "../../../socket/cong_notify.rs"]
mod cong_notify;

/// Creates a notification state, prepared by `set`.
fn news(set: impl FnOnce(&CongNotify)) -> Arc<CongNotify> {
    let news = CongNotify::new();
    news.set_monitor(false);
    news.add(1);
    news.take_ports();
    set(&news);
    Arc::new(news)
}

fn beside<R: 'static>(
    news: &Arc<CongNotify>,
    f: impl FnOnce(&CongNotify) -> R + 'static,
) -> thread::JoinHandle<R> {
    let news = news.clone();
    thread::spawn(move || f(&news))
}

/// A send clears only what `poll(2)` has reported.
#[test]
fn an_unreported_port_stays() {
    check(|| {
        let news = news(|news| {
            news.add(1);
            assert!(news.report_any());
        });
        let other = beside(&news, |news| news.add(2));
        news.ack_reported();
        other.join().unwrap();
        assert!(news.report_any());
        // The program may switch to the monitor later.
        news.set_monitor(true);
        assert_ne!(news.take_ports() & 2, 0);
    });
}

#[test]
fn a_poller_is_woken() {
    check(|| {
        let news = news(|_| ());
        let wait = Arc::new(WaitQueue::new());
        let other = beside(&news, {
            let wait = wait.clone();
            move |news| {
                news.add(0);
                wait.wake_all();
            }
        });
        wait.wait(|| news.report_any());
        other.join().unwrap();
    });
}

/// A program that turns the monitor off finds unread ports through `poll(2)`.
#[test]
fn a_monitor_that_ends_loses_nothing() {
    check(|| {
        let news = news(|news| news.set_monitor(true));
        let other = beside(&news, |news| news.add(2));
        let read = news.take_ports();
        news.set_monitor(false);
        other.join().unwrap();
        assert!(read & 2 != 0 || news.report_any());
    });
}

/// The same while another reader fails to write its ports and puts them back.
#[test]
fn a_monitor_that_ends_and_fails_loses_nothing() {
    check(|| {
        let news = news(|news| {
            news.set_monitor(true);
            news.add(1);
        });
        let fails = beside(&news, |news| match news.take_ports() {
            0 => (),
            ports => news.add(ports),
        });
        news.set_monitor(false);
        fails.join().unwrap();
        assert!(news.report_any());
    });
}

/// Two readers of a monitor. One fails to write its ports and puts them back.
#[test]
fn each_port_is_reported_once() {
    check(|| {
        let news = news(|news| {
            news.set_monitor(true);
            news.add(1);
        });
        let adds = beside(&news, |news| news.add(2));
        let fails = beside(&news, |news| match news.take_ports() {
            0 => (),
            ports => news.add(ports),
        });
        let first = news.take_ports();
        adds.join().unwrap();
        fails.join().unwrap();
        let second = news.take_ports();
        assert_eq!((first & second, first | second), (0, 3));
    });
}

/// A call whose buffer is too short is notified once of the current ports. Later ports notify
/// again.
#[test]
fn a_report_in_vain_is_followed_by_the_next() {
    check(|| {
        let news = news(|news| {
            news.set_monitor(true);
            news.add(1);
        });
        let adds = beside(&news, |news| news.add(2));
        if news.report_short() {
            // The second attempt has room.
            news.take_ports();
        }
        adds.join().unwrap();
        assert!(news.ports() == 0 || news.is_due());
    });
}
