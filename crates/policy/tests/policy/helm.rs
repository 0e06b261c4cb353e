//! Tests of the fields of the helm deployer.

use billhook_policy::{HelmDeployment, ProviderConfiguration};
use serde_json::json;

use super::{
    check::assert_lines,
    configuration::{export, helm},
};

const RELEASE: &str = "name: web\nnamespace: shop\n";

/// Compares the chart of an otherwise complete configuration, or its mistakes.
#[track_caller]
fn check(yaml: &str, expected: &str) {
    let found = helm(&format!("{RELEASE}{yaml}"));
    assert_lines(&found.map_or_else(|mistakes| mistakes, compact), expected, yaml);
}

fn compact(configuration: ProviderConfiguration) -> String {
    let Some(helm) = configuration.helm else { return "no chart".to_owned() };
    let mut lines = vec![format!("{:?}", helm.chart)];
    if helm.values != json!({}) {
        lines.push(helm.values.to_string());
    }
    lines.extend(helm.create_namespace.then(|| "creates the namespace".to_owned()));
    lines.extend((!helm.helm_deployment).then(|| "rendered".to_owned()));
    let HelmDeployment { install, upgrade, uninstall } = helm.deployment;
    let default = HelmDeployment::default();
    for (name, options, default) in [
        ("install", install, default.install),
        ("upgrade", upgrade, default.upgrade),
        ("uninstall", uninstall, default.uninstall),
    ] {
        if options != default {
            lines.push(format!("{name} {options:?}"));
        }
    }
    lines.extend(configuration.exports.iter().chain(&helm.exports_from_manifests).map(export));
    lines.join("\n")
}

#[test]
fn a_chart_has_one_source() {
    check("chart: {ref: 'example.org/nginx:v1'}", r#"Oci("example.org/nginx:v1")"#);
    check(
        "chart: {ref: 'oci://example.org/nginx:v1', resourceRef: '', archive: null}",
        r#"Oci("oci://example.org/nginx:v1")"#,
    );
    check("chart: {archive: {raw: 'H4sIAA=='}}", "Archive([31, 139, 8, 0])");
    check("chart:\n  archive:\n    raw: |\n      H4sI\n      AA==\n", "Archive([31, 139, 8, 0])");
    check(
        "chart: {archive: {raw: '', remote: {url: 'https://a.example/c.tgz'}}}",
        r#"RemoteArchive("https://a.example/c.tgz")"#,
    );
    check(
        "chart: {helmChartRepo: {helmChartRepoUrl: 'https://a.example', helmChartName: c, helmChartVersion: 1.2.3}}",
        r#"Repository { url: "https://a.example", name: "c", version: Some("1.2.3") }"#,
    );
    check(
        "chart: {helmChartRepo: {helmChartRepoUrl: 'https://a.example', helmChartName: c}}",
        r#"Repository { url: "https://a.example", name: "c", version: None }"#,
    );
}

#[test]
fn mistakes_in_a_chart() {
    let needs =
        "only Landscaper supports this source: it needs a component descriptor (use ref, archive or helmChartRepo)";
    let one = "(set exactly one of ref, archive or helmChartRepo)";
    let package = "(encode the output of `helm package` with `base64`)";
    for (chart, expected) in [
        ("{}", format!("p:5:8: chart: the chart has no source {one}")),
        ("{ref: a, archive: {raw: H4sIAA==}}", format!("p:5:8: chart: the chart has several sources {one}")),
        ("{fromResource: {resourceName: a}}", format!("p:5:23: chart.fromResource: {needs}")),
        ("{ref: a, resourceRef: b}", format!("p:5:30: chart.resourceRef: {needs}")),
        ("{archive: {}}", "p:5:18: chart.archive: an archive needs exactly one of raw or remote".to_owned()),
        ("{archive: {raw: '***'}}", format!("p:5:24: chart.archive.raw: the archive is not base64 {package}")),
        (
            "{archive: {raw: YWJj}}",
            format!("p:5:24: chart.archive.raw: the archive is not compressed with gzip {package}"),
        ),
        ("{archive: {remote: {}}}", "p:5:27: chart.archive.remote: missing field \"url\"".to_owned()),
        ("{archive: {rav: a}}", "p:5:19: chart.archive: unknown field \"rav\"; did you mean \"raw\"?".to_owned()),
        ("{reff: a}", "p:5:9: chart: unknown field \"reff\"; did you mean \"ref\"?".to_owned()),
        (
            "{helmChartRepo: {helmChartName: a}}",
            "p:5:24: chart.helmChartRepo: missing field \"helmChartRepoUrl\"".to_owned(),
        ),
    ] {
        check(&format!("chart: {chart}"), &expected);
    }
}

#[test]
fn values_namespace_and_options() {
    check(
        r"chart: {ref: a}
createNamespace: true
helmDeployment: false
values: {a: {b: [1, null]}}
helmDeploymentConfig:
  install: {atomic: true, force: true, wait: false, timeout: 7m}
  upgrade: {skipSchemaValidation: true, takeOwnership: true, timeout: none}
  uninstall: {wait: true}
",
        r#"
        Oci("a")
        {"a":{"b":[1,null]}}
        creates the namespace
        rendered
        install HelmOptions { atomic: true, force: true, skip_schema_validation: false, take_ownership: false, wait: false, timeout: Some(GoDuration(420s)) }
        upgrade HelmOptions { atomic: false, force: false, skip_schema_validation: true, take_ownership: true, wait: false, timeout: None }"#,
    );
    check(
        r"chart: {ref: a}
values: [a]
createNamespace: please
helmDeploymentConfig:
  install: {atomik: true, wait: 5m}
  uninstall: {atomic: true, timeout: long}
  delete: {}
",
        r#"
        p:6:9: values: expected a mapping, found a list
        p:7:18: createNamespace: expected true or false, found a string
        p:9:13: helmDeploymentConfig.install: unknown field "atomik"; did you mean "atomic"?
        p:9:33: helmDeploymentConfig.install.wait: expected true or false, found a string
        p:10:15: helmDeploymentConfig.uninstall: field "atomic" is not allowed here (helm uninstall has no such option)
        p:10:38: helmDeploymentConfig.uninstall.timeout: expected a duration such as 90s, 5m or 1h30m, found "long"
        p:11:3: helmDeploymentConfig: unknown field "delete" (known fields: install, upgrade, uninstall)"#,
    );
}

#[test]
fn exports_are_in_two_fields_and_may_come_from_the_values() {
    check(
        r"chart: {ref: a}
exports: {exports: [{key: a, jsonPath: .Values.keyA}]}
exportsFromManifests: [{key: b, jsonPath: .x, fromResource: {apiVersion: v1, kind: Secret, name: s, namespace: ns}}]
",
        "
        Oci(\"a\")
        export a=.Values.keyA
        export b=.x of v1 Secret ns/s",
    );
    check(
        "chart: {ref: a}\nexports: {exports: [{key: a, jsonPath: b}]}\nexportsFromManifests: [{key: a, jsonPath: b}]",
        "p:7:30: exportsFromManifests[0].key: the key \"a\" is already used by exports.exports[0] (give each export its own key)",
    );
}

#[test]
fn a_release_name_must_be_valid_for_helm() {
    let name = |name: &str| helm(&format!("chart: {{ref: a}}\nnamespace: shop\nname: {name}")).map(|_| ());
    assert_eq!(name("web-1.blue"), Ok(()));
    for wrong in ["Web", "-web", "web_1", "a..b", &"a".repeat(54)] {
        let mistake = name(wrong).unwrap_err();
        assert!(
            mistake.starts_with(&format!("p:5:7: name: {wrong:?} is not a valid helm release name (use")),
            "{mistake}"
        );
    }
    let namespace =
        |namespace: &str| helm(&format!("chart: {{ref: a}}\nname: web\nnamespace: {namespace}")).map(|_| ());
    assert_eq!(namespace(&"a".repeat(63)), Ok(()));
    for wrong in ["a.b", "Shop", &"a".repeat(64)] {
        let mistake = namespace(wrong).unwrap_err();
        assert!(
            mistake.starts_with(&format!("p:5:12: namespace: {wrong:?} is not a valid namespace name (use")),
            "{mistake}"
        );
    }
    assert_lines(
        &helm("manifests: []").unwrap_err(),
        r#"
        p:1:1: missing field "chart"
        p:1:1: missing field "name"
        p:1:1: missing field "namespace"
        p:3:1: field "manifests" is not allowed here (only the manifest deployer supports it)"#,
        "manifests: []",
    );
}
