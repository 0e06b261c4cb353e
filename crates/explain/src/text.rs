//! The wording of causes: the facts, as every front end shows them.

use std::fmt::{Display, Formatter, Result};

use crate::{Backend, Query, Reason, reason::PodWait};

impl Display for Backend {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::ServiceMissing(service) => write!(f, "its Service {service} does not exist"),
            Self::NoEndpoints(service) => write!(f, "its Service {service} has no ready endpoints"),
            Self::Reported(text) if text.is_empty() => f.write_str("the API server cannot reach it"),
            Self::Reported(text) => f.write_str(text),
        }
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::ControllerAbsent { finalizer, controller, missing } => {
                write!(f, "nobody removes the finalizer {finalizer}, because {controller} is not working: {missing}")
            }
            Self::ControllerFailing { finalizer, controller: Some(controller), report } => {
                write!(f, "{controller} cannot remove the finalizer {finalizer}: {report}")
            }
            Self::ControllerFailing { finalizer, controller: None, report } => {
                write!(f, "the controller of the finalizer {finalizer} cannot finish: {report}")
            }
            Self::InProgress { finalizer, controller, progress } => {
                write!(f, "{controller} works and has to remove the finalizer {finalizer}")?;
                match progress {
                    Some(true) => f.write_str("; it makes progress"),
                    Some(false) => f.write_str("; between two looks nothing changed, and it reports no problem"),
                    None => Ok(()),
                }
            }
            Self::FinalizerUnknown { finalizer, controller: Some(controller), .. } => {
                write!(f, "the finalizer {finalizer} is removed by {controller}; whether that works is not known")
            }
            Self::FinalizerUnknown { finalizer, controller: None, set_by } => {
                write!(f, "no controller is known that removes the finalizer {finalizer}")?;
                match set_by {
                    Some((manager, Some(time))) => write!(f, "; {manager} set it at {time}"),
                    Some((manager, None)) => write!(f, "; {manager} set it"),
                    None => Ok(()),
                }
            }
            Self::DependentsRemain { counts } => {
                write!(f, "it waits for its dependents, which are being deleted: {counts}")
            }
            Self::ContentRemains { counts } if counts.is_empty() => f.write_str("its content is being deleted"),
            Self::ContentRemains { counts } => write!(f, "its content is being deleted: {counts}"),
            Self::Queued { namespaces } => {
                write!(f, "the namespace controller is busy with {namespaces} Namespaces that are being deleted")
            }
            Self::InstancesRemain { count: Some(1) } => f.write_str("1 instance is being deleted"),
            Self::InstancesRemain { count: Some(count) } => write!(f, "{count} instances are being deleted"),
            Self::InstancesRemain { count: None } => f.write_str("its instances are being deleted"),
            Self::ApiServiceUnavailable { api, backend } => {
                write!(f, "the aggregated API {api} is unavailable: {backend}")
            }
            Self::DiscoveryBroken { api, report } => {
                write!(f, "discovery of {api} fails although its APIService claims to be available: {report}")
            }
            Self::WebhookUnavailable { webhook, operation, backend } => {
                write!(f, "the webhook {webhook} must answer {operation} and cannot be reached: {backend}")
            }
            Self::AdmissionDenied { by, message } if by.is_empty() => write!(f, "the API server rejects it: {message}"),
            Self::AdmissionDenied { by, message } => write!(f, "{by} denies it: {message}"),
            Self::ConversionUnavailable { crd, backend } => {
                write!(
                    f,
                    "instances of {crd} cannot be read, because its conversion webhook does not answer: {backend}"
                )
            }
            Self::VersionNotServed { kind, version: Some(version) } => {
                write!(f, "objects of {kind} are stored in version {version}, which is no longer served")
            }
            Self::VersionNotServed { kind, version: None } => {
                write!(f, "the API server does not serve the kind {kind}")
            }
            Self::ObjectUnreadable { kind, message } => write!(f, "an object blocks the list of {kind}: {message}"),
            Self::Forbidden { who, verb, resource, namespace } => {
                write!(f, "{who} lacks the right to {verb} {resource}")?;
                namespace.as_ref().map_or(Ok(()), |namespace| write!(f, " in namespace {namespace}"))
            }
            Self::ControllerManager { controller, why } => write!(f, "{controller} is not working: {why}"),
            Self::OwnerInvalid { owner, problem } => {
                write!(f, "the reference to its owner {owner} is invalid: {problem}")
            }
            Self::NamespaceFinalizer { finalizer } => {
                write!(f, "spec.finalizers has the entry {finalizer}, which the namespace controller does not remove")
            }
            Self::InUse { by } => write!(f, "it is still used by {by}"),
            Self::PodNotTerminated { why } => why.fmt(f),
            Self::EvictionBlocked { budget: Some(budget) } => {
                write!(f, "PodDisruptionBudget {budget} lets no Pod be evicted")
            }
            Self::EvictionBlocked { budget: None } => f.write_str("a PodDisruptionBudget lets no Pod be evicted"),
            Self::RateLimited { report } => write!(f, "requests are rejected because there are too many: {report}"),
            Self::Recreated { manager } => write!(f, "it was deleted, and {manager} recreated it"),
            Self::Protected { by } => write!(f, "it is protected: {by}"),
            Self::NotDeleting { detail: None } => f.write_str("no client has requested its deletion"),
            Self::NotDeleting { detail: Some(detail) } => write!(f, "no client has requested its deletion; {detail}"),
        }
    }
}

/// Prints what is asked: `list secrets in namespace shop`.
impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let place = |f: &mut Formatter<'_>, namespace: &Option<String>| match namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        };
        match self {
            Self::Get { resource, namespace, name, .. } => {
                write!(f, "get {} {name}", resource.kind)?;
                place(f, namespace)
            }
            Self::List { resource, namespace, .. } => {
                write!(f, "list {}", resource.kind)?;
                place(f, namespace)
            }
            Self::Discovery(path) => write!(f, "get {path}"),
            Self::Access(access) => write!(f, "create SubjectAccessReview about {}", access.user),
            Self::Probe(_) => f.write_str("send a dry run"),
        }
    }
}

impl Display for PodWait {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Grace { seconds } => write!(f, "its grace period ends in {}", duration(*seconds)),
            Self::NodeMissing(node) => {
                write!(f, "its node {node} does not exist, so nothing can confirm that its containers ended")
            }
            Self::NodeSilent(node) => {
                write!(f, "its node {node} does not respond, so nothing can confirm that its containers ended")
            }
            Self::Node { node, report: Some(report) } => {
                write!(f, "node {node} has not ended its containers: {report}")
            }
            Self::Node { node, report: None } => write!(f, "node {node} has not confirmed that its containers ended"),
        }
    }
}

/// Returns a duration for people: its two largest units at most.
pub(crate) fn duration(seconds: i64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, 0) => format!("{hours} h"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, 0, _) => format!("{days} d"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}
