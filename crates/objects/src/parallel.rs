//! Work on many values in several threads, such as the files of a large folder.

use std::{panic::resume_unwind, thread};

/// Fewer values are not worth a thread.
const SHARE: usize = 64;
/// More threads would only wait for memory and files.
const MAX_THREADS: usize = 8;

/// Applies a function to all values, in several threads if there are many, and returns its results in the order of the values.
pub fn map<T: Sync, R: Send>(values: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let wanted = (values.len() / SHARE).min(MAX_THREADS);
    let threads = if wanted < 2 { 1 } else { thread::available_parallelism().map_or(1, usize::from).min(wanted) };
    if threads < 2 {
        return values.iter().map(f).collect();
    }
    let map_share = |share: &[T]| share.iter().map(&f).collect::<Vec<R>>();
    thread::scope(|scope| {
        let shares = values.chunks(values.len().div_ceil(threads));
        let running: Vec<_> = shares.map(|share| scope.spawn(move || map_share(share))).collect();
        running.into_iter().flat_map(|share| share.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_the_order_of_the_values() {
        for count in [0, 1, 63, 128, 1_000, 10_007] {
            let values: Vec<usize> = (0..count).collect();
            assert_eq!(
                super::map(&values, |value| value * 3),
                values.iter().map(|value| value * 3).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    #[should_panic(expected = "value 700")]
    fn a_panic_is_passed_on() {
        let values: Vec<usize> = (0..1_000).collect();
        super::map(&values, |value| assert!(*value != 700, "value {value}"));
    }
}
