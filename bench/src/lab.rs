//! A control plane, and the programs that run with it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use billhook_testkit::control_plane::{ControlPlane, Options};
use kube::Client;
use kube::api::{ListParams, PostParams};
use kube::core::Request;
use serde_json::{Value, json};

use crate::controller::{self, Controller};
use crate::delay::DelayLine;
use crate::floor::{self, Action, Scope};
use crate::measure::{Ended, Job, last_lines, measure};
use crate::progress;
use crate::workload::Set;

/// The delay in each direction; a round trip takes twice as long.
pub(crate) const EACH_WAY: Duration = Duration::from_millis(10);

/// The time limit of a run.
const PATIENCE: Duration = Duration::from_secs(600);

/// The user agent of the benchmark's own requests in the audit log.
const AGENT: &str = "billhook-bench";

/// A control plane with its files, which is stopped and removed when this is dropped.
pub(crate) struct Lab {
    pub(crate) client: Client,
    plane: ControlPlane,
    delay: Option<DelayLine>,
    folder: tempfile::TempDir,
    this: PathBuf,
}

impl Lab {
    /// Starts a control plane, and optionally a delay line.
    pub(crate) async fn start(options: &Options, delayed: bool) -> Result<Self> {
        progress("starting a control plane");
        let plane = ControlPlane::start(options)?;
        let folder = tempfile::tempdir().context("failed to create a temporary folder")?;
        let client = floor::client(&plane.kubeconfig_path(), AGENT).await?;
        let this = std::env::current_exe().context("failed to find this program")?;
        let mut lab = Self { client, plane, delay: None, folder, this };
        if delayed {
            let url = lab.plane.url();
            let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
            let line = DelayLine::start(port.context("the API server's URL has no port")?, EACH_WAY).await?;
            let kubeconfig = lab.plane.kubeconfig().replace(&url, &format!("https://127.0.0.1:{}", line.port()));
            std::fs::write(lab.path("delayed.kubeconfig"), kubeconfig).context("failed to write a kubeconfig")?;
            lab.delay = Some(line);
        }
        Ok(lab)
    }

    /// Returns the path of a file in the folder of this lab.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file into the folder of this lab.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
        Ok(path)
    }

    /// Starts a controller for the custom kinds.
    pub(crate) async fn controller(&self) -> Result<Controller> {
        let client = floor::client(&self.plane.kubeconfig_path(), controller::AGENT).await?;
        Ok(Controller::start(&client))
    }

    /// Returns the version of the API server.
    pub(crate) async fn version(&self) -> Result<String> {
        Ok(self.client.apiserver_version().await.context("failed to read the server's version")?.git_version)
    }

    /// Returns the path of kubectl.
    pub(crate) fn kubectl(&self) -> &Path {
        self.plane.binaries().kubectl()
    }

    /// Creates the namespaces of a set.
    pub(crate) async fn prepare(&self, set: &Set) -> Result<()> {
        let names: Vec<&str> = set.namespaces.iter().map(String::as_str).collect();
        self.namespaces(&names).await
    }

    /// Creates namespaces.
    pub(crate) async fn namespaces(&self, names: &[&str]) -> Result<()> {
        for name in names {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.create("/api/v1/namespaces", &namespace).await?;
        }
        Ok(())
    }

    /// Waits until a kind is served under this path.
    pub(crate) async fn until_served(&self, path: &str) -> Result<()> {
        for attempt in 0.. {
            match self.client.request_text(Request::new(path).list(&ListParams::default())?).await {
                Ok(_) => break,
                Err(error) if attempt == 100 => return Err(error).with_context(|| format!("{path} is not served")),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        Ok(())
    }

    /// Creates CRDs and waits until their kinds are served under these paths.
    pub(crate) async fn define(&self, kinds: impl IntoIterator<Item = (Value, String)>) -> Result<()> {
        let mut paths = Vec::new();
        for (definition, path) in kinds {
            self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
            paths.push(path);
        }
        for path in paths {
            self.until_served(&path).await?;
        }
        // The API server closes watches of the new kinds once more at this point.
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(())
    }

    /// Creates an object, unless it exists.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<()> {
        let request = Request::new(path).create(&PostParams::default(), serde_json::to_vec(object)?)?;
        match self.client.request_text(request).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            answer => answer.map(drop).with_context(|| format!("failed to create in {path}")),
        }
    }

    /// Counts the objects of a set.
    pub(crate) async fn left(&self, set: &Set) -> Result<usize> {
        let mut count = 0;
        for &kind in &set.kinds {
            count += floor::list(&self.client, Scope::of(kind, set)).await?.1.items.len();
        }
        Ok(count)
    }

    /// Fails if the number of objects of a set differs from this.
    pub(crate) async fn expect(&self, set: &Set, count: usize) -> Result<()> {
        let there = self.left(set).await?;
        ensure!(there == count, "expected {count} objects, found {there}");
        Ok(())
    }

    /// Runs the floor as a separate program.
    pub(crate) async fn floor(&self, action: Action, set: &Set, delayed: bool) -> Result<Ended> {
        let args = floor::Args::of(action, set).into_iter().map(OsString::from).collect();
        let ended = self.run(&self.this, args, delayed, PATIENCE).await?;
        succeeded("the floor", ended)
    }

    /// Runs the floor of a payload, whose graph is in a file.
    pub(crate) async fn floor_of(&self, graph: &Path) -> Result<Ended> {
        let args = vec!["floor-graph".into(), graph.as_os_str().to_owned()];
        let ended = self.run(&self.this, args, false, PATIENCE).await?;
        succeeded("the floor", ended)
    }

    /// Runs the floor of a cleaning.
    pub(crate) async fn floor_clean(&self) -> Result<Ended> {
        succeeded("the floor", self.run(&self.this, vec!["floor-clean".into()], false, PATIENCE).await?)
    }

    /// Runs billhook.
    pub(crate) async fn billhook(&self, program: &Path, args: Vec<OsString>, delayed: bool) -> Result<Ended> {
        succeeded("billhook", self.run(program, args, delayed, PATIENCE).await?)
    }

    /// Runs kubectl with the time limit `cap`.
    pub(crate) async fn run_kubectl(&self, args: Vec<OsString>, delayed: bool, cap: Option<Duration>) -> Result<Ended> {
        let program = self.kubectl().to_owned();
        succeeded("kubectl", self.run(&program, args, delayed, cap.unwrap_or(PATIENCE)).await?)
    }

    async fn run(&self, program: &Path, args: Vec<OsString>, delayed: bool, cap: Duration) -> Result<Ended> {
        let kubeconfig = if delayed { self.path("delayed.kubeconfig") } else { self.plane.kubeconfig_path() };
        let env = vec![
            ("KUBECONFIG", kubeconfig.into_os_string()),
            ("KUBECACHEDIR", self.path("kubectl-cache").into_os_string()),
        ];
        measure(Job { program, args, env, cap, folder: self.folder.path() }).await
    }
}

fn succeeded(what: &str, ended: Ended) -> Result<Ended> {
    if !ended.capped && ended.taken.exit != Some(0) {
        let exit = ended.taken.exit.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
        bail!("{what} ended with {exit}: {}", last_lines(&ended.stderr));
    }
    Ok(ended)
}

/// Builds the program to measure, and returns its path.
pub(crate) fn build_billhook() -> Result<PathBuf> {
    progress("building billhook");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    cargo.args([
        "build",
        "--profile=dist",
        "--package=billhook",
        "--bin=billhook",
        "--message-format=json-render-diagnostics",
    ]);
    let output = cargo.stderr(Stdio::inherit()).output().context("failed to run cargo")?;
    ensure!(output.status.success(), "failed to build billhook");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program = |message: Value| message.get("executable").and_then(Value::as_str).map(PathBuf::from);
    messages.filter_map(program).next_back().context("cargo built no program")
}
