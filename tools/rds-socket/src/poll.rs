// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Polls sockets for events.

use std::io;
use std::marker::PhantomData;
use std::ops::{BitOr, BitOrAssign};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Events of a file descriptor, one or more of the constants of [`PollFd`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(i16);

impl Events {
    /// Returns the bits of poll(2); epoll(7) has the same numbers.
    pub const fn bits(self) -> i16 {
        self.0
    }
}

impl BitOr for Events {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Events(self.0 | other.0)
    }
}

impl BitOrAssign for Events {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// A file descriptor to wait for, with its reported events after [`poll`].
#[repr(transparent)]
pub struct PollFd<'a> {
    raw: libc::pollfd,
    fd: PhantomData<BorrowedFd<'a>>,
}

impl<'a> PollFd<'a> {
    /// A message, or something else that a receive call reports. RDS also sets it once whenever the
    /// congestion map of any peer changed, with nothing to receive.
    pub const READABLE: Events = Events(libc::POLLIN);
    /// The socket's send buffer has room.
    pub const WRITABLE: Events = Events(libc::POLLOUT);
    /// The congestion map of some peer changed.
    pub const UNCONGESTED: Events = Events(libc::POLLWRBAND);
    /// Always reported: an error is pending, or this is no open file.
    pub const ERROR: Events = Events(libc::POLLERR | libc::POLLNVAL);

    /// Creates an entry that waits for any of `events` on `fd`.
    pub fn new<T: AsFd>(fd: &'a T, events: Events) -> Self {
        let fd = fd.as_fd().as_raw_fd();
        PollFd {
            raw: libc::pollfd {
                fd,
                events: events.0,
                revents: 0,
            },
            fd: PhantomData,
        }
    }

    /// Returns `true` if any of `events` was reported.
    pub fn is(&self, events: Events) -> bool {
        self.raw.revents & events.0 != 0
    }
}

/// Waits until one of `fds` is ready, or until `timeout` is over (`None`: without a limit). Returns
/// the number of ready entries.
///
/// The timeout is rounded up to milliseconds, so that a caller with a deadline does not wake before
/// it. A signal handler that runs ends the wait with [`io::ErrorKind::Interrupted`].
pub fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = match timeout {
        None => -1,
        Some(t) => i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX),
    };
    let count = fds.len() as libc::nfds_t;
    // SAFETY: `PollFd` is a transparent `pollfd`; the slice is borrowed mutably for the call, and
    // each entry borrows its open file.
    let ready = unsafe { libc::poll(fds.as_mut_ptr().cast(), count, timeout) };
    usize::try_from(ready).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn reports_ready_files_and_their_events() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let mut fds = [PollFd::new(&b, PollFd::READABLE)];
        assert_eq!(poll(&mut fds, Some(Duration::ZERO)).unwrap(), 0);
        assert!(!fds[0].is(PollFd::READABLE));

        a.write_all(b"x").unwrap();
        assert_eq!(poll(&mut fds, None).unwrap(), 1);
        assert!(fds[0].is(PollFd::READABLE));
        assert!(!fds[0].is(PollFd::ERROR));
    }
}
