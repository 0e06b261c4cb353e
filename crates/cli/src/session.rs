//! One call of the program: its world, opened.

use std::{
    collections::BTreeMap,
    future::Future,
    io::{BufRead as _, BufReader, Read},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use billhook_cluster::{Cluster, Options};
use billhook_engine::Clusters;
use billhook_objects::ReleaseName;
use kube::config::KubeConfigOptions;
use tokio::sync::mpsc;

use crate::{
    Connect,
    args::{Common, Output},
    config,
    error::{CommandError, Exit},
    output::Printer,
    sandbox,
};

/// What every command needs.
pub(crate) struct Session {
    pub(crate) printer: Printer,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) directory: PathBuf,
    pub(crate) common: Common,
    pub(crate) stdin_terminal: bool,
    pub(crate) stdout_terminal: bool,
    pub(crate) stderr_terminal: bool,
    pub(crate) stdin: Mutex<Option<Box<dyn Read + Send>>>,
    pub(crate) connect: Connect,
    /// The address of the release's own cluster, once it is known.
    pub(crate) server: Mutex<String>,
}

/// A cluster to talk to, and the namespace to talk about.
pub(crate) struct Connection {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
}

impl Connection {
    /// The name of a release in this namespace.
    pub(crate) fn release(&self, name: &str) -> Result<ReleaseName, CommandError> {
        ReleaseName::new(&self.namespace, name).map_err(|error| CommandError::failed(Exit::Input, &error))
    }

    /// This cluster and others, by the names that a policy has for them.
    pub(crate) fn with(self, targets: BTreeMap<String, Cluster>) -> Clusters {
        Clusters { own: self.cluster, records: None, targets, now: now() }
    }
}

/// The time of the call: it is noted with the record of a release.
fn now() -> String {
    let now = timestamp();
    now.round(jiff::Unit::Second).unwrap_or(now).to_string()
}

/// The time of day.
#[expect(clippy::disallowed_methods, reason = "a stamp for people, not a measure of time")]
pub(crate) fn timestamp() -> jiff::Timestamp {
    jiff::Timestamp::try_from(std::time::SystemTime::now()).unwrap_or_default()
}

impl Session {
    /// Whether results are printed as JSON.
    pub(crate) fn json(&self) -> bool {
        self.common.output == Output::Json
    }

    /// A path as the program has to open it.
    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }

    /// A program that may be named by a variable; a name without a folder is looked for in `PATH`.
    pub(crate) fn tool(&self, variable: &str, name: &str) -> PathBuf {
        let named = self.env.get(variable).filter(|value| !value.is_empty());
        let tool = Path::new(named.map_or(name, String::as_str));
        if tool.components().count() > 1 {
            return self.path(tool);
        }
        let folders = self.env.get("PATH").map(|path| std::env::split_paths(path).collect::<Vec<_>>());
        let candidates = folders.unwrap_or_default().into_iter().map(|folder| self.directory.join(folder).join(tool));
        candidates.into_iter().find(|path| path.is_file()).unwrap_or_else(|| tool.to_owned())
    }

    /// Takes standard input; none where it was taken before.
    pub(crate) fn take_stdin(&self) -> Option<Box<dyn Read + Send>> {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Connects to the cluster that flags, kubeconfig and environment name, or to a sandbox. No request is sent yet.
    pub(crate) async fn connection(&self) -> Result<Connection, CommandError> {
        if self.common.sandbox {
            return sandbox::connection(self).await;
        }
        let config = config::load(self).await?;
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = config.cluster_url.to_string();
        let namespace = self.common.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        Ok(Connection { cluster: (self.connect)(config, self.options())?, namespace })
    }

    /// Connects to the clusters of `--target NAME=KUBECONFIG[#CONTEXT]`.
    pub(crate) async fn targets(&self, targets: &[Target]) -> Result<BTreeMap<String, Cluster>, CommandError> {
        if self.common.sandbox && !targets.is_empty() {
            return Err(CommandError::input("--sandbox is the only cluster of a call: it goes without --target"));
        }
        let mut clusters = BTreeMap::new();
        for Target { name, kubeconfig, context } in targets {
            let options = KubeConfigOptions { context: context.clone(), cluster: None, user: None };
            let config = config::of_file(&self.path(Path::new(kubeconfig)), &options).await?;
            if clusters.insert(name.clone(), (self.connect)(config, self.options())?).is_some() {
                return Err(CommandError::input(format!("--target {name} is given twice")));
            }
        }
        Ok(clusters)
    }

    /// How requests are sent.
    pub(crate) fn options(&self) -> Options {
        const NO_LIMIT: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 3600);
        let mut options = Options::default();
        if let Some(timeout) = self.common.request_timeout {
            options.request_timeout = if timeout.0.is_zero() { NO_LIMIT } else { timeout.0 };
        }
        options
    }

    /// Asks a question; anything but yes is no.
    pub(crate) async fn confirm(&self, interrupts: &mut Interrupts, question: &str) -> Result<bool, CommandError> {
        let Some(stdin) = self.take_stdin() else { return Ok(false) };
        self.printer.ask(&format!("{question} [y/N] "));
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(stdin.take(1024)).read_line(&mut line).map(|_| line)
        });
        let line = tokio::select! {
            line = line => line.ok().and_then(Result::ok).unwrap_or_default(),
            () = interrupts.next() => {
                self.printer.err("");
                return Err(interrupted());
            }
        };
        if !line.ends_with('\n') {
            self.printer.err("");
        }
        Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
    }
}

/// Another cluster, as `NAME=KUBECONFIG[#CONTEXT]` names it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    name: String,
    kubeconfig: String,
    context: Option<String>,
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected NAME=KUBECONFIG or NAME=KUBECONFIG#CONTEXT".to_owned();
        let (name, place) = text.split_once('=').ok_or_else(wrong)?;
        let (kubeconfig, context) = match place.split_once('#') {
            Some((kubeconfig, context)) => (kubeconfig, Some(context.to_owned())),
            None => (place, None),
        };
        if name.is_empty() || kubeconfig.is_empty() || context.as_ref().is_some_and(String::is_empty) {
            return Err(wrong());
        }
        Ok(Self { name: name.to_owned(), kubeconfig: kubeconfig.to_owned(), context })
    }
}

/// The Ctrl-C of the user.
pub(crate) struct Interrupts(pub(crate) mpsc::Receiver<()>);

impl Interrupts {
    /// Waits for the next one, for ever where nobody can interrupt.
    pub(crate) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Does something that changes nothing, unless interrupted.
    pub(crate) async fn unless<T>(
        &mut self,
        work: impl Future<Output = Result<T, CommandError>>,
    ) -> Result<T, CommandError> {
        tokio::select! {
            done = work => done,
            () = self.next() => Err(interrupted()),
        }
    }
}

fn interrupted() -> CommandError {
    CommandError::new(Exit::Unfinished, "interrupted; nothing was touched")
}
