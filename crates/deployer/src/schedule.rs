//! Schedules of items: `continuousReconcile` of a ProviderConfiguration.
//!
//! The syntax is that of Go's `robfig/cron` v3 (`ParseStandard`), which Landscaper uses. This module parses each field, so
//! that errors can name it, and passes it on as numbers; [`cronexpr`] computes the times. `*` and `?` leave a field
//! unrestricted, `*/2` does not: if the day of the month and the day of the week are both restricted, a day that matches
//! one of them is enough.

use std::{borrow::Cow, fmt::Write as _};

use billhook_policy::GoDuration;
use cronexpr::{Crontab, FallbackTimezoneOption, ParseOptions, parse_crontab_with};
use jiff::{SignedDuration, Timestamp};

/// The times at which an item is to be reconciled.
#[derive(Clone, Debug)]
pub struct Schedule(Times);

#[derive(Clone, Debug)]
enum Times {
    Every(SignedDuration),
    Cron(Box<Crontab>),
}

/// An error in the text of a schedule, with the field and its syntax.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("parse schedule {text:?}: {problem}")]
pub struct ScheduleError {
    text: String,
    problem: String,
}

impl Schedule {
    /// Creates a schedule with a period in whole seconds, at least one second, like `robfig/cron`.
    pub fn every(duration: GoDuration) -> Self {
        let seconds = i64::try_from(duration.0.as_secs()).unwrap_or(i64::MAX);
        Self(Times::Every(SignedDuration::from_secs(seconds.max(1))))
    }

    /// Parses five fields (minute, hour, day of month, month, day of week), a descriptor such as `@daily`, or `@every 1h30m`.
    /// Times are in UTC, or in the time zone of a prefix such as `CRON_TZ=Europe/Berlin `.
    ///
    /// # Errors
    ///
    /// When a field is wrong, the time zone is unknown, or no date matches (30 February).
    pub fn cron(text: &str) -> Result<Self, ScheduleError> {
        read(text).map_err(|problem| ScheduleError { text: text.to_owned(), problem })
    }

    /// Returns the first time after `after`, or `None` if it is more than four years away.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Times::Every(period) => Timestamp::from_second(after.as_second()).ok()?.checked_add(*period).ok(),
            Times::Cron(crontab) => crontab.find_next(after).ok().map(|next| next.timestamp()),
        }
    }
}

impl TryFrom<&billhook_policy::Schedule> for Schedule {
    type Error = ScheduleError;

    fn try_from(schedule: &billhook_policy::Schedule) -> Result<Self, ScheduleError> {
        match schedule {
            billhook_policy::Schedule::Cron(text) => Self::cron(text),
            billhook_policy::Schedule::Every(duration) => Ok(Self::every(*duration)),
        }
    }
}

fn read(text: &str) -> Result<Schedule, String> {
    let zone = text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ="));
    let (zone, spec) = match zone.map(|rest| rest.split_once(' ')) {
        None => (None, text.trim()),
        Some(Some((zone, spec))) => (Some(zone), spec.trim()),
        Some(None) => return Err("there is no schedule after the time zone".to_owned()),
    };
    if let Some(every) = spec.strip_prefix("@every ") {
        return Ok(Schedule::every(
            every.trim().parse().map_err(|error: billhook_policy::DurationError| error.to_string())?,
        ));
    }
    let mut fields = fields(spec)?;
    // The four years from 2000 on include a 29 February: a date that does not occur in them never occurs.
    let never = "no year has such a day";
    let crontab = |fields: &str| {
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::UTC;
        parse_crontab_with(fields, options)
    };
    let in_utc = crontab(&fields).map_err(|error| error.to_string())?;
    in_utc.find_next("2000-01-01T00:00:00Z").map_err(|_| never.to_owned())?;
    let Some(zone) = zone.filter(|zone| *zone != "UTC") else { return Ok(Schedule(Times::Cron(Box::new(in_utc)))) };
    let _ = write!(fields, " {zone}");
    let local = crontab(&fields).map_err(|_| format!("unknown time zone {zone:?}: write a name like Europe/Berlin"))?;
    Ok(Schedule(Times::Cron(Box::new(local))))
}

/// Converts the five fields to numbers.
fn fields(spec: &str) -> Result<String, String> {
    let spec = match spec {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ if spec.starts_with('@') => {
            return Err(
                "write @yearly, @monthly, @weekly, @daily, @hourly, or @every with a duration like 1h30m".to_owned()
            );
        }
        _ => spec,
    };
    let found: Vec<&str> = spec.split_whitespace().collect();
    if found.len() != FIELDS.len() {
        return Err(format!(
            "it has {} fields: write five (minute, hour, day of month, month, day of week)",
            found.len()
        ));
    }
    let numbers: Result<Vec<_>, _> = FIELDS.iter().zip(found).map(|(field, text)| field.read(text)).collect();
    Ok(numbers?.join(" "))
}

/// A field of a cron expression.
struct Field {
    name: &'static str,
    min: u8,
    max: u8,
    /// The names of its values, starting with `min`.
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", min: 0, max: 59, names: &[] },
    Field { name: "hour", min: 0, max: 23, names: &[] },
    Field { name: "day of month", min: 1, max: 31, names: &[] },
    Field {
        name: "month",
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Field { name: "day of week", min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

impl Field {
    /// Parses the field to a list of numbers, or to `*` if it is unrestricted.
    fn read(&self, text: &str) -> Result<String, String> {
        let wrong = |problem: Cow<'_, str>| {
            let names = match self.names {
                [first, .., last] => Cow::Owned(format!(" or {first}-{last}")),
                _ => Cow::Borrowed(""),
            };
            let (name, min, max) = (self.name, self.min, self.max);
            format!("{name} {text:?}: {problem}; write {min}-{max}{names}, *, a range 1-5, a list 1,5 or a step */2")
        };
        let (mut bits, mut any) = (0_u64, false);
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
            let step = match step.map(str::parse::<u8>) {
                None => 1,
                Some(Ok(step)) if step > 0 => step,
                Some(_) => return Err(wrong("a step must be a number greater than 0".into())),
            };
            let stepped = part.contains('/');
            let (first, last) = match range.split_once('-') {
                _ if matches!(range, "*" | "?") => {
                    any |= step == 1;
                    (self.min, self.max)
                }
                Some((first, last)) => (self.value(first).map_err(wrong)?, self.value(last).map_err(wrong)?),
                None => {
                    let first = self.value(range).map_err(wrong)?;
                    (first, if stepped { self.max } else { first })
                }
            };
            if first > last {
                return Err(wrong(format!("the range {range} ends before it starts").into()));
            }
            bits = (first..=last).step_by(usize::from(step)).fold(bits, |bits, value| bits | 1 << value);
        }
        match bits {
            0 => Err(wrong("it is empty".into())),
            _ if any => Ok("*".to_owned()),
            _ => {
                let values = (self.min..=self.max).filter(|value| bits & 1 << value != 0);
                Ok(values.map(|value| value.to_string()).collect::<Vec<_>>().join(","))
            }
        }
    }

    /// Parses a number within bounds, or a name.
    fn value(&self, text: &str) -> Result<u8, Cow<'static, str>> {
        let named = self.names.iter().zip(self.min..).find(|(name, _)| name.eq_ignore_ascii_case(text));
        match named.map_or_else(|| text.parse().ok(), |(_, value)| Some(value)) {
            Some(value) if (self.min..=self.max).contains(&value) => Ok(value),
            Some(value) => Err(format!("{value} is not in {}-{}", self.min, self.max).into()),
            None => Err(format!("unknown value {text:?}").into()),
        }
    }
}

#[cfg(test)]
mod tests;
