//! Runs a program and measures its wall time and peak memory.
//!
//! A small helper process starts the program. On Linux the initial peak of a program is that of the process that forked it,
//! so a large parent would be measured instead of the program.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// The arguments of the helper.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File for the result
    #[arg(long)]
    report: PathBuf,
    /// Program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The measurements of a program.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Taken {
    /// The time from before the start until the end was observed, in seconds.
    pub(crate) seconds: f64,
    /// The peak of its resident memory, in MiB.
    pub(crate) peak_mib: f64,
    /// Its exit code, unless a signal ended it.
    pub(crate) exit: Option<i32>,
}

/// Runs the helper, which runs the program, and kills it when standard input ends, which happens when the parent process
/// ends.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (program, rest) = args.command.split_first().context("the program is missing")?;
    let started = Instant::now();
    let child = Command::new(program).args(rest).stdin(Stdio::null()).spawn();
    let child = child.with_context(|| format!("failed to start {}", program.display()))?;
    let pid = Pid::from_child(&child);

    let over = Arc::new(Mutex::new(false));
    std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            let over = over.lock().unwrap_or_else(PoisonError::into_inner);
            if !*over {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    });
    // Not reaped yet: until `over` is set, the process id still belongs to the child.
    rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        .context("failed to wait")?;
    let seconds = started.elapsed().as_secs_f64();
    *over.lock().unwrap_or_else(PoisonError::into_inner) = true;
    let (status, peak_kib) = reap(pid)?;

    let exit = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    let taken = Taken { seconds, peak_mib: peak_kib / 1024.0, exit };
    let text = serde_json::to_vec(&taken)?;
    std::fs::write(&args.report, text).with_context(|| format!("failed to write {}", args.report.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Reaps a child that has ended; returns its status and its peak memory in KiB.
fn reap(pid: Pid) -> Result<(i32, f64)> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    #[expect(unsafe_code, reason = "neither std nor rustix returns the memory of a child")]
    // SAFETY: both pointers are valid for writes, and all bytes zero are a valid rusage.
    let (reaped, usage) = unsafe {
        let reaped = libc::wait4(pid.as_raw_nonzero().get(), &raw mut status, 0, usage.as_mut_ptr());
        (reaped, usage.assume_init())
    };
    ensure!(reaped == pid.as_raw_nonzero().get(), "failed to reap a child: {}", std::io::Error::last_os_error());
    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 KiB")]
    let peak = usage.ru_maxrss as f64;
    // On macOS the unit is bytes.
    Ok((status, if cfg!(target_os = "macos") { peak / 1024.0 } else { peak }))
}

/// A program to measure.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) program: &'a Path,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(&'static str, OsString)>,
    /// The time after which it is killed.
    pub(crate) cap: Duration,
    /// The folder for its report and its output.
    pub(crate) folder: &'a Path,
}

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) taken: Taken,
    /// Whether it was killed at the time limit.
    pub(crate) capped: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a program to its end, or until its time limit.
pub(crate) async fn measure(job: Job<'_>) -> Result<Ended> {
    let file = |name: &str| job.folder.join(name);
    let output = |name: &str| std::fs::File::create(file(name)).context("failed to create a file for the output");
    let mut helper = tokio::process::Command::new(std::env::current_exe().context("failed to find this program")?);
    helper.arg("measure").arg("--report").arg(file("taken.json")).arg("--").arg(job.program).args(&job.args);
    // The environment is always the same, and no files in the user's home are read.
    helper.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", job.folder);
    helper.envs(job.env.iter().map(|(name, value)| (*name, value)));
    helper.stdin(Stdio::piped()).stdout(output("stdout")?).stderr(output("stderr")?).kill_on_drop(true);
    let mut child = helper.spawn().context("failed to start the measuring program")?;
    // Dropping this kills the program, on every return path.
    let leash = child.stdin.take();
    let ended = tokio::time::timeout(job.cap, child.wait()).await;
    let capped = ended.is_err();
    drop(leash);
    let status = match ended {
        Ok(status) => status,
        Err(_) => child.wait().await,
    };
    let status = status.context("failed to wait for the measuring program")?;
    let read = |name: &str| std::fs::read(file(name)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let (stdout, stderr) = (read("stdout")?, read("stderr")?);
    ensure!(status.success(), "failed to measure {}: {}", job.program.display(), last_lines(&stderr));
    let taken = serde_json::from_str(&read("taken.json")?).context("failed to read what was measured")?;
    Ok(Ended { taken, capped, stdout, stderr })
}

/// Returns the end of an output for error messages.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_shown() {
        let text: String = (0..12).map(|line| format!("{line}\n")).collect();
        assert_eq!(last_lines(&text), (2..12).map(|line| line.to_string()).collect::<Vec<_>>().join("\n"));
        assert_eq!(last_lines(""), "");
    }
}
