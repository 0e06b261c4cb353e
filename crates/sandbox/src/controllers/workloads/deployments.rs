//! The Deployment controller: one ReplicaSet per template, of which the newest grows while the others shrink.

use std::{collections::BTreeSet, hash::Hasher, time::Duration};

use serde_json::{Value, json};

use super::{claim, reference, replica_sets::set_count};
use crate::{
    conditions,
    controllers::objects::{Next, Step, edit, edit_status, id, load, writer},
    kinds::ResourceId,
    object::{is_deleting, meta, metadata_mut},
    state::State,
    status::ApiError,
    store::ObjectId,
    verbs::create,
};

const CONTROLLER: &str = "deployment-controller";
const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MOST: &str = "deployment.kubernetes.io/max-replicas";

pub(in crate::controllers) fn sync(state: &mut State, namespace: &str, name: &str) -> Step {
    let deployment_id = id("apps", "deployments", namespace, name);
    let Some(deployment) = load(state, &deployment_id) else { return Ok(Next::Done) };
    let resource = ResourceId::new("apps", "replicasets");
    let mut sets = claim(state, &deployment, &resource, CONTROLLER);
    sets.sort_by_cached_key(|set| (meta(set, "creationTimestamp").to_owned(), meta(set, "name").to_owned()));
    let newest = sets.iter().position(|set| same_template(set, &deployment));
    if is_deleting(&deployment) || deployment["spec"]["paused"] == true && newest.is_none() {
        return write_status(state, &deployment_id, &deployment, &sets, newest);
    }
    let is_new = newest.is_none();
    let newest = newest.unwrap_or_else(|| {
        sets.push(new_set(&deployment, &sets));
        sets.len() - 1
    });
    let rollout = Rollout::new(&deployment, &sets, newest);
    let replicas = rollout.replicas();
    if meta(&sets[newest], "uid").is_empty() {
        let mut set = sets[newest].take();
        rollout.mark(&mut set, replicas[newest]);
        let kind = state.kinds.find("apps", "replicasets").ok_or_else(ApiError::no_such_path)?;
        let writer = writer(kind, CONTROLLER);
        sets[newest] = create(state, &writer, namespace, set)?.object;
    }
    let revision = sets[newest]["metadata"]["annotations"][REVISION].clone();
    for (set, replicas) in sets.iter_mut().zip(replicas) {
        let set_id = ObjectId::new(&resource, namespace, meta(set, "name"));
        edit(state, &set_id, CONTROLLER, |set| rollout.mark(set, replicas))?;
        if let Some(stored) = state.store.get_id(&set_id) {
            *set = stored.value();
        }
    }
    // As Kubernetes' own controller, which writes the annotation with the status.
    edit_status(state, &deployment_id, CONTROLLER, |object| annotate(object, REVISION, revision))?;
    let Some(mut deployment) = load(state, &deployment_id) else { return Ok(Next::Done) };
    if is_new {
        restart_deadline(&mut deployment["status"], &state.clock.text());
    }
    write_status(state, &deployment_id, &deployment, &sets, Some(newest))
}

fn annotate(object: &mut Value, key: &str, value: Value) {
    let annotations = metadata_mut(object).entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut()
        && !value.is_null()
    {
        annotations.insert(key.to_owned(), value);
    }
}

/// Returns whether a ReplicaSet has the current template of a Deployment.
fn same_template(set: &Value, deployment: &Value) -> bool {
    let mut template = set["spec"]["template"].clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
    }
    template["spec"] == deployment["spec"]["template"]["spec"]
        && ["labels", "annotations"]
            .iter()
            .all(|field| template["metadata"][field] == deployment["spec"]["template"]["metadata"][field])
}

/// Returns a hash of a template in the alphabet of generated names. Kubernetes uses another hash.
fn hash(template: &Value) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hasher = Fnv(0x811c_9dc5);
    hasher.write(template.to_string().as_bytes());
    let digits = hasher.0.to_string();
    digits.bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()])).collect()
}

/// 32-bit FNV-1a.
struct Fnv(u32);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }

    fn finish(&self) -> u64 {
        self.0.into()
    }
}

/// Returns a ReplicaSet for a new template.
fn new_set(deployment: &Value, sets: &[Value]) -> Value {
    let mut template = deployment["spec"]["template"].clone();
    let hash = hash(&template);
    template["metadata"]["labels"][HASH] = hash.as_str().into();
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH] = hash.as_str().into();
    let revision = |set: &Value| set["metadata"]["annotations"][REVISION].as_str()?.parse::<u64>().ok();
    let revision = sets.iter().filter_map(revision).max().unwrap_or(0) + 1;
    let mut annotations = deployment["metadata"]["annotations"].clone();
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    annotations[REVISION] = revision.to_string().into();
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", meta(deployment, "name")), "namespace": meta(deployment, "namespace"),
            "labels": template["metadata"]["labels"], "annotations": annotations,
            "ownerReferences": [reference(deployment)],
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    })
}

/// The replicas of the ReplicaSets of a Deployment, and the limits of the rollout.
struct Rollout {
    wanted: i64,
    surge: i64,
    unavailable: i64,
    recreate: bool,
    newest: usize,
    /// The desired, existing and available replicas of each ReplicaSet.
    sets: Vec<(i64, i64, i64)>,
}

impl Rollout {
    fn new(deployment: &Value, sets: &[Value], newest: usize) -> Self {
        let spec = &deployment["spec"];
        let wanted = spec["replicas"].as_i64().unwrap_or(1);
        let rolling = &spec["strategy"]["rollingUpdate"];
        let recreate = spec["strategy"]["type"] == "Recreate";
        let (surge, mut unavailable) =
            (share(&rolling["maxSurge"], wanted, 99), share(&rolling["maxUnavailable"], wanted, 0));
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        let number = |value: &Value| value.as_i64().unwrap_or(0);
        let counts = |set: &Value| {
            let status = &set["status"];
            (number(&set["spec"]["replicas"]), number(&status["replicas"]), number(&status["availableReplicas"]))
        };
        Self {
            wanted,
            surge: if recreate { 0 } else { surge },
            unavailable: if recreate { 0 } else { unavailable.min(wanted) },
            recreate,
            newest,
            sets: sets.iter().map(counts).collect(),
        }
    }

    /// Sets the replicas of a ReplicaSet, and the annotations about the rollout.
    fn mark(&self, set: &mut Value, replicas: i64) {
        set["spec"]["replicas"] = replicas.into();
        annotate(set, DESIRED, self.wanted.to_string().into());
        annotate(set, MOST, (self.wanted + self.surge).to_string().into());
    }

    /// Returns the replicas that each ReplicaSet should have.
    fn replicas(&self) -> Vec<i64> {
        let mut replicas: Vec<i64> = self.sets.iter().map(|(wanted, ..)| *wanted).collect();
        let newest = self.newest;
        let running_old = self.sets.iter().enumerate().any(|(at, (_, running, _))| at != newest && *running > 0);
        if self.recreate {
            let new = if running_old { replicas[newest] } else { self.wanted };
            return (0..replicas.len()).map(|at| if at == newest { new } else { 0 }).collect();
        }
        let total = |replicas: &[i64]| replicas.iter().sum::<i64>();
        if replicas[newest] > self.wanted {
            replicas[newest] = self.wanted;
        }
        let grow = (self.wanted + self.surge - total(&replicas)).min(self.wanted - replicas[newest]);
        if grow > 0 {
            replicas[newest] += grow;
            return replicas;
        }
        let least = self.wanted - self.unavailable;
        let mut shrink = total(&replicas) - least - (replicas[newest] - self.sets[newest].2);
        let mut available: i64 = self.sets.iter().map(|(.., available)| *available).sum();
        // First reduces unavailable replicas, then as many available ones as the limits allow, oldest ReplicaSets
        // first.
        for at in (0..replicas.len()).filter(|at| *at != newest) {
            let cut = (replicas[at] - self.sets[at].2).clamp(0, shrink.max(0));
            replicas[at] -= cut;
            shrink -= cut;
        }
        for at in (0..replicas.len()).filter(|at| *at != newest) {
            let cut = replicas[at].min(available - least).min(shrink).max(0);
            replicas[at] -= cut;
            available -= cut;
            shrink -= cut;
        }
        replicas
    }
}

/// Returns a number of replicas, which may be a percentage. `round` is added to the hundredths before truncation.
fn share(value: &Value, of: i64, round: i64) -> i64 {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse::<i64>().ok());
    percent.map_or_else(|| value.as_i64().unwrap_or(0), |percent| (of * percent + round) / 100)
}

fn write_status(state: &mut State, id: &ObjectId, deployment: &Value, sets: &[Value], newest: Option<usize>) -> Step {
    let number = |set: &Value, field: &str| set["status"][field].as_i64().unwrap_or(0);
    let sum = |field: &str| sets.iter().map(|set| number(set, field)).sum::<i64>();
    let asked: i64 = sets.iter().map(|set| set["spec"]["replicas"].as_i64().unwrap_or(0)).sum();
    let available = sum("availableReplicas");
    let rollout = Rollout::new(deployment, &[], 0);
    let updated = newest.map_or(0, |newest| number(&sets[newest], "replicas"));
    let name = newest.map_or("", |newest| meta(&sets[newest], "name"));
    let (now, mut status) = (state.clock.text(), deployment["status"].clone());
    for (field, count) in [
        ("replicas", sum("replicas")),
        ("updatedReplicas", updated),
        ("readyReplicas", sum("readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", (asked - available).max(0)),
    ] {
        set_count(&mut status, field, count);
    }
    status["observedGeneration"] = deployment["metadata"]["generation"].clone();
    status["terminatingReplicas"] = sum("terminatingReplicas").into();
    let (enough, reason, message) = if available >= rollout.wanted - rollout.unavailable {
        (true, "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        (false, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set_condition(&mut status, "Available", (enough, reason, message), &now);
    let mut next = Next::Done;
    if newest.is_some() && !is_deleting(deployment) {
        let complete = updated == rollout.wanted && sum("replicas") == updated && available >= updated;
        next = report_progress(state, deployment, &mut status, name, complete);
    }
    edit_status(state, id, CONTROLLER, |object| object["status"] = status)?;
    Ok(next)
}

/// Sets the condition `Progressing`, and returns when the deadline of the rollout must be checked.
fn report_progress(state: &State, deployment: &Value, status: &mut Value, set: &str, complete: bool) -> Next {
    let (old, now) = (&deployment["status"], state.clock.text());
    // A rollout that has ended remains so until the next one starts, even if Pods fail later.
    let ended = conditions::find(deployment, "Progressing").is_some_and(|known| {
        known["reason"] == "NewReplicaSetAvailable" && status["replicas"] == status["updatedReplicas"]
    });
    if ended {
        return Next::Done;
    }
    let more = |field: &&str| status[*field].as_i64() > old[*field].as_i64();
    if ["updatedReplicas", "readyReplicas", "availableReplicas"].iter().any(more) {
        restart_deadline(status, &now);
    }
    let left = time_left(state, status, &deployment["spec"]);
    let (next, progressing, reason, message) = if complete {
        (Next::Done, true, "NewReplicaSetAvailable", format!("ReplicaSet \"{set}\" has successfully progressed."))
    } else if left == Some(Duration::ZERO) {
        (Next::Done, false, "ProgressDeadlineExceeded", format!("ReplicaSet \"{set}\" has timed out progressing."))
    } else {
        let next = left.map_or(Next::Done, Next::After);
        (next, true, "ReplicaSetUpdated", format!("ReplicaSet \"{set}\" is progressing."))
    };
    set_condition(status, "Progressing", (progressing, reason, &message), &now);
    next
}

/// Returns how much time a rollout has left to progress: none after the deadline. A paused rollout has no deadline.
fn time_left(state: &State, status: &Value, spec: &Value) -> Option<Duration> {
    let limit = spec["progressDeadlineSeconds"].as_i64().filter(|_| spec["paused"] != true)?;
    let known = status["conditions"].as_array().into_iter().flatten().find(|known| known["type"] == "Progressing");
    let Some(progressing) = known else { return Some(seconds(limit + 1)) };
    if progressing["reason"] == "ProgressDeadlineExceeded" {
        return Some(Duration::ZERO);
    }
    let since: jiff::Timestamp = progressing["lastUpdateTime"].as_str()?.parse().ok()?;
    // Times have no fractions of a second, hence the additional second.
    Some(seconds(limit + 1 - state.clock.now().duration_since(since).as_secs()))
}

/// Makes the deadline count from now: a new ReplicaSet exists, or the rollout has progressed.
fn restart_deadline(status: &mut Value, now: &str) {
    let conditions = status["conditions"].as_array_mut().into_iter().flatten();
    for condition in conditions.filter(|condition| condition["type"] == "Progressing") {
        condition["reason"] = "".into();
        condition["lastUpdateTime"] = now.into();
    }
}

fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

/// Sets a condition of a Deployment, which also has the time of its last update.
fn set_condition(status: &mut Value, name: &str, (value, reason, message): (bool, &str, &str), now: &str) {
    let text = |known: &Value, field: &str| known[field].as_str().unwrap_or_default().to_owned();
    let conditions: BTreeSet<_> = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|known| (text(known, "type"), text(known, "status"), text(known, "reason"), text(known, "message")))
        .collect();
    let word = if value { "True" } else { "False" };
    if conditions.contains(&(name.to_owned(), word.to_owned(), reason.to_owned(), message.to_owned())) {
        return;
    }
    conditions::set(status, &conditions::Condition { name, status: value, reason, message }, now);
    let conditions = status["conditions"].as_array_mut().into_iter().flatten();
    for condition in conditions.filter(|condition| condition["type"] == name) {
        condition["lastUpdateTime"] = now.into();
    }
}
