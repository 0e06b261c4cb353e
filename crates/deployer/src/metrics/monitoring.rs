//! Tests of the alerts and the dashboard in `deploy` against the metrics that the controller serves.

use std::{collections::BTreeSet, convert::Infallible, path::Path, process::Command, time::Duration};

use billhook_cluster::{Cluster, Options};
use billhook_engine::Status;
use billhook_hosts::Dialer;
use billhook_objects::yaml;
use billhook_plan::Operation;
use billhook_sandbox::{Sandbox, User};
use promql_parser::{
    parser::{self, Expr},
    util::{ExprVisitor, walk_expr},
};
use serde_json::{Value, json};

use super::{ItemGauges, Metrics};
use crate::{api::Phase, helms::Helms};

/// Returns the names of all series that the controller serves.
async fn served() -> BTreeSet<String> {
    let metrics = Metrics::new();
    metrics.reconciled(Operation::Apply, Status::Done);
    metrics.took(Operation::Apply, "run", Duration::from_secs(1));
    metrics.retried(Operation::Apply, "Busy");
    metrics.phase_changed(None, Some(Phase::Failed));
    let key = ("n".to_owned(), "a".to_owned());
    let item = ItemGauges { kind: "helm", target: "t".to_owned(), failing: true, waiting: None, queued: false };
    metrics.set_item(&key, Some(item));
    metrics.add_target(&key);
    metrics.opened_target(&key, None);
    metrics.follow_helms(&Helms::new(billhook_charts::Helm::new("helm"), Dialer::default()));
    let sandbox = Sandbox::start(billhook_sandbox::Options::default());
    let cluster = Cluster::from_client(sandbox.client(User::admin(), ""), Options::default());
    let _counted = metrics.count_requests(cluster.clone());
    cluster.version().await.unwrap();
    let text = metrics.encode().unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect()
}

/// The names of the metrics in an expression.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl ExprVisitor for Names {
    type Error = Infallible;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Infallible> {
        match expr {
            Expr::VectorSelector(selector) => self.0.extend(selector.name.clone()),
            Expr::MatrixSelector(selector) => self.0.extend(selector.vs.name.clone()),
            _ => {}
        }
        Ok(true)
    }
}

/// Returns the metrics that an expression reads.
fn read(expression: &str) -> BTreeSet<String> {
    let plain = expression.replace("$__rate_interval", "5m");
    let parsed = parser::parse(&plain).unwrap_or_else(|problem| panic!("{expression}: {problem}"));
    let mut names = Names::default();
    let Ok(_all) = walk_expr(&mut names, &parsed);
    names.0
}

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

fn rule_groups() -> Value {
    let text = file("deploy/kustomize/components/prometheus-rule/prometheusrule.yaml");
    yaml::parse(&text).unwrap()[0].value["spec"].clone()
}

fn alerts() -> Vec<Value> {
    rule_groups()["groups"][0]["rules"].as_array().unwrap().clone()
}

fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(&file("deploy/kustomize/components/dashboard/billhook.json")).unwrap();
    dashboard["panels"].as_array().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn alerts_and_panels_read_metrics_that_the_controller_serves() {
    let served = served().await;
    let (alerts, panels) = (alerts(), panels());
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions: Vec<_> = alerts.iter().chain(targets).map(|rule| rule["expr"].as_str().unwrap()).collect();
    assert!(expressions.len() > 20, "{expressions:?}");
    for expression in expressions {
        let read = read(expression);
        assert!(!read.is_empty() && read.is_subset(&served), "{expression}: {:?}", read.difference(&served));
    }
    let documented = file("docs/deployitems.md");
    for name in &served {
        let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(documented.contains(&format!("| `{name}` |")), "{name}");
    }
}

#[test]
fn alerts_are_complete_and_panels_do_not_overlap() {
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        assert!(name.starts_with("Billhook"), "{name}");
        for text in ["/labels/severity", "/annotations/summary", "/annotations/description"] {
            assert!(
                alert.pointer(text).is_some_and(|text| text.as_str().is_some_and(|text| !text.is_empty())),
                "{name}"
            );
        }
    }
    let panels = panels();
    let of = |field: &str| panels.iter().map(|panel| panel[field].to_string()).collect::<BTreeSet<_>>().len();
    assert_eq!([of("id"), of("title"), of("gridPos")], [panels.len(); 3]);
}

/// Returns tests with the series of an outage, in which one of two shards has no leader although another process leads something else.
fn rule_tests() -> Value {
    let series = |name: &str, values: &str| json!({ "series": name, "values": values });
    let of_target = "{target_namespace=\"shop\",target=\"prod\"}";
    let of_type = "{target_namespace=\"shop\",target=\"prod\",type=\"helm\"}";
    let bad = [
        // One of two shards has no leader.
        series("billhook_leader{pod=\"a\"}", "0x120"),
        series("billhook_leader{pod=\"b\"}", "1x120"),
        series("billhook_leader{pod=\"payload\"}", "1x120"),
        series("billhook_shards{pod=\"a\"}", "2x120"),
        series("billhook_shards{pod=\"b\"}", "2x120"),
        series(&format!("billhook_items_failing{of_type}"), "2x120"),
        series(&format!("billhook_items_oldest_waiting_seconds{of_type}"), "3600+60x120"),
        series(&format!("billhook_target_up{of_target}"), "0x120"),
        series("billhook_queue_depth", "300x120"),
        series("billhook_helm_slots_waiting{work=\"release\"}", "3x120"),
        series("billhook_api_requests_total{verb=\"get\",code=\"200\"}", "0+60x120"),
        series("billhook_api_requests_total{verb=\"get\",code=\"<error>\"}", "0+60x120"),
        series("billhook_events_dropped_total", "0+5x120"),
    ];
    let good = [
        series("billhook_leader{pod=\"a\"}", "0x120"),
        series("billhook_leader{pod=\"b\"}", "1x120"),
        series("billhook_leader{pod=\"c\"}", "1x120"),
        series("billhook_shards{pod=\"a\"}", "2x120"),
        series("billhook_shards{pod=\"b\"}", "2x120"),
        series("billhook_shards{pod=\"c\"}", "2x120"),
        series(&format!("billhook_items_failing{of_type}"), "0x120"),
        series(&format!("billhook_items_oldest_waiting_seconds{of_type}"), "0+30x60 0x60"),
        series(&format!("billhook_target_up{of_target}"), "1x120"),
        series("billhook_queue_depth", "300 0x120"),
        series("billhook_helm_slots_waiting{work=\"release\"}", "3 0x20 3 0x100"),
        series("billhook_api_requests_total{verb=\"get\",code=\"200\"}", "0+60x120"),
        series("billhook_api_requests_total{verb=\"watch\",code=\"<error>\"}", "0+60x120"),
        series("billhook_events_dropped_total", "5x120"),
    ];
    let count = |fires: bool| {
        let tests = alerts().into_iter().map(|alert| {
            let name = alert["alert"].as_str().unwrap().to_owned();
            let severity = alert["labels"]["severity"].as_str().unwrap();
            let all = format!("count(ALERTS{{alertname=\"{name}\",alertstate=\"firing\",severity=\"{severity}\"}})");
            let samples = if fires { one() } else { json!([]) };
            json!({ "expr": all, "eval_time": "100m", "exp_samples": samples })
        });
        tests.collect::<Vec<_>>()
    };
    json!({
        "rule_files": ["rules.json"],
        "evaluation_interval": "1m",
        "tests": [
            { "interval": "1m", "input_series": bad.clone(), "promql_expr_test": count(true) },
            { "interval": "1m", "input_series": bad, "promql_expr_test": from_minute() },
            { "interval": "1m", "input_series": good, "promql_expr_test": count(false) },
        ],
    })
}

/// Returns checks that each alert fires from this minute of the outage on, and not a minute earlier.
fn from_minute() -> Vec<Value> {
    let firsts = [
        ("BillhookNoLeader", 5),
        ("BillhookItemsFailing", 15),
        // The oldest item waits for more than an hour from the first minute on.
        ("BillhookItemNotFinished", 1 + 5),
        ("BillhookTargetDown", 15),
        ("BillhookQueueLong", 15),
        ("BillhookHelmSlotsExhausted", 15),
        // A rate has two samples from the first minute on.
        ("BillhookRequestsFailing", 1 + 15),
        ("BillhookEventsDropped", 1),
    ];
    let names: BTreeSet<_> = alerts().iter().map(|alert| alert["alert"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, firsts.iter().map(|(name, _)| (*name).to_owned()).collect());
    let checks = firsts.iter().flat_map(|(name, first)| [(name, first - 1, json!([])), (name, *first, one())]);
    let checks = checks.map(|(name, minute, samples)| {
        let firing = format!("count(ALERTS{{alertname=\"{name}\",alertstate=\"firing\"}})");
        json!({ "expr": firing, "eval_time": format!("{minute}m"), "exp_samples": samples })
    });
    checks.collect()
}

/// Returns the one sample of a count of one.
fn one() -> Value {
    json!([{ "labels": "{}", "value": 1 }])
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test reports that it is skipped")]
fn alerts_fire_in_an_outage_only() {
    let Some(promtool) = std::env::var_os("BILLHOOK_PROMTOOL") else {
        return eprintln!("skipped: set BILLHOOK_PROMTOOL to the path of promtool, as cargo xtask test does");
    };
    let folder = tempfile::tempdir().unwrap();
    // JSON is YAML.
    std::fs::write(folder.path().join("rules.json"), rule_groups().to_string()).unwrap();
    std::fs::write(folder.path().join("tests.json"), rule_tests().to_string()).unwrap();
    for args in [["check", "rules", "--lint=all", "rules.json"].as_slice(), &["test", "rules", "tests.json"]] {
        let mut command = Command::new(&promtool);
        let output = command.args(args).current_dir(folder.path()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&text));
    }
}
