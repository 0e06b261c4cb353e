//! The config file of payloads.

use std::path::Path;

use billhook_objects::yaml::{self, Node, NodeKind};
use billhook_policy::nearest;

use crate::{
    error::{CommandError, Exit, Problem},
    input::read_file,
    session::Session,
};

/// The settings in a config file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Config {
    pub(super) name: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) profile: Option<String>,
    pub(super) feature_set: Option<String>,
    pub(super) feature_gates: Vec<String>,
    pub(super) capabilities: Vec<String>,
    pub(super) exclude: Option<String>,
    pub(super) overrides: Vec<String>,
    pub(super) cluster_version: Option<String>,
}

const FIELDS: [&str; 9] = [
    "name",
    "namespace",
    "profile",
    "featureSet",
    "featureGates",
    "capabilities",
    "exclude",
    "overrides",
    "clusterVersion",
];

/// Reads a config file, and reports all its mistakes.
pub(super) fn read(session: &Session, path: &Path) -> Result<Config, CommandError> {
    let text = read_file(session, path).map_err(CommandError::input)?;
    parse(&text).map_err(|mistakes| {
        let problem = |(line, text): (usize, String)| Problem::from(format!("{}:{line}: {text}", path.display()));
        CommandError::all(Exit::Input, mistakes.into_iter().map(problem).collect())
    })
}

type Mistake = (usize, String);

fn parse(text: &str) -> Result<Config, Vec<Mistake>> {
    let nodes =
        yaml::parse_nodes(text).map_err(|error| vec![(error.place.line, format!("not valid YAML: {}", error.kind))])?;
    let (mut config, mut mistakes) = (Config::default(), Vec::new());
    match nodes.as_slice() {
        [] => {}
        [Node { kind: NodeKind::Mapping(entries), .. }] => {
            for (key, node) in entries {
                if let Err(problem) = set(&mut config, &key.text, node) {
                    mistakes.push((key.line, problem));
                }
            }
        }
        [node] => mistakes.push((node.line, "expected a mapping".to_owned())),
        [_, second, ..] => mistakes.push((second.line, "expected one document".to_owned())),
    }
    if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
}

fn set(config: &mut Config, key: &str, node: &Node) -> Result<(), String> {
    let text = || node.as_str().map(str::to_owned).map(Some).ok_or_else(|| format!("{key}: expected a string"));
    let list = || match &node.kind {
        NodeKind::Sequence(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    let list = || list().ok_or_else(|| format!("{key}: expected a list of strings"));
    match key {
        "name" => config.name = text()?,
        "namespace" => config.namespace = text()?,
        "profile" => config.profile = text()?,
        "featureSet" => config.feature_set = text()?,
        "featureGates" => config.feature_gates = list()?,
        "capabilities" => config.capabilities = list()?,
        "exclude" => config.exclude = text()?,
        "overrides" => config.overrides = list()?,
        "clusterVersion" => config.cluster_version = text()?,
        _ => {
            let known = nearest(key, FIELDS).map_or_else(|| FIELDS.join(", "), str::to_owned);
            return Err(format!("unknown field {key:?} (known: {known})"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields_are_read() {
        let found = parse(
            "name: a\nnamespace: b\nprofile: c\nfeatureSet: d\nfeatureGates: [e, -f]\ncapabilities: [g]\nexclude: h\n\
             overrides: [i/j/k]\nclusterVersion: l\n",
        );
        let text = |text: &str| Some(text.to_owned());
        let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let expected = Config {
            name: text("a"),
            namespace: text("b"),
            profile: text("c"),
            feature_set: text("d"),
            feature_gates: list(&["e", "-f"]),
            capabilities: list(&["g"]),
            exclude: text("h"),
            overrides: list(&["i/j/k"]),
            cluster_version: text("l"),
        };
        assert_eq!(found, Ok(expected));
        assert_eq!(parse("# nothing\n"), Ok(Config::default()));
    }

    #[test]
    fn all_mistakes_are_reported_with_their_lines() {
        let mistake = |line: usize, text: &str| (line, text.to_owned());
        assert_eq!(
            parse("name: 1\nfeatureGate: [a]\ncapabilities: a\noverrides: [1]\n"),
            Err(vec![
                mistake(1, "name: expected a string"),
                mistake(2, "unknown field \"featureGate\" (known: featureGates)"),
                mistake(3, "capabilities: expected a list of strings"),
                mistake(4, "overrides: expected a list of strings"),
            ])
        );
        assert_eq!(parse("- a\n"), Err(vec![mistake(1, "expected a mapping")]));
    }
}
