//! Counts by kind, as notes print them.

use std::{collections::BTreeMap, fmt};

use billhook_objects::GroupKind;

/// How many objects there are of each kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(BTreeMap<GroupKind, usize>);

impl Counts {
    pub(crate) fn add(&mut self, kind: &GroupKind) {
        if let Some(count) = self.0.get_mut(kind) {
            *count += 1;
        } else {
            self.0.insert(kind.clone(), 1);
        }
    }

    pub(crate) fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// `1 object` or `3 objects`.
    pub(crate) fn objects(&self) -> String {
        match self.total() {
            1 => "1 object".to_owned(),
            count => format!("{count} objects"),
        }
    }

    pub(crate) fn into_vec(self) -> Vec<(GroupKind, usize)> {
        self.0.into_iter().collect()
    }
}

impl<'a> FromIterator<&'a GroupKind> for Counts {
    fn from_iter<I: IntoIterator<Item = &'a GroupKind>>(kinds: I) -> Self {
        let mut counts = Self::default();
        kinds.into_iter().for_each(|kind| counts.add(kind));
        counts
    }
}

/// Prints `2 ConfigMap, 1 Secret`.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (kind, count)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{count} {kind}")?;
        }
        Ok(())
    }
}

/// The first few of a list, and how many more there are.
pub(crate) fn some_of<T: fmt::Display>(all: &[T]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = all.iter().take(SHOWN).map(ToString::to_string).collect();
    let rest = all.len().saturating_sub(SHOWN);
    let more = if rest == 0 { String::new() } else { format!(" and {rest} more") };
    format!("{}{more}", shown.join(", "))
}
