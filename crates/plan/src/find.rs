//! Looks objects up in a snapshot, and says what of them is certain.

use std::collections::HashMap;

use billhook_objects::GroupKind;

use crate::{Listed, Listing, Observed, Query, Select, Snapshot};

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

    /// The objects of a query, or why they are not known.
    pub(crate) fn items(&self, query: &Query) -> Result<Answer<'a>, &'a str> {
        match self.get(query) {
            None => Err("it was not asked"),
            Some(Listing { found: Listed::Failed(reason), .. }) => Err(reason),
            Some(Listing { found: Listed::NotServed, .. }) => Ok(Answer::NotServed),
            Some(Listing { query, found: Listed::Items { items, .. } }) => Ok(Answer::Items(query, items)),
        }
    }
}

/// A query that was answered.
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

/// What is known of an object that is looked for.
pub(crate) enum State<'a> {
    /// It is there.
    Found(Seen<'a>),
    /// It is not there.
    Gone,
    /// The cluster serves no such kind (any more).
    NotServed,
    /// It may be there: a list by label did not show it, or the cluster did not answer.
    Open(String),
}

/// The objects of the release's own cluster that the given queries show.
pub(crate) struct Finder<'a> {
    queries: &'a [Query],
    kinds: HashMap<&'a GroupKind, KindAnswers<'a>>,
}

#[derive(Default)]
struct KindAnswers<'a> {
    seen: HashMap<(Option<&'a str>, &'a str), Seen<'a>>,
    broad: Vec<(&'a Query, Option<&'a Listing>)>,
    narrow: HashMap<&'a str, Vec<(&'a Query, Option<&'a Listing>)>>,
}

impl<'a> Finder<'a> {
    /// Looks at the answers to these queries, and at no others: an answer that happens to be there for another reason
    /// would make the plan depend on it. The first query that shows an object is the one that counts.
    pub(crate) fn new(queries: &'a [Query], index: &Index<'a>) -> Self {
        let mut kinds: HashMap<_, KindAnswers<'_>> = HashMap::new();
        for query in queries.iter().filter(|query| query.cluster.is_none()) {
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
        Self { queries, kinds }
    }

    pub(crate) fn queries(&self) -> impl Iterator<Item = &'a Query> {
        self.queries.iter()
    }

    pub(crate) fn state(&self, kind: &GroupKind, namespace: Option<&str>, name: &str) -> State<'a> {
        let Some(answers) = self.kinds.get(kind) else { return State::Open("it was not asked".into()) };
        if let Some(seen) = answers.seen.get(&(namespace, name)) {
            return State::Found(*seen);
        }
        let narrow = namespace.and_then(|namespace| answers.narrow.get(namespace)).into_iter().flatten();
        let mut reason = "it was not asked by name".to_owned();
        for (query, listing) in answers.broad.iter().chain(narrow) {
            match verdict(query, *listing, name) {
                Some(Ok(state)) => return state,
                Some(Err(why)) => reason = format!("list {}: {why}", query.describe()),
                None => {}
            }
        }
        State::Open(reason)
    }
}

/// What a query that does not show an object says of it; none where it says nothing.
fn verdict<'a>(query: &Query, listing: Option<&Listing>, name: &str) -> Option<Result<State<'a>, String>> {
    let complete = match &query.select {
        Select::All => true,
        Select::Labels(_) => false,
        Select::Names(names) => names.binary_search_by(|known| known.as_str().cmp(name)).is_ok(),
    };
    match listing.map(|listing| &listing.found) {
        Some(Listed::NotServed) => Some(Ok(State::NotServed)),
        Some(Listed::Items { .. }) => complete.then_some(Ok(State::Gone)),
        Some(Listed::Failed(reason)) => Some(Err(reason.clone())),
        None if complete => Some(Err("it was not asked".into())),
        None => None,
    }
}
