//! Foresees what will go wrong with a deletion that has not begun, by the evidence that explanations use.
//!
//! The rounds are those of a [`Diagnosis`](crate::Diagnosis): what is looked at and not known yet is queried next.

mod backends;
mod charges;
mod custody;
mod fate;
mod foreseen;
mod volumes;

use std::{collections::BTreeSet, sync::Arc};

use billhook_objects::Catalog;
use jiff::Timestamp;

use self::fate::{Fates, groups};
pub use self::{
    custody::Custodian,
    fate::{Steps, ToDelete},
    foreseen::Foreseen,
};
use crate::{
    Answer, Inquiry, Options, Query, Unread,
    case::{Answers, Case, Observation},
    kinds::{self, Builtin},
};

/// How many groups of objects with the same finalizer are looked at.
const GROUPS: usize = 64;
/// The kinds whose deletion needs webhooks and aggregated APIs, or ends them.
const DANGEROUS: [&Builtin; 5] =
    [&kinds::NAMESPACE, &kinds::CRD, &kinds::API_SERVICE, &kinds::VALIDATING, &kinds::MUTATING];

/// The kinds of what webhooks and aggregated APIs need.
const BACKENDS: [&Builtin; 4] = [&kinds::SERVICE, &kinds::DEPLOYMENT, &kinds::STATEFUL_SET, &kinds::DAEMON_SET];

/// What will happen if objects are deleted in this order.
#[derive(Debug)]
pub struct Foresight<'a> {
    objects: Vec<ToDelete>,
    steps: Steps,
    catalog: &'a Catalog,
    now: Timestamp,
    answers: Answers,
    asked: BTreeSet<Query>,
    /// How many groups of objects with the same finalizer are looked at.
    groups: usize,
    /// How many objects of a group that was not looked at.
    unexamined: usize,
    /// Whether it is not told which objects need a webhook or an APIService.
    is_brief: bool,
}

impl<'a> Foresight<'a> {
    /// Starts to look ahead. `now` is the time of the server's clock.
    pub fn new(mut objects: Vec<ToDelete>, steps: Steps, catalog: &'a Catalog, now: Timestamp) -> Self {
        objects.sort_by(|a, b| (a.contained, &a.object).cmp(&(b.contained, &b.object)));
        objects.dedup_by(|a, b| a.object.is_same(&b.object));
        let (answers, asked) = (Answers::new(), BTreeSet::new());
        let new = Self { objects, steps, catalog, now, answers, asked, groups: 0, unexamined: 0, is_brief: false };
        new.examining(GROUPS)
    }

    /// Looks at this many groups of objects with the same finalizer, instead of a number that limits the queries.
    #[must_use]
    pub fn examining(mut self, count: usize) -> Self {
        self.groups = count;
        self.unexamined = groups(&self.objects).iter().skip(count).map(|group| group.objects.len()).sum();
        self
    }

    /// Does not tell which objects need a webhook or an APIService: that depends on the labels of each, and on those of its
    /// Namespace.
    #[must_use]
    pub fn brief(mut self) -> Self {
        self.is_brief = true;
        self
    }

    /// Returns whether there is anything to foresee: objects with finalizers, volumes, or kinds that matter to the deletion of
    /// others. If not, no query is asked.
    pub fn is_needed(&self) -> bool {
        let matters = |one: &ToDelete| {
            !one.finalizers.is_empty()
                || DANGEROUS.into_iter().chain([&kinds::CLAIM, &kinds::VOLUME]).any(|kind| kind.is(&one.object))
        };
        self.objects.iter().any(matters)
    }

    /// Returns the next round of queries; none once nothing more is needed. A query is asked once.
    pub fn queries(&mut self) -> Vec<Query> {
        let case = self.case();
        self.look(&case);
        let mut needs = case.into_needs();
        needs.retain(|query| !self.asked.contains(query));
        self.asked.extend(needs.iter().cloned());
        needs
    }

    /// Takes answers. `now` is the time of the server's clock when they were given.
    pub fn learn<A: Into<Arc<Answer>>>(&mut self, now: Timestamp, answers: impl IntoIterator<Item = (Query, A)>) {
        self.now = self.now.max(now);
        for (query, answer) in answers {
            self.answers.insert(query, vec![Observation { at: now, answer: answer.into() }]);
        }
    }

    /// Returns the answers so far, which another foresight of the same cluster can learn.
    pub fn into_answers(self) -> Vec<(Query, Arc<Answer>)> {
        let newest = |(query, mut all): (Query, Vec<Observation>)| Some((query, all.pop()?.answer));
        self.answers.into_iter().filter_map(newest).collect()
    }

    /// Returns what is foreseen with the answers so far.
    pub fn foreseen(&self) -> Vec<Foreseen> {
        let mut found = self.look(&self.case());
        found.sort();
        found
    }

    /// Returns what could not be read: nothing is foreseen from it.
    pub fn unread(&self) -> BTreeSet<Unread> {
        let failed = self.answers.iter().filter_map(|(query, all)| Unread::of(query, &all.last()?.answer));
        failed.collect()
    }

    /// Returns how many objects with finalizers were not looked at, because there are too many different ones or their queries
    /// were not answered.
    pub fn unexamined(&self) -> usize {
        self.unexamined
    }

    fn look(&self, case: &Case<'_>) -> Vec<Foreseen> {
        if !self.is_needed() {
            return Vec::new();
        }
        let fates = Fates::new(&self.objects, &self.steps);
        let groups = groups(&self.objects);
        let mut found: Vec<_> =
            groups.iter().take(self.groups).flat_map(|group| charges::foresee(case, &fates, group)).collect();
        let is_component = |finalizer: &str| crate::known(finalizer).is_some_and(|known| !known.component.is_empty());
        let is_custom = groups.iter().any(|group| !is_component(group.finalizer));
        let has = |kinds: &[&Builtin]| self.objects.iter().any(|one| kinds.iter().any(|kind| kind.is(&one.object)));
        if has(&DANGEROUS) || (is_custom && has(&BACKENDS)) {
            found.extend(backends::foresee(case, &fates, self.is_brief));
        }
        found.extend(volumes::foresee(case, &fates));
        found
    }

    fn case(&self) -> Case<'_> {
        Case::new(self.catalog, Options::default(), self.now, &self.answers)
    }
}

impl Inquiry for Foresight<'_> {
    fn ask(&mut self) -> Vec<Query> {
        self.queries()
    }

    fn hear(&mut self, now: Timestamp, query: Query, answer: Arc<Answer>) {
        self.learn(now, [(query, answer)]);
    }
}
