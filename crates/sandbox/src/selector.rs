//! Label and field selectors, with the error messages of the API server.

use serde_json::Value;

use crate::{
    names,
    object::{Stored, at_path},
    status::ApiError,
};

/// The label and field selectors of a list or watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Term>,
}

/// A condition on a label.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

/// A condition on a field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    equal: bool,
    value: String,
}

impl Selector {
    /// Parses `labelSelector` and `fieldSelector`. `selectable` are the fields of the kind.
    pub(crate) fn parse(labels: &str, fields: &str, selectable: &[String]) -> Result<Self, ApiError> {
        let labels = Parser { tokens: tokens(labels).into_iter().peekable() }.parse().map_err(ApiError::bad_request)?;
        let fields = parse_fields(fields, selectable).map_err(ApiError::bad_request)?;
        Ok(Self { labels, fields })
    }

    /// Replaces the names of fields by those in stored objects.
    pub(crate) fn rename_fields(mut self, stored: impl Fn(&str) -> String) -> Self {
        self.fields.iter_mut().for_each(|term| term.field = stored(&term.field));
        self
    }

    pub(crate) fn matches(&self, object: &Stored) -> bool {
        self.labels.iter().all(|requirement| requirement.matches(object.label(&requirement.key)))
            && self.fields_match(object)
    }

    /// Returns whether every object matches.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    fn fields_match(&self, object: &Stored) -> bool {
        // The object is parsed only for the few selectors that need it.
        let mut read: Option<Value> = None;
        self.fields.iter().all(|term| {
            let equal = match &*term.field {
                "metadata.name" => *object.name == *term.value,
                "metadata.namespace" => *object.namespace == *term.value,
                field => field_text(read.get_or_insert_with(|| object.value()), field) == term.value,
            };
            equal == term.equal
        })
    }
}

impl Requirement {
    fn matches(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|label| label.parse::<i64>().ok());
        let has = |values: &[String]| label.is_some_and(|label| values.iter().any(|value| value == label));
        match &self.test {
            Test::Exists => label.is_some(),
            Test::Absent => label.is_none(),
            Test::In(values) => has(values),
            Test::NotIn(values) => !has(values),
            Test::Above(bound) => number().is_some_and(|number| number > *bound),
            Test::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// Returns the text of a field that selectors compare.
fn field_text(object: &Value, field: &str) -> String {
    // Some fields have another name in selectors than in objects.
    let path = match field {
        "status.successful" => "status.succeeded",
        "source" => "source.component",
        "reportingComponent" if object["reportingComponent"].is_null() => "reportingController",
        _ => field,
    };
    match at_path(object, path) {
        Value::String(text) => text.clone(),
        value @ (Value::Bool(_) | Value::Number(_)) => value.to_string(),
        _ => match field {
            "spec.hostNetwork" | "spec.unschedulable" => "false".to_owned(),
            "status.successful" | "status.replicas" => "0".to_owned(),
            _ => String::new(),
        },
    }
}

/// Returns whether labels match a `metav1.LabelSelector`. An empty or missing selector matches everything.
pub(crate) fn label_selector_matches<'a>(selector: &Value, label: &dyn Fn(&str) -> Option<&'a str>) -> bool {
    let mut labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    labels.all(|(key, value)| label(key) == Some(value.as_str().unwrap_or_default()))
        && expressions.all(|expression| {
            let found = label(expression["key"].as_str().unwrap_or_default());
            let values = expression["values"].as_array();
            let within = found.is_some_and(|found| values.into_iter().flatten().any(|value| value == found));
            match expression["operator"].as_str() {
                Some("In") => within,
                Some("NotIn") => !within,
                Some("Exists") => found.is_some(),
                Some("DoesNotExist") => found.is_none(),
                _ => false,
            }
        })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A key, a value, or one of the operators `in` and `notin`.
    Word(&'a str),
    Symbol(&'a str),
}

impl<'a> Token<'a> {
    fn text(found: Option<Self>) -> &'a str {
        match found {
            Some(Self::Word(text) | Self::Symbol(text)) => text,
            None => "",
        }
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let special = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
    let blank = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let mut rest = text.trim_start_matches(blank);
    let mut found = Vec::new();
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else if special(first) {
            1
        } else {
            rest.find(|c| special(c) || blank(c)).unwrap_or(rest.len())
        };
        let (token, after) = rest.split_at(length);
        found.push(if special(first) { Token::Symbol(token) } else { Token::Word(token) });
        rest = after.trim_start_matches(blank);
    }
    found
}

struct Parser<'a> {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token<'a>>>,
}

impl<'a> Parser<'a> {
    fn parse(mut self) -> Result<Vec<Requirement>, String> {
        let mut all = Vec::new();
        loop {
            match self.tokens.peek().copied() {
                None => return Ok(all),
                Some(Token::Word(_) | Token::Symbol("!")) => {}
                other => {
                    let found = Token::text(other);
                    return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
                }
            }
            all.push(self.requirement().map_err(|error| format!("unable to parse requirement: {error}"))?);
            match self.tokens.next() {
                None => return Ok(all),
                Some(Token::Symbol(",")) => match self.tokens.peek().copied() {
                    Some(Token::Word(_) | Token::Symbol("!")) => {}
                    other => return Err(format!("found '{}', expected: identifier after ','", Token::text(other))),
                },
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", Token::text(other))),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.tokens.next_if_eq(&Token::Symbol("!")).is_some();
        let key = match self.tokens.next() {
            Some(Token::Word(key)) => key,
            other => return Err(format!("found '{}', expected: identifier", Token::text(other))),
        };
        let wrong = names::label_key(key);
        if !wrong.is_empty() {
            return Err(format!("<nil>: Invalid value: {}: {}", Value::from(key), wrong.join("; ")));
        }
        let requirement = |test| Ok(Requirement { key: key.to_owned(), test });
        if absent {
            return requirement(Test::Absent);
        }
        if matches!(self.tokens.peek(), None | Some(Token::Symbol(","))) {
            return requirement(Test::Exists);
        }
        match self.tokens.next() {
            Some(Token::Word("in")) => requirement(Test::In(self.values(key)?)),
            Some(Token::Word("notin")) => requirement(Test::NotIn(self.values(key)?)),
            Some(Token::Symbol("=" | "==")) => requirement(Test::In(self.value(key)?)),
            Some(Token::Symbol("!=")) => requirement(Test::NotIn(self.value(key)?)),
            Some(Token::Symbol(">")) => requirement(Test::Above(self.number(key)?)),
            Some(Token::Symbol("<")) => requirement(Test::Below(self.number(key)?)),
            other => Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", Token::text(other))),
        }
    }

    /// Parses `(a,b)`. An empty item is the empty value.
    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        let open = self.tokens.next();
        if open != Some(Token::Symbol("(")) {
            return Err(format!("found '{}' expected: '('", Token::text(open)));
        }
        if !matches!(self.tokens.peek(), Some(Token::Word(_) | Token::Symbol("," | ")"))) {
            let found = Token::text(self.tokens.peek().copied());
            return Err(format!("found '{found}', expected: ',', ')' or identifier"));
        }
        let mut values = Vec::new();
        loop {
            let value = match self.tokens.peek() {
                Some(Token::Word(value)) => *value,
                Some(Token::Symbol("," | ")")) => "",
                other => return Err(format!("found '{}', expected: ',', or identifier", Token::text(other.copied()))),
            };
            if !value.is_empty() {
                self.tokens.next();
            }
            values.push(value.to_owned());
            match self.tokens.next() {
                Some(Token::Symbol(",")) => {}
                Some(Token::Symbol(")")) => break,
                other => return Err(format!("found '{}', expected: ',' or ')'", Token::text(other))),
            }
        }
        values.sort();
        values.dedup();
        check_values(key, values)
    }

    fn text(&mut self) -> Result<&'a str, String> {
        match self.tokens.peek().copied() {
            None | Some(Token::Symbol(",")) => Ok(""),
            Some(Token::Word(value)) => {
                self.tokens.next();
                Ok(value)
            }
            other => Err(format!("found '{}', expected: identifier", Token::text(other))),
        }
    }

    fn value(&mut self, key: &str) -> Result<Vec<String>, String> {
        let value = self.text()?.to_owned();
        check_values(key, vec![value])
    }

    fn number(&mut self, key: &str) -> Result<i64, String> {
        let text = self.text()?;
        let wrong = "for 'Gt', 'Lt' operators, the value must be an integer";
        let number = text.parse().map_err(|_| format!("values[0]: Invalid value: {}: {wrong}", Value::from(text)))?;
        check_values(key, vec![text.to_owned()])?;
        Ok(number)
    }
}

fn check_values(key: &str, values: Vec<String>) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let found = names::label_value(value).join("; ");
        if !found.is_empty() {
            wrong.push(format!("values[{index}][{key}]: Invalid value: {}: {found}", Value::from(&**value)));
        }
    }
    match wrong.as_slice() {
        [] => Ok(values),
        [one] => Err(one.clone()),
        _ => Err(format!("[{}]", wrong.join(", "))),
    }
}

fn parse_fields(text: &str, selectable: &[String]) -> Result<Vec<Term>, String> {
    let mut parts = split_terms(text);
    parts.sort_unstable();
    let mut terms = Vec::new();
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let wrong = || format!("invalid selector: '{text}'; can't understand '{part}'");
        let at = part.find("!=").into_iter().chain(part.find('=')).min().ok_or_else(wrong)?;
        let (field, rest) = part.split_at(at);
        let equal = !rest.starts_with("!=");
        let value = rest.strip_prefix("!=").or(rest.strip_prefix("==")).or(rest.strip_prefix('=')).unwrap_or_default();
        terms.push(Term { field: field.to_owned(), equal, value: unescape(value)? });
    }
    let known = |field: &str| matches!(field, "metadata.name" | "metadata.namespace");
    match terms.iter().map(|term| &term.field).find(|field| !known(field) && !selectable.contains(field)) {
        None => Ok(terms),
        Some(field) if selectable.is_empty() => {
            let field = Value::from(&**field);
            Err(format!("{field} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""))
        }
        Some(field) => Err(format!("field label not supported: {field}")),
    }
}

/// Splits at commas that are not escaped by a backslash.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let here = !escaped && c == ',';
        escaped = !escaped && c == '\\';
        here
    })
    .collect()
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    let sequence = String::from_iter(other);
                    return Err(format!("invalid field selector: invalid escape sequence: \\{sequence}"));
                }
            },
            ',' | '=' => return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c))),
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Stored {
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "status": {"phase": "Pending", "succeeded": 2},
            "metadata": {"name": "a", "namespace": "shop", "labels": {"app": "x", "n": "7", "e": ""}},
        });
        Stored::new(object, 1)
    }

    #[test]
    fn label_selectors_match() {
        let cases = [
            ("", true),
            ("app", true),
            ("!app", false),
            ("! other", true),
            ("app=x", true),
            ("app==x,n=7", true),
            ("app = x , n != 7", false),
            ("other!=x", true),
            ("app in (y,x)", true),
            ("app in ()", false),
            ("e in ()", true),
            ("e=", true),
            ("app notin (x,)", false),
            ("other notin (x)", true),
            ("in in (in,notin)", false),
            ("n>6,n<8", true),
            ("n>7", false),
            ("app>1", false),
        ];
        for (selector, expected) in cases {
            let parsed = Selector::parse(selector, "", &[]).unwrap_or_else(|error| panic!("{selector}: {error:?}"));
            assert_eq!(parsed.matches(&object()), expected, "{selector}");
        }
    }

    #[test]
    fn invalid_label_selectors_are_rejected() {
        let cases = [
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
            ("a in (=", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
            ("a=b=c", "found '=', expected: ',' or 'end of string'"),
            ("!a=b", "found '=', expected: ',' or 'end of string'"),
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("a==!", "unable to parse requirement: found '!', expected: identifier"),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": \
                 for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            ("-a", "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of"),
            ("a=-b", "unable to parse requirement: values[0][a]: Invalid value: \"-b\": a valid label must be"),
            ("a in (-b,_c)", "unable to parse requirement: [values[0][a]: Invalid value: \"-b\": a valid label"),
        ];
        for (selector, expected) in cases {
            let error = Selector::parse(selector, "", &[]).expect_err(selector);
            assert!(error.message.starts_with(expected), "{selector}: {}", error.message);
            assert_eq!((error.code.as_u16(), error.reason), (400, "BadRequest"));
        }
    }

    #[test]
    fn field_selectors_match() {
        let selectable = ["status.phase", "status.successful", "spec.hostNetwork"].map(str::to_owned);
        let cases = [
            ("", true),
            ("metadata.name=a", true),
            ("metadata.name==b,,", false),
            ("metadata.name!=a", false),
            ("status.phase!=Running,metadata.namespace=shop", true),
            ("status.phase=Running", false),
            ("status.successful=2,spec.hostNetwork=false", true),
            (r"metadata.name=a\,b\=\\", false),
        ];
        for (selector, expected) in cases {
            let parsed = Selector::parse("", selector, &selectable).unwrap_or_else(|error| panic!("{error:?}"));
            assert_eq!(parsed.matches(&object()), expected, "{selector}");
        }
    }

    #[test]
    fn invalid_field_selectors_are_rejected() {
        let only = "\"a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
        let cases: &[(&str, &[&str], &str)] = &[
            ("a", &[], "invalid selector: 'a'; can't understand 'a'"),
            ("a!b", &[], "invalid selector: 'a!b'; can't understand 'a!b'"),
            ("a=b", &[], only),
            ("a=b", &["type"], "field label not supported: a"),
            ("a!b!=c", &["type"], "field label not supported: a!b"),
            ("metadata.name=a=b", &[], "invalid field selector: unescaped character in value: 61"),
            (r"metadata.name=a\x", &[], r"invalid field selector: invalid escape sequence: \x"),
            (r"metadata.name=a\", &[], r"invalid field selector: invalid escape sequence: \"),
        ];
        for (selector, selectable, expected) in cases {
            let selectable: Vec<String> = selectable.iter().map(|&field| field.to_owned()).collect();
            let error = Selector::parse("", selector, &selectable).expect_err(selector);
            assert_eq!(error.message, *expected, "{selector}");
        }
    }

    #[test]
    fn label_selectors_in_objects_match() {
        let cases = [
            (json!(null), true),
            (json!({}), true),
            (json!({"matchLabels": {"app": "x"}}), true),
            (json!({"matchLabels": {"app": "y"}}), false),
            (json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]}), true),
            (json!({"matchExpressions": [{"key": "no", "operator": "NotIn", "values": ["x"]}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}), false),
        ];
        for (selector, expected) in cases {
            let object = object();
            assert_eq!(label_selector_matches(&selector, &|key| object.label(key)), expected, "{selector}");
        }
    }
}
