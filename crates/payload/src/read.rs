//! Reads the files of a payload: objects in the order of files and documents, with run level and component.

use std::sync::Arc;

use billhook_objects::{Manifest, Source, parallel, yaml};

use crate::{
    annotations::Annotations,
    problem::{Problem, ProblemKind},
};

/// A file of a payload.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// The path as the user named it; the text after its last `/` is the name of the file.
    pub path: &'a str,
    /// The content.
    pub text: &'a str,
}

/// The objects of a payload in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Payload {
    /// The objects: files in the order of their names, and within each the documents in their order.
    pub entries: Vec<Entry>,
}

/// An object of a payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The object, with the file and line of its document.
    pub manifest: Manifest,
    /// Run level and component; `None` if the name of the file does not have them.
    pub step: Option<RunStep>,
    /// The annotations that decide what happens with the object.
    pub annotations: Annotations,
    /// The lines of these annotations, as far as they are in the text of the document.
    lines: Vec<(String, usize)>,
}

impl Entry {
    /// Returns the name of the file, without its folder.
    pub fn file_name(&self) -> &str {
        file_name(&self.manifest.source.file)
    }

    /// Returns the place of an annotation, or of the document if the annotation is not found in its text.
    pub fn place_of(&self, annotation: &str) -> Source {
        let line = self.lines.iter().find(|(key, _)| key == annotation).map(|(_, line)| *line);
        let Source { file, line: document } = &self.manifest.source;
        Source { file: Arc::clone(file), line: line.unwrap_or(*document) }
    }
}

/// The run level and the component in the name of a file such as `0000_50_cluster-autoscaler-operator_07_deployment.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunStep {
    /// The run level as written, `50`. Levels are compared as texts, so `5` and `05` are different levels.
    pub level: Arc<str>,
    /// The component, `cluster-autoscaler-operator`.
    pub component: Arc<str>,
}

impl RunStep {
    /// Parses a file name by the reference's expression `^0000_(\d+)_([a-zA-Z0-9]+(-[a-zA-Z0-9]+)*?)_`.
    pub fn parse(file_name: &str) -> Option<Self> {
        let (level, rest) = file_name.strip_prefix("0000_")?.split_once('_')?;
        let (component, _) = rest.split_once('_')?;
        let is_number = !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit());
        let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (is_number && component.split('-').all(is_word))
            .then(|| Self { level: level.into(), component: component.into() })
    }
}

impl Payload {
    /// Reads the files in the order of their names, compared byte by byte as `ls` does in the C locale, and returns what is
    /// wrong with them, too.
    pub fn read(files: &[File<'_>]) -> (Self, Vec<Problem>) {
        let mut sorted: Vec<_> = files.iter().collect();
        sorted.sort_by_key(|file| (file_name(file.path).as_bytes(), file.path));
        let read = parallel::map(&sorted, |file| Reader::read(file));
        let (mut payload, mut problems) = (Self { entries: Vec::with_capacity(read.len()) }, Vec::new());
        for reader in read {
            payload.entries.extend(reader.entries);
            problems.extend(reader.problems);
        }
        // Files that are empty are still being written.
        if let Some(first) = sorted.first().filter(|_| payload.entries.is_empty() && problems.is_empty()) {
            let place = Source { file: first.path.into(), line: 1 };
            problems.push(Problem { place, kind: ProblemKind::NoManifests });
        }
        (payload, problems)
    }
}

/// What a file contains.
#[derive(Default)]
struct Reader {
    entries: Vec<Entry>,
    problems: Vec<Problem>,
}

impl Reader {
    fn read(file: &File<'_>) -> Self {
        let mut reader = Self::default();
        reader.file(file);
        reader
    }

    fn file(&mut self, file: &File<'_>) {
        let path: Arc<str> = file.path.into();
        let step = RunStep::parse(file_name(file.path));
        let lines = Lines::of(file.text);
        let read = yaml::for_each(file.text, |document| {
            let start = document.line;
            match Manifest::from_document(document, &path) {
                Ok(manifests) => self.document(manifests, &step, &lines, start),
                Err(errors) => self.problems.extend(errors.into_iter().map(|error| Problem {
                    place: error.source_line,
                    kind: ProblemKind::NotObject { reason: error.problem },
                })),
            }
        });
        if let Err(error) = read {
            let place = Source { file: path, line: error.place.line };
            self.problems.push(Problem { place, kind: ProblemKind::Yaml { reason: error.kind.to_string() } });
        }
    }

    fn document(&mut self, manifests: Vec<Manifest>, step: &Option<RunStep>, lines: &Lines<'_>, start: usize) {
        // The items of a list share one document: the search for the annotations of an item starts after the last one found.
        let mut from = start;
        for manifest in manifests {
            let (annotations, problems) = Annotations::of(&manifest);
            let lines = lines.find(from, &annotations);
            from = lines.iter().map(|(_, line)| line + 1).max().unwrap_or(from);
            let place = manifest.source.clone();
            let problems = problems.into_iter().map(|kind| Problem { place: place.clone(), kind });
            self.problems.extend(problems);
            self.entries.push(Entry { manifest, step: step.clone(), annotations, lines });
        }
    }
}

/// The lines of a file.
struct Lines<'a>(Vec<&'a str>);

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        Self(text.lines().collect())
    }

    /// Returns the lines that name the annotations, from a line to the end of its document.
    fn find(&self, from: usize, annotations: &Annotations) -> Vec<(String, usize)> {
        let mut wanted: Vec<&str> = annotations.keys().collect();
        let mut found = Vec::new();
        let rows = (1..).zip(&self.0).skip(from.saturating_sub(1));
        for (line, row) in rows.take_while(|(line, row)| *line == from || !row.starts_with("---")) {
            if wanted.is_empty() {
                break;
            }
            if row.trim_start().starts_with('#') {
                continue;
            }
            wanted.retain(|key| {
                let names_it = row.contains(key);
                if names_it {
                    found.push(((*key).to_owned(), line));
                }
                !names_it
            });
        }
        found
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::{DELETE, FEATURE_SET};

    fn check_name(name: &str, expected: Option<(&str, &str)>) {
        let parsed = RunStep::parse(name);
        let parsed = parsed.as_ref().map(|step| (&*step.level, &*step.component));
        assert_eq!(parsed, expected, "{name}");
    }

    #[test]
    fn names_are_parsed_by_the_expression_of_the_reference() {
        check_name(
            "0000_50_cluster-autoscaler-operator_07_deployment.yaml",
            Some(("50", "cluster-autoscaler-operator")),
        );
        check_name("0000_1_a_", Some(("1", "a")));
        check_name("0000_050_a-b_x", Some(("050", "a-b")));
        for name in [
            "0000_50_a",
            "0000__a_x",
            "0000_5x_a_x",
            "0000_50__x",
            "0000_50_-a_x",
            "0000_50_a-_x",
            "0000_50_a--b_x",
            "0000_50_a.b_x",
            "0001_50_a_x",
            "50_a_x",
            "x0000_50_a_x",
            "0000_٥_a_x",
        ] {
            check_name(name, None);
        }
    }

    fn object(name: &str) -> String {
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}")
    }

    #[test]
    fn files_are_read_in_the_order_of_their_bytes_and_documents_in_theirs() {
        let texts: Vec<_> = ["b", "upper", "ten", "two", "plain"].map(object).into_iter().collect();
        let several = format!("{}\n---\n{}\n", object("second"), object("a"));
        let files = [
            File { path: "d/0000_20_b_x.yaml", text: &texts[3] },
            File { path: "d/0000_10_b_x.yaml", text: &texts[2] },
            File { path: "d/a.yaml", text: &texts[0] },
            File { path: "d/B.yml", text: &texts[1] },
            File { path: "d/0000_100_b_x.json", text: &texts[4] },
            File { path: "d/0000_10_a_x.yaml", text: &several },
        ];
        let (payload, problems) = Payload::read(&files);
        let names: Vec<_> = payload.entries.iter().map(|entry| entry.manifest.key.name.as_str()).collect();
        assert_eq!(names, ["plain", "second", "a", "ten", "two", "upper", "b"]);
        assert_eq!(problems, []);
        assert_eq!(payload.entries[2].manifest.source.to_string(), "d/0000_10_a_x.yaml:3");
        assert_eq!(payload.entries[2].file_name(), "0000_10_a_x.yaml");
        assert_eq!(payload.entries[5].step, None);
    }

    #[test]
    fn all_mistakes_of_all_files_are_returned() {
        let files = [
            File { path: "a.yaml", text: "kind: ConfigMap\n---\n- 1\n" },
            File { path: "b.yaml", text: "\na: [\n" },
            File {
                path: "c.yaml",
                text: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations: {include.release.openshift.io/x: true}\n",
            },
        ];
        let (payload, problems) = Payload::read(&files);
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(payload.entries.len(), 1);
        assert_eq!(problems.len(), 4, "{problems:#?}");
        assert_eq!(problems[0], "a.yaml:1: a ConfigMap without apiVersion");
        assert_eq!(problems[1], "a.yaml:3: not an object: every document needs apiVersion, kind and metadata.name");
        assert!(problems[2].starts_with("b.yaml:2: not valid YAML: "), "{}", problems[2]);
        assert_eq!(
            problems[3],
            "c.yaml:1: the value true of the annotation include.release.openshift.io/x is not a string: put it in quotes"
        );
    }

    #[test]
    fn a_payload_whose_files_are_all_empty_is_a_mistake() {
        let empty = ["", "# nothing\n---\n"].map(|text| File { path: "d/a.yaml", text });
        let problems: Vec<_> = Payload::read(&empty).1.iter().map(ToString::to_string).collect();
        assert_eq!(problems, ["d/a.yaml:1: neither this file nor any other of the payload contains a manifest"]);
        let text = object("a");
        let one = [empty[0], File { path: "d/b.yaml", text: &text }];
        assert_eq!(Payload::read(&one).1, []);
    }

    #[test]
    fn many_files_are_read_as_few_are() {
        let texts: Vec<_> = (0..300).map(|at| if at % 7 == 0 { "a: [".to_owned() } else { object("a") }).collect();
        let paths: Vec<_> = (0..300).map(|at| format!("d/0000_{}_a_{at}.yaml", at % 90)).collect();
        let files: Vec<_> = paths.iter().zip(&texts).map(|(path, text)| File { path, text }).collect();
        let (all, problems) = Payload::read(&files);
        let mut expected = (Vec::new(), Vec::new());
        let mut sorted = files.clone();
        sorted.sort_by_key(|file| file.path);
        for file in sorted {
            let (one, problems) = Payload::read(&[file]);
            expected.0.extend(one.entries);
            expected.1.extend(problems);
        }
        assert_eq!((all.entries, problems), expected);
    }

    #[test]
    fn annotations_have_the_line_that_names_them() {
        let text = "# release.openshift.io/delete\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations:\n    # release.openshift.io/delete: x\n    release.openshift.io/delete: \"true\"\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: b, annotations: {release.openshift.io/delete: 'true'}}}\n- {apiVersion: v1, kind: Secret, metadata: {name: c, annotations: {release.openshift.io/delete: 'no'}}}\n- {apiVersion: v1, kind: Secret, metadata: {name: d}}\n";
        let (payload, _) = Payload::read(&[File { path: "a.yaml", text }]);
        let lines: Vec<_> = payload.entries.iter().map(|entry| entry.place_of(DELETE).line).collect();
        assert_eq!(lines, [8, 13, 14, 10]);
        assert_eq!(payload.entries[0].place_of(FEATURE_SET).line, 2);
    }
}
