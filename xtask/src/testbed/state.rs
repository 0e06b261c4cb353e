//! The state of running control planes: a lock that a supervisor holds until it ends, and a file beside it.

use std::fmt;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

/// The name of a control plane, which is also part of file names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(String);

impl FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let ok = !text.is_empty() && text.len() <= 63 && text.chars().all(allowed);
        if ok { Ok(Self(text.to_owned())) } else { Err("expected at most 63 lower-case letters, digits and hyphens") }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A running control plane.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    /// The process id of its supervisor.
    pub(super) pid: u32,
    /// The API server's URL.
    pub(super) url: String,
    pub(super) kubeconfig: PathBuf,
    /// The folders of its programs.
    pub(super) path: Vec<PathBuf>,
}

/// The current state of a name.
pub(super) enum Slot {
    Empty,
    Starting,
    Running(State),
}

/// Returns whether a supervisor uses the name, and whether its control plane is ready.
pub(super) fn look(name: &Name) -> Result<Slot> {
    let lock = match File::open(file(name, "lock")?) {
        Ok(lock) => lock,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Slot::Empty),
        Err(error) => return Err(error).context("failed to open a lock file"),
    };
    // A shared lock, so that concurrent readers do not affect each other.
    match lock.try_lock_shared() {
        Ok(()) => return Ok(Slot::Empty),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error).context("failed to check a lock file"),
    }
    match fs::read(file(name, "json")?) {
        Ok(json) => Ok(Slot::Running(serde_json::from_slice(&json).context("failed to read a state file")?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Slot::Starting),
        Err(error) => Err(error).context("failed to read a state file"),
    }
}

/// Returns all names that were ever used, in order.
pub(super) fn names() -> Result<Vec<Name>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder()?).context("failed to list the state folder")? {
        let file = entry.context("failed to list the state folder")?.file_name();
        names.extend(file.to_str().and_then(|file| file.strip_suffix(".lock")).and_then(|name| name.parse().ok()));
    }
    names.sort();
    Ok(names)
}

/// Reserves the name until the result is dropped.
pub(super) fn take(name: &Name) -> Result<File> {
    let path = file(name, "lock")?;
    let lock = File::create(&path).with_context(|| format!("failed to create {}", path.display()))?;
    // Readers also hold the lock for a moment.
    for _ in 0..20 {
        match lock.try_lock() {
            Ok(()) => {
                clear(name)?;
                return Ok(lock);
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(super::PAUSE),
            Err(TryLockError::Error(error)) => return Err(error).context("failed to take a lock file"),
        }
    }
    anyhow::bail!("a control plane {name} is already running")
}

/// Publishes that the control plane is ready. The caller must have reserved the name.
pub(super) fn publish(name: &Name, state: &State) -> Result<()> {
    let (unfinished, path) = (file(name, "json.new")?, file(name, "json")?);
    let json = serde_json::to_vec_pretty(state).context("failed to write a state file")?;
    fs::write(&unfinished, json).context("failed to write a state file")?;
    fs::rename(&unfinished, &path).context("failed to move a state file")
}

/// Removes the published state. The caller must have reserved the name.
pub(super) fn clear(name: &Name) -> Result<()> {
    match fs::remove_file(file(name, "json")?) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context("failed to remove a state file"),
        _ => Ok(()),
    }
}

/// Returns the log file of the supervisor.
pub(super) fn log(name: &Name) -> Result<PathBuf> {
    file(name, "log")
}

fn file(name: &Name, extension: &str) -> Result<PathBuf> {
    Ok(folder()?.join(format!("{name}.{extension}")))
}

/// Returns the folder of all state files, which only this user can read.
fn folder() -> Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = match runtime {
        Some(runtime) => runtime.join("billhook-testbed"),
        None => std::env::temp_dir().join(format!("billhook-testbed-{user}")),
    };
    let created = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    created.with_context(|| format!("failed to create {}", folder.display()))?;
    // In a folder for all users, another user may have created it first.
    let owner = fs::symlink_metadata(&folder).with_context(|| format!("failed to check {}", folder.display()))?;
    ensure!(owner.is_dir() && owner.uid() == user, "{} belongs to another user", folder.display());
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_safe_in_a_path() {
        for (text, ok) in [("default", true), ("a-2", true), ("", false), ("../x", false), ("A", false), ("a.b", false)]
        {
            assert_eq!(text.parse::<Name>().is_ok(), ok, "{text}");
        }
    }
}
