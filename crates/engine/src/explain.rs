//! Explains why objects are not gone: runs the rounds of their diagnoses against a cluster.
//!
//! What is asked and what is concluded is up to `billhook-explain`. Here requests are sent, each once for all diagnoses that
//! ask for it, and the answers are handed over with the time of the server's clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use billhook_cluster::Cluster;
use billhook_explain::{Answer, Diagnosis, Document, ObjectRef, Options, Query};
use billhook_objects::Catalog;
use futures::StreamExt as _;
use jiff::Timestamp;
use tokio::time::sleep;

/// How many requests are sent at a time.
const AT_ONCE: usize = 16;

/// How objects are explained.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExplainOptions {
    /// Whether dry runs are sent, which show what admission would answer.
    pub probe: bool,
    /// How long to wait before a second look, which tells slow from stuck; none for one look.
    pub watch: Option<Duration>,
}

/// Explains why each of these objects is not gone. It reads only, and tells what it may not read.
pub async fn explain(
    cluster: &Cluster,
    catalog: &Catalog,
    subjects: impl IntoIterator<Item = ObjectRef>,
    options: ExplainOptions,
) -> Document {
    let asked = Options { probe: options.probe, ..Options::default() };
    let start = |subject| Diagnosis::new(subject, catalog, asked, now(cluster));
    let mut rounds = Rounds { cluster, known: BTreeMap::new(), requests: 0 };
    let mut diagnoses: Vec<_> = subjects.into_iter().map(start).collect();
    rounds.run(&mut diagnoses).await;
    if let Some(pause) = options.watch {
        let again: Vec<_> = diagnoses.iter_mut().map(Diagnosis::second_look).collect();
        if again.iter().any(|queries| !queries.is_empty()) {
            sleep(pause).await;
            rounds.known.clear();
            rounds.answer(&mut diagnoses, again).await;
            rounds.run(&mut diagnoses).await;
        }
    }
    Document::new(rounds.requests, diagnoses.iter().map(Diagnosis::finding).collect())
}

struct Rounds<'a> {
    cluster: &'a Cluster,
    /// The answers so far: diagnoses share them.
    known: BTreeMap<Query, (Timestamp, Answer)>,
    requests: usize,
}

impl Rounds<'_> {
    async fn run(&mut self, diagnoses: &mut [Diagnosis<'_>]) {
        loop {
            let queries: Vec<_> = diagnoses.iter_mut().map(Diagnosis::queries).collect();
            if queries.iter().all(Vec::is_empty) {
                break;
            }
            self.answer(diagnoses, queries).await;
        }
    }

    /// Sends the queries that are not answered yet, and hands all answers over.
    async fn answer(&mut self, diagnoses: &mut [Diagnosis<'_>], queries: Vec<Vec<Query>>) {
        let open: BTreeSet<_> =
            queries.iter().flatten().filter(|query| !self.known.contains_key(*query)).cloned().collect();
        self.requests += open.len();
        let cluster = self.cluster;
        let looks: Vec<_> = open
            .into_iter()
            .map(|query| async move {
                let answer = cluster.look(&query).await;
                (query, (now(cluster), answer))
            })
            .collect();
        let answers: Vec<_> = futures::stream::iter(looks).buffered(AT_ONCE).collect().await;
        self.known.extend(answers);
        for (diagnosis, queries) in diagnoses.iter_mut().zip(queries) {
            for query in queries {
                if let Some((at, answer)) = self.known.get(&query) {
                    diagnosis.learn(*at, [(query, answer.clone())]);
                }
            }
        }
    }
}

/// Returns the time of the server's clock; the beginning of time before the server has told it.
fn now(cluster: &Cluster) -> Timestamp {
    cluster.server_time().and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or_default()
}
