//! The helm program, and how often it runs at the same time.

use std::path::Path;

use billhook_charts::{Helm, HelmUser};
use billhook_hosts::Dialer;

use crate::fair::FairSlots;

/// The helm program, with limits on how often it runs at the same time: each run uses about 60 MiB (helm 4.3), and the
/// controller has a memory limit.
pub(crate) struct Helms {
    /// The program.
    pub program: Helm,
    /// Slots for programs that fetch, render or read, which takes a short time.
    pub renders: FairSlots,
    /// Slots for programs that deploy or delete a release, which may wait for it.
    pub releases: FairSlots,
}

impl Helms {
    /// Creates the limits for the program with this path, which runs as this user. Charts are fetched with the dialer.
    pub(crate) fn new(program: &Path, dialer: Dialer, user: Option<HelmUser>) -> Self {
        let program = Helm::new(program).fetching_with(dialer).running_as(user);
        Self { program, renders: FairSlots::new(4), releases: FairSlots::new(8) }
    }
}
