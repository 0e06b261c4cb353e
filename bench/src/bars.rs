//! What is promised, and whether a measurement keeps it.

use serde::Serialize;

use crate::cases::Case;

/// At most this many requests per created or deleted object.
pub(crate) const REQUESTS: f64 = 1.1;
/// The peak of the memory with ten thousand objects stays below this, in MB (10^6 bytes).
pub(crate) const PEAK_MB: f64 = 60.0;
/// At most this long from the end of a group to the first DELETE of the next, in milliseconds.
pub(crate) const GAP_MS: f64 = 20.0;

/// The bar for the ratio of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bar {
    /// At most this much of what the floor takes.
    Floor(f64),
    /// At least this much faster than the first apply.
    Faster(f64, Case),
    /// At most this much of what it takes without the others.
    Alone(f64, Case),
    /// Only shown.
    None,
}

impl Bar {
    /// The bar of a case.
    pub(crate) fn of(case: Case) -> Self {
        match case {
            Case::Create | Case::Delete | Case::CreateSpread | Case::DeleteSpread => Self::Floor(1.2),
            Case::CreateMany | Case::DeleteMany => Self::Floor(1.2),
            Case::Ordered => Self::Floor(1.15),
            Case::Unchanged => Self::Faster(8.0, Case::Create),
            Case::UnchangedSpread => Self::Faster(8.0, Case::CreateSpread),
            Case::UnchangedMany => Self::Faster(8.0, Case::CreateMany),
            Case::FewAmong => Self::Alone(1.3, Case::FewAlone),
            Case::FewAlone => Self::None,
        }
    }

    /// As it stands in the table.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Floor(bar) => format!("<= {bar:.2} x floor"),
            Self::Faster(bar, _) => format!(">= {bar:.1} x faster"),
            Self::Alone(bar, _) => format!("<= {bar:.2} x alone"),
            Self::None => String::new(),
        }
    }

    /// Judges a ratio.
    pub(crate) fn judge(self, ratio: f64) -> Option<Verdict> {
        match self {
            Self::Floor(bar) | Self::Alone(bar, _) => Some(Verdict::at_most("time", ratio, bar)),
            Self::Faster(bar, _) => Some(Verdict::at_least("time", ratio, bar)),
            Self::None => None,
        }
    }
}

/// Whether a bar is kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    what: &'static str,
    /// By how much it is missed, as a part of the bar.
    missed_by: Option<f64>,
}

impl Verdict {
    /// Something that must not be more.
    pub(crate) fn at_most(what: &'static str, value: f64, bar: f64) -> Self {
        Self { what, missed_by: (value > bar).then(|| value / bar - 1.0) }
    }

    /// Something that must not be less.
    pub(crate) fn at_least(what: &'static str, value: f64, bar: f64) -> Self {
        Self { what, missed_by: (value < bar).then(|| 1.0 - value / bar) }
    }

    /// Whether the bar is missed.
    pub(crate) fn missed(&self) -> bool {
        self.missed_by.is_some()
    }

    /// As it stands in the table, if it is missed.
    pub(crate) fn text(&self) -> Option<String> {
        self.missed_by.map(|by| format!("{} MISSED by {:.0} %", self.what, (by * 100.0).ceil()))
    }
}

/// All verdicts in one.
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
        assert_eq!(summary(&[]), "");
    }
}
