//! A plan as people read it.

use billhook::{Paint, render_plan};
use billhook_plan::Plan;
use serde_json::json;

fn check(plan: serde_json::Value, expected: &str) {
    let plan: Plan = serde_json::from_value(plan).unwrap();
    assert_eq!(render_plan(&plan, Paint(false)), expected);
    // Colour changes nothing but colours.
    let coloured = render_plan(&plan, Paint(true));
    assert!(coloured.contains('\u{1b}'));
    assert_eq!(anstyle_free(&coloured), expected);
}

fn anstyle_free(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        plain += &rest[..at];
        rest = rest[at..].split_once('m').unwrap().1;
    }
    plain + rest
}

#[test]
fn a_deletion() {
    let widget =
        json!({"group": "a.example", "kind": "Widget", "version": "v1", "plural": "widgets", "namespaced": true});
    let plan = json!({
        "format": 1, "operation": "delete", "release": "shop/web",
        "queries": [{"resource": widget, "select": "all"}],
        "nodes": [
            {
                "title": "widgets", "path": "deletionGroups[0]", "after": [], "barrier": "gone", "timeout": "3m",
                "work": {"delete": {
                    "objects": [
                        {"object": {"group": "a.example", "kind": "Widget", "namespace": "shop", "name": "a"}, "uid": "1",
                         "query": 0, "finalizers": ["a.example/x", "a.example/y"], "deleting": true},
                        {"object": {"group": "a.example", "kind": "Widget", "namespace": "shop", "name": "longer"},
                         "uid": "2", "query": 0},
                    ],
                    "collections": [{"query": 0, "namespaces": ["shop", "bar"], "excluded": [{"namePrefixes": ["kube-"]}]}],
                    "force": {"after": "5m", "finalizers": ["a.example/x"]}, "propagation": "Foreground",
                }},
            },
            {
                "title": "crds", "after": [0], "cluster": "workload", "barrier": "gone",
                "work": {"delete": {
                    "objects": [{"object": {"group": "apiextensions.k8s.io", "kind": "CustomResourceDefinition",
                                 "name": "widgets.a.example"}, "uid": "3", "query": 0}],
                    "propagation": "Background",
                }},
            },
        ],
        "uncovered": [{"object": {"group": "", "kind": "Secret", "namespace": "shop", "name": "s"},
                       "code": "no-group"}],
        "notes": [
            {"severity": "dangerous", "code": "too-many-deletions", "deletions": 3, "limit": 2},
            {"severity": "info", "code": "inventory-last", "object": {"group": "", "kind": "Namespace", "name": "shop"}},
        ],
    });
    check(
        plan,
        "\
delete release shop/web: 3 objects and any that appear meanwhile in 2 groups

1. widgets  (deletionGroups[0]; 2 objects, until gone; dependents first; force: removes a.example/x after 5m; timeout 3m)
   Widget.a.example  shop/a       (already deleting; finalizers: a.example/x, a.example/y)
   Widget.a.example  shop/longer
   + every Widget.a.example in shop, bar, including any that appear meanwhile, except kube-*

2. crds  (on target workload; 1 object, until gone)
   CustomResourceDefinition.apiextensions.k8s.io  widgets.a.example

not deleted
   Secret  shop/s  no group covers it

notes
   dangerous  the plan deletes 3 objects, more than the limit of 2 (--max-deletions)
   info       Namespace shop holds the inventory of the release and is deleted last
",
    );
}

#[test]
fn an_apply() {
    let config = json!({"group": "", "kind": "ConfigMap", "version": "v1", "plural": "configmaps", "namespaced": true});
    let task = |name: &str, action: &str, wait: bool| {
        json!({"object": {"group": "", "kind": "ConfigMap", "namespace": "shop", "name": name},
               "resource": config, "action": action, "wait": wait})
    };
    let plan = json!({
        "format": 1, "operation": "apply", "release": "shop/web", "queries": [], "uncovered": [], "notes": [],
        "nodes": [
            {"title": "namespaced-resources", "after": [], "barrier": "ready", "work": {"apply": {"objects": [
                task("a", "create", true), task("b", "update", false), task("c", "unchanged", false),
            ]}}},
            {"title": "nothing waits", "after": [0], "barrier": "requested", "work": {"apply": {"objects": [
                task("d", "adopt", false),
            ]}}},
        ],
    });
    check(
        plan,
        "\
apply release shop/web: 1 to create, 1 to update, 1 to adopt, 1 unchanged

1. namespaced-resources  (3 objects, until 1 of them are ready)
   create     ConfigMap  shop/a
   update     ConfigMap  shop/b
   unchanged  ConfigMap  shop/c

2. nothing waits  (1 object, without waiting)
   adopt  ConfigMap  shop/d
",
    );
}

#[test]
fn strategies_and_patches() {
    let config = json!({"group": "", "kind": "ConfigMap", "version": "v1", "plural": "configmaps", "namespaced": true});
    let object = |name: &str| json!({"group": "", "kind": "ConfigMap", "namespace": "shop", "name": name});
    let plan = json!({
        "format": 1, "operation": "apply", "release": "shop/web", "queries": [], "uncovered": [], "notes": [],
        "nodes": [
            {"title": "namespaced-resources", "after": [], "barrier": "requested", "work": {"apply": {"objects": [
                {"object": object("a"), "resource": config, "action": "create", "wait": false, "strategy": "merge-overwrite"},
            ]}}},
            {"title": "patches after deployment", "after": [0], "barrier": "requested", "work": {"patch": {"objects": [
                {"object": object("a"), "resource": config,
                 "patch": {"metadata": {"annotations": {"a.example/b": "c"}}, "data": {"password": "secret"}}},
            ]}}},
            {"title": "namespaced-resources", "after": [1], "barrier": "gone", "work": {"delete": {
                "objects": [{"object": object("old"), "uid": "1", "query": 0}], "propagation": "Background",
            }}},
        ],
    });
    check(
        plan,
        "\
apply release shop/web: 1 to create, 1 to prune

1. namespaced-resources  (1 object, without waiting; update strategy merge-overwrite)
   create  ConfigMap  shop/a

2. patches after deployment  (1 object)
   ConfigMap  shop/a  (data.password, metadata.annotations.a.example/b)

3. namespaced-resources  (1 object, until gone)
   ConfigMap  shop/old
",
    );
}

#[test]
fn nothing_to_do() {
    let plan = json!({"format": 1, "operation": "delete", "queries": [], "uncovered": [], "notes": [], "nodes": []});
    check(plan, "delete the objects in the manifests: nothing to do\n");
}

#[test]
fn a_graph_of_sequences() {
    let resource =
        json!({"group": "", "kind": "ConfigMap", "version": "v1", "plural": "configmaps", "namespaced": true});
    let object = |name: &str| json!({"group": "", "kind": "ConfigMap", "namespace": "shop", "name": name});
    let apply = |name: &str, wait: bool| json!({"apply": {"object": object(name), "resource": resource, "action": "create", "wait": wait}});
    let delete =
        json!({"delete": {"object": object("old"), "resource": resource, "uid": "1", "propagation": "Background"}});
    let node = |title: &str, after: serde_json::Value, steps: serde_json::Value| json!({"title": title, "after": after, "barrier": "ready", "work": {"sequence": {"steps": steps}}});
    let plan = json!({
        "format": 1, "operation": "apply", "release": "shop/web", "continueOnFailure": true, "workers": 2,
        "queries": [], "uncovered": [], "notes": [],
        "nodes": [
            node("10 first", json!([]), json!([apply("a", true), delete])),
            node("20 second", json!([0]), json!([apply("b", false)])),
        ],
    });
    check(
        plan,
        "\
apply release shop/web: 2 to create, 1 to delete

1. 10 first  (2 objects, in this order)
   create  ConfigMap  shop/a    (until ready)
   delete  ConfigMap  shop/old

2. 20 second  (1 object, in this order)
   create  ConfigMap  shop/b
",
    );
}
