//! The fields of an existing object that a replacement keeps: the API server rejects their removal, or the cluster has set
//! them and no manifest contains them.

use serde_json::Value;

use super::merge::is_empty;

/// Returns the manifest with the values that it leaves open and the object must keep. A value is open if it is missing or
/// empty (`""`, 0, `[]`, `{}`). All other values are the manifest's, and the API server rejects those that it does not allow.
///
/// | kind | kept |
/// |---|---|
/// | all | `status`; name and namespace; the finalizers of an object that is being deleted, because without them it would be removed before its controllers have cleaned up |
/// | Service | `clusterIP(s)`, `ipFamilies`, `ipFamilyPolicy`, node ports by the name of the port, `healthCheckNodePort`, `loadBalancerClass`, each only if the type of the Service uses it |
/// | PersistentVolumeClaim, Pod | all of `spec`, which is immutable but for a few fields: entries of lists by name |
/// | PersistentVolume | `claimRef`, with the UID where it names the same claim; `nodeAffinity` |
/// | Job | the selector and the labels of its Pods, even if the manifest has others: as in Landscaper, because a chart's version among these labels would make every update fail |
/// | ServiceAccount | `secrets` |
/// | Secret | `type` |
/// | webhook configurations, CRD, APIService | `caBundle`, which an injector sets |
///
/// Labels, annotations, owner references, and the finalizers of an object that is not being deleted come from the manifest
/// alone, as in Landscaper: otherwise they could never be removed. The replacement carries the `resourceVersion` that was
/// read, so that it overwrites neither a newer state nor another object of the same name.
pub(super) fn carried(live: &Value, mut object: Value) -> Value {
    keep(&mut object, live, &["status"]);
    keep(&mut object["metadata"], &live["metadata"], &["name", "namespace"]);
    if live["metadata"].get("deletionTimestamp").is_some() {
        object["metadata"]["finalizers"] = live["metadata"]["finalizers"].clone();
    }
    let group = live["apiVersion"].as_str().and_then(|text| text.split_once('/')).map_or("", |(group, _)| group);
    match (group, live["kind"].as_str().unwrap_or_default()) {
        ("", "Service") => service(&mut object["spec"], &live["spec"]),
        ("", "PersistentVolumeClaim" | "Pod") => fill(&mut object["spec"], &live["spec"]),
        ("", "PersistentVolume") => volume(&mut object["spec"], &live["spec"]),
        ("", "ServiceAccount") => keep(&mut object, live, &["secrets"]),
        ("", "Secret") => keep(&mut object, live, &["type"]),
        ("batch", "Job") => job(&mut object["spec"], &live["spec"]),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
            webhooks(&mut object["webhooks"], &live["webhooks"]);
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            if let Some(config) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
                keep(config, &live["spec"]["conversion"]["webhook"]["clientConfig"], &["caBundle"]);
            }
        }
        ("apiregistration.k8s.io", "APIService") if object["spec"]["insecureSkipTLSVerify"] != true => {
            keep(&mut object["spec"], &live["spec"], &["caBundle"]);
        }
        _ => {}
    }
    object
}

/// Copies those of these fields that are open and that the live object has.
fn keep(object: &mut Value, live: &Value, fields: &[&str]) {
    let Some(object) = object.as_object_mut() else { return };
    for field in fields {
        if let Some(value) = live.get(field)
            && object.get(*field).is_none_or(is_empty)
        {
            object.insert((*field).to_owned(), value.clone());
        }
    }
}

/// Keeps the fields that the type of a Service uses, as `patchAllocatedValues` in Kubernetes' pkg/registry/core/service.
fn service(spec: &mut Value, live: &Value) {
    let both = |spec: &Value, test: fn(&Value) -> bool| test(spec) && test(live);
    if both(spec, |spec| service_type(spec) != "ExternalName")
        && (spec.get("clusterIP").is_none_or(is_empty) || spec["clusterIP"] == live["clusterIP"])
    {
        keep(spec, live, &["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]);
    }
    if both(spec, has_node_ports) {
        node_ports(&mut spec["ports"], &live["ports"]);
    }
    if both(spec, |spec| service_type(spec) == "LoadBalancer") {
        keep(spec, live, &["loadBalancerClass"]);
        if both(spec, |spec| spec["externalTrafficPolicy"] == "Local") {
            keep(spec, live, &["healthCheckNodePort"]);
        }
    }
}

fn service_type(spec: &Value) -> &str {
    spec["type"].as_str().unwrap_or("ClusterIP")
}

fn has_node_ports(spec: &Value) -> bool {
    match service_type(spec) {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

fn node_ports(ports: &mut Value, live: &Value) {
    let (Some(ports), Some(live)) = (ports.as_array_mut(), live.as_array()) else { return };
    let taken: Vec<Value> = ports.iter().filter_map(|port| port.get("nodePort").cloned()).collect();
    for port in ports {
        // A single port has no name.
        let old = live.iter().find(|old| old.get("name") == port.get("name"));
        if let Some(old) = old
            && old.get("nodePort").is_some_and(|number| !taken.contains(number))
        {
            keep(port, old, &["nodePort"]);
        }
    }
}

fn volume(spec: &mut Value, live: &Value) {
    let claim = |spec: &Value| [spec["claimRef"]["namespace"].clone(), spec["claimRef"]["name"].clone()];
    keep(spec, live, &["claimRef", "nodeAffinity"]);
    if claim(spec) == claim(live) {
        fill(&mut spec["claimRef"], &live["claimRef"]);
    }
}

fn job(spec: &mut Value, live: &Value) {
    if let Some(selector) = live.get("selector") {
        spec["selector"] = selector.clone();
    }
    if let (Some(labels), Some(template)) = (live.pointer("/template/metadata/labels"), spec.get_mut("template"))
        && template.get("metadata").is_none_or(|metadata| metadata.is_object() || metadata.is_null())
        && template.is_object()
    {
        template["metadata"]["labels"] = labels.clone();
    }
}

fn webhooks(webhooks: &mut Value, live: &Value) {
    let (Some(webhooks), Some(live)) = (webhooks.as_array_mut(), live.as_array()) else { return };
    for webhook in webhooks {
        if let Some(old) = live.iter().find(|old| old["name"] == webhook["name"])
            && let Some(config) = webhook.get_mut("clientConfig")
        {
            keep(config, &old["clientConfig"], &["caBundle"]);
        }
    }
}

/// Fills in the values that the manifest leaves open, at every depth. Lists get the order of the live object.
fn fill(object: &mut Value, live: &Value) {
    match (object, live) {
        (Value::Object(object), Value::Object(live)) => {
            for (key, value) in live {
                fill(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(list), Value::Array(live)) if !list.is_empty() => {
            let Some(key) = list_key(list, live) else { return };
            let mut left = std::mem::take(list);
            for old in live {
                let place = left.iter().position(|entry| entry[key] == old[key]);
                let mut entry = place.map_or(Value::Null, |place| left.remove(place));
                fill(&mut entry, old);
                list.push(entry);
            }
            list.append(&mut left);
        }
        // A number or boolean is never open.
        (Value::Bool(_) | Value::Number(_), _) => {}
        (object, live) if is_empty(object) => *object = live.clone(),
        _ => {}
    }
}

/// Returns the key that identifies the entries of both lists. The name of a volume mount is not unique.
fn list_key(list: &[Value], live: &[Value]) -> Option<&'static str> {
    let keys = ["mountPath", "devicePath", "name"];
    keys.into_iter().find(|key| list.iter().chain(live).all(|entry| entry.get(key).is_some()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks the spec that results from the specs of a live object and a manifest.
    fn check(version: &str, kind: &str, live: Value, manifest: Value, expected: Value) {
        let object =
            |spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec});
        let found = carried(&object(live), object(manifest.clone()));
        assert_eq!(found["spec"], expected, "{kind} {manifest}");
    }

    #[test]
    fn a_service_keeps_the_addresses_that_its_type_uses() {
        let live = json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 30100, "loadBalancerClass": "a.example/b",
            "ports": [{"name": "http", "port": 80, "nodePort": 30080}, {"name": "tls", "port": 443, "nodePort": 30443}]});
        let check = |manifest, expected| check("v1", "Service", live.clone(), manifest, expected);
        let ports = json!([{"name": "tls", "port": 8443}, {"name": "new", "port": 1}]);
        check(
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": ports}),
            json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Local",
                "healthCheckNodePort": 30100, "loadBalancerClass": "a.example/b",
                "ports": [{"name": "tls", "port": 8443, "nodePort": 30443}, {"name": "new", "port": 1}]}),
        );
        let address = |mut spec: Value| {
            spec["clusterIP"] = json!("10.0.0.1");
            spec["clusterIPs"] = json!(["10.0.0.1"]);
            spec["ipFamilies"] = json!(["IPv4"]);
            spec["ipFamilyPolicy"] = json!("SingleStack");
            spec
        };
        check(json!({"clusterIP": "", "ports": ports}), address(json!({"ports": ports})));
        let taken = json!([{"name": "http", "port": 80, "nodePort": 30443}, {"name": "tls", "port": 443}]);
        check(json!({"type": "NodePort", "ports": taken}), address(json!({"type": "NodePort", "ports": taken})));
        for unchanged in
            [json!({"type": "ExternalName", "externalName": "a.example"}), json!({"clusterIP": "None", "ports": ports})]
        {
            check(unchanged.clone(), unchanged);
        }
    }

    #[test]
    fn a_single_port_without_a_name_keeps_its_node_port() {
        let live = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]});
        let manifest = json!({"type": "NodePort", "ports": [{"port": 81}]});
        check("v1", "Service", live, manifest, json!({"type": "NodePort", "ports": [{"port": 81, "nodePort": 30080}]}));
    }

    #[test]
    fn a_claim_keeps_its_volume_and_a_volume_its_claim() {
        let claim = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Filesystem",
            "volumeName": "pv-1", "resources": {"requests": {"storage": "1Gi"}}});
        let mut wanted = claim.clone();
        wanted["resources"]["requests"]["storage"] = json!("2Gi");
        let manifest = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}});
        check("v1", "PersistentVolumeClaim", claim, manifest, wanted);

        let volume = |claim: Value| json!({"capacity": {"storage": "1Gi"}, "claimRef": claim});
        let bound = json!({"namespace": "a", "name": "b", "uid": "u", "resourceVersion": "3"});
        let check = |manifest, expected| check("v1", "PersistentVolume", volume(bound.clone()), manifest, expected);
        check(json!({"capacity": {"storage": "1Gi"}}), volume(bound.clone()));
        check(volume(json!({"namespace": "a", "name": "b"})), volume(bound.clone()));
        check(volume(json!({"namespace": "a", "name": "c"})), volume(json!({"namespace": "a", "name": "c"})));
    }

    #[test]
    fn a_job_keeps_its_selector_and_the_labels_of_its_pods() {
        let live = json!({"selector": {"matchLabels": {"controller-uid": "u"}},
            "template": {"metadata": {"labels": {"controller-uid": "u", "chart": "1"}}, "spec": {"a": 1}}});
        let manifest = json!({"template": {"metadata": {"labels": {"chart": "2"}}, "spec": {"a": 1}}});
        check("batch/v1", "Job", live.clone(), manifest, live.clone());
        check("batch/v1", "Job", live.clone(), json!({"template": {"spec": {"a": 1}}}), live);
    }

    #[test]
    fn a_pod_keeps_fields_set_by_admission_and_the_scheduler() {
        let live = json!({"nodeName": "n1", "serviceAccountName": "default",
            "containers": [{"name": "injected", "image": "p"}, {"name": "c", "image": "a:1", "volumeMounts": [
                {"name": "v", "mountPath": "/v"}, {"name": "token", "mountPath": "/t", "readOnly": true}]}],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "token", "projected": {"defaultMode": 420}}]});
        let mut expected = live.clone();
        expected["containers"][1]["image"] = json!("a:2");
        let manifest = json!({
            "containers": [{"name": "c", "image": "a:2", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}]});
        check("v1", "Pod", live, manifest, expected);
    }

    #[test]
    fn ca_bundles_of_an_injector_are_kept() {
        let hooks = |bundle: Value| json!([{"name": "a", "clientConfig": bundle}, {"name": "b", "clientConfig": {}}]);
        let object = |hooks: Value| {
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "x"}, "webhooks": hooks})
        };
        let live = object(hooks(json!({"caBundle": "old"})));
        assert_eq!(carried(&live, object(hooks(json!({})))), live);
        let new = object(hooks(json!({"caBundle": "new"})));
        assert_eq!(carried(&live, new.clone()), new);

        let spec = |bundle: Value| json!({"conversion": {"webhook": {"clientConfig": bundle}}});
        let live = spec(json!({"caBundle": "old"}));
        let version = "apiextensions.k8s.io/v1";
        check(version, "CustomResourceDefinition", live.clone(), spec(json!({})), live.clone());
        let plain = json!({"conversion": {"strategy": "None"}});
        check(version, "CustomResourceDefinition", live, plain.clone(), plain);

        let version = "apiregistration.k8s.io/v1";
        check(version, "APIService", json!({"caBundle": "old"}), json!({}), json!({"caBundle": "old"}));
        let insecure = json!({"insecureSkipTLSVerify": true});
        check(version, "APIService", json!({"caBundle": "old"}), insecure.clone(), insecure);
    }

    #[test]
    fn metadata_comes_from_the_manifest_except_finalizers_during_deletion() {
        let object = |metadata: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let manifest = object(json!({"name": "x", "namespace": "a"}));
        let live = json!({"name": "x", "namespace": "a", "labels": {"a": "b"}, "annotations": {"a": "b"},
            "ownerReferences": [{"uid": "u"}], "finalizers": ["a.example/x"]});
        assert_eq!(carried(&object(live.clone()), manifest.clone()), manifest);
        let mut leaving = live;
        leaving["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let expected = object(json!({"name": "x", "namespace": "a", "finalizers": ["a.example/x"]}));
        assert_eq!(carried(&object(leaving), manifest), expected);
    }

    #[test]
    fn secrets_of_a_service_account_and_any_status_are_kept() {
        let account = |mut object: Value| {
            object["apiVersion"] = json!("v1");
            object["kind"] = json!("ServiceAccount");
            object["metadata"] = json!({"name": "x"});
            object
        };
        let live = account(json!({"secrets": [{"name": "t"}], "status": {"a": 1}}));
        assert_eq!(carried(&live, account(json!({}))), live);
        assert_eq!(carried(&live, account(json!({"secrets": []}))), live);
        let other = account(json!({"secrets": [{"name": "o"}], "status": {"a": 2}}));
        assert_eq!(carried(&live, other.clone()), other);
    }
}
