//! What holds objects up, in words.

use billhook_engine::{Hold, NodeProgress, blocker_texts};

use crate::render::{list, object};

/// Returns the first object that is held up, how many others are, and the reason: the end may be cut off.
pub(super) fn held(node: &NodeProgress) -> String {
    let Some((key, hold)) = node.held.first_key_value() else { return String::new() };
    let more = match node.held.len() {
        1 => String::new(),
        held => format!(" (and {} more)", held - 1),
    };
    format!("{}{more}: {}", object(key), why(hold))
}

/// Returns what keeps an object from its goal.
pub(super) fn why(hold: &Hold) -> String {
    match hold {
        Hold::Finalizers(finalizers) => list("finalizer", finalizers),
        Hold::Blocked(blockers) => blocker_texts(blockers).join("; "),
        Hold::NotReady(reason) => reason.clone(),
        Hold::Refused { message, retried: true, .. } => format!("failed, retrying: {message}"),
        Hold::Refused { message, .. } | Hold::Failed(message) => format!("failed: {message}"),
    }
}
