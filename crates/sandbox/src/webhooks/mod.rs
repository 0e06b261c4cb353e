//! Calls to webhooks, which are made outside of the lock.
//!
//! A step under the lock that needs the answer of a webhook and does not have it notes the call and ends without effect.
//! [`Shared::step`](crate::shared::Shared::step) then releases the lock, makes the calls, and repeats the step, which
//! finds the answers in the [`Memory`] of its request. An answer belongs to exactly the review that was sent: if what is
//! stored, or the configuration, has changed in the meantime, the repeated step asks again. So the step that takes effect
//! has the answers of all webhooks to the very objects that it stores.

mod address;
mod assumed;
mod client;
mod memory;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::{
    state::State,
    status::{ApiError, Cause},
};

pub(crate) use assumed::has_endpoint;
pub(crate) use client::call_all;
pub(crate) use memory::{Answer, Call, Collection, Identity, Memory, Reply};

/// The time limit in seconds of a call that has none, the longest one that a webhook can have.
const LONGEST: u64 = 30;

impl State {
    /// Returns the answer of a webhook to a review, if the request has it. Otherwise the request must end with
    /// [`ApiError::waiting`].
    ///
    /// Only webhooks on loopback are called. All others are unreachable, like those with a Service, unless they are assumed to work.
    pub(crate) fn ask(&self, client: &Value, seconds: Option<u64>, review: &Value) -> Result<Answer, ApiError> {
        let query = seconds.map(|seconds| format!("?timeout={seconds}s")).unwrap_or_default();
        if self.options.assume_backends {
            return Ok(assumed::answer(self, client, &query, review));
        }
        let url = match address::of(self, client) {
            Ok(url) => url + &query,
            Err((url, why)) => return Ok(Err(format!("Post \"{url}{query}\": {why}"))),
        };
        let ca_bundle = client["caBundle"].as_str().unwrap_or_default().to_owned();
        let call = Call { url, ca_bundle, seconds: seconds.unwrap_or(LONGEST), review: review.to_string() };
        let mut memory = self.memory.borrow_mut();
        if let Some(answer) = memory.answers.get(&call) {
            return Ok(answer.clone());
        }
        memory.time.get_or_insert_with(|| self.clock.text());
        if !memory.wanted.contains(&call) {
            memory.wanted.push(call);
        }
        Err(ApiError::waiting())
    }

    /// Returns the time of the request that is being answered, as `2026-01-01T00:00:00Z`.
    pub(crate) fn time(&self) -> String {
        self.memory.borrow().time.clone().unwrap_or_else(|| self.clock.text())
    }

    /// Returns whether the request cannot continue without the answers of webhooks.
    pub(crate) fn is_waiting(&self) -> bool {
        self.memory.borrow().is_waiting()
    }
}

/// Returns an internal error, whose message the API server repeats as a cause.
pub(crate) fn internal(why: &str) -> ApiError {
    let cause = Cause { reason: "", field: String::new(), message: why.to_owned() };
    ApiError::internal(why).causes(vec![cause])
}
