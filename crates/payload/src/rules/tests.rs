use super::*;
use crate::{
    read::File,
    settings::{DEFAULT_PROFILE, Override},
};

const INCLUDE: &str = "include.release.openshift.io/self-managed-high-availability: 'true'";

fn payload(manifests: &[&str]) -> Payload {
    let (payload, problems) = Payload::read(&[File { path: "f.yaml", text: &manifests.join("---\n") }]);
    assert_eq!(problems, []);
    payload
}

fn manifest(annotations: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a, namespace: ns, annotations: {{{annotations}}}}}}}\n"
    )
}

/// Asserts the decision about a manifest with these annotations, written as `outcome: rule`.
fn check(annotations: &str, settings: &Settings, expected: &str) {
    let decisions = Decisions::new(&payload(&[&manifest(annotations)]), settings);
    assert_eq!(decisions.problems, [], "{annotations}");
    let Decision { outcome, rule } = &decisions.all[0];
    assert_eq!(format!("{outcome}: {rule}"), expected, "{annotations}");
}

fn check_problems(manifests: &[&str], settings: &Settings, expected: &[&str]) {
    let problems: Vec<_> =
        Decisions::new(&payload(manifests), settings).problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems, expected);
}

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn filter_1_an_identifier_excludes() {
    let here = settings(|settings| settings.exclude = Some("internal".to_owned()));
    let excluded = format!("{INCLUDE}, exclude.release.openshift.io/internal: 'true'");
    check(&excluded, &here, "left out: exclude.release.openshift.io/internal=true");
    let included = "applied: include.release.openshift.io/self-managed-high-availability=true";
    check(&excluded, &Settings::default(), included);
    check(&format!("{INCLUDE}, exclude.release.openshift.io/internal: 'false'"), &here, included);
    check(&format!("{INCLUDE}, exclude.release.openshift.io/other: 'true'"), &here, included);
}

#[test]
fn filter_2_a_feature_set_and_a_feature_gate_are_an_error() {
    let both = format!("{INCLUDE}, release.openshift.io/feature-set: Default, release.openshift.io/feature-gate: A");
    let error = "f.yaml:1: configmap \"ns/a\" has both annotations release.openshift.io/feature-set and \
                 release.openshift.io/feature-gate: remove one";
    check_problems(&[&manifest(&both)], &Settings::default(), &[error]);
    // The order of the filters: what an identifier excludes is not looked at further.
    let here = settings(|settings| settings.exclude = Some("x".to_owned()));
    let excluded = format!("{both}, exclude.release.openshift.io/x: 'true'");
    check(&excluded, &here, "left out: exclude.release.openshift.io/x=true");
}

#[test]
fn filter_3_feature_sets() {
    let included = "applied: include.release.openshift.io/self-managed-high-availability=true";
    let other = |required: &str, listed: &str| {
        format!("left out: the feature set is {required}, and release.openshift.io/feature-set={listed}")
    };
    let unknown = |value: &str, listed: &str| {
        format!("left out: unknown feature set \"{value}\" in release.openshift.io/feature-set={listed}")
    };
    let cases = [
        ("Default", "Default", included.to_owned()),
        ("", "Default", included.to_owned()),
        ("Default", "", included.to_owned()),
        ("Default", "OKD,Default", included.to_owned()),
        ("TechPreviewNoUpgrade", "CustomNoUpgrade,DevPreviewNoUpgrade,TechPreviewNoUpgrade", included.to_owned()),
        ("Default", "TechPreviewNoUpgrade", other("Default", "TechPreviewNoUpgrade")),
        ("OKD", "Default", other("OKD", "Default")),
        ("Default", "Default,Nonsense", unknown("Nonsense", "Default,Nonsense")),
        ("Default", "default", unknown("default", "default")),
        ("Default", "Default, OKD", unknown(" OKD", "Default, OKD")),
        ("Nonsense", "Nonsense", unknown("Nonsense", "Nonsense")),
        ("Nonsense", "Default", other("Nonsense", "Default")),
    ];
    for (cluster, listed, expected) in cases {
        let cluster = settings(|settings| settings.feature_set = cluster.to_owned());
        check(&format!("{INCLUDE}, release.openshift.io/feature-set: '{listed}'"), &cluster, &expected);
    }
    let unknown_cluster = settings(|settings| settings.feature_set = "Nonsense".to_owned());
    check(INCLUDE, &unknown_cluster, included);
}

#[test]
fn filter_4_feature_gates() {
    let included = "applied: include.release.openshift.io/self-managed-high-availability=true";
    let off = "left out: the feature gate A is required and off";
    let on = "left out: the feature gate B must be off and is on";
    for (gates, enabled, expected) in [
        ("A", &["A"][..], included),
        ("A", &[], off),
        ("-B", &[], included),
        ("-B", &["B"], on),
        ("A,-B", &["A"], included),
        ("A, -B", &["A", "B"], on),
        ("-B,A", &["B"], on),
        (" ,,", &[], included),
    ] {
        let cluster = settings(|settings| settings.feature_gates = names(enabled));
        check(&format!("{INCLUDE}, release.openshift.io/feature-gate: '{gates}'"), &cluster, expected);
    }
}

#[test]
fn filter_5_the_profile_must_include() {
    let annotation = format!("include.release.openshift.io/{DEFAULT_PROFILE}");
    check("", &Settings::default(), &format!("left out: {annotation} is not set"));
    check(
        "include.release.openshift.io/hypershift: 'true'",
        &Settings::default(),
        &format!("left out: {annotation} is not set"),
    );
    check(
        &format!("{annotation}: 'True'"),
        &Settings::default(),
        &format!("left out: {annotation}=True, which is not true"),
    );
    let hypershift = settings(|settings| settings.profile = "hypershift".to_owned());
    let expected = "applied: include.release.openshift.io/hypershift=true";
    check("include.release.openshift.io/hypershift: 'true'", &hypershift, expected);
    let bare = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n";
    assert!(!Decisions::new(&payload(&[bare]), &Settings::default()).all[0].counts());
}

#[test]
fn filter_6_all_capabilities_must_be_enabled() {
    let included = "applied: include.release.openshift.io/self-managed-high-availability=true";
    let needs = |names: &str| format!("{INCLUDE}, capability.openshift.io/name: '{names}'");
    let build = settings(|settings| settings.capabilities = Some(names(&["Build"])));
    check(&needs("Build+Ingress"), &Settings::default(), included);
    check(&needs("Build"), &build, included);
    check(&needs(""), &build, included);
    check(INCLUDE, &build, included);
    check(&needs("Build+Ingress"), &build, "left out: disabled capabilities: Ingress");
    check(&needs("Console+Build+Ingress"), &build, "left out: disabled capabilities: Console, Ingress");
}

#[test]
fn filter_7_overrides_leave_objects_alone() {
    let included = "applied: include.release.openshift.io/self-managed-high-availability=true";
    let left = "left out: an override leaves the object to another manager";
    for (written, expected) in [
        ("ConfigMap/ns/a", left),
        ("ConfigMap/other/a", included),
        ("ConfigMap/a", included),
        ("Secret/n/a", included),
        ("ConfigMap/ns/b", included),
        ("ConfigMap.apps/ns/a", included),
    ] {
        let overridden = settings(|settings| settings.overrides = vec![Override::parse(written).unwrap()]);
        check(INCLUDE, &overridden, expected);
    }
    for wrong in ["ConfigMap", "/n/a", "ConfigMap/", "ConfigMap/ns/", "ConfigMap/ns/a/b"] {
        assert_eq!(Override::parse(wrong), None, "{wrong}");
    }
    let key = |namespace| ObjectKey::new(billhook_objects::GroupKind::new("g", "Role"), namespace, "a");
    assert!(Override::parse("Role.g/any/a").is_some_and(|found| found.is(&key(None)) && !found.is(&key(Some("n")))));
}

#[test]
fn an_excluded_manifest_is_never_deleted() {
    let delete = "release.openshift.io/delete: 'true'";
    check(
        delete,
        &Settings::default(),
        &format!("left out: include.release.openshift.io/{DEFAULT_PROFILE} is not set"),
    );
    let overridden = settings(|settings| settings.overrides = Override::parse("ConfigMap/ns/a").into_iter().collect());
    let invalid = format!("{INCLUDE}, release.openshift.io/delete: 'false'");
    check(&invalid, &overridden, "left out: an override leaves the object to another manager");
}

#[test]
fn deleting_beats_create_only() {
    let create_only = format!("{INCLUDE}, release.openshift.io/create-only: 'TRUE'");
    check(&create_only, &Settings::default(), "created only: release.openshift.io/create-only=true");
    let both = format!("{create_only}, release.openshift.io/delete: 'true'");
    check(&both, &Settings::default(), "deleted: release.openshift.io/delete=true");
}

#[test]
fn all_invalid_delete_annotations_are_listed() {
    let invalid = |name: &str, value: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  annotations:\n    {INCLUDE}\n    \
             release.openshift.io/delete: {value}\n"
        )
    };
    check_problems(
        &[&invalid("a", "'false'"), &invalid("b", "'true'"), &invalid("c", "true"), &invalid("d", "''")],
        &Settings::default(),
        &[
            "f.yaml:7: configmap \"a\": invalid delete annotation \"release.openshift.io/delete\" value: \"false\"",
            "f.yaml:23: configmap \"c\": invalid delete annotation \"release.openshift.io/delete\" value: \"true\" (not a \
             string: put it in quotes)",
            "f.yaml:31: configmap \"d\": invalid delete annotation \"release.openshift.io/delete\" value: \"\"",
        ],
    );
}

#[test]
fn two_manifests_of_one_object_must_not_count_at_the_same_time() {
    let error = "f.yaml:3: configmap \"ns/a\" is also defined at f.yaml:1, and both manifests count at the same time";
    let (applied, deleted) = (manifest(INCLUDE), manifest(&format!("{INCLUDE}, release.openshift.io/delete: 'true'")));
    check_problems(&[&applied, &applied], &Settings::default(), &[error]);
    check_problems(&[&applied, &deleted], &Settings::default(), &[error]);
    let of_set = |set: &str| manifest(&format!("{INCLUDE}, release.openshift.io/feature-set: {set}"));
    check_problems(&[&of_set("Default"), &of_set("OKD")], &Settings::default(), &[]);
    check_problems(&[&of_set("OKD"), &of_set("OKD")], &Settings::default(), &[]);
}

#[test]
fn settings_without_effect_are_found() {
    let found = unused(
        &payload(&[&manifest(&format!("{INCLUDE}, capability.openshift.io/name: Build"))]),
        &Settings {
            profile: "slef-managed".to_owned(),
            feature_set: "TechPreview".to_owned(),
            capabilities: Some(names(&["Build", "Biuld"])),
            overrides: ["ConfigMap/ns/a", "ConfigMap/ns/b"].iter().filter_map(|text| Override::parse(text)).collect(),
            ..Settings::default()
        },
    );
    assert_eq!(
        found.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "no manifest is included in the profile slef-managed; the payload has self-managed-high-availability",
            "the feature set TechPreview does not exist; known are CustomNoUpgrade, Default, DevPreviewNoUpgrade, OKD, \
             TechPreviewNoUpgrade",
            "no manifest needs the capability Biuld",
            "no manifest is of the object of override 2",
        ]
    );
    assert_eq!(unused(&payload(&[&manifest(INCLUDE)]), &Settings::default()), []);
}

#[test]
fn a_decision_serializes_with_its_rule_and_text() {
    let decision = Decision { outcome: Outcome::LeftOut, rule: Rule::FeatureGateOff { gate: "A".to_owned() } };
    assert_eq!(
        serde_json::to_string(&decision).unwrap(),
        r#"{"outcome":"leftOut","rule":{"code":"feature-gate-off","gate":"A"},"why":"the feature gate A is required and off"}"#
    );
}
