//! The verbs of the API. Each is one step on the [`State`] and never waits.
//!
//! Controllers use the same functions as clients, so that admission and finalizers apply to them as well.

mod create;
mod decode;
mod delete;
mod delete_collection;
mod list_options;
mod patch;
mod read;
mod scale;
mod table;
mod update;
mod watch;

use std::sync::Arc;

use serde_json::Value;

use crate::{
    call::{Call, User, Verb},
    duplicates::duplicates,
    kinds::{Kind, Version},
    status::{ApiError, Cause},
};

pub(crate) use create::create;
#[cfg(test)]
pub(crate) use create::is_terminating;
pub(crate) use decode::decode as read_body;
pub(crate) use delete::{DeleteOptions, Propagation, answer as deleted, delete};
pub(crate) use delete_collection::delete_collection;
pub(crate) use patch::patch;
pub(crate) use read::{Form, get, list};
pub(crate) use scale::{scale, scale_of, update_scale};
pub(crate) use update::update;
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
        }
    }

    pub(crate) fn subresource(mut self, name: &str) -> Self {
        self.subresource = Some(name.to_owned());
        self
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
