//! What a rule is.

use crate::{
    Cause, ObjectRef,
    case::{Case, Seen},
};

/// An object whose causes are looked for.
pub(crate) struct Held<'a> {
    /// Its name.
    pub(crate) object: &'a ObjectRef,
    /// What is known of it.
    pub(crate) seen: Seen<'a>,
    /// Whether it is the subject of the diagnosis, and not what that waits for.
    pub(crate) is_subject: bool,
}

/// One rule: what it knows about one object, by the evidence so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Its name, for tests.
    #[cfg_attr(not(test), expect(dead_code, reason = "names the rule in tests"))]
    pub(crate) name: &'static str,
    /// Returns the causes that it finds.
    pub(crate) judge: fn(&Case<'_>, &Held<'_>) -> Vec<Cause>,
}
