//! What failed in the last apply of a release, as its record keeps it.

use billhook_objects::ObjectKey;
use serde::{Deserialize, Serialize};

/// How many failures are kept. A record that grew with them might not be written.
pub(crate) const MAX_FAILURES: usize = 20;

/// How many bytes of an error are kept.
pub(crate) const MAX_ERROR: usize = 1024;

/// The objects that an apply could not bring into their desired state, in the order of its plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// The first of them, up to a limit.
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
    /// Why; a long text is cut.
    pub error: String,
    /// The reason as a word, if the object is not healthy; the error is a sentence about it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// An object that an apply could not bring into its desired state, as [`Failure`] keeps it.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    /// The object.
    pub object: &'a ObjectKey,
    /// Why.
    pub error: &'a str,
    /// See [`Failure::code`].
    pub code: Option<&'a str>,
}

impl Failure {
    /// Returns what is kept.
    pub fn as_failed(&self) -> Failed<'_> {
        Failed { object: &self.object, error: &self.error, code: self.code.as_deref() }
    }
}

impl Failures {
    /// Keeps the first failures, and cuts long errors.
    pub fn of<'a>(all: impl IntoIterator<Item = Failed<'a>>) -> Self {
        let mut found = Self::default();
        for Failed { object, error, code } in all {
            if found.objects.len() < MAX_FAILURES {
                found.objects.push(Failure {
                    object: object.clone(),
                    error: cut(error),
                    code: code.map(str::to_owned),
                });
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

/// Cuts a text to `MAX_ERROR` bytes, and shows that.
fn cut(text: &str) -> String {
    const MARK: &str = "…";
    if text.len() <= MAX_ERROR {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_ERROR - MARK.len());
    format!("{}{MARK}", &text[..end])
}
