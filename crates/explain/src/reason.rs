//! The causes as data. `text.rs` has their wording.

use serde::Serialize;

/// The code of a cause. It is stable: programs may compare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "`Reason` documents each, and `docs/why.md` lists them")]
pub enum Code {
    FinalizerControllerAbsent,
    FinalizerControllerFailing,
    FinalizerInProgress,
    FinalizerUnknown,
    DependentsRemain,
    ContentRemains,
    InstancesRemain,
    #[serde(rename = "apiservice-unavailable")]
    ApiServiceUnavailable,
    DiscoveryBroken,
    WebhookUnavailable,
    AdmissionDenied,
    ConversionWebhookUnavailable,
    VersionNotServed,
    ObjectUnreadable,
    Forbidden,
    ControllerManagerNotWorking,
    OwnerReferenceInvalid,
    NamespaceFinalizer,
    InUse,
    PodNotTerminated,
    EvictionBlocked,
    RateLimited,
    Recreated,
    Protected,
    NotDeleting,
}

impl Code {
    /// Returns the code as the document has it.
    pub fn as_str(self) -> String {
        serde_json::to_value(self).ok().and_then(|code| code.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Returns how early a cause must be removed, if there are several with evidence of the same strength: until discovery
    /// works nothing can be said about content, until webhooks answer no finalizer can be removed, and so on.
    pub(crate) fn precedence(self) -> u8 {
        match self {
            Self::ApiServiceUnavailable | Self::DiscoveryBroken => 12,
            Self::WebhookUnavailable => 11,
            Self::ConversionWebhookUnavailable | Self::ObjectUnreadable | Self::VersionNotServed => 10,
            Self::AdmissionDenied | Self::Protected | Self::Recreated => 9,
            Self::ControllerManagerNotWorking => 8,
            Self::Forbidden | Self::OwnerReferenceInvalid => 7,
            Self::InUse | Self::EvictionBlocked | Self::PodNotTerminated => 6,
            Self::FinalizerControllerAbsent => 5,
            Self::FinalizerControllerFailing | Self::RateLimited | Self::NamespaceFinalizer => 4,
            Self::FinalizerUnknown => 2,
            Self::FinalizerInProgress => 1,
            Self::DependentsRemain | Self::ContentRemains | Self::InstancesRemain | Self::NotDeleting => 0,
        }
    }

    /// Returns whether the deletion is merely slow: it ends without anybody's help.
    pub fn is_slow(self) -> bool {
        matches!(
            self,
            Self::FinalizerInProgress | Self::DependentsRemain | Self::ContentRemains | Self::InstancesRemain
        )
    }
}

/// What is wrong with what a webhook or an aggregated API needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// Its Service, `namespace/name`, does not exist.
    ServiceMissing(String),
    /// No endpoint of its Service is ready.
    NoEndpoints(String),
    /// What the API server reports.
    Reported(String),
}

/// A cause, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The controller that removes this finalizer is absent.
    ControllerAbsent {
        /// The finalizer.
        finalizer: String,
        /// Its controller.
        controller: String,
        /// What is missing of it.
        missing: String,
    },
    /// That controller runs and reports why it cannot finish.
    ControllerFailing {
        /// The finalizer.
        finalizer: String,
        /// Its controller, if it is known.
        controller: Option<String>,
        /// What it reports.
        report: String,
    },
    /// That controller runs.
    InProgress {
        /// The finalizer.
        finalizer: String,
        /// Its controller.
        controller: String,
        /// Whether two observations show progress; none if there was only one.
        progress: Option<bool>,
    },
    /// No controller is known to remove this finalizer.
    FinalizerUnknown {
        /// The finalizer.
        finalizer: String,
        /// Who removes it, if that is known but not whether that party works.
        controller: Option<String>,
        /// The field manager that set it, and when.
        set_by: Option<(String, Option<String>)>,
    },
    /// Foreground deletion waits for dependents.
    DependentsRemain {
        /// How many of which kind.
        counts: String,
    },
    /// A Namespace waits for its content.
    ContentRemains {
        /// What remains; empty if that is not known.
        counts: String,
    },
    /// A Namespace waits for its turn: its controller is busy with others.
    Queued {
        /// How many Namespaces are being deleted.
        namespaces: usize,
    },
    /// A CRD waits for its instances.
    InstancesRemain {
        /// How many; none if that is not known.
        count: Option<usize>,
    },
    /// An aggregated API is unavailable.
    ApiServiceUnavailable {
        /// `group/version`.
        api: String,
        /// Why.
        backend: Backend,
    },
    /// Discovery fails although every APIService claims to be available.
    DiscoveryBroken {
        /// `group/version`.
        api: String,
        /// What the API server answers or reports.
        report: String,
    },
    /// A webhook that must answer cannot be reached.
    WebhookUnavailable {
        /// The webhook.
        webhook: String,
        /// The operation that it is asked for.
        operation: &'static str,
        /// Why.
        backend: Backend,
    },
    /// A webhook or policy rejects a request.
    AdmissionDenied {
        /// What rejects it; empty if the API server itself does.
        by: String,
        /// Its message.
        message: String,
    },
    /// Instances of a CRD cannot be read.
    ConversionUnavailable {
        /// The CRD.
        crd: String,
        /// Why.
        backend: Backend,
    },
    /// A stored version or a kind is not served.
    VersionNotServed {
        /// The kind.
        kind: String,
        /// The stored version that is not served; none if the kind is not served at all.
        version: Option<String>,
    },
    /// An object cannot be decoded.
    ObjectUnreadable {
        /// The kind whose list fails.
        kind: String,
        /// What the API server reports.
        message: String,
    },
    /// A right is missing.
    Forbidden {
        /// Who lacks it.
        who: String,
        /// The verb.
        verb: String,
        /// The resource, `plural.group`.
        resource: String,
        /// The namespace; none for all.
        namespace: Option<String>,
    },
    /// A controller of the controller manager does not work.
    ControllerManager {
        /// Which: `the namespace controller`.
        controller: &'static str,
        /// Why that is known.
        why: String,
    },
    /// A reference to an owner is invalid.
    OwnerInvalid {
        /// The owner.
        owner: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A Namespace has another entry in `spec.finalizers` than `kubernetes`.
    NamespaceFinalizer {
        /// The entry.
        finalizer: String,
    },
    /// A claim, volume, snapshot or configuration is in use.
    InUse {
        /// By what.
        by: String,
    },
    /// A Pod has not ended.
    PodNotTerminated {
        /// Why.
        why: PodWait,
    },
    /// A disruption budget lets no Pod be evicted.
    EvictionBlocked {
        /// The budget; none if it is not known which.
        budget: Option<String>,
    },
    /// Requests are rejected because there are too many.
    RateLimited {
        /// What is reported.
        report: String,
    },
    /// The object was deleted and recreated.
    Recreated {
        /// By whom.
        manager: String,
    },
    /// Something must be lifted first.
    Protected {
        /// What.
        by: String,
    },
    /// No client has requested the deletion.
    NotDeleting {
        /// What else keeps it, or is worth knowing.
        detail: Option<String>,
    },
}

/// Why a Pod has not ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodWait {
    /// Its grace period has not ended.
    Grace {
        /// How many seconds remain.
        seconds: i64,
    },
    /// Its node does not exist.
    NodeMissing(String),
    /// Its node does not respond.
    NodeSilent(String),
    /// Its node responds, and has not confirmed the end of its containers.
    Node {
        /// The node.
        node: String,
        /// What the kubelet reports.
        report: Option<String>,
    },
}

impl Reason {
    /// Returns the code.
    pub fn code(&self) -> Code {
        match self {
            Self::ControllerAbsent { .. } => Code::FinalizerControllerAbsent,
            Self::ControllerFailing { .. } => Code::FinalizerControllerFailing,
            Self::InProgress { .. } => Code::FinalizerInProgress,
            Self::FinalizerUnknown { .. } => Code::FinalizerUnknown,
            Self::DependentsRemain { .. } => Code::DependentsRemain,
            Self::ContentRemains { .. } | Self::Queued { .. } => Code::ContentRemains,
            Self::InstancesRemain { .. } => Code::InstancesRemain,
            Self::ApiServiceUnavailable { .. } => Code::ApiServiceUnavailable,
            Self::DiscoveryBroken { .. } => Code::DiscoveryBroken,
            Self::WebhookUnavailable { .. } => Code::WebhookUnavailable,
            Self::AdmissionDenied { .. } => Code::AdmissionDenied,
            Self::ConversionUnavailable { .. } => Code::ConversionWebhookUnavailable,
            Self::VersionNotServed { .. } => Code::VersionNotServed,
            Self::ObjectUnreadable { .. } => Code::ObjectUnreadable,
            Self::Forbidden { .. } => Code::Forbidden,
            Self::ControllerManager { .. } => Code::ControllerManagerNotWorking,
            Self::OwnerInvalid { .. } => Code::OwnerReferenceInvalid,
            Self::NamespaceFinalizer { .. } => Code::NamespaceFinalizer,
            Self::InUse { .. } => Code::InUse,
            Self::PodNotTerminated { .. } => Code::PodNotTerminated,
            Self::EvictionBlocked { .. } => Code::EvictionBlocked,
            Self::RateLimited { .. } => Code::RateLimited,
            Self::Recreated { .. } => Code::Recreated,
            Self::Protected { .. } => Code::Protected,
            Self::NotDeleting { .. } => Code::NotDeleting,
        }
    }

    /// Returns whether the deletion is merely slow: it ends without anybody's help.
    pub fn is_slow(&self) -> bool {
        self.code().is_slow() || matches!(self, Self::PodNotTerminated { why: PodWait::Grace { .. } })
    }
}
