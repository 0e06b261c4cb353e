//! The `billhook` process: builds a [`World`], handles signals, and returns the exit code.

use std::{
    ffi::OsString,
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
    sync::Arc,
};

use billhook::{Cluster, World};
use tokio::sync::mpsc;

/// The exit code of a run that was interrupted.
const INTERRUPTED: i32 = 3;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let terminal = std::io::stderr().is_terminal();
    if let Some(logging) = billhook::logging(&args, terminal) {
        logging.start(std::io::stderr, terminal && std::env::var_os("NO_COLOR").is_none());
    }
    let (interrupt, interrupts) = mpsc::channel(1);
    let started = watch_signals(interrupt);
    let runtime = started.and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: failed to start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(billhook::run(world(args, interrupts)));
    // A thread may still be reading the answer to a question.
    runtime.shutdown_background();
    ExitCode::from(code)
}

fn world(args: Vec<OsString>, interrupts: mpsc::Receiver<()>) -> World {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    World {
        args,
        env: std::env::vars_os().filter_map(text).collect(),
        directory: std::env::current_dir().unwrap_or_default(),
        stdin: Box::new(std::io::stdin()),
        stdin_terminal: std::io::stdin().is_terminal(),
        stdout: Box::new(std::io::stdout()),
        stdout_terminal: std::io::stdout().is_terminal(),
        stderr: Box::new(std::io::stderr()),
        stderr_terminal: std::io::stderr().is_terminal(),
        interrupts,
        connect: Arc::new(Cluster::connect),
    }
}

/// Turns the first Ctrl-C or SIGTERM into a message, and ends the process at the second.
///
/// It runs in its own thread, so that it also works while the main thread is blocked on its output.
fn watch_signals(interrupt: mpsc::Sender<()>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _guard = runtime.enter();
        Signals::new()?
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            signals.next().await;
            let _ = interrupt.try_send(());
            signals.next().await;
        });
        billhook::restore_terminal();
        let _ = writeln!(std::io::stderr(), "{}", billhook::INTERRUPTED_TWICE);
        std::process::exit(INTERRUPTED);
    })?;
    Ok(())
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(windows)]
struct Signals(tokio::signal::windows::CtrlC);

#[cfg(windows)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    async fn next(&mut self) {
        self.0.recv().await;
    }
}
