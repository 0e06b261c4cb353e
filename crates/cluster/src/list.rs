//! Lists: page by page, or single reads where few of many objects are needed.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

use billhook_plan::{Observed, Query, Resource, Select};
use futures::future::try_join_all;

use crate::{
    cluster::Cluster,
    counts::Verb,
    decode::{Meta, Page, Shape},
    error::{Error, ErrorKind},
    not_found::NotServed,
    recent_names::{self, Names},
    request::Call,
    resource_version, url,
};

/// Up to this many names are listed one by one, with a field selector.
const FEW: usize = 8;
/// A namespace with more objects is not listed to learn the names in it.
const MOST_NAMES: u64 = 2000;
/// How often a list whose continue token has expired is restarted before it is read without pages.
const RESTARTS: usize = 3;
/// About how many bytes of memory a small object needs. Each of a list counts as that at least.
pub(crate) const PER_OBJECT: usize = 256;
/// By which factor pages are made smaller after one was too large.
const SMALLER: u32 = 4;

/// The answer to a query.
pub(crate) struct Found<S> {
    /// Where a watch can continue without missing anything; none if listing is forbidden.
    pub(crate) resource_version: Option<String>,
    /// The objects, unsorted.
    pub(crate) items: Vec<S>,
}

impl Cluster {
    /// Lists the objects of a query in one namespace, or in all. Without `retry` every request is sent once.
    pub(crate) async fn fetch_place<S: Shape>(&self, query: &Query, retry: bool) -> Result<Found<S>, Error> {
        let lister = Lister::new(self, query, retry);
        let names = match &query.select {
            Select::All => return lister.list("", &|_| true).await,
            Select::Labels(selector) => return lister.list(selector, &|_| true).await,
            Select::Reads(names) => {
                return Ok(Found { resource_version: None, items: lister.gets(names.iter()).await? });
            }
            Select::Names(names) => names.as_slice(),
            Select::Objects(_) => &[],
        };
        if self.uses_recent_names
            && names.len() <= FEW
            && let Some(found) = lister.recently(names).await?
        {
            return Ok(found);
        }
        let found = if names.len() <= FEW { lister.few(names).await } else { lister.many(names).await };
        match found {
            Err(error) if *error.kind() == ErrorKind::Forbidden => {
                let items = lister.gets(names.iter()).await?;
                Ok(Found { resource_version: None, items })
            }
            found => found,
        }
    }

    /// Lists a collection page by page, by a consistent read (no `resourceVersion`), until a page holds objects that
    /// match, and returns those. An empty answer proves that no object matches.
    ///
    /// # Errors
    ///
    /// When a request fails; [`ErrorKind::NotServed`] for a kind that is not served in any version.
    pub async fn find(
        &self,
        query: &Query,
        matches: &(dyn Fn(&Observed) -> bool + Sync),
    ) -> Result<Vec<Observed>, Error> {
        let labels = match &query.select {
            Select::Labels(selector) => selector,
            Select::All | Select::Names(_) | Select::Reads(_) | Select::Objects(_) => "",
        };
        let is_wanted = |observed: &Observed| {
            let named = query.select.names(observed.namespace.as_deref(), &observed.name);
            named.unwrap_or_else(|| query.covers(observed.namespace.as_deref())) && matches(observed)
        };
        let found = if query.namespaces.is_empty() {
            Lister::new(self, query, true).first(labels, &is_wanted).await
        } else {
            let found = self.fetch::<Meta>(query, true).await;
            found.map(|found| found.items.into_iter().map(|Meta(item)| item).filter(|item| is_wanted(item)).collect())
        };
        match found {
            Err(error) if *error.kind() == ErrorKind::NotServed => {
                match self.why_not_served(&query.resource, error).await {
                    NotServed::Anywhere => Err(Error::not_served(&query.resource)),
                    NotServed::InThisVersion { other: version } => {
                        let resource = Resource { version, ..query.resource.clone() };
                        Box::pin(self.find(&Query { resource, ..query.clone() }, matches)).await
                    }
                    NotServed::Unclear(error) => Err(error),
                }
            }
            found => found,
        }
    }
}

/// Sends the requests of one query.
pub(crate) struct Lister<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) query: &'a Query,
    pub(crate) retry: bool,
    /// The size of all pages so far, in bytes.
    read: AtomicUsize,
    /// How many objects a page may have. Fewer, after a page was too large.
    largest: AtomicU32,
}

/// Which of the listed objects are kept.
type Keep<'a, S> = &'a (dyn Fn(&S) -> bool + Sync);

impl<'a> Lister<'a> {
    pub(crate) fn new(cluster: &'a Cluster, query: &'a Query, retry: bool) -> Self {
        Self { cluster, query, retry, read: AtomicUsize::new(0), largest: AtomicU32::new(u32::MAX) }
    }

    async fn page<S: Shape>(&self, labels: &str, fields: &str, limit: u32, next: &str) -> Result<Page<S>, Error> {
        let query = self.query;
        let what = match &query.namespace {
            Some(namespace) => format!("list {} in namespace {namespace}", query.resource.kind),
            None => format!("list {}", query.resource.kind),
        };
        let collection = url::collection(&query.resource, query.namespace.as_deref());
        loop {
            let limit = limit.min(self.largest.load(Ordering::Relaxed));
            let text = if limit == 0 { String::new() } else { limit.to_string() };
            let parameters =
                [("labelSelector", labels), ("fieldSelector", fields), ("limit", text.as_str()), ("continue", next)];
            let url = url::with_query(&collection, &parameters);
            let call = Call::new(Verb::List, &what, url).accept(S::LIST).retry(self.retry);
            match self.cluster.send(&call).await {
                Ok(reply) => {
                    let size = reply.body.len();
                    let page: Page<S> = reply.json()?;
                    // A small object needs more memory than its text.
                    self.count(&what, size.max(page.items.len().saturating_mul(PER_OBJECT)))?;
                    return Ok(page);
                }
                Err(error) if *error.kind() == ErrorKind::TooLarge && limit > 1 => {
                    self.largest.store(limit.div_ceil(SMALLER), Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Counts the size of a page; fails if the list is too large.
    fn count(&self, what: &str, size: usize) -> Result<(), Error> {
        let limit = self.cluster.inner.options.list_limit;
        if self.read.fetch_add(size, Ordering::Relaxed).saturating_add(size) <= limit {
            return Ok(());
        }
        Err(Error::new(what, ErrorKind::TooLarge).because(format!("the list has more than {} MiB", limit >> 20)))
    }

    /// Reads all pages, and restarts when a continue token has expired (410).
    pub(crate) async fn list<S: Shape>(&self, labels: &str, keep: Keep<'_, S>) -> Result<Found<S>, Error> {
        for _ in 0..RESTARTS {
            let first = self.page(labels, "", self.cluster.inner.options.page_size, "").await?;
            if let Some(found) = self.rest(labels, first, keep).await? {
                return Ok(found);
            }
        }
        let mut page: Page<S> = self.page(labels, "", 0, "").await?;
        page.items.retain(keep);
        Ok(Found { resource_version: page.metadata.resource_version, items: page.items })
    }

    /// Reads the first page, and the others unless they hold more than `bound` objects. Returns the objects to keep, and
    /// whether these are all. A watch from the version of the first page misses nothing that is read later.
    pub(crate) async fn up_to<S: Shape>(&self, bound: u64, keep: Keep<'_, S>) -> Result<(Found<S>, bool), Error> {
        let size = self.cluster.inner.options.page_size;
        let limit = size.min(u32::try_from(bound).unwrap_or(u32::MAX)).max(1);
        let mut first: Page<S> = self.page("", "", limit, "").await?;
        if first.metadata.remaining_item_count.is_some_and(|left| left > bound) {
            first.items.retain(keep);
            return Ok((Found { resource_version: first.metadata.resource_version, items: first.items }, false));
        }
        match self.rest("", first, keep).await? {
            Some(found) => Ok((found, true)),
            None => Ok((self.list("", keep).await?, true)),
        }
    }

    /// Returns the wanted objects of the first page that holds any; an empty answer means that the list has none.
    async fn first(
        &self,
        labels: &str,
        is_wanted: &(dyn Fn(&Observed) -> bool + Sync),
    ) -> Result<Vec<Observed>, Error> {
        let size = self.cluster.inner.options.page_size;
        let (mut next, mut expired) = (String::new(), 0);
        loop {
            let limit = if expired < RESTARTS { size } else { 0 };
            let page: Page<Meta> = match self.page(labels, "", limit, &next).await {
                Ok(page) => page,
                Err(error) if error.code() == Some(410) && !next.is_empty() => {
                    next.clear();
                    expired += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let found: Vec<Observed> =
                page.items.into_iter().map(|Meta(observed)| observed).filter(|observed| is_wanted(observed)).collect();
            next = page.metadata.next.unwrap_or_default();
            if !found.is_empty() || next.is_empty() {
                return Ok(found);
            }
        }
    }

    /// Reads the pages after `page`; none if the continue token has expired.
    async fn rest<S: Shape>(&self, labels: &str, page: Page<S>, keep: Keep<'_, S>) -> Result<Option<Found<S>>, Error> {
        let Page { metadata, mut items } = page;
        items.retain(keep);
        let resource_version = metadata.resource_version;
        let mut next = metadata.next.unwrap_or_default();
        while !next.is_empty() {
            match self.page::<S>(labels, "", self.cluster.inner.options.page_size, &next).await {
                Ok(page) => {
                    items.extend(page.items.into_iter().filter(keep));
                    next = page.metadata.next.unwrap_or_default();
                }
                Err(error) if error.code() == Some(410) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        // The caller may keep them for the whole run.
        items.shrink_to_fit();
        Ok(Some(Found { resource_version, items }))
    }

    /// Sends one list per name: each costs as much as a single read, and has a `resourceVersion` to watch from. The oldest
    /// of them is returned, so that a watch may repeat an event but misses none.
    async fn few<S: Shape>(&self, names: &[String]) -> Result<Found<S>, Error> {
        let lists = names.iter().map(async |name| {
            let page: Page<S> = self.page("", &format!("metadata.name={name}"), 0, "").await?;
            Ok::<_, Error>((page, name))
        });
        let mut found = Found { resource_version: None, items: Vec::new() };
        for (page, name) in try_join_all(lists).await? {
            found.resource_version = resource_version::oldest(found.resource_version, page.metadata.resource_version);
            found.items.extend(page.items.into_iter().filter(|item| item.id().name == name));
        }
        if names.is_empty() {
            let page: Page<S> = self.page("", "", 1, "").await?;
            found.resource_version = page.metadata.resource_version;
        }
        Ok(found)
    }

    /// Returns the objects with these names, if a recent list of their namespace tells which of them exist.
    async fn recently<S: Shape>(&self, names: &[String]) -> Result<Option<Found<S>>, Error> {
        let Query { resource, namespace, .. } = self.query;
        let recent = &self.cluster.inner.names;
        let list = recent.list(&resource.kind, namespace.as_deref());
        let Ok(Some(listed)) = list.get(recent_names::AGE, self.all_names()).await else { return Ok(None) };
        let existing: Vec<String> = names.iter().filter(|name| listed.contain(name)).cloned().collect();
        let items = if existing.is_empty() { Vec::new() } else { self.few(&existing).await?.items };
        Ok(Some(Found { resource_version: listed.resource_version.clone(), items }))
    }

    /// Lists the names in the namespace; none if they are too many, or if listing is forbidden.
    async fn all_names(&self) -> Result<Option<Arc<Names>>, Error> {
        let (found, complete) = match self.up_to::<Meta>(MOST_NAMES, &|_| true).await {
            Err(error) if matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::TooLarge) => return Ok(None),
            listed => listed?,
        };
        if !complete {
            return Ok(None);
        }
        let names = found.items.iter().map(|item| item.id().name.into());
        let names = Arc::new(Names::new(found.resource_version, names));
        self.cluster.inner.names.listed(&self.query.resource.kind, self.query.namespace.as_deref(), &names);
        Ok(Some(names))
    }

    /// Reads the first page, and then single objects or the other pages, whichever takes fewer requests.
    async fn many<S: Shape>(&self, names: &[String]) -> Result<Found<S>, Error> {
        let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let bound = 4 * u64::try_from(names.len()).unwrap_or(u64::MAX / 4);
        let (mut found, complete) = self.up_to(bound, &|item: &S| wanted.contains(item.id().name)).await?;
        if !complete {
            let seen: BTreeSet<&str> = found.items.iter().map(|item| item.id().name).collect();
            let missing: Vec<&String> = names.iter().filter(|name| !seen.contains(name.as_str())).collect();
            let read = self.gets(missing.into_iter()).await?;
            found.items.extend(read);
        }
        Ok(found)
    }

    async fn gets<'n, S: Shape>(&self, names: impl Iterator<Item = &'n String>) -> Result<Vec<S>, Error> {
        let (resource, namespace) = (&self.query.resource, self.query.namespace.as_deref());
        let reads = names.map(|name| self.cluster.fetch_one(resource, namespace, name, self.retry));
        Ok(try_join_all(reads).await?.into_iter().flatten().collect())
    }
}
