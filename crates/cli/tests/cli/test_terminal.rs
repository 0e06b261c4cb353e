//! Text from the cluster, whatever it contains, does not reach the terminal unescaped.

use billhook::{Paint, Printer, ReportOptions, Reporter, render_plan};
use billhook_engine::Event;
use billhook_plan::Plan;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::call::Shared;

/// Text as a hostile webhook, controller or user could write it: any characters, among them line breaks, escape sequences
/// and characters that change the order in which text is shown.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        Just("\ndeleted ConfigMap shop/forged".to_owned()),
        Just("\r\x1b[2K".to_owned()),
        Just("\x1b]0;title\x07".to_owned()),
        Just("\x1b[32mdeleted\x1b[0m".to_owned()),
        Just("\u{85}\u{9b}2J\u{7f}\u{2028}\u{2029}\u{202e}\u{2066}".to_owned()),
        Just("\u{fdd3}".to_owned()),
    ];
    prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat())
}

/// Returns all that a run prints with these events, in which `text` is everything that a cluster can name or say.
fn events(operation: &str, status: &str, text: &str) -> Vec<Value> {
    let object = json!({"group": "a.example", "kind": "Widget", "namespace": "shop", "name": text});
    let blockers = json!([
        {"type": "finalizer", "finalizer": text, "manager": text},
        {"type": "condition", "condition": text, "message": text},
        {"type": "refused", "message": text},
    ]);
    vec![
        json!({"event": "started", "format": 1, "operation": operation, "release": "shop/web", "nodes": [[text, 3]],
               "notes": [{"severity": "dangerous", "code": "other-release", "object": object, "release": text}]}),
        json!({"event": "node-started", "node": 0, "title": text, "objects": 3}),
        json!({"event": "applied", "node": 0, "object": object, "result": "created"}),
        json!({"event": "ready", "node": 0, "object": object}),
        json!({"event": "deleting", "node": 0, "object": object, "finalizers": [text, text]}),
        json!({"event": "refused", "node": 0, "object": object, "message": text, "retried": true}),
        json!({"event": "refused", "node": 0, "object": object, "message": text, "retried": false}),
        json!({"event": "appeared", "node": 0, "object": object}),
        json!({"event": "recreated", "node": 0, "object": object}),
        json!({"event": "server-away", "cluster": text, "reason": text}),
        json!({"event": "server-back", "cluster": text}),
        json!({"event": "finalizers-removed", "node": 0, "object": object, "finalizers": [text]}),
        json!({"event": "node-finished", "node": 0, "title": text, "status": status, "objects": 3, "elapsedMs": 950}),
        json!({
            "event": "finished", "status": status, "gone": 1, "applied": 1, "unchanged": 0,
            "left": [{"object": object, "group": text, "blockers": blockers}],
            "uncovered": [{"object": object, "code": "no-group"}],
            "finalizersRemoved": [{"object": object, "finalizers": [text]}], "recreated": [object],
            "requests": {"delete": 3}, "elapsedMs": 3210, "recordError": text,
        }),
    ]
}

/// Prints the events and returns both streams.
fn printed(colored: bool, json: bool, events: &[Value]) -> String {
    let (out, err) = (Shared::default(), Shared::default());
    let paint = Paint(colored);
    let printer = Printer::new((Box::new(out.clone()), paint), (Box::new(err.clone()), paint));
    let options = ReportOptions { json, lines: true, verbose: true, notes: true, ..ReportOptions::default() };
    let sink = Reporter::new(printer, options).sink();
    events.iter().for_each(|event| sink(serde_json::from_value::<Event>(event.clone()).unwrap()));
    out.text() + &err.text()
}

/// Returns the output without the escape sequences of our five styles.
fn without_styles(text: &str) -> String {
    let codes = ["\x1b[0m", "\x1b[1m\x1b[31m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m"];
    codes.iter().fold(text.to_owned(), |text, code| text.replace(code, ""))
}

fn is_safe(text: &str) -> bool {
    let acts = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !without_styles(text).contains(|c| c != '\n' && acts(c))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_run_prints_no_control_characters_and_no_forged_lines(
        text in hostile(),
        colored: bool,
        operation in prop_oneof![Just("apply"), Just("delete")],
        status in prop_oneof![Just("done"), Just("failed"), Just("timed-out")],
    ) {
        let shown = printed(colored, false, &events(operation, status, &text));
        prop_assert!(is_safe(&shown), "{shown:?}");
        let harmless = printed(colored, false, &events(operation, status, "text"));
        prop_assert_eq!(shown.lines().count(), harmless.lines().count(), "{:?}", shown);
        prop_assert!(!without_styles(&shown).lines().any(|line| line.starts_with("deleted ")));
    }

    #[test]
    fn an_event_is_one_line_of_json(text in hostile()) {
        let events = events("delete", "failed", &text);
        let shown = printed(true, true, &events);
        let lines: Vec<Value> = shown.split_terminator('\n').map(|line| serde_json::from_str(line).unwrap()).collect();
        prop_assert_eq!(lines.len(), events.len());
        prop_assert!(!shown.contains('\x1b'));
    }

    #[test]
    fn a_plan_has_no_control_characters_and_no_forged_lines(text in hostile(), colored: bool) {
        let plan = |text: &str| {
            let object = json!({"group": "", "kind": "Secret", "namespace": "shop", "name": text});
            let plan: Plan = serde_json::from_value(json!({
                "format": 1, "operation": "delete", "release": "shop/web",
                "queries": [{"resource": {"group": "", "kind": "Secret", "version": "v1", "plural": "secrets",
                                          "namespaced": true}, "select": "all"}],
                "nodes": [{"title": text, "path": text, "after": [], "barrier": "gone", "cluster": text, "work": {"delete": {
                    "objects": [{"object": object, "uid": "1", "query": 0, "finalizers": [text]}],
                    "collections": [{"query": 0, "namespaces": [text], "excluded": []}], "propagation": "Background"}}}],
                "uncovered": [{"object": object, "code": "no-group"}],
                "notes": [{"severity": "info", "code": "inventory-last", "object": object}],
            })).unwrap();
            render_plan(&plan, Paint(colored))
        };
        let shown = plan(&text);
        prop_assert!(is_safe(&shown), "{shown:?}");
        prop_assert_eq!(shown.lines().count(), plan("text").lines().count(), "{:?}", shown);
    }
}
