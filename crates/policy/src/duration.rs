//! Durations as Go writes them: `90s`, `1h30m`, `1.5m`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

/// A duration in Go's syntax, as Landscaper and kubectl take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GoDuration(pub Duration);

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read {0:?} as a duration: expected something like 90s, 5m or 1h30m")]
pub struct DurationError(String);

const UNITS: [(&str, f64); 7] =
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let wrong = || DurationError(text.to_owned());
        if text == "0" {
            return Ok(Self::default());
        }
        let mut rest = text;
        let mut seconds = 0.0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
            let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
            rest = &rest[digits..];
            let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
            let (_, factor) = UNITS.iter().find(|(unit, _)| *unit == &rest[..unit_end]).ok_or_else(wrong)?;
            seconds += number * factor;
            rest = &rest[unit_end..];
        }
        if text.is_empty() { Err(wrong()) } else { Duration::try_from_secs_f64(seconds).map(Self).map_err(|_| wrong()) }
    }
}

/// Prints hours, minutes and seconds, leaving out what is zero: `1h30m`, `90ms`, `0s`.
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0.as_secs(), self.0.subsec_millis());
        if seconds == 0 && millis > 0 {
            return write!(f, "{millis}ms");
        }
        let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        match (rest, millis) {
            (0, 0) if seconds > 0 => Ok(()),
            (_, 0) => write!(f, "{rest}s"),
            _ => write!(f, "{rest}.{millis:03}s"),
        }
    }
}

impl TryFrom<String> for GoDuration {
    type Error = DurationError;
    fn try_from(text: String) -> Result<Self, DurationError> {
        text.parse()
    }
}

impl From<GoDuration> for String {
    fn from(duration: GoDuration) -> Self {
        duration.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_printed_as_go_does() {
        for (text, printed) in [
            ("90s", "1m30s"),
            ("1h30m", "1h30m"),
            ("0", "0s"),
            ("0s", "0s"),
            ("250ms", "250ms"),
            ("1.5m", "1m30s"),
            ("10m", "10m"),
        ] {
            assert_eq!(text.parse::<GoDuration>().unwrap().to_string(), printed);
        }
        for wrong in ["", "5", "m", "5x", "-3s", "1..2s"] {
            assert!(wrong.parse::<GoDuration>().is_err(), "{wrong}");
        }
    }
}
