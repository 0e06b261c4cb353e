//! The Leases of a copy, which their holders renew while they live.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

/// After how many seconds at least a Lease is abandoned, as explanations see it, and after how many of its durations.
const AT_LEAST: i64 = 60;
const DURATIONS: i64 = 4;
/// How often Leases are renewed.
pub(super) const RENEWAL: Duration = Duration::from_secs(10);

/// Returns whether the holder of a Lease has renewed it lately; none if it never did, or has released it.
pub(super) fn is_fresh(lease: &Value, now: Timestamp) -> Option<bool> {
    let renewed: Timestamp = lease["spec"]["renewTime"].as_str()?.parse().ok()?;
    let duration = lease["spec"]["leaseDurationSeconds"].as_i64().unwrap_or(15);
    Some(now.as_second() - renewed.as_second() < (DURATIONS * duration).max(AT_LEAST))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn leases_grow_old() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        for (renewed, duration, expected) in [
            ("2026-01-01T00:09:30.000000Z", 15, Some(true)),
            ("2026-01-01T00:08:30.000000Z", 15, Some(false)),
            ("2026-01-01T00:08:30.000000Z", 60, Some(true)),
            ("", 15, None),
        ] {
            let lease = json!({"spec": {"renewTime": renewed, "leaseDurationSeconds": duration}});
            assert_eq!(is_fresh(&lease, now), expected, "{lease}");
        }
    }
}
