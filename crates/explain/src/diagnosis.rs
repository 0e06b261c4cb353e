//! One diagnosis: rounds of queries and answers, then the finding.

use std::{collections::BTreeSet, sync::Arc};

use billhook_objects::Catalog;
use jiff::Timestamp;

use crate::{
    Answer, Finding, Inquiry, ObjectRef, Options, Query, Unread,
    case::{Answers, Case, Observation},
    registry::RULES,
    rule::Rule,
    tree,
};

/// The diagnosis of one object.
#[derive(Debug)]
pub struct Diagnosis<'a> {
    subject: ObjectRef,
    catalog: &'a Catalog,
    options: Options,
    rules: Vec<Rule>,
    now: Timestamp,
    answers: Answers,
    asked: BTreeSet<Query>,
    requests: usize,
}

impl<'a> Diagnosis<'a> {
    /// Starts a diagnosis of an object in a cluster that serves these kinds. If the subject has a UID, an object with another
    /// one is a recreated one. `now` is the time of the server's clock.
    pub fn new(subject: ObjectRef, catalog: &'a Catalog, options: Options, now: Timestamp) -> Self {
        Self {
            subject,
            catalog,
            options,
            rules: RULES.to_vec(),
            now,
            answers: Answers::new(),
            asked: BTreeSet::new(),
            requests: 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn with_rules(mut self, rules: Vec<Rule>) -> Self {
        self.rules = rules;
        self
    }

    /// Returns the next round of queries; none once nothing more is needed or the budget is used. A query is asked once: what
    /// is not answered stays unknown.
    pub fn queries(&mut self) -> Vec<Query> {
        let case = self.case();
        tree::grow(&case, &self.rules, &self.subject);
        let mut needs = case.into_needs();
        needs.retain(|query| !self.asked.contains(query));
        needs.truncate(self.options.budget.saturating_sub(self.requests));
        self.asked.extend(needs.iter().cloned());
        self.requests += needs.len();
        needs
    }

    /// Takes answers. `now` is the time of the server's clock when they were given.
    pub fn learn<A: Into<Arc<Answer>>>(&mut self, now: Timestamp, answers: impl IntoIterator<Item = (Query, A)>) {
        self.now = self.now.max(now);
        for (query, answer) in answers {
            let all = self.answers.entry(query).or_default();
            all.truncate(1);
            all.push(Observation { at: now, answer: answer.into() });
        }
    }

    /// Returns the queries whose second answer, some seconds later, tells slow from stuck; none if the first answers do. After
    /// they are learned, [`queries`](Self::queries) may ask for more.
    pub fn second_look(&mut self) -> Vec<Query> {
        let case = self.case();
        tree::grow(&case, &self.rules, &self.subject);
        let mut again = case.into_again();
        again.truncate(self.options.budget.saturating_sub(self.requests));
        self.requests += again.len();
        again
    }

    /// Returns the number of requests that it has asked for.
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// Returns what could not be read, and is missing in the finding: the caller lacks the right, or the request failed.
    pub fn unread(&self) -> impl Iterator<Item = Unread> {
        self.answers.iter().filter_map(|(query, all)| Unread::of(query, &all.last()?.answer))
    }

    /// Returns what is known now.
    pub fn finding(&self) -> Finding {
        let case = self.case();
        let causes = tree::grow(&case, &self.rules, &self.subject);
        Finding::new(&case, &self.subject, causes)
    }

    fn case(&self) -> Case<'_> {
        Case::new(self.catalog, self.options, self.now, &self.answers)
    }
}

impl Inquiry for Diagnosis<'_> {
    fn ask(&mut self) -> Vec<Query> {
        self.queries()
    }

    fn hear(&mut self, now: Timestamp, query: Query, answer: Arc<Answer>) {
        self.learn(now, [(query, answer)]);
    }
}
