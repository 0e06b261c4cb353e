//! The webhook's endpoints.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures::StreamExt as _;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

use super::{Rule, review};

/// The size limit of a review, in bytes: it contains an object before and after an update, which an API server limits to 3 MiB
/// each, and the request.
pub const MAX_REVIEW: usize = 7 * 1024 * 1024;

/// How many large reviews are read at once: a limit of the memory that clients can fill.
const LARGE_AT_ONCE: usize = 16;

/// How much of a review is read without a turn, in bytes. Only clients that have sent this much take a turn.
const SMALL: usize = 64 * 1024;

/// How long a large review waits for its turn.
const WAIT: Duration = Duration::from_secs(3);

/// How long a client that has a turn may take to send the rest, so that those that send nothing more do not keep others waiting.
const TURN: Duration = Duration::from_secs(2);

/// How long a review may take. An API server waits five seconds for the answer, as registered in `deploy/`.
const LIMIT: Duration = Duration::from_secs(5);

/// Returns a router with the endpoints `/validate-force-deletion` and `/validate-deletion-confirmation`, which answer reviews
/// sent with POST, and `/healthz`. To be served behind TLS, which API servers require.
///
/// A malformed review is answered with 400 and a sentence. It must run on a tokio runtime with time enabled.
pub fn router() -> Router {
    let turns = Arc::new(Semaphore::new(LARGE_AT_ONCE));
    let endpoint = |rule| {
        let turns = Arc::clone(&turns);
        post(move |body: Body| respond(rule, turns, body))
    };
    Router::new()
        .route("/validate-force-deletion", endpoint(Rule::ForceDeletion))
        .route("/validate-deletion-confirmation", endpoint(Rule::DeletionConfirmation))
        .route("/healthz", get(|| async { "ok\n" }))
}

async fn respond(rule: Rule, turns: Arc<Semaphore>, body: Body) -> Response {
    match read(rule, &turns, body).await {
        Ok(answer) => ([(header::CONTENT_TYPE, "application/json")], answer).into_response(),
        Err(refused) => refused.into_response(),
    }
}

/// A status and a sentence.
type Refused = (StatusCode, String);

/// Reads a review and answers it.
async fn read(rule: Rule, turns: &Semaphore, body: Body) -> Result<String, Refused> {
    let refused = |status, text: &str| (status, format!("{text}\n"));
    let mut deadline = Instant::now() + LIMIT;
    let (mut body, mut read, mut turn) = (body.into_data_stream(), Vec::new(), None);
    let late = |_| refused(StatusCode::REQUEST_TIMEOUT, "the review was not received in time");
    while let Some(part) = timeout_at(deadline, body.next()).await.map_err(late)? {
        let part = part.map_err(|error| refused(StatusCode::BAD_REQUEST, &error.to_string()))?;
        let bytes = read.len() + part.len();
        if bytes > MAX_REVIEW {
            let text = format!("the review is larger than {MAX_REVIEW} bytes");
            return Err(refused(StatusCode::PAYLOAD_TOO_LARGE, &text));
        }
        if bytes > SMALL && turn.is_none() {
            let busy = |_| refused(StatusCode::SERVICE_UNAVAILABLE, "too many large reviews at once");
            turn = timeout(WAIT, turns.acquire()).await.map_err(busy)?.ok();
            deadline = deadline.min(Instant::now() + TURN);
        }
        read.extend_from_slice(&part);
    }
    let answer = review(rule, &read).map_err(|error| refused(StatusCode::BAD_REQUEST, &error.to_string()))?;
    Ok(answer.to_string())
}
