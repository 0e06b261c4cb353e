//! The answers of a dry run on the server.

use billhook_engine::{DryRunAnswer, NotChecked};

use crate::{
    output::Paint,
    render::{count, object},
};

/// Returns the lines after the plan: what is rejected, what the server has not checked and why, and the counts.
pub(crate) fn lines(answers: &[DryRunAnswer], paint: Paint) -> Vec<String> {
    let mut lines = vec![String::new(), paint.bold("server answers")];
    for DryRunAnswer { object: key, message, not_checked, .. } in answers {
        match (message, not_checked) {
            (Some(message), None) => lines.push(format!("   {} {}: {message}", paint.bad("rejected"), object(key))),
            (Some(message), Some(_)) => {
                lines.push(format!(
                    "   {} {}: not valid by the schema of its CRD: {message}",
                    paint.bad("rejected"),
                    object(key)
                ));
            }
            (None, Some(why)) => {
                lines.push(format!("   {} {}: {}", paint.warn("not checked by the server"), object(key), reason(*why)));
            }
            (None, None) => {}
        }
    }
    let accepted = answers.iter().filter(|answer| answer.accepted && answer.not_checked.is_none()).count();
    lines.push(format!("   {} {}", paint.good("accepted"), count(accepted, "request")));
    let not_checked = answers.iter().filter(|answer| answer.not_checked.is_some()).count();
    if not_checked > 0 {
        lines.push(format!("   {} {}", paint.warn("not checked by the server:"), count(not_checked, "object")));
    }
    lines
}

fn reason(why: NotChecked) -> &'static str {
    match why {
        NotChecked::NoDefinition { has_rules: false } => "its CRD does not exist yet (valid by the schema of the CRD)",
        NotChecked::NoDefinition { has_rules: true } => {
            "its CRD does not exist yet (valid by the schema of the CRD, whose CEL rules were not evaluated)"
        }
        NotChecked::NoNamespace => "its Namespace does not exist yet",
    }
}

#[cfg(test)]
mod tests {
    use billhook_objects::{GroupKind, ObjectKey};

    use super::*;

    #[test]
    fn what_the_server_has_not_checked_is_marked_and_counted() {
        let answer = |name: &str, message: Option<&str>, not_checked| DryRunAnswer {
            object: ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), name),
            accepted: message.is_none(),
            message: message.map(str::to_owned),
            not_checked,
        };
        let answers = [
            answer("a", None, None),
            answer("b", Some("no"), None),
            answer("c", None, Some(NotChecked::NoNamespace)),
            answer("d", Some("spec.x is required"), Some(NotChecked::NoDefinition { has_rules: false })),
        ];
        let expected = [
            "",
            "server answers",
            "   rejected ConfigMap a/b: no",
            "   not checked by the server ConfigMap a/c: its Namespace does not exist yet",
            "   rejected ConfigMap a/d: not valid by the schema of its CRD: spec.x is required",
            "   accepted 1 request",
            "   not checked by the server: 2 objects",
        ];
        assert_eq!(lines(&answers, Paint(false)), expected);
    }
}
