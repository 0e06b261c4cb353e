//! JSONPath as in kubectl and Landscaper (client-go's `util/jsonpath`), with and without braces.
//!
//! The dialect is translated to RFC 9535 and then parsed as such. It differs from the standard in these points:
//!
//! - The root is optional: `spec.x`, `.spec.x`, `$.spec.x` and `{.spec.x}` are the same.
//! - A name ends before the next `.`, `,`, `[`, `]`, `{`, `}`, `$`, `@` or space, so it may contain `-`, `/` and `:`. A
//!   backslash includes the next character in the name: `kubernetes\.io/hostname`.
//! - The same applies inside brackets: `['a.b']` is `.a.b`, and `['a\.b']` is one name.
//! - A filter has parentheses, makes one comparison, and never selects an element without the compared field.
//!
//! Templates (`range`, text between braces) are not supported: a path only selects values. Neither are paths that may select the same
//! value very often, because others write paths and objects: they have at most one `..`, and at most eight commas in brackets.

use std::fmt;

use jsonpath_rust::{
    parser::{model::JpQuery, parse_json_path},
    query::js_path_process,
};
use serde_json::Value;

/// A path to values in an object.
#[derive(Clone, Debug)]
pub struct JsonPath {
    text: String,
    query: JpQuery,
}

/// A text that is not a JSONPath.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read {text:?} as a JSONPath: {problem}")]
pub struct JsonPathError {
    text: String,
    problem: String,
}

impl JsonPathError {
    /// Returns the problem, without the path itself.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl JsonPath {
    /// Parses a path.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a path, or is a template with several parts, such as kubectl's `range`.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        let error = |problem| JsonPathError { text: text.to_owned(), problem };
        let standard = translate(text).map_err(error)?;
        check_cost(&standard).map_err(|problem| error(problem.to_owned()))?;
        let query = parse_json_path(&standard)
            .map_err(|_| error(format!("it translates to {standard}, which RFC 9535 does not allow")))?;
        Ok(Self { text: text.to_owned(), query })
    }

    /// Returns all values that the path selects; none if part of the path is missing.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let found = js_path_process(&self.query, value).unwrap_or_default();
        found.into_iter().map(|found| found.val()).collect()
    }
}

/// Compares the texts of the paths.
impl PartialEq for JsonPath {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for JsonPath {}

/// Prints the path as written.
impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Fails if a path in the syntax of RFC 9535 may select a value so often that this takes all time and memory: each `..` after another
/// one multiplies the number of results by the depth of the object, and each comma adds to a factor.
fn check_cost(standard: &str) -> Result<(), &'static str> {
    let (mut descents, mut commas) = (0, 0);
    for (index, c) in unquoted_indices(standard) {
        descents += usize::from(standard[index..].starts_with(".."));
        commas += usize::from(c == ',');
    }
    match (descents, commas) {
        (2.., _) => Err("it has '..' more than once"),
        (_, 9..) => Err("it has more than eight commas in brackets"),
        _ => Ok(()),
    }
}

/// Translates a path to the syntax of RFC 9535.
fn translate(text: &str) -> Result<String, String> {
    // Trailing spaces are kept: one of them may be escaped and part of a name.
    let text = text.trim_start();
    let inner = match text.strip_prefix('{') {
        Some(rest) => rest.trim_end().strip_suffix('}').ok_or("the brace is not closed at the end")?.trim_start(),
        None => text,
    };
    if inner.is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(format!("${}", segments(without_root(inner))?))
}

/// Removes a leading `$` or `@`, both of which mean the searched value.
fn without_root(text: &str) -> &str {
    text.strip_prefix(['$', '@']).unwrap_or(text)
}

/// Translates the segments after the root.
fn segments(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    // A path may start with a name.
    let mut named = !rest.is_empty() && !rest.starts_with(['.', '[']) && !rest.starts_with(char::is_whitespace);
    while named || !rest.is_empty() {
        if named {
            let (name, after) = name(rest)?;
            out += &name_segment(name);
            (rest, named) = (after, false);
        } else if let Some(after) = rest.strip_prefix("..") {
            // A third dot has no meaning.
            rest = after.strip_prefix('.').unwrap_or(after);
            out += "..";
            named = !rest.starts_with('[');
            if rest.is_empty() {
                return Err("a name must follow '..'".to_owned());
            }
        } else if let Some(after) = rest.strip_prefix('.') {
            rest = after;
            // A single dot is the value itself.
            named = !rest.is_empty() && !rest.starts_with('[');
        } else if let Some(after) = rest.strip_prefix("[?(") {
            let end = filter_end(after).ok_or("the filter is not closed with ')]'")?;
            out += &format!("[?{}]", filter(&after[..end])?);
            rest = &after[end + 2..];
        } else if let Some(after) = rest.strip_prefix('[') {
            let end = closing(after).ok_or("the bracket is not closed")?;
            out += &bracket(&after[..end])?;
            rest = &after[end + 1..];
        } else if let Some(after) = rest.strip_prefix(char::is_whitespace) {
            rest = after;
        } else {
            return Err(format!("unexpected {:?}", rest.chars().next().unwrap_or_default()));
        }
    }
    Ok(out)
}

/// Splits off the name at the beginning, as written.
fn name(text: &str) -> Result<(&str, &str), String> {
    const ENDS: [char; 12] = ['.', ',', '[', ']', '{', '}', '$', '@', ' ', '\t', '\r', '\n'];
    let end = plain(text).find(|(_, c)| ENDS.contains(c)).map(|(index, _)| index);
    match text.split_at(end.unwrap_or(text.len())) {
        ("", _) => Err("a name is missing".to_owned()),
        parts => Ok(parts),
    }
}

fn name_segment(name: &str) -> String {
    if name == "*" { "[*]".to_owned() } else { format!("[{}]", quoted(&unescaped(name))) }
}

/// Replaces each backslash and the next character by that character.
fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    out
}

/// Quotes a name for RFC 9535, whose strings include those of JSON.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Translates the content of brackets: `*`, an index, a slice, names in quotes, or several of them.
fn bracket(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = split_unquoted(text, ',').into_iter().map(str::trim).collect();
    if let [part] = parts[..]
        && let Some(path) = unquoted(part)
    {
        // A dot inside quotes separates names too.
        return segments(&format!(".{path}"));
    }
    let selectors = parts.into_iter().map(selector).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[{}]", selectors.join(",")))
}

/// Translates one of the selectors in brackets.
fn selector(text: &str) -> Result<String, String> {
    if text == "*" {
        return Ok(text.to_owned());
    }
    if let Some(path) = unquoted(text) {
        return match name(path)? {
            (name, "") => Ok(quoted(&unescaped(name))),
            _ => Err(format!("{text} is a path, but several names in brackets must be plain names")),
        };
    }
    let numbers: Vec<&str> = text.split(':').collect();
    let whole = |number: &&str| number.is_empty() || number.parse::<i64>().is_ok();
    if text.is_empty() || numbers.len() > 3 || !numbers.iter().all(whole) {
        return Err(format!("[{text}] is neither an index nor a name in quotes"));
    }
    Ok(text.to_owned())
}

/// Translates the content of a filter's parentheses.
fn filter(text: &str) -> Result<String, String> {
    let Some(start) = text.find(['!', '<', '>', '=']).filter(|start| *start > 0) else {
        return Ok(format!("@{}", segments(without_root(text.trim_start()))?));
    };
    let length = text[start..].find(|c| !matches!(c, '!' | '<' | '>' | '=')).unwrap_or(text.len() - start);
    let operator = &text[start..start + length];
    if !["==", "!=", "<", "<=", ">", ">="].contains(&operator) {
        return Err(format!("{operator:?} is not an operator: expected one of ==, !=, <, <=, >, >="));
    }
    let sides = [operand(&text[..start])?, operand(&text[start + length..])?];
    // In RFC 9535 a missing value differs from all others, so both sides are required to exist.
    let exist: String = sides.iter().filter(|side| side.starts_with("@[")).map(|side| format!("{side} && ")).collect();
    Ok(format!("{exist}{} {operator} {}", sides[0], sides[1]))
}

/// Translates a side of a comparison: a path, a string, a number or a boolean.
fn operand(text: &str) -> Result<String, String> {
    let text = text.trim_start();
    if text.starts_with(['@', '$', '.']) {
        return Ok(format!("@{}", segments(without_root(text))?));
    }
    let text = text.trim_end();
    if let Some(inner) = unquoted(text) {
        return Ok(quoted(&unescaped(inner)));
    }
    match serde_json::from_str(text) {
        Ok(value @ (Value::Bool(_) | Value::Number(_))) => Ok(value.to_string()),
        _ => Err(format!("cannot compare with {text:?}; put strings in quotes")),
    }
}

/// Returns the text between quotes of either kind, if they are a single pair.
fn unquoted(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let quotes: Vec<usize> = plain(text).filter(|(_, c)| *c == quote).map(|(index, _)| index).collect();
    (quotes == [0, text.len() - 1]).then(|| &text[1..text.len() - 1])
}

/// Finds the `)]` that closes a filter, ignoring those in quotes.
fn filter_end(text: &str) -> Option<usize> {
    unquoted_indices(text).find(|(index, c)| *c == ')' && text[index + 1..].starts_with(']')).map(|(index, _)| index)
}

/// Finds the `]` that closes a bracket, ignoring those in quotes.
fn closing(text: &str) -> Option<usize> {
    unquoted_indices(text).find(|(_, c)| *c == ']').map(|(index, _)| index)
}

fn split_unquoted(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (index, _) in unquoted_indices(text).filter(|(_, c)| *c == separator) {
        parts.push(&text[start..index]);
        start = index + separator.len_utf8();
    }
    parts.push(&text[start..]);
    parts
}

/// Iterates over the characters outside quotes.
fn unquoted_indices(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut open = None;
    plain(text).filter(move |(_, c)| {
        let was_open = open;
        match (was_open, *c) {
            (None, '\'' | '"') => open = Some(*c),
            (Some(quote), c) if c == quote => open = None,
            _ => {}
        }
        was_open.is_none() && open.is_none()
    })
}

/// Iterates over the characters that are neither a backslash nor escaped by one.
fn plain(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut escaped = false;
    text.char_indices().filter(move |(_, c)| {
        let was_escaped = escaped;
        escaped = *c == '\\' && !was_escaped;
        !was_escaped && !escaped
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({
            "kind": "Widget",
            "metadata": {"name": "w", "annotations": {"prometheus.io/port": "8080", "it's": "quoted"}},
            "spec": {"replicas": 3, "paused": false, "ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53}]},
            "status": {
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "a)] b"},
                    {"type": "Synced", "status": "False"},
                    {"status": "Unknown", "age": 7},
                ],
                "empty": [],
                "nothing": null,
            },
            "data": {"ca.crt": "x", "deep": {"name": "inner"}},
        })
    }

    /// Compares the values that a path selects with a JSON list.
    #[track_caller]
    fn check(path: &str, expected: Value) {
        let object = object();
        let parsed = JsonPath::parse(path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(json!(parsed.find(&object)), expected, "{path}");
        assert_eq!(parsed.to_string(), path);
    }

    #[test]
    fn the_dot_the_root_and_the_braces_are_optional() {
        for path in [
            "spec.replicas",
            ".spec.replicas",
            "$.spec.replicas",
            "{.spec.replicas}",
            " { $.spec.replicas } ",
            "spec.replicas\n",
        ] {
            check(path, json!([3]));
        }
        check(".", json!([object()]));
        check("{@}", json!([object()]));
    }

    #[test]
    fn names_with_dots_are_escaped() {
        for path in [
            r"metadata.annotations.prometheus\.io/port",
            r"metadata.annotations['prometheus\.io/port']",
            r#".metadata.annotations["prometheus\.io/port"]"#,
            r".['metadata'].annotations['prometheus\.io/port']",
            r"['metadata.annotations.prometheus\.io/port']",
        ] {
            check(path, json!(["8080"]));
        }
        check(r"{.data.ca\.crt}", json!(["x"]));
        check(".metadata.annotations.it's", json!(["quoted"]));
        // As in client-go, a dot in quotes separates names.
        check("data['ca.crt']", json!([]));
    }

    #[test]
    fn lists_have_indices_slices_and_wildcards() {
        check("spec.ports[0].name", json!(["http"]));
        check("spec.ports[-1].name", json!(["dns"]));
        check("spec.ports[7].name", json!([]));
        check("spec.ports[*].port", json!([80, 53]));
        check("spec.ports[0:1].port", json!([80]));
        check("spec.ports[:].port", json!([80, 53]));
        check("spec.ports[::2].port", json!([80]));
        check("spec.ports[0, 1].port", json!([80, 53]));
        check("metadata['name', 'annotations'].x", json!([]));
        check("['kind', 'nope']", json!(["Widget"]));
        check("data.*.name", json!(["inner"]));
    }

    #[test]
    fn recursive_descent_finds_names_at_any_depth() {
        let mut found: Vec<_> = JsonPath::parse("..name").unwrap().find(&object()).into_iter().cloned().collect();
        found.sort_by_key(Value::to_string);
        assert_eq!(found, ["dns", "http", "inner", "w"]);
        check("...replicas", json!([3]));
        check("..ports[0].port", json!([80]));
        check(".status..age", json!([7]));
    }

    #[test]
    fn filters_make_one_comparison() {
        check(r#"status.conditions[?(@.type=="Ready")].status"#, json!(["True"]));
        check("status.conditions[?(@.type == 'Ready')].status", json!(["True"]));
        check(r#"{.status.conditions[?(@.reason=="a)] b")].type}"#, json!(["Ready"]));
        check("status.conditions[?(@.age>=7)].status", json!(["Unknown"]));
        check("status.conditions[?(@.age<7)].status", json!([]));
        check("status.conditions[?(@.type)].type", json!(["Ready", "Synced"]));
        check("spec.ports[?(@.port!=80)].name", json!(["dns"]));
        check("status.conditions[?(@['type']==\"Synced\")].status", json!(["False"]));
        // The third condition has no type, so it is not selected.
        check("status.conditions[?(@.type!='Ready')].status", json!(["False"]));
        check("status.conditions[?(@.type==@.type)].status", json!(["True", "False"]));
    }

    #[test]
    fn missing_fields_select_nothing_and_null_selects_null() {
        check("spec.nope.deeper", json!([]));
        check("spec.replicas.deeper", json!([]));
        check("status.empty[*]", json!([]));
        check("status.nothing", json!([null]));
        check("spec.paused", json!([false]));
    }

    #[test]
    fn the_error_states_why_a_text_is_not_a_path() {
        for (path, problem) in [
            ("", "it is empty"),
            ("{}", "it is empty"),
            ("{.spec", "the brace is not closed at the end"),
            ("spec.ports[0", "the bracket is not closed"),
            ("spec.ports[x]", "[x] is neither an index nor a name in quotes"),
            ("spec.ports[]", "[] is neither an index nor a name in quotes"),
            ("spec.ports[1:2:3:4]", "[1:2:3:4] is neither an index nor a name in quotes"),
            ("['a.b','c']", "'a.b' is a path, but several names in brackets must be plain names"),
            ("spec.ports[?(@.name=='a'", "the filter is not closed with ')]'"),
            ("a[?(@.b='c')]", "\"=\" is not an operator: expected one of ==, !=, <, <=, >, >="),
            ("a[?(@.b==c)]", "cannot compare with \"c\"; put strings in quotes"),
            (
                "a[?(@.b==\"c\" && @.d==\"e\")]",
                "cannot compare with \"\\\"c\\\" && @.d==\\\"e\\\"\"; put strings in quotes",
            ),
            ("..a..b", "it has '..' more than once"),
            ("..a[?(@..b)]", "it has '..' more than once"),
            ("[0,0,0][0,0,0][0,0,0][0,0,0][0,0,0]", "it has more than eight commas in brackets"),
            ("a..", "a name must follow '..'"),
            ("a....b", "a name is missing"),
            ("{range .items[*]}{.a}{end}", "unexpected '}'"),
            ("{.a}{.b}", "unexpected '}'"),
            ("a b", "unexpected 'b'"),
            ("a$b", "unexpected '$'"),
            ("a[?(@..b==1)]", "it translates to $[\"a\"][?@..[\"b\"] == 1], which RFC 9535 does not allow"),
        ] {
            let error = JsonPath::parse(path).expect_err(path);
            assert_eq!(error.problem(), problem, "{path}");
        }
        assert_eq!(
            JsonPath::parse("a[x").unwrap_err().to_string(),
            "read \"a[x\" as a JSONPath: the bracket is not closed"
        );
    }

    #[test]
    fn what_is_no_descent_is_allowed_often() {
        for path in
            [r"a['b\.\.c']['d\.\.e']", r#"..a[?(@.b == "..,,,,,,,,,")]"#, "['a','b','c','d','e','f','g','h','i']"]
        {
            assert!(JsonPath::parse(path).is_ok(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in r#"[\[\].{}'"a-c*0-9:?()@$=<>!, \\-]{0,40}"#) {
            if let Ok(path) = JsonPath::parse(&text) {
                path.find(&object());
            }
        }

        #[test]
        fn any_key_is_found_by_its_escaped_name(key in "\\PC{1,12}") {
            let escaped: String = key.chars().flat_map(|c| ['\\', c]).collect();
            let object = json!({ key.as_str(): 1 });
            prop_assume!(key != "*");
            for path in [format!(".{escaped}"), format!("['{escaped}']")] {
                let parsed = JsonPath::parse(&path);
                prop_assert!(parsed.is_ok(), "{path}: {parsed:?}");
                prop_assert_eq!(parsed.unwrap().find(&object), [&json!(1)], "{}", path);
            }
        }
    }
}
