//! One log line for each reconcile.
//!
//! It contains only words that this program chooses, the names of objects, and numbers. What API servers, admission webhooks,
//! helm and parsers say may quote values of Secrets, so the messages are in the status of the item, for those who may read it.

use std::time::Duration;

use crate::{
    error::ItemFailure,
    item::Item,
    metrics,
    reconcile::{Outcome, result_for_metrics},
    trigger::Due,
};

/// Logs the work on an item.
pub(crate) fn log(
    item: &Item,
    due: Due,
    outcome: &Outcome,
    failure: Option<&ItemFailure>,
    duration: Duration,
    requests: u64,
) {
    let interrupted = item.halt.is_interrupted() || due == Due::Interrupt;
    let result = match outcome {
        Outcome::Retry { .. } => "retry",
        Outcome::Halted(_) => "halted",
        Outcome::Done(_) | Outcome::FinalizerRemoved => metrics::name(result_for_metrics(failure, interrupted)),
    };
    let code = |code| serde_json::to_value(code).ok()?.as_str().map(str::to_owned);
    let codes = failure.map(|failure| failure.codes.iter().filter_map(code).collect::<Vec<_>>().join(","));
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(
                $level,
                item = %format_args!("{}/{}", item.namespace, item.name),
                generation = item.object.metadata.generation,
                job = item.status.job_id.as_deref(),
                target = item.object.spec.target.as_ref().map(|target| target.name.as_str()),
                operation = due.operation(&item.object).name(),
                result,
                reason = failure.map(|failure| failure.reason),
                codes,
                duration = duration.as_secs_f64(),
                requests,
                "reconciled"
            )
        };
    }
    if failure.is_some() {
        line!(tracing::Level::WARN);
    } else {
        line!(tracing::Level::INFO);
    }
}
