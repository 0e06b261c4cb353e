//! Snapshots: the answers to all queries of a plan.

use billhook_plan::{Listed, Listing, Observed, Query};
use futures::future::join_all;

use crate::{
    cluster::Cluster,
    decode::{Meta, Shape, TrackedMeta},
    error::{Error, ErrorKind},
    list::Found,
    not_found::NotServed,
};

impl Cluster {
    /// Sends all queries concurrently and returns the answers in their order.
    ///
    /// If a kind must not be listed across all namespaces, one listing for each of [`Query::namespaces`] replaces the
    /// requested one, with the namespace in its query.
    pub async fn snapshot(&self, queries: &[Query]) -> Vec<Listing> {
        self.snapshot_as::<Meta>(queries).await
    }

    /// Like [`snapshot`](Self::snapshot), with [`Observed::tracked`].
    pub async fn snapshot_tracked(&self, queries: &[Query]) -> Vec<Listing> {
        self.snapshot_as::<TrackedMeta>(queries).await
    }

    async fn snapshot_as<S: Shape + Into<Observed>>(&self, queries: &[Query]) -> Vec<Listing> {
        join_all(queries.iter().map(|query| self.listings::<S>(query))).await.into_iter().flatten().collect()
    }

    async fn listings<S: Shape + Into<Observed>>(&self, query: &Query) -> Vec<Listing> {
        let found = self.fetch_known::<S>(query).await;
        let everywhere = query.resource.namespaced && query.namespace.is_none() && !query.namespaces.is_empty();
        if everywhere && found.as_ref().is_err_and(|error| *error.kind() == ErrorKind::Forbidden) {
            let one = async |namespace: &String| {
                let query = Query { namespace: Some(namespace.clone()), namespaces: Vec::new(), ..query.clone() };
                let found = listed(self.fetch_known::<S>(&query).await);
                Listing { query, found }
            };
            return join_all(query.namespaces.iter().map(one)).await;
        }
        vec![Listing { query: query.clone(), found: listed(found) }]
    }

    async fn fetch_known<S: Shape>(&self, query: &Query) -> Result<Found<S>, Error> {
        match self.fetch(query, true).await {
            Err(error) if *error.kind() == ErrorKind::NotServed => {
                match self.why_not_served(&query.resource, error).await {
                    NotServed::Anywhere => Err(Error::not_served(&query.resource)),
                    NotServed::InThisVersion { other: version } => {
                        let message = format!("the kind is now served in version {version}");
                        Err(Error::new(format!("list {}", query.resource.kind), ErrorKind::Other).because(message))
                    }
                    NotServed::Unclear(error) => Err(error),
                }
            }
            found => found,
        }
    }
}

fn listed<S: Into<Observed>>(found: Result<Found<S>, Error>) -> Listed {
    match found {
        Ok(found) => {
            let mut items: Vec<Observed> = found.items.into_iter().map(S::into).collect();
            items.sort_unstable_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
            items.dedup_by(|a, b| a.uid == b.uid);
            Listed::Items { resource_version: found.resource_version, items }
        }
        Err(error) if *error.kind() == ErrorKind::NotServed => Listed::NotServed,
        Err(error) => Listed::Failed(error.to_string()),
    }
}
