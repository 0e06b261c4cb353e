//! Finds the programs of a control plane in the user's cache folder, or builds them into it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use super::process::{self, Deadline};

/// The folder of the Go modules.
const TESTBED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed");

const ETCD: &str = "etcd";
const KUBE_APISERVER: &str = "kube-apiserver";
const KUBE_CONTROLLER_MANAGER: &str = "kube-controller-manager";
const KUBECTL: &str = "kubectl";
const HELM: &str = "helm";
const REGISTRY: &str = "registry";
const CRANE: &str = "crane";
const PROMTOOL: &str = "promtool";

/// The programs of a control plane, and `kubectl`, `helm`, `registry`, `crane` and `promtool`.
#[derive(Clone, Debug)]
pub struct Binaries {
    etcd: PathBuf,
    kube_apiserver: PathBuf,
    kube_controller_manager: PathBuf,
    kubectl: PathBuf,
}

impl Binaries {
    /// Finds the programs, or builds them into the user's cache folder.
    ///
    /// If `KUBEBUILDER_ASSETS` is set to a folder, its `etcd`, `kube-apiserver` and `kubectl` are used, and its
    /// `kube-controller-manager` if it has one. All other programs are in `billhook/testbed` in the user's cache folder, in
    /// folders named by version, so that all checkouts share them. Building takes about 9 minutes on two cores. `progress`
    /// receives lines while this function builds or waits.
    ///
    /// # Errors
    ///
    /// Fails if a program is missing and cannot be built.
    pub fn locate_or_build(mut progress: impl FnMut(&str)) -> Result<Self> {
        match std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty()) {
            Some(folder) => Self::from_assets(Path::new(&folder), &mut progress),
            None => Ok(Self::all_in(&CONTROL_PLANE.locate_or_build(&mut progress)?)),
        }
    }

    /// Returns the path of `helm`, and builds it if it is missing: about 4 minutes on two cores. It is static, because the image
    /// of billhook contains it.
    ///
    /// # Errors
    ///
    /// Fails if it is missing and cannot be built.
    pub fn helm(mut progress: impl FnMut(&str)) -> Result<PathBuf> {
        Ok(HELM_MODULE.locate_or_build(&mut progress)?.join(HELM))
    }

    /// Returns the path of `registry`, the OCI registry of the distribution project, and builds it if it is missing: about
    /// 1 minute on two cores.
    ///
    /// # Errors
    ///
    /// Fails if it is missing and cannot be built.
    pub fn registry(mut progress: impl FnMut(&str)) -> Result<PathBuf> {
        Ok(REGISTRY_MODULE.locate_or_build(&mut progress)?.join(REGISTRY))
    }

    /// Returns the path of `crane`, a client of registries, and builds it if it is missing: about 1 minute on two cores.
    ///
    /// # Errors
    ///
    /// Fails if it is missing and cannot be built.
    pub fn crane(mut progress: impl FnMut(&str)) -> Result<PathBuf> {
        Ok(CRANE_MODULE.locate_or_build(&mut progress)?.join(CRANE))
    }

    /// Returns the path of `promtool`, which checks and plays the rules of Prometheus, and builds it if it is missing: about
    /// 3 minutes on two cores.
    ///
    /// # Errors
    ///
    /// Fails if it is missing and cannot be built.
    pub fn promtool(mut progress: impl FnMut(&str)) -> Result<PathBuf> {
        Ok(PROMTOOL_MODULE.locate_or_build(&mut progress)?.join(PROMTOOL))
    }

    /// Returns the path of `etcd`.
    #[must_use]
    pub fn etcd(&self) -> &Path {
        &self.etcd
    }

    /// Returns the path of `kube-apiserver`.
    #[must_use]
    pub fn kube_apiserver(&self) -> &Path {
        &self.kube_apiserver
    }

    /// Returns the path of `kube-controller-manager`.
    #[must_use]
    pub fn kube_controller_manager(&self) -> &Path {
        &self.kube_controller_manager
    }

    /// Returns the path of `kubectl`.
    #[must_use]
    pub fn kubectl(&self) -> &Path {
        &self.kubectl
    }

    fn all_in(folder: &Path) -> Self {
        Self {
            etcd: folder.join(ETCD),
            kube_apiserver: folder.join(KUBE_APISERVER),
            kube_controller_manager: folder.join(KUBE_CONTROLLER_MANAGER),
            kubectl: folder.join(KUBECTL),
        }
    }

    fn from_assets(folder: &Path, progress: &mut dyn FnMut(&str)) -> Result<Self> {
        let mut binaries = Self::all_in(folder);
        for program in [&binaries.etcd, &binaries.kube_apiserver, &binaries.kubectl] {
            if !program.is_file() {
                bail!(
                    "KUBEBUILDER_ASSETS is set, but {} does not exist; install it there or unset the variable",
                    program.display()
                );
            }
        }
        if !binaries.kube_controller_manager.is_file() {
            // These assets usually do not include it: https://book.kubebuilder.io/reference/envtest.html
            binaries.kube_controller_manager = CONTROL_PLANE.locate_or_build(progress)?.join(KUBE_CONTROLLER_MANAGER);
        }
        Ok(binaries)
    }
}

/// A Go module with tools to build.
struct Module {
    /// The folder below `testbed/`.
    folder: &'static str,
    /// The project whose version is part of the cache folder's name.
    version_of: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
    /// The programs that are built.
    programs: &'static [&'static str],
    /// The linker variables for the version of the programs, if Go does not set it from the module.
    version_variable: Option<&'static str>,
    /// The programs to rename: Go names a program after the last part of its path.
    renames: &'static [(&'static str, &'static str)],
    /// The packages to build: `tool` stands for the tools that `go.mod` lists, `.` for the module's own `main.go`.
    package: &'static str,
    /// Whether the programs are linked statically.
    is_static: bool,
    /// The build tags, separated by commas.
    tags: &'static str,
    /// The usual time of a first build on two cores.
    usually: &'static str,
}

/// What most modules have in common.
const TOOL: Module = Module {
    folder: "",
    version_of: "",
    go_mod: "",
    go_sum: "",
    programs: &[],
    version_variable: None,
    renames: &[],
    package: "tool",
    is_static: false,
    tags: "",
    usually: "1 minute",
};

const CONTROL_PLANE: Module = Module {
    folder: ".",
    version_of: "k8s.io/kubernetes",
    go_mod: include_str!("../../../../testbed/go.mod"),
    go_sum: include_str!("../../../../testbed/go.sum"),
    programs: &[ETCD, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, KUBECTL],
    // The version that the API server reports and kubectl compares; without it, both report v0.0.0.
    version_variable: Some("k8s.io/component-base/version.gitVersion"),
    renames: &[("server", ETCD)],
    usually: "9 minutes",
    ..TOOL
};

const HELM_MODULE: Module = Module {
    folder: "helm",
    version_of: "helm.sh/helm/v4",
    go_mod: include_str!("../../../../testbed/helm/go.mod"),
    go_sum: include_str!("../../../../testbed/helm/go.sum"),
    programs: &[HELM],
    is_static: true,
    usually: "4 minutes",
    ..TOOL
};

const REGISTRY_MODULE: Module = Module {
    folder: "registry",
    version_of: "github.com/distribution/distribution/v3",
    go_mod: include_str!("../../../../testbed/registry/go.mod"),
    go_sum: include_str!("../../../../testbed/registry/go.sum"),
    programs: &[REGISTRY],
    package: ".",
    ..TOOL
};

const CRANE_MODULE: Module = Module {
    folder: "crane",
    version_of: "github.com/google/go-containerregistry",
    go_mod: include_str!("../../../../testbed/crane/go.mod"),
    go_sum: include_str!("../../../../testbed/crane/go.sum"),
    programs: &[CRANE],
    ..TOOL
};

const PROMTOOL_MODULE: Module = Module {
    folder: "promtool",
    version_of: "github.com/prometheus/prometheus",
    go_mod: include_str!("../../../../testbed/promtool/go.mod"),
    go_sum: include_str!("../../../../testbed/promtool/go.sum"),
    programs: &[PROMTOOL],
    is_static: true,
    // Without the clients of all clouds, which find what Prometheus scrapes.
    tags: "remove_all_sd",
    usually: "3 minutes",
    ..TOOL
};

impl Module {
    /// Returns the version that `go.mod` requires.
    fn version(&self) -> Result<&'static str> {
        let required = |line: &'static str| {
            line.trim().strip_prefix("require ").unwrap_or(line.trim()).strip_prefix(self.version_of)?.strip_prefix(' ')
        };
        let rest = self.go_mod.lines().find_map(required);
        rest.and_then(|rest| rest.split_whitespace().next())
            .with_context(|| format!("no version of {} in testbed/{}/go.mod", self.version_of, self.folder))
    }

    /// Returns the name of the cache folder: a readable version, and a hash of all inputs.
    fn name(&self) -> Result<String> {
        let linking = if self.is_static { "static" } else { "" };
        let hash = Sha256::new().chain_update(self.go_mod).chain_update(self.go_sum).chain_update(linking);
        let hash = hash.chain_update(self.tags).finalize();
        let short: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let version = self.version()?;
        Ok(match self.folder {
            "." => format!("{version}-{short}"),
            folder => format!("{folder}-{version}-{short}"),
        })
    }

    fn complete(&self, bin: &Path) -> bool {
        self.programs.iter().all(|program| bin.join(program).is_file())
    }

    /// Returns the folder of the programs, and builds them if they are missing.
    fn locate_or_build(&self, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
        let cache = cache_folder()?.join("testbed");
        let name = self.name()?;
        let folder = cache.join(&name);
        let bin = folder.join("bin");
        if self.complete(&bin) {
            return Ok(bin);
        }
        fs::create_dir_all(&cache).with_context(|| format!("failed to create {}", cache.display()))?;
        let _lock = lock(&cache.join(format!("{name}.lock")), progress)?;
        // Another process may have built it in the meantime.
        if !self.complete(&bin) {
            let prefix = format!("{name}.build-");
            remove_unfinished(&cache, &prefix)?;
            let temporary = tempfile::Builder::new()
                .prefix(&prefix)
                .tempdir_in(&cache)
                .with_context(|| format!("failed to create a folder in {}", cache.display()))?;
            self.build(&temporary.path().join("bin"), progress)?;
            if folder.exists() {
                // Incomplete: part of it was removed manually.
                fs::remove_dir_all(&folder).with_context(|| format!("failed to remove {}", folder.display()))?;
            }
            fs::rename(temporary.keep(), &folder).with_context(|| format!("failed to move to {}", folder.display()))?;
        }
        Ok(bin)
    }

    /// Builds the tools of the module into `bin`.
    fn build(&self, bin: &Path, progress: &mut dyn FnMut(&str)) -> Result<()> {
        let what = self.programs.join(", ");
        let version = self.version()?;
        if !go_is_installed() {
            bail!(
                "{what} {version} must be built once, which needs Go 1.26 or newer: install it from https://go.dev/dl"
            );
        }
        fs::create_dir_all(bin).with_context(|| format!("failed to create {}", bin.display()))?;
        let set_version = self.version_variable.map(|variable| format!(" -X {variable}={version}"));
        let flags = format!("-s -w{}", set_version.unwrap_or_default());
        let mut command = Command::new("go");
        command
            .current_dir(Path::new(TESTBED).join(self.folder))
            // Ignores a go.work file in a parent folder.
            .env("GOWORK", "off")
            .args(["build", "-trimpath", "-buildvcs=false", "-tags", self.tags, "-ldflags", &flags, "-o"])
            .arg(bin)
            .arg(self.package);
        if self.is_static {
            command.env("CGO_ENABLED", "0");
        }

        progress(&format!("building {what} {version} once; this usually takes {} on two cores", self.usually));
        let clock = Deadline::after(Duration::MAX);
        let mut minutes = 0;
        let log = bin.with_file_name("build.log");
        let status = process::run(command, &log, || {
            let now = clock.elapsed().as_secs() / 30;
            if now > minutes {
                minutes = now;
                progress(&format!("building {what} {version}: {}:{:02}", minutes / 2, minutes % 2 * 30));
            }
        })?;
        if !status.success() {
            bail!("failed to build {what} (go build: {status}):\n{}", process::tail(&log));
        }
        for (from, to) in self.renames {
            fs::rename(bin.join(from), bin.join(to)).with_context(|| format!("failed to rename {from} to {to}"))?;
        }
        let seconds = clock.elapsed().as_secs();
        progress(&format!("built {what} {version} in {}:{:02}", seconds / 60, seconds % 60));
        Ok(())
    }
}

/// Removes the files of killed builds. The caller must hold the lock.
fn remove_unfinished(cache: &Path, prefix: &str) -> Result<()> {
    for entry in fs::read_dir(cache).with_context(|| format!("failed to list {}", cache.display()))?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            let path = entry.path();
            fs::remove_dir_all(&path).with_context(|| format!("failed to remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn go_is_installed() -> bool {
    let mut go = Command::new("go");
    go.arg("version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    go.status().is_ok_and(|status| status.success())
}

/// Locks a file until the result is dropped, so that no two processes build at the same time.
fn lock(path: &Path, progress: &mut dyn FnMut(&str)) -> Result<File> {
    let context = || format!("failed to lock {}", path.display());
    let file = File::create(path).with_context(context)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            progress("waiting for another process that builds the same programs");
            file.lock().with_context(context)?;
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(context),
    }
    Ok(file)
}

/// Returns the folder `billhook` in the user's cache folder.
fn cache_folder() -> Result<PathBuf> {
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
    let from = |name: &str| std::env::var_os(OsStr::new(name)).and_then(absolute);
    let cache = from("XDG_CACHE_HOME").or_else(|| from("HOME").map(|home| home.join(".cache")));
    Ok(cache.context("neither XDG_CACHE_HOME nor HOME names a folder for the testbed's programs")?.join("billhook"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_cached_under_its_version_and_a_hash() {
        for (module, prefix) in [
            (CONTROL_PLANE, "v1."),
            (HELM_MODULE, "helm-v4."),
            (REGISTRY_MODULE, "registry-v3."),
            (CRANE_MODULE, "crane-v0."),
            (PROMTOOL_MODULE, "promtool-v0."),
        ] {
            let name = module.name().unwrap();
            let (version, hash) = name.rsplit_once('-').unwrap();
            assert!(version.starts_with(prefix), "{name}");
            assert_eq!(hash.len(), 8, "{name}");
        }
    }
}
