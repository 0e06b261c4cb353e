//! An answer of a cluster that concurrent callers share, and that is reused while it is recent.

use std::time::Duration;

use tokio::{sync::Mutex, time::Instant};

use crate::error::Error;

/// The last answer to one question. Of all callers that wait for it at one time, one sends the request.
#[derive(Debug)]
pub struct SharedAnswer<T> {
    failure_age: Duration,
    /// When a success was asked for, or when a failure was known: callers that waited for a failure need not wait as
    /// long once more.
    last: Mutex<Option<(Instant, Result<T, Error>)>>,
}

impl<T: Clone> SharedAnswer<T> {
    /// Makes an empty cell that reuses a failure for this long.
    pub fn new(failure_age: Duration) -> Self {
        Self { failure_age, last: Mutex::new(None) }
    }

    /// Returns the last answer if it was at most `max_age` old when the caller arrived; otherwise asks for a new one.
    ///
    /// # Errors
    ///
    /// When `ask` fails, or has failed less than the cell's failure age ago.
    pub async fn get(&self, max_age: Duration, ask: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let arrived = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((at, answer)) = last.as_ref() {
            let max_age = if answer.is_ok() { max_age } else { self.failure_age };
            if arrived < *at || arrived.duration_since(*at) < max_age {
                return answer.clone();
            }
        }
        let asked = Instant::now();
        let answer = ask.await;
        let at = if answer.is_ok() { asked } else { Instant::now() };
        *last = Some((at, answer.clone()));
        answer
    }
}
