//! Leases: whether their holders live.

use jiff::Timestamp;
use serde_json::Value;

use super::traces::Traces;
use crate::{
    Fact, ObjectRef,
    case::{Case, Found, Priority, Seen},
    cause::Strength,
    kinds, object,
    workload::Workload,
};

/// After how many of its durations a Lease is called abandoned.
const DURATIONS: i64 = 4;
/// And after how many seconds at least: clocks differ, and a restart takes a while.
const AT_LEAST: i64 = 60;

/// The namespace of the Leases of nodes, which are many.
const OF_NODES: &str = "kube-node-lease";

/// When a Lease was renewed.
pub(crate) struct Renewal {
    pub(crate) fresh: bool,
    pub(crate) at: Timestamp,
    pub(crate) seconds: i64,
    /// The name of the Pod that holds it, if its holder is one.
    holder: String,
    pub(crate) fact: Fact,
}

/// All Leases of the cluster, but those of nodes.
pub(crate) struct Leases<'a> {
    all: &'a [Value],
    /// Whether there are no others.
    pub(crate) complete: bool,
    /// Whether there are more than were read.
    pub(crate) truncated: bool,
}

impl<'a> Leases<'a> {
    pub(crate) fn look(case: &Case<'a>) -> Self {
        let found = case.list_where(&kinds::LEASE, &format!("metadata.namespace!={OF_NODES}"), Priority::Controller);
        let truncated = matches!(found, Found::Items(_, false));
        Self { all: found.items(), complete: found.is_complete(), truncated }
    }

    /// Returns the Lease that a Pod of a workload holds.
    pub(crate) fn of_workload(&self, case: &Case<'_>, workload: &Workload<'_>) -> Option<Renewal> {
        let renewals = self.held_by(workload).filter_map(|lease| renewal(case, lease));
        renewals.max_by_key(|renewal| (renewal.fresh, -renewal.seconds))
    }

    fn held_by(&self, workload: &Workload<'_>) -> impl Iterator<Item = &'a Value> {
        self.all.iter().filter(|lease| {
            let holder = object::text(lease, "/spec/holderIdentity").unwrap_or_default();
            object::namespace(lease) == Some(workload.namespace()) && starts_with_name(holder, workload.name())
        })
    }

    /// Returns whether the Pod that holds an old Lease of a workload is still there, and hangs. The Lease of one that is gone may
    /// remain after a version without leader election was installed.
    pub(crate) fn is_held(&self, case: &Case<'_>, workload: &Workload<'_>, renewal: &Renewal) -> bool {
        let pod = case.builtin(&kinds::POD, Some(workload.namespace()), &renewal.holder, Priority::Controller);
        self.complete && matches!(pod, Seen::There(_))
    }

    /// Returns whether a Pod of a workload holds the Lease of a CSI driver, by which its sidecars elect their leaders:
    /// `external-attacher-leader-DRIVER`.
    pub(crate) fn are_of_driver(&self, workload: &Workload<'_>, driver: &str) -> bool {
        let is_named =
            |name: &str| name.strip_suffix(driver).is_some_and(|rest| rest.is_empty() || rest.ends_with("-leader-"));
        self.held_by(workload).any(|lease| is_named(object::name(lease)))
    }

    /// Returns the Lease that the traces of a controller name: by its field manager, or by an API group, as the leader election
    /// IDs of many operators end with it. Whoever may write Leases in some namespace can use any name: a Lease proves something
    /// only in a namespace that belongs to the controller.
    pub(crate) fn of_traces(&self, case: &Case<'_>, traces: &Traces<'_>) -> Option<(ObjectRef, Renewal, Strength)> {
        let places = traces.namespaces();
        let is_trusted = |lease: &Value| {
            object::namespace(lease).is_some_and(|namespace| namespace == "kube-system" || places.contains(namespace))
        };
        let is_known_place = !places.is_empty() || traces.known.is_some_and(|known| known.outside);
        let is_named = |lease: &&Value| {
            let (name, holder) = (object::name(lease), object::text(lease, "/spec/holderIdentity").unwrap_or_default());
            let by_manager = traces.manager.is_some_and(|manager| name == manager || starts_with_name(holder, manager));
            by_manager || traces.groups.iter().any(|group| name.ends_with(&format!(".{group}")) || name == group)
        };
        let found = self.all.iter().filter(is_named).filter_map(|lease| {
            let strength = match (is_trusted(lease), is_known_place) {
                (true, _) => Strength::Proven,
                (false, true) => return None,
                (false, false) => Strength::Possible,
            };
            let name = kinds::LEASE.named(object::namespace(lease), object::name(lease));
            Some((name, renewal(case, lease)?, strength))
        });
        let found = found.max_by_key(|(_, renewal, strength)| (*strength, renewal.fresh, -renewal.seconds));
        // One that was not read may be fresh.
        found.filter(|(_, renewal, _)| renewal.fresh || self.complete)
    }
}

/// Returns whether a holder has this name, or that of one of its Pods. Behind the name, these have parts that Kubernetes generates
/// from digits and consonants: `cert-manager-cainjector-0` is no Pod of `cert-manager`.
fn starts_with_name(holder: &str, name: &str) -> bool {
    let (pod, _) = holder.split_once('_').unwrap_or((holder, ""));
    let is_generated =
        |part: &str| part.chars().all(|c| c.is_ascii_digit() || c.is_ascii_lowercase() && !"aeiou".contains(c));
    let parts =
        |rest: &str| rest.is_empty() || rest.strip_prefix('-').is_some_and(|rest| rest.split('-').all(is_generated));
    !name.is_empty() && pod.strip_prefix(name).is_some_and(parts)
}

/// Returns when a Lease was renewed; none if it never was, or was released.
pub(crate) fn renewal(case: &Case<'_>, lease: &Value) -> Option<Renewal> {
    let text = object::text(lease, "/spec/renewTime")?;
    let at: Timestamp = text.parse().ok()?;
    let seconds = case.seconds_since(at);
    let holder = object::text(lease, "/spec/holderIdentity").unwrap_or_default();
    let holder = holder.split_once('_').map_or(holder, |(pod, _)| pod).to_owned();
    let reference = kinds::LEASE.named(object::namespace(lease), object::name(lease));
    let fact = Fact::new(&reference, "spec.renewTime", text);
    Some(Renewal { fresh: is_fresh(lease, seconds), at, seconds, holder, fact })
}

/// Returns whether the holder of a Lease has renewed it lately; none if it never did, or has released it.
pub fn is_lease_fresh(lease: &Value, now: Timestamp) -> Option<bool> {
    let renewed: Timestamp = object::text(lease, "/spec/renewTime")?.parse().ok()?;
    Some(is_fresh(lease, now.as_second() - renewed.as_second()))
}

/// Returns whether the holder of a Lease lives, so many seconds after it has renewed it.
fn is_fresh(lease: &Value, seconds: i64) -> bool {
    let duration = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(15);
    seconds < (DURATIONS * duration).max(AT_LEAST)
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
            assert_eq!(is_lease_fresh(&lease, now), expected, "{lease}");
        }
    }

    #[test]
    fn a_holder_is_a_workload_or_one_of_its_pods() {
        for holder in ["web", "web_2f", "web-0", "web-7d4b9f6c5-x2v8k", "web-7d4b9f6c5-x2v8k_0f-a_b", "web-x2v8k"] {
            assert!(starts_with_name(holder, "web"), "{holder}");
        }
        for holder in ["web-cainjector-7d4b9f6c5-x2v8k_1", "web-api", "webs", "my-web", ""] {
            assert!(!starts_with_name(holder, "web"), "{holder}");
        }
        assert!(!starts_with_name("web", ""));
    }
}
