//! The backup in the record of a release.

use std::io::{BufRead as _, BufReader, Read, Write as _};

use billhook_objects::{ReleaseName, Uid};
use billhook_plan::{Backup, SavedObject};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};

use super::{
    format::{self, LIMIT, Unreadable},
    secret::{Token, encoding_failed},
    store::{InventoryStore, part_metadata, unreadable},
};
use crate::error::{Error, ErrorKind};

/// How many parts a backup may have. All together are less than 44 MiB, which is a small part of what etcd holds.
pub const MAX_PARTS: usize = 64;
/// What the parts of a backup are named after.
const BACKUP: &str = "backup";

/// Writes a backup part by part, so that at most one part is held in memory. Nothing refers to the parts before the head does.
pub struct BackupWriter<'a> {
    store: &'a InventoryStore,
    release: &'a ReleaseName,
    owner: Uid,
    revision: u64,
    lines: GzEncoder<Vec<u8>>,
    backup: Backup,
}

/// The result of an attempt to write a backup.
#[derive(Debug)]
pub enum NewBackup {
    /// It was written, and is to be named by the next write of the record.
    Written(Backup),
    /// It would have more than [`MAX_PARTS`] parts. What was written of it is deleted again.
    TooLarge,
}

impl InventoryStore {
    /// Returns the token of the head that will own a backup, which is an empty one if the release has no record yet.
    ///
    /// # Errors
    ///
    /// When the head cannot be written.
    pub async fn owner_of_backup(&self, release: &ReleaseName, token: Option<Token>) -> Result<Token, Error> {
        match token {
            Some(token) => Ok(token),
            None => self.write_empty(&format!("write the record of release {release}"), release, None).await,
        }
    }

    /// Starts a backup that the next write of the record, from this version on, will name.
    pub fn write_backup<'a>(&'a self, release: &'a ReleaseName, token: &Token) -> BackupWriter<'a> {
        let taken = self.now.clone().unwrap_or_default();
        BackupWriter {
            store: self,
            release,
            owner: token.uid.clone(),
            revision: token.revision() + 1,
            lines: GzEncoder::new(Vec::new(), Compression::default()),
            backup: Backup { taken, objects: 0, parts: Vec::new() },
        }
    }

    /// Reads the packed parts of a backup.
    ///
    /// # Errors
    ///
    /// When a part is missing, or a request fails.
    pub async fn read_backup(&self, release: &ReleaseName, backup: &Backup) -> Result<PackedBackup, Error> {
        let what = format!("read the backup of release {release}");
        let mut chunks = Vec::with_capacity(backup.parts.len());
        for name in &backup.parts {
            let found = self.secret(&what, release, name).await?.and_then(|(mut secret, _)| secret.take("data"));
            let missing = || Unreadable::Damaged(format!("Secret {name} is missing"));
            chunks.push(found.ok_or_else(missing).map_err(|why| unreadable(&what, &why))?);
        }
        Ok(PackedBackup { what, chunks })
    }
}

impl BackupWriter<'_> {
    /// Adds an object. Returns false if the backup has become too large.
    ///
    /// # Errors
    ///
    /// When a part cannot be written.
    pub async fn add(&mut self, object: &SavedObject) -> Result<bool, Error> {
        let what = self.what();
        serde_json::to_writer(&mut self.lines, object).map_err(|source| encoding_failed(&what, source))?;
        self.lines.write_all(b"\n").map_err(|source| encoding_failed(&what, source))?;
        self.backup.objects += 1;
        while self.lines.get_ref().len() >= LIMIT {
            if self.backup.parts.len() + 1 >= MAX_PARTS {
                return Ok(false);
            }
            let rest = self.lines.get_mut().split_off(LIMIT);
            let part = std::mem::replace(self.lines.get_mut(), rest);
            self.write(part).await?;
        }
        Ok(true)
    }

    /// Writes the last part.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub async fn finish(mut self) -> Result<NewBackup, Error> {
        self.lines.try_finish().map_err(|source| encoding_failed(&self.what(), source))?;
        let mut rest = std::mem::take(self.lines.get_mut());
        while !rest.is_empty() {
            if self.backup.parts.len() >= MAX_PARTS {
                return Ok(self.discard().await);
            }
            let after = rest.split_off(rest.len().min(LIMIT));
            self.write(std::mem::replace(&mut rest, after)).await?;
        }
        Ok(NewBackup::Written(self.backup))
    }

    /// Deletes what was written.
    pub async fn discard(self) -> NewBackup {
        self.store.delete_parts(self.release, self.backup.parts.into_iter().collect()).await;
        NewBackup::TooLarge
    }

    async fn write(&mut self, part: Vec<u8>) -> Result<(), Error> {
        let name = format::part_name(self.release, self.revision, BACKUP, self.backup.parts.len(), &part);
        let metadata = part_metadata(self.release, &name, BACKUP, Some(&self.owner));
        self.store.write_part(&self.what(), self.release, metadata, part).await?;
        self.backup.parts.push(name);
        Ok(())
    }

    fn what(&self) -> String {
        format!("write the backup of release {}", self.release)
    }
}

/// The parts of a backup as they are stored, which take a fraction of the memory of their objects.
pub struct PackedBackup {
    what: String,
    chunks: Vec<Vec<u8>>,
}

impl PackedBackup {
    /// Returns the objects, one after another.
    pub fn objects(&self) -> impl Iterator<Item = Result<SavedObject, Error>> + '_ {
        let nothing: Box<dyn Read + Send + '_> = Box::new(std::io::empty());
        let bytes = self
            .chunks
            .iter()
            .fold(nothing, |before, chunk| Box::new(before.chain(chunk.as_slice())) as Box<dyn Read + Send + '_>);
        let mut reader = BufReader::new(GzDecoder::new(bytes));
        let mut line = Vec::new();
        std::iter::from_fn(move || {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) => None,
                // The error of the decoder would quote what it reads.
                Ok(_) => Some(serde_json::from_slice(&line).map_err(|_| self.damaged("an object cannot be read"))),
                Err(_) => Some(Err(self.damaged("it cannot be unpacked"))),
            }
        })
    }

    /// Returns the error for a backup with this defect.
    pub fn damaged(&self, why: &str) -> Error {
        Error::new(&self.what, ErrorKind::Other).because(Unreadable::Damaged(why.to_owned()).to_string())
    }
}
