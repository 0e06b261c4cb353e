//! The wall clock, for times to record.

/// Returns the wall-clock time.
#[expect(clippy::disallowed_methods, reason = "a timestamp to record, not a measurement")]
pub(crate) fn timestamp() -> jiff::Timestamp {
    jiff::Timestamp::try_from(std::time::SystemTime::now()).unwrap_or_default()
}

/// Returns the wall-clock time in RFC 3339 format, in whole seconds.
pub(crate) fn now() -> String {
    let now = timestamp();
    now.round(jiff::Unit::Second).unwrap_or(now).to_string()
}
