//! Snapshots: the answers to all queries of a plan.

use billhook_plan::{Listed, Listing, Observed, Query};
use futures::future::join_all;

use crate::{
    cluster::Cluster,
    decode::Meta,
    error::{Error, ErrorKind},
    list::Found,
    not_found::NotServed,
    spread::Spread,
};

impl Cluster {
    /// Sends all queries concurrently and returns the answers in their order.
    ///
    /// Where only some of [`Query::namespaces`] could be listed, the answer is a failure, and a second listing, whose query
    /// names the other namespaces, has their objects.
    pub async fn snapshot(&self, queries: &[Query]) -> Vec<Listing> {
        join_all(queries.iter().map(|query| self.listings(query))).await.into_iter().flatten().collect()
    }

    async fn listings(&self, query: &Query) -> Vec<Listing> {
        let (found, failed) = match self.fetch_spread(query, true).await {
            Ok(Spread { found, failed }) => (Ok(found), failed),
            Err(error) => (Err(self.explained(query, error).await), Vec::new()),
        };
        let Some((_, first)) = failed.first() else {
            return vec![Listing { query: query.clone(), found: listed(found) }];
        };
        let reason = match failed.len() {
            1 => first.to_string(),
            count => format!("{first} (and {} more namespaces)", count - 1),
        };
        let is_listed = |namespace: &&String| failed.iter().all(|(failed, _)| failed != *namespace);
        let others = query.among(query.namespaces.iter().filter(is_listed).cloned().collect());
        vec![
            Listing { query: query.clone(), found: Listed::Failed(reason) },
            Listing { query: others, found: listed(found) },
        ]
    }

    /// Returns the error of a list, after discovery has told whether the kind is served at all.
    async fn explained(&self, query: &Query, error: Error) -> Error {
        if *error.kind() != ErrorKind::NotServed {
            return error;
        }
        match self.why_not_served(&query.resource, error).await {
            NotServed::Anywhere => Error::not_served(&query.resource),
            NotServed::InThisVersion { other: version } => {
                let message = format!("the kind is now served in version {version}");
                Error::new(format!("list {}", query.resource.kind), ErrorKind::Other).because(message)
            }
            NotServed::Unclear(error) => error,
        }
    }
}

fn listed(found: Result<Found<Meta>, Error>) -> Listed {
    match found {
        Ok(found) => {
            let mut items: Vec<Observed> = found.items.into_iter().map(|Meta(observed)| observed).collect();
            items.sort_unstable_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
            items.dedup_by(|a, b| a.uid == b.uid);
            Listed::Items { resource_version: found.resource_version, items }
        }
        Err(error) if *error.kind() == ErrorKind::NotServed => Listed::NotServed,
        Err(error) => Listed::Failed(error.to_string()),
    }
}
