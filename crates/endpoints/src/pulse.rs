//! Whether the loop of a process still turns, for observers in other threads.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval};

/// The pause between two beats.
const BEAT: Duration = Duration::from_secs(1);

/// The pulse of a loop: it beats as long as the loop turns. Clones share it.
///
/// Observers measure the time since they saw the last beat by their own clock, so that it does not matter if the clock of the
/// loop's runtime is another one.
#[derive(Clone, Debug, Default)]
pub struct Pulse {
    beats: Arc<AtomicU64>,
    seen: Arc<Mutex<Option<(u64, Instant)>>>,
}

impl Pulse {
    /// Does work, and beats while its task is polled: no more once the task, or another one of its thread, blocks.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let (mut work, mut beats) = (pin!(work), interval(BEAT));
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = beats.tick() => drop(self.beats.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }

    /// Returns for how long no beat was observed.
    pub fn silence(&self) -> Duration {
        let beats = self.beats.load(Ordering::Relaxed);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match *seen {
            Some((known, since)) if known == beats => since.elapsed(),
            _ => {
                *seen = Some((beats, Instant::now()));
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_silence_lasts_as_long_as_the_loop_does_not_turn() {
        let pulse = Pulse::default();
        let seconds = Duration::from_secs;
        let turning = pulse.during(async {
            for _ in 0..100 {
                sleep(seconds(2)).await;
                assert_eq!(pulse.silence(), Duration::ZERO);
            }
        });
        turning.await;
        let during = pulse.during(async {
            pulse.silence();
            // The clock goes on, but the loop does not turn.
            advance(seconds(59)).await;
            pulse.silence()
        });
        assert!(during.await <= seconds(59));
        advance(seconds(60)).await;
        assert!(pulse.silence() >= seconds(60), "{:?}", pulse.silence());
    }
}
