//! The index of a chart repository, of which only the versions of one chart are read: an index has up to 50 MiB.

use granit_parser::{Event, Parser, StrInput};
use serde_json::{Value, json};

/// A version of a chart in an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) version: String,
    /// The first of its addresses, which may be relative to that of the index.
    pub(crate) url: Option<String>,
}

/// The maximum depth of an index.
const MAX_NESTING: usize = 64;
/// The maximum number of versions of a chart: each needs a hundred times the memory of its shortest entry.
const MAX_VERSIONS: usize = 10_000;

/// Returns the versions of a chart in an index.
///
/// # Errors
///
/// When the text is not YAML, or has too many versions of the chart.
pub(crate) fn versions(text: &str, chart: &str) -> Result<Vec<Version>, String> {
    let mut options = granit_parser::options! { flow_nesting_limit: MAX_NESTING, block_nesting_limit: MAX_NESTING };
    options.set_emit_comments(false);
    let mut reader = Reader { events: Parser::new_from_str_with_options(text.trim_start_matches('\u{feff}'), options) };
    let mut versions = Vec::new();
    let root = loop {
        match reader.next()? {
            Event::StreamStart | Event::DocumentStart(..) => {}
            Event::StreamEnd | Event::DocumentEnd => return Ok(versions),
            root => break root,
        }
    };
    reader.mapping(root, &mut |reader, key, value| match key {
        "entries" => reader.mapping(value, &mut |reader, key, value| match key == chart {
            true => reader.sequence(value, &mut |reader, item| {
                versions.push(reader.version(item)?);
                match versions.len() > MAX_VERSIONS {
                    true => Err(format!("it has more than {MAX_VERSIONS} versions of the chart")),
                    false => Ok(()),
                }
            }),
            false => reader.skip(&value),
        }),
        _ => reader.skip(&value),
    })?;
    versions.retain(|version| !version.version.is_empty());
    Ok(versions)
}

/// Returns an index with nothing but these versions of a chart, for helm to choose one.
pub(crate) fn excerpt(chart: &str, versions: &[Version]) -> Value {
    let entries = versions.iter().map(|Version { version, .. }| {
        json!({"apiVersion": "v2", "name": chart, "version": version, "urls": ["https://none.invalid/chart.tgz"]})
    });
    json!({
        "apiVersion": "v1",
        "generated": "1970-01-01T00:00:00Z",
        "entries": { chart: entries.collect::<Vec<_>>() },
    })
}

/// Reads the events of a document, and builds nothing of what is skipped.
struct Reader<'t> {
    events: Parser<'t, StrInput<'t>>,
}

/// What to do with an entry of a mapping, from the first event of its value.
type OnEntry<'f, 't> = &'f mut dyn FnMut(&mut Reader<'t>, &str, Event<'t>) -> Result<(), String>;
/// What to do with an item of a sequence, from its first event.
type OnItem<'f, 't> = &'f mut dyn FnMut(&mut Reader<'t>, Event<'t>) -> Result<(), String>;

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<Event<'t>, String> {
        match self.events.next() {
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => Err(format!("line {}: {}", error.marker().line(), error.info())),
            None => Err("it ends too early".to_owned()),
        }
    }

    /// Skips the rest of a node.
    fn skip(&mut self, first: &Event<'t>) -> Result<(), String> {
        let mut depth = step(first);
        while depth > 0 {
            depth += step(&self.next()?);
        }
        Ok(())
    }

    /// Reads the entries of a mapping; skips another node.
    fn mapping(&mut self, first: Event<'t>, each: OnEntry<'_, 't>) -> Result<(), String> {
        if !matches!(first, Event::MappingStart(..)) {
            return self.skip(&first);
        }
        loop {
            match self.next()? {
                Event::MappingEnd => return Ok(()),
                Event::Scalar(key, ..) => {
                    let value = self.next()?;
                    each(self, &key, value)?;
                }
                other => {
                    self.skip(&other)?;
                    let value = self.next()?;
                    self.skip(&value)?;
                }
            }
        }
    }

    /// Reads the items of a sequence; skips another node.
    fn sequence(&mut self, first: Event<'t>, each: OnItem<'_, 't>) -> Result<(), String> {
        if !matches!(first, Event::SequenceStart(..)) {
            return self.skip(&first);
        }
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(()),
                item => each(self, item)?,
            }
        }
    }

    fn version(&mut self, first: Event<'t>) -> Result<Version, String> {
        let mut found = Version::default();
        self.mapping(first, &mut |reader, key, value| match (key, &value) {
            ("version", Event::Scalar(text, ..)) => {
                found.version = text.to_string();
                Ok(())
            }
            ("urls", _) => reader.sequence(value, &mut |reader, item| {
                match &item {
                    Event::Scalar(text, ..) if found.url.is_none() => found.url = Some(text.to_string()),
                    _ => {}
                }
                reader.skip(&item)
            }),
            _ => reader.skip(&value),
        })?;
        Ok(found)
    }
}

/// Returns how an event changes the depth.
fn step(event: &Event<'_>) -> i32 {
    match event {
        Event::MappingStart(..) | Event::SequenceStart(..) => 1,
        Event::MappingEnd | Event::SequenceEnd => -1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "\
# an index
apiVersion: v1
entries:
  other:
  - {version: 9.9.9, urls: [other-9.9.9.tgz]}
  shop:
  - annotations: {version: 0.0.1}
    created: 2016-10-06T16:23:20.499029981-06:00
    dependencies:
    - {name: db, version: 5.0.0, urls: [x]}
    urls:
    - https://a.example/shop-1.3.0.tgz
    - https://mirror.example/shop-1.3.0.tgz
    version: 1.3.0
  - version: \"1.2.3\"
    urls: [shop-1.2.3.tgz]
  - name: without a version
  - version: 1.0.0
generated: 2016-10-06T16:23:20.499029981-06:00
";

    #[test]
    fn the_versions_of_one_chart_are_read() {
        let check = |chart: &str, expected: &[(&str, Option<&str>)]| {
            let found = versions(INDEX, chart).unwrap();
            let found: Vec<_> = found.iter().map(|found| (found.version.as_str(), found.url.as_deref())).collect();
            assert_eq!(found, expected, "{chart}");
        };
        let shop =
            [("1.3.0", Some("https://a.example/shop-1.3.0.tgz")), ("1.2.3", Some("shop-1.2.3.tgz")), ("1.0.0", None)];
        check("shop", &shop);
        check("other", &[("9.9.9", Some("other-9.9.9.tgz"))]);
        check("flop", &[]);
        let json = r#"{"entries": {"shop": [{"version": "1.0.0", "urls": ["a.tgz"]}]}}"#;
        assert_eq!(versions(json, "shop").unwrap()[0].url.as_deref(), Some("a.tgz"));
    }

    #[test]
    fn what_is_not_an_index_has_no_versions_or_is_an_error() {
        for text in
            ["", "---\n", "[]", "x", "entries: []", "entries: {shop: {}}", "entries: {shop: [1, [2]]}", "entries:"]
        {
            assert_eq!(versions(text, "shop"), Ok(Vec::new()), "{text}");
        }
        for text in ["<html><body>a: b: c</body>", "entries: {shop: [", &"[".repeat(1000)] {
            assert!(versions(text, "shop").is_err(), "{text}");
        }
    }

    #[test]
    fn the_number_of_versions_is_limited() {
        let index = |count: usize| format!("entries:\n  shop:\n{}", "  - version: 1\n".repeat(count));
        assert_eq!(versions(&index(MAX_VERSIONS), "shop").map(|found| found.len()), Ok(MAX_VERSIONS));
        assert!(versions(&index(MAX_VERSIONS + 1), "shop").unwrap_err().contains("more than 10000 versions"));
        assert_eq!(versions(&index(MAX_VERSIONS + 1), "flop"), Ok(Vec::new()));
    }
}
