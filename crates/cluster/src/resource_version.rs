//! The one rule by which resource versions are ordered.
//!
//! Since Kubernetes 1.35 the versions of one resource are documented to be decimal numbers that grow with every write
//! (Kubernetes API concepts, "Resource versions"; KEP-5504, "Comparable Resource Version"); servers on etcd have always
//! written them so. An API server that writes anything else gives no order: its versions are equal or different, and
//! none is older than another.

/// Returns whether a version was written before another one of the same resource.
pub fn is_older(version: &str, than: &str) -> bool {
    let number = |text: &str| text.parse::<u128>().ok();
    number(version).zip(number(than)).is_some_and(|(version, than)| version < than)
}

/// Returns the older of two versions, of which either may be unknown.
pub(crate) fn oldest(a: Option<String>, b: Option<String>) -> Option<String> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if is_older(&b, &a) { b } else { a }),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::is_older;

    #[test]
    fn versions_are_ordered_as_numbers_and_only_if_they_are_numbers() {
        assert!(is_older("9", "10"));
        assert!(is_older("18446744073709551615", "18446744073709551616"));
        for (version, than) in [("10", "9"), ("9", "9"), ("", "9"), ("9", ""), ("a", "b"), ("1", "b"), ("a", "1")] {
            assert!(!is_older(version, than), "{version:?} {than:?}");
        }
    }
}
