//! A program in this process that can be stopped like a process by SIGSTOP: none of its tasks runs, while time passes.

use std::time::Duration;

use http::Request;
use kube::{Client, client::Body};
use tokio::sync::watch;

/// Stops a program, and lets it continue, or kills it. Clones refer to the same program.
#[derive(Clone)]
pub struct Freezer(watch::Sender<State>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Frozen,
    Killed,
}

impl Default for Freezer {
    fn default() -> Self {
        Self(watch::Sender::new(State::Running))
    }
}

impl Freezer {
    /// Stops the program for a time, unless it was killed.
    pub async fn freeze(&self, time: Duration) {
        let change = |from, to| self.0.send_if_modified(|state| *state == from && std::mem::replace(state, to) == from);
        change(State::Running, State::Frozen);
        tokio::time::sleep(time).await;
        change(State::Frozen, State::Running);
    }

    /// Kills the program, like SIGKILL.
    pub fn kill(&self) {
        self.0.send_replace(State::Killed);
    }

    /// Runs the program; it makes no step while it is frozen. Returns `None` if it was killed.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        let mut state = self.0.subscribe();
        loop {
            if state.wait_for(|state| *state != State::Frozen).await.is_ok_and(|state| *state == State::Killed) {
                return None;
            }
            tokio::select! {
                biased;
                Ok(_) = state.wait_for(|state| *state != State::Running) => {}
                done = &mut work => return Some(done),
            }
        }
    }

    /// Returns a client for the program. Requests of its background tasks, which are not part of the work above, are not sent
    /// while it is frozen.
    pub fn client(&self, client: Client) -> Client {
        let freezer = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, freezer) = (client.clone(), freezer.clone());
            async move {
                freezer.0.subscribe().wait_for(|state| *state == State::Running).await.ok();
                client.send(request).await.map_err(unwrapped)
            }
        });
        Client::new(service, "default")
    }
}

/// Returns the error of the service itself, which another client wraps again.
fn unwrapped(error: kube::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        kube::Error::Service(inner) => inner,
        other => other.into(),
    }
}
