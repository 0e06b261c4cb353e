//! The oracle, which checks what must never happen.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::{Arc, Mutex, PoisonError},
};

use billhook_sandbox::Sandbox;
use http::Method;
use serde_json::Value;

use super::world::{Group, KINDS, NAMESPACES, SLOTS, name, slot_kind, slot_namespace};

/// The permitted effects of a command.
enum Call {
    None,
    /// It may delete objects of the old version that the new one does not contain.
    Apply {
        old: Vec<usize>,
        new: Vec<usize>,
    },
    Delete {
        ours: Vec<usize>,
        policy: Vec<Group>,
    },
}

pub struct Oracle {
    sandbox: Sandbox,
    call: Call,
    /// The UIDs at the start of the command: a recreated object is another object.
    uids: BTreeMap<usize, String>,
    printed: String,
}

impl Oracle {
    pub fn new(sandbox: Sandbox) -> Self {
        Self { sandbox, call: Call::None, uids: BTreeMap::new(), printed: String::new() }
    }

    pub fn begin_apply(&mut self, old: Vec<usize>, new: Vec<usize>) {
        self.begin(Call::Apply { old, new });
    }

    pub fn begin_delete(&mut self, ours: Vec<usize>, policy: Vec<Group>) {
        self.begin(Call::Delete { ours, policy });
    }

    fn begin(&mut self, call: Call) {
        let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        self.uids = (0..SLOTS).filter_map(|slot| Some((slot, uid(&self.find(slot)?)))).collect();
        self.call = call;
        self.printed.clear();
    }

    pub fn end(&mut self) {
        self.call = Call::None;
    }

    pub fn printed(&self) -> &str {
        &self.printed
    }

    /// Returns the object of a slot.
    pub fn find(&self, slot: usize) -> Option<Value> {
        let (group, _, _, plural, _) = KINDS[slot_kind(slot)];
        let namespace = slot_namespace(slot).map_or("", |namespace| NAMESPACES[namespace]);
        self.sandbox.object(group, plural, namespace, &name(slot))
    }

    /// Checks a request before it takes effect.
    pub fn look(&self, method: &Method, path: &str) {
        let Some(slot) = slot_of(path) else { return };
        match (method, &self.call) {
            (&Method::DELETE, Call::Apply { old, new }) => {
                assert!(old.contains(&slot) && !new.contains(&slot), "an update deletes {path}");
            }
            (&Method::DELETE, Call::Delete { ours, policy }) => {
                let group = policy.iter().position(|group| group.covers(slot, ours.contains(&slot)));
                let Some(group) = group else { panic!("{path} is deleted, but no group selects it") };
                self.check_order(slot, group, ours, policy);
            }
            (&Method::PATCH, Call::Delete { ours, policy }) => {
                let group = policy.iter().find(|group| group.covers(slot, ours.contains(&slot)));
                assert!(group.is_some_and(Group::forces), "the finalizers of {path} are removed without force");
                let object = self.find(slot);
                let marked = object.is_none_or(|object| object["metadata"]["deletionTimestamp"].is_string());
                assert!(marked, "the finalizers of {path} are removed before it is marked for deletion");
            }
            _ => {}
        }
    }

    /// Checks that the objects of earlier groups are gone before a later one starts.
    fn check_order(&self, slot: usize, group: usize, ours: &[usize], policy: &[Group]) {
        for earlier in 0..SLOTS {
            let of = policy.iter().position(|group| group.covers(earlier, ours.contains(&earlier)));
            let Some(object) = self.find(earlier) else { continue };
            let known = self.uids.get(&earlier).is_some_and(|uid| object["metadata"]["uid"] == **uid);
            if known && of.is_some_and(|of| of < group) {
                panic!(
                    "{} of group {group} is deleted while {} of group {of:?} still exists",
                    name(slot),
                    name(earlier)
                );
            }
        }
    }

    /// Checks that "deleted" is printed only for objects that are gone.
    fn hear(&mut self, text: &str) {
        self.printed.push_str(text);
        for line in text.lines().filter_map(|line| line.strip_prefix("deleted ")) {
            let Some(object) = line.split_whitespace().nth(1) else { continue };
            let (namespace, name_) = object.split_once('/').unwrap_or(("", object));
            let slot = (0..SLOTS).find(|slot| {
                name(*slot) == name_ && slot_namespace(*slot).map_or("", |namespace| NAMESPACES[namespace]) == namespace
            });
            let Some(slot) = slot else { continue };
            let there = self.find(slot);
            let same =
                there.is_some_and(|there| self.uids.get(&slot).is_some_and(|uid| there["metadata"]["uid"] == **uid));
            assert!(!same, "\"deleted {line}\" was printed, but the object exists:\n{}", self.printed);
        }
    }

    /// Checks that no object of the policy remains after a successful deletion.
    pub fn check_gone(&self, ours: &[usize], policy: &[Group]) {
        for slot in 0..SLOTS {
            let covered = policy.iter().any(|group| group.covers(slot, ours.contains(&slot)));
            // An object that another client created under the same name does not belong to the release.
            let labelled = |object: &Value| object["metadata"]["labels"]["billhook.dev/release"].is_string();
            let all = policy.iter().any(|group| matches!(group, Group::All { .. }) && group.covers(slot, false));
            let known = |object: &Value| self.uids.get(&slot).is_some_and(|uid| object["metadata"]["uid"] == **uid);
            let left = self.find(slot).is_some_and(|object| labelled(&object) || all && known(&object));
            assert!(!(covered && left), "{} remains after a successful deletion:\n{}", name(slot), self.printed);
        }
    }

    /// Checks that every selected object with the label of the release is recorded.
    pub fn check_labels(&self, policy: &[Group]) {
        for slot in 0..SLOTS {
            let Some(object) = self.find(slot) else { continue };
            let ours = object["metadata"]["labels"]["billhook.dev/release"].is_string();
            let covered = policy.iter().any(|group| group.covers(slot, ours));
            assert!(!(ours && covered), "{} belongs to the release, but was forgotten", name(slot));
        }
    }
}

/// Returns the slot of a path.
fn slot_of(path: &str) -> Option<usize> {
    let mut parts = path.rsplit('/');
    let (name_, plural) = (parts.next()?, parts.next()?);
    let slot: usize = name_.strip_prefix('o')?.parse().ok()?;
    (slot < SLOTS && KINDS[slot_kind(slot)].3 == plural && name(slot) == name_).then_some(slot)
}

/// Standard output and standard error, which pass each line to the oracle.
#[derive(Clone)]
pub struct Printed(pub Arc<Mutex<Oracle>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).hear(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
