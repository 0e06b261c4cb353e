//! A scripted run as lines, as JSON, and its summary.

use billhook::{Paint, Printer, ReportOptions, Reporter};
use billhook_engine::Event;
use serde_json::{Value, json};

use crate::call::Shared;

fn play(options: ReportOptions, events: &[Value]) -> (String, String) {
    let (out, err) = (Shared::default(), Shared::default());
    let printer = Printer::new((Box::new(out.clone()), Paint(false)), (Box::new(err.clone()), Paint(false)));
    let sink = Reporter::new(printer, options).sink();
    for event in events {
        sink(serde_json::from_value::<Event>(event.clone()).unwrap());
    }
    (out.text(), err.text())
}

fn lines() -> ReportOptions {
    ReportOptions { lines: true, ..ReportOptions::default() }
}

fn object(name: &str) -> Value {
    json!({"group": "a.example", "kind": "Widget", "namespace": "shop", "name": name})
}

fn started(operation: &str) -> Value {
    json!({"event": "started", "format": 1, "operation": operation, "release": "shop/web",
           "nodes": [["widgets", 3], ["crds", 1]]})
}

fn finished(status: &str, fields: Value) -> Value {
    let mut event = json!({
        "event": "finished", "status": status, "gone": 0, "applied": 0, "unchanged": 0, "left": [], "uncovered": [],
        "finalizersRemoved": [], "recreated": [], "requests": {"delete": 3, "list": 4}, "elapsedMs": 3210,
    });
    for (key, value) in fields.as_object().unwrap() {
        event[key] = value.clone();
    }
    event
}

#[test]
fn only_gone_objects_are_reported_as_deleted() {
    let (out, err) = play(
        lines(),
        &[
            started("delete"),
            json!({"event": "node-started", "node": 0, "title": "widgets", "objects": 3}),
            json!({"event": "gone", "node": 0, "object": object("a"), "uid": "1"}),
            json!({"event": "deleting", "node": 0, "object": object("b"), "finalizers": ["a.example/x"]}),
            json!({"event": "refused", "node": 0, "object": object("c"), "message": "no", "retried": true}),
            json!({"event": "appeared", "node": 0, "object": object("d")}),
            json!({"event": "recreated", "node": 0, "object": object("c")}),
            json!({"event": "server-away", "reason": "connection refused"}),
            json!({"event": "server-back"}),
            json!({"event": "finalizers-removed", "node": 0, "object": object("b"), "finalizers": ["a.example/x"]}),
            json!({"event": "gone", "node": 0, "object": object("b"), "uid": "2"}),
            json!({"event": "node-finished", "node": 0, "title": "widgets", "status": "done", "objects": 3,
                   "elapsedMs": 950}),
            finished(
                "done",
                json!({
                    "gone": 3,
                    "recreated": [object("c")],
                    "finalizersRemoved": [{"object": object("b"), "finalizers": ["a.example/x"]}],
                    "uncovered": [{"object": object("z"), "code": "no-group"}],
                }),
            ),
        ],
    );
    assert_eq!(
        out,
        "\
deleted Widget.a.example shop/a
force-removed finalizer a.example/x from Widget.a.example shop/b
deleted Widget.a.example shop/b
release shop/web retained: 3 objects gone in 3.2s (7 requests)
finalizers removed by force from 1 object:
  Widget.a.example shop/b  a.example/x
1 object remains, recreated by another client:
  Widget.a.example shop/c
1 object remains:
  Widget.a.example shop/z  no group covers it
"
    );
    assert_eq!(
        err,
        "\
group 1/2 widgets: 3 objects
deleting Widget.a.example shop/b (waiting for finalizer a.example/x)
failed Widget.a.example shop/c: no (retrying)
appeared Widget.a.example shop/d: it will be deleted too
kept Widget.a.example shop/c: another client recreated it, and it no longer belongs to the release
API server unavailable: connection refused; waiting for it to recover
API server available again
group 1/2 widgets: done, 3 objects after 950ms
"
    );
}

#[test]
fn remaining_objects_are_listed_with_their_blockers() {
    let left = |name: &str, group: &str, blockers: Value| json!({"object": object(name), "group": group, "blockers": blockers});
    let (out, err) = play(
        lines(),
        &[
            started("delete"),
            finished(
                "timed-out",
                json!({"gone": 1, "left": [
                    left("a", "widgets", json!([{"type": "finalizer", "finalizer": "a.example/x", "manager": "operator"},
                                                {"type": "condition", "condition": "Terminating", "message": "not yet"}])),
                    left("longer", "widgets", json!([{"type": "unconfirmed"}])),
                    left("c", "crds", json!([{"type": "not-started"}])),
                ]}),
            ),
        ],
    );
    assert_eq!(out, "");
    assert_eq!(
        err,
        "\
error: timed out: 3 objects of release shop/web remain; 1 object gone in 3.2s (7 requests)
  Widget.a.example  shop/a       finalizer a.example/x (set by operator)
                                 Terminating: not yet
  Widget.a.example  shop/longer  deletion requested, not yet confirmed by the API server
  group crds was not started: 1 object
hint: run the same command again to resume
"
    );
}

#[test]
fn long_lists_are_shortened() {
    let left: Vec<_> = (0..23)
        .map(|i| json!({"object": object(&format!("w{i:02}")), "group": "widgets", "blockers": [{"type": "unconfirmed"}]}))
        .collect();
    let (_, err) = play(lines(), &[started("delete"), finished("interrupted", json!({"left": left}))]);
    assert!(err.starts_with("error: interrupted: 23 objects of release shop/web remain"), "{err}");
    assert!(err.contains("shop/w19") && !err.contains("shop/w20") && err.contains("  and 3 more\n"), "{err}");
}

#[test]
fn an_apply_reports_changes_and_counts_unchanged_objects() {
    let applied =
        |name: &str, result: &str| json!({"event": "applied", "node": 0, "object": object(name), "result": result});
    let events = [
        started("apply"),
        applied("a", "created"),
        applied("b", "configured"),
        applied("c", "unchanged"),
        applied("d", "adopted"),
        json!({"event": "waiting", "node": 0, "object": object("a"), "reason": "0 of 1"}),
        json!({"event": "ready", "node": 0, "object": object("a")}),
        finished("done", json!({"applied": 3, "unchanged": 1, "gone": 2})),
    ];
    let end =
        "release shop/web applied: 1 created, 1 configured, 1 adopted, 1 unchanged, 2 pruned in 3.2s (7 requests)\n";
    let (out, err) = play(lines(), &events);
    let head = "created Widget.a.example shop/a\nconfigured Widget.a.example shop/b\n";
    let tail = "adopted Widget.a.example shop/d\nready Widget.a.example shop/a\n";
    assert_eq!(out, format!("{head}{tail}{end}"));
    // The object was ready at once: no line mentions that it was not.
    assert_eq!(err, "");
    let (out, _) = play(ReportOptions { verbose: true, ..lines() }, &events);
    assert_eq!(out, format!("{head}unchanged Widget.a.example shop/c\n{tail}{end}"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_lasts_is_reported_once() {
    let (out, err) = (Shared::default(), Shared::default());
    let printer = Printer::new((Box::new(out), Paint(false)), (Box::new(err.clone()), Paint(false)));
    let reporter = Reporter::new(printer, lines());
    let waiting = json!({"event": "waiting", "node": 0, "object": object("a"), "reason": "0 of 1"});
    for event in [started("apply"), waiting] {
        (reporter.sink())(serde_json::from_value(event).unwrap());
    }
    for _ in 0..100 {
        tokio::time::advance(std::time::Duration::from_millis(100)).await;
        reporter.tick();
    }
    assert_eq!(err.text(), "waiting for Widget.a.example shop/a: 0 of 1\n");
}

#[test]
fn a_conflict_suggests_how_to_take_over() {
    let refused =
        json!([{"type": "refused", "message": "Apply failed with 1 conflict: conflict with \"helm\": .data.a"}]);
    let left = json!([{"object": object("a"), "group": "widgets", "blockers": refused}]);
    let (_, err) = play(lines(), &[started("apply"), finished("failed", json!({"left": left}))]);
    assert!(err.contains("1 object of release shop/web is unfinished"), "{err}");
    assert!(err.ends_with("hint: use --force-conflicts to take over the fields from their managers\n"), "{err}");
}

#[test]
fn json_lines_are_the_events() {
    let events = [
        started("delete"),
        json!({"event": "gone", "node": 0, "object": object("a"), "uid": "1"}),
        finished("done", json!({"gone": 1})),
    ];
    let (out, err) = play(ReportOptions { json: true, ..lines() }, &events);
    let read: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, events);
    assert_eq!(err, "");
}
