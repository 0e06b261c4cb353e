//! Regular expressions, compiled once per process, because definitions repeat them.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
};

use regex::{Regex, RegexBuilder};

type Compiled = Result<Regex, String>;

static COMPILED: LazyLock<Mutex<HashMap<String, Compiled>>> = LazyLock::new(Mutex::default);

/// Compiles an expression or returns its error. Syntax that only Go supports is rejected.
pub(super) fn compile(pattern: &str) -> Compiled {
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = compiled.get(pattern) {
        return known.clone();
    }
    let regex = RegexBuilder::new(pattern).size_limit(64 << 20).build().map_err(|error| match error {
        regex::Error::Syntax(text) => text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
        error => error.to_string(),
    });
    compiled.insert(pattern.to_owned(), regex.clone());
    regex
}
