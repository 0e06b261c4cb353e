//! What an event or a list says of single objects.

use billhook_plan::Select;
use tokio::time::sleep;

use super::{
    super::judge::{Doubt, Verdict},
    Key, Mode, Raw, Version, Watcher, gone, key,
};
use crate::{cluster::Asked, wire::Shape};

impl<S: Shape> Watcher<S> {
    /// The label that is looked at here and not by the server, if the query can be watched so.
    ///
    /// A watch with a label selector says DELETED also of an object that merely lost the label. Without a selector
    /// DELETED means gone; the price is the changes of other objects, so it is paid within one namespace only.
    pub(super) fn own_label(&self) -> Option<(&str, &str)> {
        let Select::Labels(selector) = &self.query.select else { return None };
        let everywhere = self.query.resource.namespaced && self.query.namespace.is_none();
        let (label, value) = selector.split_once('=').filter(|_| S::TELLS_GONE && !everywhere)?;
        let plain = |text: &str| !text.contains(['=', ',', '!', ' ', '(']);
        (plain(label) && plain(value)).then_some((label, value))
    }

    fn is_meant(&self, object: &S) -> bool {
        let meta = object.meta();
        match (&self.query.select, self.own_label()) {
            (Select::Names(names), _) => names.binary_search(&meta.name).is_ok(),
            (_, Some((label, value))) => {
                let known = |key: Key| self.known.contains_key(&key) || self.former.contains(&key);
                meta.labels.get(label).is_some_and(|v| v == value) || known(key(&object.id()))
            }
            (Select::All | Select::Labels(_), None) => true,
        }
    }

    pub(super) fn present(&mut self, object: S) {
        if !self.is_meant(&object) {
            return;
        }
        let id = object.id();
        let key = key(&id);
        match self.known.get(&key) {
            // A watch may begin before what was listed: it repeats what came before, former objects among it.
            Some(known) if older(id.resource_version, known.resource_version.as_deref()) => return,
            Some(known) if known.uid != *id.uid && known.resource_version.is_none() => {
                let (uid, instead) = (known.uid.clone(), Some(id.uid.clone()));
                return self.judge.add(Doubt { key, uid, bare: false, instead });
            }
            _ => {}
        }
        self.settled(key, object);
    }

    /// This object has its name now.
    pub(super) fn settled(&mut self, key: Key, object: S) {
        let id = object.id();
        let version = Version { uid: id.uid.clone(), resource_version: Some(id.resource_version.into()) };
        let uid = id.uid.clone();
        if let Some(old) = self.known.insert(key.clone(), version)
            && old.uid != uid
        {
            self.queue.push_back(gone(key, old.uid));
        }
        self.queue.push_back(Raw::Present(object));
    }

    pub(super) fn deleted(&mut self, object: &S) {
        if !self.is_meant(object) {
            return;
        }
        let id = object.id();
        let (key, uid) = (key(&id), id.uid.clone());
        if self.own_label().is_some() {
            self.former.insert(key.clone());
        }
        if self.known.get(&key).is_some_and(|known| known.uid != uid) {
            // Another one has the name already.
            return self.queue.push_back(gone(key, uid));
        }
        let by_label = matches!(self.query.select, Select::Labels(_)) && self.own_label().is_none();
        let bare = object.meta().finalizers.is_empty();
        // Whoever was told that nothing holds an object may take its DELETED for what it says.
        if by_label && !(bare && self.cluster.asked(&uid) == Some(Asked::Removed)) {
            let version = Version { uid: uid.clone(), resource_version: Some(id.resource_version.into()) };
            self.known.insert(key.clone(), version);
            return self.judge.add(Doubt { key, uid, bare, instead: None });
        }
        self.known.remove(&key);
        self.queue.push_back(gone(key, uid));
    }

    /// What became of an object in doubt. It stays known until then: a watch or list may have settled it meanwhile.
    pub(super) async fn settle(&mut self, verdict: Verdict<S>) {
        let Verdict { doubt: Doubt { key, uid, instead, .. }, found } = verdict;
        let Some(known) = self.known.get(&key).filter(|known| known.uid == uid) else { return };
        match found {
            // The watch has said something newer meanwhile.
            Ok(Some(object)) if older(object.id().resource_version, known.resource_version.as_deref()) => {}
            Ok(Some(object)) if *object.id().uid == uid || instead.as_ref() == Some(object.id().uid) => {
                self.settled(key, object);
            }
            Ok(_) => {
                self.known.remove(&key);
                self.queue.push_back(gone(key, uid));
            }
            Err(error) => {
                // Nobody said that it is gone: it stays known, and a list will bring it up again.
                tracing::debug!(%error, "whether an object is gone cannot be told yet");
                self.judge.clear();
                if !matches!(self.mode, Mode::Poll { .. }) {
                    self.mode = Mode::List;
                }
                let pause = error.retry_after().unwrap_or_else(|| self.cluster.backoff(self.attempts));
                self.attempts += 1;
                sleep(pause).await;
            }
        }
    }

    /// Compares what a list shows with what is known.
    pub(super) fn compare(&mut self, items: Vec<S>) {
        let mut missing = std::mem::take(&mut self.known);
        for object in items {
            let id = object.id();
            let key = key(&id);
            match missing.remove(&key) {
                Some(old) if old.uid == *id.uid && old.resource_version.as_deref() == Some(id.resource_version) => {
                    self.known.insert(key, old);
                    continue;
                }
                Some(old) => {
                    self.known.insert(key.clone(), old);
                    self.settled(key, object);
                }
                None if self.is_meant(&object) => self.settled(key, object),
                None => {}
            }
        }
        let by_label = matches!(self.query.select, Select::Labels(_));
        for (key, version) in missing {
            if by_label {
                // It may merely have lost the labels.
                self.judge.add(Doubt { key: key.clone(), uid: version.uid.clone(), bare: false, instead: None });
                self.known.insert(key, version);
            } else {
                self.queue.push_back(gone(key, version.uid));
            }
        }
    }
}

/// Whether a version comes before the one that is known. Versions of one kind are numbers that grow (KEP-5504); nothing
/// is said of others, nor where none is known.
fn older(version: &str, known: Option<&str>) -> bool {
    let number = |text: &str| text.parse::<u128>().ok();
    matches!((number(version), known.and_then(number)), (Some(version), Some(known)) if version < known)
}
