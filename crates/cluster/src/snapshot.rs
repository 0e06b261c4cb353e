//! Snapshots: the answers to all queries of a plan.

use std::sync::{Mutex, PoisonError};

use billhook_objects::Uid;
use billhook_plan::{Listed, Listing, Observed, Query};
use futures::future::join_all;
use serde::de::DeserializeOwned;

use crate::{
    cluster::Cluster,
    decode::{Full, Meta, Shape},
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
        let listings = queries.iter().map(|query| self.listings(query, &|Meta(observed)| observed));
        join_all(listings).await.into_iter().flatten().collect()
    }

    /// Sends a query like [`snapshot`](Self::snapshot), and also decodes each object into `T`: the whole object, or its
    /// complete metadata. An object that cannot be decoded is only in the listings.
    pub async fn details<T>(&self, query: &Query, whole: bool) -> (Vec<Listing>, Vec<(Uid, T)>)
    where
        T: DeserializeOwned + Send + 'static,
    {
        let details = Mutex::new(Vec::new());
        let keep = |meta: Observed, value: Result<T, _>| {
            let found = value.ok().map(|value| (meta.uid.clone(), value));
            details.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
            meta
        };
        let listings = match whole {
            true => self.listings(query, &|Full::<T, true> { meta, value }| keep(meta, value)).await,
            false => self.listings(query, &|Full::<T, false> { meta, value }| keep(meta, value)).await,
        };
        (listings, details.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    async fn listings<S: Shape>(&self, query: &Query, take: &(impl Fn(S) -> Observed + Sync)) -> Vec<Listing> {
        let found = self.fetch_known(query).await;
        let everywhere = query.resource.namespaced && query.namespace.is_none() && !query.namespaces.is_empty();
        if everywhere && found.as_ref().is_err_and(|error| *error.kind() == ErrorKind::Forbidden) {
            let one = async |namespace: &String| {
                let query = Query { namespace: Some(namespace.clone()), namespaces: Vec::new(), ..query.clone() };
                let found = listed(self.fetch_known(&query).await, take);
                Listing { query, found }
            };
            return join_all(query.namespaces.iter().map(one)).await;
        }
        vec![Listing { query: query.clone(), found: listed(found, take) }]
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

fn listed<S>(found: Result<Found<S>, Error>, take: &impl Fn(S) -> Observed) -> Listed {
    match found {
        Ok(found) => {
            let mut items: Vec<Observed> = found.items.into_iter().map(take).collect();
            items.sort_unstable_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
            items.dedup_by(|a, b| a.uid == b.uid);
            Listed::Items { resource_version: found.resource_version, items }
        }
        Err(error) if *error.kind() == ErrorKind::NotServed => Listed::NotServed,
        Err(error) => Listed::Failed(error.to_string()),
    }
}
