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
    /// What the last round left out because of the budget.
    cut: Vec<Query>,
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
            cut: Vec::new(),
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
        let left = self.options.budget.saturating_sub(self.requests).min(needs.len());
        self.cut = needs.split_off(left);
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

    /// Returns what could not be read, and is missing in the finding: the caller lacks the right, the request failed, a list is
    /// longer than what is read of it, or the budget is used.
    pub fn unread(&self) -> impl Iterator<Item = Unread> {
        let failed = self.answers.iter().filter_map(|(query, all)| Unread::of(query, &all.last()?.answer));
        let longer = self.answers.iter().filter(|(query, _)| !self.is_superseded(query));
        let longer = longer.filter_map(|(query, all)| Unread::beyond(query, &all.last()?.answer));
        failed.chain(longer).chain(self.cut.iter().map(|query| Unread::cut(query, self.options.budget)))
    }

    /// Returns whether more of the same list was read, too.
    fn is_superseded(&self, query: &Query) -> bool {
        let Query::List { resource, namespace, fields, limit, content } = query else { return false };
        let is_more = |other: &Query| {
            matches!(other, Query::List { resource: r, namespace: n, fields: f, limit: l, content: c }
                if (r, n, f, c) == (resource, namespace, fields, content) && l > limit)
        };
        self.answers.iter().any(|(other, all)| {
            is_more(other) && all.last().is_some_and(|seen| matches!(*seen.answer, Answer::Objects { .. }))
        })
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

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// The limits of a diagnosis are said.
    #[test]
    fn what_the_limits_leave_out_is_not_read() {
        check_table(
            r#"
title: the budget is used
why: Widget shop/a
kinds: [acme.example/v1 Widget widgets]
budget: 2
objects: [{kind: Widget, name: shop/a, deleted: 1h, finalizers: [acme.example/keep], by: core}]
expect: {code: finalizer-unknown, unread: ["get CustomResourceDefinition.apiextensions.k8s.io widgets.acme.example: the limit of 2 requests for one object is reached"]}
---
title: a list is longer than its page
why: Deployment shop/web
crowd: {kind: ReplicaSet, namespace: shop, count: 501}
objects: [{kind: Deployment, name: shop/web, deleted: 1h, finalizers: [foregroundDeletion]}]
expect: {code: finalizer-in-progress, unread: ["list ReplicaSet.apps in namespace shop: only the first 500 objects were read"]}
"#,
        );
    }
}
