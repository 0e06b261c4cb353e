//! The verbs of the API. Each is one step on the [`State`] and never waits.
//!
//! Controllers use the same functions as clients, so that admission and finalizers apply to them as well.

mod bind;
mod create;
mod decode;
mod delete;
mod delete_collection;
mod evict;
mod list_options;
mod patch;
mod read;
mod scale;
mod scale_view;
mod table;
mod token;
mod update;
mod watch;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    admission::{AdmissionRequest, Operation},
    call::{Call, User, Verb},
    duplicates::duplicates,
    kinds::{Kind, Version},
    status::{ApiError, Cause},
};

pub(crate) use bind::bind;
pub(crate) use create::create;
#[cfg(test)]
pub(crate) use create::is_terminating;
pub(crate) use decode::decode as read_body;
pub(crate) use delete::{DeleteOptions, Propagation, answer as deleted, delete};
pub(crate) use delete_collection::delete_collection;
pub(crate) use evict::{evict, set_disruption_allowed};
pub(crate) use patch::patch;
pub(crate) use read::{Form, get, list};
pub(crate) use scale::{scale, update_scale};
pub(crate) use token::request_token;
pub(crate) use update::{current, update};
pub(crate) use watch::Watch;

/// The treatment of unknown fields: `fieldValidation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Drop them.
    #[default]
    Ignore,
    /// Drop them and return warnings.
    Warn,
    /// Reject the request.
    Strict,
}

/// Who writes what kind of object, and with which options.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) user: User,
    /// The field manager.
    pub(crate) manager: String,
    pub(crate) dry_run: bool,
    pub(crate) validation: FieldValidation,
    pub(crate) kind: Arc<Kind>,
    /// The version of the request, as an index of the kind's versions.
    pub(crate) version: usize,
    /// `status`, `scale` or `finalize`.
    pub(crate) subresource: Option<String>,
    /// Fields that occur more than once in the body.
    pub(crate) duplicates: Vec<String>,
    /// The options in the query, for admission.
    given: Vec<(&'static str, Value)>,
}

impl Writer {
    /// Reads the writer from a call.
    pub(crate) fn of(
        call: &Call,
        kind: &Arc<Kind>,
        version: usize,
        subresource: Option<&str>,
    ) -> Result<Self, ApiError> {
        let options = match call.verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            Verb::Patch => "PatchOptions",
            _ => "DeleteOptions",
        };
        let validation = match call.text("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let supported = ["", "Ignore", "Strict", "Warn"].map(str::to_owned);
                let cause = Cause::unsupported("fieldValidation", &other.into(), &supported);
                return Err(ApiError::options(options, vec![cause]));
            }
        };
        Ok(Self {
            user: call.user.clone(),
            manager: call.manager(),
            // A DELETE has its own options.
            dry_run: !matches!(call.verb, Verb::Delete | Verb::DeleteCollection) && call.dry_run(options)?,
            validation,
            kind: Arc::clone(kind),
            version,
            subresource: subresource.map(str::to_owned),
            duplicates: if validation == FieldValidation::Ignore { Vec::new() } else { duplicates(&call.body) },
            given: ["fieldManager", "fieldValidation"]
                .into_iter()
                .filter_map(|name| Some((name, call.text(name)?.into())))
                .collect(),
        })
    }

    /// Returns a controller that writes in the storage version.
    pub(crate) fn controller(kind: &Arc<Kind>, name: &str) -> Self {
        let user = User::new(format!("system:serviceaccount:kube-system:{name}"), ["system:masters"]);
        Self {
            user,
            manager: "kube-controller-manager".to_owned(),
            dry_run: false,
            validation: FieldValidation::Ignore,
            version: kind.storage,
            kind: Arc::clone(kind),
            subresource: None,
            duplicates: Vec::new(),
            given: Vec::new(),
        }
    }

    pub(crate) fn subresource(mut self, name: &str) -> Self {
        self.subresource = Some(name.to_owned());
        self
    }

    /// Returns the request as admission sees it if its body is of another kind than the resource, like an Eviction.
    fn of_body<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        body: &'a Value,
        options: &'a Value,
    ) -> AdmissionRequest<'a> {
        AdmissionRequest {
            operation: Operation::Create,
            user: &self.user,
            kind: &self.kind,
            version: &self.version().name,
            subresource: self.subresource.as_deref(),
            namespace,
            name,
            object: Some(body),
            old: None,
            options,
            dry_run: self.dry_run,
        }
    }

    /// Returns the options of the request as admission sees them.
    pub(crate) fn options(&self, kind: &str) -> Value {
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        for (name, value) in &self.given {
            options[*name] = value.clone();
        }
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        options
    }

    pub(crate) fn version(&self) -> &Version {
        &self.kind.versions[self.version]
    }

    /// Returns the `apiVersion` of the request: `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        self.kind.api_version(&self.version().name)
    }
}

/// The result of a write.
#[derive(Debug)]
pub(crate) struct Written {
    /// The object as it is stored, or would be in a dry run, in the version of the request.
    pub(crate) object: Value,
    pub(crate) created: bool,
    pub(crate) warnings: Vec<String>,
}
