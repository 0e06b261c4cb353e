//! Waits that do not count against an item's time limit: for a slot to run helm, and for the turn of an item that may have killed
//! a controller.
//!
//! The status tells when the work began (`transitionTimes.initTime`), and each wait moves that time. So a retry, or another leader,
//! computes the same time limit. If the controller ends during a wait, the condition tells since when the item has waited.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use crate::{api::DeployItemStatus, item::Item, progress::CONDITION};

/// The reason of the condition while an item waits for a slot to run helm.
pub(crate) const WAITING_FOR_HELM: &str = "WaitingForHelm";
/// The reason of the condition while an item waits for its turn because it may have killed a controller.
pub(crate) const SUSPECTED: &str = "Suspected";

/// A wait that is going on.
pub(crate) struct Waited(Instant);

impl Waited {
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Moves the time limit of the item by the wait. The next write of the status contains it.
    pub(crate) fn end(self, item: &mut Item) {
        let waited = self.0.elapsed();
        item.deadline = item.deadline.and_then(|deadline| deadline.checked_add(waited));
        move_begin(&mut item.status, SignedDuration::try_from(waited).unwrap_or_default());
    }
}

/// Returns when the work on an item began, without its waits.
pub(crate) fn begin(status: &DeployItemStatus) -> Option<Timestamp> {
    let times = status.transition_times.as_ref();
    times.and_then(|times| times.init_time.as_ref()).or(status.last_reconcile_time.as_ref()).map(|time| time.0)
}

/// Moves the begin of the work by the wait that the end of a controller has interrupted.
pub(crate) fn resume(status: &mut DeployItemStatus, now: Timestamp) {
    let waits = [WAITING_FOR_HELM, SUSPECTED];
    let ours = status.conditions.iter().find(|condition| condition.r#type == CONDITION && condition.status == "True");
    let since = ours.filter(|condition| waits.contains(&condition.reason.as_str())).map(|c| c.last_update_time.0);
    if let Some(since) = since {
        move_begin(status, now.duration_since(since).max(SignedDuration::ZERO));
    }
}

fn move_begin(status: &mut DeployItemStatus, waited: SignedDuration) {
    // The status has whole seconds.
    let Some(begun) = begin(status).filter(|_| waited >= SignedDuration::from_secs(1)) else { return };
    let moved = begun.checked_add(waited).unwrap_or(begun);
    status.transition_times.get_or_insert_default().init_time = Some(Time(moved));
}

/// Returns how much time of its limit an item has used.
pub(crate) fn used(status: &DeployItemStatus, now: Timestamp) -> Duration {
    begin(status).map_or(Duration::ZERO, |begun| Duration::try_from(now.duration_since(begun)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{DeployerInformation, Phase},
        progress::Report,
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_wait_does_not_count_after_a_retry_or_a_restart() {
        let mut status = DeployItemStatus::default();
        status.begin(Phase::Progressing, 1, &DeployerInformation::default(), at(100));
        let report = |reason| Report { running: true, reason, message: String::new() };
        status.report(&report("Applying"), at(110));
        resume(&mut status, at(130));
        assert_eq!(used(&status, at(130)).as_secs(), 30);
        move_begin(&mut status, SignedDuration::from_secs(20));
        assert_eq!(used(&status, at(130)).as_secs(), 10);
        status.report(&report(WAITING_FOR_HELM), at(140));
        resume(&mut status, at(1000));
        assert_eq!(used(&status, at(1000)).as_secs(), 20);
        // Schedules count from the reconcile, not from the end of a wait.
        assert_eq!(status.last_reconcile_time.map(|time| time.0), Some(at(100)));
    }

    #[test]
    fn the_clock_of_another_replica_may_be_behind() {
        let mut status = DeployItemStatus::default();
        status.begin(Phase::Progressing, 1, &DeployerInformation::default(), at(100));
        status.report(&Report { running: true, reason: SUSPECTED, message: String::new() }, at(110));
        resume(&mut status, at(90));
        assert_eq!(used(&status, at(90)), Duration::ZERO);
        assert_eq!(begin(&status), Some(at(100)));
    }
}
