//! The payload that a directory contains.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::Path,
};

use billhook_payload::{Decisions, Payload, Settings};

use crate::{
    commands::payload::{decide, parse, read_folder},
    error::CommandError,
};

/// A payload without mistakes.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) payload: Payload,
    pub(super) decisions: Decisions,
    digest: u64,
}

/// Contents are equal if all files are.
impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Content {
    /// Reads a directory. A relative path starts at the base.
    pub(super) fn read(base: &Path, folder: &Path, settings: &Settings) -> Result<Self, CommandError> {
        let texts = read_folder(base, folder)?;
        let mut digest = DefaultHasher::new();
        texts.iter().for_each(|text| (&text.name, &text.content).hash(&mut digest));
        let (payload, problems) = parse(&texts);
        let decisions = decide(&payload, problems, settings)?;
        Ok(Self { payload, decisions, digest: digest.finish() })
    }
}
