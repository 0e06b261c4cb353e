//! What is explained if no objects are named: those of a release, or of a whole cluster, that are being deleted.

use std::collections::BTreeSet;

use billhook_cluster::Place;
use billhook_explain::{Answer, Content, ObjectRef, Query, Unread};
use billhook_objects::{Catalog, Resource, Uid, wellknown};
use futures::StreamExt as _;

use super::{
    bulk::{Bulk, Group, is_deleting, keeper},
    causes::reference,
    now,
    rounds::Rounds,
};
use crate::{ObjectState, ReleaseStatus};

/// How many kinds are listed at a time.
const AT_ONCE: usize = 16;
/// How many pages of one kind are read at most: 100,000 objects.
const PAGES: usize = 100;

/// Returns the objects of a release that are being deleted, or that may be: those that could not be read.
pub fn of_release(status: &ReleaseStatus, catalog: &Catalog) -> Vec<ObjectRef> {
    let is_deleting =
        |object: &&crate::ObjectStatus| matches!(object.state, ObjectState::Deleting | ObjectState::Unreadable);
    let deleting = status.objects.iter().filter(is_deleting);
    let named = |object: &crate::ObjectStatus| {
        Some(ObjectRef { uid: object.uid.clone(), ..reference(catalog, &object.object)? })
    };
    deleting.filter_map(named).collect()
}

/// Lists the metadata of all objects, and returns those that are being deleted: Namespaces and CRDs first, which explain others.
pub(super) async fn deleting(rounds: &mut Rounds<'_>, catalog: &Catalog) -> (Vec<ObjectRef>, BTreeSet<Unread>) {
    let cluster = rounds.cluster;
    // Events have no finalizers, and there are many. They are served in two groups.
    let is_wanted = |kind: &&billhook_objects::ResourceType| kind.supports("list") && kind.kind.kind != "Event";
    let lists: Vec<_> = catalog
        .iter()
        .filter(is_wanted)
        .map(|kind| async move {
            let resource = Resource::of(kind, None);
            let place = Place { resource: &resource, namespace: None, fields: "", content: Content::Metadata };
            let (answer, requests) = cluster.look_at_all(&place, PAGES, keeper()).await;
            (resource, answer, requests, now(cluster))
        })
        .collect();
    let answers: Vec<_> = futures::stream::iter(lists).buffered(AT_ONCE).collect().await;
    let stale = |version: &String| Unread {
        what: format!("list the kinds of {version}"),
        why: "its API server does not say which kinds it serves".to_owned(),
    };
    let (mut subjects, mut unread): (_, BTreeSet<_>) = (Vec::new(), catalog.stale.iter().map(stale).collect());
    let mut seen: BTreeSet<Uid> = BTreeSet::new();
    for (resource, answer, requests, at) in answers {
        rounds.requests += requests;
        match &answer {
            Answer::Failed(failure) => {
                let list = Query::List {
                    resource: resource.clone(),
                    namespace: None,
                    fields: String::new(),
                    limit: 0,
                    content: Content::Metadata,
                };
                unread.insert(Unread::new(&list, failure));
            }
            Answer::Objects { items, .. } => {
                let deleting = items.iter().filter(|object| is_deleting(object)).filter_map(ObjectRef::of);
                // Some kinds are served in two groups.
                subjects.extend(deleting.filter(|object| object.uid.clone().is_none_or(|uid| seen.insert(uid))));
            }
            _ => {}
        }
        if let Some(bulk) = Bulk::new(at, None, answer) {
            rounds.add(Group::Objects(resource, Content::Metadata), bulk);
        }
    }
    let rank = |object: &ObjectRef| {
        let kind = object.group_kind();
        (kind != wellknown::namespace(), kind != wellknown::crd())
    };
    subjects.sort_by(|a, b| (rank(a), a).cmp(&(rank(b), b)));
    (subjects, unread)
}
