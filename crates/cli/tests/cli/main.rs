//! The wiring of the command line: arguments, input and output. Scenarios test its behavior on clusters.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod call;
mod stage;
mod test_apply;
mod test_clean;
mod test_completion;
mod test_controller;
mod test_delete;
mod test_demo;
mod test_diff;
mod test_forget;
mod test_input;
mod test_list;
mod test_payload;
mod test_plan;
mod test_program;
mod test_rehearse;
mod test_report;
mod test_restore;
mod test_sandbox;
mod test_schema;
mod test_status;
mod test_take_over;
mod test_terminal;
mod test_validate;
mod test_webhook;
mod test_why;
