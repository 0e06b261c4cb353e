//! Explains why objects are not gone: runs the rounds of their diagnoses against a cluster.
//!
//! What is asked and what is concluded is up to `billhook-explain`. Here requests are sent, each once for all diagnoses that
//! ask for it, and the answers are handed over with the time of the server's clock.

mod bulk;
mod causes;
mod foresee;
mod rounds;
mod subjects;
mod waiting;

use std::{collections::BTreeSet, time::Duration};

use billhook_cluster::Cluster;
use billhook_explain::{Diagnosis, Document, ObjectRef, Options, Unread};
use billhook_objects::Catalog;
use jiff::Timestamp;
use tokio::time::sleep;

use self::rounds::Rounds;
pub(crate) use self::{
    bulk::{Bulk, Group},
    causes::{Blocked, add as add_root_causes, reference},
    foresee::{Lookout, evidence, look_ahead},
    waiting::Waiting,
};
pub use self::{
    causes::{blocker_texts, name_root_causes},
    subjects::of_release,
};

/// How many requests one object may take.
const EACH: usize = 30;
/// How many requests the objects of a whole cluster may take together.
const ALL: usize = 200;
/// How many of these at least are left for explanations after the kinds of the cluster were listed.
const AT_LEAST: usize = 60;

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
    let subjects: Vec<_> = subjects.into_iter().collect();
    let limit = subjects.len().saturating_mul(EACH);
    explain_within(cluster, catalog, subjects, options, limit).await
}

/// Explains objects with so many requests at most.
async fn explain_within(
    cluster: &Cluster,
    catalog: &Catalog,
    subjects: Vec<ObjectRef>,
    options: ExplainOptions,
    limit: usize,
) -> Document {
    run(Rounds::new(cluster, limit), catalog, subjects, options, BTreeSet::new()).await
}

/// Explains every object in the cluster that is being deleted. All kinds are listed for that; their answers are evidence, too.
pub async fn explain_all(cluster: &Cluster, catalog: &Catalog, options: ExplainOptions) -> Document {
    let mut rounds = Rounds::new(cluster, usize::MAX);
    let (subjects, unread) = subjects::deleting(&mut rounds, catalog).await;
    rounds.limit = rounds.requests + ALL.saturating_sub(rounds.requests).max(AT_LEAST);
    run(rounds, catalog, subjects, options, unread).await
}

async fn run(
    mut rounds: Rounds<'_>,
    catalog: &Catalog,
    subjects: Vec<ObjectRef>,
    options: ExplainOptions,
    mut unread: BTreeSet<Unread>,
) -> Document {
    let asked = Options { probe: options.probe, budget: EACH };
    let begin = now(rounds.cluster);
    let mut diagnoses: Vec<_> =
        subjects.into_iter().map(|subject| Diagnosis::new(subject, catalog, asked, begin)).collect();
    rounds.run(&mut diagnoses).await;
    if let Some(pause) = options.watch {
        let again: Vec<_> = diagnoses.iter_mut().map(Diagnosis::second_look).collect();
        if again.iter().any(|queries| !queries.is_empty()) {
            sleep(pause).await;
            rounds.forget();
            rounds.answer(&mut diagnoses, again).await;
            rounds.run(&mut diagnoses).await;
        }
    }
    unread.extend(diagnoses.iter().flat_map(Diagnosis::unread));
    unread.extend(rounds.left_out());
    Document::new(rounds.requests, diagnoses.iter().map(Diagnosis::finding).collect(), unread)
}

/// Returns the time of the server's clock; the beginning of time before the server has told it.
fn now(cluster: &Cluster) -> Timestamp {
    cluster.server_time().and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or_default()
}
