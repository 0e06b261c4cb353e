//! Lists that are read object by object: only one page of whole objects is held at a time.

use billhook_plan::Resource;
use serde_json::Value;

use crate::{
    cluster::Cluster,
    counts::Verb,
    decode::{JSON, META_LIST, Page},
    error::Error,
    look::named,
    request::Call,
    url,
};

/// How often a list whose continue token has expired is restarted before it is read without pages.
const RESTARTS: usize = 3;

/// A list that is read object by object.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    /// The kind.
    pub resource: &'a Resource,
    /// The namespace; none for all.
    pub namespace: Option<&'a str>,
    /// Whether whole objects are read; else their metadata.
    pub whole: bool,
    /// The size of a page.
    pub page: u32,
    /// After this many pages the list ends.
    pub pages: usize,
}

impl Cluster {
    /// Lists objects page by page, and returns what `keep` keeps of them, and whether these are all. If the continue token of the list
    /// expires, it is read again from the start. A kind that is not served has no objects.
    ///
    /// # Errors
    ///
    /// When a request fails.
    pub async fn scan(
        &self,
        scan: &Scan<'_>,
        keep: impl Fn(Value) -> Option<Value>,
    ) -> Result<(Vec<Value>, bool), Error> {
        let mut restarts = 0;
        loop {
            // What is read at once cannot expire.
            let size = if restarts < RESTARTS { scan.page } else { 0 };
            match self.scan_once(scan, size, &keep).await {
                Err(error) if error.code() == Some(410) && restarts < RESTARTS => restarts += 1,
                Err(error) if error.code() == Some(404) => return Ok((Vec::new(), true)),
                scanned => return scanned,
            }
        }
    }

    async fn scan_once(
        &self,
        scan: &Scan<'_>,
        size: u32,
        keep: &impl Fn(Value) -> Option<Value>,
    ) -> Result<(Vec<Value>, bool), Error> {
        let (mut objects, mut next) = (Vec::new(), String::new());
        for _ in 0..scan.pages {
            let page = self.scan_page(scan, size, &next).await?;
            objects.extend(page.items.into_iter().filter_map(|item| keep(named(item, scan.resource))));
            next = page.metadata.next.unwrap_or_default();
            if next.is_empty() {
                return Ok((objects, true));
            }
        }
        Ok((objects, false))
    }

    async fn scan_page(&self, scan: &Scan<'_>, size: u32, next: &str) -> Result<Page<Value>, Error> {
        let what = match scan.namespace {
            Some(namespace) => format!("list {} in namespace {namespace}", scan.resource.kind),
            None => format!("list {}", scan.resource.kind),
        };
        let limit = if size == 0 { String::new() } else { size.to_string() };
        let parameters = [("limit", limit.as_str()), ("continue", next)];
        let url = url::with_query(&url::collection(scan.resource, scan.namespace), &parameters);
        let accept = if scan.whole { JSON } else { META_LIST };
        self.send(&Call::new(Verb::List, what, url).accept(accept)).await?.json()
    }
}
