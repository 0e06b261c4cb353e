//! An answer of a cluster that concurrent callers share, and that is reused while it is recent.

use std::time::Duration;

use tokio::{sync::Mutex, time::Instant};

use crate::error::Error;

/// The last answer to one request. Of the callers that wait for a new one, one sends the request; if it is cancelled, the
/// next one does.
#[derive(Debug)]
pub struct SharedAnswer<T> {
    failure_age: Duration,
    /// With the time at which a success was requested, or at which a failure became known: the callers that waited for a
    /// failure must not wait as long again.
    last: Mutex<Option<(Instant, Result<T, Error>)>>,
}

impl<T: Clone> SharedAnswer<T> {
    /// Makes an empty cell that reuses a failure for this long.
    pub fn new(failure_age: Duration) -> Self {
        Self { failure_age, last: Mutex::new(None) }
    }

    /// Returns the last answer if it was at most `max_age` old when the caller arrived; otherwise sends the request.
    ///
    /// # Errors
    ///
    /// When the request fails, or has failed less than the cell's failure age ago.
    pub async fn get(&self, max_age: Duration, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let arrived = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((at, answer)) = last.as_ref() {
            let max_age = if answer.is_ok() { max_age } else { self.failure_age };
            if arrived < *at || arrived.duration_since(*at) < max_age {
                return answer.clone();
            }
        }
        let requested = Instant::now();
        let answer = request.await;
        let at = if answer.is_ok() { requested } else { Instant::now() };
        *last = Some((at, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn when_a_caller_is_cancelled_the_next_one_sends_the_request() {
        let cell = SharedAnswer::new(Duration::from_secs(2));
        let cancelled = timeout(Duration::from_secs(1), cell.get(Duration::ZERO, pending()));
        let (cancelled, answer) = tokio::join!(cancelled, cell.get(Duration::from_secs(60), async { Ok(7) }));
        assert!(cancelled.is_err());
        assert_eq!(answer.unwrap(), 7);
        assert_eq!(cell.get(Duration::from_secs(60), pending()).await.unwrap(), 7);
    }
}
