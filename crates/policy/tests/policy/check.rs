//! The helper of the table tests, which compares a policy file with its compiled form or its diagnostics.

use std::{fmt::Write as _, sync::Arc};

use billhook_policy::{
    DeletionGroup, DeploymentGroup, Diagnostics, Members, Policy, ResourceSelector, read_policy_file,
};

/// Compares the policy that `yaml` compiles to, or its diagnostics, with `expected`, line by line without indentation.
///
/// A policy has a line per group: its title unless it is that of its class, its members in braces or its class, then its
/// settings. Groups of an update follow `update:` unless they are the default, and those of a deployment `deploy:`.
#[track_caller]
pub(crate) fn check(yaml: &str, expected: &str) {
    let found = match policy(yaml) {
        Ok(policy) => compact(&policy),
        Err(diagnostics) => diagnostics.to_string(),
    };
    assert_lines(&found, expected, yaml);
}

/// Compares the warnings of a valid policy file.
#[track_caller]
pub(crate) fn check_warnings(yaml: &str, expected: &str) {
    let found = match read_policy_file(yaml, &file()) {
        Ok((_, warnings)) => warnings.to_string(),
        Err(diagnostics) => format!("not valid:\n{diagnostics}"),
    };
    assert_lines(&found, expected, yaml);
}

#[track_caller]
pub(crate) fn assert_lines(found: &str, expected: &str, input: &str) {
    let trim = |text: &str| text.trim().lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let (found, expected) = (trim(found), trim(expected));
    assert!(found == expected, "input:\n{input}\n\nexpected:\n{expected}\n\nfound:\n{found}\n");
}

/// Reads a policy file and drops its warnings.
pub(crate) fn policy(yaml: &str) -> Result<Policy, Diagnostics> {
    read_policy_file(yaml, &file()).map(|(policy, _)| policy)
}

pub(crate) fn file() -> Arc<str> {
    "p".into()
}

pub(crate) fn compact(policy: &Policy) -> String {
    let mut out = String::new();
    policy.deletion.iter().for_each(|group| deletion(&mut out, group));
    if policy.during_update != DeletionGroup::defaults() {
        out += "update:\n";
        policy.during_update.iter().for_each(|group| deletion(&mut out, group));
    }
    if !policy.deployment.is_empty() {
        out += "deploy:\n";
        policy.deployment.iter().for_each(|group| deployment(&mut out, group));
    }
    out
}

fn deletion(out: &mut String, group: &DeletionGroup) {
    *out += &members(&group.title, &group.members, &group.excluded);
    if let Some(force) = &group.force {
        let _ = write!(out, " force({} {})", force.after, force.finalizers.join(" "));
        *out += if force.end_grace_period { " grace=0" } else { "" };
    }
    if let Some(propagation) = group.propagation {
        let _ = write!(out, " {propagation:?}");
    }
    if let Some(timeout) = group.timeout {
        let _ = write!(out, " timeout={timeout}");
    }
    if let Some(target) = &group.target {
        let _ = write!(out, " target={target}");
    }
    *out += "\n";
}

fn deployment(out: &mut String, group: &DeploymentGroup) {
    let members = members(&group.title, &group.members, &group.excluded);
    let timeout = group.timeout.map(|timeout| format!(" timeout={timeout}")).unwrap_or_default();
    let _ = writeln!(out, "{members} {:?}{timeout}", group.wait_for);
}

fn members(title: &str, members: &Members, excluded: &[ResourceSelector]) -> String {
    let mut out = match members {
        Members::Class(class) if title == class.as_str() => title.to_owned(),
        Members::Class(class) => format!("{title:?} {}", class.as_str()),
        Members::Resources(selectors) => format!("{title:?} {}", list(selectors)),
    };
    if !excluded.is_empty() {
        out += &format!(" without {}", list(excluded));
    }
    out
}

fn list(selectors: &[ResourceSelector]) -> String {
    format!("{{{}}}", selectors.iter().map(selector).collect::<Vec<_>>().join("; "))
}

fn selector(selector: &ResourceSelector) -> String {
    let mut out = format!("{} {}", selector.api_version, selector.kind);
    for (name, values) in [("names", &selector.names), ("namespaces", &selector.namespaces)] {
        if !values.is_empty() {
            out += &format!(" {name}={}", values.join(","));
        }
    }
    if !selector.label_selector.is_empty() {
        out += &format!(" labels={}", selector.label_selector.to_query());
    }
    if selector.all { out + " all" } else { out }
}
