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
    assert_eq!(yaml::parse_nodes(&text).unwrap_err(), error);
}

#[test]
fn aliases_cannot_copy_long_texts_without_limit() {
    let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a, ".repeat(1000));
    let error = yaml::parse(&text).unwrap_err();
    assert_eq!(
        error.to_string(),
        "read YAML at line 2, column 673: the aliases expand to too large a document: at most 16 MiB and 1000 levels \
         are allowed"
    );
    assert_eq!(yaml::parse_nodes(&text).unwrap_err(), error);
    let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(10_000), "*a, ".repeat(1000));
    assert!(yaml::parse_nodes(&text).is_ok());
}

#[test]
fn nested_anchors_are_only_copied_if_they_are_used() {
    let nested = |levels: usize, end: &str| {
        let open: String = (0..levels).map(|level| format!("&a{level} [")).collect();
        format!("- {open}{}{}\n{end}", "x, ".repeat(20_000), "]".repeat(levels))
    };
    assert!(yaml::parse_nodes(&nested(200, "- '*'\n")).is_ok());
    assert!(yaml::parse_nodes(&nested(200, "- *a3\n")).is_ok());
    let uses: String = (0..200).map(|level| format!("- *a{level}\n")).collect();
    let error = yaml::parse_nodes(&nested(200, &uses)).unwrap_err();
    assert_eq!((error.kind, error.place.line), (yaml::ErrorKind::Aliases, 1));
}

#[test]
fn neither_brackets_nor_aliases_can_nest_a_document_without_limit() {
    for open in ["[", "{\"a\":", "- ", "[{a: "] {
        let text = open.repeat(100_000);
        let error = yaml::parse(&text).unwrap_err();
        assert_eq!(yaml::parse_nodes(&text).unwrap_err(), error);
        assert_eq!(error.kind, yaml::ErrorKind::Depth, "{open}");
        assert!(error.to_string().ends_with("mappings and lists are nested more than 255 levels deep"), "{error}");
    }
    let text = "[".repeat(255) + &"]".repeat(255);
    assert!(yaml::parse(&text).is_ok() && yaml::parse_nodes(&text).is_ok());
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
fn a_key_knows_the_line_of_the_entry_that_it_replaces() {
    let replaced = |text: &str| {
        let nodes = yaml::parse_nodes(text).unwrap();
        let NodeKind::Mapping(entries) = &nodes[0].kind else { panic!("{nodes:?}") };
        let line = |key: &yaml::Key| key.replaces.map_or(0, |line| line.get());
        entries.iter().map(|(key, _)| (key.text.clone(), key.line, line(key))).collect::<Vec<_>>()
    };
    let row = |key: &str, line, replaced| (key.to_owned(), line, replaced);
    assert_eq!(replaced("a: 1\nb: 2\na: 3\n"), [row("b", 2, 0), row("a", 3, 1)]);
    assert_eq!(replaced("a: 1\na: 2\n\na: 3\n"), [row("a", 4, 2)]);
    assert_eq!(replaced("{\"a\": 1,\n\"a\": 3}\n"), [row("a", 2, 1)]);
    // A merge key is there to be overridden.
    assert_eq!(replaced("<<: {a: 1}\na: 2\n"), [row("a", 2, 0)]);
    assert_eq!(replaced("a: 1\n<<: {a: 2}\n"), [row("a", 2, 0)]);
    assert_eq!(replaced("a: 1\n<<: {a: 2}\na: 3\n"), [row("a", 3, 1)]);
}

#[test]
fn nodes_of_json_have_their_lines_too() {
    let nodes = yaml::parse_nodes("{\"a\": 1}\n{\n  \"b\": 2\n}\n---\nc: 3\n").unwrap();
    let lines: Vec<_> =
        nodes.iter().zip(["a", "b", "c"]).map(|(node, key)| (node.line, node.get(key).unwrap().line)).collect();
    assert_eq!(lines, [(1, 1), (2, 3), (6, 6)]);
}
