//! The private folder of a helm run.

use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::program::Program;

/// The files with the certificates that the machine trusts, as in Go.
const TRUSTED: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A temporary folder that only this user can read. Dropping it deletes the folder.
#[derive(Debug)]
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        let folder = builder.prefix("billhook-helm-").permissions(Permissions::from_mode(0o700)).tempdir()?;
        let home = Self { folder };
        home.create_folder(TEMPORARY)?;
        Ok(home)
    }

    /// Creates a folder that only this user can read.
    pub(crate) fn create_folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.folder.path().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(path)
    }

    /// Writes a file that only this user can read, and creates its folders.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let path = self.folder.path().join(name);
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(content)?;
        Ok(path)
    }

    /// Writes CA certificates for `--ca-file`, together with those that the machine trusts: helm trusts only this file, but a
    /// repository may redirect to a server with a public certificate.
    pub(crate) fn write_authorities(&self, pem: &str) -> io::Result<PathBuf> {
        let trusted = TRUSTED.iter().find_map(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        self.write("ca.pem", format!("{}\n{trusted}", pem.trim_end()).as_bytes())
    }

    /// Restricts helm to this folder, with its own credentials and repositories and without the user's environment and
    /// plugins.
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
            .isolated()
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// The folder for temporary files.
const TEMPORARY: &str = "tmp";
/// The file with the credentials of registries.
pub(crate) const REGISTRIES: &str = "registries.json";
/// The file with the repositories and their credentials, where helm expects it.
pub(crate) const REPOSITORIES: &str = "config/repositories.yaml";
