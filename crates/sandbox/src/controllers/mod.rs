//! The controllers of a cluster that matter for deletion.
//!
//! Changes add work with due times to one queue, and due work is done step by step. Nothing waits or runs concurrently,
//! so the same changes always have the same effects.

mod accounts;
mod agenda;
mod api_services;
mod bootstrap;
mod definitions;
mod disruption;
mod endpoints;
mod garbage;
mod namespaces;
mod objects;
mod protection;
mod queue;
mod set;
mod work;
mod workloads;

#[cfg(test)]
mod tests;

use tokio::time::Instant;

use crate::state::State;
use objects::{Next, Step};
use work::{Task, Work};

pub(crate) use agenda::Controllers;
pub(crate) use api_services::is_reachable;
pub(crate) use bootstrap::bootstrap;
pub(crate) use definitions::serve_copied as serve_definition;
pub use set::{ControllerSet, UnknownController};

/// Does all work that is due.
pub(crate) fn run_due(state: &mut State, now: Instant) {
    while let Some(work) = state.controllers.queue.take(now) {
        let runs = work.task.controller().is_none_or(|name| state.options.controllers.contains(name));
        if !runs || state.controllers.is_asking(&work) {
            continue;
        }
        if state.controllers.is_paused() && work.task.controller().is_some() {
            state.controllers.put_off(work);
            continue;
        }
        *state.memory.get_mut() = state.controllers.memory_of(&work);
        let outcome = perform(state, &work, now);
        let memory = std::mem::take(state.memory.get_mut());
        if memory.is_waiting() {
            // A step that waits for webhooks is repeated with their answers; what it has done before remains.
            state.controllers.wait(work, memory);
            continue;
        }
        match outcome {
            Ok(Next::Done) => state.controllers.queue.forget(&work),
            Ok(Next::After(delay)) => {
                state.controllers.queue.forget(&work);
                state.controllers.queue.add(work, now + delay);
            }
            // An object that no longer exists needs no work.
            Err(error) if error.code == http::StatusCode::NOT_FOUND => state.controllers.queue.forget(&work),
            Ok(Next::Retry) | Err(_) => state.controllers.queue.retry(work, now),
        }
    }
}

fn perform(state: &mut State, work: &Work, now: Instant) -> Step {
    let (namespace, name) = (&*work.namespace, &*work.name);
    match work.task {
        Task::References => garbage::check_references(state, name),
        Task::Collect => garbage::collect(state, name, now),
        Task::Unblock => garbage::unblock(state, name, now),
        Task::Dependents => garbage::dependents(state, name, now),
        Task::Orphan => garbage::orphan(state, name),
        Task::Namespace => namespaces::sync(state, name),
        Task::Account => accounts::sync(state, name),
        Task::Definition => definitions::sync(state, name),
        Task::Names => definitions::reconsider(state, name, now),
        Task::Cleanup => definitions::clean_up(state, name, now),
        Task::CleanupPoll => definitions::poll(state, name, now),
        Task::Unserve => definitions::unserve(state, name, now),
        Task::Claim => protection::sync_claim(state, namespace, name),
        Task::Claims => protection::sync_claims(state, namespace, now),
        Task::Volume => protection::sync_volume(state, name),
        Task::Deployment => workloads::deployments::sync(state, namespace, name),
        Task::ReplicaSet => workloads::replica_sets::sync(state, namespace, name),
        Task::Job => workloads::jobs::sync(state, namespace, name),
        Task::Adopt => workloads::adopt(state, namespace, now),
        Task::ApiService => api_services::sync(state, name),
        Task::ApiServices => api_services::of_service(state, namespace, name, now),
        Task::Endpoints => endpoints::sync(state, namespace),
        Task::JobPod => workloads::jobs::sync_pod(state, namespace, name),
        Task::Disruption => disruption::sync(state, namespace),
    }
}
