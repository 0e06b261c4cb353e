//! Defaults, as a table of paths.
//!
//! A step `x` creates the field if it is missing, `x?` applies only if the field exists, `x[]` applies to each item of
//! a list, and `x=y` applies if the field has this value. Defaults are JSON. Quantities stay as they were written,
//! while Kubernetes normalizes them (`1` to `"1"`).

use serde_json::{Map, Value};

use super::{
    Kind,
    fields::{is_unset, items_mut, slot, text},
};

type Row = (&'static str, &'static str);

/// Sets all defaults of a kind.
pub(super) fn fill(kind: &Kind, object: &mut Value) {
    if let Some(template) = pod_template(kind).and_then(|path| object.pointer_mut(path)).filter(|spec| spec.is_object())
    {
        pod_spec(template);
    }
    if kind.is("", "pods") {
        pod(object);
    }
    if kind.is("admissionregistration.k8s.io", "mutatingwebhookconfigurations") {
        set(object, "webhooks[].reinvocationPolicy", r#""Never""#);
    }
    for (path, default) in rows(kind) {
        set(object, path, default);
    }
}

/// Returns the path of the Pod spec in a kind.
fn pod_template(kind: &Kind) -> Option<&'static str> {
    match (kind.group(), &*kind.id.plural) {
        ("", "pods") => Some("/spec"),
        ("", "podtemplates") => Some("/template/spec"),
        ("", "replicationcontrollers") => Some("/spec/template/spec"),
        ("apps", "deployments" | "replicasets" | "daemonsets" | "statefulsets") => Some("/spec/template/spec"),
        ("batch", "jobs") => Some("/spec/template/spec"),
        ("batch", "cronjobs") => Some("/spec/jobTemplate/spec/template/spec"),
        _ => None,
    }
}

#[rustfmt::skip]
fn rows(kind: &Kind) -> &'static [Row] {
    match (kind.group(), &*kind.id.plural) {
        ("", "endpoints") => &[("subsets[].ports[].protocol", r#""TCP""#)],
        // Go writes these structures even if they are empty.
        ("", "nodes") => &[
            ("status.daemonEndpoints.kubeletEndpoint.Port", "0"),
            ("status.nodeInfo.architecture", r#""""#),
            ("status.nodeInfo.bootID", r#""""#),
            ("status.nodeInfo.containerRuntimeVersion", r#""""#),
            ("status.nodeInfo.kernelVersion", r#""""#),
            ("status.nodeInfo.kubeProxyVersion", r#""""#),
            ("status.nodeInfo.kubeletVersion", r#""""#),
            ("status.nodeInfo.machineID", r#""""#),
            ("status.nodeInfo.operatingSystem", r#""""#),
            ("status.nodeInfo.osImage", r#""""#),
            ("status.nodeInfo.systemUUID", r#""""#),
        ],
        ("", "persistentvolumeclaims") => &[("spec.volumeMode", r#""Filesystem""#)],
        ("", "persistentvolumes") => &[
            ("spec.persistentVolumeReclaimPolicy", r#""Retain""#),
            ("spec.volumeMode", r#""Filesystem""#),
            ("spec.hostPath?.type", r#""""#),
        ],
        ("", "replicationcontrollers") => &[("spec.replicas", "1")],
        ("", "secrets") => &[("type", r#""Opaque""#)],
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations" | "validatingwebhookconfigurations") => &[
            ("webhooks[].failurePolicy", r#""Fail""#),
            ("webhooks[].matchPolicy", r#""Equivalent""#),
            ("webhooks[].namespaceSelector", "{}"),
            ("webhooks[].objectSelector", "{}"),
            ("webhooks[].timeoutSeconds", "10"),
            ("webhooks[].rules[].scope", r#""*""#),
            ("webhooks[].clientConfig?.service?.port", "443"),
        ],
        ("admissionregistration.k8s.io", "validatingadmissionpolicies" | "mutatingadmissionpolicies") => &[
            ("spec.failurePolicy", r#""Fail""#),
            ("spec.matchConstraints?.matchPolicy", r#""Equivalent""#),
            ("spec.matchConstraints?.namespaceSelector", "{}"),
            ("spec.matchConstraints?.objectSelector", "{}"),
            ("spec.matchConstraints?.resourceRules[].scope", r#""*""#),
            ("spec.matchConstraints?.excludeResourceRules[].scope", r#""*""#),
        ],
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings") => &[
            ("spec.matchResources?.matchPolicy", r#""Equivalent""#),
            ("spec.matchResources?.namespaceSelector", "{}"),
            ("spec.matchResources?.objectSelector", "{}"),
            ("spec.matchResources?.resourceRules[].scope", r#""*""#),
            ("spec.matchResources?.excludeResourceRules[].scope", r#""*""#),
        ],
        ("apiextensions.k8s.io", "customresourcedefinitions") => &[
            ("spec.conversion.strategy", r#""None""#),
            ("spec.conversion.webhook?.clientConfig?.service?.port", "443"),
        ],
        ("apiregistration.k8s.io", "apiservices") => &[("spec.service?.port", "443")],
        ("apps", "daemonsets") => &[
            ("spec.updateStrategy.type", r#""RollingUpdate""#),
            ("spec.updateStrategy.type=RollingUpdate.rollingUpdate.maxUnavailable", "1"),
            ("spec.updateStrategy.type=RollingUpdate.rollingUpdate.maxSurge", "0"),
            ("spec.revisionHistoryLimit", "10"),
        ],
        ("apps", "deployments") => &[
            ("spec.replicas", "1"),
            ("spec.strategy.type", r#""RollingUpdate""#),
            ("spec.strategy.type=RollingUpdate.rollingUpdate.maxUnavailable", r#""25%""#),
            ("spec.strategy.type=RollingUpdate.rollingUpdate.maxSurge", r#""25%""#),
            ("spec.revisionHistoryLimit", "10"),
            ("spec.progressDeadlineSeconds", "600"),
        ],
        ("apps", "replicasets") => &[("spec.replicas", "1")],
        ("apps", "statefulsets") => &[
            ("spec.podManagementPolicy", r#""OrderedReady""#),
            ("spec.updateStrategy", r#"{"type": "RollingUpdate", "rollingUpdate": {}}"#),
            ("spec.updateStrategy.type", r#""RollingUpdate""#),
            ("spec.updateStrategy.type=RollingUpdate.rollingUpdate?.partition", "0"),
            ("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", r#""Retain""#),
            ("spec.persistentVolumeClaimRetentionPolicy.whenScaled", r#""Retain""#),
            ("spec.replicas", "1"),
            ("spec.revisionHistoryLimit", "10"),
            ("spec.serviceName", r#""""#),
            ("spec.volumeClaimTemplates[].apiVersion", r#""v1""#),
            ("spec.volumeClaimTemplates[].kind", r#""PersistentVolumeClaim""#),
            ("spec.volumeClaimTemplates[].spec.volumeMode", r#""Filesystem""#),
            ("spec.volumeClaimTemplates[].status.phase", r#""Pending""#),
        ],
        ("autoscaling", "horizontalpodautoscalers") => &[
            ("spec.minReplicas", "1"),
            ("spec.metrics", r#"[{"type": "Resource", "resource":
                {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]"#),
            ("spec.behavior?.scaleUp.stabilizationWindowSeconds", "0"),
            ("spec.behavior?.scaleUp.selectPolicy", r#""Max""#),
            ("spec.behavior?.scaleUp.policies", r#"[{"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15}]"#),
            ("spec.behavior?.scaleDown.selectPolicy", r#""Max""#),
            ("spec.behavior?.scaleDown.policies", r#"[{"type": "Percent", "value": 100, "periodSeconds": 15}]"#),
        ],
        ("batch", "cronjobs") => &[
            ("spec.concurrencyPolicy", r#""Allow""#),
            ("spec.suspend", "false"),
            ("spec.successfulJobsHistoryLimit", "3"),
            ("spec.failedJobsHistoryLimit", "1"),
        ],
        ("batch", "jobs") => &[
            ("spec.parallelism", "1"),
            ("spec.backoffLimit", "6"),
            ("spec.completionMode", r#""NonIndexed""#),
            ("spec.suspend", "false"),
            ("spec.manualSelector", "false"),
        ],
        ("discovery.k8s.io", "endpointslices") => &[("ports[].name", r#""""#), ("ports[].protocol", r#""TCP""#)],
        ("networking.k8s.io", "ingressclasses") => &[("spec.parameters?.scope", r#""Cluster""#)],
        ("networking.k8s.io", "networkpolicies") => &[
            ("spec.ingress[].ports[].protocol", r#""TCP""#),
            ("spec.egress[].ports[].protocol", r#""TCP""#),
        ],
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => &[
            ("roleRef.apiGroup", r#""rbac.authorization.k8s.io""#),
            ("subjects[].kind=User.apiGroup", r#""rbac.authorization.k8s.io""#),
            ("subjects[].kind=Group.apiGroup", r#""rbac.authorization.k8s.io""#),
        ],
        ("scheduling.k8s.io", "priorityclasses") => &[("preemptionPolicy", r#""PreemptLowerPriority""#)],
        ("storage.k8s.io", "csidrivers") => &[
            ("spec.attachRequired", "true"),
            ("spec.podInfoOnMount", "false"),
            ("spec.storageCapacity", "false"),
            ("spec.fsGroupPolicy", r#""ReadWriteOnceWithFSType""#),
            ("spec.volumeLifecycleModes", r#"["Persistent"]"#),
            ("spec.requiresRepublish", "false"),
            ("spec.seLinuxMount", "false"),
        ],
        ("storage.k8s.io", "storageclasses") => &[
            ("reclaimPolicy", r#""Delete""#),
            ("volumeBindingMode", r#""Immediate""#),
        ],
        _ => &[],
    }
}

/// The defaults of every Pod spec. `restartPolicy` gets its default even in Jobs, which then reject it.
const POD_SPEC: &[Row] = &[
    ("dnsPolicy", r#""ClusterFirst""#),
    ("restartPolicy", r#""Always""#),
    ("securityContext", "{}"),
    ("terminationGracePeriodSeconds", "30"),
    ("schedulerName", r#""default-scheduler""#),
    ("volumes[].secret?.defaultMode", "420"),
    ("volumes[].configMap?.defaultMode", "420"),
    ("volumes[].downwardAPI?.defaultMode", "420"),
    ("volumes[].downwardAPI?.items[].fieldRef?.apiVersion", r#""v1""#),
    ("volumes[].projected?.defaultMode", "420"),
    ("volumes[].projected?.sources[].serviceAccountToken?.expirationSeconds", "3600"),
    ("volumes[].projected?.sources[].downwardAPI?.items[].fieldRef?.apiVersion", r#""v1""#),
    ("volumes[].hostPath?.type", r#""""#),
    ("volumes[].ephemeral?.volumeClaimTemplate?.spec?.volumeMode", r#""Filesystem""#),
];

const CONTAINER: &[Row] = &[
    ("terminationMessagePath", r#""/dev/termination-log""#),
    ("terminationMessagePolicy", r#""File""#),
    ("resources", "{}"),
    ("ports[].protocol", r#""TCP""#),
    ("env[].valueFrom?.fieldRef?.apiVersion", r#""v1""#),
    ("lifecycle?.postStart?.httpGet?.path", r#""/""#),
    ("lifecycle?.postStart?.httpGet?.scheme", r#""HTTP""#),
    ("lifecycle?.preStop?.httpGet?.path", r#""/""#),
    ("lifecycle?.preStop?.httpGet?.scheme", r#""HTTP""#),
];

const PROBE: &[Row] = &[
    ("timeoutSeconds", "1"),
    ("periodSeconds", "10"),
    ("successThreshold", "1"),
    ("failureThreshold", "3"),
    ("httpGet?.path", r#""/""#),
    ("httpGet?.scheme", r#""HTTP""#),
    ("grpc?.service", r#""""#),
];

const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

fn pod_spec(spec: &mut Value) {
    for (path, default) in POD_SPEC {
        set(spec, path, default);
    }
    // `serviceAccount` is a deprecated alias of `serviceAccountName`.
    let account = Some(text(spec, "serviceAccountName")).filter(|name| !name.is_empty());
    let account = account.unwrap_or_else(|| text(spec, "serviceAccount")).to_owned();
    if !account.is_empty() {
        spec["serviceAccountName"] = account.as_str().into();
        spec["serviceAccount"] = account.into();
    }
    for volume in items_mut(spec.get_mut("volumes")) {
        if volume.as_object().is_some_and(|fields| fields.iter().all(|(key, value)| key == "name" || value.is_null())) {
            volume["emptyDir"] = Value::Object(Map::new());
        }
    }
    for list in CONTAINERS {
        items_mut(spec.get_mut(list)).filter(|container| container.is_object()).for_each(container);
    }
}

fn container(container: &mut Value) {
    for (path, default) in CONTAINER {
        set(container, path, default);
    }
    if is_unset(&container["imagePullPolicy"]) {
        let latest = image_tag(text(container, "image")) == "latest";
        container["imagePullPolicy"] = if latest { "Always" } else { "IfNotPresent" }.into();
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).filter(|probe| probe.is_object()) {
            for (path, default) in PROBE {
                set(probe, path, default);
            }
        }
    }
}

/// Returns the tag of an image: `latest` if it has neither a tag nor a digest.
fn image_tag(image: &str) -> &str {
    if image.contains('@') {
        return "";
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split_once(':').map_or("latest", |(_, tag)| tag)
}

/// Sets the defaults that Pods have and Pod templates do not.
fn pod(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    set(spec, "enableServiceLinks", "true");
    let host = spec["hostNetwork"] == true;
    for list in ["containers", "initContainers"] {
        for container in items_mut(spec.get_mut(list)) {
            let limits = container["resources"]["limits"].as_object().cloned().unwrap_or_default();
            for (resource, limit) in limits {
                if let Some(request) = slot(container, &["resources", "requests", &resource]).filter(|r| is_unset(r)) {
                    *request = limit;
                }
            }
            for port in items_mut(container.get_mut("ports")).filter(|port| host && port.is_object()) {
                if port["hostPort"].as_i64().unwrap_or_default() == 0 {
                    port["hostPort"] = port["containerPort"].clone();
                }
            }
        }
    }
}

/// Sets the field at a path unless it is set.
pub(super) fn set(value: &mut Value, path: &str, default: &str) {
    let (step, rest) = path.split_once('.').map_or((path, None), |(step, rest)| (step, Some(rest)));
    if let Some((field, wanted)) = step.split_once('=') {
        if text(value, field) == wanted {
            rest.into_iter().for_each(|rest| set(value, rest, default));
        }
        return;
    }
    let Some(object) = value.as_object_mut() else { return };
    if let Some(list) = step.strip_suffix("[]") {
        let rest = rest.unwrap_or_default();
        return items_mut(object.get_mut(list)).for_each(|item| set(item, rest, default));
    }
    if let Some(field) = step.strip_suffix('?') {
        let found = object.get_mut(field).filter(|found| found.is_object());
        return found.zip(rest).into_iter().for_each(|(found, rest)| set(found, rest, default));
    }
    let field = object.entry(step).or_insert(Value::Null);
    match rest {
        Some(rest) => {
            if field.is_null() {
                *field = Value::Object(Map::new());
            }
            set(field, rest, default);
        }
        None if is_unset(field) => *field = serde_json::from_str(default).unwrap_or_default(),
        None => {}
    }
}
