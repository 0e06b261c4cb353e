//! The warnings and dangerous notes of an item's plan, which the controller carries out all the same: as Kubernetes Events,
//! and in the condition [`CONDITION`].
//!
//! The condition names the code of each note, so that it also tells which Events exist: a code is recorded once for a
//! generation of the item, however often its work is retried or resumed.

use std::collections::BTreeMap;

use billhook_plan::{Note, Severity};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{Condition, DeployItemStatus},
    text::{clip, one_line},
};

/// The type of the condition. An item without such notes does not have it.
pub const CONDITION: &str = "billhook.dev/Warnings";

/// The longest message of the condition, in bytes.
const MAX_MESSAGE: usize = 16 * 1024;
/// The longest text for the notes of one code, in bytes.
const MAX_TEXT: usize = 1000;

/// All notes of a plan with one code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    code: String,
    dangerous: bool,
    text: String,
}

impl Warning {
    /// Returns the reason of the Event: the code as one word, such as `ForeignObjects`.
    pub(crate) fn reason(&self) -> String {
        let word = |word: &str| word.chars().take(1).flat_map(char::to_uppercase).chain(word.chars().skip(1)).collect();
        self.code.split('-').map(word).collect::<Vec<String>>().concat()
    }

    /// Returns the message of the Event.
    pub(crate) fn message(&self) -> String {
        if self.dangerous { format!("dangerous: {}", self.text) } else { self.text.clone() }
    }

    /// Returns how its line in the condition begins.
    fn head(&self) -> String {
        format!("{}: ", self.reason())
    }
}

impl DeployItemStatus {
    /// Sets the condition for the notes of a plan, and returns those with a code that it did not contain.
    pub(crate) fn warn(&mut self, notes: &[Note], now: Timestamp) -> Vec<Warning> {
        let known = self.conditions.iter().position(|condition| condition.r#type == CONDITION);
        let known = known.map(|at| self.conditions.remove(at));
        let warnings = warnings(notes);
        if warnings.is_empty() {
            return warnings;
        }
        let lines: Vec<String> = warnings.iter().map(|warning| warning.head() + &warning.message()).collect();
        let reason = if warnings.iter().any(|warning| warning.dangerous) { "Dangerous" } else { "Warning" };
        let recorded = known.as_ref().map(|condition| condition.message.clone()).unwrap_or_default();
        let message = clip(&lines.join("\n"), MAX_MESSAGE);
        let updated = known.as_ref().filter(|known| known.message == message).map(|known| &known.last_update_time);
        self.conditions.push(Condition {
            r#type: CONDITION.to_owned(),
            status: "True".to_owned(),
            last_transition_time: known.as_ref().map_or(Time(now), |known| known.last_transition_time.clone()),
            last_update_time: updated.cloned().unwrap_or(Time(now)),
            reason: reason.to_owned(),
            message,
            codes: Vec::new(),
        });
        warnings.into_iter().filter(|new| !recorded.lines().any(|line| line.starts_with(&new.head()))).collect()
    }

    /// Removes the condition, since the notes of another generation are new.
    pub(crate) fn forget_warnings(&mut self) {
        self.conditions.retain(|condition| condition.r#type != CONDITION);
    }
}

/// Returns the notes that are dangerous or warnings, by code, in the order of the plan.
fn warnings(notes: &[Note]) -> Vec<Warning> {
    let mut order: BTreeMap<String, usize> = BTreeMap::new();
    let mut warnings: Vec<Warning> = Vec::new();
    for note in notes.iter().filter(|note| note.severity < Severity::Info) {
        let Some(code) = serde_json::to_value(note).ok().and_then(|note| Some(note["code"].as_str()?.to_owned()))
        else {
            continue;
        };
        let (dangerous, text) = (note.severity == Severity::Dangerous, one_line(&note.to_string()));
        match order.get(&code).and_then(|at| warnings.get_mut(*at)) {
            Some(warning) => {
                warning.dangerous |= dangerous;
                warning.text = clip(&format!("{}; {text}", warning.text), MAX_TEXT);
            }
            None => {
                order.insert(code.clone(), warnings.len());
                warnings.push(Warning { code, dangerous, text: clip(&text, MAX_TEXT) });
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use billhook_objects::{GroupKind, ObjectKey};
    use billhook_plan::NoteKind;

    use super::*;

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap_or_default()
    }

    fn other(name: &str) -> Note {
        let object = ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), name);
        NoteKind::OtherRelease { object, release: "a/b".to_owned(), remains: false }.into()
    }

    fn messages(status: &DeployItemStatus) -> Vec<&str> {
        status.conditions.iter().map(|condition| condition.message.as_str()).collect()
    }

    #[test]
    fn notes_of_one_code_are_recorded_once() {
        let mut status = DeployItemStatus::default();
        let lost = Note::from(NoteKind::PolicyLost);
        let recorded = status.warn(&[other("x"), other("y"), lost.clone()], time(1));
        let events: Vec<_> = recorded.iter().map(|warning| (warning.reason(), warning.message())).collect();
        let both = "dangerous: ConfigMap a/x belongs to release a/b; ConfigMap a/y belongs to release a/b";
        assert_eq!(events[0], ("OtherRelease".to_owned(), both.to_owned()));
        assert_eq!(events[1], ("PolicyLost".to_owned(), lost.to_string()));
        assert_eq!(messages(&status), [format!("OtherRelease: {both}\nPolicyLost: {lost}")]);
        assert_eq!(status.conditions[0].reason, "Dangerous");
        // The next attempt finds other objects: the condition shows them, and there is no other Event.
        assert_eq!(status.warn(&[other("x"), lost.clone()], time(2)), []);
        assert_eq!(status.conditions[0].last_transition_time.0, time(1));
        assert_eq!(
            messages(&status),
            [format!("OtherRelease: dangerous: ConfigMap a/x belongs to release a/b\nPolicyLost: {lost}")]
        );
        status.forget_warnings();
        assert_eq!(status.warn(&[lost], time(3)).len(), 1);
        assert_eq!(status.conditions[0].reason, "Warning");
        assert_eq!(status.warn(&[], time(4)), []);
        assert_eq!(status.conditions, []);
    }

    #[test]
    fn information_is_no_warning_and_long_texts_are_cut() {
        let info = NoteKind::Fallback { object: ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), "b") };
        assert_eq!(warnings(&[info.into()]), []);
        let many: Vec<Note> = (0..1000).map(|n| other(&n.to_string())).collect();
        assert!(warnings(&many)[0].text.len() <= MAX_TEXT);
    }
}
