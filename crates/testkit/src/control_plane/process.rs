//! Child processes and folders that do not outlive this process, however it ends.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal};

/// The number of bytes from the end of a log that errors contain: some twenty lines.
const TAIL: u64 = 4096;

/// Spawns `command` so that the kernel kills it when this process ends.
///
/// The kernel sends that signal when the *thread* that spawned the child ends, and the thread of a test ends long before its
/// process. Therefore a single thread that never ends spawns all children.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();

    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, reply) in jobs {
                // The receiver is dropped if the caller's thread has ended.
                let _ = reply.send(bind_to_this_process(&mut command).spawn());
            }
        });
        sender
    });
    let (reply, answer) = mpsc::channel();
    let gone = |_| io::Error::other("the thread that starts processes has ended");
    spawner.send((command, reply)).map_err(|_| gone(mpsc::RecvError))?;
    answer.recv().map_err(gone)?
}

/// Makes the kernel send SIGKILL to the child when this process ends, and shields the child from Ctrl-C in the terminal.
fn bind_to_this_process(command: &mut Command) -> &mut Command {
    // A child in its own process group does not receive Ctrl-C; it ends when this process ends, and not before.
    command.process_group(0);
    #[cfg(target_os = "linux")]
    {
        let parent = Pid::from_raw(i32::try_from(std::process::id()).unwrap_or_default());
        let bind = move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // If the parent ended before the line above, no signal is sent.
            if rustix::process::getppid() == parent { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
        };
        #[expect(unsafe_code, reason = "two system calls, both safe between fork and exec; nothing is allocated")]
        // SAFETY: the closure makes two system calls and touches no memory but its own copy of `parent`.
        unsafe {
            command.pre_exec(bind);
        }
    }
    command
}

/// A server of the control plane, which is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Server {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts `program`, and appends its output to `<name>.log` in `folder`.
    pub(super) fn start(name: &'static str, program: &Path, args: &[String], folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let output = OpenOptions::new().create(true).append(true).open(&log).context("failed to open a log file")?;
        let mut command = Command::new(program);
        command.args(args).current_dir(folder).stdin(Stdio::null());
        command.stdout(output.try_clone().context("failed to share a log file")?).stderr(output);
        let child = spawn(command).with_context(|| format!("failed to start {}", program.display()))?;
        Ok(Self { name, child, log })
    }

    /// Returns the process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        rustix::process::kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("failed to signal {}", self.name))
    }

    /// Calls `ready` every `pause` until it returns true; fails with the end of the log if the server ends or takes too long.
    pub(super) fn wait_until(
        &mut self,
        what: &str,
        deadline: Deadline,
        pause: Duration,
        ready: impl Fn() -> bool,
    ) -> Result<()> {
        loop {
            if let Some(status) = self.child.try_wait().with_context(|| format!("failed to wait for {}", self.name))? {
                bail!("{} ended ({status}) before {what}; the end of its log:\n{}", self.name, tail(&self.log));
            }
            if ready() {
                return Ok(());
            }
            if deadline.passed() {
                bail!(
                    "{} is running, but timed out before {what}; the end of its log:\n{}",
                    self.name,
                    tail(&self.log)
                );
            }
            std::thread::sleep(pause);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors mean that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A time limit for waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant, Duration);

impl Deadline {
    /// Starts the time limit.
    #[expect(clippy::disallowed_methods, reason = "processes run in real time, also under tests with a paused clock")]
    pub(super) fn after(limit: Duration) -> Self {
        Self(Instant::now(), limit)
    }

    /// Returns the time since the start.
    pub(super) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Returns whether the limit has passed.
    pub(super) fn passed(self) -> bool {
        self.elapsed() > self.1
    }
}

/// Runs a command to its end with its output in `log`, and calls `tick` repeatedly.
pub(super) fn run(mut command: Command, log: &Path, mut tick: impl FnMut()) -> Result<ExitStatus> {
    let output = File::create(log).context("failed to create a log file")?;
    command.stdin(Stdio::null()).stdout(output.try_clone().context("failed to share a log file")?).stderr(output);
    let mut child = spawn(command).context("failed to start a command")?;
    loop {
        if let Some(status) = child.try_wait().context("failed to wait for a command")? {
            return Ok(status);
        }
        tick();
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the last lines of a file, or an empty string if it cannot be read.
pub(super) fn tail(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        // The first line is incomplete, unless the whole file was read.
        let whole = if length > TAIL { text.split_once('\n').map_or(&*text, |(_, rest)| rest) } else { &text };
        Ok(whole.trim_end().to_owned())
    };
    read().unwrap_or_default()
}

/// The prefix of the folder names of all runs.
const PREFIX: &str = "billhook-testbed-run-";

/// The file in such a folder that its owner locks until it ends.
const OWNER: &str = "owner";

/// A temporary folder that is removed when this is dropped, and also when the process is killed.
#[derive(Debug)]
pub(super) struct RunFolder {
    path: PathBuf,
    /// The lock that prevents other processes from removing the folder.
    _owner: File,
    /// The process that removes the folder when its standard input ends, which happens however this process ends.
    janitor: Child,
}

impl RunFolder {
    /// Creates a folder that only this user can read, after removing those whose owners have ended.
    pub(super) fn create() -> Result<Self> {
        sweep(&std::env::temp_dir());
        let folder =
            tempfile::Builder::new().prefix(PREFIX).tempdir().context("failed to create a temporary folder")?;
        // Locked before it gets its name: other processes do not remove a folder without an owner file.
        let unnamed = folder.path().join("owner.new");
        let owner = File::create(&unnamed).context("failed to create the owner file")?;
        owner.lock().context("failed to lock the owner file")?;
        fs::rename(&unnamed, folder.path().join(OWNER)).context("failed to name the owner file")?;

        // The servers are killed at the same time and may still write, hence the second and third attempt.
        let script = r#"cat >/dev/null; for pause in 0.1 1 5; do rm -rf -- "$1" && exit; sleep $pause; done"#;
        let janitor = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(folder.path())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("failed to start sh")?;
        Ok(Self { path: folder.keep(), _owner: owner, janitor })
    }

    /// Returns the path of the folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        // If the janitor was killed, the next run removes the folder.
        let _ = self.janitor.wait();
    }
}

/// Removes the folders in `root` whose owners have ended; those of other users cannot be opened and remain.
fn sweep(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(owner) = File::open(entry.path().join(OWNER)) else { continue };
        if !matches!(owner.try_lock(), Err(TryLockError::WouldBlock)) {
            // Another process may be removing it too.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_removed_only_after_its_owner_has_ended() {
        let root = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let folder = root.path().join(format!("{PREFIX}{name}"));
            fs::create_dir(&folder).unwrap();
            (folder.clone(), File::create(folder.join(OWNER)).unwrap())
        };
        let (left, _) = make("left");
        let (owned, owner) = make("owned");
        owner.lock().unwrap();

        sweep(root.path());

        assert!(!left.exists());
        assert!(owned.exists());
    }

    #[test]
    fn the_tail_starts_at_a_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, "a line of some length\n".repeat(1000) + "the last line\n").unwrap();
        let tail = tail(&log);
        assert!(tail.starts_with("a line of"), "{tail}");
        assert!(tail.ends_with("the last line"), "{tail}");
    }
}
