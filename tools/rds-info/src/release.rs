// SPDX-License-Identifier: GPL-2.0
//! The loaded RDS module, and its version.

use std::fs;
use std::path::Path;

/// Returns a text on the loaded module, from `/sys`.
pub(crate) fn loaded(sys: &Path) -> String {
    let module = |name: &str| sys.join("module").join(name);
    let ours = module("rds_rust");
    if ours.is_dir() {
        let note = fs::read(ours.join("notes/.note.rds.release")).unwrap_or_default();
        let release = description(&note).unwrap_or_else(|| "of an unknown version".to_owned());
        return format!("rds_rust {release}");
    }
    let theirs = module("rds");
    if theirs.is_dir() {
        let version = fs::read_to_string(theirs.join("version")).unwrap_or_default();
        return format!("rds {} (C)", version.trim()).replace("  ", " ");
    }
    "no RDS module is loaded".to_owned()
}

/// Returns the text of an ELF note: three numbers, its name, and the text, each padded to a
/// multiple of four bytes.
fn description(note: &[u8]) -> Option<String> {
    let number = |at: usize| -> Option<usize> {
        let bytes = note.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_ne_bytes(bytes)).ok()
    };
    let begin = number(0)?.checked_next_multiple_of(4)?.checked_add(12)?;
    let text = note.get(begin..begin.checked_add(number(4)?)?)?;
    let text = text.split(|&byte| byte == 0).next()?;
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn note(name: &[u8], text: &[u8]) -> Vec<u8> {
        let lengths = [name, text].map(|part| u32::try_from(part.len()).unwrap().to_ne_bytes());
        let mut note = [&lengths[0][..], &lengths[1], &[0; 4], name].concat();
        note.resize(note.len().next_multiple_of(4), 0);
        note.extend(text);
        note
    }

    #[test]
    fn a_note_has_its_text() {
        let whole = note(b"rds.release\0", b"0.1.0\0");
        assert_eq!(description(&whole), Some("0.1.0".to_owned()));
        let odd = note(b"ab\0", b"12.34.56\0");
        assert_eq!(description(&odd), Some("12.34.56".to_owned()));
        for len in 0..whole.len() {
            assert_eq!(description(&whole[..len]), None, "{len}");
        }
        assert_eq!(description(&[0xff; 40]), None);
    }

    #[test]
    fn each_module_is_listed() {
        let sys = Scratch::new("release");
        assert_eq!(loaded(sys.path()), "no RDS module is loaded");
        sys.write("module/rds/refcnt", "0\n");
        assert_eq!(loaded(sys.path()), "rds (C)");
        sys.write("module/rds/version", "4.0\n");
        assert_eq!(loaded(sys.path()), "rds 4.0 (C)");
        sys.write("module/rds_rust/version", "4.0\n");
        assert_eq!(loaded(sys.path()), "rds_rust of an unknown version");
        let release = note(b"rds.release\0", b"1.2.3\0");
        sys.write("module/rds_rust/notes/.note.rds.release", release);
        assert_eq!(loaded(sys.path()), "rds_rust 1.2.3");
    }
}
