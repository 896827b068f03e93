// SPDX-License-Identifier: GPL-2.0
//! A manual page of a command.
//!
//! The text after the options in the help is written for a terminal: examples and notes in
//! paragraphs, with indented lines that stay unchanged. It becomes sections of its own.

use anyhow::Result;
use clap::Command;
use clap_mangen::roff::{roman, Roff};
use clap_mangen::Man;

const EXAMPLES: &str = "Examples:";
const STATUS: &str = "The exit status is ";

/// Returns the name of a page: that of the tool, with that of the subcommand.
pub(crate) fn name_of(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

pub(crate) fn of(command: Command) -> Result<Vec<u8>> {
    let notes = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let name = name_of(&command).to_owned();
    let version = command.get_version().unwrap_or_default();
    // The page has no date, as the date of a build means nothing.
    let mut page = format!(
        ".\\\" SPDX-License-Identifier: GPL-2.0\n\
         .TH {name} 1 \"\" \"{name} {version}\" \"Reliable Datagram Sockets\"\n"
    )
    .into_bytes();
    let has_subcommands = command.has_subcommands();
    let man = Man::new(command);
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_subcommands {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = sections(&notes);
    rest.extend([see_also(&name)]);
    rest.to_writer(&mut page)?;
    Ok(page)
}

fn sections(notes: &str) -> Roff {
    let mut roff = Roff::default();
    let mut section = "";
    for paragraph in notes.split("\n\n").filter(|x| !x.is_empty()) {
        let wanted = if paragraph.starts_with(EXAMPLES) {
            "EXAMPLES"
        } else if paragraph.starts_with(STATUS) {
            "EXIT STATUS"
        } else if paragraph.starts_with(' ') && !section.is_empty() {
            section
        } else {
            "NOTES"
        };
        if wanted == section {
            roff.control("PP", []);
        } else {
            roff.control("SH", [wanted]);
            section = wanted;
        }
        lines(&mut roff, paragraph);
    }
    roff
}

fn lines(roff: &mut Roff, paragraph: &str) {
    let mut kept = false;
    for line in paragraph.lines().filter(|&x| x != EXAMPLES) {
        if line.starts_with("  ") != kept {
            kept = !kept;
            roff.control(if kept { "nf" } else { "fi" }, []);
        }
        roff.text([roman(line)]);
    }
    if kept {
        roff.control("fi", []);
    }
}

fn see_also(name: &str) -> Roff {
    let pages = [
        "rds-info (1)",
        "rds-ping (1)",
        "rds-stress (1)",
        "rds-verify (1)",
    ];
    let mut roff = Roff::default();
    roff.control("SH", ["SEE ALSO"]);
    for page in pages.into_iter().filter(|x| !x.starts_with(name)) {
        roff.control("BR", page.replace("(1)", "(1),").split(' '));
    }
    roff.control("BR", ["rds_rust", "(7)"]);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(notes: &'static str) -> String {
        let command = Command::new("rds-ping").about("Pings").after_help(notes);
        String::from_utf8(of(command).unwrap()).unwrap()
    }

    #[test]
    fn notes_become_sections() {
        let page = page(
            "Examples:\n  a  b\n\n  c\n\nSome prose,\nmore.\n  1: x\n\n\
             The exit status is 0 or 1.",
        );
        let wanted = ".SH EXAMPLES\n.nf\n  a  b\n.fi\n.PP\n.nf\n  c\n.fi\n\
                      .SH NOTES\nSome prose,\nmore.\n.nf\n  1: x\n.fi\n\
                      .SH \"EXIT STATUS\"\nThe exit status is 0 or 1.\n.SH \"SEE ALSO\"\n";
        assert!(page.contains(wanted), "{page}");
    }

    #[test]
    fn a_line_is_no_request() {
        assert!(page(".so file").contains("\n\\&.so file\n"));
    }

    #[test]
    fn other_pages_are_named() {
        let page = page("");
        assert!(
            page.contains(
                ".BR rds-info (1),\n.BR rds-stress (1),\n.BR rds-verify (1),\n.BR rds_rust (7)"
            ),
            "{page}"
        );
        assert!(!page.contains(".BR rds-ping"));
    }
}
