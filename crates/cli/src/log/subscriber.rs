//! The events of `tracing` as log lines.

use std::fmt;

use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter,
    field::MakeExt as _,
    fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter, format},
    registry::LookupSpan,
};

use super::{Line, Logging, precise_now};
use crate::{
    args::{LogFormat, LogLevel},
    output::{Paint, json},
};

impl Logging {
    /// Logs the events of this process to a writer from now on, and its panics instead of their messages, which may quote
    /// what the program works on.
    ///
    /// The flags select events of billhook only: other libraries may quote requests and answers. With `-v`, requests are
    /// logged as the HTTP client sees them, and with `-vv` all that it does.
    pub fn start<W>(self, writer: W, color: bool)
    where
        W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
    {
        let Some(subscriber) = self.subscriber(writer, color) else { return };
        // Only another subscriber would make it fail, and there is none.
        let _first = tracing::subscriber::set_global_default(subscriber);
        if self.format == LogFormat::Json {
            std::panic::set_hook(Box::new(|panic| {
                let location = panic.location().map(ToString::to_string);
                tracing::error!(location = location.as_deref(), "internal error, a bug in billhook");
            }));
        }
    }

    /// Returns a subscriber that logs to a writer; none if nothing is logged.
    pub fn subscriber<W>(self, writer: W, color: bool) -> Option<Box<dyn Subscriber + Send + Sync>>
    where
        W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
    {
        let lines = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(self.filter()?)).with_writer(writer);
        Some(match self.format {
            LogFormat::Json => Box::new(lines.event_format(JsonLines).finish()),
            LogFormat::Text => {
                Box::new(lines.with_ansi(color).with_target(self.verbose > 1).fmt_fields(fields()).finish())
            }
        })
    }

    fn filter(self) -> Option<&'static str> {
        Some(match (self.verbose, self.level?) {
            (0, LogLevel::Error) => "off,billhook=error",
            (0, LogLevel::Warn) => "off,billhook=warn",
            (0, LogLevel::Info) => "off,billhook=info",
            (0, LogLevel::Debug) => "off,billhook=debug",
            (1, _) => "warn,billhook=debug,kube_client=debug",
            (2, _) => "debug",
            _ => "trace",
        })
    }
}

/// Formats the fields of a line of text. They are all that a line quotes from a cluster, so they are escaped like other output.
fn fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    let field = |writer: &mut format::Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let value = Paint(false).line(&format!("{value:?}"));
        match field.name() {
            "message" => write!(writer, "{value}"),
            name => write!(writer, "{name}={value}"),
        }
    };
    format::debug_fn(field).delimited(" ")
}

/// Formats each event as a line of JSON, as [`Log`](super::Log) does.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: format::Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut content = Content::default();
        event.record(&mut content);
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => "error",
            tracing::Level::WARN => "warn",
            tracing::Level::INFO => "info",
            tracing::Level::DEBUG => "debug",
            tracing::Level::TRACE => "trace",
        };
        let line =
            Line { event: None, time: &precise_now(), level: Some(level), fields: content.fields, text: &content.text };
        writeln!(writer, "{}", json(&line, false).map_err(|_| fmt::Error)?)
    }
}

/// The message and the fields of an event.
#[derive(Default)]
struct Content {
    text: String,
    fields: Map<String, Value>,
}

impl Content {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Content {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.text = format!("{value:?}"),
            _ => self.set(field, format!("{value:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use super::*;

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

    /// Returns what is logged by some work.
    fn logged(logging: Logging, work: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = logging.subscriber(move || writer.clone(), true).unwrap();
        tracing::subscriber::with_default(subscriber, work);
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    fn logging(level: LogLevel, format: LogFormat) -> Logging {
        Logging { level: Some(level), format, verbose: 0 }
    }

    const DENIAL: &str = "no\x1b[2J\ndeleted a\u{202e}";

    #[test]
    fn lines_of_text_are_escaped() {
        let text = logged(logging(LogLevel::Info, LogFormat::Text), || {
            let _span = tracing::info_span!("item", name = %DENIAL).entered();
            tracing::warn!(reason = %DENIAL, attempt = 2, "{DENIAL}");
        });
        let escaped = r"no\x1b[2J\ndeleted a\u{202e}";
        assert!(text.ends_with(&format!("{escaped} reason={escaped} attempt=2\n")), "{text:?}");
        assert_eq!(
            (text.matches('\n').count(), text.contains("\x1b[2J"), text.contains('\u{202e}')),
            (1, false, false)
        );
    }

    #[test]
    fn each_event_is_a_line_of_json() {
        let text = logged(logging(LogLevel::Info, LogFormat::Json), || {
            let missing: Option<&str> = None;
            tracing::warn!(reason = %DENIAL, attempt = 2, seconds = 0.5, held = true, job = missing, "{DENIAL}");
        });
        assert_eq!((text.matches('\n').count(), text.is_ascii()), (1, true), "{text:?}");
        let mut line: Map<String, Value> = serde_json::from_str(&text).unwrap();
        assert!(line.remove("time").is_some_and(|time| time.as_str().is_some_and(|time| time.ends_with('Z'))));
        let expected = serde_json::json!({
            "level": "warn", "text": DENIAL, "reason": DENIAL, "attempt": 2, "seconds": 0.5, "held": true,
        });
        assert_eq!(Value::from(line), expected);
    }

    #[test]
    fn the_level_selects_events_of_this_program_only() {
        let all = || {
            tracing::error!("error");
            tracing::warn!("warn");
            tracing::info!("info");
            tracing::debug!("debug");
            tracing::info!(target: "billhook_deployer::journal", "of a library");
            tracing::error!(target: "kube_client", "foreign");
        };
        let count = |level| logged(logging(level, LogFormat::Json), all).lines().count();
        let levels = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug];
        assert_eq!(levels.map(count), [1, 2, 4, 5]);
        let verbose = Logging { verbose: 1, ..logging(LogLevel::Debug, LogFormat::Text) };
        assert!(logged(verbose, all).contains("foreign"));
    }
}
