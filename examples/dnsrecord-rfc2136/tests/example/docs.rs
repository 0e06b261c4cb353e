//! `docs/extensions.md` shows the code of this example.

use std::{fs, path::Path};

/// A block of the page that shows a part of a file follows a comment with the file's name.
const MARK: &str = "<!-- examples/dnsrecord-rfc2136/";

#[test]
fn the_documentation_shows_the_code_as_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/extensions.md")).unwrap();
    let blocks: Vec<_> = page.split(MARK).skip(1).collect();
    for block in &blocks {
        let (file, rest) = block.split_once(" -->\n").unwrap();
        let (_, code) = rest.split_once('\n').unwrap();
        let (code, _) = code.split_once("\n```").unwrap();
        let source = fs::read_to_string(root.join(file)).unwrap();
        assert!(source.contains(code), "{file} does not contain this part of the page:\n{code}");
    }
    assert!(blocks.len() >= 5, "{} blocks", blocks.len());
}

#[test]
fn the_example_is_short() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = fs::read_dir(source).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let lines: usize = files.map(|text| text.lines().count()).sum();
    assert!(lines < 300, "{lines} lines");
}
