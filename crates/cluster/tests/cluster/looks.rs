//! Evidence for explanations.

use billhook_explain::{Access, Answer, Content, Failure, Probe, Query};
use serde_json::json;

use crate::fake::{Req, cluster, configmaps, missing, object, ok, page, status};

fn get(name: &str, content: Content) -> Query {
    Query::Get { resource: configmaps(), namespace: Some("a".into()), name: name.into(), content }
}

fn list(limit: u32) -> Query {
    let resource = configmaps();
    Query::List { resource, namespace: None, fields: "x=y".into(), limit, content: Content::Full }
}

#[tokio::test(start_paused = true)]
async fn every_answer_is_evidence_and_no_request_is_repeated() {
    let (cluster, log) = cluster(|req: Req| match req.path.as_str() {
        "/api/v1/namespaces/a/configmaps/there" => {
            assert!(req.headers["accept"].to_str().unwrap().contains("PartialObjectMetadata"));
            ok(object("there", "u1", 1))
        }
        "/api/v1/namespaces/a/configmaps/none" => missing("configmaps", "none"),
        "/api/v1/namespaces/a/configmaps/kind" => status(404, "NotFound", "the server could not find the resource"),
        "/api/v1/namespaces/a/configmaps/busy" => status(429, "TooManyRequests", "failed to list"),
        "/api/v1/configmaps" if req.query("limit") == "1" => {
            let mut page = page(1, vec![object("a", "u1", 1)]);
            page["metadata"]["continue"] = json!("more");
            ok(page)
        }
        "/api/v1/configmaps" => ok(page(1, Vec::new())),
        _ => status(404, "NotFound", "no such path"),
    });
    let there = cluster.look(&get("there", Content::Metadata)).await;
    assert!(matches!(there, Answer::Object(object) if object["metadata"]["uid"] == "u1"));
    assert_eq!(cluster.look(&get("none", Content::Full)).await, Answer::Missing);
    assert_eq!(cluster.look(&get("kind", Content::Full)).await, Answer::NotServed);
    let busy = Failure { status: 429, reason: "TooManyRequests".into(), message: "failed to list".into() };
    assert_eq!(cluster.look(&get("busy", Content::Full)).await, Answer::Failed(busy));
    let part = cluster.look(&list(1)).await;
    assert!(matches!(part, Answer::Objects { items, complete: false } if items.len() == 1));
    assert_eq!(cluster.look(&list(500)).await, Answer::Objects { items: Vec::new(), complete: true });
    assert_eq!(cluster.look(&Query::Discovery("/apis/x.example/v1".into())).await, Answer::Missing);
    assert_eq!(log.lines().len(), 7, "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn probes_change_nothing() {
    let (cluster, log) = cluster(|req: Req| {
        let dry = req.query("dryRun") == "All" || req.body["dryRun"] == json!(["All"]);
        assert!(dry || req.method == "GET", "{} {}", req.method, req.path);
        match req.method.as_str() {
            "PATCH" => assert_eq!(
                req.body,
                json!([{"op": "test", "path": "/metadata/finalizers/2", "value": "x.example/a"},
                    {"op": "remove", "path": "/metadata/finalizers/2"}])
            ),
            "PUT" => assert_eq!(
                (req.path.as_str(), &req.body["spec"]["finalizers"]),
                ("/api/v1/namespaces/a/finalize", &json!([]))
            ),
            _ => {}
        }
        ok(json!({"kind": "Namespace", "metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}}))
    });
    let (resource, namespace, name) = (configmaps(), Some("a".to_owned()), "b".to_owned());
    let delete = Probe::Delete { resource: resource.clone(), namespace: namespace.clone(), name: name.clone() };
    let remove = Probe::RemoveFinalizer { resource, namespace, name, finalizer: "x.example/a".into(), position: 2 };
    for probe in [delete, remove, Probe::Finalize("a".into())] {
        assert_eq!(cluster.look(&Query::Probe(probe)).await, Answer::Accepted);
    }
    assert_eq!(log.lines().len(), 4, "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn a_service_account_is_reviewed_with_its_groups() {
    let (cluster, _) = cluster(|req: Req| {
        let spec = &req.body["spec"];
        assert_eq!(spec["user"], "system:serviceaccount:shop:operator");
        assert_eq!(
            spec["groups"],
            json!(["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:shop"])
        );
        assert_eq!(
            (&spec["resourceAttributes"]["verb"], &spec["resourceAttributes"]["name"]),
            (&json!("patch"), &json!("b"))
        );
        ok(json!({"status": {"allowed": false, "reason": "no role"}}))
    });
    let access = Access {
        user: "system:serviceaccount:shop:operator".into(),
        verb: "patch".into(),
        resource: configmaps(),
        namespace: Some("a".into()),
        name: "b".into(),
    };
    assert_eq!(cluster.look(&Query::Access(access)).await, Answer::Allowed(false, "no role".into()));
}
