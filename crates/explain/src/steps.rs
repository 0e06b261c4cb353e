//! The next steps: what to do, as exact commands where the evidence supports one, and what each costs.
//!
//! A command with the risk `none` removes its cause. Advice without a command tells what to repair.

use serde_json::Value;

use crate::{Backend, NextStep, ObjectRef, Risk, known::known_of, shell::quoted};

fn advice(message: impl Into<String>) -> NextStep {
    NextStep { risk: Risk::None, message: message.into(), command: None }
}

fn command(risk: Risk, message: impl Into<String>, command: String) -> NextStep {
    NextStep { risk, message: message.into(), command: Some(command) }
}

/// Returns `kind.group/name -n namespace`, as kubectl takes it.
fn target(object: &ObjectRef) -> String {
    let kind = object.group_kind().to_string().to_lowercase();
    let namespace = object.namespace.as_ref().map(|namespace| format!(" -n {}", quoted(namespace))).unwrap_or_default();
    format!("{}{namespace}", quoted(&format!("{kind}/{}", object.name)))
}

/// A workload was scaled to 0.
pub(crate) fn scale_up(workload: &ObjectRef) -> NextStep {
    let message = format!("start {workload} again and let it finish");
    command(Risk::None, message, format!("kubectl scale {} --replicas=1", target(workload)))
}

/// The controller of a finalizer is absent.
pub(crate) fn bring_back(controller: &str) -> NextStep {
    advice(format!("bring the same version of {controller} back, let it remove the finalizer, then remove it again"))
}

/// The controller of a finalizer is there, and does not work.
pub(crate) fn repair(controller: &str) -> NextStep {
    advice(format!("repair {controller}; it then removes the finalizer by itself"))
}

/// It is not known whether the controller of a finalizer works.
pub(crate) fn check(controller: &str) -> NextStep {
    advice(format!(
        "find out whether {controller} works, which removes the finalizer; it may run outside of the cluster"
    ))
}

/// A webhook or policy denies a request.
pub(crate) fn denied(by: &str) -> Vec<NextStep> {
    vec![advice(format!("do what the message of {by} asks for, or exempt objects that are being deleted from it"))]
}

/// The finalizer is removed by hand if its controller is absent.
pub(crate) fn remove_finalizer(object: &ObjectRef, finalizer: &str, index: usize) -> Option<NextStep> {
    by_hand("only if that controller cannot come back", object, finalizer, index)
}

/// The finalizer is removed by hand, if it is known what that costs.
fn by_hand(when: &str, object: &ObjectRef, finalizer: &str, index: usize) -> Option<NextStep> {
    let known = known_of(finalizer, object, &Value::Null)?;
    let path = format!("/metadata/finalizers/{index}");
    let patch = format!(r#"[{{"op":"test","path":"{path}","value":"{finalizer}"}},{{"op":"remove","path":"{path}"}}]"#);
    let message = format!("{when}: remove the finalizer by hand; what is lost: {}", known.lost);
    Some(command(known.risk, message, format!("kubectl patch {} --type=json -p {}", target(object), quoted(&patch))))
}

/// A controller reports why it cannot finish.
pub(crate) fn repair_reported() -> NextStep {
    advice("repair what it reports; the controller tries again by itself")
}

/// Objects that a cleanup needs do not exist.
pub(crate) fn restore(target: &str) -> NextStep {
    advice(format!("recreate {target} as it was, and let the controller finish"))
}

/// Objects that a cleanup needs do not exist, and cannot be recreated because their namespace is being deleted.
pub(crate) fn lost(
    target: &ObjectRef,
    namespace: &str,
    object: &ObjectRef,
    finalizer: &str,
    index: usize,
) -> Vec<NextStep> {
    let cannot = format!("namespace {namespace} is being deleted, so {target} cannot be created there again");
    let by_hand = by_hand("if the controller cannot do without it", object, finalizer, index);
    match by_hand {
        Some(step) => vec![advice(cannot), step],
        None => vec![advice(format!(
            "{cannot}; find out what the controller has to clean up, do that by hand, then remove the finalizer"
        ))],
    }
}

/// Nobody knows who removes a finalizer.
pub(crate) fn find_out(finalizer: &str) -> NextStep {
    advice(format!("find out which program sets {finalizer}, and what it has to clean up, before removing it"))
}

/// An aggregated API is unavailable.
pub(crate) fn api_service(object: &ObjectRef, backend: &Backend) -> Vec<NextStep> {
    let delete = format!("kubectl delete apiservice {}", quoted(&object.name));
    match backend {
        Backend::ServiceMissing(service) => vec![
            command(
                Risk::None,
                format!("delete the APIService if its product is not to come back: Service {service} does not exist"),
                delete,
            ),
            advice(format!("or install Service {service} again")),
        ],
        _ => vec![
            advice("repair the Service behind it"),
            command(
                Risk::AffectsOthers,
                "or delete the APIService; clients of this API then get 404 until it is installed again",
                delete,
            ),
        ],
    }
}

/// A webhook cannot be reached.
pub(crate) fn webhook(configuration: &ObjectRef, backend: &Backend, has_others: bool) -> Vec<NextStep> {
    let delete = format!("kubectl delete {} {}", configuration.kind.to_lowercase(), quoted(&configuration.name));
    match (backend, has_others) {
        (Backend::ServiceMissing(service), false) => vec![
            command(
                Risk::None,
                format!(
                    "delete the configuration if its product is not to come back: Service {service} does not exist"
                ),
                delete,
            ),
            advice(format!("or install Service {service} again")),
        ],
        // Whoever may write an Event or a condition can quote a webhook that works.
        (Backend::Reported(report), _) if report.contains("x509") => {
            vec![advice(
                "renew the certificate of the webhook, and the caBundle of its configuration, so that they match",
            )]
        }
        (Backend::Reported(_), _) => {
            vec![advice("find out why the API server cannot call this webhook, and repair it")]
        }
        _ => vec![
            advice("repair the Service of the webhook"),
            command(
                Risk::AffectsOthers,
                "or delete the configuration; requests are then no longer checked by its webhooks",
                delete,
            ),
        ],
    }
}

/// Instances of a CRD cannot be converted.
pub(crate) fn conversion(crd: &ObjectRef) -> Vec<NextStep> {
    let patch = r#"{"spec":{"conversion":{"strategy":"None","webhook":null}}}"#;
    vec![
        advice("bring the Service of the conversion webhook back"),
        command(
            Risk::LosesData,
            "or stop converting, only if all instances are to be deleted: fields that differ between versions are lost when one is written",
            format!("kubectl patch crd {} --type=merge -p '{patch}'", quoted(&crd.name)),
        ),
    ]
}

/// An object cannot be decoded.
pub(crate) fn unreadable() -> Vec<NextStep> {
    vec![advice(
        "restore the encryption key or the component that can read the object; only then, or with the API server's feature \
         for unreadable objects, can it be deleted",
    )]
}

/// An object has no room for the mark for deletion.
pub(crate) fn shrink() -> Vec<NextStep> {
    vec![advice(
        "make it smaller first, for example by removing an annotation or data that nobody needs, then delete it",
    )]
}

/// A Namespace was finalized by force.
pub(crate) fn recreate_namespace(name: &str) -> Vec<NextStep> {
    vec![
        command(
            Risk::None,
            "recreate the Namespace, so that finalizers can be removed",
            format!("kubectl create namespace {}", quoted(name)),
        ),
        advice("then delete the Namespace, and wait until the namespace controller has finished"),
    ]
}

/// A right is missing.
pub(crate) fn right() -> Vec<NextStep> {
    vec![advice("restore the role and its binding, and let the controller finish; delete them last")]
}

/// A disruption budget blocks.
pub(crate) fn eviction() -> Vec<NextStep> {
    vec![advice("make the Pods of the budget healthy, add a replica, or let the budget allow a disruption")]
}

/// The control plane does not work.
pub(crate) fn control_plane(component: &str) -> Vec<NextStep> {
    vec![advice(format!("restart {component} on the control plane"))]
}

/// A Namespace has another entry in `spec.finalizers`.
pub(crate) fn namespace_finalizer(finalizer: &str) -> Vec<NextStep> {
    vec![advice(format!(
        "once the content is gone, remove only {finalizer} through the subresource finalize, with the resourceVersion that was read"
    ))]
}

/// A Pod uses a claim.
pub(crate) fn end_use(by: &str) -> Vec<NextStep> {
    vec![advice(format!("delete {by} first, if its data is no longer needed"))]
}

/// A Pod cannot be ended by its node.
pub(crate) fn dead_node(node: &str) -> Vec<NextStep> {
    vec![advice(format!(
        "prove that node {node} is off, then delete its Node object; a Pod that still runs there would write to the same volume"
    ))]
}

/// The node of a Pod does not exist.
pub(crate) fn missing_node() -> Vec<NextStep> {
    vec![advice(
        "check that kube-controller-manager works: its garbage collector deletes the Pods of nodes that do not exist",
    )]
}

/// A node does not end a Pod.
pub(crate) fn living_node(node: &str) -> Vec<NextStep> {
    vec![advice(format!("look at the kubelet of node {node}; a forced deletion would not stop the containers"))]
}

/// An object is recreated by its manager.
pub(crate) fn stop_source(manager: &str) -> Vec<NextStep> {
    vec![advice(format!("delete it at its source, or suspend {manager} first"))]
}

/// A protection must be lifted.
pub(crate) fn lift(how: &str) -> Vec<NextStep> {
    vec![advice(how)]
}

/// A reference to an owner is invalid.
pub(crate) fn owner() -> Vec<NextStep> {
    vec![advice("remove this owner reference, and have the program that sets it repaired")]
}

#[cfg(test)]
mod tests {
    use billhook_objects::ApiVersion;

    use super::*;

    #[test]
    fn no_name_leaves_its_word() {
        let check = |name: &str, expected: &str| {
            let version = ApiVersion::new("rbac.authorization.k8s.io", "v1");
            let role = ObjectRef::new(version, "Role", Some("shop"), name);
            let step = remove_finalizer(&role, "finalizers.gatekeeper.sh/sync", 0).unwrap();
            let command = step.command.unwrap();
            let start = format!("kubectl patch {expected} -n shop --type=json -p '[{{");
            assert!(command.starts_with(&start), "{command}");
        };
        check("reader", "role.rbac.authorization.k8s.io/reader");
        check("system:reader", "role.rbac.authorization.k8s.io/system:reader");
        check("a; rm -rf ~", "'role.rbac.authorization.k8s.io/a; rm -rf ~'");
        check("a'$(b)", r"'role.rbac.authorization.k8s.io/a'\''$(b)'");
    }
}
