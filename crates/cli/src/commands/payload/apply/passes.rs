//! What all passes of a command share.

use std::sync::Arc;

use billhook_objects::ReleaseName;
use billhook_payload::{Settings, State};
use billhook_plan::AppliedVersion;
use billhook_policy::Policy;

use super::{args::PayloadApplyArgs, content::Content};
use crate::{
    commands::payload::{entries, publish::Publisher},
    session::Session,
};

/// What all passes of a command share.
pub(super) struct Passes<'a> {
    pub(super) session: &'a Session,
    pub(super) args: &'a PayloadApplyArgs,
    pub(super) release: ReleaseName,
    pub(super) content: Arc<Content>,
    pub(super) settings: Settings,
    pub(super) policy: Option<Policy>,
    /// The ClusterVersion to publish to.
    pub(super) publisher: Option<Arc<Publisher>>,
}

impl Passes<'_> {
    /// Returns what a pass is for that follows these versions.
    pub(super) fn state(&self, history: &[AppliedVersion]) -> State {
        State::of(&entries(history), &self.args.version)
    }
}
