//! The record of a release: round trips, parts, crashes at every request, and two writers.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use billhook_cluster::{Cluster, ErrorKind, InventoryStore, NewBackup, Options, Token};
use billhook_objects::{ApiVersion, Digest, GroupKind, ObjectKey, ReleaseName, Uid};
use billhook_plan::{Backup, Entry, Failed, Failures, Inventory, Phase, SavedObject};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::fake::{Answer, Log, Req, cluster_with, missing, ok, page, status};

/// The part of the API of Secrets that the store uses. Fails every request from `fail_from` on, counted from 0.
#[derive(Default)]
struct Secrets {
    objects: BTreeMap<String, Value>,
    version: u64,
    requests: usize,
    fail_from: Option<usize>,
    /// The number of a request that is carried out but whose answer is lost.
    lose: Option<usize>,
}

impl Secrets {
    fn answer(&mut self, req: &Req) -> Answer {
        let number = self.requests;
        self.requests += 1;
        if self.fail_from.is_some_and(|from| number >= from) {
            return status(403, "Forbidden", "User \"a\" cannot do anything any more");
        }
        let answer = self.carry_out(req);
        if self.lose == Some(number) { Answer::Reset } else { answer }
    }

    /// Deletes objects whose owner is gone, as the server's garbage collector does.
    fn collect_garbage(&mut self) {
        let there: Vec<Value> = self.objects.values().map(|object| object["metadata"]["uid"].clone()).collect();
        self.objects.retain(|_, object| {
            let owner = &object["metadata"]["ownerReferences"][0]["uid"];
            owner.is_null() || there.contains(owner)
        });
    }

    fn carry_out(&mut self, req: &Req) -> Answer {
        let name = req.path.strip_prefix("/api/v1/namespaces/a/secrets").unwrap_or_default().trim_start_matches('/');
        let is_old = |now: &Value, wanted: &Value| {
            ["uid", "resourceVersion"].iter().any(|key| !wanted[key].is_null() && wanted[key] != now["metadata"][key])
        };
        match (req.method.as_str(), name) {
            ("GET", "") => {
                let wanted = req.query("labelSelector");
                let heads = wanted.ends_with("part=head");
                let items = self.objects.values();
                let items = items.filter(|o| (o["metadata"]["labels"]["billhook.dev/part"] == "head") == heads);
                ok(page(self.version, items.cloned().collect()))
            }
            ("GET", name) => self.objects.get(name).map_or_else(|| missing("secrets", name), |found| ok(found.clone())),
            ("POST", _) => {
                let mut new = req.body.clone();
                let name = new["metadata"]["name"].as_str().unwrap().to_owned();
                assert!(new["data"].to_string().len() < 1024 * 1024, "a Secret is too large");
                if self.objects.contains_key(&name) {
                    return status(409, "AlreadyExists", "it is there");
                }
                self.version += 1;
                new["metadata"]["uid"] = json!(format!("u{}", self.version));
                new["metadata"]["resourceVersion"] = json!(self.version.to_string());
                new["metadata"]["namespace"] = json!("a");
                self.objects.insert(name, new.clone());
                Answer::Json(201, new)
            }
            ("PATCH", name) => {
                assert_eq!(req.headers["content-type"], "application/merge-patch+json");
                let Some(now) = self.objects.get_mut(name) else { return missing("secrets", name) };
                if is_old(now, &req.body["metadata"]) {
                    return status(409, "Conflict", "the object has been modified");
                }
                self.version += 1;
                for (key, value) in req.body["data"].as_object().unwrap() {
                    match value {
                        Value::Null => now["data"].as_object_mut().unwrap().remove(key),
                        value => now["data"].as_object_mut().unwrap().insert(key.clone(), value.clone()),
                    };
                }
                assert!(now["data"].to_string().len() < 1024 * 1024 * 4 / 3, "the Secret is too large");
                now["metadata"]["annotations"] = req.body["metadata"]["annotations"].clone();
                if let Some(annotations) = now["metadata"]["annotations"].as_object_mut() {
                    annotations.retain(|_, value| !value.is_null());
                }
                now["metadata"]["resourceVersion"] = json!(self.version.to_string());
                ok(now.clone())
            }
            ("DELETE", name) => {
                let Some(now) = self.objects.get(name) else { return missing("secrets", name) };
                if is_old(now, &req.body["preconditions"]) {
                    return status(409, "Conflict", "Precondition failed");
                }
                self.objects.remove(name);
                ok(json!({"kind": "Status", "status": "Success", "metadata": {}}))
            }
            other => panic!("{other:?}"),
        }
    }
}

type Shared = Arc<Mutex<Secrets>>;

fn store() -> (InventoryStore, Shared, Cluster, Log) {
    let secrets = Shared::default();
    let shared = Arc::clone(&secrets);
    let options = Options { patience: Duration::from_secs(5), ..Options::default() };
    let (cluster, log) = cluster_with(options, move |req| shared.lock().unwrap().answer(&req));
    (cluster.inventory(), secrets, cluster, log)
}

fn release() -> ReleaseName {
    ReleaseName::new("a", "web").unwrap()
}

fn key(n: usize) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), format!("c{n:05}"))
}

/// Makes realistic digests and UIDs, which do not compress.
fn inventory(count: usize) -> Inventory {
    static ALL: LazyLock<BTreeMap<ObjectKey, Entry>> =
        LazyLock::new(|| (0..20_000).map(|n| (key(n), entry(n))).collect());
    let entries = ALL.iter().take(count).map(|(key, entry)| (key.clone(), entry.clone())).collect();
    Inventory { entries, ..Inventory::new(release()) }
}

fn entry(n: usize) -> Entry {
    let random = serde_json::to_value(Digest::of(&json!([n]))).unwrap();
    let random = random.as_str().unwrap();
    let parts = [&random[..8], &random[8..12], &random[12..16], &random[16..20], &random[20..32]];
    Entry {
        api_version: ApiVersion::parse("v1").unwrap(),
        digest: Digest::of(&json!(n)),
        uid: Some(Uid::new(parts.join("-"))),
        resource_version: Some((n * 7919 % 100_000).to_string()),
        fingerprint: None,
        obsolete: false,
        keep: false,
        fallback: false,
        before_delete: None,
        unlabelled: false,
        deletion_requested: false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_release_is_one_secret_and_one_request_per_write() {
    let (store, secrets, cluster, _) = store();
    let mut written = inventory(100);
    written.phase = Phase::Applied;
    let store = store.stamped("2026-11-21T03:00:00Z");
    let token = store.save(&mut written, None).await.unwrap();
    let first = cluster.requests().total();
    assert_eq!(first, 1);
    written.phase = Phase::Deleting;
    written.entries.pop_first();
    let token = store.save(&mut written, Some(token)).await.unwrap();
    assert_eq!(cluster.requests().total() - first, 1);
    assert_eq!(secrets.lock().unwrap().objects.len(), 1);
    let stored = store.load(&release()).await.unwrap().unwrap();
    assert_eq!(stored.inventory, written);
    assert_eq!(stored.inventory.revision, 2);
    let listed = store.list(Some("a")).await.unwrap();
    assert_eq!((listed[0].phase, listed[0].objects, listed[0].revision), (Some(Phase::Deleting), 99, 2));
    assert_eq!(listed[0].updated.as_deref(), Some("2026-11-21T03:00:00Z"));
    store.remove(&release(), token).await.unwrap();
    assert!(store.load(&release()).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_large_release_is_stored_in_parts_and_old_parts_are_deleted() {
    let (store, secrets, cluster, _) = store();
    let mut written = inventory(20_000);
    let token = store.save(&mut written, None).await.unwrap();
    let parts = |secrets: &Shared| {
        let secrets = secrets.lock().unwrap();
        secrets.objects.keys().map(|name| name.rsplit_once('.').unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    let first = parts(&secrets);
    assert!(first.contains(&"billhook.web.v1.index.1".to_owned()), "{first:?}");
    let before = cluster.requests().total();
    let token = store.save(&mut written, Some(token)).await.unwrap();
    let cost = cluster.requests().total() - before;
    assert!(cost < 12, "{cost}");
    let second = parts(&secrets);
    assert_eq!(second.len(), first.len());
    assert!(second.iter().all(|name| !name.starts_with("billhook.web.v1.index")), "{second:?}");
    assert_eq!(store.load(&release()).await.unwrap().unwrap().inventory, written);
    // It fits into one Secret again.
    written.entries.retain(|key, _| key.name.as_str() < "c00010");
    let token = store.save(&mut written, Some(token)).await.unwrap();
    assert_eq!(store.load(&release()).await.unwrap().unwrap().inventory, written);
    store.remove(&release(), token).await.unwrap();
    assert_eq!(secrets.lock().unwrap().objects.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_request_leaves_the_old_or_the_new_record() {
    for crash in 0.. {
        let (store, secrets, _, _) = store();
        let mut old = inventory(12_000);
        let token = store.save(&mut old, None).await.unwrap();
        let start = {
            let mut secrets = secrets.lock().unwrap();
            secrets.fail_from = Some(secrets.requests + crash);
            secrets.requests
        };
        let mut new = inventory(11_000);
        let saved = store.save(&mut new, Some(token)).await;
        let used = {
            let mut secrets = secrets.lock().unwrap();
            secrets.fail_from = None;
            secrets.requests - start
        };
        let stored = store.load(&release()).await.unwrap().unwrap();
        let expected = if saved.is_ok() { &new } else { &old };
        assert_eq!(stored.inventory, *expected, "crash at request {crash}");
        // The next write succeeds and deletes what the crash left behind.
        let mut next = inventory(10_500);
        let token = store.save(&mut next, Some(stored.token)).await.unwrap();
        assert_eq!(store.load(&release()).await.unwrap().unwrap().inventory, next);
        store.remove(&release(), token).await.unwrap();
        let left: Vec<String> = secrets.lock().unwrap().objects.keys().cloned().collect();
        assert!(left.is_empty(), "crash at request {crash}: {left:?}");
        if used <= crash {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn parts_that_a_crash_of_the_first_write_leaves_are_deleted_with_the_record() {
    for crash in 0.. {
        let (store, secrets, _, _) = store();
        secrets.lock().unwrap().fail_from = Some(crash);
        let first = store.save(&mut inventory(12_000), None).await;
        let used = {
            let mut secrets = secrets.lock().unwrap();
            secrets.fail_from = None;
            secrets.requests
        };
        // The next version fits into one Secret.
        let stored = store.load(&release()).await.unwrap();
        let objects = stored.as_ref().map_or(0, |stored| stored.inventory.entries.len());
        assert_eq!(objects, if first.is_ok() { 12_000 } else { 0 }, "crash at request {crash}");
        let mut next = inventory(10);
        let token = store.save(&mut next, stored.map(|stored| stored.token)).await.unwrap();
        assert_eq!(store.load(&release()).await.unwrap().unwrap().inventory, next);
        store.remove(&release(), token).await.unwrap();
        secrets.lock().unwrap().collect_garbage();
        let left: Vec<String> = secrets.lock().unwrap().objects.keys().cloned().collect();
        assert!(left.is_empty(), "crash at request {crash}: {left:?}");
        if used <= crash {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_of_two_writers_gets_a_conflict() {
    let (store, _, _, _) = store();
    let mut ours = inventory(3);
    let token = store.save(&mut ours, None).await.unwrap();
    let mut theirs = store.load(&release()).await.unwrap().unwrap();
    store.save(&mut theirs.inventory, Some(theirs.token)).await.unwrap();
    for token in [Some(token.clone()), None] {
        let error = store.save(&mut ours, token).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Conflict(Vec::new()));
        assert_eq!(
            error.to_string(),
            "write the record of release a/web: another command changed the release at the same time"
        );
        assert_eq!(ours.revision, 1);
    }
    assert_eq!(*store.remove(&release(), token).await.unwrap_err().kind(), ErrorKind::Conflict(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn changes_of_other_fields_are_no_conflict() {
    let (store, secrets, cluster, _) = store();
    let annotate = || {
        let mut secrets = secrets.lock().unwrap();
        secrets.version += 1;
        let version = secrets.version.to_string();
        let head = secrets.objects.get_mut("billhook.web").unwrap();
        head["metadata"]["resourceVersion"] = json!(version);
        head["metadata"]["annotations"]["backup.example/at"] = json!("noon");
    };
    let mut written = inventory(3);
    let token = store.save(&mut written, None).await.unwrap();
    annotate();
    let before = cluster.requests().total();
    let token = store.save(&mut written, Some(token)).await.unwrap();
    assert_eq!(cluster.requests().total() - before, 3);
    assert_eq!(store.load(&release()).await.unwrap().unwrap().inventory.revision, 2);
    annotate();
    store.remove(&release(), token).await.unwrap();
    assert!(secrets.lock().unwrap().objects.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_record_deleted_with_its_namespace_is_no_conflict() {
    for lost in [false, true] {
        let (store, secrets, _, _) = store();
        let mut written = inventory(3);
        let token = store.save(&mut written, None).await.unwrap();
        {
            let mut secrets = secrets.lock().unwrap();
            secrets.objects.clear();
            secrets.lose = lost.then_some(secrets.requests);
        }
        let error = store.save(&mut written, Some(token.clone())).await.unwrap_err();
        assert_eq!((error.code(), error.kind()), (Some(404), &ErrorKind::Other), "{error}");
        assert_eq!(error.message(), "the record no longer exists");
        store.remove(&release(), token).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_404_of_a_gateway_is_not_a_missing_record() {
    let (cluster, _) = cluster_with(Options::default(), |_| Answer::Text(404, "no such backend"));
    let error = cluster.inventory().load(&release()).await.unwrap_err();
    assert_eq!(error.to_string(), "read the record of release a/web: no such backend");
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_is_recognized() {
    let (store, secrets, _, _) = store();
    secrets.lock().unwrap().lose = Some(0);
    let mut written = inventory(3);
    let token = store.save(&mut written, None).await.unwrap();
    {
        let mut secrets = secrets.lock().unwrap();
        secrets.lose = Some(secrets.requests);
    }
    let token = store.save(&mut written, Some(token)).await.unwrap();
    store.save(&mut written, Some(token)).await.unwrap();
    assert_eq!(store.load(&release()).await.unwrap().unwrap().inventory.revision, 3);
}

#[tokio::test(start_paused = true)]
async fn a_record_of_a_newer_billhook_is_an_error_that_names_it() {
    let (store, secrets, _, _) = store();
    let mut fixture: Value = serde_json::from_str(include_str!("../data/inventory-format-1.json")).unwrap();
    // {"format":3}
    fixture["data"]["head"] = json!("eyJmb3JtYXQiOjN9");
    secrets.lock().unwrap().objects.insert("billhook.web".into(), fixture);
    let error = store.load(&release()).await.unwrap_err();
    let expected = "read the record of release a/web: it was written by a newer billhook (format 3; this one reads \
        formats up to 2)";
    assert_eq!(error.to_string(), expected);
}

/// The first version of format 1 has written this file. It must remain readable.
#[tokio::test(start_paused = true)]
async fn format_1_is_read() {
    let (store, secrets, _, _) = store();
    let fixture = serde_json::from_str(include_str!("../data/inventory-format-1.json")).unwrap();
    secrets.lock().unwrap().objects.insert("billhook.web".into(), fixture);
    let stored = store.load(&release()).await.unwrap().unwrap();
    let mut expected = inventory(3);
    expected.revision = 1;
    expected.phase = Phase::Applied;
    assert_eq!(stored.inventory, expected);
}

#[tokio::test(start_paused = true)]
async fn the_history_failures_and_verified_deletions_are_kept() {
    let (store, secrets, _, _) = store();
    let mut written = inventory(3);
    written.begin_version("4.20.0", "2026-01-01T00:00:00Z");
    written.complete_version("2026-01-01T00:01:00Z");
    written.begin_version("4.20.1", "2026-01-02T00:00:00Z");
    let gone = (10..20).map(|n| (key(n), "2026-01-02T00:00:01Z".to_owned()));
    written.deleted = gone.collect();
    written.failures =
        Failures { omitted: 7, ..Failures::of([Failed { object: &key(1), error: "no", code: Some("Bad") }]) };
    // An object that is deleted may also exist again.
    written.deleted.insert(key(0), "2026-01-02T00:00:01Z".to_owned());
    store.save(&mut written, None).await.unwrap();
    assert_eq!(store.load(&release()).await.unwrap().unwrap().inventory, written);
    let head = decoded(&secrets.lock().unwrap().objects["billhook.web"]["data"]["head"]);
    let head: Value = serde_json::from_slice(&head).unwrap();
    assert_eq!(head["objects"], 3);
    let first = json!({"version": "4.20.1", "state": "Partial", "startedTime": "2026-01-02T00:00:00Z"});
    assert_eq!(head["history"][0], first);
    assert_eq!((&head["failures"]["objects"][0]["error"], &head["failures"]["omitted"]), (&json!("no"), &json!(7)));
    written.failures = Failures::default();
    let token = store.load(&release()).await.unwrap().unwrap().token;
    store.save(&mut written, Some(token)).await.unwrap();
    let head = decoded(&secrets.lock().unwrap().objects["billhook.web"]["data"]["head"]);
    assert!(!String::from_utf8(head).unwrap().contains("failures"));
}

/// Earlier versions stored the manifests, in the head or in parts.
#[tokio::test(start_paused = true)]
async fn manifests_of_an_earlier_version_are_deleted_by_the_next_write() {
    for in_parts in [false, true] {
        let (store, secrets, _, _) = store();
        let mut head: Value = serde_json::from_str(include_str!("../data/inventory-format-1.json")).unwrap();
        assert!(head["data"]["manifests"].is_string());
        if in_parts {
            let name = "billhook.web.v1.manifests.0.0123456789";
            let mut json: Value = serde_json::from_slice(&decoded(&head["data"]["head"])).unwrap();
            json["manifests"] = json!({"parts": [name]});
            head["data"]["head"] = json!(ByteString(json.to_string().into_bytes()));
            let data = json!({"data": head["data"].as_object_mut().unwrap().remove("manifests")});
            let metadata = json!({"name": name, "uid": "u0", "resourceVersion": "1"});
            secrets.lock().unwrap().objects.insert(name.into(), json!({"metadata": metadata, "data": data}));
        }
        secrets.lock().unwrap().objects.insert("billhook.web".into(), head);
        let mut stored = store.load(&release()).await.unwrap().unwrap();
        assert_eq!(stored.inventory.entries.len(), 3);
        store.save(&mut stored.inventory, Some(stored.token)).await.unwrap();
        let secrets = secrets.lock().unwrap();
        assert_eq!(secrets.objects.len(), 1);
        let data = &secrets.objects["billhook.web"]["data"];
        assert!(data["manifests"].is_null());
        assert!(!String::from_utf8(decoded(&data["head"])).unwrap().contains("manifests"));
    }
}

fn decoded(data: &Value) -> Vec<u8> {
    serde_json::from_value::<ByteString>(data.clone()).unwrap().0
}

/// An object with a text that does not compress.
fn saved(n: usize, size: usize) -> SavedObject {
    let text: String = (0..size / 64)
        .map(|part| serde_json::to_value(Digest::of(&json!([n, part]))).unwrap().as_str().unwrap().to_owned())
        .collect();
    let metadata = json!({"name": format!("c{n}"), "namespace": "a"});
    SavedObject {
        own: n.is_multiple_of(2),
        object: json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}}),
    }
}

async fn back_up(store: &InventoryStore, token: &Token, objects: &[SavedObject]) -> Backup {
    let release = release();
    let mut writer = store.write_backup(&release, token);
    for object in objects {
        assert!(writer.add(object).await.unwrap());
    }
    match writer.finish().await.unwrap() {
        NewBackup::Written(backup) => backup,
        NewBackup::TooLarge => panic!("too large"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_backup_is_read_as_it_was_written_and_remains_until_a_record_without_it_is_written() {
    let (store, secrets, _, _) = store();
    let mut inventory = inventory(3);
    let token = store.save(&mut inventory, None).await.unwrap();
    // The second object alone needs more than one part.
    let objects = [saved(0, 1000), saved(1, 3_000_000), saved(2, 1000)];
    let first = back_up(&store, &token, &objects).await;
    assert!(first.parts.len() > 1, "{first:?}");
    assert_eq!(first.objects, 3);
    inventory.backup = Some(first.clone());
    let token = store.save(&mut inventory, Some(token)).await.unwrap();
    let stored = store.load(&release()).await.unwrap().unwrap();
    assert_eq!(stored.inventory, inventory);
    assert_eq!(store.list(Some("a")).await.unwrap()[0].backup, Some(3));
    let packed = store.read_backup(&release(), &first).await.unwrap();
    let read: Vec<_> = packed.objects().map(Result::unwrap).collect();
    assert_eq!(read, objects);
    // Another one replaces it, and so do parts that a crash has left.
    back_up(&store, &token, &[saved(7, 100)]).await;
    let second = back_up(&store, &token, &[saved(3, 100)]).await;
    inventory.backup = Some(second.clone());
    let token = store.save(&mut inventory, Some(token)).await.unwrap();
    let names = |secrets: &Shared| secrets.lock().unwrap().objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&secrets), ["billhook.web".to_owned(), second.parts[0].clone()]);
    // A record that is written for another reason keeps it.
    inventory.entries.pop_first();
    let token = store.save(&mut inventory, Some(token)).await.unwrap();
    assert_eq!(names(&secrets).len(), 2);
    inventory.backup = None;
    store.save(&mut inventory, Some(token)).await.unwrap();
    assert_eq!(names(&secrets), ["billhook.web"]);
    assert_eq!(store.list(Some("a")).await.unwrap()[0].backup, None);
}

#[tokio::test(start_paused = true)]
async fn a_backup_without_all_of_its_parts_or_that_is_too_large_is_an_error() {
    let (store, secrets, _, _) = store();
    let mut inventory = inventory(1);
    let token = store.save(&mut inventory, None).await.unwrap();
    let backup = back_up(&store, &token, &[saved(0, 1_000_000)]).await;
    secrets.lock().unwrap().objects.remove(&backup.parts[0]);
    let error = store.read_backup(&release(), &backup).await.err().unwrap();
    assert!(error.message().contains(&format!("Secret {} is missing", backup.parts[0])), "{}", error.message());
    // Parts in another order cannot be unpacked, and the error quotes nothing.
    let backup = back_up(&store, &token, &[saved(0, 3_000_000)]).await;
    let shuffled = Backup { parts: backup.parts.iter().rev().cloned().collect(), ..backup };
    let packed = store.read_backup(&release(), &shuffled).await.unwrap();
    let error = packed.objects().find_map(Result::err).unwrap();
    assert!(error.message().contains("damaged"), "{}", error.message());
    secrets.lock().unwrap().objects.retain(|name, _| name == "billhook.web");
    let owner = release();
    let mut writer = store.write_backup(&owner, &token);
    let mut fits = true;
    for n in 0..100 {
        fits = writer.add(&saved(n, 1_500_000)).await.unwrap();
        if !fits {
            break;
        }
    }
    assert!(!fits);
    writer.discard().await;
    assert_eq!(secrets.lock().unwrap().objects.len(), 1);
}
