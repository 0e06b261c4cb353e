//! The one place through which everything is printed.

use std::{
    io::Write,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use anstyle::{AnsiColor, Style};
use indicatif::MultiProgress;

use crate::error::{CommandError, Problem};

/// Whether to color text; it is readable without colors.
///
/// Texts are put together in many places by `format!`, and most of them contain text from the cluster: names, messages
/// of admission webhooks, conditions. Escaping each part where it is inserted would be forgotten somewhere, so a line is
/// escaped as a whole, just before it is printed, by [`Paint::line`]. Only there do styles become escape sequences;
/// until then they are marks that are not control characters. Text that contains such a mark can color its own line and
/// nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paint(pub bool);

/// The mark at the end of a styled text: like those at its beginning, a noncharacter, which no text needs.
const END: char = '\u{fdd0}';
const BOLD: char = '\u{fdd1}';
const DIM: char = '\u{fdd2}';
const GOOD: char = '\u{fdd3}';
const WARN: char = '\u{fdd4}';
const BAD: char = '\u{fdd5}';

impl Paint {
    fn with(self, mark: char, text: &str) -> String {
        if self.0 && !text.is_empty() { format!("{mark}{text}{END}") } else { text.to_owned() }
    }

    /// For headings.
    pub(crate) fn bold(self, text: &str) -> String {
        self.with(BOLD, text)
    }

    /// For details.
    pub(crate) fn dim(self, text: &str) -> String {
        self.with(DIM, text)
    }

    /// For success.
    pub(crate) fn good(self, text: &str) -> String {
        self.with(GOOD, text)
    }

    /// For warnings, and for what is being waited for.
    pub(crate) fn warn(self, text: &str) -> String {
        self.with(WARN, text)
    }

    /// For errors and dangers.
    pub(crate) fn bad(self, text: &str) -> String {
        self.with(BAD, text)
    }

    /// Returns a line as it is printed: with styles, and with all characters escaped that could move the cursor, begin
    /// another line or change the order in which text is shown.
    pub fn line(self, text: &str) -> String {
        let mut line = String::with_capacity(text.len());
        let mut open = None;
        for char in text.chars() {
            let style = if self.0 { style(char) } else { None };
            if style.is_none() && !(self.0 && char == END) {
                push_visible(&mut line, char);
                continue;
            }
            if let Some(ended) = std::mem::replace(&mut open, style) {
                line += &format!("{ended:#}");
            }
            line.extend(style.map(|style| style.to_string()));
        }
        line.extend(open.map(|ended| format!("{ended:#}")));
        line
    }

    /// Returns lines as they are printed, each ended by a line break.
    pub(crate) fn lines(self, text: &str) -> String {
        text.strip_suffix('\n').unwrap_or(text).split('\n').map(|line| self.line(line) + "\n").collect()
    }
}

/// Returns the style that a mark begins.
fn style(mark: char) -> Option<Style> {
    Some(match mark {
        BOLD => Style::new().bold(),
        DIM => Style::new().dimmed(),
        GOOD => AnsiColor::Green.on_default(),
        WARN => AnsiColor::Yellow.on_default(),
        BAD => AnsiColor::Red.on_default().bold(),
        _ => return None,
    })
}

/// Adds a character, escaped if a terminal would act on it.
fn push_visible(line: &mut String, char: char) {
    match char {
        '\n' | '\r' | '\t' => line.extend(char.escape_default()),
        '\0'..' ' | '\x7f' => *line += &format!("\\x{:02x}", u32::from(char)),
        char if is_hidden(char) => line.extend(char.escape_unicode()),
        _ => line.push(char),
    }
}

/// Returns whether a character beyond ASCII is a C1 control, a line separator, one that controls the direction of text, or one
/// of our own marks.
fn is_hidden(char: char) -> bool {
    matches!(
        char,
        '\u{80}'..='\u{9f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | END..=BAD
    )
}

/// Returns JSON, on one line or indented, with escapes for all characters that a terminal would act on. JSON itself demands
/// that only of the first 32.
pub(crate) fn json<T: serde::Serialize>(value: &T, indented: bool) -> serde_json::Result<String> {
    let text = if indented { serde_json::to_string_pretty(value)? } else { serde_json::to_string(value)? };
    if !text.contains(must_escape) {
        return Ok(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        // All of these are below the surrogates.
        if must_escape(char) { escaped += &format!("\\u{:04x}", u32::from(char)) } else { escaped.push(char) }
    }
    Ok(escaped)
}

fn must_escape(char: char) -> bool {
    char == '\x7f' || is_hidden(char)
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
    /// What the user types to run the program, if that is not its own name.
    program: OnceLock<&'static str>,
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
            program: OnceLock::new(),
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

    /// Prints a single line to standard output.
    pub(crate) fn out(&self, line: &str) {
        self.raw(&(self.out_paint().line(line) + "\n"));
    }

    /// Prints a single line to standard error.
    pub(crate) fn err(&self, line: &str) {
        self.write(&self.0.err, &(self.err_paint().line(line) + "\n"));
    }

    /// Prints a question without a line break.
    pub(crate) fn ask(&self, question: &str) {
        self.write(&self.0.err, &self.err_paint().line(question));
    }

    /// Prints lines to standard output. Their text must not contain line breaks of others.
    pub(crate) fn out_lines(&self, text: &str) {
        self.raw(&self.out_paint().lines(text));
    }

    /// Prints lines to standard error. Their text must not contain line breaks of others.
    pub(crate) fn err_lines(&self, text: &str) {
        self.write(&self.0.err, &self.err_paint().lines(text));
    }

    /// Prints a part of a result unchanged: JSON, which has its own escapes, a script, or a text that is escaped already.
    pub(crate) fn raw(&self, piece: &str) {
        self.write(&self.0.out, piece);
    }

    /// Prints a result as JSON on one line.
    pub(crate) fn json_line<T: serde::Serialize>(&self, value: &T) {
        if let Ok(line) = json(value, false) {
            self.raw(&(line + "\n"));
        }
    }

    /// Prints a result as indented JSON.
    pub(crate) fn json<T: serde::Serialize>(&self, value: &T) {
        if let Ok(text) = json(value, true) {
            self.raw(&(text + "\n"));
        }
    }

    /// Sets what the user types to run the program, which hints then name.
    pub(crate) fn set_program(&self, program: &'static str) {
        self.0.program.set(program).ok();
    }

    /// Prints what the user can do.
    pub(crate) fn hint(&self, hint: &str) {
        let program = self.0.program.get().unwrap_or(&"billhook");
        let hint = hint.replace("billhook ", &format!("{program} "));
        self.err(&format!("{} {hint}", self.err_paint().good("hint:")));
    }

    /// Prints a warning.
    pub(crate) fn warn(&self, text: &str) {
        self.err(&format!("{} {text}", self.err_paint().warn("warning:")));
    }

    /// Prints the problems and hints of an error.
    pub(crate) fn error(&self, error: &CommandError) {
        let paint = self.err_paint();
        for problem in &error.problems {
            match problem {
                Problem::Rendered(text) => self.err_lines(text.trim_end()),
                Problem::Listed(text) => self.err(&format!("  {text}")),
                Problem::Message(text, causes) => {
                    self.problem(&paint.bad("error:"), text);
                    causes.iter().for_each(|cause| self.problem("  caused by:", cause));
                }
            }
        }
        error.hints.iter().for_each(|hint| self.hint(hint));
    }

    /// Prints a text that may have several lines, as those of other programs do, and indents all lines but the first.
    fn problem(&self, label: &str, text: &str) {
        let mut lines = text.trim_end().split('\n');
        self.err(&format!("{label} {}", lines.next().unwrap_or_default()));
        lines.for_each(|line| self.err(&format!("  {line}")));
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the text without the escape sequences of our styles.
    fn plain(line: &str) -> String {
        let styles = [BAD, BOLD, DIM, GOOD, WARN].map(|mark| style(mark).unwrap().to_string());
        let reset = format!("{:#}", Style::new().bold());
        styles.iter().fold(line.replace(&reset, ""), |line, style| line.replace(style, ""))
    }

    fn acts_on_a_terminal(char: char) -> bool {
        char.is_control() || matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    }

    #[test]
    fn characters_that_a_terminal_acts_on_are_escaped() {
        let text = "a\x1b[2J\nb\r\tc\x7f\u{9b}d\u{202e}e\u{2028}\u{fdd3}f é 日 \\n";
        let escaped = r"a\x1b[2J\nb\r\tc\x7f\u{9b}d\u{202e}e\u{2028}\u{fdd3}f é 日 \n";
        assert_eq!(Paint(false).line(text), escaped);
        let paint = Paint(true);
        assert_eq!(paint.line(&format!("{} x", paint.bold("a\x1b[0m"))), "\x1b[1ma\\x1b[0m\x1b[0m x");
        assert_eq!(paint.line("\u{fdd3}not ended"), "\x1b[32mnot ended\x1b[0m");
        assert_eq!(paint.lines("a\tb\n\nc"), "a\\tb\n\nc\n");
    }

    #[test]
    fn json_hides_nothing_from_a_terminal() {
        let text = "a\x1b[2J\nb\x7f\u{9b}2J\u{202e}c\u{2028}\u{fdd3}é 日 😀\\\"";
        let check = |json: String| {
            assert!(!json.contains(|char| acts_on_a_terminal(char) && char != '\n'), "{json:?}");
            assert!(json.contains("é 日 😀") && json.contains(r"\u009b2J\u202ec\u2028\ufdd3"), "{json}");
            assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [text]);
        };
        check(json(&[text], false).unwrap());
        check(json(&[text], true).unwrap());
    }

    proptest! {
        #[test]
        fn no_text_reaches_the_terminal_unescaped(colored: bool, texts: Vec<(u8, String)>) {
            let paint = Paint(colored);
            let styles = [Paint::bold, Paint::dim, Paint::good, Paint::warn, Paint::bad, |_, text: &str| text.to_owned()];
            let text: String = texts.iter().map(|(at, text)| styles[usize::from(*at) % styles.len()](paint, text)).collect();
            let line = plain(&paint.line(&text));
            prop_assert!(!line.contains(acts_on_a_terminal), "{line:?}");
        }
    }
}
