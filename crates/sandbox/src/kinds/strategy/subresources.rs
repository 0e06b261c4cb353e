//! The subresources and verbs of kinds.

use super::Kind;
use crate::kinds::Version;

/// A subresource, as discovery announces it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    pub(crate) verbs: &'static [&'static str],
    /// The group, version and kind of its bodies, if they differ from the resource's. An empty group and version are
    /// those of the resource.
    pub(crate) kind: Option<(&'static str, &'static str, &'static str)>,
}

const WHOLE: &[&str] = &["get", "patch", "update"];
const STATUS: Subresource = Subresource { name: "status", verbs: WHOLE, kind: None };
const SCALE: Subresource = Subresource { name: "scale", verbs: WHOLE, kind: Some(("autoscaling", "v1", "Scale")) };
const APPROVAL: Subresource = Subresource { name: "approval", verbs: WHOLE, kind: None };

/// The modelled ones of [`CORE`].
const MODELLED: [&str; 4] = ["binding", "eviction", "finalize", "token"];

/// The subresources of the core group besides `status` and `scale`. Those that are not modelled are announced, because
/// programs look for them, and answered with 501.
#[rustfmt::skip]
const CORE: &[(&str, Subresource)] = {
    const CALL: &[&str] = &["create", "get"];
    const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];
    &[
        ("namespaces", Subresource { name: "finalize", verbs: &["update"], kind: None }),
        ("nodes", Subresource { name: "proxy", verbs: PROXY, kind: Some(("", "", "NodeProxyOptions")) }),
        ("pods", Subresource { name: "attach", verbs: CALL, kind: Some(("", "", "PodAttachOptions")) }),
        ("pods", Subresource { name: "binding", verbs: &["create"], kind: Some(("", "", "Binding")) }),
        ("pods", Subresource { name: "ephemeralcontainers", verbs: WHOLE, kind: None }),
        ("pods", Subresource { name: "eviction", verbs: &["create"], kind: Some(("policy", "v1", "Eviction")) }),
        ("pods", Subresource { name: "exec", verbs: CALL, kind: Some(("", "", "PodExecOptions")) }),
        ("pods", Subresource { name: "log", verbs: &["get"], kind: None }),
        ("pods", Subresource { name: "portforward", verbs: CALL, kind: Some(("", "", "PodPortForwardOptions")) }),
        ("pods", Subresource { name: "proxy", verbs: PROXY, kind: Some(("", "", "PodProxyOptions")) }),
        ("pods", Subresource { name: "resize", verbs: WHOLE, kind: None }),
        ("serviceaccounts", Subresource {
            name: "token", verbs: &["create"], kind: Some(("authentication.k8s.io", "v1", "TokenRequest")),
        }),
        ("services", Subresource { name: "proxy", verbs: PROXY, kind: Some(("", "", "ServiceProxyOptions")) }),
    ]
};

/// Returns whether Kubernetes has a subresource of this name that the sandbox does not model.
pub(crate) fn is_known_subresource(name: &str) -> bool {
    CORE.iter().any(|(_, known)| known.name == name) && !MODELLED.contains(&name)
}

impl Kind {
    /// Returns the subresources of a version, in the API server's order.
    pub(crate) fn subresources(&self, version: &Version) -> Vec<Subresource> {
        let status = version.status.then_some(STATUS);
        let scale = version.scale.is_some().then_some(SCALE);
        if self.crd.is_some() {
            return status.into_iter().chain(scale).collect();
        }
        let others = CORE.iter().filter(|(plural, _)| self.is("", plural)).map(|(_, other)| *other);
        let approval = self.has_approval().then_some(APPROVAL);
        let mut found: Vec<_> = others.chain(scale).chain(status).chain(approval).collect();
        found.sort_by_key(|subresource| subresource.name);
        found
    }

    /// Returns whether requests to a subresource are answered.
    pub(crate) fn serves_subresource(&self, version: &Version, name: &str) -> bool {
        match name {
            "status" => version.status,
            "scale" => version.scale.is_some(),
            "approval" => self.has_approval(),
            name => {
                MODELLED.contains(&name) && CORE.iter().any(|(plural, known)| known.name == name && self.is("", plural))
            }
        }
    }

    fn has_approval(&self) -> bool {
        self.is("certificates.k8s.io", "certificatesigningrequests")
    }

    /// Returns the verbs of the kind in the API server's order.
    pub(crate) fn verbs(&self) -> Vec<&'static str> {
        if self.review {
            return vec!["create"];
        }
        if self.crd.is_some() {
            return vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
        }
        let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        all.into_iter().filter(|verb| *verb != "deletecollection" || self.allows_delete_collection()).collect()
    }
}
