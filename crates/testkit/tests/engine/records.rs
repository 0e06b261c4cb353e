//! What an operation leaves of a release if it ends in the middle of a write of the record, or works on one that is lost.

use billhook_engine::{Forgotten, ReleaseStatus, forget_record, prepare_forget, release_status};
use billhook_policy::ResourceSelector;
use billhook_sandbox::faults::Moment;
use tokio::time::sleep;

use super::*;

async fn forget(clusters: &Clusters, release: &ReleaseName) -> Result<Forgotten, OperationError> {
    billhook_engine::forget(clusters, prepare_forget(clusters, release).await?).await
}

/// A policy that does not fit into the head of a record beside the index.
fn large() -> Policy {
    let everything = |kind: &str, names: Vec<String>| {
        let selector = ResourceSelector {
            api_version: ApiVersion::parse("v1").unwrap(),
            kind: kind.into(),
            names,
            namespaces: Vec::new(),
            label_selector: Default::default(),
            all: false,
        };
        DeletionGroup::new(kind, Members::Resources(vec![selector]))
    };
    let names = (0..15_000).map(|n| format!("{n:048}")).collect();
    let deletion = vec![everything("secrets", names), everything("configmaps", Vec::new())];
    Policy { deletion, during_update: Vec::new(), deployment: Vec::new() }
}

impl World {
    /// Runs work until the client crashes at its write of this number in the home cluster, and starts another one when the lock
    /// has expired. Returns whether it crashed.
    async fn crash(&mut self, number: usize, moment: Moment, work: impl AsyncFnOnce(&Self)) -> bool {
        let faults = self.home.faults();
        faults.inject(Fault::crash(moment).on(Requests::of(CLIENT).writes()).nth(number));
        let crashed = tokio::select! {
            () = work(self) => false,
            () = faults.crashed(CLIENT) => true,
        };
        faults.clear();
        faults.revive(CLIENT);
        sleep(Duration::from_secs(31)).await;
        self.clusters.holder = Holder::new("another", 2, None);
        crashed
    }

    async fn status(&self) -> Result<ReleaseStatus, OperationError> {
        release_status(&self.clusters, &release()).await
    }

    async fn plan(&self, edit: impl FnOnce(&mut DeleteInput)) -> Result<(), OperationError> {
        billhook_engine::prepare_delete(&self.clusters, delete_input(edit)).await.map(drop)
    }

    async fn lose_record(&self) {
        forget_record(self.clusters.records.as_ref().unwrap(), &release()).await.unwrap();
    }
}

const MOMENTS: [Moment; 2] = [Moment::Before, Moment::After];

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_the_first_record_is_whole_and_nothing_inherited_is_lost() {
    for moment in MOMENTS {
        for number in 1.. {
            let mut world = World::new();
            let uid = world.given("old", json!({})).await;
            let edit = |input: &mut ApplyInput| {
                (input.policy, input.prune) = (Some(large()), false);
                input.unrecorded = Unrecorded::Inherits(vec![inherited("old", &uid)]);
            };
            let crashed = world
                .crash(number, moment, async |world| {
                    drop(world.apply_with(&[("new {k: v}", nothing())], edit).await);
                })
                .await;
            assert!(world.config_map("new").is_none() || world.entry("new").await.is_some());
            // The deletion, too, may end in the middle of its first write.
            let deleting = |input: &mut DeleteInput| input.inherited = vec![inherited("old", &uid)];
            world.crash(number, moment, async |world| drop(world.delete_with(deleting).await)).await;
            world.delete_with(deleting).await.unwrap();
            let left = ["old", "new"].map(|name| world.config_map(name));
            assert_eq!((left, world.has_record()), ([None, None], false), "{moment:?} {number}");
            if !crashed {
                assert!(number > 3, "a head, a part and a head");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_not_whole_is_no_record() {
    for moment in MOMENTS {
        for number in 1..4 {
            let mut world = World::new();
            world.apply(&[("a {k: v}", nothing()), ("b {k: v}", nothing())]).await;
            world.lose_record().await;
            let edit = |input: &mut ApplyInput| (input.policy, input.unrecorded) = (Some(large()), Unrecorded::Swept);
            let crashed = world
                .crash(number, moment, async |world| {
                    drop(world.apply_with(&[("a {k: new}", nothing())], edit).await);
                })
                .await;
            assert!(crashed);
            let whole = world.entry("b").await.is_some();
            assert_eq!(whole, (number, moment) == (3, Moment::After), "{moment:?} {number}");
            assert_eq!(world.data("a"), json!({"k": "v"}));
            // All of them find what the lost record named.
            assert_eq!(world.status().await.unwrap().objects.len(), 2);
            let required = |input: &mut DeleteInput| input.require_record = true;
            let planned = world.plan(required).await;
            assert!(whole || matches!(planned, Err(OperationError::PolicyLost(..))), "{planned:?}");
            let applied = world.apply_with(&[("a {k: new}", nothing())], edit).await.unwrap();
            assert!(applied.status == Status::Done && world.entry("b").await.is_some_and(|entry| entry.obsolete));
            assert_eq!((world.data("a"), world.delete().await.gone), (json!({"k": "new"}), 2));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_head_of_a_release_without_objects_is_deleted() {
    let mut world = World::new();
    let edit = |input: &mut ApplyInput| input.policy = Some(large());
    world.crash(2, Moment::Before, async |world| drop(world.apply_with(&[("a {k: v}", nothing())], edit).await)).await;
    assert!(world.has_record() && world.entry("a").await.is_none());
    assert!(matches!(world.status().await, Err(OperationError::NoRelease(..))));
    let summary = world.delete_with(|input| input.require_record = true).await.unwrap();
    assert_eq!((summary.status, summary.gone, world.has_record()), (Status::Done, 0, false));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_lost_its_record_is_forgotten_under_a_lock() {
    let mut world = World::new();
    world.apply(&[("a {k: v}", nothing())]).await;
    world.lose_record().await;
    // One of two callers removes the labels.
    let patches = Requests::of(CLIENT).verb(Verb::Patch).resource("", "configmaps");
    world.target.faults().inject(Fault::delay(Duration::from_secs(5)).on(patches.clone()));
    let mut other = world.clusters.clone();
    other.holder = Holder::new("other", 2, None);
    let second = async {
        sleep(Duration::from_secs(1)).await;
        let forgotten = forget(&other, &release()).await;
        (forgotten, world.apply_with(&[("a {k: w}", nothing())], |input| input.unrecorded = Unrecorded::New).await)
    };
    let release = release();
    let (first, (second, applied)) = tokio::join!(forget(&world.clusters, &release), second);
    assert_eq!(first.unwrap().objects, [key("a")]);
    let is_locked = |error: &OperationError| error.to_string().contains("forget by test");
    assert!(second.is_err_and(|error| is_locked(&error)));
    assert!(applied.is_err());
    assert!(!world.has_record() && world.data("a") == json!({"k": "v"}));
    // After a crash the record is still lost, and so is its policy.
    world.target.faults().clear();
    world.apply(&[("a {k: v}", nothing())]).await;
    world.lose_record().await;
    world.crash(1, Moment::After, async |world| drop(forget(&world.clusters, &super::release()).await)).await;
    assert!(world.has_record());
    let refused = world.plan(|input| input.require_record = true).await;
    assert!(matches!(refused, Err(OperationError::PolicyLost(..))), "{refused:?}");
    // A label that cannot be removed leaves no record either.
    world.target.faults().inject(forbidden().on(patches).nth(1));
    assert_eq!(forget(&world.clusters, &release).await.unwrap().failed.len(), 1);
    assert!(!world.has_record());
    assert_eq!(forget(&world.clusters, &release).await.unwrap().objects, [key("a")]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_refused_after_another_operation_on_the_release() {
    let world = World::new();
    world.apply(&[("a {k: v}", Directives::default())]).await;
    let prepare = || async { billhook_engine::prepare_delete(&world.clusters, delete_input(|_| {})).await.unwrap() };
    let (first, second) = (prepare().await, prepare().await);
    billhook_engine::delete(&world.clusters, first, &world.options()).await.unwrap();
    world.apply(&[("a {k: v}", Directives::default())]).await;
    let refused = billhook_engine::delete(&world.clusters, second, &world.options()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("another operation changed release {} after this one had read it", release())
    );
    assert!(world.config_map("a").is_some());
}
