//! The `billhook` process: builds a [`World`], handles signals, and returns the exit code.

use std::{
    ffi::OsString,
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
    sync::Arc,
};

use billhook::{Cluster, Paint, World};
use tokio::sync::mpsc;
use tracing_subscriber::{
    field::MakeExt as _,
    fmt::{FormatFields, format},
};

/// The exit code of a run that was interrupted.
const INTERRUPTED: i32 = 3;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    trace(billhook::verbosity(&args));
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

/// Logs to standard error: with `-v` our own actions and requests, with `-vv` also those of the HTTP client.
fn trace(verbosity: u8) {
    let filter = match verbosity {
        0 => return,
        1 => {
            "warn,billhook=debug,billhook_cluster=debug,billhook_deployer=debug,billhook_engine=debug,billhook_extension=debug,\
             kube_client=debug"
        }
        2 => "debug",
        _ => "trace",
    };
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_target(verbosity > 1)
        .fmt_fields(fields())
        .init();
}

/// Formats the fields of a log line. They are all that a line quotes from a cluster, so they are escaped like other output.
fn fields() -> impl for<'writer> FormatFields<'writer> {
    let field = |writer: &mut format::Writer<'_>, field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
        let value = Paint(false).line(&format!("{value:?}"));
        match field.name() {
            "message" => write!(writer, "{value}"),
            name => write!(writer, "{name}={value}"),
        }
    };
    format::debug_fn(field).delimited(" ")
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_lines_are_escaped() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(true)
            .without_time()
            .with_target(false)
            .fmt_fields(super::fields())
            .finish();
        let denial = "no\x1b[2J\ndeleted a\u{202e}";
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::info_span!("item", name = %denial).entered();
            tracing::warn!(reason = %denial, attempt = 2, "{denial}");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let escaped = r"no\x1b[2J\ndeleted a\u{202e}";
        assert!(text.ends_with(&format!("{escaped} reason={escaped} attempt=2\n")), "{text:?}");
        assert_eq!(
            (text.matches('\n').count(), text.contains("\x1b[2J"), text.contains('\u{202e}')),
            (1, false, false)
        );
    }
}
