//! The rounds: sends what diagnoses ask, each request once, and many alike as one list.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use billhook_cluster::Cluster;
use billhook_explain::{Answer, Inquiry, Query, Unread};
use futures::StreamExt as _;
use jiff::Timestamp;

use super::{
    bulk::{Bulk, Group},
    now,
};

/// How many requests are sent at a time.
const AT_ONCE: usize = 16;
/// From how many queries alike on one list replaces them.
const MANY: usize = 8;

/// An answer, and when it was given.
type Told = (Timestamp, Arc<Answer>);

/// The requests of one explanation.
pub(super) struct Rounds<'a> {
    pub(super) cluster: &'a Cluster,
    /// How many requests may be sent.
    pub(super) limit: usize,
    /// How many were sent.
    pub(super) requests: usize,
    /// The answers so far, which diagnoses share.
    known: BTreeMap<Query, Told>,
    /// Lists that answer many queries; none for those that failed, or that do not cover all that is asked.
    bulks: BTreeMap<Group, Option<Bulk>>,
    /// How many queries were not sent because of the limit.
    unsent: usize,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(cluster: &'a Cluster, limit: usize) -> Self {
        Self { cluster, limit, requests: 0, known: BTreeMap::new(), bulks: BTreeMap::new(), unsent: 0 }
    }

    /// Adds a list that was read for another reason.
    pub(super) fn add(&mut self, group: Group, bulk: Bulk) {
        self.bulks.insert(group, Some(bulk));
    }

    /// Forgets all answers, so that the next ones are new.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.bulks.clear();
    }

    /// Returns that queries were not sent because of the limit.
    pub(super) fn left_out(&self) -> Option<Unread> {
        let (unsent, limit) = (self.unsent, self.limit);
        (unsent > 0).then(|| Unread {
            what: format!("{unsent} further requests"),
            why: format!("the limit of {limit} requests is reached; ask for single objects"),
        })
    }

    /// Asks and answers until the diagnoses need nothing more.
    pub(super) async fn run(&mut self, diagnoses: &mut [impl Inquiry]) {
        loop {
            let queries: Vec<_> = diagnoses.iter_mut().map(Inquiry::ask).collect();
            if queries.iter().all(Vec::is_empty) {
                break;
            }
            self.answer(diagnoses, queries).await;
        }
    }

    /// Sends the queries that are not answered yet, and hands all answers over.
    pub(super) async fn answer(&mut self, diagnoses: &mut [impl Inquiry], queries: Vec<Vec<Query>>) {
        let open = self.answer_together(self.open(&queries)).await;
        let sent = open.len().min(self.limit.saturating_sub(self.requests));
        self.unsent += open.len() - sent;
        self.requests += sent;
        let cluster = self.cluster;
        let looks: Vec<_> = open
            .into_iter()
            .take(sent)
            .map(|query| async move {
                let answer = cluster.look(&query).await;
                (query, (now(cluster), Arc::new(answer)))
            })
            .collect();
        let answers: Vec<_> = futures::stream::iter(looks).buffered(AT_ONCE).collect().await;
        self.known.extend(answers);
        for (diagnosis, queries) in diagnoses.iter_mut().zip(queries) {
            for query in queries {
                if let Some((at, answer)) = self.known.get(&query) {
                    let answer = Arc::clone(answer);
                    diagnosis.hear(*at, query, answer);
                }
            }
        }
    }

    /// Returns the queries without an answer: the most important ones of all diagnoses first.
    fn open(&self, queries: &[Vec<Query>]) -> Vec<Query> {
        let longest = queries.iter().map(Vec::len).max().unwrap_or_default();
        let (mut seen, mut open) = (HashSet::new(), Vec::new());
        for rank in 0..longest {
            for query in queries.iter().filter_map(|of_one| of_one.get(rank)) {
                if !self.known.contains_key(query) && seen.insert(query) {
                    open.push(query.clone());
                }
            }
        }
        open
    }

    /// Answers queries by lists, and returns the others.
    async fn answer_together(&mut self, mut open: Vec<Query>) -> Vec<Query> {
        self.recall(&mut open);
        let mut groups: BTreeMap<Group, usize> = BTreeMap::new();
        for group in open.iter().filter_map(Group::of) {
            *groups.entry(group).or_default() += 1;
        }
        for (group, alike) in groups {
            let left = self.limit.saturating_sub(self.requests);
            if alike < MANY || left == 0 || self.bulks.contains_key(&group) {
                continue;
            }
            // A list of a kind with far more objects than are asked for costs more than it saves.
            let pages = alike.div_ceil(MANY).min(left);
            let namespaces: BTreeSet<_> = open.iter().filter_map(|query| group.namespace_of(query)).collect();
            let (bulk, requests) = group.read(self.cluster, &namespaces, pages).await;
            self.requests += requests;
            self.bulks.insert(group, bulk);
        }
        self.recall(&mut open);
        open
    }

    /// Answers what the lists so far answer.
    fn recall(&mut self, open: &mut Vec<Query>) {
        let mut answered = Vec::new();
        open.retain(|query| {
            let groups = [Group::of(query), Group::whole(query)];
            let answer = groups.into_iter().flatten().find_map(|group| {
                let bulk = self.bulks.get(&group)?.as_ref()?;
                Some((bulk.at, Arc::new(bulk.answer(query)?)))
            });
            let is_open = answer.is_none();
            answered.extend(answer.map(|told| (query.clone(), told)));
            is_open
        });
        self.known.extend(answered);
    }
}
