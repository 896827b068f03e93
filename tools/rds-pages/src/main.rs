// SPDX-License-Identifier: GPL-2.0
//! `rds-pages`: writes the manual pages of the tools, and the completions of their options for
//! shells.
//!
//! All of it is generated from the definitions with which the tools parse their command lines.
#![forbid(unsafe_code)]

mod page;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{ensure, Context, Result};
use clap::Command;
use clap_complete::{generate_to, Shell};

/// The folder below `share/` that each shell searches.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Fish, "fish/vendor_completions.d"),
    (Shell::Zsh, "zsh/site-functions"),
];

fn main() -> ExitCode {
    match run(std::env::args_os().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rds-pages: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Vec<OsString>) -> Result<()> {
    ensure!(
        args.len() == 1,
        "usage: rds-pages DIR, which gets the structure of /usr/share"
    );
    for command in commands() {
        write(command, Path::new(&args[0]))?;
    }
    Ok(())
}

/// Returns the commands of the tools for users of RDS.
fn commands() -> [Command; 4] {
    [
        rds_info::command(),
        rds_ping::command(),
        rds_stress::command(),
        rds_verify::command(),
    ]
}

fn write(mut command: Command, dir: &Path) -> Result<()> {
    let name = command.get_name().to_owned();
    // There is no page of `help`. The call gives the other subcommands the names of their pages.
    let mut documented = command.clone().disable_help_subcommand(true);
    documented.build();
    for (shell, place) in SHELLS {
        let place = dir.join(place);
        make_dir(&place)?;
        let path = generate_to(shell, &mut command, &name, &place)
            .with_context(|| format!("cannot write to {}", place.display()))?;
        // bash-completion finds a file by the name of the program.
        if shell == Shell::Bash {
            fs::rename(&path, place.join(&name)).context("cannot rename a file")?;
        }
    }
    let place = dir.join("man/man1");
    make_dir(&place)?;
    for command in documented.get_subcommands().chain([&documented]) {
        let path = place.join(format!("{}.1", page::name_of(command)));
        fs::write(&path, page::of(command.clone())?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn make_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_has_a_page_and_completions() {
        let dir = std::env::temp_dir().join(format!("rds-pages-{}", std::process::id()));
        run(vec![dir.clone().into()]).unwrap();
        for name in ["rds-info", "rds-ping", "rds-stress", "rds-verify"] {
            for path in [
                format!("man/man1/{name}.1"),
                format!("bash-completion/completions/{name}"),
                format!("fish/vendor_completions.d/{name}.fish"),
                format!("zsh/site-functions/_{name}"),
            ] {
                let text = fs::read_to_string(dir.join(&path)).unwrap();
                let long = text.replace('\\', "").contains("--version")
                    || path.contains("fish") && text.contains("-l version");
                assert!(long, "{path}");
            }
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn one_directory_is_needed() {
        assert!(run(vec![]).is_err());
        assert!(run(vec!["a".into(), "b".into()]).is_err());
    }
}
