//! Tests that the examples of `docs/policy.md` compile, and that its mistakes are reported as it shows.

use billhook_policy::{read_policy_file, validate};

use super::check::{file, policy};

const PAGE: &str = include_str!("../../../../docs/policy.md");

/// Returns the blocks whose fence starts with ```` ```KIND ````, with the number of their first line.
pub(crate) fn blocks(kind: &str) -> Vec<(usize, String)> {
    let fence = format!("```{kind}");
    let mut found = Vec::new();
    let mut lines = PAGE.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line.trim_end() == fence {
            let block = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim_end() != "```");
            found.push((number + 2, block.map(|line| format!("{line}\n")).collect()));
        }
    }
    found
}

#[test]
fn every_example_compiles() {
    let blocks = blocks("yaml policy");
    assert!(blocks.len() > 10, "the page has examples");
    for (line, block) in blocks {
        if let Err(errors) = policy(&block) {
            panic!("the example at line {line} of docs/policy.md is not valid:\n{errors}");
        }
    }
}

#[test]
fn every_document_is_valid() {
    let blocks = blocks("yaml document");
    assert!(!blocks.is_empty());
    for (line, block) in blocks {
        let found = validate(&block, &file());
        assert!(
            !found.iter().any(|found| found.is_error()),
            "the document at line {line} of docs/policy.md: {found:?}"
        );
    }
}

/// Each mistake is followed by its diagnostics.
#[test]
fn every_mistake_is_reported_as_the_page_shows() {
    let (mistakes, outputs) = (blocks("yaml mistake"), blocks("text"));
    assert!(!mistakes.is_empty() && mistakes.len() == outputs.len());
    for ((line, mistake), (_, output)) in mistakes.into_iter().zip(outputs) {
        let found = read_policy_file(&mistake, &"policy.yaml".into()).unwrap_err().to_string();
        assert_eq!(found.trim(), output.trim(), "the mistake at line {line} of docs/policy.md");
    }
}
