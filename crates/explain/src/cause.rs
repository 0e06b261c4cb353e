//! A tree of causes.

use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use crate::{Code, Fact, NextStep, ObjectRef, Reason, Responsible};

/// How strong the evidence of a cause is, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// It is possible, and nothing contradicts it.
    Possible,
    /// A message says so: a condition, an Event, the answer to another request.
    Stated,
    /// It was read from the object in question, or the API server answered so.
    Proven,
}

/// Why an object is not gone, and the causes of that.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// The object that it is about.
    pub object: ObjectRef,
    /// The cause.
    pub reason: Reason,
    /// How strong the evidence is.
    pub strength: Strength,
    /// The evidence.
    pub evidence: Vec<Fact>,
    /// Who has to act.
    pub responsible: Option<Responsible>,
    /// What to do about it, the safest first.
    pub next_steps: Vec<NextStep>,
    /// What causes it.
    pub causes: Vec<Cause>,
    /// The objects whose causes explain this one, before these are known.
    pub(crate) waits_for: Vec<ObjectRef>,
}

impl Cause {
    pub(crate) fn new(object: &ObjectRef, reason: Reason, strength: Strength) -> Self {
        Self {
            object: object.clone(),
            reason,
            strength,
            evidence: Vec::new(),
            responsible: None,
            next_steps: Vec::new(),
            causes: Vec::new(),
            waits_for: Vec::new(),
        }
    }

    pub(crate) fn evidence(mut self, facts: impl IntoIterator<Item = Fact>) -> Self {
        self.evidence.extend(facts);
        self
    }

    pub(crate) fn responsible(mut self, responsible: Responsible) -> Self {
        self.responsible = Some(responsible);
        self
    }

    pub(crate) fn steps(mut self, steps: impl IntoIterator<Item = NextStep>) -> Self {
        self.next_steps.extend(steps);
        self.next_steps.sort_by_key(|step| step.risk);
        self
    }

    pub(crate) fn because(mut self, causes: impl IntoIterator<Item = Cause>) -> Self {
        self.causes.extend(causes);
        self
    }

    pub(crate) fn waits_for(mut self, objects: impl IntoIterator<Item = ObjectRef>) -> Self {
        self.waits_for.extend(objects);
        self
    }

    /// Returns the code.
    pub fn code(&self) -> Code {
        self.reason.code()
    }

    /// Sorts a list of causes, so that it does not depend on the order in which rules found them.
    pub(crate) fn sort(causes: &mut Vec<Self>) {
        causes.sort_by(|a, b| {
            let rank = |cause: &Self| (cause.strength, cause.code().precedence());
            rank(b)
                .cmp(&rank(a))
                .then_with(|| (&a.reason, &a.object, &a.evidence).cmp(&(&b.reason, &b.object, &b.evidence)))
        });
        causes.dedup_by(|a, b| a.reason == b.reason && a.object == b.object);
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Cause", 5)?;
        fields.serialize_field("code", &self.code())?;
        fields.serialize_field("message", &self.reason.to_string())?;
        fields.serialize_field("object", &self.object)?;
        fields.serialize_field("evidence", &self.evidence)?;
        fields.serialize_field("causes", &self.causes)?;
        fields.end()
    }
}
