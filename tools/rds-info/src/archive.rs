// SPDX-License-Identifier: GPL-2.0
//! A tar archive of plain files, as `tar` has read them since POSIX.1-1988 (ustar).

use std::io::{self, Write};

/// Size of the blocks of an archive.
const BLOCK: usize = 512;

/// The length of the longest name.
const LONGEST_NAME: usize = 99;

/// An archive that is being written.
pub(crate) struct Archive<W> {
    out: W,
    /// Time stamp of its files, in seconds since 1970.
    time: u64,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W, time: u64) -> Self {
        Archive { out, time }
    }

    /// Adds a file.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the name is too long.
    pub(crate) fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let header = header(name, content.len(), self.time)?;
        self.out.write_all(&header)?;
        self.out.write_all(content)?;
        let rest = content.len().next_multiple_of(BLOCK) - content.len();
        self.out.write_all(&[0; BLOCK][..rest])
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()
    }
}

fn header(name: &str, len: usize, time: u64) -> io::Result<[u8; BLOCK]> {
    if name.len() > LONGEST_NAME {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    put(0, name);
    put(100, "0000644");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{len:011o}"));
    put(136, &format!("{time:011o}"));
    // The checksum is that of the header with spaces in its place.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar");
    put(263, "00");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Runs `tar` on the archive and returns its output.
    fn tar(archive: &[u8], arguments: &[&str]) -> Vec<u8> {
        let mut tar = Command::new("tar")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(archive).unwrap();
        let output = tar.wait_with_output().unwrap();
        assert!(output.status.success());
        output.stdout
    }

    #[test]
    fn tar_reads_it() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes, 1_700_000_000);
        let files = [
            ("a/empty".to_owned(), vec![]),
            ("a/block".to_owned(), vec![b'x'; BLOCK]),
            (
                "n".repeat(LONGEST_NAME),
                (0..=255).cycle().take(1000).collect(),
            ),
        ];
        for (name, content) in &files {
            archive.add(name, content).unwrap();
        }
        archive.finish().unwrap();
        let names = String::from_utf8(tar(&bytes, &["-tf", "-"])).unwrap();
        assert!(names.lines().eq(files.iter().map(|(name, _)| name)));
        for (name, content) in &files {
            assert_eq!(&tar(&bytes, &["-xOf", "-", name]), content, "{name}");
        }
    }

    #[test]
    fn a_name_that_does_not_fit_is_refused() {
        let mut archive = Archive::new(Vec::new(), 0);
        assert!(archive.add(&"n".repeat(LONGEST_NAME + 1), b"").is_err());
        assert!(archive.out.is_empty());
    }
}
