//! The findings of `payload lint`: as text, as JSON, and as SARIF, which code hosts show next to a change.

use billhook_objects::ObjectKey;
use billhook_payload::lint::{Code, Finding};
use serde::Serialize;
use serde_json::{Value, json};

use super::one_line;
use crate::output::Paint;

/// Renders a finding: `FILE:LINE: CODE: text`, and below it how to fix it.
pub(crate) fn text(finding: &Finding, paint: Paint) -> String {
    let Finding { place, code, text, fix, .. } = finding;
    let name = code.name();
    let code = if code.is_error() { paint.bad(name) } else { paint.warn(name) };
    format!("{}: {code}: {}\n  fix: {}\n", one_line(&place.to_string()), one_line(text), one_line(fix))
}

/// What `-o json` prints for a finding.
#[derive(Serialize)]
pub(crate) struct Row<'a> {
    file: &'a str,
    line: usize,
    code: Code,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'a ObjectKey>,
    text: &'a str,
    fix: &'a str,
}

impl<'a> From<&'a Finding> for Row<'a> {
    fn from(Finding { place, code, object, text, fix }: &'a Finding) -> Self {
        Self { file: &place.file, line: place.line, code: *code, object: object.as_ref(), text, fix }
    }
}

/// Returns the findings as data.
pub(crate) fn rows(findings: &[Finding]) -> Vec<Row<'_>> {
    findings.iter().map(Row::from).collect()
}

/// Returns the findings as a log in SARIF 2.1.0.
pub(crate) fn sarif(findings: &[Finding]) -> Value {
    let level = |code: Code| if code.is_error() { "error" } else { "warning" };
    let rules: Vec<_> = Code::ALL
        .iter()
        .map(|&code| {
            json!({
                "id": code.name(),
                "shortDescription": { "text": code.summary() },
                "defaultConfiguration": { "level": level(code) },
            })
        })
        .collect();
    let results: Vec<_> = findings
        .iter()
        .map(|Finding { place, code, text, fix, .. }| {
            json!({
                "ruleId": code.name(),
                "ruleIndex": Code::ALL.iter().position(|known| known == code),
                "level": level(*code),
                "message": { "text": format!("{text} (fix: {fix})") },
                "locations": [{
                    "physicalLocation": {
                        "artifactLocation": { "uri": uri(&place.file) },
                        "region": { "startLine": place.line },
                    },
                }],
            })
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "billhook", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "results": results,
        }],
    })
}

/// Returns a path as a relative reference or, if it is absolute, as a URI.
fn uri(path: &str) -> String {
    let mut out = String::from(if path.starts_with('/') { "file://" } else { "" });
    for byte in path.strip_prefix("./").unwrap_or(path).bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(char::from(byte)),
            byte => out += &format!("%{byte:02X}"),
        }
    }
    out
}
