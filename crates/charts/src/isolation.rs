//! What helm may do when it works with the charts and clusters of others: its environment, its process group, its limits.
//!
//! A chart cannot run programs, but it decides how much time and memory helm needs, and a mistake in helm must not lead to
//! the credentials of the process that runs it.

use std::{os::unix::process::ExitStatusExt as _, process::Output};

#[cfg(target_os = "linux")]
use rustix::process::{Pid, Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit};
use tokio::process::Command;

/// The environment variables that helm inherits: where the machine's programs and certificates are. Its kubeconfig names the proxy.
const INHERITED: [&str; 4] = ["PATH", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The limit for helm's memory in MiB. It needs about 60 (helm 4.3), and more for large charts.
pub const MEMORY: u64 = 512;
/// The limit for helm's CPU time in seconds. A release that helm waits for needs a few in an hour.
const CPU: u64 = 300;
/// The limit for the size of a file that helm writes, in MiB: more than a chart or an index may have.
#[cfg(target_os = "linux")]
const FILE: u64 = 128;

/// Variables that limit Go programs: they return memory in time, use two cores at most, and print no stacks.
const GO: [(&str, &str); 3] = [("GOMEMLIMIT", "384MiB"), ("GOMAXPROCS", "2"), ("GOTRACEBACK", "none")];

/// The ID of a user that helm runs as, and of its group.
///
/// Files that only the controller may read, such as the token of its ServiceAccount, are then out of helm's reach, even if a
/// mistake in helm lets a chart read files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelmUser(u32);

/// Why helm cannot run as a user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelmUserError {
    /// It would have the rights of the controller.
    #[error("it must be another user than root and than that of the controller")]
    Same,
    /// The controller may not run programs as other users.
    #[error("the controller must run as root to run helm as another user")]
    NotRoot,
    /// The controller lacks capabilities.
    #[error("the controller needs the capabilities {0} to run helm as another user")]
    Capabilities(String),
    /// The operating system does not tell the capabilities.
    #[error("only Linux is supported")]
    System,
}

impl HelmUser {
    /// Checks that programs can be run as a user, and ended.
    ///
    /// # Errors
    ///
    /// When the user is root or that of this process, or when this process is not root with the capabilities that are needed: to
    /// run a program as another user, to give files to it, to read and delete those that it writes, and to kill it.
    pub fn new(id: u32) -> Result<Self, HelmUserError> {
        let own = rustix::process::geteuid().as_raw();
        if id == 0 || id == own {
            return Err(HelmUserError::Same);
        }
        if own != 0 {
            return Err(HelmUserError::NotRoot);
        }
        check_capabilities()?;
        Ok(Self(id))
    }

    pub(crate) fn id(self) -> u32 {
        self.0
    }
}

#[cfg(target_os = "linux")]
fn check_capabilities() -> Result<(), HelmUserError> {
    use rustix::thread::{CapabilitySet, capabilities};
    const NEEDED: [(CapabilitySet, &str); 5] = [
        (CapabilitySet::CHOWN, "CHOWN"),
        (CapabilitySet::DAC_OVERRIDE, "DAC_OVERRIDE"),
        (CapabilitySet::KILL, "KILL"),
        (CapabilitySet::SETGID, "SETGID"),
        (CapabilitySet::SETUID, "SETUID"),
    ];
    let own = capabilities(None).map_err(|_| HelmUserError::System)?.effective;
    let missing: Vec<_> = NEEDED.iter().filter(|(one, _)| !own.contains(*one)).map(|(_, name)| *name).collect();
    if missing.is_empty() { Ok(()) } else { Err(HelmUserError::Capabilities(missing.join(", "))) }
}

#[cfg(not(target_os = "linux"))]
fn check_capabilities() -> Result<(), HelmUserError> {
    Err(HelmUserError::System)
}

/// Restricts a command. Its process group has its process ID.
///
/// On Linux, it ends when the thread that starts it ends, can gain no privileges, and has limits for memory, CPU time and
/// the size of files. It writes no core dumps, which would contain credentials.
pub(crate) fn restrict(command: &mut Command, user: Option<HelmUser>) {
    command.process_group(0).env_clear();
    let inherited = INHERITED.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.envs(inherited).envs(GO);
    if let Some(HelmUser(id)) = user {
        // The process is root's, so its supplementary groups are dropped, too.
        command.uid(id).gid(id);
    }
    #[cfg(target_os = "linux")]
    {
        let parent = Pid::from_raw(i32::try_from(std::process::id()).unwrap_or_default());
        let limits =
            [(Resource::Data, MEMORY << 20), (Resource::Cpu, CPU), (Resource::Fsize, FILE << 20), (Resource::Core, 0)];
        // A limit can only be lowered.
        let limits = limits.map(|(resource, limit)| {
            let limit = Some(getrlimit(resource).maximum.map_or(limit, |maximum| maximum.min(limit)));
            (resource, Rlimit { current: limit, maximum: limit })
        });
        let apply = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // If the parent ended before the line above, no signal is sent.
            if getppid() != parent {
                return Err(std::io::ErrorKind::Interrupted.into());
            }
            rustix::thread::set_no_new_privs(true)?;
            for (resource, limit) in limits {
                setrlimit(resource, limit)?;
            }
            Ok(())
        };
        #[expect(unsafe_code, reason = "a few system calls, all safe between fork and exec; nothing is allocated")]
        // SAFETY: the closure makes system calls and touches no memory but its own copies of `parent` and `limits`.
        unsafe {
            command.pre_exec(apply);
        }
    }
}

/// Returns the limit that a failed program has reached, if it was one.
pub(crate) fn reached(output: &Output) -> Option<String> {
    // The last one is of a helm that was built with cgo and cannot start a thread.
    const OUT_OF_MEMORY: [&str; 3] = ["out of memory", "cannot allocate memory", "pthread_create failed"];
    let stderr = String::from_utf8_lossy(&output.stderr);
    if OUT_OF_MEMORY.iter().any(|text| stderr.contains(text)) {
        return Some(format!("{MEMORY} MiB of memory"));
    }
    let killed = output.status.signal() == Some(9);
    killed.then(|| format!("{CPU} seconds of CPU time, or the machine ran out of memory"))
}
