//! Tests of lines, columns and messages.

use billhook_objects::yaml::{self, Node, NodeKind};

fn check(text: &str, expected: &str) {
    let error = yaml::parse(text).unwrap_err();
    assert_eq!(error.to_string(), format!("read YAML at {expected}"), "{text:?}");
    assert_eq!(yaml::parse_nodes(text).unwrap_err(), error, "{text:?}, as nodes");
}

#[test]
fn errors_have_their_place_and_reason() {
    check("a: 1\nb: [1\n", "line 2, column 4: unclosed bracket '['");
    check("a: 1\n---\n\nb: .inf\n", "line 4, column 4: JSON has neither infinity nor NaN");
    check("a: 1\n---x\n", "line 2, column 1: only a comment may follow the separator '---' on its line, not \"x\"");
    check("a: 1\n...\nb: 1\n", "line 3, column 1: after '...' the next document must begin with '---'");
    check("é: {~: 1}\n", "line 1, column 5: null cannot be a key");
    check("- [a]: 1\n", "line 1, column 3: a mapping or sequence cannot be a key");
    check("a: !!int x\n", "line 1, column 10: \"x\" is not a !!int");
    check("a: &x {b: *x}\n", "line 1, column 11: the alias is inside the node that it refers to");
    check("a:\n  <<: [1]\n", "line 2, column 9: the value of '<<' must be a mapping or a sequence of mappings");
}

#[test]
fn aliases_cannot_expand_a_document_without_limit() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        text += &format!("a{level}: &a{level} [{items}]\n");
    }
    let error = yaml::parse(&text).unwrap_err();
    assert_eq!(error.kind, yaml::ErrorKind::Aliases);
}

#[test]
fn neither_brackets_nor_aliases_can_nest_a_document_without_limit() {
    assert!(yaml::parse(&"[".repeat(100_000)).is_err());
    assert!(yaml::parse(&"{\"a\":".repeat(100_000)).is_err());
    let mut text = format!("a0: &a0 {}{}\n", "[".repeat(100), "]".repeat(100));
    for level in 1..30 {
        text += &format!("a{level}: &a{level} {}*a{} {}\n", "[".repeat(100), level - 1, "]".repeat(100));
    }
    let error = yaml::parse_nodes(&text).unwrap_err();
    assert_eq!((error.kind, error.place.line), (yaml::ErrorKind::Aliases, 10));
}

#[test]
fn documents_have_their_first_line() {
    let lines = |text: &str| yaml::parse(text).unwrap().iter().map(|document| document.line).collect::<Vec<_>>();
    assert_eq!(lines("# comment\n\na: 1\n---\n# nothing\n---\n\n- b\n---\n"), [3, 8]);
    assert_eq!(lines("\u{feff}---\r\na: 1\r\n--- # next\r\nb: 1\r\n"), [2, 4]);
    assert_eq!(lines("{\"a\": 1}\n\n{\"b\": {\n}}\n{\"c\": 1}\n---\nd: 1\n"), [1, 3, 5, 7]);
}

#[test]
fn nodes_have_their_places() {
    let nodes = yaml::parse_nodes("---\nä: &x\n  - b: 'c'\nd: *x\ne: {f: 1, f: 2}\n").unwrap();
    let [root] = nodes.as_slice() else { panic!("{nodes:?}") };
    let NodeKind::Mapping(entries) = &root.kind else { panic!("{root:?}") };
    let keys: Vec<_> = entries.iter().map(|(key, _)| (key.text.as_str(), key.line, key.column)).collect();
    assert_eq!(keys, [("ä", 2, 1), ("d", 4, 1), ("e", 5, 1)]);
    let place = |node: &Node| (node.line, node.column);
    let items = root.get("d").unwrap();
    let NodeKind::Sequence(items) = &items.kind else { panic!("{items:?}") };
    assert_eq!(place(items[0].get("b").unwrap()), (3, 8));
    assert_eq!(items[0].get("b").unwrap().as_str(), Some("c"));
    let e = root.get("e").unwrap();
    assert_eq!(place(e), (5, 4));
    assert_eq!(place(e.get("f").unwrap()), (5, 14));
}

#[test]
fn nodes_of_json_have_their_lines_too() {
    let nodes = yaml::parse_nodes("{\"a\": 1}\n{\n  \"b\": 2\n}\n---\nc: 3\n").unwrap();
    let lines: Vec<_> =
        nodes.iter().zip(["a", "b", "c"]).map(|(node, key)| (node.line, node.get(key).unwrap().line)).collect();
    assert_eq!(lines, [(1, 1), (2, 3), (6, 6)]);
}
