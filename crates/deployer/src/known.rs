//! What the controller keeps of each item: what decides when there is work. The rest is read when work starts.

use std::ops::Deref;

use serde::{Deserialize, Deserializer};

use crate::{
    api::{Condition, DeployItem, DeployItemStatus, has_finalizer, size},
    configuration::{configuration, schedule_of},
    schedule::Schedule,
    trigger::{self, Trigger, is_deleted},
};

/// An item without its configuration, its conditions (except ours while it runs), its errors and the state of its deployer.
#[derive(Clone, Debug)]
pub(crate) struct KnownItem {
    object: DeployItem,
    /// The size of its configuration in bytes, about as JSON.
    pub size: usize,
    /// The schedule of its `continuousReconcile`.
    pub schedule: Option<Schedule>,
    /// Whether no deployer has written its status, so that the whole status is kept.
    pub is_untouched: bool,
    /// Whether it is untouched, and deploying it begins with adding our finalizer.
    pub is_fresh: bool,
}

impl Deref for KnownItem {
    type Target = DeployItem;

    fn deref(&self) -> &DeployItem {
        &self.object
    }
}

impl KnownItem {
    /// Returns the schedule that counts if this triggers the work. Landscaper has schedules of its own.
    pub(crate) fn schedule(&self, trigger: Trigger) -> Option<&Schedule> {
        self.schedule.as_ref().filter(|_| trigger == Trigger::Generations)
    }

    /// Returns the object as far as it is kept.
    pub(crate) fn to_object(&self) -> DeployItem {
        self.object.clone()
    }
}

impl From<DeployItem> for KnownItem {
    fn from(mut object: DeployItem) -> Self {
        let schedule = schedule_of(&object);
        let may_be_fresh = !has_finalizer(&object) && !is_deleted(&object);
        object.metadata.managed_fields = None;
        if let Some(annotations) = &mut object.metadata.annotations {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
        let status = object.status.take();
        let kept = status.as_ref().map(kept);
        let is_untouched = kept == status;
        let is_fresh = is_untouched && may_be_fresh && configuration(&object).is_ok();
        let size = object.spec.config.take().as_ref().map_or(0, size);
        object.status = kept;
        Self { object, size, schedule, is_untouched, is_fresh }
    }
}

impl<'de> Deserialize<'de> for KnownItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DeployItem::deserialize(deserializer).map(Self::from)
    }
}

/// Returns the part of a status that is kept.
fn kept(status: &DeployItemStatus) -> DeployItemStatus {
    let running = status.conditions.iter().filter(|condition| trigger::runs(condition));
    DeployItemStatus {
        phase: status.phase,
        observed_generation: status.observed_generation,
        last_reconcile_time: status.last_reconcile_time.clone(),
        job_id: status.job_id.clone(),
        job_id_finished: status.job_id_finished.clone(),
        job_id_generation_time: status.job_id_generation_time.clone(),
        deploy_item_phase: status.deploy_item_phase.clone(),
        transition_times: status.transition_times.clone(),
        // What it says is not needed.
        conditions: running.map(|condition| Condition { message: String::new(), ..condition.clone() }).collect(),
        last_error: None,
        last_errors: Vec::new(),
        first_error: None,
        deployer: None,
        provider_status: None,
        export_ref: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known(status: serde_json::Value) -> KnownItem {
        let item = json!({
            "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "DeployItem",
            "metadata": {
                "name": "b", "namespace": "a", "managedFields": [{ "manager": "m" }],
                "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}", "x": "y" },
            },
            "spec": {
                "type": "landscaper.gardener.cloud/kubernetes-manifest",
                "config": {
                    "apiVersion": "manifest.deployer.landscaper.gardener.cloud/v1alpha2", "kind": "ProviderConfiguration",
                    "continuousReconcile": { "every": "1h" },
                },
            },
            "status": status,
        });
        serde_json::from_value(item).unwrap()
    }

    #[test]
    fn only_what_decides_about_work_is_kept() {
        let item = known(json!({
            "phase": "Succeeded", "observedGeneration": 3, "jobID": "j", "lastReconcileTime": "2026-01-01T00:00:00Z",
            "deployer": { "identity": "i", "name": "n", "version": "v" }, "providerStatus": { "a": "b" },
        }));
        assert_eq!(item.spec.config, None);
        assert!((100..200).contains(&item.size), "{}", item.size);
        assert_eq!(item.metadata.managed_fields, None);
        assert_eq!(item.metadata.annotations.as_ref().unwrap().keys().collect::<Vec<_>>(), ["x"]);
        let status = item.status.as_ref().unwrap();
        assert_eq!((status.observed_generation, status.job_id.as_deref()), (3, Some("j")));
        assert_eq!((&status.provider_status, &status.deployer), (&None, &None));
        assert!(item.schedule(Trigger::Generations).is_some() && item.schedule(Trigger::Jobs).is_none());
        assert!(!item.is_untouched);
    }

    #[test]
    fn a_status_that_only_landscaper_has_written_is_kept_as_a_whole() {
        let times = json!({ "triggerTime": "2026-01-01T00:00:00Z" });
        for (status, untouched) in [
            (json!({ "observedGeneration": 0, "jobID": "j", "phase": "Init", "transitionTimes": times }), true),
            (json!(null), true),
            (json!({ "observedGeneration": 1, "exportRef": { "name": "x" } }), false),
            (
                json!({ "observedGeneration": 1, "lastError": { "operation": "o", "reason": "r", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z" } }),
                false,
            ),
        ] {
            assert_eq!(known(status.clone()).is_untouched, untouched, "{status}");
        }
    }
}
