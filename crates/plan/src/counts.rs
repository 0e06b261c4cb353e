//! Numbers of objects by kind.

use std::collections::BTreeMap;

use billhook_objects::GroupKind;
use serde::{Deserialize, Serialize};

/// How many objects there are of each kind. Serialized as a list of pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Vec<(GroupKind, usize)>", into = "Vec<(GroupKind, usize)>")]
pub struct Counts(pub(crate) BTreeMap<GroupKind, usize>);

impl Counts {
    pub(crate) fn add(&mut self, kind: &GroupKind) {
        if let Some(count) = self.0.get_mut(kind) {
            *count += 1;
        } else {
            self.0.insert(kind.clone(), 1);
        }
    }

    /// Returns the number of objects of all kinds.
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }
}

impl From<(GroupKind, usize)> for Counts {
    fn from(count: (GroupKind, usize)) -> Self {
        Self(BTreeMap::from([count]))
    }
}

impl From<Vec<(GroupKind, usize)>> for Counts {
    fn from(counts: Vec<(GroupKind, usize)>) -> Self {
        Self(counts.into_iter().collect())
    }
}

impl From<Counts> for Vec<(GroupKind, usize)> {
    fn from(counts: Counts) -> Self {
        counts.0.into_iter().collect()
    }
}

impl<'a> FromIterator<&'a GroupKind> for Counts {
    fn from_iter<I: IntoIterator<Item = &'a GroupKind>>(kinds: I) -> Self {
        let mut counts = Self::default();
        kinds.into_iter().for_each(|kind| counts.add(kind));
        counts
    }
}
