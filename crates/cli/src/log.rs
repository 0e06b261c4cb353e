//! Log lines of commands that keep running.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    output::Printer,
    session::{Session, now},
};

/// Prints lines with the time, or events as JSON.
#[derive(Clone)]
pub(crate) struct Log {
    printer: Printer,
    json: bool,
}

/// An event as a line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    event: &'static str,
    time: &'a str,
    #[serde(flatten)]
    fields: Map<String, Value>,
    text: &'a str,
}

impl Log {
    pub(crate) fn new(session: &Session) -> Self {
        Self { printer: session.printer.clone(), json: session.json() }
    }

    /// Makes one that prints nothing.
    #[cfg(test)]
    pub(crate) fn silent() -> Self {
        let nowhere = || (Box::new(std::io::sink()) as Box<dyn std::io::Write + Send>, crate::output::Paint::default());
        Self { printer: Printer::new(nowhere(), nowhere()), json: false }
    }

    /// Tells something that is as it should be.
    pub(crate) fn say(&self, event: &'static str, fields: Value, text: &str) {
        self.line(event, fields, "", text);
    }

    /// Tells something that a person should look at.
    pub(crate) fn warn(&self, event: &'static str, fields: Value, text: &str) {
        let label = self.printer.err_paint().warn("warning:");
        self.line(event, fields, &format!("{label} "), text);
    }

    fn line(&self, event: &'static str, fields: Value, label: &str, text: &str) {
        let time = now();
        if self.json {
            let Value::Object(fields) = fields else { return };
            self.printer.json_line(&Line { event, time: &time, fields, text });
        } else {
            self.printer.err(&format!("{} {label}{text}", self.printer.err_paint().dim(&time)));
        }
    }
}
