//! The Job controller, which tracks Pods by a finalizer and removes it from finished ones.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{claim, count, is_active, is_ready, phase, pod};
use crate::{
    conditions::{self, Condition},
    controllers::{
        agenda::JOB_TRACKING,
        objects::{Next, Step, edit, edit_status, has_finalizer, id, load, objects, remove_finalizer, writer},
    },
    kinds::ResourceId,
    object::{Stored, is_deleting, meta},
    state::State,
    status::ApiError,
    verbs::{DeleteOptions, create, delete},
};

const CONTROLLER: &str = "job-controller";
/// How long a failed Pod is not replaced. The time doubles with each failure.
const BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_secs(600);

fn is_finished(job: &Value) -> bool {
    conditions::is_true(job, "Complete") || conditions::is_true(job, "Failed")
}

/// Removes the finalizer of a Pod whose Job is deleted or finished.
pub(in crate::controllers) fn sync_pod(state: &mut State, namespace: &str, name: &str) -> Step {
    let pod_id = id("", "pods", namespace, name);
    let Some(pod) = load(state, &pod_id) else { return Ok(Next::Done) };
    let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let job = owners.filter(|owner| owner["controller"] == true && owner["kind"] == "Job").find_map(|owner| {
        let job = load(state, &id("batch", "jobs", namespace, owner["name"].as_str()?))?;
        (owner["uid"] == meta(&job, "uid")).then_some(job)
    });
    if job.is_none_or(|job| is_finished(&job)) && has_finalizer(&pod, JOB_TRACKING) {
        edit(state, &pod_id, CONTROLLER, |pod| remove_finalizer(pod, JOB_TRACKING))?;
    }
    Ok(Next::Done)
}

pub(in crate::controllers) fn sync(state: &mut State, namespace: &str, name: &str) -> Step {
    let job_id = id("batch", "jobs", namespace, name);
    let Some(job) = load(state, &job_id) else {
        // The Pods of a deleted Job are orphans.
        let of_job = |pod: &Stored| pod.owners.iter().any(|owner| &*owner.kind == "Job" && &*owner.name == name);
        for pod in objects(state, "", "pods", namespace).iter().filter(|pod| of_job(pod)) {
            sync_pod(state, namespace, &pod.name)?;
        }
        return Ok(Next::Done);
    };
    if is_finished(&job) || job["spec"]["managedBy"].as_str().is_some_and(|by| by != "kubernetes.io/job-controller") {
        return Ok(Next::Done);
    }
    let mut pods = claim(state, &job, &ResourceId::new("", "pods"), CONTROLLER);
    let mut tally = Tally::new(&job, &pods);
    let now = state.clock.text();
    if tally.fails {
        state.controllers.failed_jobs.insert(meta(&job, "uid").into(), Instant::now());
    }
    let finished = tally.finished();
    let mut next = Next::Done;
    if finished.is_some() {
        tally.stop(state, &mut pods)?;
    } else if !is_deleting(&job) {
        next = tally.manage(state, &job, &mut pods)?;
    }
    let status = tally.status(&job, &pods, finished, &now);
    edit_status(state, &job_id, CONTROLLER, |object| object["status"] = status)?;
    for pod in &tally.done {
        let pod_id = id("", "pods", namespace, pod);
        edit(state, &pod_id, CONTROLLER, |pod| remove_finalizer(pod, JOB_TRACKING))?;
    }
    Ok(next)
}

/// The progress of a Job.
struct Tally {
    succeeded: i64,
    failed: i64,
    completions: Option<i64>,
    parallelism: i64,
    suspended: bool,
    backoff_limit: i64,
    /// Pods that are counted in this step and no longer tracked afterwards.
    done: Vec<String>,
    /// Whether any of them failed.
    fails: bool,
}

impl Tally {
    fn new(job: &Value, pods: &[Value]) -> Self {
        let number = |value: &Value| value.as_i64().unwrap_or(0);
        let tracked = || pods.iter().filter(|pod| has_finalizer(pod, JOB_TRACKING));
        let failed = |pod: &&Value| phase(pod) == "Failed" || is_deleting(pod) && phase(pod) != "Succeeded";
        let name = |pod: &Value| meta(pod, "name").to_owned();
        let (succeeded, gone): (Vec<_>, Vec<_>) =
            (tracked().filter(|pod| phase(pod) == "Succeeded").collect(), tracked().filter(failed).collect());
        let spec = &job["spec"];
        Self {
            succeeded: number(&job["status"]["succeeded"]) + count(succeeded.iter().copied()),
            failed: number(&job["status"]["failed"]) + count(gone.iter().copied()),
            completions: spec["completions"].as_i64(),
            parallelism: spec["parallelism"].as_i64().unwrap_or(1),
            suspended: spec["suspend"] == true,
            backoff_limit: spec["backoffLimit"].as_i64().unwrap_or(6),
            fails: !gone.is_empty(),
            done: succeeded.into_iter().chain(gone).map(name).collect(),
        }
    }

    /// Returns the type, reason and message of the final condition, if the Job is finished.
    fn finished(&self) -> Option<(&'static str, &'static str, &'static str)> {
        if self.failed > self.backoff_limit {
            return Some(("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        let enough = self.succeeded >= self.completions.unwrap_or(1) && self.completions != Some(0);
        let reached = "Reached expected number of succeeded pods";
        (enough || self.completions == Some(0)).then_some(("Complete", "CompletionsReached", reached))
    }

    /// Deletes the Pods that are still active.
    fn stop(&mut self, state: &mut State, pods: &mut Vec<Value>) -> Result<(), ApiError> {
        let Some(kind) = state.kinds.find("", "pods") else { return Ok(()) };
        let writer = writer(kind, CONTROLLER);
        for pod in pods.iter().filter(|pod| is_active(pod)) {
            delete(state, &writer, meta(pod, "namespace"), meta(pod, "name"), &DeleteOptions::default())?;
            self.done.push(meta(pod, "name").to_owned());
        }
        pods.retain(|pod| !is_active(pod));
        Ok(())
    }

    /// Creates missing Pods, with a delay after failures.
    fn manage(&self, state: &mut State, job: &Value, pods: &mut Vec<Value>) -> Result<Next, ApiError> {
        let Some(kind) = state.kinds.find("", "pods") else { return Ok(Next::Done) };
        let writer = writer(kind, CONTROLLER);
        let active = count(pods.iter().filter(|pod| is_active(pod)));
        let open = self.completions.map_or(self.parallelism, |completions| completions - self.succeeded);
        let wanted = if self.suspended { 0 } else { self.parallelism.min(open) };
        if wanted > active
            && let Some(since) = state.controllers.failed_jobs.get(meta(job, "uid")).map(Instant::elapsed)
        {
            let doubled = u32::try_from(self.failed - 1).ok().and_then(|times| 2u32.checked_pow(times));
            let delay = doubled.map_or(LONGEST_BACKOFF, |times| BACKOFF.saturating_mul(times).min(LONGEST_BACKOFF));
            if since < delay {
                return Ok(Next::After(delay - since));
            }
        }
        for _ in active..wanted {
            let pod = pod(job, &job["spec"]["template"], &[JOB_TRACKING]);
            pods.push(create(state, &writer, meta(job, "namespace"), pod)?.object);
        }
        Ok(Next::Done)
    }

    fn status(&self, job: &Value, pods: &[Value], finished: Option<(&str, &str, &str)>, now: &str) -> Value {
        let mut status = job["status"].clone();
        if !status.is_object() {
            status = json!({});
        }
        if status["startTime"].is_null() && !self.suspended {
            status["startTime"] = now.into();
        }
        for (field, number) in [
            ("active", count(pods.iter().filter(|pod| is_active(pod)))),
            ("succeeded", self.succeeded),
            ("failed", self.failed),
        ] {
            super::replica_sets::set_count(&mut status, field, number);
        }
        status["ready"] = count(pods.iter().filter(|pod| is_active(pod) && is_ready(pod))).into();
        status["terminating"] = count(pods.iter().filter(|pod| is_deleting(pod))).into();
        status["uncountedTerminatedPods"] = json!({});
        let Some((name, reason, message)) = finished else { return status };
        let before = if name == "Complete" { "SuccessCriteriaMet" } else { "FailureTarget" };
        for name in [before, name] {
            conditions::set(&mut status, &Condition { name, status: true, reason, message }, now);
        }
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastProbeTime"] = condition["lastTransitionTime"].clone();
        }
        if name == "Complete" {
            status["completionTime"] = now.into();
        }
        status
    }
}
