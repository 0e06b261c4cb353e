//! The table, and the file with all measurements.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Value, json};

use crate::Options;
use crate::bars::{self, Bar, Verdict};
use crate::cases::{Case, Sizes};
use crate::samples::{Contender, Samples, Spread};
use crate::timing::Versions;

/// A row of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    title: String,
    floor: String,
    billhook: String,
    ratio: String,
    bar: String,
    verdicts: Vec<Verdict>,
    requests: String,
    peak: String,
    kubectl: String,
}

impl Row {
    /// Returns whether a bar is missed.
    pub(crate) fn missed(&self) -> bool {
        self.verdicts.iter().any(Verdict::missed)
    }

    fn cells(&self, judged: bool) -> [String; 9] {
        let verdict = if judged { bars::summary(&self.verdicts) } else { "-".to_owned() };
        let Self { title, floor, billhook, ratio, bar, requests, peak, kubectl, .. } = self;
        [title, floor, billhook, ratio, bar, &verdict, requests, peak, kubectl].map(String::clone)
    }
}

const HEADER: [&str; 9] =
    ["case", "floor s", "billhook s", "ratio", "bar", "verdict", "requests/object", "peak MiB (floor)", "kubectl s"];

/// Creates the rows of the table.
pub(crate) fn rows(selected: &[Case], sizes: &Sizes, samples: &Samples) -> Vec<Row> {
    let mut rows = Vec::new();
    for &case in selected {
        for delayed in [false, true] {
            if !samples.times.iter().any(|sample| (sample.case, sample.delayed) == (case, delayed)) {
                continue;
            }
            rows.push(row(case, delayed, sizes, samples));
        }
        if case == Case::Ordered {
            rows.extend(gap_row(samples));
        }
    }
    rows
}

fn row(case: Case, delayed: bool, sizes: &Sizes, samples: &Samples) -> Row {
    let seconds = |contender| samples.seconds(case, delayed, contender);
    let bar = Bar::of(case);
    let of = |case, contender| (case, delayed, contender);
    if case.is_of_payload() {
        return payload_row(case, sizes, samples);
    }
    let ratios = match bar {
        Bar::Floor(_) | Bar::Within(_) | Bar::None => {
            samples.quotients(of(case, Contender::Billhook), of(case, Contender::Floor))
        }
        Bar::Faster(_, first) => samples.quotients(of(first, Contender::Billhook), of(case, Contender::Billhook)),
        Bar::Alone(_, alone) => samples.quotients(of(case, Contender::Billhook), of(alone, Contender::Billhook)),
    };
    let ratio = Spread::of(&ratios);
    let mut verdicts: Vec<Verdict> = ratio.and_then(|ratio| bar.judge(ratio.median)).into_iter().collect();

    // Latency affects the time, but not the requests.
    let count = samples.count(case, Contender::Billhook).filter(|_| !delayed);
    let objects = case.objects(sizes);
    let per_object = count.map(|count| quotient(count.total(), objects));
    // With ten objects, the fixed requests of a run dominate.
    if let (Some(per_object), false) = (per_object, matches!(case, Case::FewAlone | Case::FewAmong)) {
        verdicts.push(Verdict::at_most("requests", per_object, bars::REQUESTS));
    }

    let peak = |contender| samples.of(case, delayed, contender).iter().map(|one| one.peak_mib).reduce(f64::max);
    if let (true, Some(peak)) = (case.is_many(), peak(Contender::Billhook)) {
        verdicts.push(Verdict::at_most("memory", peak * 1.048_576, bars::PEAK_MB));
    }
    let mebibytes = |peak: Option<f64>| peak.map_or("-".to_owned(), |peak| format!("{peak:.0}"));
    let kubectl = samples.of(case, delayed, Contender::Kubectl);
    let kubectl = kubectl.first().map_or("-".to_owned(), |sample| {
        if sample.capped { format!("> {:.0}", sample.seconds.floor()) } else { format!("{:.1}", sample.seconds) }
    });
    Row {
        title: format!("{}{}", case.title(sizes), if delayed { ", +20 ms" } else { "" }),
        floor: spread(Spread::of(&seconds(Contender::Floor))),
        billhook: spread(Spread::of(&seconds(Contender::Billhook))),
        ratio: spread(ratio),
        bar: bar.text(),
        verdicts,
        requests: per_object.map_or("-".to_owned(), |number| format!("{number:.3}")),
        peak: format!("{} ({})", mebibytes(peak(Contender::Billhook)), mebibytes(peak(Contender::Floor))),
        kubectl,
    }
}

/// Creates a row of payloads: their requests are judged where nothing changes, and their memory where there are many.
fn payload_row(case: Case, sizes: &Sizes, samples: &Samples) -> Row {
    let of = |contender| (case, false, contender);
    let seconds = |contender| Spread::of(&samples.seconds(case, false, contender));
    let ratio = Spread::of(&samples.quotients(of(Contender::Billhook), of(Contender::Floor)));
    let peak = |contender| samples.of(case, false, contender).iter().map(|one| one.peak_mib).reduce(f64::max);
    let bar = Bar::of(case);
    let judged = match bar {
        Bar::Within(_) => seconds(Contender::Billhook).map(|seconds| seconds.median * 1000.0),
        _ => ratio.map(|ratio| ratio.median),
    };
    let mut verdicts: Vec<Verdict> = judged.and_then(|value| bar.judge(value)).into_iter().collect();
    let (mut bar, mut requests) = (bar.text(), "-".to_owned());
    if let Some(count) = samples.count(case, Contender::Billhook) {
        requests = format!("{} in all", count.total());
        if case == Case::PayloadUnchanged {
            verdicts.push(Verdict::none("writes", count.writes()));
            verdicts.push(Verdict::none("lists too many", count.lists_of_a_kind.saturating_sub(1)));
        }
    }
    match case {
        Case::PayloadUnchanged => "no write, 1 list/kind".clone_into(&mut bar),
        Case::PayloadMany => {
            bar = format!("<= {} MB", bars::PAYLOAD_PEAK_MB);
            let peak = peak(Contender::Billhook);
            verdicts.extend(peak.map(|peak| Verdict::at_most("memory", peak * 1.048_576, bars::PAYLOAD_PEAK_MB)));
        }
        _ => {}
    }
    let mebibytes = |contender| peak(contender).map_or("-".to_owned(), |peak| format!("{peak:.0}"));
    Row {
        title: case.title(sizes),
        floor: spread(seconds(Contender::Floor)),
        billhook: spread(seconds(Contender::Billhook)),
        ratio: spread(ratio),
        bar,
        verdicts,
        requests,
        peak: format!("{} ({})", mebibytes(Contender::Billhook), mebibytes(Contender::Floor)),
        kubectl: "-".to_owned(),
    }
}

/// Creates the row of the gaps between groups, with the longest gap.
///
/// A watch may report a deletion just before the request that caused it is logged as complete; such gaps are zero.
fn gap_row(samples: &Samples) -> Option<Row> {
    let of = |contender| {
        let gaps = samples.gaps.iter().filter(|gap| gap.contender == contender);
        Spread::of(&gaps.map(|gap| gap.milliseconds.max(0.0) / 1000.0).collect::<Vec<f64>>())
    };
    let (floor, billhook) = (of(Contender::Floor), of(Contender::Billhook));
    floor.or(billhook)?;
    let verdicts = billhook.map(|gaps| Verdict::at_most("time", gaps.max * 1000.0, bars::GAP_MS));
    Some(Row {
        title: "- between two groups".to_owned(),
        floor: spread(floor),
        billhook: spread(billhook),
        ratio: "-".to_owned(),
        bar: format!("<= {} ms, all", bars::GAP_MS),
        verdicts: verdicts.into_iter().collect(),
        requests: "-".to_owned(),
        peak: "-".to_owned(),
        kubectl: "-".to_owned(),
    })
}

#[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
fn quotient(requests: u64, objects: usize) -> f64 {
    requests as f64 / objects as f64
}

/// Formats the median, and the minimum and maximum if there are several values.
fn spread(spread: Option<Spread>) -> String {
    match spread {
        None => "-".to_owned(),
        Some(Spread { median, min, max }) => {
            let digits = if median < 0.1 { 3 } else { 2 };
            if (max - min).abs() < f64::EPSILON {
                format!("{median:.digits$}")
            } else {
                format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
            }
        }
    }
}

/// Writes the table to standard output.
pub(crate) fn print(
    rows: &[Row],
    options: &Options,
    sizes: &Sizes,
    versions: &Versions,
    samples: &Samples,
) -> Result<()> {
    let mut text = String::new();
    let billhook = versions.billhook.as_deref().unwrap_or("without billhook");
    text += &format!(
        "{billhook}, Kubernetes {}, {} CPUs shared with the control plane; median (least-most) of {} runs\n\n",
        versions.kubernetes, versions.cpus, options.runs
    );
    let mut table = vec![HEADER.map(str::to_owned)];
    table.extend(rows.iter().map(|row| row.cells(!options.quick)));
    let widths: Vec<usize> =
        (0..HEADER.len()).map(|at| table.iter().map(|row| row[at].len()).max().unwrap_or_default()).collect();
    for (number, cells) in table.iter().enumerate() {
        let padded = cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        text += &format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "));
        if number == 0 {
            let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
            text += &format!("| {} |\n", rules.join(" | "));
        }
    }
    text += "\n";
    for note in notes(options, sizes, samples) {
        text += &format!("- {note}\n");
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("failed to write the table")
}

fn notes(options: &Options, sizes: &Sizes, samples: &Samples) -> Vec<String> {
    let mut notes = vec![
        "The floor creates by server-side apply, as billhook does. \"again\": the floor sends every PATCH again; the \
         ratio is billhook's first apply to its second."
            .to_owned(),
    ];
    for case in [Case::Create, Case::CreateSpread, Case::CreateMany] {
        for delayed in [false, true] {
            let Some(post) = Spread::of(&samples.seconds(case, delayed, Contender::FloorPost)) else { continue };
            let ratios = samples.quotients((case, delayed, Contender::Billhook), (case, delayed, Contender::FloorPost));
            let late = if delayed { ", +20 ms" } else { "" };
            let times = Spread::of(&ratios);
            let times = times.map(|ratio| format!("; billhook takes {} of that", spread(Some(ratio))));
            notes.push(format!(
                "{}{late}, by POST instead: floor {} s{}",
                case.title(sizes),
                spread(Some(post)),
                times.unwrap_or_default()
            ));
        }
    }
    for count in &samples.counts {
        let verbs: Vec<String> = count.by_verb.iter().map(|(verb, number)| format!("{number} {verb}")).collect();
        let own = match count.own {
            Some(own) if own == count.total() => ", and its own summary says so".to_owned(),
            Some(own) => format!("; ITS OWN SUMMARY SAYS {own}"),
            None => String::new(),
        };
        let (case, contender) = (count.case.title(sizes), count.contender.name());
        notes.push(format!("{case}, {contender}: {} requests ({}){own}", count.total(), verbs.join(", ")));
    }
    if options.quick {
        notes.push("A quick run: too few objects to judge anything.".to_owned());
    }
    notes.extend(samples.skipped.iter().map(|skipped| format!("NOT MEASURED: {skipped}")));
    notes.extend(samples.failures.iter().map(|failure| format!("FAILED: {failure}")));
    notes
}

/// All measurements.
pub(crate) fn json(rows: &[Row], versions: &Versions, samples: &Samples) -> Value {
    json!({"versions": versions, "rows": rows, "samples": samples})
}
