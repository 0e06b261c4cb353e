//! Properties of all policies.

use std::{fmt::Write as _, time::Duration};

use billhook_objects::ApiVersion;
use billhook_policy::{
    DeletionGroup, Force, GoDuration, LabelOperator, LabelRequirement, LabelSelector, Members, Policy, Propagation,
    ResourceClass, ResourceSelector, parse_configuration, validate,
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};

use super::check::{file, policy};

pub(crate) fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9]{0,6}"
}

fn api_version() -> impl Strategy<Value = ApiVersion> {
    (select(vec!["", "apps", "example.org"]), select(vec!["v1", "v1beta1", "v2"]))
        .prop_map(|(g, v)| ApiVersion::new(g, v))
}

fn label_selector() -> impl Strategy<Value = LabelSelector> {
    let requirement = (name(), any::<bool>(), vec(name(), 0..3)).prop_map(|(key, negate, values)| {
        let operator = match (values.is_empty(), negate) {
            (true, false) => LabelOperator::Exists,
            (true, true) => LabelOperator::DoesNotExist,
            (false, false) => LabelOperator::In,
            (false, true) => LabelOperator::NotIn,
        };
        LabelRequirement { key, operator, values }
    });
    (proptest::collection::btree_map(name(), name(), 0..2), vec(requirement, 0..2))
        .prop_map(|(match_labels, match_expressions)| LabelSelector { match_labels, match_expressions })
}

pub(crate) fn selector() -> impl Strategy<Value = ResourceSelector> {
    (api_version(), "[A-Za-z]{1,8}", vec(name(), 0..3), vec(name(), 0..3), label_selector()).prop_map(
        |(api_version, kind, names, namespaces, label_selector)| ResourceSelector {
            api_version,
            kind,
            names,
            namespaces,
            label_selector,
            all: false,
        },
    )
}

fn duration(from: u64) -> impl Strategy<Value = GoDuration> {
    (from..20_000).prop_map(|seconds| GoDuration(Duration::from_secs(seconds)))
}

fn class() -> impl Strategy<Value = ResourceClass> {
    select(vec![ResourceClass::Namespaced, ResourceClass::ClusterScoped, ResourceClass::Crds, ResourceClass::Empty])
}

pub(crate) fn group() -> impl Strategy<Value = DeletionGroup> {
    let members = prop_oneof![
        class().prop_map(|class| (Members::Class(class), None)),
        (vec(selector(), 1..4), option::of(option::of(name()))).prop_map(|(mut selectors, all)| {
            selectors.iter_mut().for_each(|selector| selector.all = all.is_some());
            (Members::Resources(selectors), all.flatten())
        }),
    ];
    let force = (duration(0), vec(name(), 0..3), any::<bool>());
    let force = force.prop_map(|(after, finalizers, end_grace_period)| Force { after, finalizers, end_grace_period });
    let propagation = select(vec![Propagation::Background, Propagation::Foreground, Propagation::Orphan]);
    (members, vec(selector(), 0..3), option::of(force), option::of(propagation), option::of(duration(1))).prop_map(
        |((members, target), excluded, force, propagation, timeout)| DeletionGroup {
            excluded,
            propagation,
            // The group may not end before its force stage.
            timeout: timeout.max(timeout.and(force.as_ref().map(|force| force.after))),
            force,
            target,
            ..DeletionGroup::new("", members)
        },
    )
}

/// Writes a group in the released syntax.
pub(crate) fn released(group: &DeletionGroup) -> Value {
    let mut inner = json!({ "propagationPolicy": group.propagation, "timeout": group.timeout });
    if let Some(force) = &group.force {
        inner["forceDelete"] = true.into();
        inner["forceAfter"] = json!(force.after);
        if !force.finalizers.is_empty() {
            inner["finalizers"] = json!(force.finalizers);
        }
        if force.end_grace_period {
            inner["gracePeriodSeconds"] = 0.into();
        }
    }
    if !group.excluded.is_empty() {
        inner["excludedResources"] = json!(group.excluded);
    }
    match &group.members {
        Members::Class(class) => {
            inner["type"] = json!(class);
            json!({ "predefinedResourceGroup": inner })
        }
        Members::Resources(selectors) => {
            let own = |selector: &ResourceSelector| ResourceSelector { all: false, ..selector.clone() };
            inner["resources"] = json!(selectors.iter().map(own).collect::<Vec<_>>());
            inner["deleteAllResources"] = selectors.iter().any(|selector| selector.all).into();
            inner["targetName"] = json!(group.target);
            json!({ "customResourceGroup": inner })
        }
    }
}

/// Writes a value as block YAML.
pub(crate) fn yaml(value: &Value) -> String {
    fn write(out: &mut String, value: &Value, indent: usize) {
        let pad = "  ".repeat(indent);
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                for (key, value) in entries {
                    let _ = write!(out, "\n{pad}{}:", json!(key));
                    write(out, value, indent + 1);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for item in items {
                    let _ = write!(out, "\n{pad}-");
                    write(out, item, indent + 1);
                }
            }
            scalar => {
                let _ = write!(out, " {scalar}");
            }
        }
    }
    let mut out = String::new();
    write(&mut out, value, 0);
    out.trim_start().to_owned() + "\n"
}

/// Generates arbitrary values with the words that the reader knows.
pub(crate) fn anything() -> impl Strategy<Value = Value> {
    let word = select(
        "deletionGroups deletionGroupsDuringUpdate deletionOrderRules deploymentGroups deployItems config apiVersion kind \
         metadata spec type manifests manifest policy predefinedResourceGroup customResourceGroup resources types group \
         version names namespace namespaces labelSelector matchLabels matchExpressions key operator values selector all \
         forceDelete force-delete enabled forceAfter finalizers gracePeriodSeconds propagationPolicy timeout excludedResources deletionRank \
         deleteAllResources targetName waitFor chart helmDeployment crds v1 Orphan 5m DeployItem ProviderConfiguration In \
         landscaper.gardener.cloud/v1alpha1 helm.deployer.landscaper.gardener.cloud/v1alpha1 landscaper.gardener.cloud/helm \
         name disabled disableDefault custom resourceSelector requirements jsonPath value exports fromResource fromObjectRef \
         cron every annotateBeforeCreate patchAfterDeployment ref archive raw remote url helmChartRepo install uninstall wait"
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>(),
    );
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((word.clone(), inner), 0..6).prop_map(|entries| entries.into_iter().collect::<Value>()),
        ]
    })
}

/// The fields of a configuration that get arbitrary values.
const CONFIGURATION: &[&str] = &[
    "updateStrategy",
    "readinessChecks",
    "manifests",
    "exports",
    "continuousReconcile",
    "values",
    "exportsFromManifests",
    "helmDeploymentConfig",
    "deletionGroups",
];

proptest! {
    #[test]
    fn a_policy_in_the_released_syntax_survives_a_round_trip(deletion in vec(group(), 1..5), during_update in vec(group(), 1..3)) {
        let text = yaml(&json!({
            "deletionGroups": deletion.iter().map(released).collect::<Vec<_>>(),
            "deletionGroupsDuringUpdate": during_update.iter().map(released).collect::<Vec<_>>(),
        }));
        let mut found = policy(&text).map_err(|errors| TestCaseError::fail(format!("{text}\n{errors}")))?;
        for group in found.deletion.iter_mut().chain(&mut found.during_update) {
            prop_assert!(!group.title.is_empty() && !group.path.is_empty());
            group.title.clear();
            group.path.clear();
        }
        prop_assert_eq!(found, Policy { deletion, during_update, deployment: Vec::new() });
    }

    #[test]
    fn nothing_makes_the_reader_panic(value in anything(), text in "[a-z:{}\\[\\]&*!|>'\"%@`#,?\\- \n\t]{0,60}") {
        let written = yaml(&value);
        for text in [written.as_str(), text.as_str()] {
            let diagnostics = validate(text, &file());
            prop_assert!(diagnostics.iter().is_sorted_by_key(|found| (found.line, found.column)));
            for found in &diagnostics {
                prop_assert!(found.line >= 1 && found.column >= 1 && !found.problem.is_empty());
            }
            let _ = diagnostics.render(text);
            match policy(text) {
                Ok(policy) => prop_assert!(!policy.deletion.is_empty() && !policy.during_update.is_empty()),
                Err(errors) => prop_assert!(errors.has_errors() && errors.iter().all(|found| found.is_error())),
            }
        }
    }

    #[test]
    fn a_valid_configuration_keeps_its_invariants(helm in any::<bool>(), fields in vec((select(CONFIGURATION), anything()), 0..6)) {
        let mut config: Value = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let deployer = if helm { "helm" } else { "manifest" };
        config["apiVersion"] = format!("{deployer}.deployer.landscaper.gardener.cloud/v1alpha1").into();
        config["kind"] = "ProviderConfiguration".into();
        if helm {
            config["chart"] = json!({"ref": "a"});
            config["name"] = "web".into();
            config["namespace"] = "shop".into();
        }
        match parse_configuration(&config) {
            Err(mistakes) => {
                prop_assert!(mistakes.iter().all(|found| found.is_error() && !found.at_path().is_empty()));
                prop_assert!(!mistakes.is_empty());
            }
            Ok((found, warnings)) => {
                prop_assert!(!warnings.has_errors());
                prop_assert_eq!(found.helm.is_some(), helm);
                let written = if helm { 0 } else { config["manifests"].as_array().map_or(0, Vec::len) };
                prop_assert_eq!(found.manifests.len(), written);
                prop_assert!(found.readiness.custom.iter().all(|check| !check.requirements.is_empty()));
                prop_assert!(found.exports.iter().all(|export| helm || export.from_resource.is_some()));
            }
        }
    }

    #[test]
    fn ranks_are_sorted_and_every_default_rank_exists_once(
        mut rules in proptest::collection::btree_map(prop_oneof![-500_i64..500, select(vec![100, 200, 300])], selector(), 0..6),
        seed in any::<u64>(),
    ) {
        let mut written: Vec<Value> = rules.iter().map(|(rank, selector)| match rank {
            100 | 200 | 300 => json!({ "deletionRank": rank }),
            _ => json!({ "deletionRank": rank, "types": [{
                "group": selector.api_version.group(), "version": selector.api_version.version(), "kind": selector.kind,
                "names": selector.names, "namespaces": selector.namespaces, "labelSelector": selector.label_selector,
                "selector": { "all": true },
            }] }),
        }).collect();
        let read = |rules: &[Value]| {
            let mut policy = policy(&yaml(&json!({ "deletionOrderRules": rules }))).unwrap();
            policy.deletion.iter_mut().for_each(|group| group.path.clear());
            policy
        };
        let policy = read(&written);
        // The order in which rules are written does not matter.
        let turn = usize::try_from(seed % 7).unwrap() % written.len().max(1);
        written.rotate_left(turn);
        prop_assert_eq!(&policy, &read(&written));
        prop_assert_eq!(&policy.during_update, &DeletionGroup::defaults());

        for default in [100, 200, 300] {
            rules.entry(default).or_insert_with(|| ResourceSelector {
                api_version: ApiVersion::new("", "v1"), kind: String::new(), names: vec![], namespaces: vec![],
                label_selector: LabelSelector::default(), all: false,
            });
        }
        prop_assert_eq!(policy.deletion.len(), rules.len());
        for ((rank, selector), group) in rules.iter().zip(&policy.deletion) {
            let (prefix, start) = (format!("rank {rank}: "), *rank);
            prop_assert!(group.title.starts_with(&prefix), "{} is not of {prefix}", group.title);
            match &group.members {
                Members::Class(class) => {
                    let expected = match rank { 100 => ResourceClass::Namespaced, 200 => ResourceClass::ClusterScoped, _ => ResourceClass::Crds };
                    prop_assert_eq!(*class, expected);
                    let later = rules.iter().filter(|(rank, _)| **rank > start && ![200, 300].contains(*rank));
                    prop_assert!(later.map(|(_, selector)| selector).eq(&group.excluded));
                }
                Members::Resources(types) => {
                    prop_assert_eq!(types, &[ResourceSelector { all: true, ..selector.clone() }]);
                    prop_assert!(group.excluded.is_empty());
                }
            }
        }
    }

    #[test]
    fn the_same_input_gives_the_same_bytes(value in anything(), groups in vec(group(), 0..4)) {
        let document = json!({ "deletionGroups": groups.iter().map(released).collect::<Vec<_>>() });
        for text in [yaml(&value), yaml(&document)] {
            let bytes = || policy(&text).map(|policy| serde_json::to_string(&policy).unwrap()).map_err(|e| e.to_string());
            prop_assert_eq!(bytes(), bytes());
        }
    }
}
