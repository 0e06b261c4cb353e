//! `cargo xtask testbed supervise`: the process whose children the servers are.

use anyhow::{Context as _, Result};
use billhook_testkit::control_plane::{Binaries, ControlPlane, Options};
use tokio::signal::unix::{SignalKind, signal};

use super::state::{self, Name, State};
use crate::progress;

/// Holds a control plane until SIGTERM. However this process ends, the control plane ends with it.
pub(super) fn run(name: &Name) -> Result<()> {
    // Leaves the terminal, whose end and whose Ctrl-C are no concern of the control plane. Fails if it has left already.
    let _ = rustix::process::setsid();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.context("failed to start a runtime")?;
    let _enter = runtime.enter();
    // From here on SIGTERM is remembered instead of ending the process.
    let mut terminate = signal(SignalKind::terminate()).context("failed to wait for SIGTERM")?;

    let lock = state::take(name)?;
    let control_plane = ControlPlane::start(&Options::default())?;
    let programs = [control_plane.binaries().kubectl().to_owned(), Binaries::helm(progress)?];
    let state = State {
        pid: std::process::id(),
        url: control_plane.url(),
        kubeconfig: control_plane.kubeconfig_path(),
        path: programs.iter().filter_map(|program| program.parent()).map(Into::into).collect(),
    };
    state::publish(name, &state)?;

    runtime.block_on(terminate.recv());

    // In this order: once the lock is free, nothing is left.
    state::clear(name)?;
    drop(control_plane);
    drop(lock);
    Ok(())
}
