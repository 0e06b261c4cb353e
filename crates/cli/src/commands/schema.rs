//! `billhook schema`: prints the JSON Schema of a document.

use clap::{Args, ValueEnum};

use crate::{error::Exit, session::Session};

/// Print the JSON Schema of a document, for editors
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SchemaArgs {
    /// Print the schema of this kind of document
    document: Document,
}

const EXAMPLES: &str = "\
Examples:
  billhook schema policy > policy.schema.json
  billhook schema payload > payload.schema.json

In an editor with the YAML language server, begin a policy file with this line:
  # yaml-language-server: $schema=policy.schema.json";

/// The documents that have a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Document {
    /// A policy file
    Policy,
    /// The configuration of a payload (`billhook payload --config`)
    Payload,
    /// A stages file (`billhook clean -f`)
    Stages,
}

/// Runs the command.
pub(crate) fn run(session: &Session, args: &SchemaArgs) -> Exit {
    session.printer.raw(match args.document {
        Document::Policy => billhook_policy::POLICY_SCHEMA,
        Document::Payload => billhook_policy::PAYLOAD_SCHEMA,
        Document::Stages => billhook_policy::STAGES_SCHEMA,
    });
    Exit::Done
}
