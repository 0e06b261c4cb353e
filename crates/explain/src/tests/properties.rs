//! What holds for all diagnoses.

use proptest::prelude::*;

use super::situations::{all, slow};
use crate::{Strength, registry::RULES, tree};

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// The order of the rules does not matter: neither for what is asked nor for what is found.
    #[test]
    fn the_order_of_the_rules_does_not_matter(rules in Just(RULES.to_vec()).prop_shuffle()) {
        let names: Vec<_> = rules.iter().map(|rule| rule.name).collect();
        for world in all().iter().filter(|world| world.description.get("beyond").is_none()) {
            prop_assert_eq!(world.diagnose(Some(rules.clone())), world.diagnose(None), "{} with {:?}", world.title(), names);
        }
    }

    /// What may not be read is no evidence: without some answers nothing that is slow is said to be stuck.
    #[test]
    fn missing_rights_make_nothing_stuck(seed in any::<u64>()) {
        // A Deployment without available replicas works only by the evidence of its Lease.
        for mut world in slow().into_iter().filter(|world| world.description["situation"] != "s2") {
            world.restricted = Some(seed);
            let (finding, _) = world.diagnose(None);
            let root = tree::root(&finding.causes);
            let fine = root.is_none_or(|cause| cause.reason.is_slow() || cause.strength == Strength::Possible);
            prop_assert!(fine, "{}: {:#?}", world.title(), root);
        }
    }
}
