//! The private folder of a helm run.

use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, lchown},
    path::{Path, PathBuf},
    sync::LazyLock,
};

use tempfile::TempDir;

use crate::{program::Program, users::HelmUser};

/// A temporary folder that only this user can read. Dropping it deletes the folder.
#[derive(Debug)]
pub(crate) struct Home {
    folder: TempDir,
    /// Who owns the files, if it is another user. Dropped after the folder, so that the next run of this user finds nothing.
    user: Option<HelmUser>,
}

impl Home {
    pub(crate) fn new(user: Option<HelmUser>) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        let prefix = format!("{PREFIX}{}-", *PROCESS);
        let folder = builder.prefix(&prefix).permissions(Permissions::from_mode(0o700)).tempdir()?;
        let home = Self { folder, user };
        home.give(home.path())?;
        home.create_folder(TEMPORARY)?;
        Ok(home)
    }

    /// Makes helm's user the owner of a file or folder.
    fn give(&self, path: &Path) -> io::Result<()> {
        match &self.user {
            Some(user) => lchown(path, Some(user.id()), Some(user.id())),
            None => Ok(()),
        }
    }

    /// Creates a folder that only this user can read.
    pub(crate) fn create_folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.folder.path().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        self.give(&path)?;
        Ok(path)
    }

    /// Writes a file that only this user can read, and creates its folders.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let path = self.folder.path().join(name);
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            let mut own = parent.ancestors().take_while(|folder| *folder != self.path());
            own.try_for_each(|folder| self.give(folder))?;
        }
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(content)?;
        self.give(&path)?;
        Ok(path)
    }

    /// Restricts helm to this folder, without the user's environment, credentials, repositories and plugins.
    pub(crate) fn isolate(&self, helm: Program) -> Program {
        let folder = |name: &str| self.folder.path().join(name);
        helm.with("HOME", self.path())
            .with("TMPDIR", folder(TEMPORARY))
            .with("HELM_CACHE_HOME", folder("cache"))
            .with("HELM_CONFIG_HOME", folder("config"))
            .with("HELM_DATA_HOME", folder("data"))
            .with("HELM_REGISTRY_CONFIG", folder(REGISTRIES))
            // helm reads it if its own file has no credentials.
            .with("DOCKER_CONFIG", folder("docker"))
            .with("KUBECACHEDIR", folder("kube"))
            .within(self.path())
            .isolated(self.user.clone())
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// How the names of these folders begin; then follows the process.
const PREFIX: &str = "billhook-helm-";

/// This process, in the names of its folders.
static PROCESS: LazyLock<String> = LazyLock::new(|| {
    let id = std::process::id();
    format!("{id}-{}", start(id).unwrap_or_default())
});

/// Returns when a running process started, in ticks since the system did (`man 5 proc_pid_stat`): another process with the same
/// ID, such as the first one of a container that was started again, has another time.
fn start(process: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19).map(str::to_owned)
}

/// Deletes the private folders of helms whose process was killed: they hold credentials, and in a pod they may take its memory.
///
/// What cannot be deleted remains, and everything on systems other than Linux.
pub fn remove_leftovers() {
    remove_from(&std::env::temp_dir());
}

fn remove_from(folder: &Path) {
    if start(std::process::id()).is_none() {
        return;
    }
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let parts = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).map(|rest| rest.split('-'));
        let mut parts = parts.into_iter().flatten();
        let process = parts.next().and_then(|id| id.parse().ok()).zip(parts.next());
        // Of the entry itself: a link is none.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && process.is_some_and(|(id, started)| start(id).as_deref() != Some(started)) {
            let _remains = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The folder for temporary files.
const TEMPORARY: &str = "tmp";
/// The file with the credentials of registries, which does not exist.
const REGISTRIES: &str = "registries.json";
/// The file with the repositories, where helm expects it.
pub(crate) const REPOSITORIES: &str = "config/repositories.yaml";
/// The name of the only repository in that file.
pub(crate) const REPOSITORY: &str = "charts";
/// The index of that repository, where helm expects it.
pub(crate) const INDEX: &str = "cache/repository/charts-index.yaml";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_processes_that_have_ended_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let mut other = std::process::Command::new("true").spawn().unwrap();
        let ended = other.id();
        other.wait().unwrap();
        let own = &*PROCESS;
        let names = [
            format!("{own}-a"),
            format!("{ended}-{}-b", own.split_once('-').unwrap().1),
            format!("{}-0-c", std::process::id()),
            "d".to_owned(),
            "x-0-e".to_owned(),
        ];
        for name in &names {
            let path = folder.path().join(format!("{PREFIX}{name}"));
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("kubeconfig"), "secret").unwrap();
        }
        std::fs::create_dir(folder.path().join("other")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("other"), folder.path().join(format!("{PREFIX}{ended}-0-f")))
            .unwrap();
        remove_from(folder.path());
        let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut left: Vec<_> = folder.path().read_dir().unwrap().map(name).collect();
        left.sort();
        let kept = |name: &str| format!("{PREFIX}{name}");
        let mut expected =
            vec![kept(&names[0]), kept("d"), kept("x-0-e"), kept(&format!("{ended}-0-f")), "other".to_owned()];
        expected.sort();
        assert_eq!(left, expected);
    }
}
