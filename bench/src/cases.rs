//! The measured cases and their numbers of objects.

use serde::Serialize;

use crate::workload::{Kind, Set};

/// A measured case: a row of the table, and another one with added latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Case {
    /// Create ConfigMaps in one namespace.
    Create,
    /// Apply them again, unchanged.
    Unchanged,
    /// Delete them.
    Delete,
    /// Create the same number in several namespaces.
    CreateSpread,
    /// Apply them again, unchanged.
    UnchangedSpread,
    /// Delete them.
    DeleteSpread,
    /// Delete three kinds of custom resources in order, while a controller removes their finalizers.
    Ordered,
    /// Create many.
    CreateMany,
    /// Apply them again, unchanged.
    UnchangedMany,
    /// Delete many.
    DeleteMany,
    /// Delete a few objects without others of their kind.
    FewAlone,
    /// Delete a few objects among many others of their kind.
    FewAmong,
    /// Delete all objects of many kinds.
    Clean,
    /// Install a real release payload.
    PayloadInstall,
    /// Apply it again, unchanged.
    PayloadUnchanged,
    /// Plan a large payload, without a cluster.
    PayloadPlan,
    /// Apply it.
    PayloadMany,
}

impl Case {
    /// All cases, in the order of the table.
    pub(crate) const ALL: [Self; 17] = [
        Self::Create,
        Self::Unchanged,
        Self::Delete,
        Self::CreateSpread,
        Self::UnchangedSpread,
        Self::DeleteSpread,
        Self::Ordered,
        Self::CreateMany,
        Self::UnchangedMany,
        Self::DeleteMany,
        Self::FewAlone,
        Self::FewAmong,
        Self::Clean,
        Self::PayloadInstall,
        Self::PayloadUnchanged,
        Self::PayloadPlan,
        Self::PayloadMany,
    ];

    /// Returns the name that selects the case.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Unchanged => "unchanged",
            Self::Delete => "delete",
            Self::CreateSpread => "create-spread",
            Self::UnchangedSpread => "unchanged-spread",
            Self::DeleteSpread => "delete-spread",
            Self::Ordered => "ordered",
            Self::CreateMany => "create-many",
            Self::UnchangedMany => "unchanged-many",
            Self::DeleteMany => "delete-many",
            Self::FewAlone => "few-alone",
            Self::FewAmong => "few-among",
            Self::Clean => "clean",
            Self::PayloadInstall => "payload-install",
            Self::PayloadUnchanged => "payload-unchanged",
            Self::PayloadPlan => "payload-plan",
            Self::PayloadMany => "payload-many",
        }
    }

    /// Returns whether the name contains one of the filters; without filters all cases are selected.
    pub(crate) fn is_selected(self, filters: &[String]) -> bool {
        filters.is_empty() || filters.iter().any(|filter| self.name().contains(filter.as_str()))
    }

    /// Returns whether it is also measured with added latency.
    pub(crate) fn is_delayed_too(self) -> bool {
        !(self.is_many() || self.is_of_payload() || matches!(self, Self::FewAlone | Self::FewAmong | Self::Clean))
    }

    /// Returns whether it is a case of release payloads.
    pub(crate) fn is_of_payload(self) -> bool {
        matches!(self, Self::PayloadInstall | Self::PayloadUnchanged | Self::PayloadPlan | Self::PayloadMany)
    }

    /// Returns whether it has enough objects to check the memory.
    pub(crate) fn is_many(self) -> bool {
        matches!(self, Self::CreateMany | Self::UnchangedMany | Self::DeleteMany)
    }

    /// Returns the title in the table.
    pub(crate) fn title(self, sizes: &Sizes) -> String {
        let Sizes { each, namespaces, custom, many, few, others, clean, payload } = *sizes;
        match self {
            Self::Create => format!("create {each}"),
            Self::Unchanged => format!("apply {each} again, unchanged"),
            Self::Delete => format!("delete {each}"),
            Self::CreateSpread => format!("create {each} in {namespaces} namespaces"),
            Self::UnchangedSpread => format!("apply {each} in {namespaces} again"),
            Self::DeleteSpread => format!("delete {each} in {namespaces} namespaces"),
            Self::Ordered => format!("delete 3 kinds x {custom} in order"),
            Self::CreateMany => format!("create {many}"),
            Self::UnchangedMany => format!("apply {many} again, unchanged"),
            Self::DeleteMany => format!("delete {many}"),
            Self::FewAlone => format!("delete {few}, alone"),
            Self::FewAmong => format!("delete {few} among {others} others"),
            Self::Clean => format!("clean {clean} of 30 kinds"),
            Self::PayloadInstall => "install a payload of 148 files".to_owned(),
            Self::PayloadUnchanged => "apply it again, unchanged".to_owned(),
            Self::PayloadPlan => format!("plan a payload of {payload} files"),
            Self::PayloadMany => format!("install a payload of {payload} files"),
        }
    }

    /// Returns the number of created or deleted objects.
    pub(crate) fn objects(self, sizes: &Sizes) -> usize {
        match self {
            Self::Ordered => sizes.custom * Kind::CUSTOM.len(),
            Self::CreateMany | Self::UnchangedMany | Self::DeleteMany => sizes.many,
            Self::FewAlone | Self::FewAmong => sizes.few,
            Self::Clean => sizes.clean,
            Self::PayloadPlan | Self::PayloadMany => sizes.payload,
            _ => sizes.each,
        }
    }
}

/// Cases that are measured in sequence: create, apply again, delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Together,
    Spread,
    Ordered,
    Many,
    FewAlone,
    FewAmong,
}

impl Flow {
    /// Returns the cases of creating, of applying again, and of deleting.
    pub(crate) fn cases(self) -> [Option<Case>; 3] {
        match self {
            Self::Together => [Some(Case::Create), Some(Case::Unchanged), Some(Case::Delete)],
            Self::Spread => [Some(Case::CreateSpread), Some(Case::UnchangedSpread), Some(Case::DeleteSpread)],
            Self::Ordered => [None, None, Some(Case::Ordered)],
            Self::Many => [Some(Case::CreateMany), Some(Case::UnchangedMany), Some(Case::DeleteMany)],
            Self::FewAlone => [None, None, Some(Case::FewAlone)],
            Self::FewAmong => [None, None, Some(Case::FewAmong)],
        }
    }

    /// Returns whether any of its cases is selected.
    pub(crate) fn is_needed(self, selected: &[Case]) -> bool {
        self.cases().into_iter().flatten().any(|case| selected.contains(&case))
    }

    /// Returns its objects.
    pub(crate) fn set(self, sizes: &Sizes) -> Set {
        match self {
            Self::Together => Set::configmaps("together", sizes.each, 1),
            Self::Spread => Set::configmaps("spread", sizes.each, sizes.namespaces),
            Self::Ordered => Set { kinds: Kind::CUSTOM.to_vec(), ..Set::configmaps("ordered", sizes.custom, 1) },
            Self::Many => Set::configmaps("many", sizes.many, 1),
            Self::FewAlone => Set::configmaps("few-alone", sizes.few, 1),
            Self::FewAmong => Set::configmaps("few-among", sizes.few, 1),
        }
    }

    /// Returns the other objects, which are neither created nor deleted in the case.
    pub(crate) fn others(sizes: &Sizes) -> Set {
        let namespaces = Self::FewAmong.set(sizes).namespaces;
        Set { name: "others".to_owned(), kinds: vec![Kind::Configmaps], each: sizes.others, namespaces }
    }
}

/// The numbers of objects.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Sizes {
    pub(crate) each: usize,
    pub(crate) namespaces: usize,
    pub(crate) custom: usize,
    pub(crate) many: usize,
    pub(crate) few: usize,
    pub(crate) others: usize,
    /// The objects of a cleaning.
    pub(crate) clean: usize,
    /// The files of the large payload.
    pub(crate) payload: usize,
}

impl Sizes {
    /// The numbers for the bars.
    pub(crate) const FULL: Self = Self {
        each: 1_000,
        namespaces: 50,
        custom: 200,
        many: 10_000,
        few: 10,
        others: 20_000,
        clean: 5_000,
        payload: 5_000,
    };
    /// Small numbers that only show that it works.
    pub(crate) const QUICK: Self =
        Self { each: 100, namespaces: 5, custom: 20, many: 1_000, few: 10, others: 2_000, clean: 500, payload: 500 };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_but_those_of_payloads_and_of_cleaning_belongs_to_one_flow() {
        let flows = [Flow::Together, Flow::Spread, Flow::Ordered, Flow::Many, Flow::FewAlone, Flow::FewAmong];
        for case in Case::ALL {
            let of = flows.iter().filter(|flow| flow.cases().contains(&Some(case))).count();
            assert_eq!(of, usize::from(!case.is_of_payload() && case != Case::Clean), "{}", case.name());
        }
    }

    #[test]
    fn a_filter_is_a_part_of_the_name() {
        assert!(Case::Ordered.is_selected(&[]));
        assert!(Case::CreateMany.is_selected(&["ordered".to_owned(), "many".to_owned()]));
        assert!(!Case::Create.is_selected(&["many".to_owned()]));
    }
}
