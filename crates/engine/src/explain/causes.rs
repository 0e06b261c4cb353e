//! The root causes that other commands show with what blocks an object.

use std::collections::BTreeMap;

use billhook_cluster::Cluster;
use billhook_explain::{Code, Finding, ObjectRef};
use billhook_objects::{Catalog, ObjectKey};
use tokio::time::{Instant, timeout_at};

use super::{EACH, ExplainOptions, explain_within};
use crate::{Blocker, ObjectState, ReleaseStatus, blockers};

/// How many objects are explained: each can take as many requests as one that `why` is asked about.
const SAMPLES: usize = 4;

/// An object, and what is known to block it.
pub(crate) type Blocked<'a> = (&'a ObjectKey, &'a mut Vec<Blocker>);

/// Adds the root causes to the objects of a release that are being deleted. If none is, no request is sent.
pub async fn name_root_causes(cluster: &Cluster, status: &mut ReleaseStatus) {
    let deleting = status.objects.iter_mut().filter(|object| object.state == ObjectState::Deleting);
    let blocked = deleting.map(|object| (&object.object, &mut object.blockers)).collect();
    add(cluster, blocked, Instant::now() + blockers::PATIENCE).await;
}

/// Adds its root cause to each of these objects, as far as that is found in time. Objects of one kind and namespace that the
/// same blockers hold have the same cause, so one of them is explained.
pub(crate) async fn add(cluster: &Cluster, blocked: Vec<Blocked<'_>>, until: Instant) {
    add_within(cluster, blocked, until, SAMPLES * EACH).await;
}

/// Adds root causes as [`add`] does, with so many requests at most, without those for the kinds of the cluster.
pub(super) async fn add_within(cluster: &Cluster, blocked: Vec<Blocked<'_>>, until: Instant, requests: usize) {
    let mut groups: BTreeMap<String, Vec<Blocked<'_>>> = BTreeMap::new();
    for (key, blockers) in blocked {
        if blockers.iter().all(is_of_deletion) {
            let alike = format!("{} {:?} {blockers:?}", key.kind, key.namespace);
            groups.entry(alike).or_default().push((key, blockers));
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.truncate(SAMPLES);
    if groups.is_empty() {
        return;
    }
    let keys: Vec<ObjectKey> = groups.iter().filter_map(|group| Some(group.first()?.0.clone())).collect();
    let asked = async {
        let catalog = cluster.catalog().await.ok()?;
        let subjects: Vec<_> = keys.iter().filter_map(|key| reference(&catalog, key)).collect();
        let limit = requests.min(subjects.len() * EACH);
        Some(explain_within(cluster, &catalog, subjects, ExplainOptions::default(), limit).await)
    };
    let Ok(Some(document)) = timeout_at(until, asked).await else { return };
    for group in &mut groups {
        let Some((first, _)) = group.first() else { continue };
        let Some(finding) = document.findings.iter().find(|finding| is_about(finding, first)) else { continue };
        for (key, blockers) in group.iter_mut() {
            blockers.extend(root_cause(finding, key));
        }
    }
}

/// Returns the object of a key, as explanations name it; none if its kind is not served.
pub(crate) fn reference(catalog: &Catalog, key: &ObjectKey) -> Option<ObjectRef> {
    let version = catalog.get(&key.kind)?.api_version(None);
    Some(ObjectRef::new(version, &key.kind.kind, key.namespace.as_deref(), key.name.clone()))
}

fn is_about(finding: &Finding, key: &ObjectKey) -> bool {
    let object = &finding.object;
    object.group_kind() == key.kind && object.namespace == key.namespace && object.name == key.name
}

/// Returns whether a blocker is what an object says while it is being deleted.
pub(super) fn is_of_deletion(blocker: &Blocker) -> bool {
    matches!(
        blocker,
        Blocker::Finalizer { .. }
            | Blocker::LastError { .. }
            | Blocker::Condition { .. }
            | Blocker::Node { .. }
            | Blocker::Dependents { .. }
            | Blocker::Unconfirmed
    )
}

/// Returns the texts of blockers. Where the root cause is known, its wording replaces what the object itself says about its
/// deletion; of that, only finalizers are left that it does not name.
pub fn blocker_texts(blockers: &[Blocker]) -> Vec<String> {
    let root = blockers.iter().find_map(|blocker| match blocker {
        Blocker::RootCause { message, .. } => Some((blocker, message)),
        _ => None,
    });
    let Some((root, message)) = root else { return blockers.iter().map(ToString::to_string).collect() };
    let is_left = |blocker: &&Blocker| match blocker {
        Blocker::Finalizer { finalizer, .. } => !message.contains(finalizer.as_str()),
        other => *other != root && !is_of_deletion(other),
    };
    std::iter::once(root).chain(blockers.iter().filter(is_left)).map(ToString::to_string).collect()
}

/// Returns the root cause of a finding for one of the objects that it is true of. Its sentence names the object to look at,
/// unless that is the object itself; the command is then about that one alone.
fn root_cause(finding: &Finding, key: &ObjectKey) -> Option<Blocker> {
    let root = finding.root_cause.as_ref()?;
    if root.code == Code::NotDeleting || (root.is_slow && root.code != Code::FinalizerInProgress) {
        return None;
    }
    let is_own = root.object.is_same(&finding.object);
    let message = if is_own { root.message.clone() } else { root.sentence() };
    let step = finding.safe_step();
    let command = step.and_then(|step| step.command.clone()).filter(|_| !is_own || is_about(finding, key));
    Some(Blocker::RootCause {
        code: root.code.as_str(),
        message,
        next_step: step.map(|step| step.message.clone()),
        command,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_cause_is_worded_once() {
        let finalizer = || Blocker::Finalizer { finalizer: "a.example/x".into(), manager: Some("operator".into()) };
        let refused = || Blocker::Refused { message: "no".into(), by: crate::RefusedBy::default() };
        let root = || Blocker::RootCause {
            code: "finalizer-controller-absent".into(),
            message: "nobody removes the finalizer a.example/x".into(),
            next_step: None,
            command: Some("kubectl scale …".into()),
        };
        let check = |blockers: &[Blocker], expected: &[&str]| assert_eq!(blocker_texts(blockers), expected);
        check(&[], &[]);
        check(&[finalizer()], &["finalizer a.example/x (set by operator)"]);
        let cause = "root cause: nobody removes the finalizer a.example/x; next: kubectl scale …";
        check(&[finalizer(), Blocker::Unconfirmed, root()], &[cause]);
        check(&[refused(), root()], &[cause, "request failed: no"]);
        let other = Blocker::Finalizer { finalizer: "a.example/other".into(), manager: None };
        check(&[finalizer(), other, root()], &[cause, "finalizer a.example/other"]);
    }
}
