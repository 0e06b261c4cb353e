//! Snapshots: the answers to all queries of a plan.

use std::sync::{Mutex, PoisonError};

use billhook_objects::{GroupKind, Uid};
use billhook_plan::{Listed, Listing, Observed, Query};
use futures::future::join_all;
use serde::de::DeserializeOwned;

use crate::{
    cluster::Cluster,
    decode::{Full, Meta, Shape, TrackedFull, TrackedMeta},
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
        self.snapshot_as::<Meta>(queries).await
    }

    /// Like [`snapshot`](Self::snapshot), with [`Observed::tracked`]. The queries that are also in `whole` read whole objects,
    /// and `is_ready` tells [`Observed::ready`] of each.
    pub async fn snapshot_tracked<T>(
        &self,
        queries: &[Query],
        whole: &[Query],
        is_ready: fn(&GroupKind, &T) -> bool,
    ) -> Vec<Listing>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let listings = queries.iter().map(async |query| {
            if !whole.contains(query) {
                return self.listings(query, &TrackedMeta::into).await;
            }
            let judge = |TrackedFull::<T> { meta, value }| {
                let ready = value.is_ok_and(|object| is_ready(&query.resource.kind, &object));
                Observed { ready, ..meta }
            };
            self.listings(query, &judge).await
        });
        join_all(listings).await.into_iter().flatten().collect()
    }

    async fn snapshot_as<S: Shape + Into<Observed>>(&self, queries: &[Query]) -> Vec<Listing> {
        let listings = queries.iter().map(|query| self.listings(query, &S::into));
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
        let (found, failed) = match self.fetch_spread(query, true).await {
            Ok(Spread { found, failed }) => (Ok(found), failed),
            Err(error) => (Err(self.explained(query, error).await), Vec::new()),
        };
        let Some((_, first)) = failed.first() else {
            return vec![Listing { query: query.clone(), found: listed(found, take) }];
        };
        let reason = match failed.len() {
            1 => first.to_string(),
            count => format!("{first} (and {} more namespaces)", count - 1),
        };
        let is_listed = |namespace: &&String| failed.iter().all(|(failed, _)| failed != *namespace);
        let others = query.among(query.namespaces.iter().filter(is_listed).cloned().collect());
        vec![
            Listing { query: query.clone(), found: Listed::Failed(reason) },
            Listing { query: others, found: listed(found, take) },
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
