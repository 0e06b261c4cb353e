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

/// How often a list whose continue token has expired is restarted.
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
    /// Lists objects page by page and passes each on. Returns whether these are all. A list that has to be restarted passes some
    /// objects on again. A kind that is not served has no objects.
    ///
    /// # Errors
    ///
    /// When a request fails. Some objects may have been passed on.
    pub async fn scan(&self, scan: &Scan<'_>, mut take: impl FnMut(Value)) -> Result<bool, Error> {
        let (mut next, mut restarts) = (String::new(), 0);
        let mut read = 0;
        while read < scan.pages {
            let page = match self.scan_page(scan, &next).await {
                Ok(page) => page,
                Err(error) if error.code() == Some(404) => return Ok(true),
                Err(error) if error.code() == Some(410) && restarts < RESTARTS => {
                    (next, read) = (String::new(), 0);
                    restarts += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            page.items.into_iter().for_each(|item| take(named(item, scan.resource)));
            read += 1;
            next = page.metadata.next.unwrap_or_default();
            if next.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn scan_page(&self, scan: &Scan<'_>, next: &str) -> Result<Page<Value>, Error> {
        let what = match scan.namespace {
            Some(namespace) => format!("list {} in namespace {namespace}", scan.resource.kind),
            None => format!("list {}", scan.resource.kind),
        };
        let limit = scan.page.to_string();
        let parameters = [("limit", limit.as_str()), ("continue", next)];
        let url = url::with_query(&url::collection(scan.resource, scan.namespace), &parameters);
        let accept = if scan.whole { JSON } else { META_LIST };
        self.send(&Call::new(Verb::List, what, url).accept(accept)).await?.json()
    }
}
