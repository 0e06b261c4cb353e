//! A pass as text: the nodes in their order with their manifests, and then what is left out.

use billhook_payload::{Decision, Entry, Outcome, messages::resource};

use super::{Pass, one_line};
use crate::{output::Paint, render::columns};

/// Renders the pass.
pub(crate) fn render(pass: &Pass<'_>, paint: Paint) -> String {
    let mut out = vec![paint.bold(&pass.summary()), pass.execution()];
    for failure in &pass.preconditions {
        let label = if failure.blocks { paint.bad("blocked:") } else { paint.warn("warning:") };
        out.push(format!("{label} {} ({})", one_line(&failure.message), failure.reason));
    }
    let (decided, counting): (Vec<_>, _) = (pass.decided().collect(), pass.counting());
    for (at, node) in pass.graph.nodes.iter().enumerate() {
        let title = if node.steps.is_empty() { "barrier".to_owned() } else { one_line(&node.title) };
        let after: Vec<_> = node.after.iter().map(|before| (before + 1).to_string()).collect();
        let after = if after.is_empty() { String::new() } else { format!(", after {}", after.join(" ")) };
        out.push(String::new());
        out.push(format!("{}{after}", paint.bold(&format!("{}  {title}", at + 1))));
        let steps = node.steps.iter().filter_map(|step| decided.get(*counting.get(step.manifest)?));
        out.extend(rows(steps.copied(), paint));
    }
    let left: Vec<_> = decided.iter().filter(|(_, decision)| !decision.counts()).copied().collect();
    if !left.is_empty() {
        out.extend([String::new(), paint.bold("Left out")]);
        out.extend(rows(left.into_iter(), paint));
    }
    out.join("\n")
}

fn rows<'a>(decided: impl Iterator<Item = (&'a Entry, &'a Decision)>, paint: Paint) -> Vec<String> {
    let cells = decided.map(|(entry, decision)| {
        let object = resource(&entry.manifest.key);
        let row = [decision.outcome.to_string(), object, entry.file_name().to_owned(), decision.rule.to_string()];
        (decision.outcome, row.map(|cell| one_line(&cell)).to_vec())
    });
    let (outcomes, cells): (Vec<_>, Vec<_>) = cells.unzip();
    let lines = columns(&cells).into_iter().zip(outcomes).map(|(line, outcome)| match outcome {
        Outcome::Deleted => format!("   {}", paint.bad(&line)),
        Outcome::LeftOut => format!("   {}", paint.dim(&line)),
        Outcome::Applied | Outcome::CreatedOnly => format!("   {line}"),
    });
    lines.collect()
}
