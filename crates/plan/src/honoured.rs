//! The annotations that a plan honours, collected for its notes.

use std::collections::{BTreeMap, BTreeSet};

use billhook_objects::ObjectKey;

use crate::{Annotation, AnnotationNote, Annotations, NoteKind, Treatment, annotations::Unreadable};

/// The annotations that change what happens to the objects of a plan, for its notes.
#[derive(Default)]
pub(crate) struct Honoured {
    /// The objects by annotation, and whether only the live object has it.
    objects: BTreeMap<(Annotation, bool), BTreeSet<ObjectKey>>,
    others: BTreeSet<AnnotationNote>,
}

impl Honoured {
    /// Adds an object that is treated as an annotation says.
    pub(crate) fn add(&mut self, annotation: Annotation, object: &ObjectKey, live_only: bool) {
        self.objects.entry((annotation, live_only)).or_default().insert(object.clone());
    }

    /// Adds an object that is not treated as an annotation says.
    pub(crate) fn add_not_recreated(&mut self, object: &ObjectKey) {
        self.others.insert(AnnotationNote::NotRecreated { object: object.clone() });
    }

    /// Adds an object that is only requested to be deleted, so that its finalizers are not removed later.
    pub(crate) fn add_not_finalized(&mut self, object: &ObjectKey) {
        self.others.insert(AnnotationNote::NotFinalized { object: object.clone() });
    }

    /// Reads how an object is to be treated, and adds those of the annotations that `matter` and cannot be read.
    pub(crate) fn read(&mut self, object: &ObjectKey, all: &Annotations, matter: &[Annotation]) -> Treatment {
        let (treatment, unreadable) = all.read();
        for Unreadable { annotation, key, value } in unreadable.into_iter().filter(|u| matter.contains(&u.annotation)) {
            self.others.insert(AnnotationNote::Unreadable { object: object.clone(), annotation, key, value });
        }
        treatment
    }

    /// Returns the notes.
    pub(crate) fn into_notes(self) -> impl Iterator<Item = NoteKind> {
        let honoured = self.objects.into_iter().map(|((annotation, live_only), objects)| {
            let counts = objects.iter().map(|object| &object.kind).collect();
            AnnotationNote::Honoured { annotation, counts, live_only }
        });
        honoured.chain(self.others).map(NoteKind::Annotation)
    }
}
