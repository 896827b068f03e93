// SPDX-License-Identifier: GPL-2.0

//! The tables in `Documentation/connections.md`, generated from the connection machine.
//! `RDS_WRITE_TABLES=1 cargo test connections_md` rewrites them.

use crate::connect::{machine, EVENTS};
use crate::proto::connect::*;
use std::fmt::Write;

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../Documentation/connections.md"
);

/// Conditions that an answer may depend on: names in the table for `true` and `false`.
const CONDITIONS: [(&str, &str); 4] = [
    ("pending", "not pending"),
    ("lower", "higher"),
    ("again", "first"),
    ("proven", "not proven"),
];

/// Value of each condition.
type Case = [bool; 4];

/// Condition and answer.
type Lines = Vec<(String, String)>;

/// Delays that differ from all others.
const WATCHDOG: u32 = 5555;
const BACKOFF: u32 = 7777;

/// Returns the outcome of an event in a state, in one case.
fn outcome(state: State, event: Event, case: Case, backoff: u32) -> Outcome {
    let [pending, lower, again, proven] = case;
    let inputs = Inputs {
        lower,
        pending,
        for_peer: false,
        wait_ms: 0,
        random: u32::MAX,
        timing: Timing {
            backoff_min_ms: backoff,
            backoff_max_ms: backoff,
            watchdog_ms: WATCHDOG,
        },
    };
    let unproven = state == State::Up && !proven;
    let mut machine = machine(if unproven { State::Connecting } else { state });
    if unproven {
        let _ = machine.handle(Event::Established, &inputs);
    }
    // Only in these cases can an earlier request have left the state unchanged. An accepted request
    // also counts as earlier.
    if (unproven || state == State::Connecting && lower) && again {
        let _ = machine.handle(Event::Request, &inputs);
    }
    machine.handle(event, &inputs)
}

/// Returns the name of an action in the table. `other` is the same action with the longer backoff.
fn name(action: Action, other: Action) -> String {
    match (action, other) {
        (Action::Arm(WATCHDOG), _) => "timer: watchdog".to_string(),
        (Action::Arm(1), Action::Arm(BACKOFF)) => "timer: backoff".to_string(),
        (Action::Arm(_), Action::Arm(BACKOFF)) => "timer: yield or backoff".to_string(),
        (Action::Arm(200), Action::Arm(200)) => "timer: yield".to_string(),
        (Action::Arm(1000), Action::Arm(1000)) => "timer: proof".to_string(),
        (Action::Arm(delay), _) => panic!("a delay without a name: {delay}"),
        (Action::Prepare, _) => "prepare".to_string(),
        (Action::Connect, _) => "connect".to_string(),
        (Action::Accept, _) => "accept".to_string(),
        (Action::Reject, _) => "reject".to_string(),
        (Action::Teardown, _) => "tear down".to_string(),
        (Action::Disarm, _) => "stop timer".to_string(),
        (Action::GoneUp, _) => "go up".to_string(),
        (Action::GoneDown, _) => "go down".to_string(),
    }
}

/// Returns new state and actions, as two cells.
fn answer(state: State, event: Event, case: Case) -> String {
    let [short, long] = [1, BACKOFF].map(|backoff| outcome(state, event, case, backoff));
    assert_eq!((short.state, short.ignored), (long.state, long.ignored));
    if short.ignored {
        assert_eq!(short.actions.count(), 0);
        return "| ignored".to_string();
    }
    let pairs = short.actions.zip(long.actions);
    let actions: Vec<_> = pairs.map(|(short, long)| name(short, long)).collect();
    let next = if short.state == state {
        ""
    } else {
        short.state.name()
    };
    format!("{next} | {}", actions.join(", "))
}

/// Adds the answers of all cases that match `fixed`, in as few lines as possible.
fn cases(state: State, event: Event, fixed: [Option<bool>; 4], lines: &mut Lines) {
    let answers = |at: usize, value: bool| -> Vec<String> {
        let all = (0..16).map(|bits| [0, 1, 2, 3].map(|i| bits >> i & 1 == 1));
        let agree = all.filter(|case: &Case| {
            let fits = |i: usize| fixed[i].is_none_or(|wanted| wanted == case[i]);
            (0..4).all(fits) && case[at] == value
        });
        agree.map(|case| answer(state, event, case)).collect()
    };
    for at in (0..4).filter(|at| fixed[*at].is_none()) {
        if answers(at, true) != answers(at, false) {
            for value in [true, false] {
                let mut fixed = fixed;
                fixed[at] = Some(value);
                cases(state, event, fixed, lines);
            }
            return;
        }
    }
    let names = CONDITIONS
        .iter()
        .zip(fixed)
        .filter_map(|(names, value)| value.map(|value| if value { names.0 } else { names.1 }));
    let condition = names.collect::<Vec<_>>().join(", ");
    let answer = answer(state, event, fixed.map(Option::unwrap_or_default));
    lines.push((condition, answer));
}

/// Builds the table of all states and events. Events with the same answers share their lines.
fn machine_table() -> String {
    let mut text =
        "| State | Event | If | New state | Actions |\n|---|---|---|---|---|\n".to_string();
    let mut told = 0;
    for state in State::ALL {
        let mut groups: Vec<(Vec<&str>, Lines)> = Vec::new();
        for event in EVENTS {
            let mut lines = Vec::new();
            cases(state, event, [None; 4], &mut lines);
            told += 1;
            match groups.iter_mut().find(|(_, known)| *known == lines) {
                Some((events, _)) => events.push(event.name()),
                None => groups.push((vec![event.name()], lines)),
            }
        }
        for (events, lines) in groups {
            let events = events.join(", ");
            for (condition, answer) in lines {
                let state = state.name();
                let line = format!("| {state} | {events} | {condition} | {answer} |");
                writeln!(text, "{}", line.replace("  ", " ")).unwrap();
            }
        }
    }
    assert_eq!(told, State::ALL.len() * EVENTS.len());
    text
}

/// Returns the shortest and the longest delay with which the last of the events arms the timer.
fn delays(state: State, events: &[Event], lower: bool) -> (u32, u32) {
    let range = [0, u32::MAX].map(|random| {
        let inputs = Inputs {
            lower,
            pending: true,
            for_peer: false,
            wait_ms: 0,
            random,
            timing: Timing::default(),
        };
        let mut machine = machine(state);
        let mut delay = 0;
        for event in events {
            let outcome = machine.handle(*event, &inputs);
            for action in outcome.actions {
                if let Action::Arm(ms) = action {
                    delay = ms;
                }
            }
        }
        delay
    });
    (range[0], range[1])
}

/// Builds the table of timer delays, in milliseconds.
fn timer_table() -> String {
    let mut text = "| Timer | Milliseconds |\n|---|---|\n".to_string();
    let range = |(from, to)| {
        if from == to {
            format!("{to}")
        } else {
            format!("{from} to {to}")
        }
    };
    let watchdog = delays(State::Down, &[Event::Wanted], true);
    let proof = delays(State::Accepting, &[Event::Established], true);
    let wait = delays(State::Up, &[Event::Lost], false);
    let mut attempts = Vec::new();
    let mut events = Vec::new();
    for _ in 0..12 {
        events.extend([Event::Request, Event::Rejected]);
        attempts.push(range(delays(State::Down, &events, true)));
    }
    while attempts.len() > 1 && attempts.ends_with(&[attempts[attempts.len() - 2].clone()]) {
        attempts.pop();
    }
    writeln!(text, "| watchdog | {} |", range(watchdog)).unwrap();
    writeln!(text, "| proof | {} |", range(proof)).unwrap();
    writeln!(text, "| yield | {} |", range(wait)).unwrap();
    writeln!(text, "| backoff | {}, and so on |", attempts.join("; ")).unwrap();
    text
}

#[test]
fn the_tables_match_the_machine() {
    let mut text = std::fs::read_to_string(FILE).unwrap();
    for (name, table) in [("machine", machine_table()), ("timers", timer_table())] {
        let begin = format!("<!-- {name}: begin -->\n\n");
        let end = format!("\n<!-- {name}: end -->");
        let from = text.find(&begin).expect("the table has a beginning") + begin.len();
        let to = text.find(&end).expect("the table has an end");
        if std::env::var_os("RDS_WRITE_TABLES").is_some() {
            text.replace_range(from..to, &table);
        } else {
            for (found, expected) in text[from..to].lines().zip(table.lines()) {
                assert_eq!(
                    found, expected,
                    "Documentation/connections.md is out of date"
                );
            }
            assert_eq!(text[from..to].lines().count(), table.lines().count());
        }
    }
    if std::env::var_os("RDS_WRITE_TABLES").is_some() {
        std::fs::write(FILE, text).unwrap();
    }
}
