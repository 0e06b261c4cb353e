//! When the work on an item is repeated after a failure.

use std::time::Duration;

use tokio::time::Instant;

/// The pause after the first attempt; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Returns the pause after an attempt; `failed` attempts came before it. The last attempt starts when the item's time limit is
/// reached, not later, so that the item then fails.
pub(crate) fn pause(failed: u32, deadline: Option<Instant>) -> Duration {
    let pause = FIRST_PAUSE.saturating_mul(1 << failed.min(6)).min(LONGEST_PAUSE);
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    left.map_or(pause, |left| pause.min(left.max(FIRST_PAUSE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_end_with_the_time_limit() {
        let seconds = |deadline| (0..8).map(|failed| pause(failed, deadline).as_secs()).collect::<Vec<_>>();
        assert_eq!(seconds(None), [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause(u32::MAX, None), LONGEST_PAUSE);
        assert_eq!(seconds(Some(Instant::now() + Duration::from_secs(10))), [1, 2, 4, 8, 10, 10, 10, 10]);
        assert_eq!(seconds(Some(Instant::now())), [1; 8]);
    }
}
