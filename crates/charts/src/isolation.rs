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

/// Restricts a command. Its process group has its process ID.
///
/// On Linux, it ends when the thread that starts it ends, can gain no privileges, and has limits for memory, CPU time and
/// the size of files. It writes no core dumps, which would contain credentials.
pub(crate) fn restrict(command: &mut Command, user: Option<u32>) {
    command.process_group(0).env_clear();
    let inherited = INHERITED.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.envs(inherited).envs(GO);
    if let Some(id) = user {
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
