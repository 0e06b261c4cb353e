//! A layer of an image: its files, as a tar archive that is the same for the same files, whenever and wherever it is made.

use std::{collections::BTreeMap, io::Write as _, path::Path};

use anyhow::{Context as _, Result};
use flate2::{Compression, write::GzEncoder};
use tar::{Archive, Builder, EntryType, Header};

use super::create_folder;

/// A layer.
pub(super) struct Layer {
    pub(super) name: &'static str,
    /// By path, so that their order does not depend on how the layer was put together; folders have no content.
    entries: BTreeMap<String, (u32, Option<Vec<u8>>)>,
}

impl Layer {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, entries: BTreeMap::new() }
    }

    /// Adds a file and the folders that lead to it.
    pub(super) fn file(mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        for (end, _) in path.match_indices('/') {
            self.entries.entry(path[..end].to_owned()).or_insert((0o755, None));
        }
        self.entries.insert(path.to_owned(), (mode, Some(content.into())));
        self
    }

    /// Adds an empty folder.
    pub(super) fn folder(mut self, path: &str, mode: u32) -> Self {
        self.entries.insert(path.to_owned(), (mode, None));
        self
    }

    /// Returns the archive, without times and with root as the owner of everything.
    pub(super) fn tar(&self) -> Result<Vec<u8>> {
        let mut archive = Builder::new(Vec::new());
        for (path, (mode, content)) in &self.entries {
            let mut header = Header::new_ustar();
            header.set_mode(*mode);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            let content = content.as_deref();
            header.set_size(content.map_or(0, <[u8]>::len).try_into()?);
            header.set_entry_type(content.map_or(EntryType::Directory, |_| EntryType::Regular));
            let path = if content.is_some() { path.clone() } else { format!("{path}/") };
            archive
                .append_data(&mut header, path, content.unwrap_or_default())
                .context("failed to write an archive")?;
        }
        archive.into_inner().context("failed to write an archive")
    }

    /// Writes the files to a new folder.
    pub(super) fn unpack(&self, folder: &Path) -> Result<()> {
        create_folder(folder)?;
        unpack(&self.tar()?, folder)
    }
}

/// Unpacks an archive with all modes, also those of folders that everyone may write to.
pub(super) fn unpack(tar: &[u8], folder: &Path) -> Result<()> {
    let mut archive = Archive::new(tar);
    archive.set_preserve_permissions(true);
    archive.unpack(folder).with_context(|| format!("failed to unpack to {}", folder.display()))
}

/// Compresses an archive, without a time in the header.
pub(super) fn compress(tar: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(tar)?;
    encoder.finish().context("failed to compress a layer")
}
