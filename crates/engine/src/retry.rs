//! What follows a request that failed: whether it is sent again, after which pause, and when it is given up.
//!
//! A failure may pass, and then the request is sent again until the time limit, after growing pauses; or the request was
//! rejected, and then it is sent again after each pause that the plan has for that. What the failure is comes from
//! [`ErrorKind`], never from a message.

use std::time::Duration;

use billhook_cluster::{Error, ErrorKind};
use billhook_objects::ObjectKey;
use billhook_plan::ApplyTask;
use billhook_policy::GoDuration;

use crate::{Blocker, Event, RefusedBy};

/// The longest pause before a failed request is sent again, unless the API server asks for more.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(15);
/// The longest pause before an object is deleted again that another client recreates.
const MAX_RECREATION_PAUSE: Duration = Duration::from_secs(30);

/// Returns how long to wait before the next try of something that was tried so often before.
pub(crate) fn backoff(tries: u32) -> Duration {
    Duration::from_millis(500 << tries.min(5)).min(MAX_PAUSE)
}

/// Returns how long to wait before an object is read again whose DELETE was refused this often because it had changed.
pub(crate) fn conflict_pause(conflicts: u32) -> Duration {
    const AT_ONCE: u32 = 3;
    if conflicts <= AT_ONCE { Duration::ZERO } else { Duration::from_secs(1) }
}

/// Returns how long to wait before an object that was recreated this often, twice at least, is deleted again.
pub(crate) fn recreation_pause(recreations: u32) -> Duration {
    Duration::from_secs(1 << recreations.saturating_sub(2).min(5)).min(MAX_RECREATION_PAUSE)
}

/// Why a request failed.
#[derive(Clone)]
pub(crate) struct Failure {
    pub message: String,
    pub kind: ErrorKind,
    pub by: RefusedBy,
    /// Whether the API server recovers by itself.
    pub is_transient: bool,
    /// The pause that the API server asks for.
    pub retry_after: Option<Duration>,
    /// Whether the request may have taken effect: the answer to one of its tries was lost.
    pub is_unknown: bool,
}

impl Failure {
    /// Returns whether the same request would fail again.
    pub fn is_rejection(&self) -> bool {
        use ErrorKind::{Denied, Forbidden, Invalid, Refused};
        matches!(self.kind, Forbidden | Denied | Refused | Invalid)
    }

    /// Returns whether the same request may succeed although nobody changes its object: the API server is unavailable, the
    /// backend of a webhook is not running yet (it may be part of the release), or a new namespace has no ServiceAccount yet.
    fn may_pass(&self) -> bool {
        self.is_transient || matches!(self.kind, ErrorKind::Webhook | ErrorKind::NoServiceAccount)
    }

    pub fn blocker(&self) -> Blocker {
        Blocker::Refused { message: self.message.clone(), by: self.by }
    }

    pub fn event(&self, node: usize, object: ObjectKey, retried: bool) -> Event {
        Event::Refused { node, object, message: self.message.clone(), retried }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            message: error.message(),
            kind: error.kind().clone(),
            by: RefusedBy::of(&error),
            is_transient: error.is_transient(),
            retry_after: error.retry_after(),
            is_unknown: error.may_have_taken_effect(),
        }
    }
}

/// Returns whether an object is deleted and created again after a failure of its update: it is invalid, and the plan lets it.
pub(crate) fn is_recreated(task: &ApplyTask, failure: &ErrorKind) -> bool {
    task.recreate.is_some() && *failure == ErrorKind::Invalid
}

/// Which failures of a request may pass.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Passing {
    /// None.
    Nothing,
    /// Those of a write of which that is known.
    Known,
    /// All that are no rejections: a deletion waits for others anyway, and is safe to repeat.
    AllButRejections,
}

/// How the failed requests of a node are retried.
#[derive(Clone, Copy)]
pub(crate) struct Policy<'a> {
    passing: Passing,
    /// The pauses after which a rejected request is sent again.
    rejected: &'a [GoDuration],
    /// Whether the caller repeats what fails.
    again: bool,
}

impl<'a> Policy<'a> {
    /// Returns the policy for writes.
    pub fn writes(rejected: &'a [GoDuration]) -> Self {
        Self { passing: Passing::Known, rejected, again: false }
    }

    /// Returns the policy for deletions.
    pub fn deletions(rejected: &'a [GoDuration]) -> Self {
        Self { passing: Passing::AllButRejections, rejected, again: false }
    }

    /// Returns the policy for a step of a sequence, which repeats it, whatever has failed: `again` if it does so once more.
    pub fn step(again: bool) -> Self {
        Self { passing: Passing::Nothing, rejected: &[], again }
    }

    /// Returns what follows a failure if the request is not sent again.
    pub fn without_retry(self) -> Next {
        if self.again { Next::ByCaller } else { Next::Nothing }
    }
}

/// What follows a failure.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// The same request, after this pause.
    Again(Duration),
    /// Its object is deleted and created again, because its update is invalid.
    Recreation,
    /// Nothing that this request decides: the caller repeats it.
    ByCaller,
    /// Nothing: the failure is final.
    Nothing,
}

/// The tries of a request so far.
#[derive(Default)]
pub(crate) struct Retries {
    /// How often it failed for now, and how often it was rejected.
    failures: u32,
    rejections: usize,
    /// The failure that was last reported, so that it is reported once.
    reported: String,
}

impl Retries {
    /// Returns what follows a failure of the request, which may be the update of a task.
    pub fn next(&mut self, failure: &Failure, policy: Policy<'_>, update: Option<&ApplyTask>) -> Next {
        let passes = match policy.passing {
            Passing::Nothing => false,
            Passing::Known => failure.may_pass(),
            Passing::AllButRejections => !failure.is_rejection(),
        };
        if update.is_some_and(|task| is_recreated(task, &failure.kind)) {
            Next::Recreation
        } else if passes {
            self.failures += 1;
            Next::Again(backoff(self.failures - 1).max(failure.retry_after.unwrap_or_default()))
        } else if let Some(pause) = policy.rejected.get(self.rejections) {
            self.rejections += 1;
            Next::Again(pause.0)
        } else {
            policy.without_retry()
        }
    }

    /// Returns whether a failure was not reported last, and notes that it is now.
    pub fn is_new(&mut self, message: &str) -> bool {
        let is_new = self.reported != message;
        if is_new {
            message.clone_into(&mut self.reported);
        }
        is_new
    }

    /// Returns the failure that was last reported.
    pub fn reported(&self) -> &str {
        &self.reported
    }
}

#[cfg(test)]
mod tests {
    use billhook_cluster::FieldConflict;
    use billhook_objects::GroupKind;
    use billhook_plan::Resource;
    use billhook_policy::Propagation;

    use super::*;

    fn failure(kind: ErrorKind) -> Failure {
        let is_transient = matches!(kind, ErrorKind::Timeout | ErrorKind::Unreachable);
        let by = RefusedBy::of_kind(&kind);
        Failure { message: "no".to_owned(), kind, by, is_transient, retry_after: None, is_unknown: false }
    }

    /// An update that the plan lets become a recreation.
    fn update() -> ApplyTask {
        let object = ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), "x");
        let task = ApplyTask::creation(object, Resource::secrets());
        ApplyTask { recreate: Some(Propagation::Background), ..task }
    }

    fn fields(number: usize) -> ErrorKind {
        let field = FieldConflict { manager: "helm".to_owned(), field: ".data.a".to_owned() };
        ErrorKind::Conflict(vec![field; number])
    }

    #[test]
    fn a_failure_is_retried_by_its_kind_and_by_what_was_sent() {
        use ErrorKind::{
            Denied, Forbidden, Invalid, NoServiceAccount, NotAsSeen, NotServed, Other, Refused, Timeout, TooLarge,
            Unreachable, Webhook,
        };
        for (kind, write, deletion) in [
            (Forbidden, false, false),
            (Denied, false, false),
            (Refused, false, false),
            (Invalid, false, false),
            (fields(0), false, true),
            (fields(2), false, true),
            (NotAsSeen, false, true),
            (NotServed, false, true),
            (TooLarge, false, true),
            (Other, false, true),
            (Webhook, true, true),
            (NoServiceAccount, true, true),
            (Timeout, true, true),
            (Unreachable, true, true),
        ] {
            let failure = failure(kind.clone());
            for (policy, retried) in
                [(Policy::writes(&[]), write), (Policy::deletions(&[]), deletion), (Policy::step(false), false)]
            {
                let expected = if retried { Next::Again(Duration::from_millis(500)) } else { Next::Nothing };
                assert_eq!(Retries::default().next(&failure, policy, None), expected, "{kind:?} {:?}", policy.passing);
            }
            assert_eq!(Retries::default().next(&failure, Policy::step(true), None), Next::ByCaller, "{kind:?}");
            let recreation = Retries::default().next(&failure, Policy::step(true), Some(&update()));
            assert_eq!(recreation == Next::Recreation, kind == Invalid, "{kind:?}");
        }
    }

    #[test]
    fn pauses_grow_and_those_of_the_plan_are_used_once() {
        let seconds = |seconds| GoDuration(Duration::from_secs(seconds));
        let rejected = [seconds(5), seconds(7)];
        for policy in [Policy::writes(&rejected), Policy::deletions(&rejected)] {
            let mut retries = Retries::default();
            let mut after = |kind, retry_after: Option<u64>| {
                let retry_after = retry_after.map(Duration::from_secs);
                match retries.next(&Failure { retry_after, ..failure(kind) }, policy, None) {
                    Next::Again(pause) => Some(pause.as_millis()),
                    _ => None,
                }
            };
            assert_eq!(after(ErrorKind::Timeout, None), Some(500));
            assert_eq!(after(ErrorKind::Refused, None), Some(5000));
            assert_eq!(after(ErrorKind::Timeout, None), Some(1000));
            assert_eq!(after(ErrorKind::Timeout, Some(3)), Some(3000));
            assert_eq!(after(ErrorKind::Timeout, Some(3)), Some(4000));
            assert_eq!(after(ErrorKind::Denied, None), Some(7000));
            assert_eq!(after(ErrorKind::Denied, None), None);
            assert_eq!((after(ErrorKind::Timeout, None), after(ErrorKind::Timeout, None)), (Some(8000), Some(15_000)));
            assert_eq!(after(ErrorKind::Timeout, Some(60)), Some(60_000));
        }
    }

    #[test]
    fn a_failure_is_reported_once_until_it_changes() {
        let mut retries = Retries::default();
        let new: Vec<_> = ["no", "no", "never", "no"].into_iter().map(|message| retries.is_new(message)).collect();
        assert_eq!((new, retries.reported()), (vec![true, false, true, true], "no"));
    }

    #[test]
    fn who_refused_a_request_is_told_by_the_kind_of_the_failure() {
        for (kind, by) in [
            (ErrorKind::Forbidden, RefusedBy::Rights),
            (ErrorKind::Webhook, RefusedBy::Webhook),
            (ErrorKind::Denied, RefusedBy::Webhook),
            (ErrorKind::Refused, RefusedBy::Admission),
            (ErrorKind::NoServiceAccount, RefusedBy::Admission),
            (ErrorKind::NotServed, RefusedBy::Missing),
            (ErrorKind::NotAsSeen, RefusedBy::Changed),
            (fields(0), RefusedBy::Server),
            (fields(1), RefusedBy::Managers),
            (fields(3), RefusedBy::Managers),
            (ErrorKind::Invalid, RefusedBy::Server),
            (ErrorKind::Other, RefusedBy::Server),
        ] {
            assert_eq!(RefusedBy::of_kind(&kind), by, "{kind:?}");
        }
    }
}
