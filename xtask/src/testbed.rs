//! `cargo xtask testbed`: control planes that run until they are stopped.

mod state;
mod supervise;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use billhook_testkit::control_plane::Binaries;
use clap::Subcommand;
use rustix::process::{Pid, Signal};

use self::state::{Name, Slot, State};
use crate::progress;

/// The interval between checks of a supervisor's state.
const PAUSE: Duration = Duration::from_millis(50);

/// The time limit for a supervisor to stop, which usually takes a fraction of a second.
const DOWN_LIMIT: Duration = Duration::from_secs(20);

/// Start and stop control planes: etcd, kube-apiserver and kube-controller-manager on loopback ports
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Start a control plane, and build missing programs first; use it with eval "$(cargo xtask testbed up)"
    Up(NameArg),
    /// Stop a control plane and remove its data
    Down {
        #[command(flatten)]
        name: NameArg,
        /// Stop all control planes
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// List the running control planes
    List,
    /// Print the variables of a running control plane, for eval
    Env(NameArg),
    /// Run a control plane until SIGTERM; started by `up`
    #[command(hide = true)]
    Supervise(NameArg),
}

#[derive(clap::Args)]
struct NameArg {
    /// Name of the control plane; several can run side by side
    #[arg(long, default_value = "default")]
    name: Name,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Action::Up(arg) => up(&arg.name)?,
        Action::Down { name, all: false } => down(&name.name)?,
        Action::Down { all: true, .. } => down_all()?,
        Action::List => list()?,
        Action::Env(arg) => print(&exports(&running(&arg.name)?)?)?,
        Action::Supervise(arg) => supervise::run(&arg.name)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn up(name: &Name) -> Result<()> {
    // Here and not in the supervisor, so that the progress is visible.
    Binaries::locate_or_build(progress)?;
    Binaries::helm(progress)?;
    let mut supervisor: Option<Supervisor> = None;
    let state = loop {
        match state::look(name)? {
            Slot::Running(state) => break state,
            Slot::Starting => {}
            Slot::Empty => match &mut supervisor {
                None => supervisor = Some(Supervisor::start(name)?),
                Some(supervisor) => supervisor.check()?,
            },
        }
        std::thread::sleep(PAUSE);
    };
    print(&exports(&state)?)?;
    let verb = if supervisor.is_some() { "is running" } else { "is already running" };
    progress(&format!(
        "control plane {name} {verb} at {}; to stop it: cargo xtask testbed down --name {name}",
        state.url
    ));
    Ok(())
}

fn down(name: &Name) -> Result<()> {
    let state = loop {
        match state::look(name)? {
            Slot::Running(state) => break state,
            Slot::Starting => std::thread::sleep(PAUSE),
            Slot::Empty => {
                progress(&format!("control plane {name} is not running"));
                return Ok(());
            }
        }
    };
    let pid =
        i32::try_from(state.pid).ok().and_then(Pid::from_raw).context("the state file has no valid process id")?;
    let waits = DOWN_LIMIT.as_millis() / PAUSE.as_millis();
    for signal in [Signal::TERM, Signal::KILL] {
        // It may have ended on its own in the meantime.
        let _ = rustix::process::kill_process(pid, signal);
        for _ in 0..waits {
            if matches!(state::look(name)?, Slot::Empty) {
                progress(&format!("control plane {name} is stopped"));
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
    }
    bail!("failed to stop control plane {name}; its supervisor has the process id {}", state.pid)
}

fn down_all() -> Result<()> {
    for name in state::names()? {
        if !matches!(state::look(&name)?, Slot::Empty) {
            down(&name)?;
        }
    }
    Ok(())
}

fn list() -> Result<()> {
    let mut rows = vec![["NAME".to_owned(), "SERVER".to_owned(), "KUBECONFIG".to_owned()]];
    for name in state::names()? {
        match state::look(&name)? {
            Slot::Running(state) => {
                rows.push([name.to_string(), state.url, state.kubeconfig.display().to_string()]);
            }
            Slot::Starting => rows.push([name.to_string(), "(starting)".to_owned(), String::new()]),
            Slot::Empty => {}
        }
    }
    if rows.len() == 1 {
        progress("no control plane is running");
        return Ok(());
    }
    let mut text = String::new();
    for [name, url, kubeconfig] in rows {
        writeln!(text, "{name:<16} {url:<24} {kubeconfig}")?;
    }
    print(&text)
}

fn running(name: &Name) -> Result<State> {
    match state::look(name)? {
        Slot::Running(state) => Ok(state),
        Slot::Starting => bail!("control plane {name} is still starting"),
        Slot::Empty => bail!("control plane {name} is not running; to start it: cargo xtask testbed up --name {name}"),
    }
}

/// Returns the shell commands that set the variables of a control plane.
fn exports(state: &State) -> Result<String> {
    let folders: Vec<String> = state.path.iter().map(|folder| quote(folder)).collect::<Result<_>>()?;
    Ok(format!("export KUBECONFIG={}\nexport PATH={}:\"$PATH\"\n", quote(&state.kubeconfig)?, folders.join(":")))
}

/// Quotes a path for a POSIX shell.
fn quote(path: &Path) -> Result<String> {
    let path = path.to_str().with_context(|| format!("failed to print {}: it is not UTF-8", path.display()))?;
    Ok(format!("'{}'", path.replace('\'', r"'\''")))
}

fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("failed to write to standard output")
}

/// A supervisor started by this process.
struct Supervisor {
    child: Child,
    log: PathBuf,
}

impl Supervisor {
    fn start(name: &Name) -> Result<Self> {
        let log = state::log(name)?;
        let output = std::fs::File::create(&log).with_context(|| format!("failed to create {}", log.display()))?;
        // Cargo may have replaced this program's file during a build; the kernel still has the running one.
        let running = PathBuf::from("/proc/self/exe");
        let program = if running.exists() { Ok(running) } else { std::env::current_exe() };
        let mut command = Command::new(program.context("failed to find this program")?);
        command.arg0("xtask");
        command.args([OsString::from("testbed"), "supervise".into(), "--name".into(), name.to_string().into()]);
        // It outlives the shell, so it must not keep its files open: `$(…)` waits for the end of standard output.
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let child = command.spawn().context("failed to start the supervisor")?;
        Ok(Self { child, log })
    }

    /// Fails if the supervisor has ended.
    fn check(&mut self) -> Result<()> {
        if self.child.try_wait().context("failed to wait for the supervisor")?.is_some() {
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            bail!("the control plane did not start:\n{}", said.trim_end());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_survive_blanks_and_quotes() {
        let state = State {
            pid: 1,
            url: String::new(),
            kubeconfig: PathBuf::from("/tmp/it's here/kubeconfig"),
            path: vec![PathBuf::from("/a/bin"), PathBuf::from("/b/bin")],
        };
        let expected = "export KUBECONFIG='/tmp/it'\\''s here/kubeconfig'\nexport PATH='/a/bin':'/b/bin':\"$PATH\"\n";
        assert_eq!(exports(&state).unwrap(), expected);
    }
}
