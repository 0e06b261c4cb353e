//! Packed charts and their limits.

use std::{
    fmt,
    io::{self, Read},
};

use flate2::read::MultiGzDecoder;

/// The maximum size of a packed chart. helm cannot store a release with more than 1 MiB of packed data.
pub(crate) const MAX_PACKED: u64 = 20 << 20;
/// The maximum size of an unpacked chart: that of helm 4 (`MaxDecompressedChartSize`).
const MAX_UNPACKED: u64 = 100 << 20;
/// The maximum number of files in a chart.
const MAX_FILES: usize = 10_000;
/// The function of templates that reads objects of the cluster.
const LOOKUP: &[u8] = b"lookup";

/// A packed chart that helm is not given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// It is too large.
    #[error("the packed chart has {} bytes; at most {} MiB are allowed", .0, MAX_PACKED >> 20)]
    Packed(u64),
    /// It contains too much.
    #[error("the unpacked chart has more than {} MiB", MAX_UNPACKED >> 20)]
    Unpacked,
    /// It contains too many files.
    #[error("the chart has more than {MAX_FILES} files")]
    Files,
    /// It cannot be read.
    #[error("the chart is not a tar file that is compressed with gzip, as `helm package` writes it")]
    Broken(#[source] io::Error),
}

/// A packed chart within the limits.
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    /// Whether its templates may use `lookup`: some file contains the word, or is itself packed.
    pub(crate) looks_up: bool,
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} bytes)", self.bytes.len())
    }
}

impl Packed {
    /// Reads a packed chart to its end. This may take a second.
    pub(crate) fn check(bytes: Vec<u8>) -> Result<Self, ArchiveError> {
        if bytes.len() as u64 > MAX_PACKED {
            return Err(ArchiveError::Packed(bytes.len() as u64));
        }
        let mut archive = tar::Archive::new(Scan::new(MultiGzDecoder::new(bytes.as_slice())));
        let (mut files, mut nested) = (0, false);
        let mut read = || -> io::Result<()> {
            for entry in archive.entries()? {
                nested |= entry?.path_bytes().ends_with(b".tgz");
                files += 1;
                if files > MAX_FILES {
                    break;
                }
            }
            Ok(())
        };
        let done = read();
        let scan = archive.into_inner();
        match done {
            _ if scan.read > MAX_UNPACKED => Err(ArchiveError::Unpacked),
            Ok(()) if files > MAX_FILES => Err(ArchiveError::Files),
            Ok(()) => Ok(Self { looks_up: nested || scan.found, bytes }),
            Err(error) => Err(ArchiveError::Broken(error)),
        }
    }
}

/// A reader that counts the bytes, fails after [`MAX_UNPACKED`], and looks for [`LOOKUP`].
struct Scan<R> {
    inner: R,
    read: u64,
    found: bool,
    /// The end of what was read: the word may begin there.
    rest: Vec<u8>,
}

impl<R> Scan<R> {
    fn new(inner: R) -> Self {
        Self { inner, read: 0, found: false, rest: Vec::new() }
    }
}

impl<R: Read> Read for Scan<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read += count as u64;
        if self.read > MAX_UNPACKED {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if !self.found {
            self.rest.extend(&buffer[..count]);
            self.found = contains_lookup(&self.rest);
            let done = self.rest.len().saturating_sub(LOOKUP.len() - 1);
            self.rest.drain(..done);
        }
        Ok(count)
    }
}

/// Returns whether a text contains the name of the function `lookup`.
pub(crate) fn contains_lookup(text: &[u8]) -> bool {
    text.windows(LOOKUP.len()).any(|part| part == LOOKUP)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// Packs files of these sizes, filled with a byte.
    fn pack(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Vec<u8> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, content) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, name, content.as_slice()).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap()
    }

    fn chart(name: &str, content: &str) -> Vec<u8> {
        pack([(name.to_owned(), content.as_bytes().to_vec())])
    }

    fn error(bytes: Vec<u8>) -> String {
        Packed::check(bytes).unwrap_err().to_string()
    }

    #[test]
    fn a_chart_beyond_the_limits_is_an_error_that_names_the_limit() {
        assert!(error(vec![0; 21 << 20]).ends_with("at most 20 MiB are allowed"));
        let bomb = pack([("a/large".to_owned(), vec![0; 101 << 20])]);
        assert!(bomb.len() < 1 << 20);
        assert_eq!(error(bomb), "the unpacked chart has more than 100 MiB");
        let many = pack((0..=MAX_FILES).map(|number| (format!("a/{number}"), Vec::new())));
        assert_eq!(error(many), "the chart has more than 10000 files");
        let most = pack((0..MAX_FILES).map(|number| (format!("a/{number}"), Vec::new())));
        assert!(Packed::check(most).is_ok());
        assert!(error(b"this is no archive".to_vec()).contains("gzip"));
        let mut cut = chart("a/Chart.yaml", "x");
        cut.truncate(cut.len() / 2);
        assert!(error(cut).contains("gzip"));
    }

    #[test]
    fn a_bomb_after_the_first_gzip_member_is_found() {
        let mut bytes = chart("a/Chart.yaml", "x");
        // Without its end marker the archive continues in the next member.
        let mut first = Vec::new();
        MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut first).unwrap();
        first.truncate(1024);
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&first).unwrap();
        bytes = packed.finish().unwrap();
        bytes.extend(pack([("a/large".to_owned(), vec![0; 101 << 20])]));
        assert_eq!(error(bytes), "the unpacked chart has more than 100 MiB");
    }

    #[test]
    fn charts_that_may_look_up_objects_are_recognized() {
        let check = |bytes: Vec<u8>, expected: bool| assert_eq!(Packed::check(bytes).unwrap().looks_up, expected);
        check(chart("a/templates/a.yaml", "kind: Secret"), false);
        check(chart("a/templates/a.yaml", r#"{{ lookup "v1" "Secret" "" "a" }}"#), true);
        check(chart("a/charts/b.tgz", "packed"), true);
        // The word is on both sides of the end of a buffer.
        for before in 8180..8200 {
            check(chart("a/a", &format!("{}lookup", " ".repeat(before))), true);
        }
    }
}
