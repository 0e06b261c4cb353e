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
            json!({"event": "gone", "node": 0, "object": object("d"), "uid": "3"}),
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
deleted Widget.a.example shop/d
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
hint: check that the controllers of these finalizers are running, then run the same command again to resume
"
    );
}

#[test]
fn notes_come_first_and_omissions_last() {
    let namespace = json!({"group": "", "kind": "Namespace", "name": "shop"});
    let counts = json!([[{"group": "", "kind": "Secret"}, 2]]);
    let foreign = json!({"severity": "dangerous", "code": "foreign-objects", "object": namespace, "counts": counts,
                         "ofRelease": true});
    let unserved = json!({"severity": "warning", "code": "not-served", "detail": "selector", "group": "deletionGroups[0]",
                          "kind": {"name": {"group": "a.example", "name": "Widgt"}, "similar": "Widget"}});
    let info = json!({"severity": "info", "code": "inventory-last", "object": namespace});
    let mut first = started("delete");
    first["notes"] = json!([foreign, unserved, info]);
    let within = json!({"object": object("a"), "code": "no-group", "deletedWith": namespace});
    let events = [
        first,
        json!({"event": "node-started", "node": 0, "title": "widgets", "objects": 3}),
        finished(
            "done",
            json!({"gone": 3, "uncovered": [within, {"object": object("b"), "code": "keep"}], "leftOut": [unserved]}),
        ),
    ];
    let (out, err) = play(ReportOptions { notes: true, ..lines() }, &events);
    assert_eq!(
        out,
        "\
release shop/web retained: 3 objects gone in 3.2s (7 requests)
1 object deleted with its Namespace or CRD:
  Widget.a.example shop/a  no group covers it, but it is deleted with Namespace shop
1 object remains:
  Widget.a.example shop/b  its policy is keep
left out:
  deletionGroups[0]: the cluster does not serve Widgt.a.example; did you mean Widget?
"
    );
    assert_eq!(
        err,
        "\
dangerous  deleting Namespace shop also deletes 2 objects that the release did not create: 2 Secret (--yes)
warning    deletionGroups[0]: the cluster does not serve Widgt.a.example; did you mean Widget?
group 1/2 widgets: 3 objects
"
    );
    let (_, err) = play(lines(), &events);
    assert_eq!(err, "group 1/2 widgets: 3 objects\n");
}

#[test]
fn what_is_deleted_with_a_namespace_that_remains_is_not_reported_as_deleted() {
    let namespace = json!({"group": "", "kind": "Namespace", "name": "shop"});
    let within = json!({"object": object("a"), "code": "no-group", "deletedWith": namespace});
    let left = json!([{"object": namespace, "group": "widgets", "blockers": [{"type": "unconfirmed"}]}]);
    let end = finished("timed-out", json!({"uncovered": [within], "left": left}));
    let (out, _) = play(lines(), &[started("delete"), end]);
    assert!(out.starts_with("1 object to be deleted with its Namespace or CRD:\n"), "{out}");
}

#[test]
fn long_lists_are_grouped_by_cause_and_shortened() {
    let left = |number: usize, blockers: Value| json!({"object": object(&format!("w{number:02}")), "group": "widgets", "blockers": blockers});
    let held = |of: &str| json!([{"type": "finalizer", "finalizer": format!("a.example/{of}")}]);
    let same: Vec<_> = (0..23).map(|i| left(i, held(if i == 7 { "other" } else { "x" }))).collect();
    let (_, err) = play(lines(), &[started("delete"), finished("timed-out", json!({"left": same}))]);
    let rows = "  Widget.a.example  shop/w00 and 21 more  finalizer a.example/x\n  Widget.a.example  shop/w07              finalizer a.example/other\nhint";
    assert!(err.contains(rows), "{err}");
    let left: Vec<_> = (0..23).map(|i| left(i, held(&i.to_string()))).collect();
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

#[tokio::test(start_paused = true)]
async fn what_keeps_an_object_is_printed_when_it_changes_and_every_30_seconds() {
    let (out, err) = (Shared::default(), Shared::default());
    let printer = Printer::new((Box::new(out), Paint(false)), (Box::new(err.clone()), Paint(false)));
    let reporter = Reporter::new(printer, lines());
    let sink = reporter.sink();
    let send = |event: Value| sink(serde_json::from_value(event).unwrap());
    let wait = async |seconds: u64| {
        for _ in 0..seconds * 10 {
            tokio::time::advance(std::time::Duration::from_millis(100)).await;
            reporter.tick();
        }
    };
    send(started("delete"));
    send(json!({"event": "node-started", "node": 0, "title": "widgets", "objects": 3}));
    send(json!({"event": "deleting", "node": 0, "object": object("a"), "finalizers": ["f", "g"]}));
    wait(5).await;
    send(
        json!({"event": "blocked", "node": 0, "object": object("a"), "blockers": [{"type": "finalizer", "finalizer": "g"}]}),
    );
    wait(33).await;
    send(json!({"event": "blocked", "node": 0, "object": object("a"), "blockers": [
        {"type": "condition", "condition": "Terminating", "message": "m"}]}));
    wait(5).await;
    send(json!({"event": "blocked", "node": 0, "object": object("a"), "blockers": []}));
    wait(31).await;
    assert_eq!(
        err.text(),
        "\
group 1/2 widgets: 3 objects
deleting Widget.a.example shop/a (waiting for finalizers f, g)
waiting for Widget.a.example shop/a: finalizer g
group 1/2 widgets: 0 of 3 gone; waiting for Widget.a.example shop/a: finalizer g
waiting for Widget.a.example shop/a: Terminating: m
group 1/2 widgets: 0 of 3 gone
"
    );
}

#[test]
fn a_conflict_suggests_how_to_take_over() {
    const TAKE_OVER: &str = "hint: use --force-conflicts to take over the fields from their managers\n";
    for (by, message, suggested) in [
        (json!("managers"), "Apply failed with 1 conflict: conflict with \"helm\": .data.a", true),
        (json!("managers"), "Apply failed with 2 conflicts: conflicts with \"helm\":\n- .data.a\n- .data.b", true),
        (json!("webhook"), "admission webhook \"w\" denied the request: conflict with \"helm\"", false),
        (json!("server"), "it broke", false),
    ] {
        let refused = json!([{"type": "refused", "message": message, "by": by}]);
        let left = json!([{"object": object("a"), "group": "widgets", "blockers": refused}]);
        let (_, err) = play(lines(), &[started("apply"), finished("failed", json!({"left": left}))]);
        assert!(err.contains("1 object of release shop/web is unfinished"), "{err}");
        assert_eq!(err.ends_with(TAKE_OVER), suggested, "{err}");
    }
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

#[test]
fn what_is_retained_is_shown_with_the_commands_that_delete_or_keep_it() {
    let uncovered = json!([{"object": object("z"), "code": "no-group"}]);
    let (_, err) =
        play(lines(), &[started("delete"), finished("done", json!({"retained": true, "uncovered": uncovered}))]);
    assert_eq!(
        err,
        "\
hint: delete what remains with billhook delete web -n shop --policy FILE or --policy default
hint: or keep it and drop the record with billhook forget web -n shop
"
    );
}

#[test]
fn a_group_that_ends_says_how_many_of_its_objects_have_reached_its_goal() {
    let ready = json!({"event": "ready", "node": 0, "object": object("a")});
    let ended = |status: &str| json!({"event": "node-finished", "node": 0, "title": "ready", "status": status, "objects": 0, "elapsedMs": 5000});
    let (_, err) = play(lines(), &[started("apply"), ready.clone(), ended("timed-out")]);
    assert_eq!(err, "group 1/2 ready: timed out, 1 of 3 ready after 5.0s\n");
    let (_, err) = play(lines(), &[started("apply"), ready, ended("done")]);
    assert_eq!(err, "group 1/2 ready: done, 1 object after 5.0s\n");
}

#[test]
fn a_namespace_that_is_created_for_the_release_is_printed() {
    let namespace = json!({"group": "", "kind": "Namespace", "name": "shop"});
    let created = json!({"event": "namespace-created", "object": namespace});
    let (out, _) = play(lines(), &[started("apply"), created]);
    assert_eq!(out, "created Namespace shop\n");
}

#[test]
fn of_many_groups_with_one_object_only_failures_have_lines() {
    let nodes: Vec<_> = (0..150).map(|n| json!([format!("n{n}"), 1])).collect();
    let mut events =
        vec![json!({"event": "started", "format": 1, "operation": "apply", "release": "shop/web", "nodes": nodes,
               "goals": vec!["done"; 150]})];
    for n in 0..4 {
        events.push(json!({"event": "node-started", "node": n, "title": format!("n{n}"), "objects": 1}));
    }
    let finished_node = |n: usize, status: &str, objects: usize| json!({"event": "node-finished", "node": n, "title": format!("n{n}"), "status": status, "objects": objects, "elapsedMs": 950});
    events.extend([
        json!({"event": "applied", "node": 0, "object": object("a"), "result": "created"}),
        finished_node(0, "done", 1),
        json!({"event": "deleting", "node": 1, "object": object("b"), "finalizers": []}),
        finished_node(1, "done", 1),
        json!({"event": "refused", "node": 2, "object": object("c"), "message": "no", "retried": true}),
        json!({"event": "refused", "node": 2, "object": object("c"), "message": "no", "retried": false}),
        finished_node(2, "failed", 0),
    ]);
    let not_started = |n: usize| json!({"object": object(&format!("w{n}")), "group": format!("n{n}"), "blockers": [{"type": "not-started"}]});
    let left: Vec<_> = (4..150).map(not_started).collect();
    events.push(finished("failed", json!({"applied": 1, "requested": [object("b")], "left": left})));
    let (out, err) = play(lines(), &events);
    assert_eq!(out, "created Widget.a.example shop/a\n");
    let err: Vec<_> = err.lines().collect();
    assert_eq!(
        err[..5],
        [
            "deleting Widget.a.example shop/b",
            "failed Widget.a.example shop/c: no (retrying)",
            "failed Widget.a.example shop/c: no",
            "group 3/150 n2: failed, 0 of 1 done after 950ms",
            "error: failed: 146 objects of release shop/web are unfinished; 1 created, 1 to be deleted in 3.2s (7 requests)",
        ]
    );
    assert!(err.len() < 60 && err[err.len() - 2].contains("more"), "{err:#?}");
}
