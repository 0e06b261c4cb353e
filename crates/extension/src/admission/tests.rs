//! The rules as tables, and reviews as an API server sends them.

use super::{
    FORCE_DELETION_CODES, ForceDeletionError, NotConfirmed, check_deletion_confirmed, validate_force_deletion,
};
use crate::gardener::parse_bool;
use ForceDeletionError::{NoErrorCode, NotDeleting, Removed};

#[test]
fn the_cases_of_gardener() {
    let check = |name, (old, new, is_deleting, codes): (_, _, _, &[&str]), expected: &[ForceDeletionError]| {
        let errors = validate_force_deletion(old, new, is_deleting, codes.iter().copied());
        assert_eq!(errors, expected, "{name}");
    };
    check("set without a deletion", (None, Some("1"), false, &[]), &[NotDeleting, NoErrorCode]);
    check("set without a code", (None, Some("T"), true, &[]), &[NoErrorCode]);
    check("set with another code", (None, Some("T"), true, &["ERR_PROBLEMATIC_WEBHOOK"]), &[NoErrorCode]);
    check("set before and after", (Some("true"), Some("true"), true, &[]), &[]);
    check("removed", (Some("true"), None, true, &[]), &[Removed]);
    check("set with a code", (None, Some("true"), true, &["ERR_CONFIGURATION_PROBLEM"]), &[]);
}

/// Values of the annotation, and what Go's `strconv.ParseBool` makes of them: the first twelve are those that it accepts.
const VALUES: [(Option<&str>, Option<bool>); 27] = [
    (Some("1"), Some(true)),
    (Some("t"), Some(true)),
    (Some("T"), Some(true)),
    (Some("true"), Some(true)),
    (Some("TRUE"), Some(true)),
    (Some("True"), Some(true)),
    (Some("0"), Some(false)),
    (Some("f"), Some(false)),
    (Some("F"), Some(false)),
    (Some("false"), Some(false)),
    (Some("FALSE"), Some(false)),
    (Some("False"), Some(false)),
    (Some(""), None),
    (Some(" true"), None),
    (Some("true "), None),
    (Some("true\n"), None),
    (Some("tRUE"), None),
    (Some("TrUe"), None),
    (Some("yes"), None),
    (Some("on"), None),
    (Some("y"), None),
    (Some("01"), None),
    (Some("2"), None),
    (Some("-1"), None),
    (Some("\"true\""), None),
    (Some("tru\u{435}"), None),
    (None, None),
];

#[test]
fn values_are_parsed_as_in_go() {
    for (value, expected) in VALUES {
        assert_eq!(value.and_then(parse_bool), expected, "{value:?}");
        let confirmed = check_deletion_confirmed(value);
        assert_eq!(confirmed, if expected == Some(true) { Ok(()) } else { Err(NotConfirmed) }, "{value:?}");
    }
}

/// Codes of the status, and whether one of them allows force deletion.
fn codes() -> Vec<(Vec<&'static str>, bool)> {
    let mut all: Vec<_> = FORCE_DELETION_CODES.map(|code| (vec![code], true)).into();
    all.extend([
        (vec![], false),
        (vec![""], false),
        (vec!["ERR_INFRA_QUOTA_EXCEEDED", "ERR_RETRYABLE_INFRA_DEPENDENCIES"], false),
        (vec!["err_infra_unauthorized", " ERR_INFRA_UNAUTHORIZED"], false),
        (vec!["ERR_PROBLEMATIC_WEBHOOK", "ERR_INFRA_UNAUTHORIZED"], true),
        (FORCE_DELETION_CODES.to_vec(), true),
    ]);
    all
}

#[test]
fn every_combination_has_the_errors_of_the_rules() {
    let mut counts = [0; 4];
    for (old, was_true) in VALUES {
        for (new, is_true) in VALUES {
            for is_deleting in [false, true] {
                for (codes, has_code) in codes() {
                    let (was, is) = (was_true == Some(true), is_true == Some(true));
                    let mut expected = Vec::new();
                    if was && !is {
                        expected.push(Removed);
                    }
                    if is && !was && !is_deleting {
                        expected.push(NotDeleting);
                    }
                    if is && !was && !has_code {
                        expected.push(NoErrorCode);
                    }
                    counts[expected.len()] += 1;
                    counts[3] += usize::from(expected.contains(&Removed));
                    let errors = validate_force_deletion(old, new, is_deleting, codes.iter().copied());
                    assert_eq!(errors, expected, "{old:?} -> {new:?}, deleting: {is_deleting}, {codes:?}");
                }
            }
        }
    }
    // 6 of the 27 values are true; with each of 22 pairs of a deletion and codes.
    let (changes, combinations) = (6 * 21, 27 * 27 * 22);
    assert_eq!(counts, [combinations - changes * (22 + 15), changes * (22 + 11), changes * 4, changes * 22]);
}

#[test]
fn the_texts_are_those_of_gardener() {
    for (error, text) in [
        (Removed, "force-deletion annotation cannot be removed once set"),
        (NotDeleting, "force-deletion annotation cannot be set when Shoot deletionTimestamp is nil"),
        (
            NoErrorCode,
            "force-deletion annotation cannot be set when Shoot status does not contain one of these error codes: \
             [ERR_CLEANUP_CLUSTER_RESOURCES ERR_CONFIGURATION_PROBLEM ERR_INFRA_DEPENDENCIES ERR_INFRA_UNAUTHENTICATED \
             ERR_INFRA_UNAUTHORIZED]",
        ),
    ] {
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(NotConfirmed.to_string(), "must have a \"confirmation.gardener.cloud/deletion\" annotation to delete");
}

#[cfg(feature = "webhook")]
mod reviews;
