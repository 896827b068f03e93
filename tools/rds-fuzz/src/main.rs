// SPDX-License-Identifier: GPL-2.0
//! Calls RDS sockets in any order, with any arguments, from several processes and threads at the
//! same time.
//!
//! Defects of the kernel show in its log; this program only detects a call that does not return.
//! The modules `run`, `memory` and `coverage` contain the code that safe Rust cannot express.

mod call;
mod coverage;
mod memory;
mod run;

use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::atomic::AtomicI32;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{bail, Context, Result};
use clap::Parser;
use serde_json::{json, Map, Value};

use call::NAMES;
use coverage::Reached;
use run::{Common, Counts, Runner, Sockets, ERRORS};

/// Time limit for the processes to end after their time is over.
const GRACE: Duration = Duration::from_secs(120);

/// Makes random calls on RDS sockets, valid and invalid ones
///
/// Prints one line of JSON: the seed, and the number of results of each kind for each call. The
/// exit status is 1 if a process did not end. The seed determines the calls of each thread, but not
/// the order of calls of several threads or processes.
#[derive(Parser, Debug)]
#[command(version)]
struct Args {
    /// Duration, in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Seed of the calls [default: a new one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// Number of processes, each with its own sockets
    #[arg(long, default_value_t = 2)]
    processes: u64,
    /// Number of threads of each process, which share its sockets
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Print as "reached" the addresses of kernel code that the calls have executed (needs KCOV)
    #[arg(long)]
    coverage: bool,
    /// Addresses to bind and to send to
    #[arg(required = true)]
    hosts: Vec<IpAddr>,
}

fn main() -> ExitCode {
    rds_tools_common::exit_code("rds-fuzz", Args::parse().run().map(|()| true))
}

fn complain(what: impl Display) {
    rds_tools_common::complain("rds-fuzz", what);
}

impl Args {
    fn run(&self) -> Result<()> {
        let seed = match self.seed {
            Some(seed) => seed,
            None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64,
        };
        // The seed is printed first, before anything can fail.
        complain(format_args!("seed {seed}"));
        let common = Common {
            hosts: &self.hosts,
            counts: Counts::new()?,
            reached: self.coverage.then(Reached::new).transpose()?,
            end: Instant::now() + Duration::from_secs(self.seconds),
        };
        // This process adopts the processes that the calls create, so that it can wait for them.
        // SAFETY: The call only changes the parent of orphaned processes.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        let mut left = Vec::new();
        for number in 0..self.processes {
            // SAFETY: There are no other threads yet.
            match unsafe { libc::fork() } {
                -1 => return Err(io::Error::last_os_error()).context("fork"),
                0 => {
                    let done = self.process(seed.wrapping_add(number << 32), &common);
                    if let Err(error) = &done {
                        complain(format_args!("{error:#}"));
                    }
                    std::process::exit(done.is_err().into());
                }
                pid => left.push(pid),
            }
        }
        let failed = wait(&mut left, common.end + GRACE)?;
        let reached = common.reached.as_ref().map(Reached::sorted);
        println!(
            "{}",
            json!({"seed": seed, "calls": told(&common.counts), "reached": reached})
        );
        match failed {
            Some(0) => Ok(()),
            Some(failed) => bail!("{failed} processes failed"),
            None => bail!(
                "a process does not end, {left:?} or one of theirs: see /proc/PID/task/*/stack"
            ),
        }
    }

    fn process(&self, seed: u64, common: &Common<'_>) -> Result<()> {
        // SAFETY: No code waits for the children that the calls create.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        let sockets: Sockets = [const { AtomicI32::new(-1) }; call::SLOTS];
        thread::scope(|scope| {
            let running: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let sockets = &sockets;
                    scope.spawn(move || -> Result<()> {
                        let seed = seed.wrapping_add(thread);
                        Runner::new(seed, sockets, common)?.run();
                        Ok(())
                    })
                })
                .collect();
            running
                .into_iter()
                .try_for_each(|x| x.join().expect("a thread does not panic"))
        })
    }
}

/// Waits with a time limit until all processes have ended, including those that calls created.
/// Ended processes are removed from the list. Returns the number of processes of the list that
/// failed; `None` if one still runs.
fn wait(left: &mut Vec<i32>, until: Instant) -> Result<Option<u32>> {
    let mut failed = 0;
    while Instant::now() < until {
        let mut status = 0;
        // SAFETY: The status is a variable of this function.
        match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
            -1 if io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) => {
                return Ok(Some(failed))
            }
            -1 => return Err(io::Error::last_os_error()).context("waitpid"),
            0 => thread::sleep(Duration::from_millis(50)),
            pid => {
                if let Some(at) = left.iter().position(|x| *x == pid) {
                    left.swap_remove(at);
                    failed += u32::from(status != 0);
                }
            }
        }
    }
    Ok(None)
}

fn told(counts: &Counts) -> Value {
    let outcome = |error: usize| match error {
        0 => "ok".to_owned(),
        _ => io::Error::from_raw_os_error(error as i32).to_string(),
    };
    let calls = NAMES.iter().enumerate().map(|(call, name)| {
        let outcomes: Map<_, _> = (0..ERRORS)
            .map(|error| (outcome(error), counts.of(call, error)))
            .filter(|(_, count)| *count > 0)
            .map(|(text, count)| (text, count.into()))
            .collect();
        ((*name).to_owned(), Value::Object(outcomes))
    });
    Value::Object(calls.collect())
}
