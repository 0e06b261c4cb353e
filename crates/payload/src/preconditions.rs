//! The checks before a new version is applied, as the cluster-version operator has them, and the one of its guide.

use billhook_objects::ObjectKey;
use semver::Version;

use crate::{
    history::{HistoryEntry, UpdateState, last_completed},
    messages::{Upgradeable, resource},
};

/// The reason of a refusal by preconditions.
pub const CHECK_FAILED: &str = "UpgradePreconditionCheckFailed";

/// What the checks are about.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The history of the release, newest version first. Its first version is the current target.
    pub history: &'a [HistoryEntry],
    /// The version to be applied.
    pub version: &'a str,
    /// The condition that is false while minor updates are not possible.
    pub upgradeable: Option<&'a Upgradeable>,
    /// The objects that the new payload deletes and that do not exist.
    pub leftover: &'a [ObjectKey],
}

/// A check that did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The check.
    pub name: &'static str,
    /// The reason, as a word.
    pub reason: String,
    /// What is wrong.
    pub message: String,
    /// Whether the version must not be applied. Otherwise this is a warning.
    pub blocks: bool,
}

/// The result of all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The failures as one message, with the reference's prefix if they are forced.
    pub message: String,
    /// Whether the version must not be applied; the reason is [`CHECK_FAILED`].
    pub blocks: bool,
}

/// Runs all checks. There are none for the first version, and none for the version that is the current target.
///
/// Source: `pkg/payload/precondition` of the cluster-version operator, in its order: rollback, giant hop, upgradeable. Its
/// temporary permission for updates from 4.y to 5.0 is left out, and so is that for rollbacks within a minor version.
pub fn check(change: &Change<'_>) -> Vec<Failure> {
    let Some(current) = change.history.first() else { return Vec::new() };
    if current.version == change.version {
        return Vec::new();
    }
    let parsed = (Version::parse(&current.version), Version::parse(change.version));
    let checks: [(&'static str, Check); 4] = [
        ("ClusterVersionRollback", rollback),
        ("ClusterVersionGiantHop", giant_hop),
        ("ClusterVersionUpgradeable", upgradeable),
        ("PayloadDeleteManifests", leftover),
    ];
    let failed = checks.into_iter().filter_map(|(name, check)| {
        let failure = match &parsed {
            (Ok(current), Ok(target)) => check(change, current, target)?,
            _ if !is_needed(name, change) => return None,
            // Only an update can repair the current version, so it does not block.
            (Err(error), _) => Found::warning("InvalidCurrentVersion", error.to_string()),
            (_, Err(error)) => Found::blocking("InvalidDesiredVersion", error.to_string()),
        };
        let Found { reason, message, blocks } = failure;
        Some(Failure { name, reason, message, blocks })
    });
    failed.collect()
}

/// Returns whether a check needs valid versions for this change.
fn is_needed(name: &str, change: &Change<'_>) -> bool {
    match name {
        "ClusterVersionUpgradeable" => change.upgradeable.is_some(),
        "PayloadDeleteManifests" => !change.leftover.is_empty(),
        _ => true,
    }
}

type Check = fn(&Change<'_>, &Version, &Version) -> Option<Found>;

struct Found {
    reason: String,
    message: String,
    blocks: bool,
}

impl Found {
    fn blocking(reason: &str, message: String) -> Self {
        Self { reason: reason.to_owned(), message, blocks: true }
    }

    fn warning(reason: &str, message: String) -> Self {
        Self { reason: reason.to_owned(), message, blocks: false }
    }
}

fn rollback(change: &Change<'_>, current: &Version, target: &Version) -> Option<Found> {
    if target.cmp_precedence(current).is_ge() {
        return None;
    }
    let lower = format!("{target} is less than the current target {current}");
    let previous = change.history.iter().find(|entry| entry.version != change.history[0].version);
    let message = match previous.and_then(|entry| Version::parse(&entry.version).ok()) {
        None => format!("{lower}, and the cluster has no previous Semantic Version"),
        Some(previous) if previous == *target => {
            format!("{lower} and matches the cluster's previous version, but rollbacks are not supported")
        }
        Some(previous) => format!("{lower}, and the cluster's previous version is {previous}"),
    };
    Some(Found::blocking("LowDesiredVersion", message))
}

fn giant_hop(_: &Change<'_>, current: &Version, target: &Version) -> Option<Found> {
    let (major, minor) = (current.major, current.minor);
    if target.major > major {
        let message = format!(
            "{target} has a larger major version than the current target {current} ({} > {major}), and only updates within \
             the current major version are supported.",
            target.major
        );
        return Some(Found::blocking("MajorVersionUpdate", message));
    }
    (target.major == major && target.minor > minor + 1).then(|| {
        let message = format!(
            "{target} is more than one minor version beyond the current target {current} ({}.{} > {major}.({minor}+1)), and \
             only updates within the current minor version or to the next minor version are supported.",
            target.major, target.minor
        );
        Found::blocking("MultipleMinorVersionsUpdate", message)
    })
}

fn upgradeable(change: &Change<'_>, current: &Version, target: &Version) -> Option<Found> {
    if is_patch(current, target) {
        return minor_in_progress(change, current, target);
    }
    let condition = change.upgradeable.filter(|_| target.cmp_precedence(current).is_gt())?;
    Some(Found { reason: condition.reason.clone(), message: condition.message.clone(), blocks: true })
}

/// Warns of a z-level target during a minor update, because it leads from the old minor version to another than planned.
fn minor_in_progress(change: &Change<'_>, current: &Version, target: &Version) -> Option<Found> {
    let in_progress = change.history.first()?.state == UpdateState::Partial;
    let completed = last_completed(change.history).filter(|_| in_progress)?;
    let completed = Version::parse(&completed.version).ok()?;
    let kind = match (completed.major == current.major, completed.minor == current.minor) {
        (false, _) => "Major",
        (true, false) => "Minor",
        (true, true) => return None,
    };
    let message = format!(
        "Retarget to {target} while a {} version update from {completed} to {current} is in progress",
        kind.to_lowercase()
    );
    Some(Found::warning(&format!("{kind}VersionClusterUpdateInProgress"), message))
}

/// Checks what the guide promises: delete manifests whose objects are gone are acceptable in z-level updates only.
fn leftover(change: &Change<'_>, current: &Version, target: &Version) -> Option<Found> {
    if change.leftover.is_empty() {
        return None;
    }
    let mut objects: Vec<_> = change.leftover.iter().map(resource).collect();
    objects.sort();
    let message = format!("object no longer exists: delete manifests are left over for {}", objects.join(", "));
    let blocks = !is_patch(current, target);
    Some(Found { reason: "DeleteManifestsLeftOver".to_owned(), message, blocks })
}

fn is_patch(current: &Version, target: &Version) -> bool {
    (current.major, current.minor) == (target.major, target.minor)
}

/// Combines failures as the reference does; `None` if there are none.
pub fn summarize(failures: &[Failure], force: bool) -> Option<Verdict> {
    let texts: Vec<_> = failures
        .iter()
        .map(|Failure { name, reason, message, .. }| {
            format!("Precondition \"{name}\" failed because of \"{reason}\": {message}")
        })
        .collect();
    let message = match texts.as_slice() {
        [] => return None,
        [text] => text.clone(),
        texts => format!("Multiple precondition checks failed:\n* {}", texts.join("\n* ")),
    };
    let blocks = failures.iter().any(|failure| failure.blocks);
    Some(match blocks && force {
        true => Verdict { message: format!("Forced through blocking failures: {message}"), blocks: false },
        false => Verdict { message, blocks },
    })
}

#[cfg(test)]
mod tests {
    use billhook_objects::GroupKind;

    use super::*;

    fn history(versions: &str) -> Vec<HistoryEntry> {
        let entry = |text: &str| match text.strip_suffix(" partial") {
            Some(version) => HistoryEntry { version: version.to_owned(), state: UpdateState::Partial },
            None => HistoryEntry { version: text.to_owned(), state: UpdateState::Completed },
        };
        versions.split(", ").filter(|text| !text.is_empty()).map(entry).collect()
    }

    fn failures(versions: &str, version: &str, upgradeable: bool, leftover: &[ObjectKey]) -> Vec<Failure> {
        let condition = Upgradeable { reason: "bla".to_owned(), message: "set to False".to_owned() };
        let upgradeable = (!upgradeable).then_some(&condition);
        check(&Change { history: &history(versions), version, upgradeable, leftover })
    }

    /// Asserts the reasons of the failures, `!` before those that block.
    fn check_reasons(versions: &str, version: &str, upgradeable: bool, expected: &[&str]) {
        let failures = failures(versions, version, upgradeable, &[]);
        let reasons: Vec<_> =
            failures.iter().map(|found| format!("{}{}", if found.blocks { "!" } else { "" }, found.reason)).collect();
        assert_eq!(reasons, expected, "{versions} to {version}: {failures:#?}");
    }

    #[test]
    fn upgradeable_false_blocks_a_minor_update() {
        check_reasons("4.1.1", "4.2.3", true, &[]);
        check_reasons("4.1.1", "4.2.3", false, &["!bla"]);
        assert_eq!(failures("4.1.1", "4.2.3", false, &[])[0].message, "set to False");
    }

    #[test]
    fn upgradeable_false_passes_a_patch() {
        check_reasons("4.1.3", "4.1.4", false, &[]);
    }

    #[test]
    fn upgradeable_false_passes_a_downgrade_which_rollback_checks() {
        check_reasons("4.1.3", "4.1.2", false, &["!LowDesiredVersion"]);
        check_reasons("4.2.3", "4.1.4", false, &["!LowDesiredVersion"]);
    }

    #[test]
    fn upgradeable_false_blocks_two_minor_versions() {
        check_reasons("4.1.3", "4.3.3", false, &["!MultipleMinorVersionsUpdate", "!bla"]);
    }

    #[test]
    fn a_prerelease_of_the_same_minor_version_is_a_patch() {
        check_reasons("4.16.0-0.test-cluster-bot", "4.16.0-rc.0", false, &[]);
    }

    #[test]
    fn the_baseline_is_the_current_target() {
        check_reasons("4.2.0 partial, 4.1.0", "4.2.0", false, &[]);
        check_reasons("4.2.0 partial, 4.1.0", "4.3.0", true, &[]);
        check_reasons("4.2.0 partial, 4.1.0", "4.1.0", true, &["!LowDesiredVersion"]);
    }

    #[test]
    fn a_patch_during_a_minor_update_is_a_warning() {
        check_reasons("4.2.1 partial, 4.1.1", "4.2.3", false, &["MinorVersionClusterUpdateInProgress"]);
        check_reasons("4.2.1 partial, 4.1.1", "4.2.3", true, &["MinorVersionClusterUpdateInProgress"]);
        check_reasons("5.0.1 partial, 4.1.1", "5.0.3", false, &["MajorVersionClusterUpdateInProgress"]);
        check_reasons("4.1.2 partial, 4.1.1", "4.1.3", false, &[]);
        check_reasons("4.2.1, 4.1.1", "4.2.3", false, &[]);
        assert_eq!(
            failures("4.2.1 partial, 4.1.1", "4.2.3", false, &[])[0].message,
            "Retarget to 4.2.3 while a minor version update from 4.1.1 to 4.2.1 is in progress"
        );
    }

    #[test]
    fn an_invalid_current_version_is_a_warning() {
        check_reasons("next", "4.2.3", true, &["InvalidCurrentVersion"; 2]);
        check_reasons("next", "4.2.3", false, &["InvalidCurrentVersion"; 3]);
    }

    #[test]
    fn an_invalid_target_blocks() {
        check_reasons("4.1.0", "next", true, &["!InvalidDesiredVersion"; 2]);
        check_reasons("4.1.0", "next", false, &["!InvalidDesiredVersion"; 3]);
    }

    #[test]
    fn a_lower_target_blocks() {
        check_reasons("4.1.3", "4.1.1", true, &["!LowDesiredVersion"]);
        check_reasons("4.1.3, 4.1.1", "4.1.1", true, &["!LowDesiredVersion"]);
        check_reasons("4.2.0", "3.9.0", true, &["!LowDesiredVersion"]);
        assert_eq!(
            failures("1.0.1", "1.0.0", true, &[])[0].message,
            "1.0.0 is less than the current target 1.0.1, and the cluster has no previous Semantic Version"
        );
        assert_eq!(
            failures("1.0.2, 1.0.1", "1.0.0", true, &[])[0].message,
            "1.0.0 is less than the current target 1.0.2, and the cluster's previous version is 1.0.1"
        );
    }

    #[test]
    fn several_minor_versions_block() {
        check_reasons("4.1.0", "4.2.0", true, &[]);
        check_reasons("4.1.0", "4.3.0", true, &["!MultipleMinorVersionsUpdate"]);
        assert_eq!(
            failures("4.1.0", "4.3.0", true, &[])[0].message,
            "4.3.0 is more than one minor version beyond the current target 4.1.0 (4.3 > 4.(1+1)), and only updates within \
             the current minor version or to the next minor version are supported."
        );
    }

    #[test]
    fn a_larger_major_version_blocks() {
        check_reasons("4.1.0", "5.0.0", true, &["!MajorVersionUpdate"]);
        assert_eq!(
            failures("4.1.0", "5.0.0", true, &[])[0].message,
            "5.0.0 has a larger major version than the current target 4.1.0 (5 > 4), and only updates within the current \
             major version are supported."
        );
    }

    #[test]
    fn an_installation_and_an_unchanged_version_have_no_preconditions() {
        check_reasons("", "next", false, &[]);
        check_reasons("4.1.0", "4.1.0", false, &[]);
        check_reasons("next", "next", false, &[]);
    }

    #[test]
    fn leftover_delete_manifests_block_a_minor_update_and_warn_of_a_patch() {
        let keys = ["b", "a"].map(|name| ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("ns"), name));
        let message =
            "object no longer exists: delete manifests are left over for configmap \"ns/a\", configmap \"ns/b\"";
        for (version, blocks) in [("4.2.0", true), ("4.1.1", false)] {
            let found = failures("4.1.0", version, true, &keys);
            let [Failure { name, reason, message: text, blocks: blocking }] = &found[..] else { panic!("{found:?}") };
            assert_eq!((*name, reason.as_str()), ("PayloadDeleteManifests", "DeleteManifestsLeftOver"));
            assert_eq!((text.as_str(), *blocking), (message, blocks), "{version}");
        }
        assert_eq!(failures("4.1.0", "4.1.0", true, &keys), []);
    }

    #[test]
    fn force_makes_blocking_failures_a_warning_with_a_prefix() {
        let one = failures("4.1.0", "4.3.0", true, &[]);
        let text = format!(
            "Precondition \"ClusterVersionGiantHop\" failed because of \"MultipleMinorVersionsUpdate\": {}",
            one[0].message
        );
        assert_eq!(summarize(&one, false), Some(Verdict { message: text.clone(), blocks: true }));
        let forced = format!("Forced through blocking failures: {text}");
        assert_eq!(summarize(&one, true), Some(Verdict { message: forced, blocks: false }));
        let two = failures("4.1.0", "4.3.0", false, &[]);
        let verdict = summarize(&two, true).unwrap();
        assert!(
            verdict
                .message
                .starts_with("Forced through blocking failures: Multiple precondition checks failed:\n* Precon")
        );
        let warning = failures("4.2.1 partial, 4.1.1", "4.2.3", true, &[]);
        assert!(
            summarize(&warning, true)
                .is_some_and(|verdict| verdict.message.starts_with("Precondition") && !verdict.blocks)
        );
        assert_eq!(summarize(&[], true), None);
    }
}
