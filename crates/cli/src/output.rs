//! The one place through which everything is printed.

use std::{
    io::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anstyle::{AnsiColor, Style};
use indicatif::MultiProgress;

use crate::error::{CommandError, Problem};

/// Whether to color text; it is readable without colors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paint(pub bool);

impl Paint {
    fn with(self, style: Style, text: &str) -> String {
        if self.0 && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// For headings.
    pub(crate) fn bold(self, text: &str) -> String {
        self.with(Style::new().bold(), text)
    }

    /// For details.
    pub(crate) fn dim(self, text: &str) -> String {
        self.with(Style::new().dimmed(), text)
    }

    /// For success.
    pub(crate) fn good(self, text: &str) -> String {
        self.with(AnsiColor::Green.on_default(), text)
    }

    /// For warnings, and for what is being waited for.
    pub(crate) fn warn(self, text: &str) -> String {
        self.with(AnsiColor::Yellow.on_default(), text)
    }

    /// For errors and dangers.
    pub(crate) fn bad(self, text: &str) -> String {
        self.with(AnsiColor::Red.on_default().bold(), text)
    }
}

/// Prints results to standard output and everything else to standard error. It ignores that a reader has closed its end.
#[derive(Clone)]
pub struct Printer(Arc<Inner>);

struct Inner {
    out: Mutex<Stream>,
    err: Mutex<Stream>,
    out_paint: Paint,
    err_paint: Paint,
    /// The live view on the terminal, which is hidden while a line is printed.
    live: Mutex<Option<MultiProgress>>,
}

struct Stream {
    writer: Box<dyn Write + Send>,
    closed: bool,
}

impl Stream {
    fn write(&mut self, text: &str) {
        if !self.closed {
            let written = self.writer.write_all(text.as_bytes()).and_then(|()| self.writer.flush());
            self.closed = written.is_err();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Printer {
    /// Creates a printer from standard output and standard error.
    pub fn new(out: (Box<dyn Write + Send>, Paint), err: (Box<dyn Write + Send>, Paint)) -> Self {
        let stream = |writer| Mutex::new(Stream { writer, closed: false });
        Self(Arc::new(Inner {
            out: stream(out.0),
            err: stream(err.0),
            out_paint: out.1,
            err_paint: err.1,
            live: Mutex::new(None),
        }))
    }

    /// Returns the colors of standard output.
    pub(crate) fn out_paint(&self) -> Paint {
        self.0.out_paint
    }

    /// Returns the colors of standard error.
    pub(crate) fn err_paint(&self) -> Paint {
        self.0.err_paint
    }

    /// Prints a line to standard output.
    pub(crate) fn out(&self, line: &str) {
        self.write(&self.0.out, &format!("{line}\n"));
    }

    /// Prints a line to standard error.
    pub(crate) fn err(&self, line: &str) {
        self.write(&self.0.err, &format!("{line}\n"));
    }

    /// Prints a question without a line break.
    pub(crate) fn ask(&self, question: &str) {
        self.write(&self.0.err, question);
    }

    /// Prints a result of several lines, and adds a missing line break.
    pub(crate) fn text(&self, text: &str) {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        self.write(&self.0.out, &format!("{text}{end}"));
    }

    /// Prints a part of a result unchanged.
    #[cfg(feature = "sandbox")]
    pub(crate) fn raw(&self, piece: &str) {
        self.write(&self.0.out, piece);
    }

    /// Prints a result as JSON on one line.
    pub(crate) fn json_line<T: serde::Serialize>(&self, value: &T) {
        if let Ok(line) = serde_json::to_string(value) {
            self.out(&line);
        }
    }

    /// Prints a result as indented JSON.
    pub(crate) fn json<T: serde::Serialize>(&self, value: &T) {
        if let Ok(text) = serde_json::to_string_pretty(value) {
            self.out(&text);
        }
    }

    /// Prints the problems and hints of an error.
    pub(crate) fn error(&self, error: &CommandError, program: &str) {
        let paint = self.err_paint();
        for problem in &error.problems {
            match problem {
                Problem::Rendered(text) => self.err(text.trim_end()),
                Problem::Message(text, causes) => {
                    self.err(&format!("{} {}", paint.bad("error:"), indented(text)));
                    causes.iter().for_each(|cause| self.err(&format!("  caused by: {}", indented(cause))));
                }
            }
        }
        for hint in &error.hints {
            let hint = hint.replace("billhook ", &format!("{program} "));
            self.err(&format!("{} {hint}", paint.good("hint:")));
        }
    }

    /// Sets the live view that is drawn from now on.
    pub(crate) fn set_live(&self, live: Option<MultiProgress>) {
        *lock(&self.0.live) = live;
    }

    fn write(&self, stream: &Mutex<Stream>, text: &str) {
        match &*lock(&self.0.live) {
            Some(live) => live.suspend(|| lock(stream).write(text)),
            None => lock(stream).write(text),
        }
    }
}

/// Indents all lines but the first.
fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n  ")
}
