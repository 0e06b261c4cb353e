//! Tests of what large and hostile documents cost.

use std::time::{Duration, Instant};

use billhook_objects::yaml;
use billhook_policy::{Diagnostics, controller_only, parse_document, read_policy_file, validate};
use proptest::{prelude::*, sample::Index};

use super::check::{check, file};

/// Reads a document in all ways and renders what was found.
fn read(text: &str) -> (Diagnostics, Vec<String>) {
    let found = validate(text, &file());
    let _ = read_policy_file(text, &file());
    for node in yaml::parse_nodes(text).unwrap_or_default() {
        let _ = parse_document(&node, &file());
        let _ = controller_only(&node, &file()).render(text);
    }
    let rendered = found.render(text);
    (found, rendered)
}

/// Asserts that what is printed is bounded, whatever the document contains.
fn assert_bounded(text: &str) -> Result<(), TestCaseError> {
    let (found, rendered) = read(text);
    prop_assert!(found.iter().count() <= 2 * Diagnostics::LISTED);
    prop_assert_eq!(found.is_empty(), found.errors() + found.warnings() == 0);
    for line in rendered.iter().flat_map(|rendered| rendered.lines()) {
        prop_assert!(line.chars().count() < 1200, "{line}");
    }
    Ok(())
}

/// The name of a document that repeats one thing, and its text by the number of repetitions.
type Repeated = (&'static str, fn(usize) -> String);

const LARGE: [Repeated; 6] = [
    ("groups with warnings", |n| {
        "deletionGroups:\n".to_owned() + &"- predefinedResourceGroup: {type: crds}\n".repeat(n)
    }),
    ("mistakes on one line", |n| {
        format!("{{\"deletionGroups\": [{}null]}}", "{\"predefinedResourceGroup\": {\"typo\": 1}}, ".repeat(n))
    }),
    ("manifests", |n| {
        let manifest = "- manifest: {apiVersion: v1, kind: A, metadata: {name: a}}\n  annotateBeforeCreate: {a: b}\n";
        "apiVersion: manifest.deployer.landscaper.gardener.cloud/v1alpha2\nkind: ProviderConfiguration\nmanifests:\n"
            .to_owned()
            + &manifest.repeat(n)
    }),
    ("kinds in a group", |n| {
        let kinds = numbered(n, |i| format!("    - {{apiVersion: v1, kind: k{i}}}\n"));
        format!("deletionGroups:\n- customResourceGroup:\n    resources:\n{kinds}")
    }),
    ("ranks", |n| {
        let rules =
            numbered(n, |i| format!("- {{deletionRank: {}, types: [{{group: a, version: v1, kind: b}}]}}\n", i + 1000));
        format!("deletionOrderRules:\n{rules}")
    }),
    ("unknown fields", |n| "deletionGroups: []\n".to_owned() + &numbered(n, |i| format!("field{i}: 1\n"))),
];

fn numbered(n: usize, each: impl Fn(usize) -> String) -> String {
    (0..n).map(each).collect()
}

#[test]
fn the_time_to_read_and_render_grows_with_the_document_and_not_with_its_square() {
    for (what, document) in LARGE {
        let time = |n| {
            let text = document(n);
            let once = |_| {
                #[expect(clippy::disallowed_methods, reason = "the time that reading takes is what this tests")]
                let start = Instant::now();
                read(&text);
                start.elapsed()
            };
            (0..2).map(once).min().unwrap()
        };
        let (small, large) = (time(1000), time(8000));
        // Linear is 8 times, quadratic 64 times.
        assert!(large < 24 * small.max(Duration::from_millis(5)), "{what}: {small:?} for 1000, {large:?} for 8000");
    }
}

#[test]
fn mistakes_on_one_line_do_not_copy_the_line_for_each_of_them() {
    let (_, document) = LARGE[1];
    let text = document(3000);
    let (found, rendered) = read(&text);
    assert_eq!((found.errors(), found.iter().count(), rendered.len()), (3001, 100, 101));
    assert_eq!(rendered[100], "2901 more errors\n");
    let size: usize = rendered.iter().map(String::len).sum();
    assert!(size < 100_000, "{size}");
    assert!(rendered.iter().flat_map(|text| text.lines()).all(|line| line.chars().count() < 170));
}

#[test]
fn a_name_of_any_length_is_cut_in_messages() {
    let long = "x".repeat(500_000);
    for text in [
        format!("deletionGroups: []\n{long}: 1\n"),
        format!("deletionGroups: [{{predefinedResourceGroup: {{type: {long}, {long}: 1}}}}]"),
        format!("deletionGroups: [{{resources: [{{group: '', version: v1, kind: '{long}.'}}]}}]"),
    ] {
        let (found, rendered) = read(&text);
        assert!(found.has_errors());
        assert!(rendered.iter().all(|text| text.len() < 4000), "{}", rendered[0]);
    }
}

#[test]
fn a_json_path_has_a_limited_length() {
    let config = |path: &str| {
        format!(
            "{{apiVersion: manifest.deployer.landscaper.gardener.cloud/v1alpha2, kind: ProviderConfiguration, \
             exports: {{exports: [{{key: a, jsonPath: {path}, \
             fromResource: {{apiVersion: v1, kind: A, name: a}}}}]}}}}"
        )
    };
    assert!(validate(&config(&".a".repeat(2000)), &file()).is_empty());
    let found = validate(&config(&".a".repeat(3000)), &file());
    assert!(
        found.to_string().contains("exports.exports[0].jsonPath: the JSONPath is longer than 4096 bytes"),
        "{found}"
    );
}

#[test]
fn a_field_that_is_set_twice_is_reported_with_both_lines() {
    check(
        "deletionGroups:\n- predefinedResourceGroup:\n    type: crds\n    timeout: 1m\n    timeout: 2m\n\
         - predefinedResourceGroup: {type: empty}\ndeletionGroups: []\n",
        "p:7:1: field \"deletionGroups\" is set twice, first in line 1 (remove one of the two)",
    );
    check(
        "deletionGroups:\n- customResourceGroup:\n    timeout: 1m\n    resources:\n    - apiVersion: v1\n      kind: cm\n      \
         kind: cm\n      labelSelector:\n        matchLabels: {a: b,\n          a: b}\n    timeout: 1m\n",
        "p:7:7: deletionGroups[0].customResourceGroup.resources[0]: field \"kind\" is set twice, first in line 6 \
         (remove one of the two)
         p:10:11: deletionGroups[0].customResourceGroup.resources[0].labelSelector.matchLabels: field \"a\" is set \
         twice, first in line 9 (remove one of the two)
         p:11:5: deletionGroups[0].customResourceGroup: field \"timeout\" is set twice, first in line 3 \
         (remove one of the two)",
    );
    check("{\"typo\": 1,\n\"typo\": 2, \"deletionGroups\": []}", "p:2:1: field \"typo\" is set twice, first in line 1 (remove one of the two)
         p:2:1: unknown field \"typo\" (known fields: deletionGroups, deletionOrderRules, deletionGroupsDuringUpdate, deploymentGroups)");
    // A merge key is there to be overridden.
    check("deletionGroups:\n- predefinedResourceGroup: {<<: {type: crds}, type: empty}\n", "empty");
}

#[test]
fn a_manifest_may_set_a_field_twice_as_in_kubectl() {
    let text = "apiVersion: manifest.deployer.landscaper.gardener.cloud/v1alpha2\nkind: ProviderConfiguration\nmanifests:\n\
                - manifest: {apiVersion: v1, kind: A, metadata: {name: a, name: b}}\n";
    assert!(validate(text, &file()).is_empty(), "{}", validate(text, &file()));
    let nodes = yaml::parse_nodes(text).unwrap();
    let document = parse_document(&nodes[0], &file()).unwrap().unwrap();
    assert_eq!(document.configuration.manifests[0].manifest["metadata"]["name"], "b");
    let repeated = validate(&format!("{text}  policy: keep\n  policy: keep\n"), &file()).to_string();
    assert_eq!(repeated, "p:6:3: manifests[0]: field \"policy\" is set twice, first in line 5 (remove one of the two)");
}

/// Returns the YAML examples of the user's guide.
pub(crate) fn documented() -> Vec<String> {
    let pages = [include_str!("../../../../docs/policy.md"), include_str!("../../../../docs/deployitems.md")];
    let blocks = pages.iter().flat_map(|page| page.split("\n```yaml").skip(1));
    let code = |block: &str| Some(block.split_once('\n')?.1.split("\n```").next()?.to_owned());
    blocks.filter_map(code).collect()
}

/// A change of a document.
#[derive(Clone, Debug)]
pub(crate) enum Mutation {
    DeleteLine(Index),
    RepeatLine(Index, usize),
    SwapLines(Index, Index),
    Indent(Index, usize),
    Insert(Index, String),
    ReplaceWord(Index, String),
    Alias(usize, usize),
    Nest(&'static str, usize),
    LongLine(Index, usize),
    OneLine,
}

pub(crate) fn mutation() -> impl Strategy<Value = Mutation> {
    let line = any::<Index>;
    prop_oneof![
        line().prop_map(Mutation::DeleteLine),
        (line(), 1_usize..300).prop_map(|(line, times)| Mutation::RepeatLine(line, times)),
        (line(), line()).prop_map(|(one, other)| Mutation::SwapLines(one, other)),
        (line(), 0_usize..9).prop_map(|(line, by)| Mutation::Indent(line, by)),
        (line(), "[-a-z:{}\\[\\]&*!|>'\"%@`#,?<~\t\u{1}é ]{1,5}").prop_map(|(at, text)| Mutation::Insert(at, text)),
        (line(), "(null|true|0|-1|1e9|''|[{]a: 1}|[\\[]x]|crds|[*]a|5m|[.]inf)")
            .prop_map(|(word, text)| Mutation::ReplaceWord(word, text)),
        (1_usize..9, 1_usize..12).prop_map(|(levels, width)| Mutation::Alias(levels, width)),
        (proptest::sample::select(vec!["[", "{a: ", "- ", "? "]), 1_usize..2000)
            .prop_map(|(open, times)| Mutation::Nest(open, times)),
        (line(), 1_usize..50_000).prop_map(|(line, length)| Mutation::LongLine(line, length)),
        Just(Mutation::OneLine),
    ]
}

impl Mutation {
    pub(crate) fn apply(&self, text: &str) -> String {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.is_empty() {
            lines.push(String::new());
        }
        let count = lines.len();
        match self {
            Self::DeleteLine(at) => drop(lines.remove(at.index(count))),
            Self::RepeatLine(at, times) => {
                let line = lines[at.index(count)].clone();
                lines.extend(std::iter::repeat_n(line, *times));
            }
            Self::SwapLines(one, other) => lines.swap(one.index(count), other.index(count)),
            Self::Indent(at, by) => {
                let line = at.get_mut(&mut lines);
                *line = " ".repeat(*by) + line.trim_start();
            }
            Self::Insert(at, inserted) => {
                let mut chars: Vec<char> = text.chars().chain(['\n']).collect();
                let at = at.index(chars.len());
                chars.splice(at..at, inserted.chars());
                return chars.into_iter().collect();
            }
            Self::ReplaceWord(at, new) => {
                let mut words: Vec<&str> = text.split(' ').collect();
                *at.get_mut(&mut words) = new;
                return words.join(" ");
            }
            Self::Alias(levels, width) => {
                lines.push("a0: &a0 {typo: x}".to_owned());
                for level in 1..=*levels {
                    let items = vec![format!("*a{}", level - 1); *width].join(", ");
                    lines.push(format!("a{level}: &a{level} [{items}]"));
                }
                lines.push(format!("deletionGroups: *a{levels}"));
            }
            Self::Nest(open, times) => return open.repeat(*times) + text,
            Self::LongLine(at, length) => *at.get_mut(&mut lines) += &"é".repeat(*length),
            Self::OneLine => {
                let documents = yaml::parse(text).unwrap_or_default();
                return documents.iter().map(|document| document.value.to_string()).collect::<Vec<_>>().join(" ");
            }
        }
        lines.join("\n") + "\n"
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn no_mutation_of_a_documented_example_crashes_the_reader(
        example in any::<Index>(),
        mutations in proptest::collection::vec(mutation(), 1..5),
    ) {
        let mut text = example.get(&documented()).clone();
        for mutation in mutations {
            text = mutation.apply(&text);
        }
        assert_bounded(&text)?;
    }
}
