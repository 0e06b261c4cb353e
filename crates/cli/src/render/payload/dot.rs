//! A pass as a graph in Graphviz' language.

use billhook_payload::{Outcome, messages::resource};

use super::Pass;

/// Renders the pass.
pub(crate) fn render(pass: &Pass<'_>) -> String {
    let mut out = String::from("digraph payload {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n");
    out += &format!("  label=\"{}\";\n  labelloc=t;\n", quoted(&pass.summary()));
    let (decided, counting): (Vec<_>, _) = (pass.decided().collect(), pass.counting());
    for (at, node) in pass.graph.nodes.iter().enumerate() {
        if node.steps.is_empty() {
            out += &format!("  n{at} [label=\"barrier\", shape=point, xlabel=\"barrier\"];\n");
        } else {
            let steps = node.steps.iter().filter_map(|step| decided.get(*counting.get(step.manifest)?));
            let mut label = format!("{}\\n\\n", quoted(&node.title));
            let mut deletes = false;
            for (entry, decision) in steps {
                let mark = match decision.outcome {
                    Outcome::Deleted => "delete ",
                    Outcome::CreatedOnly => "create only ",
                    Outcome::Applied | Outcome::LeftOut => "",
                };
                deletes |= decision.outcome == Outcome::Deleted;
                label += &format!("{mark}{}\\l", quoted(&resource(&entry.manifest.key)));
            }
            let color = if deletes { ", color=\"#c62828\", penwidth=2" } else { "" };
            out += &format!("  n{at} [label=\"{label}\"{color}];\n");
        }
        for before in &node.after {
            out += &format!("  n{before} -> n{at};\n");
        }
    }
    let left: Vec<_> = decided.iter().filter(|(_, decision)| !decision.counts()).collect();
    if !left.is_empty() {
        let lines: String = left
            .iter()
            .map(|(entry, decision)| {
                format!("{}: {}\\l", quoted(entry.file_name()), quoted(&decision.rule.to_string()))
            })
            .collect();
        out += &format!(
            "  left [label=\"left out\\n\\n{lines}\", style=dashed, fontcolor=\"#757575\", color=\"#757575\"];\n"
        );
    }
    out + "}\n"
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace(|char: char| char.is_control(), "\u{fffd}")
}
