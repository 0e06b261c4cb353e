//! What failed in the last apply of a release, as its record keeps it.

use billhook_objects::ObjectKey;
use serde::{Deserialize, Serialize};

/// How many failures are kept. A record that grew with them might not be written.
pub const MAX_FAILURES: usize = 20;

/// How many bytes of an error are kept.
pub const MAX_ERROR: usize = 1024;

/// The objects that an apply could not bring into their desired state, in the order of its plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// The first of them; at most [`MAX_FAILURES`].
    pub objects: Vec<Failure>,
    /// How many others there were.
    #[serde(default)]
    pub omitted: usize,
}

/// An object that an apply could not bring into its desired state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The object.
    pub object: ObjectKey,
    /// Why, in at most [`MAX_ERROR`] bytes.
    pub error: String,
}

impl Failures {
    /// Keeps the first failures, and cuts long errors.
    pub fn of<'a>(all: impl IntoIterator<Item = (&'a ObjectKey, &'a str)>) -> Self {
        let mut found = Self::default();
        for (object, error) in all {
            if found.objects.len() < MAX_FAILURES {
                found.objects.push(Failure { object: object.clone(), error: cut(error) });
            } else {
                found.omitted += 1;
            }
        }
        found
    }

    /// Returns whether nothing failed.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

/// Cuts a text to [`MAX_ERROR`] bytes, and shows that.
fn cut(text: &str) -> String {
    const MARK: &str = "…";
    if text.len() <= MAX_ERROR {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_ERROR - MARK.len());
    format!("{}{MARK}", &text[..end])
}
