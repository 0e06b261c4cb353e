//! What is logged to standard error: the lines of commands that keep running, and the events of `tracing`.

mod subscriber;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    args::{GlobalArgs, LogFormat, LogLevel},
    clock::{now, timestamp},
    error::CommandError,
    output::{Printer, json},
};

/// What is logged, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logging {
    /// The least important level; none if nothing is logged.
    level: Option<LogLevel>,
    format: LogFormat,
    verbose: u8,
}

impl Logging {
    /// Reads the flags of a command that keeps running or not, with the format that it uses if none is given.
    pub(crate) fn new(global: &GlobalArgs, keeps_running: bool, format: LogFormat) -> Self {
        let default = match global.verbose {
            0 => keeps_running.then_some(LogLevel::Info),
            _ => Some(LogLevel::Debug),
        };
        let (level, format) = (global.log_level.or(default), global.log_format.unwrap_or(format));
        Self { level, format, verbose: global.verbose }
    }
}

/// Prints lines with the time, or events as JSON.
#[derive(Clone)]
pub(crate) struct Log {
    printer: Printer,
    /// Whether events are the results of the command, on standard output.
    results: bool,
    logging: Logging,
}

/// An event as a line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'static str>,
    time: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<&'static str>,
    #[serde(flatten)]
    fields: Map<String, Value>,
    text: &'a str,
}

impl Log {
    pub(crate) fn new(printer: Printer, results: bool, logging: Logging) -> Self {
        Self { printer, results, logging }
    }

    /// Makes one that prints nothing.
    #[cfg(test)]
    pub(crate) fn silent() -> Self {
        let nowhere = || (Box::new(std::io::sink()) as Box<dyn std::io::Write + Send>, crate::output::Paint::default());
        let logging = Logging { level: None, format: LogFormat::Text, verbose: 0 };
        Self { printer: Printer::new(nowhere(), nowhere()), results: false, logging }
    }

    /// Tells something that is as it should be.
    pub(crate) fn say(&self, event: &'static str, fields: Value, text: &str) {
        self.line(LogLevel::Info, event, fields, text);
    }

    /// Tells something that a person should look at.
    pub(crate) fn warn(&self, event: &'static str, fields: Value, text: &str) {
        self.line(LogLevel::Warn, event, fields, text);
    }

    /// Tells the error that ends the command, if the log is JSON. Returns whether it was told.
    pub(crate) fn fail(&self, error: &CommandError) -> bool {
        if self.logging.level.is_none() || self.logging.format != LogFormat::Json {
            return false;
        }
        self.line(LogLevel::Error, "failed", Value::Object(Map::new()), &error.in_one_line());
        true
    }

    fn line(&self, level: LogLevel, event: &'static str, fields: Value, text: &str) {
        let Value::Object(fields) = fields else { return };
        if self.results {
            return self.printer.json_line(&Line { event: Some(event), time: &now(), level: None, fields, text });
        }
        if self.logging.level.is_some_and(|least| level > least) {
            return;
        }
        let paint = self.printer.err_paint();
        match self.logging.format {
            LogFormat::Json => {
                let name = match level {
                    LogLevel::Error => "error",
                    LogLevel::Warn => "warn",
                    LogLevel::Info | LogLevel::Debug => "info",
                };
                let time = precise_now();
                let line = Line { event: Some(event), time: &time, level: Some(name), fields, text };
                if let Ok(line) = json(&line, false) {
                    self.printer.err(&line);
                }
            }
            LogFormat::Text => {
                let label = if level == LogLevel::Warn { paint.warn("warning:") + " " } else { String::new() };
                self.printer.err(&format!("{} {label}{text}", paint.dim(&now())));
            }
        }
    }
}

/// Returns the wall-clock time in RFC 3339 format, in milliseconds.
fn precise_now() -> String {
    let now = timestamp();
    now.round(jiff::Unit::Millisecond).unwrap_or(now).to_string()
}
