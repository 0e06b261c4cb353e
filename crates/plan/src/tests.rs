//! Every rule of planning, against a cluster that is a list of lines.

mod annotations;
mod apply;
mod blast;
mod clean;
mod cluster;
mod delete;
mod directives;
mod failures;
mod history;
mod note_docs;
mod notes;
mod properties;
mod queries;
mod safe;
mod sweep;
