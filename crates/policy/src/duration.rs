//! Durations in Go's syntax: `90s`, `1h30m`, `1.5m`.

use std::{fmt, str::FromStr, time::Duration};

// kube-core compiles only with one version of Kubernetes chosen, which this dependency does.
use k8s_openapi as _;
use serde::{Deserialize, Serialize};

/// A duration in Go's syntax, as Landscaper and kubectl accept it, from zero to Go's maximum of 292 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GoDuration(pub Duration);

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}, found {text:?}")]
pub struct DurationError {
    text: String,
    problem: &'static str,
}

impl DurationError {
    /// Returns what was expected, without the text itself.
    pub fn problem(&self) -> &'static str {
        self.problem
    }
}

const LONGEST: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());
const MALFORMED: &str = "expected a duration such as 90s, 5m or 1h30m";
const TOO_LONG: &str = "expected at most 292 years";

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        // The largest sum of numbers that does not overflow a `Duration`, even if all of them are hours.
        const LARGEST: f64 = 5e15;
        let error = |problem| DurationError { text: text.to_owned(), problem };
        // kube's parser accepts an empty text and a final number without unit, and panics on an inner sign or overflow.
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let complete = unsigned == "0" || unsigned.ends_with(char::is_alphabetic);
        if !complete || unsigned.contains(['+', '-']) {
            return Err(error(MALFORMED));
        }
        let numbers = unsigned.split(char::is_alphabetic).filter_map(|number| number.parse::<f64>().ok());
        if numbers.sum::<f64>() > LARGEST {
            return Err(error(TOO_LONG));
        }
        let duration: kube_core::Duration = text.parse().map_err(|_| error(MALFORMED))?;
        match Duration::from(duration) {
            _ if duration.is_negative() => Err(error("expected a duration that is not negative")),
            duration if duration > LONGEST => Err(error(TOO_LONG)),
            duration => Ok(Self(duration)),
        }
    }
}

/// Prints the exact duration in hours, minutes and seconds, without those that are zero: `1h30m`, `90ms`, `0s`.
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (minutes, seconds) = (self.0.as_secs() / 60, self.0.as_secs() % 60);
        let rest = Duration::new(seconds, self.0.subsec_nanos());
        match (minutes / 60, minutes % 60) {
            (0, 0) if rest.is_zero() => return f.write_str("0s"),
            (0, 0) => {}
            (0, minutes) => write!(f, "{minutes}m")?,
            (hours, 0) => write!(f, "{hours}h")?,
            (hours, minutes) => write!(f, "{hours}h{minutes}m")?,
        }
        if rest.is_zero() { Ok(()) } else { f.write_str(&format!("{rest:?}").replace('µ', "u")) }
    }
}

/// Reads a recorded duration. Earlier versions recorded longer durations than a policy can have now, so that these count
/// as the longest.
impl TryFrom<String> for GoDuration {
    type Error = DurationError;
    fn try_from(text: String) -> Result<Self, DurationError> {
        match text.parse() {
            Err(DurationError { problem: TOO_LONG, .. }) => Ok(Self(LONGEST)),
            found => found,
        }
    }
}

impl From<GoDuration> for String {
    fn from(duration: GoDuration) -> Self {
        duration.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them_and_printed_exactly() {
        for (text, printed) in [
            ("90s", "1m30s"),
            ("1h30m", "1h30m"),
            ("0", "0s"),
            ("0s", "0s"),
            ("+5s", "5s"),
            ("250ms", "250ms"),
            ("500us", "500us"),
            ("1.5µs", "1.5us"),
            ("1h1ns", "1h1ns"),
            ("1.5m", "1m30s"),
            ("10m", "10m"),
            ("60s250ms", "1m250ms"),
            ("2562047h47m", "2562047h47m"),
        ] {
            assert_eq!(text.parse::<GoDuration>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn the_error_names_what_was_expected() {
        let check = |text: &str, problem: &str| {
            assert_eq!(text.parse::<GoDuration>().map_err(|error| error.problem()), Err(problem), "{text}");
        };
        for text in ["", "+", "-", "--1s", "5", "1h5", "m", "5x", "1..2s", "1h-5m", "1h+5m", "1e3s", "inf", "1 h"] {
            check(text, "expected a duration such as 90s, 5m or 1h30m");
        }
        check("-3s", "expected a duration that is not negative");
        for text in
            ["2562048h", "9999999999999999999h", &format!("{}s", "9".repeat(400)), &"4999999999999999h".repeat(2)]
        {
            check(text, "expected at most 292 years");
        }
        assert_eq!(
            "soon".parse::<GoDuration>().unwrap_err().to_string(),
            "expected a duration such as 90s, 5m or 1h30m, found \"soon\""
        );
    }

    #[test]
    fn a_recorded_duration_beyond_the_limit_counts_as_the_longest() {
        for recorded in ["2562048h", "99999999h59m", "5124095576030431h"] {
            let longest: GoDuration = serde_json::from_value(recorded.into()).unwrap();
            assert_eq!(longest.to_string(), "2562047h47m16.854775807s", "{recorded}");
        }
        serde_json::from_str::<GoDuration>("\"soon\"").unwrap_err();
    }

    proptest! {
        #[test]
        fn a_duration_survives_a_round_trip(nanos in prop_oneof![0..=i64::MAX.unsigned_abs(), 0..100_000_000_000_u64]) {
            let duration = GoDuration(Duration::from_nanos(nanos));
            let json = serde_json::to_string(&duration).unwrap();
            prop_assert_eq!(serde_json::from_str::<GoDuration>(&json).unwrap(), duration, "{}", json);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[-+0-9.eEhmsunµ]{0,30}|\\PC{0,12}") {
            let _ = text.parse::<GoDuration>();
        }
    }
}
