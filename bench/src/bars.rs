//! The limits for measurements, and the check against them.

use serde::Serialize;

use crate::cases::Case;

/// The maximum number of requests per created or deleted object.
pub(crate) const REQUESTS: f64 = 1.1;
/// The upper limit for the peak memory with ten thousand objects, in MB (10^6 bytes).
pub(crate) const PEAK_MB: f64 = 60.0;
/// The upper limit for the peak memory with a payload of five thousand files, in MB.
pub(crate) const PAYLOAD_PEAK_MB: f64 = 100.0;
/// The maximum time from the end of a group to the first DELETE of the next, in milliseconds.
pub(crate) const GAP_MS: f64 = 20.0;

/// The bar for the ratio of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bar {
    /// At most this multiple of the floor.
    Floor(f64),
    /// Faster than the first apply by at least this factor.
    Faster(f64, Case),
    /// At most this multiple of the time without the other objects.
    Alone(f64, Case),
    /// At most this time, in milliseconds.
    Within(f64),
    /// No limit.
    None,
}

impl Bar {
    /// Returns the bar of a case.
    pub(crate) fn of(case: Case) -> Self {
        match case {
            Case::Create | Case::Delete | Case::CreateSpread | Case::DeleteSpread => Self::Floor(1.2),
            Case::CreateMany | Case::DeleteMany => Self::Floor(1.2),
            Case::Ordered => Self::Floor(1.15),
            Case::Unchanged => Self::Faster(8.0, Case::Create),
            Case::UnchangedSpread => Self::Faster(8.0, Case::CreateSpread),
            Case::UnchangedMany => Self::Faster(8.0, Case::CreateMany),
            Case::FewAmong => Self::Alone(1.3, Case::FewAlone),
            Case::PayloadInstall | Case::Clean => Self::Floor(1.3),
            Case::PayloadPlan => Self::Within(200.0),
            Case::FewAlone | Case::PayloadUnchanged | Case::PayloadMany => Self::None,
        }
    }

    /// Formats the bar for the table.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Floor(bar) => format!("<= {bar:.2} x floor"),
            Self::Faster(bar, _) => format!(">= {bar:.1} x faster"),
            Self::Alone(bar, _) => format!("<= {bar:.2} x alone"),
            Self::Within(bar) => format!("<= {bar} ms"),
            Self::None => String::new(),
        }
    }

    /// Checks a ratio, or a time in milliseconds.
    pub(crate) fn judge(self, ratio: f64) -> Option<Verdict> {
        match self {
            Self::Within(bar) => Some(Verdict::at_most("time", ratio, bar)),
            Self::Floor(bar) | Self::Alone(bar, _) => Some(Verdict::at_most("time", ratio, bar)),
            Self::Faster(bar, _) => Some(Verdict::at_least("time", ratio, bar)),
            Self::None => None,
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    what: &'static str,
    /// The amount by which the bar is missed, relative to the bar; of a number that has to be zero, the number.
    missed_by: Option<f64>,
    /// Whether the bar is zero.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    never: bool,
}

impl Verdict {
    /// Checks a value against a maximum.
    pub(crate) fn at_most(what: &'static str, value: f64, bar: f64) -> Self {
        Self { what, missed_by: (value > bar).then(|| value / bar - 1.0), never: false }
    }

    /// Checks a value against a minimum.
    pub(crate) fn at_least(what: &'static str, value: f64, bar: f64) -> Self {
        Self { what, missed_by: (value < bar).then(|| 1.0 - value / bar), never: false }
    }

    /// Checks a number that has to be zero.
    pub(crate) fn none(what: &'static str, number: u64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
        let number = number as f64;
        Self { what, missed_by: (number > 0.0).then_some(number), never: true }
    }

    /// Returns whether the bar is missed.
    pub(crate) fn missed(&self) -> bool {
        self.missed_by.is_some()
    }

    /// Formats the result for the table if the bar is missed.
    pub(crate) fn text(&self) -> Option<String> {
        self.missed_by.map(|by| match self.never {
            true => format!("{by:.0} {}, MISSED", self.what),
            false => format!("{} MISSED by {:.0} %", self.what, (by * 100.0).ceil()),
        })
    }
}

/// Combines all results.
pub(crate) fn summary(verdicts: &[Verdict]) -> String {
    let missed: Vec<String> = verdicts.iter().filter_map(Verdict::text).collect();
    match (verdicts.is_empty(), missed.is_empty()) {
        (true, _) => String::new(),
        (_, true) => "ok".to_owned(),
        _ => missed.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_kept_when_it_is_just_reached() {
        assert_eq!(summary(&[Bar::Floor(1.2).judge(1.2).unwrap(), Verdict::at_most("requests", 1.0, 1.1)]), "ok");
        assert_eq!(summary(&[Bar::Floor(1.2).judge(1.5).unwrap()]), "time MISSED by 25 %");
        assert_eq!(summary(&[Bar::Faster(8.0, Case::Create).judge(6.0).unwrap()]), "time MISSED by 25 %");
        assert_eq!(summary(&[Bar::Within(200.0).judge(250.0).unwrap()]), "time MISSED by 25 %");
        assert_eq!(summary(&[Verdict::none("writes", 0)]), "ok");
        assert_eq!(summary(&[Verdict::none("writes", 2)]), "2 writes, MISSED");
        assert_eq!(summary(&[]), "");
    }
}
