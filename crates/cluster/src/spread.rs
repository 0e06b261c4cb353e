//! Lists in many namespaces: one list across all where that is allowed and returns little else, or one for each.

use billhook_plan::{Query, Select};
use futures::future::join_all;

use crate::{
    cluster::Cluster,
    decode::Shape,
    error::{Error, ErrorKind},
    list::{Found, Lister},
    resource_version,
};

/// For each namespace a list across all may return this many objects of other namespaces: about what one request costs.
const PER_NAMESPACE: u64 = 16;
/// How many namespaces are listed at a time.
const AT_ONCE: usize = 64;

/// The answer to a query in many namespaces.
pub(crate) struct Spread<S> {
    pub(crate) found: Found<S>,
    /// The namespaces that could not be listed. `found` lacks their objects.
    pub(crate) failed: Vec<(String, Error)>,
}

impl Cluster {
    /// Lists the objects of a query. Without `retry` every request is sent once.
    pub(crate) async fn fetch<S: Shape>(&self, query: &Query, retry: bool) -> Result<Found<S>, Error> {
        let Spread { found, failed } = self.fetch_spread(query, retry).await?;
        failed.into_iter().next().map_or(Ok(found), |(_, error)| Err(error))
    }

    /// Lists the objects of a query, even if some of its namespaces cannot be listed.
    pub(crate) async fn fetch_spread<S: Shape>(&self, query: &Query, retry: bool) -> Result<Spread<S>, Error> {
        if query.namespaces.is_empty() {
            return self.fetch_place(query, retry).await.map(|found| Spread { found, failed: Vec::new() });
        }
        let lister = Lister::new(self, query, retry);
        let everywhere = match &query.select {
            Select::Labels(selector) => {
                let is_wanted = |item: &S| query.covers(item.id().namespace);
                lister.list(selector, &is_wanted).await.map(|found| (found, true))
            }
            select => {
                let is_wanted = |item: &S| {
                    let id = item.id();
                    select.names(id.namespace, id.name).unwrap_or_else(|| query.covers(id.namespace))
                };
                let namespaces = u64::try_from(query.namespaces.len()).unwrap_or(u64::MAX);
                lister.up_to(PER_NAMESPACE.saturating_mul(namespaces), &is_wanted).await
            }
        };
        match everywhere {
            Ok((found, true)) => Ok(Spread { found, failed: Vec::new() }),
            Ok((first, false)) => self.one_by_one(query, retry, first.resource_version).await,
            Err(error) if *error.kind() == ErrorKind::Forbidden => self.one_by_one(query, retry, None).await,
            Err(error) => Err(error),
        }
    }

    /// Lists each namespace of a query. A watch starts at `since`, or at the oldest of these lists.
    async fn one_by_one<S: Shape>(
        &self,
        query: &Query,
        retry: bool,
        since: Option<String>,
    ) -> Result<Spread<S>, Error> {
        let (mut items, mut failed) = (Vec::new(), Vec::new());
        let (mut oldest, mut watchable) = (None, true);
        for namespaces in query.namespaces.chunks(AT_ONCE) {
            let queries: Vec<Query> = namespaces.iter().map(|namespace| query.within(namespace)).collect();
            let lists = join_all(queries.iter().map(|query| self.fetch_place::<S>(query, retry))).await;
            for (namespace, found) in namespaces.iter().zip(lists) {
                match found {
                    Ok(found) => {
                        watchable &= found.resource_version.is_some();
                        oldest = resource_version::oldest(oldest, found.resource_version);
                        items.extend(found.items);
                    }
                    Err(error) if *error.kind() == ErrorKind::NotServed => return Err(error),
                    Err(error) => failed.push((namespace.clone(), error)),
                }
            }
        }
        if failed.len() == query.namespaces.len()
            && let Some((_, error)) = failed.pop()
        {
            return Err(error);
        }
        let resource_version = since.or_else(|| oldest.filter(|_| watchable));
        Ok(Spread { found: Found { resource_version, items }, failed })
    }
}
