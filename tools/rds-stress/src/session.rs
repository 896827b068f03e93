// SPDX-License-Identifier: GPL-2.0
//! One end of a test: its tasks, and its agreement with the other end.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Context, Result};
use rds_tools_common::{run_before_others, Latencies};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::control::{Control, Hello, Message};
use crate::histogram::Sum;
use crate::options::{Options, Own};
use crate::report::{Report, SECOND};
use crate::stats::{Counters, Counts};
use crate::task::{Phase, Shared, Task};

/// Seconds before the rates are counted.
const BURN_IN: u32 = 2;

/// Additional time to wait for the other end, compared with the time that the other end waits.
const GRACE: Duration = Duration::from_secs(10);

/// An event that wakes an end.
enum Event {
    Control(Message),
    /// The control connection ended, with the reason.
    Gone(anyhow::Error),
    /// A task has all its answers.
    Drained,
    TaskFailed(anyhow::Error),
    Signal,
}

/// One end.
pub(crate) struct Session {
    control: Control,
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// The tasks, which exist once the two ends have agreed.
    tasks: Vec<JoinHandle<()>>,
    counters: Vec<Arc<Counters>>,
    shared: Arc<Shared>,
    drained: usize,
    own: Own,
}

/// The end of sending.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// The active end: this number of seconds, or until a signal.
    Seconds(Option<u32>),
    /// The passive end: until the active end reports it.
    Told,
}

/// The cause of the end of a test.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Its time is over.
    Over,
    /// This end had to end it early, with the cause.
    Aborted(&'static str),
    /// The other end had to end it early.
    Left,
}

impl Session {
    /// Takes over the connection to the other end, and the signals.
    pub(crate) fn new(control: Control, own: Own) -> Result<Self> {
        let (sender, events) = channel();
        let mut reader = control.reader()?;
        let to = sender.clone();
        thread::spawn(move || loop {
            let event = match reader.read() {
                Ok(message) => Event::Control(message),
                Err(error) => Event::Gone(error),
            };
            let last = matches!(event, Event::Gone(_));
            if to.send(event).is_err() || last {
                return;
            }
        });
        let mut signals =
            Signals::new([SIGINT, SIGTERM]).context("cannot install a signal handler")?;
        let to = sender.clone();
        thread::spawn(move || signals.forever().all(|_| to.send(Event::Signal).is_ok()));
        Ok(Session {
            control,
            events,
            sender,
            tasks: Vec::new(),
            counters: Vec::new(),
            shared: Arc::default(),
            drained: 0,
            own,
        })
    }

    /// Runs the active end. Returns when all went well.
    pub(crate) fn run_active(&mut self, hello: Hello, seconds: Option<u32>) -> Result<()> {
        let result = self.active(hello, Until::Seconds(seconds));
        self.tell_failure(result)
    }

    /// Runs the passive end. Returns when all went well.
    pub(crate) fn run_passive(&mut self, local: SocketAddr) -> Result<()> {
        let result = self.passive(local);
        self.tell_failure(result)
    }

    /// Reports a failure to the other end, which then need not wait until it notices.
    fn tell_failure(&mut self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            // The other end may be gone, and then its own error is the better one.
            let _ = self.control.send(&Message::Failed(format!("{error:#}")));
        }
        result
    }

    fn active(&mut self, hello: Hello, until: Until) -> Result<()> {
        let options = hello.options.clone();
        self.control.send(&Message::Hello(hello.clone()))?;
        match self.await_message(&options)? {
            Message::Ready => {}
            other => bail!("unexpected message from the other end: {other:?} instead of \"Ready\""),
        }
        self.start_tasks(hello.active, hello.passive, &options, true)?;
        self.control.send(&Message::Go)?;
        let end = self.measure(&options, until)?;
        if self.ends_early(end)? {
            return Ok(());
        }
        self.control.send(&Message::Stop)?;
        self.shared.set(Phase::Draining);
        let mut other_drained = false;
        while !other_drained || self.drained < self.tasks.len() {
            match self.await_event(&options)? {
                Event::Control(Message::Drained) => other_drained = true,
                Event::Control(other) => {
                    bail!("unexpected message from the other end: {other:?} instead of \"Drained\"")
                }
                _ => {}
            }
        }
        let counts = self.finish()?;
        self.control.send(&Message::Finish(counts))?;
        self.compare(&counts, &options)
    }

    fn passive(&mut self, local: SocketAddr) -> Result<()> {
        let hello = loop {
            match self.next_event(None)? {
                Some(Event::Control(Message::Hello(hello))) => break hello,
                Some(Event::Control(other)) => {
                    bail!("unexpected message from the other end: {other:?} instead of \"Hello\"")
                }
                Some(Event::Signal) => bail!("interrupted"),
                _ => {}
            }
        };
        hello.check()?;
        let options = hello.options.clone();
        // The other end may know this one by another address.
        let local = SocketAddr::new(local.ip(), hello.passive.port());
        if local != hello.passive {
            bail!("the other end sends to {}, but this end has {local}: use the same address for -r and -s", hello.passive);
        }
        self.start_tasks(local, hello.active, &options, !options.one_way)?;
        self.control.send(&Message::Ready)?;
        match self.await_message(&options)? {
            Message::Go => {}
            other => bail!("unexpected message from the other end: {other:?} instead of \"Go\""),
        }
        let end = self.measure(&options, Until::Told)?;
        if self.ends_early(end)? {
            return Ok(());
        }
        self.shared.set(Phase::Draining);
        while self.drained < self.tasks.len() {
            self.await_event(&options)?;
        }
        self.control.send(&Message::Drained)?;
        let theirs = self.await_finish(&options)?;
        let mine = self.finish()?;
        self.control.send(&Message::Finish(mine))?;
        agree(&mine, &theirs)
    }

    fn await_finish(&mut self, options: &Options) -> Result<Counts> {
        match self.await_message(options)? {
            Message::Finish(counts) => Ok(counts),
            other => {
                bail!("unexpected message from the other end: {other:?} instead of \"Finish\"")
            }
        }
    }

    fn compare(&mut self, mine: &Counts, options: &Options) -> Result<()> {
        let theirs = self.await_finish(options)?;
        agree(mine, &theirs)
    }

    /// Opens all sockets, and then starts the tasks.
    fn start_tasks(
        &mut self,
        local: SocketAddr,
        peer: SocketAddr,
        options: &Options,
        asks: bool,
    ) -> Result<()> {
        say("negotiated options, tasks start\n")?;
        let ports = (local.port()..=u16::MAX).take(options.tasks.into());
        let own = &self.own;
        let open = |port| Task::open(SocketAddr::new(local.ip(), port), peer, options, own, asks);
        let tasks: Vec<Task> = ports.map(open).collect::<Result<_>>()?;
        for mut task in tasks {
            self.counters.push(task.counters());
            let (shared, to) = (Arc::clone(&self.shared), self.sender.clone());
            let run = move || {
                // There is no receiver when the program is about to end.
                let drained = || drop(to.send(Event::Drained));
                if let Err(error) = task.run(&shared, drained) {
                    drop(to.send(Event::TaskFailed(error)));
                }
            };
            let spawned = thread::Builder::new().spawn(run);
            self.tasks
                .push(spawned.context("cannot start a thread for a task")?);
        }
        Ok(())
    }

    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.counters.iter().for_each(|c| c.add_to(&mut sum));
        sum
    }

    /// Takes the round trips of all tasks.
    fn take_latencies(&self) -> Latencies {
        let mut sum = Latencies::default();
        let taken = self.counters.iter().filter_map(|x| x.take_latencies());
        taken.for_each(|latencies| sum.add(&latencies));
        sum
    }

    /// Lets the tasks run and prints their rates, until the end. Returns the cause of the end.
    fn measure(&mut self, options: &Options, until: Until) -> Result<End> {
        if options.rtprio {
            run_before_others()?;
        }
        self.shared.set(Phase::Running);
        say("Starting up")?;
        for _ in 0..BURN_IN {
            if let Some(end) = self.end_before(Instant::now() + SECOND, until)? {
                say("\n")?;
                return Ok(end);
            }
            say(".")?;
        }
        say("\n")?;
        let length = match until {
            Until::Seconds(seconds) => seconds,
            Until::Told => None,
        };
        // The round trips before the first row do not count.
        drop(self.take_latencies());
        let mut report = Report::start(options, &self.own, self.counts(), length)?;
        let after = |seconds: u32| report.began() + Duration::from_secs(seconds.into());
        let over = length.map(after);
        let abort = self.own.abort_after.map(after);
        loop {
            let wakes = [over, abort].into_iter().flatten();
            let end = self.end_before(wakes.fold(report.due(), Instant::min), until)?;
            let passed = |time: Option<Instant>| time.is_some_and(|time| Instant::now() >= time);
            let end = match end {
                None if passed(over) => Some(End::Over),
                None if passed(abort) => Some(End::Aborted("by --abort-after")),
                end => end,
            };
            if let Some(aborted @ End::Aborted(_)) = end {
                return Ok(aborted);
            }
            report.row(self.counts(), &self.take_latencies(), end.is_some())?;
            if let Some(end) = end {
                report.average()?;
                return Ok(end);
            }
        }
    }

    /// Waits until `wake`. Returns the cause if the test ended before.
    fn end_before(&mut self, wake: Instant, until: Until) -> Result<Option<End>> {
        loop {
            match (self.next_event(Some(wake))?, until) {
                (None, _) => return Ok(None),
                (Some(Event::Signal), _) if self.own.cancel_sent_to => {
                    return Ok(Some(End::Aborted("by a signal")))
                }
                (Some(Event::Signal), Until::Seconds(_)) => return Ok(Some(End::Over)),
                (Some(Event::Signal), Until::Told) => {
                    bail!("interrupted: end the active end instead")
                }
                (Some(Event::Control(Message::Stop)), Until::Told) => return Ok(Some(End::Over)),
                (Some(Event::Control(Message::Abort)), _) => return Ok(Some(End::Left)),
                (Some(Event::Control(other)), _) => {
                    bail!("unexpected message from the other end during the test: {other:?}")
                }
                (Some(_), _) => {}
            }
        }
    }

    /// Ends the test early, if `end` says so, and then returns `true`. An early end by the other
    /// end is no failure, as it had an order to do so.
    fn ends_early(&mut self, end: End) -> Result<bool> {
        if let End::Over = end {
            return Ok(false);
        }
        if let End::Aborted(_) = end {
            // The other end may be gone, and then needs no message.
            let _ = self.control.send(&Message::Abort);
        }
        self.shared.set(Phase::Aborted);
        self.join()?;
        self.show_round_trips()?;
        match end {
            End::Aborted(how) => bail!("the test was aborted {how}"),
            _ => Ok(true),
        }
    }

    /// Prints the distribution of round trip times, if requested.
    fn show_round_trips(&self) -> Result<()> {
        if !self.own.histogram {
            return Ok(());
        }
        let mut sum = Sum::default();
        let all = self.counters.iter().map(|counters| &counters.round_trips);
        all.for_each(|histogram| histogram.add_to(&mut sum));
        say(&sum.to_string())
    }

    fn join(&mut self) -> Result<()> {
        for task in self.tasks.drain(..) {
            task.join().map_err(|_| anyhow!("a task panicked"))?;
        }
        Ok(())
    }

    /// Ends the tasks, which have nothing left to do. Returns their counts.
    fn finish(&mut self) -> Result<Counts> {
        self.shared.set(Phase::Finished);
        self.join()?;
        // The events of tasks are in the queue when these have ended.
        while let Ok(event) = self.events.try_recv() {
            if let Event::TaskFailed(error) = event {
                return Err(error);
            }
        }
        self.show_round_trips()?;
        Ok(self.counts())
    }

    /// Returns the next message of the other end.
    fn await_message(&mut self, options: &Options) -> Result<Message> {
        loop {
            if let Event::Control(message) = self.await_event(options)? {
                return Ok(message);
            }
        }
    }

    /// Returns the next event that is no failure. Drained tasks are counted.
    fn await_event(&mut self, options: &Options) -> Result<Event> {
        let deadline = Instant::now() + options.timeout() + GRACE;
        match self.next_event(Some(deadline))? {
            Some(Event::Signal) => bail!("interrupted before every message was answered"),
            Some(Event::Drained) => {
                self.drained += 1;
                Ok(Event::Drained)
            }
            Some(Event::Control(Message::Abort)) => {
                bail!("the other end has aborted the test")
            }
            Some(event) => Ok(event),
            None => bail!("the other end does not answer"),
        }
    }

    /// Returns the next event until `deadline`; failures are errors.
    fn next_event(&mut self, deadline: Option<Instant>) -> Result<Option<Event>> {
        let event = match deadline {
            None => self
                .events
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline) => {
                let wait = deadline.saturating_duration_since(Instant::now());
                self.events.recv_timeout(wait)
            }
        };
        match event {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("all threads of this program have ended"),
            Ok(Event::TaskFailed(error)) => Err(error),
            Ok(Event::Gone(error)) => Err(error),
            Ok(Event::Control(Message::Failed(why))) => bail!("the other end failed: {why}"),
            Ok(event) => Ok(Some(event)),
        }
    }
}

fn agree(mine: &Counts, theirs: &Counts) -> Result<()> {
    match mine.disagreement(theirs) {
        Some(disagreement) => bail!(disagreement),
        None => Ok(()),
    }
}

/// Prints text, and flushes it.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.context("cannot write the results")
}
