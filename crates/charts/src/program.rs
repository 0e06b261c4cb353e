//! Runs a program and returns its output.

use std::{
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
    pin::pin,
    process::{ExitStatus, Output, Stdio},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin, Command},
};
use tokio_util::sync::CancellationToken;

use crate::{isolation, users::HelmUser};

/// An error of running a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The program does not exist.
    #[error("program {} not found: {hint}", .program.display())]
    Missing {
        /// The path of the program.
        program: PathBuf,
        /// What to do about it.
        hint: &'static str,
    },
    /// The program could not be started.
    #[error("start {}", .program.display())]
    Start {
        /// The path of the program.
        program: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The program failed.
    #[error("{} failed with {status}: {stderr}", .program.display())]
    Failed {
        /// The path of the program.
        program: PathBuf,
        /// Its exit status.
        status: ExitStatus,
        /// Its standard error, or a note that it is empty.
        stderr: String,
    },
    /// The output is not text.
    #[error("the output of {} is not UTF-8", .program.display())]
    NotText {
        /// The path of the program.
        program: PathBuf,
    },
    /// The output is too large.
    #[error("the output of {} is larger than {} MiB", .program.display(), MAX_OUTPUT >> 20)]
    TooMuchOutput {
        /// The path of the program.
        program: PathBuf,
    },
    /// The program needed more than it may use.
    #[error("{} reached its limit of {limit}", .program.display())]
    Limit {
        /// The path of the program.
        program: PathBuf,
        /// The limit.
        limit: String,
    },
    /// The caller stopped the program, which was then killed or not started.
    #[error("{} was stopped", .program.display())]
    Stopped {
        /// The path of the program.
        program: PathBuf,
    },
}

/// The maximum size of standard output: a release is at most 1 MiB of packed data.
pub(crate) const MAX_OUTPUT: u64 = 64 << 20;
/// How much of standard error is kept. A message is short; a crash of a Go program may print all its stacks.
const MAX_MESSAGE: u64 = 64 << 10;

/// Environment variables other than KUBECONFIG that point a program to a cluster. All others are inherited, such as proxies,
/// and helm's own folders for a chart that helm resolves itself.
const CLUSTER_VARIABLES: [&str; 12] = [
    "KUBERNETES_MASTER",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "HELM_KUBEAPISERVER",
    "HELM_KUBEASGROUPS",
    "HELM_KUBEASUSER",
    "HELM_KUBECAFILE",
    "HELM_KUBECONTEXT",
    "HELM_KUBEINSECURE_SKIP_TLS_VERIFY",
    "HELM_KUBETLS_SERVER_NAME",
    "HELM_KUBETOKEN",
    "HELM_NAMESPACE",
];

/// What takes the place of a program: it gets the arguments, and returns what the program would.
#[derive(Clone)]
pub(crate) struct Script(pub(crate) Arc<dyn Fn(Vec<String>) -> BoxFuture<'static, Output> + Send + Sync>);

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

/// A program with its working folder and environment.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    hint: &'static str,
    folder: Option<PathBuf>,
    environment: Vec<(&'static str, Option<OsString>)>,
    isolated: bool,
    user: Option<HelmUser>,
    stop: CancellationToken,
    grace: Duration,
    script: Option<Script>,
}

impl Program {
    /// Creates a program without access to a cluster. `hint` tells what to do if the program is missing.
    pub(crate) fn new(path: &Path, hint: &'static str) -> Self {
        let program = Self {
            path: path.to_owned(),
            hint,
            folder: None,
            environment: CLUSTER_VARIABLES.map(|name| (name, None)).into(),
            isolated: false,
            user: None,
            stop: CancellationToken::new(),
            grace: Duration::ZERO,
            script: None,
        };
        program.with("KUBECONFIG", "/dev/null")
    }

    /// Sets an environment variable.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, Some(value.into())));
        self
    }

    /// Sets the working folder.
    pub(crate) fn within(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Runs the program with the restrictions of [`isolation`], and as another user if there is one. All processes that it starts end with it.
    pub(crate) fn isolated(mut self, user: Option<HelmUser>) -> Self {
        (self.isolated, self.user) = (true, user);
        self
    }

    /// Ends runs when `stop` is cancelled.
    pub(crate) fn stopped_by(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }

    /// Runs a script in place of the program.
    pub(crate) fn scripted(self, script: Option<Script>) -> Self {
        Self { script, ..self }
    }

    /// Lets the program end by itself for this time after it is asked to stop, before it is killed.
    pub(crate) fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Runs the program and returns its standard output. Dropping the future kills the program.
    pub(crate) async fn run(&self, arguments: &[OsString]) -> Result<String, ProgramError> {
        self.run_with_input(arguments, "").await
    }

    /// Runs the program with some standard input, which other users of the machine cannot read.
    pub(crate) async fn run_with_input(&self, arguments: &[OsString], input: &str) -> Result<String, ProgramError> {
        let output = self.output(arguments, input).await?;
        let program = || self.path.clone();
        if !output.status.success() {
            if let Some(limit) = Some(&output).filter(|_| self.isolated).and_then(isolation::reached) {
                return Err(ProgramError::Limit { program: program(), limit });
            }
            let stderr = String::from_utf8_lossy(&output.stderr);
            let stderr = Some(stderr.trim()).filter(|text| !text.is_empty()).unwrap_or("no error message").to_owned();
            return Err(ProgramError::Failed { program: program(), status: output.status, stderr });
        }
        if output.stdout.len() as u64 > MAX_OUTPUT {
            return Err(ProgramError::TooMuchOutput { program: program() });
        }
        String::from_utf8(output.stdout).map_err(|_| ProgramError::NotText { program: program() })
    }

    async fn output(&self, arguments: &[OsString], input: &str) -> Result<Output, ProgramError> {
        let stopped = || ProgramError::Stopped { program: self.path.clone() };
        if self.stop.is_cancelled() {
            return Err(stopped());
        }
        if let Some(Script(script)) = &self.script {
            let arguments = arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
            return self.stop.run_until_cancelled(script(arguments)).await.ok_or_else(stopped);
        }
        let start = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => ProgramError::Missing { program: self.path.clone(), hint: self.hint },
            _ => ProgramError::Start { program: self.path.clone(), source },
        };
        let mut command = self.command(arguments);
        command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
        let mut child = command.spawn().map_err(start)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut running = Running { group: self.isolated.then(|| group_of(&child)).flatten(), child };
        let group = running.group;
        let ended = async {
            let status = running.child.wait().await;
            // What the program started and left behind would keep the pipes open.
            signal(group, Signal::KILL);
            status
        };
        let work = async {
            let (_, status, stdout, stderr) =
                tokio::join!(write(stdin, input), ended, read(stdout, MAX_OUTPUT + 1), read(stderr, MAX_MESSAGE));
            Ok::<_, io::Error>(Output { status: status?, stdout: stdout?, stderr: stderr? })
        };
        let mut work = pin!(work);
        tokio::select! {
            done = &mut work => done.map_err(start),
            () = self.stop.cancelled() => {
                signal(group, Signal::TERM);
                // After the grace time, dropping it kills the group.
                tokio::time::timeout(self.grace, work).await.map_err(|_| stopped())?.map_err(start)
            }
        }
    }

    fn command(&self, arguments: &[OsString]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
        if self.isolated {
            isolation::restrict(&mut command, self.user.as_ref().map(HelmUser::id));
        }
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command
    }
}

/// A running program. Dropping it kills its process group.
struct Running {
    child: Child,
    /// Its own process group, if it has one.
    group: Option<Pid>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Without a process ID the program has ended, and its group was killed then.
        if self.child.id().is_some() {
            signal(self.group, Signal::KILL);
        }
    }
}

/// Returns the process group that a program leads.
fn group_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}

fn signal(group: Option<Pid>, signal: Signal) {
    // All processes of the group may have ended already.
    let _ended = group.map(|group| kill_process_group(group, signal));
}

async fn write(stdin: Option<ChildStdin>, input: &str) {
    if let Some(mut stdin) = stdin {
        // If the program ends before it reads the input, its standard error tells why. The input fits into the pipe.
        let _unread = stdin.write_all(input.as_bytes()).await;
    }
}

/// Reads a pipe to its end, and returns at most `limit` bytes of it.
async fn read(pipe: Option<impl AsyncRead + Unpin>, limit: u64) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    if let Some(mut pipe) = pipe {
        (&mut pipe).take(limit).read_to_end(&mut kept).await?;
        // A full pipe would block the program.
        tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    }
    Ok(kept)
}
