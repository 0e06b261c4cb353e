//! The private folder of a run of helm.

use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::program::Program;

/// Where the certificates lie that the machine trusts, as Go looks for them.
const TRUSTED: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A folder in the system's folder for temporary files that only this user can read; it goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        let folder = builder.prefix("billhook-helm-").permissions(Permissions::from_mode(0o700)).tempdir()?;
        Ok(Self { folder })
    }

    /// Writes a file that only this user can read; its folders are made.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let path = self.folder.path().join(name);
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(content)?;
        Ok(path)
    }

    /// Writes certificates of authorities for `--ca-file`, together with those the machine trusts.
    ///
    /// helm trusts nothing but such a file, and a repository may redirect to a server of the public kind.
    pub(crate) fn write_authorities(&self, pem: &str) -> io::Result<PathBuf> {
        let trusted = TRUSTED.iter().find_map(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        self.write("ca.pem", format!("{}\n{trusted}", pem.trim_end()).as_bytes())
    }

    /// Lets helm work in this folder only: with its own credentials and repositories, without the user's plugins.
    pub(crate) fn isolate(&self, helm: Program) -> Program {
        let folder = |name: &str| self.folder.path().join(name);
        ["HELM_CONTENT_CACHE", "HELM_REPOSITORY_CACHE", "HELM_REPOSITORY_CONFIG", "HELM_PLUGINS", "HELM_DEBUG"]
            .into_iter()
            .fold(helm, Program::without)
            .with("HELM_CACHE_HOME", folder("cache"))
            .with("HELM_CONFIG_HOME", folder("config"))
            .with("HELM_DATA_HOME", folder("data"))
            .with("HELM_REGISTRY_CONFIG", folder(REGISTRIES))
            // Where helm looks when its own file has nothing to offer.
            .with("DOCKER_CONFIG", folder("docker"))
            .with("KUBECACHEDIR", folder("kube"))
            .within(self.path())
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// The file of credentials of registries.
pub(crate) const REGISTRIES: &str = "registries.json";
/// The file that lists repositories with their credentials: where helm expects it.
pub(crate) const REPOSITORIES: &str = "config/repositories.yaml";
