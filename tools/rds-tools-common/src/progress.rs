// SPDX-License-Identifier: GPL-2.0
//! A bar on the standard error output, for people who wait for a summary.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar. It is drawn only if the standard error output is a terminal, and is erased at its end.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Creates a bar for a number of steps; `None`: it only counts.
    pub fn new(steps: Option<u64>, unit: &str) -> Self {
        let (bar, template) = match steps {
            Some(steps) => (
                ProgressBar::new(steps),
                format!("{{wide_bar}} {{pos}}/{{len}} {unit}, {{eta}} left"),
            ),
            None => (
                ProgressBar::new_spinner(),
                format!("{{spinner}} {{pos}} {unit}"),
            ),
        };
        let style = ProgressStyle::with_template(&template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Progress(bar)
    }

    /// Shows that this many steps are done.
    pub fn set(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted() {
        for steps in [None, Some(3)] {
            let progress = Progress::new(steps, "pings");
            progress.set(2);
            assert_eq!((progress.0.position(), progress.0.length()), (2, steps));
        }
    }
}
