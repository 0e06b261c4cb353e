//! `--take-over`: works on a release that another operation has locked.

use std::time::Duration;

use billhook_engine::Clusters;
use billhook_objects::ReleaseName;
use billhook_plan::Locked;
use tokio_util::sync::CancellationToken;

use crate::{
    error::CommandError,
    session::{Interrupts, Session, interrupted},
    text,
};

/// Takes the lock of a release over from another operation, if one has it, waits until that one has certainly stopped, and does
/// the work. However the work ends, a lock that it has left is removed, unless its requests may still be in flight. Without a
/// release, nothing is taken over.
///
/// `halt` ends the wait like Ctrl-C. Then the lock remains until it expires, because its former holder may not have stopped.
pub(crate) async fn taking_over<T>(
    session: &Session,
    interrupts: &mut Interrupts,
    halt: &CancellationToken,
    (clusters, release): (&Clusters, Option<&ReleaseName>),
    work: impl AsyncFnOnce(&mut Interrupts) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let Some(release) = release else { return work(interrupts).await };
    let mut is_taken = false;
    let notify = |locked: &Locked, wait: Duration| {
        is_taken = true;
        session.printer.err(&text::taken_over(locked, wait));
    };
    let taken = tokio::select! {
        taken = billhook_engine::take_over(clusters, release, notify) => Some(taken),
        () = interrupts.next() => None,
        () = halt.cancelled() => None,
    };
    let worked = match taken {
        None if is_taken => return Err(interrupted().hint(text::RESUME_UNLOCKED)),
        None => return Err(interrupted()),
        Some(Err(error)) => Err(error.into()),
        Some(Ok(())) => work(interrupts).await,
    };
    let may_go_on = worked.as_ref().is_err_and(|error| error.is_abandoned);
    if !may_go_on {
        billhook_engine::give_back(clusters, release).await;
    }
    worked
}
