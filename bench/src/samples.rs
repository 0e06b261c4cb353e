//! The raw measurements.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::audit::{Section, Sender};
use crate::cases::Case;
use crate::measure::{Ended, Taken};
use crate::progress;

/// The measured programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contender {
    /// Bare requests; creation by server-side apply.
    Floor,
    /// Bare requests; creation by POST.
    FloorPost,
    Billhook,
    Kubectl,
}

impl Contender {
    /// Returns its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::FloorPost => "floor (POST)",
            Self::Billhook => "billhook",
            Self::Kubectl => "kubectl",
        }
    }
}

/// One run of one program.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) case: Case,
    /// Whether latency was added.
    pub(crate) delayed: bool,
    pub(crate) contender: Contender,
    /// Samples of the same run were taken in direct succession and are compared.
    pub(crate) run: u32,
    pub(crate) seconds: f64,
    pub(crate) peak_mib: f64,
    /// Whether it was stopped at the time limit.
    pub(crate) capped: bool,
}

/// The requests of a run from the API server's audit log.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Count {
    pub(crate) case: Case,
    pub(crate) contender: Contender,
    pub(crate) by_verb: BTreeMap<String, u64>,
    /// The largest number of lists of one kind.
    pub(crate) lists_of_a_kind: u64,
    /// The requests in billhook's own summary.
    pub(crate) own: Option<u64>,
}

impl Count {
    pub(crate) fn total(&self) -> u64 {
        self.by_verb.values().sum()
    }

    /// Returns the number of requests that write.
    pub(crate) fn writes(&self) -> u64 {
        let writes = ["create", "update", "patch", "delete", "deletecollection"];
        writes.iter().filter_map(|verb| self.by_verb.get(*verb)).sum()
    }
}

/// All measurements.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Samples {
    pub(crate) times: Vec<Sample>,
    pub(crate) counts: Vec<Count>,
    /// The time from the end of a group to the first DELETE of the next, in milliseconds.
    pub(crate) gaps: Vec<Gap>,
    /// What was not measured, with the reasons.
    pub(crate) skipped: Vec<String>,
    /// The failures, with their errors.
    pub(crate) failures: Vec<String>,
}

/// The time between two groups.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Gap {
    pub(crate) contender: Contender,
    pub(crate) milliseconds: f64,
}

impl Samples {
    /// Adds a run, and shows it.
    pub(crate) fn take(&mut self, case: Case, delayed: bool, contender: Contender, run: u32, ended: &Ended) {
        let Ended { taken: Taken { seconds, peak_mib, .. }, capped, .. } = *ended;
        let late = if delayed { " +20 ms" } else { "" };
        let more = if capped { "stopped after " } else { "" };
        progress(&format!("{}{late}, {}: {more}{seconds:.3} s, {peak_mib:.0} MiB", case.name(), contender.name()));
        self.times.push(Sample { case, delayed, contender, run, seconds, peak_mib, capped });
    }

    /// Adds the requests of a run.
    pub(crate) fn count_of(
        &mut self,
        case: Case,
        contender: Contender,
        section: &Section,
        sender: Sender,
        own: Option<u64>,
    ) {
        let lists = section.by_resource(sender).into_iter().filter(|((verb, _), _)| verb == "list");
        let lists_of_a_kind = lists.map(|(_, count)| count).max().unwrap_or_default();
        self.counts.push(Count { case, contender, by_verb: section.count(sender), lists_of_a_kind, own });
    }

    /// Adds a failure, and shows it.
    pub(crate) fn fail(&mut self, failure: String) {
        progress(&failure);
        self.failures.push(failure);
    }

    /// Returns the samples of a contender, in the order of the runs.
    pub(crate) fn of(&self, case: Case, delayed: bool, contender: Contender) -> Vec<&Sample> {
        let wanted = |sample: &&Sample| (sample.case, sample.delayed, sample.contender) == (case, delayed, contender);
        self.times.iter().filter(wanted).collect()
    }

    /// Returns the times of a contender.
    pub(crate) fn seconds(&self, case: Case, delayed: bool, contender: Contender) -> Vec<f64> {
        self.of(case, delayed, contender).into_iter().map(|sample| sample.seconds).collect()
    }

    /// Divides the samples of two contenders, run by run.
    pub(crate) fn quotients(&self, above: (Case, bool, Contender), below: (Case, bool, Contender)) -> Vec<f64> {
        let below = self.of(below.0, below.1, below.2);
        let pair = |sample: &Sample| below.iter().find(|other| other.run == sample.run).map(|other| other.seconds);
        let above = self.of(above.0, above.1, above.2).into_iter();
        above.filter_map(|sample| pair(sample).map(|other| sample.seconds / other)).collect()
    }

    /// Returns the requests of a contender.
    pub(crate) fn count(&self, case: Case, contender: Contender) -> Option<&Count> {
        self.counts.iter().find(|count| (count.case, count.contender) == (case, contender))
    }
}

/// The median, minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Computes the spread of numbers; `None` without numbers.
    pub(crate) fn of(numbers: &[f64]) -> Option<Self> {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let half = sorted.len() / 2;
        let upper = *sorted.get(half)?;
        let median = if sorted.len() % 2 == 1 { upper } else { f64::midpoint(*sorted.get(half - 1)?, upper) };
        Some(Self { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(contender: Contender, run: u32, seconds: f64) -> Sample {
        Sample { case: Case::Create, delayed: false, contender, run, seconds, peak_mib: 1.0, capped: false }
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
    }

    #[test]
    fn quotients_are_of_the_same_run() {
        let times = vec![
            sample(Contender::Floor, 0, 1.0),
            sample(Contender::Floor, 1, 2.0),
            sample(Contender::Billhook, 1, 3.0),
            sample(Contender::Billhook, 2, 9.0),
        ];
        let samples = Samples { times, ..Samples::default() };
        let of = |contender| (Case::Create, false, contender);
        assert_eq!(samples.quotients(of(Contender::Billhook), of(Contender::Floor)), [1.5]);
    }
}
