//! Explains why an object is not gone: evidence in, a tree of causes out.
//!
//! Everything here is pure: no async, no clock, no I/O, no client. A [`Diagnosis`] asks in rounds. [`Diagnosis::queries`]
//! says what to read next, [`Diagnosis::learn`] takes the answers, until there is nothing more to ask or the budget is
//! used. Then [`Diagnosis::finding`] has the tree, its root cause and the next steps.
//!
//! A rule is a function of one object and of what is known so far. It asks for evidence by looking at it: what is not
//! known yet is what the next round queries. So a rule never waits, and the order of the rules does not matter.
//!
//! A [`Foresight`] asks in the same rounds what will go wrong with a deletion that has not begun.

mod access;
mod admission;
mod backend;
mod case;
mod cause;
mod controller;
mod diagnosis;
mod document;
mod evidence;
mod fact;
mod foresight;
mod inquiry;
mod kinds;
mod known;
mod object;
mod options;
mod quoted;
mod reason;
mod reference;
mod references;
mod registry;
mod report;
mod rule;
mod rules;
mod selector;
mod shell;
mod steps;
mod text;
mod tree;
mod workload;

pub use cause::{Cause, Strength};
pub use controller::is_lease_fresh;
pub use diagnosis::Diagnosis;
pub use document::{DOCUMENT_FORMAT, Document, Finding, RootCause, State, Unread};
pub use evidence::{Access, Answer, Content, Failure, Probe, Query};
pub use fact::{Fact, NextStep, Responsible, ResponsibleState, Risk};
pub use foresight::{Custodian, Foreseen, Foresight, Steps, ToDelete};
pub use inquiry::Inquiry;
pub use known::{Known, known};
pub use options::Options;
pub use reason::{Backend, Code, PodWait, Reason};
pub use reference::ObjectRef;
pub use shell::quoted;

#[cfg(test)]
mod tests;
