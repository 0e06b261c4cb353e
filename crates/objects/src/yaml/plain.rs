//! The part of YAML that every parser reads alike, for texts that decide about rights.

use granit_parser::Event;

use super::{
    error::{Error, ErrorKind},
    node::{Node, NodeKind, Place},
    tree::events,
};

/// Fails at the first feature of a text that parsers treat differently, except for duplicate keys.
pub(super) fn check_features(text: &str) -> Result<(), Error> {
    let mut documents = 0;
    for event in events(text, 0) {
        let (event, place) = event?;
        let feature = match event {
            Event::DocumentStart(..) => {
                documents += 1;
                (documents > 1).then_some("a second document")
            }
            Event::Alias(_) => Some("an alias"),
            // Also a quoted one: it has no other use.
            Event::Scalar(text, ..) if text == "<<" => Some("a merge key '<<'"),
            Event::Scalar(_, _, anchor, tag)
            | Event::SequenceStart(_, anchor, tag)
            | Event::MappingStart(_, anchor, tag) => match (anchor, tag) {
                (1.., _) => Some("an anchor"),
                (_, Some(_)) => Some("a tag"),
                _ => None,
            },
            _ => None,
        };
        if let Some(feature) = feature {
            return Err(Error { place, kind: ErrorKind::NotPlain(feature) });
        }
    }
    Ok(())
}

/// Fails at the first key that a mapping has twice.
pub(super) fn check_keys(node: &Node) -> Result<(), Error> {
    match &node.kind {
        NodeKind::Sequence(items) => items.iter().try_for_each(check_keys),
        NodeKind::Mapping(entries) => entries.iter().try_for_each(|(key, node)| match key.replaces {
            Some(line) => {
                let place = Place { line: key.line, column: key.column };
                Err(Error { place, kind: ErrorKind::Duplicate { key: key.text.clone(), line } })
            }
            None => check_keys(node),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::yaml::parse_plain;

    #[test]
    fn a_plain_text_is_read() {
        for text in [
            "---\n# a comment\na: [1, x]\nb: {c: '*d'}\n",
            r#"{"a": [1, "x"], "b": {"c": "*d"}}"#,
            "\u{feff}a:\n- 1\n- x\nb:\n  c: \"*d\"\n...\n",
        ] {
            let node = parse_plain(text).unwrap().unwrap();
            assert_eq!(node.to_value(), json!({"a": [1, "x"], "b": {"c": "*d"}}), "{text}");
        }
        assert_eq!(parse_plain("# nothing\n").unwrap(), None);
    }

    #[test]
    fn features_that_parsers_treat_differently_are_errors() {
        fn check(text: &str, error: &str) {
            assert_eq!(parse_plain(text).unwrap_err().to_string(), format!("read YAML at {error}"), "{text}");
        }
        check("a: 1\nb: &x 2\n", "line 2, column 7: an anchor is not allowed here");
        check("&x {a: 1}\n", "line 1, column 4: an anchor is not allowed here");
        check("a: !!str 1\n", "line 1, column 10: a tag is not allowed here");
        check("a: !x {b: 1}\n", "line 1, column 7: a tag is not allowed here");
        check("a:\n  <<: {b: 1}\n", "line 2, column 3: a merge key '<<' is not allowed here");
        check("{\"a\": {\"<<\": {\"b\": 1}}}", "line 1, column 8: a merge key '<<' is not allowed here");
        check("a: 1\n---\nb: 2\n", "line 2, column 1: a second document is not allowed here");
        check("a:\n- {b: 1}\n- b: 1\n  c: 2\n  b: 3\n", "line 5, column 3: the key \"b\" is already used in line 3");
        check("a: 1\n\"a\": 2\n", "line 2, column 1: the key \"a\" is already used in line 1");
        check("{\"a\": 1, \"a\": 2}", "line 1, column 10: the key \"a\" is already used in line 1");
        parse_plain("{\"a\": 1}{\"b\": 2}").unwrap_err();
        parse_plain("{\"a\": 1}\n---\nb: 2\n").unwrap_err();
        parse_plain("a: *x\n").unwrap_err();
        parse_plain("a: &x\n- 1\nb: *x\n").unwrap_err();
    }
}
