//! The controller, or another command, in a separate process.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::Write as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use billhook::{Cluster, World};

/// The variable that makes this program a controller; contains its arguments, separated by newlines.
const ARGUMENTS: &str = "BILLHOOK_TEST_CONTROLLER";

/// Returns the arguments if this process is a controller; `None` in the test itself.
pub fn arguments() -> Option<Vec<OsString>> {
    let arguments = std::env::var(ARGUMENTS).ok()?;
    Some(arguments.lines().map(OsString::from).collect())
}

/// Runs the controller. SIGTERM interrupts it.
pub fn run(arguments: Vec<OsString>) -> i32 {
    let (interrupt, interrupts) = tokio::sync::mpsc::channel(1);
    let world = World {
        args: arguments,
        env: std::env::vars().collect::<BTreeMap<_, _>>(),
        directory: std::env::current_dir().unwrap_or_default(),
        stdin: Box::new(std::io::empty()),
        stdin_terminal: false,
        stdout: Box::new(std::io::stdout()),
        stdout_terminal: false,
        stderr: Box::new(std::io::stderr()),
        stderr_terminal: false,
        interrupts,
        connect: Arc::new(Cluster::connect),
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => i32::from(runtime.block_on(async {
            if let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
                tokio::spawn(async move {
                    while terminate.recv().await.is_some() {
                        interrupt.try_send(()).ok();
                    }
                });
            }
            billhook::run(world).await
        })),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            1
        }
    }
}

/// A running controller, which is killed when this is dropped.
pub struct Controller(Child);

impl Controller {
    /// Starts a controller.
    pub fn start(kubeconfig: &Path, flags: &[&str]) -> Result<Self> {
        let arguments = ["controller", "--mode", "standalone"].iter().chain(flags);
        Self::command(kubeconfig, &arguments.copied().collect::<Vec<_>>())
    }

    /// Starts any command of billhook.
    pub fn command(kubeconfig: &Path, arguments: &[&str]) -> Result<Self> {
        Self::spawn(kubeconfig, arguments, Stdio::inherit())
    }

    /// Starts any command of billhook, and writes what it tells to a file.
    pub fn logged(kubeconfig: &Path, arguments: &[&str], log: &Path) -> Result<Self> {
        Self::spawn(kubeconfig, arguments, std::fs::File::create(log)?.into())
    }

    fn spawn(kubeconfig: &Path, arguments: &[&str], stderr: Stdio) -> Result<Self> {
        let arguments: Vec<&str> = std::iter::once("billhook").chain(arguments.iter().copied()).collect();
        let child = Command::new(std::env::current_exe()?)
            .env(ARGUMENTS, arguments.join("\n"))
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn();
        Ok(Self(child.context("start a process")?))
    }

    /// Returns its exit code once it has ended; none if it was killed.
    pub fn ended(&mut self) -> Result<Option<Option<i32>>> {
        Ok(self.0.try_wait()?.map(|status| status.code()))
    }

    /// Returns the number of the process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Asks it to end, with SIGTERM.
    pub fn terminate(&self) -> Result<()> {
        self.signal(rustix::process::Signal::TERM)
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        Ok(self.0.kill()?)
    }

    /// Freezes it with SIGSTOP.
    pub fn freeze(&self) -> Result<()> {
        self.signal(rustix::process::Signal::STOP)
    }

    /// Resumes it with SIGCONT.
    pub fn thaw(&self) -> Result<()> {
        self.signal(rustix::process::Signal::CONT)
    }

    fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let pid = i32::try_from(self.0.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .context("the process id is invalid")?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }
}

impl Drop for Controller {
    /// Kills it with SIGKILL.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
