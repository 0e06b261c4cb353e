//! What happens between the start of an apply and its run, and what its record says after it.

use std::cell::Cell;

use billhook_cluster::TakeOver;
use billhook_engine::{PreparedApply, Starting, apply_announced, prepare_apply};
use billhook_plan::{PlanErrorKind, VersionState};
use tokio::time::sleep;

use super::*;

impl World {
    async fn prepared(&self, text: &str, version: &str) -> PreparedApply {
        let input = ApplyInput { version: Some(version.to_owned()), ..sequences::input(manifest(text)) };
        prepare_apply(&self.clusters, input).await.unwrap()
    }

    /// Applies with an announcement, and returns whether it was made.
    async fn announced(
        &self,
        prepared: PreparedApply,
        announce: impl AsyncFnOnce(Starting) -> Result<(), OperationError>,
    ) -> (Result<Summary, OperationError>, bool) {
        let made = Cell::new(false);
        let announce = async |starting| {
            made.set(true);
            announce(starting).await
        };
        let applied = apply_announced(&self.clusters, prepared, &self.options(), announce).await;
        (applied, made.get())
    }

    /// Returns whether somebody else may start an operation.
    async fn is_free(&self) -> bool {
        let other = Holder::new("other", 2, None);
        let store = self.clusters.records.as_ref().unwrap().inventory();
        matches!(store.take_over(&release(), &other).await.unwrap(), TakeOver::Free)
    }
}

#[tokio::test(start_paused = true)]
async fn an_apply_is_announced_when_it_is_locked_and_nothing_is_applied_yet() {
    let world = World::new();
    let (applied, made) = world
        .announced(world.prepared("a {k: v}", "1").await, async |starting| {
            assert!(starting.is_locked && world.has_record() && world.config_map("a").is_none());
            Ok(())
        })
        .await;
    assert!(made && applied.unwrap().status == Status::Done && world.is_free().await);
    // It has nothing to write, and no lock.
    let (applied, made) = world
        .announced(world.prepared("a {k: v}", "1").await, async |starting| {
            assert!(!starting.is_locked && world.is_free().await);
            Ok(())
        })
        .await;
    assert!(made && applied.unwrap().status == Status::Done);
}

#[tokio::test(start_paused = true)]
async fn of_two_that_were_planned_together_only_the_first_is_announced() {
    let world = World::new();
    let (first, second) = (world.prepared("a {k: v}", "1").await, world.prepared("b {k: v}", "2").await);
    assert!(world.announced(first, async |_| Ok(())).await.0.is_ok());
    let (applied, made) = world.announced(second, async |_| Ok(())).await;
    assert!(matches!(&applied, Err(OperationError::Plan(error)) if error.kind == PlanErrorKind::Busy), "{applied:?}");
    assert!(!made && world.config_map("b").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_apply_whose_announcement_fails_applies_nothing_and_is_not_locked() {
    let world = World::new();
    let failed = async |_: Starting| Err(OperationError::LockLost(release()));
    let (applied, _) = world.announced(world.prepared("a {k: v}", "1").await, failed).await;
    assert!(matches!(&applied, Err(OperationError::LockLost(_))), "{applied:?}");
    assert!(world.config_map("a").is_none() && world.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_version_is_completed_when_its_run_ends() {
    let world = World::new();
    let slow =
        Fault::delay(Duration::from_secs(7)).on(Requests::of(CLIENT).verb(Verb::Patch).resource("", "configmaps"));
    world.target.faults().inject(slow);
    let prepared = world.prepared("a {k: v}", "1").await;
    sleep(Duration::from_secs(3)).await;
    let summary = world.announced(prepared, async |_| Ok(())).await.0.unwrap();
    let recorded = summary.recorded.unwrap();
    let stored =
        world.clusters.records.as_ref().unwrap().inventory().load(&release()).await.unwrap().unwrap().inventory;
    assert_eq!((&recorded.history, recorded.revision), (&stored.history, stored.revision));
    let [version] = &recorded.history[..] else { panic!("{recorded:?}") };
    assert_eq!(
        (version.state, version.started_time.as_str(), version.completion_time.as_deref()),
        (VersionState::Completed, "2026-01-01T00:00:00Z", Some("2026-01-01T00:00:10Z"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_version_is_not_completed_if_its_record_cannot_be_written() {
    let world = World::new();
    // The first write of the record creates it.
    world.home.faults().inject(forbidden().on(Requests::of(CLIENT).verb(Verb::Patch).resource("", "secrets")));
    let summary = world.announced(world.prepared("a {k: v}", "1").await, async |_| Ok(())).await.0.unwrap();
    let recorded = summary.recorded.unwrap();
    assert_eq!((summary.status, recorded.history[0].state), (Status::Failed, VersionState::Partial));
}
