//! Looks up objects in a snapshot, and tells what is certain about them.

use std::collections::HashMap;

use billhook_objects::GroupKind;

use crate::{ListFailure, Listed, Listing, Observed, Problem, Query, Select, Snapshot};

/// The listings of a snapshot by their query.
pub(crate) struct Index<'a> {
    listings: HashMap<&'a Query, &'a Listing>,
}

impl<'a> Index<'a> {
    pub(crate) fn of(snapshot: &'a Snapshot) -> Self {
        let mut listings = HashMap::with_capacity(snapshot.listings.len());
        for listing in &snapshot.listings {
            listings.entry(&listing.query).or_insert(listing);
        }
        Self { listings }
    }

    pub(crate) fn get(&self, query: &Query) -> Option<&'a Listing> {
        self.listings.get(query).copied()
    }

    /// Returns the objects of a query, or why the list failed.
    pub(crate) fn items(&self, query: &Query) -> Result<Answer<'a>, ListFailure> {
        match self.get(query) {
            None => Err(not_asked(query)),
            Some(Listing { found: Listed::Failed(reason), .. }) => Err(failure(query, reason)),
            Some(Listing { found: Listed::NotServed, .. }) => Ok(Answer::NotServed),
            Some(Listing { query, found: Listed::Items { items, .. } }) => Ok(Answer::Items(query, items)),
        }
    }
}

/// The answer to a query.
pub(crate) enum Answer<'a> {
    Items(&'a Query, &'a [Observed]),
    NotServed,
}

/// An object, and the query that shows it.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) query: &'a Query,
    pub(crate) object: &'a Observed,
}

/// What a snapshot shows about an object.
pub(crate) enum State<'a> {
    /// It exists.
    Found(Seen<'a>),
    /// It does not exist.
    Gone,
    /// The cluster does not serve its kind.
    NotServed,
    /// It may exist: a list by label did not show it, or a list failed.
    Open(Problem),
}

/// The objects of the release's own cluster in the answers to certain queries.
pub(crate) struct Finder<'a> {
    kinds: HashMap<&'a GroupKind, KindAnswers<'a>>,
}

#[derive(Default)]
struct KindAnswers<'a> {
    seen: HashMap<(Option<&'a str>, &'a str), Seen<'a>>,
    broad: Vec<(&'a Query, Option<&'a Listing>)>,
    narrow: HashMap<&'a str, Vec<(&'a Query, Option<&'a Listing>)>>,
}

impl<'a> Finder<'a> {
    /// Indexes the answers to these queries and no others, so that the plan does not depend on unrelated answers. If several
    /// queries show an object, the first one counts.
    pub(crate) fn new(queries: impl IntoIterator<Item = &'a Query>, index: &Index<'a>) -> Self {
        let mut kinds: HashMap<_, KindAnswers<'_>> = HashMap::new();
        for query in queries.into_iter().filter(|query| query.cluster.is_none()) {
            let answers = kinds.entry(&query.resource.kind).or_default();
            let listing = index.get(query);
            match &query.namespace {
                None => answers.broad.push((query, listing)),
                Some(namespace) => answers.narrow.entry(namespace).or_default().push((query, listing)),
            }
            if let Some(Listing { query, found: Listed::Items { items, .. } }) = listing {
                for object in items {
                    let place = (object.namespace.as_deref(), object.name.as_str());
                    answers.seen.entry(place).or_insert(Seen { query, object });
                }
            }
        }
        Self { kinds }
    }

    pub(crate) fn state(&self, kind: &GroupKind, namespace: Option<&str>, name: &str) -> State<'a> {
        let not_looked_up = || Problem::NotLookedUp { kind: kind.clone() };
        let Some(answers) = self.kinds.get(kind) else { return State::Open(not_looked_up()) };
        if let Some(seen) = answers.seen.get(&(namespace, name)) {
            return State::Found(*seen);
        }
        let narrow = namespace.and_then(|namespace| answers.narrow.get(namespace)).into_iter().flatten();
        let mut problem = None;
        for (query, listing) in answers.broad.iter().chain(narrow) {
            match verdict(query, *listing, namespace, name) {
                Some(Ok(state)) => return state,
                Some(Err(failure)) => problem = Some(Problem::ListFailed(failure)),
                None => {}
            }
        }
        State::Open(problem.unwrap_or_else(not_looked_up))
    }
}

/// Returns what a query that does not show an object tells about it, if anything.
fn verdict<'a>(
    query: &Query,
    listing: Option<&Listing>,
    namespace: Option<&str>,
    name: &str,
) -> Option<Result<State<'a>, ListFailure>> {
    let complete = match query.select.names(namespace, name) {
        Some(selected) => selected,
        None => query.select == Select::All && query.covers(namespace),
    };
    match listing.map(|listing| &listing.found) {
        Some(Listed::NotServed) => Some(Ok(State::NotServed)),
        Some(Listed::Items { .. }) => complete.then_some(Ok(State::Gone)),
        Some(Listed::Failed(reason)) => Some(Err(failure(query, reason))),
        None if complete => Some(Err(not_asked(query))),
        None => None,
    }
}

fn failure(query: &Query, reason: &str) -> ListFailure {
    ListFailure { list: query.scope(), reason: reason.to_owned() }
}

fn not_asked(query: &Query) -> ListFailure {
    failure(query, "the request was not sent")
}
