use super::*;
use crate::{read::File, settings::Settings};

/// Files by name, each with its manifests as `text` reads them.
type Files<'a> = &'a [(&'a str, &'a str)];

/// Writes manifests, one per line: `MARK [VERSION/]KIND [NAMESPACE/]NAME [FIELDS]`. The mark is `+` for a manifest that counts,
/// `-` for one that is deleted, or its annotations with `~` in place of blanks.
fn text(manifests: &str) -> String {
    let write = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let mut next = || words.next().unwrap_or_default();
        let (mark, version_kind, place, rest) = (next(), next(), next(), next());
        let (version, kind) = version_kind.rsplit_once('/').unwrap_or(("v1", version_kind));
        let (namespace, name) = place
            .split_once('/')
            .map_or((String::new(), place), |(namespace, name)| (format!("namespace: {namespace}, "), name));
        let include = "include.release.openshift.io/self-managed-high-availability: 'true'";
        let annotations = match mark {
            "-" => format!("{include}, release.openshift.io/delete: 'true'"),
            "+" => include.to_owned(),
            other => other.replace('~', " "),
        };
        format!(
            "{{apiVersion: {version}, kind: {kind}, metadata: {{name: {name}, {namespace}annotations: {{{annotations}}}}}\
             {}{rest}}}\n",
            if rest.is_empty() { "" } else { ", " }
        )
    };
    manifests.lines().map(str::trim).filter(|line| !line.is_empty()).map(write).collect::<Vec<_>>().join("---\n")
}

fn payload(files: Files<'_>) -> (Payload, Decisions) {
    let texts: Vec<_> = files.iter().map(|(name, manifests)| (*name, text(manifests))).collect();
    let files: Vec<_> = texts.iter().map(|(path, text)| File { path, text }).collect();
    let (payload, problems) = Payload::read(&files);
    assert_eq!(problems, []);
    let decisions = Decisions::new(&payload, &Settings::default());
    (payload, decisions)
}

/// Returns the findings as `file:line code: text`.
fn findings(new: Files<'_>, old: Option<Files<'_>>, versions: Option<(&str, &str)>) -> Vec<String> {
    let (new, old) = (payload(new), old.map(payload));
    let decided = |(payload, decisions)| Decided { payload, decisions };
    let lint = Lint {
        new: decided((&new.0, &new.1)),
        old: old.as_ref().map(|(payload, decisions)| decided((payload, decisions))),
        version: versions.map(|(_, new)| new),
        old_version: versions.map(|(old, _)| old).filter(|old| !old.is_empty()),
    };
    lint.findings().iter().map(|found| format!("{} {}: {}", found.place, found.code.name(), found.text)).collect()
}

fn check(new: Files<'_>, expected: &[&str]) {
    assert_eq!(findings(new, None, None), expected);
}

fn check_from(old: Files<'_>, new: Files<'_>, expected: &[&str]) {
    assert_eq!(findings(new, Some(old), None), expected);
}

const CRD: &str = "apiextensions.k8s.io/v1/CustomResourceDefinition";
const BINDING: &str = "rbac.authorization.k8s.io/v1/ClusterRoleBinding";

#[test]
fn delete_value() {
    let include = "include.release.openshift.io/self-managed-high-availability:~'true',";
    check(
        &[(
            "0000_50_a_1.yaml",
            &format!(
                "{include}release.openshift.io/delete:~'yes' ConfigMap ns/a\n{include}release.openshift.io/delete:~true ConfigMap ns/b"
            ),
        )],
        &[
            "0000_50_a_1.yaml:1 delete-value: configmap \"ns/a\": invalid delete annotation \"release.openshift.io/delete\" \
             value: \"yes\"",
            "0000_50_a_1.yaml:3 delete-value: configmap \"ns/b\": invalid delete annotation \"release.openshift.io/delete\" \
             value: \"true\" (not a string: put it in quotes)",
        ],
    );
    // A manifest that does not count here may count elsewhere.
    check(
        &[("0000_50_a_1.yaml", "release.openshift.io/delete:~'' ConfigMap ns/a")],
        &[
            "0000_50_a_1.yaml:1 delete-value: configmap \"ns/a\": invalid delete annotation \"release.openshift.io/delete\" \
           value: \"\"",
        ],
    );
}

#[test]
fn delete_redundant() {
    check(
        &[
            ("0000_50_a_1.yaml", "- Namespace ns"),
            ("0000_50_a_2.yaml", "- ConfigMap ns/a\n- ConfigMap other/a"),
            (
                "0000_50_a_3.yaml",
                &format!("- {CRD} widgets.a.example\n- a.example/v1/Widget w\n- a.example/v1/Other w"),
            ),
        ],
        &[
            "0000_50_a_2.yaml:1 delete-redundant: configmap \"ns/a\" is deleted together with namespace \"ns\"",
            "0000_50_a_3.yaml:3 delete-redundant: widget \"w\" is deleted together with customresourcedefinition \
             \"widgets.a.example\"",
        ],
    );
    check(&[("0000_50_a_1.yaml", "+ Namespace ns\n- ConfigMap ns/a")], &[]);
}

#[test]
fn delete_operand_missing() {
    let operator = "- apps/v1/Deployment ns/operator";
    let crd = format!("+ {CRD} widgets.a.example spec: {{names: {{kind: Widget}}}}");
    check(
        &[("0000_50_a_1.yaml", &crd), ("0000_50_a_2.yaml", &format!("{operator}\n+ a.example/v1/Widget w"))],
        &[
            "0000_50_a_2.yaml:1 delete-operand-missing: deployment \"ns/operator\" is deleted, a has no other workload, and its operands remain: customresourcedefinition \"widgets.a.example\", widget \"w\"",
        ],
    );
    // The operand is deleted too, the operator has only another name now, or the CRD belongs to another component.
    check(&[("0000_50_a_1.yaml", &format!("- {CRD} widgets.a.example")), ("0000_50_a_2.yaml", operator)], &[]);
    check(&[("0000_50_a_1.yaml", &format!("{crd}\n{operator}\n+ apps/v1/Deployment ns/new"))], &[]);
    check(&[("0000_50_b_1.yaml", &crd), ("0000_50_a_2.yaml", operator)], &[]);
    // The operator is deleted with its namespace.
    check_from(
        &[("0000_50_a_1.yaml", &format!("{crd}\n+ Namespace ns\n+ apps/v1/Deployment ns/operator"))],
        &[("0000_50_a_1.yaml", &format!("{crd}\n- Namespace ns"))],
        &[
            "0000_50_a_1.yaml:3 delete-operand-missing: namespace \"ns\" is deleted, a has no other workload, and its operands \
             remain: customresourcedefinition \"widgets.a.example\"",
        ],
    );
}

#[test]
fn delete_rights_first() {
    let binding = format!(
        "{BINDING} b subjects: [{{kind: ServiceAccount, namespace: ns, name: op}}], roleRef: {{kind: ClusterRole, name: r}}"
    );
    let role = "rbac.authorization.k8s.io/v1/ClusterRole r";
    let operator = "apps/v1/Deployment ns/operator spec: {template: {spec: {serviceAccountName: op}}}";
    check(
        &[
            ("0000_50_a_1.yaml", &format!("- {binding}\n- {role}\n- ServiceAccount ns/op")),
            ("0000_50_a_2.yaml", &format!("- {operator}")),
        ],
        &[
            "0000_50_a_1.yaml:1 delete-rights-first: clusterrolebinding \"b\" is deleted before deployment \"ns/operator\", \
             which uses it",
            "0000_50_a_1.yaml:3 delete-rights-first: clusterrole \"r\" is deleted before deployment \"ns/operator\", which \
             uses it",
            "0000_50_a_1.yaml:5 delete-rights-first: serviceaccount \"ns/op\" is deleted before deployment \"ns/operator\", \
             which uses it",
        ],
    );
    check(&[("0000_50_a_1.yaml", &format!("- {operator}")), ("0000_50_a_2.yaml", &format!("- {binding}"))], &[]);
    // Fewer rights for a workload that remains are no mistake; a missing ServiceAccount is.
    check(&[("0000_50_a_1.yaml", &format!("- {binding}\n+ {operator}"))], &[]);
    check(
        &[("0000_50_a_1.yaml", &format!("- ServiceAccount ns/op\n+ {operator}"))],
        &[
            "0000_50_a_1.yaml:1 delete-rights-first: serviceaccount \"ns/op\" is deleted while deployment \"ns/operator\" \
           remains and uses it",
        ],
    );
    // The order of two components of one level is not defined.
    check(&[("0000_50_a_1.yaml", &format!("- {binding}")), ("0000_50_b_2.yaml", &format!("- {operator}"))], &[]);
    // The delete manifest contains nothing but the name.
    check_from(
        &[("0000_50_a_1.yaml", &format!("+ {binding}\n+ {operator}"))],
        &[("0000_50_a_1.yaml", &format!("- {BINDING} b\n- apps/v1/Deployment ns/operator"))],
        &[
            "0000_50_a_1.yaml:1 delete-rights-first: clusterrolebinding \"b\" is deleted before deployment \"ns/operator\", \
           which uses it",
        ],
    );
}

#[test]
fn delete_leftover() {
    let files: Files<'_> = &[("0000_50_a_1.yaml", "- ConfigMap ns/a")];
    let left = vec![
        "0000_50_a_1.yaml:1 delete-leftover: the old payload already deleted configmap \"ns/a\", and a minor update that \
         still does so is blocked"
            .to_owned(),
    ];
    let of = |versions| findings(files, Some(files), versions);
    assert_eq!(of(Some(("", "4.21.0"))), left);
    assert_eq!(of(Some(("4.20.3", "4.21.2"))), left);
    assert_eq!(of(Some(("", "4.20.1"))), [""; 0]);
    assert_eq!(of(Some(("4.20.0", "4.20.1"))), [""; 0]);
    assert_eq!(of(None), [""; 0]);
    assert_eq!(findings(files, Some(&[("0000_50_a_1.yaml", "+ ConfigMap ns/a")]), Some(("", "4.21.0"))), [""; 0]);
}

#[test]
fn dropped_without_delete() {
    let old: Files<'_> =
        &[("0000_50_a_1.yaml", "+ ConfigMap ns/a\n+ ConfigMap ns/b\n- ConfigMap ns/gone\nx:~y ConfigMap ns/out")];
    check_from(
        old,
        &[("0000_50_a_1.yaml", "+ ConfigMap ns/b")],
        &[
            "0000_50_a_1.yaml:1 dropped-without-delete: configmap \"ns/a\" is in the old payload, not in this one, and nothing \
           deletes it: it remains forever",
        ],
    );
    check_from(old, &[("0000_60_b_1.yaml", "- ConfigMap ns/a\n- ConfigMap ns/b")], &[]);
    check_from(old, &[("0000_50_a_1.yaml", "- Namespace ns")], &[]);
    check_from(
        &[("0000_50_a_1.yaml", "+ ConfigMap ns/a")],
        &[("0000_50_a_1.yaml", "x:~y ConfigMap ns/a")],
        &[
            "0000_50_a_1.yaml:1 dropped-without-delete: configmap \"ns/a\" counts in the old payload and is left out of this \
           one (include.release.openshift.io/self-managed-high-availability is not set): it remains forever",
        ],
    );
}

#[test]
fn name_not_ordered() {
    check(
        &[("50_a.yaml", "+ ConfigMap a\n+ ConfigMap b")],
        &["50_a.yaml:1 name-not-ordered: the name 50_a.yaml has no run level and component"],
    );
}

#[test]
fn feature_set_unknown() {
    check(
        &[("0000_50_a_1.yaml", "release.openshift.io/feature-set:~'Default,TechPreview' ConfigMap ns/a")],
        &[
            "0000_50_a_1.yaml:1 feature-set-unknown: the feature set \"TechPreview\" does not exist, so configmap \"ns/a\" \
           never counts",
        ],
    );
    check(&[("0000_50_a_1.yaml", "release.openshift.io/feature-set:~'' ConfigMap ns/a")], &[]);
}

#[test]
fn duplicate() {
    let in_profile =
        |profile: &str, more: &str| format!("include.release.openshift.io/{profile}:~'true'{more} ConfigMap ns/a\n");
    let both = |a: String, b: String| findings(&[("0000_50_a_1.yaml", &(a + &b))], None, None).len();
    assert_eq!(both(in_profile("x", ""), in_profile("x", "")), 1);
    assert_eq!(both(in_profile("x", ""), in_profile("y", "")), 0);
    let set = |names: &str| in_profile("x", &format!(",release.openshift.io/feature-set:~'{names}'"));
    assert_eq!(both(set("Default"), set("OKD")), 0);
    assert_eq!(both(set("Default,OKD"), set("OKD")), 1);
    assert_eq!(both(set(""), set("Default")), 1);
    assert_eq!(both(set("OKD"), in_profile("x", "")), 1);
    let gate = |gates: &str| in_profile("x", &format!(",release.openshift.io/feature-gate:~'{gates}'"));
    assert_eq!(both(gate("A"), gate("-A")), 0);
    assert_eq!(both(gate("A"), gate("B")), 1);
    check(
        &[("0000_50_a_1.yaml", "+ ConfigMap ns/a"), ("0000_60_a_1.yaml", "+ ConfigMap ns/a")],
        &[
            "0000_60_a_1.yaml:1 duplicate: configmap \"ns/a\" is also defined at 0000_50_a_1.yaml:1, and both manifests count \
           at the same time",
        ],
    );
}

#[test]
fn the_service_catalog_of_the_guide() {
    let name = "openshift-service-catalog-apiserver-operator";
    let file = |rest: &str| format!("0000_50_cluster-svcat-apiserver-operator_{rest}.yaml");
    let (namespace, crd, cr, roles, operator) = (
        file("00_namespace"),
        file("02_config.crd"),
        file("03_config.cr"),
        file("04_roles"),
        file("08_cluster-operator"),
    );
    let (account, deployment) = (file("05_serviceaccount"), file("07_deployment"));
    let objects = [
        (&namespace, format!("Namespace {name}")),
        (&crd, format!("{CRD} servicecatalogapiservers.operator.openshift.io")),
        (&cr, "operator.openshift.io/v1/ServiceCatalogAPIServer cluster".to_owned()),
        (
            &roles,
            format!(
                "{BINDING} b subjects: [{{kind: ServiceAccount, namespace: {name}, name: op}}], roleRef: {{kind: ClusterRole, name: cluster-admin}}"
            ),
        ),
        (&operator, "config.openshift.io/v1/ClusterOperator service-catalog-apiserver".to_owned()),
    ];
    let marked = |mark: &str| {
        objects.iter().map(|(file, object)| (file.as_str(), format!("{mark} {object}"))).collect::<Vec<_>>()
    };
    let (kept, deleted) = (marked("+"), marked("-"));
    let in_namespace = [
        (account.as_str(), format!("+ ServiceAccount {name}/op")),
        (
            deployment.as_str(),
            format!("+ apps/v1/Deployment {name}/op spec: {{template: {{spec: {{serviceAccountName: op}}}}}}"),
        ),
    ];
    let old: Vec<_> = kept.iter().chain(&in_namespace).map(|(file, text)| (*file, text.as_str())).collect();
    let new: Vec<_> = deleted.iter().map(|(file, text)| (*file, text.as_str())).collect();
    // The guide keeps the resource whose CRD is deleted; it is the only thing that could be dropped as well.
    let found = findings(&new, Some(&old), Some(("4.5.0", "4.6.0")));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].contains("03_config.cr.yaml:1 delete-redundant: servicecatalogapiserver \"cluster\""),
        "{found:#?}"
    );
}
