//! `cargo xtask testbed supervise`: the parent process of the servers.

use anyhow::{Context as _, Result};
use billhook_testkit::control_plane::{Binaries, ControlPlane, Options};
use tokio::signal::unix::{SignalKind, signal};

use super::state::{self, Name, State};
use crate::progress;

/// Runs a control plane until SIGTERM. However this process ends, the control plane ends with it.
pub(super) fn run(name: &Name) -> Result<()> {
    // Leaves the terminal, so that closing it or pressing Ctrl-C does not affect the control plane. Fails if that is done.
    let _ = rustix::process::setsid();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.context("failed to start a runtime")?;
    let _enter = runtime.enter();
    // From now on SIGTERM is handled instead of ending the process.
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

    // In this order: everything is removed before the lock is released.
    state::clear(name)?;
    drop(control_plane);
    drop(lock);
    Ok(())
}
