//! What every command of one run needs: flags, environment, input and output, and Ctrl-C.

use std::{
    collections::BTreeMap,
    future::Future,
    io::{BufRead as _, BufReader, Read},
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
};

use tokio::sync::mpsc;

use crate::{
    args::{GlobalArgs, OutputFormat},
    error::{CommandError, Exit},
    log::{Log, Logging},
    output::Printer,
    world::Connect,
};

/// One run of the program.
pub(crate) struct Session {
    pub(crate) printer: Printer,
    pub(crate) logging: Logging,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) directory: PathBuf,
    pub(crate) global: GlobalArgs,
    pub(crate) stdin_terminal: bool,
    pub(crate) stdout_terminal: bool,
    pub(crate) stderr_terminal: bool,
    pub(crate) stdin: Mutex<Option<Box<dyn Read + Send>>>,
    pub(crate) connect: Connect,
    /// The address of the cluster that holds the release, once it is known.
    pub(crate) server: OnceLock<String>,
    /// The name of its context, if a kubeconfig defines it.
    pub(crate) context: OnceLock<String>,
    /// The name of the cluster in the kubeconfig.
    pub(crate) cluster: OnceLock<String>,
}

impl Session {
    /// Returns where the command logs.
    pub(crate) fn log(&self) -> Log {
        Log::new(self.printer.clone(), self.json(), self.logging)
    }

    /// Returns whether results are printed as JSON.
    pub(crate) fn json(&self) -> bool {
        self.global.output == OutputFormat::Json
    }

    /// Returns the name of this machine, which in a pod is the name of the pod.
    pub(crate) fn host(&self) -> String {
        let name = self.env.get("HOSTNAME").cloned().filter(|name| !name.is_empty());
        // Shells do not export HOSTNAME.
        name.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
    }

    /// Resolves a path against the working directory.
    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }

    /// Returns the path of a program, which a variable may override; a bare name is looked up in `PATH`.
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

    /// Takes standard input; `None` after the first call.
    pub(crate) fn take_stdin(&self) -> Option<Box<dyn Read + Send>> {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Rejects `--as-group` without `--as`, as kubectl does.
    pub(crate) fn check_impersonation(&self) -> Result<(), CommandError> {
        if self.global.as_user.is_none() && !self.global.as_group.is_empty() {
            return Err(CommandError::input("--as-group requires --as"));
        }
        Ok(())
    }

    /// Returns the name of the cluster in the kubeconfig. Without a kubeconfig, it is the address of the API server.
    pub(crate) fn cluster_name(&self) -> String {
        self.cluster.get().or_else(|| self.server.get()).cloned().unwrap_or_else(|| "sandbox".to_owned())
    }

    /// Asks a question and returns whether the answer is yes.
    pub(crate) async fn confirm(&self, interrupts: &mut Interrupts, question: &str) -> Result<bool, CommandError> {
        let answer = self.answer(interrupts, &format!("{question} [y/N] ")).await?;
        Ok(answer.is_some_and(|answer| matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")))
    }

    /// Asks a question and returns the line of the answer; none if standard input was read before.
    pub(crate) async fn answer(
        &self,
        interrupts: &mut Interrupts,
        question: &str,
    ) -> Result<Option<String>, CommandError> {
        let Some(stdin) = self.take_stdin() else { return Ok(None) };
        self.printer.ask(question);
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
        Ok(Some(line))
    }
}

/// The user's Ctrl-C.
pub(crate) struct Interrupts(pub(crate) mpsc::Receiver<()>);

impl Interrupts {
    /// Returns one without a Ctrl-C, for work that another part of the command stops.
    pub(crate) fn never() -> Self {
        Self(mpsc::channel(1).1)
    }

    /// Waits for the next Ctrl-C.
    pub(crate) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Does work that changes nothing, and abandons it on Ctrl-C.
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

/// Returns the error of work that was abandoned before it changed anything.
pub(crate) fn interrupted() -> CommandError {
    CommandError::new(Exit::Unfinished, "interrupted; nothing was changed")
}
