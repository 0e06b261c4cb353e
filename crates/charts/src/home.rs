//! The private folder of a helm run.

use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, lchown},
    path::{Path, PathBuf},
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
        let folder = builder.prefix("billhook-helm-").permissions(Permissions::from_mode(0o700)).tempdir()?;
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
