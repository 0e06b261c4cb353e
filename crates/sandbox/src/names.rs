//! Validation of names, label keys and the like, with the texts of Kubernetes.

/// Checks a name and returns what is wrong with it.
pub(crate) type Check = fn(&str) -> Vec<String>;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

fn explain(rule: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn too_long(bytes: usize) -> String {
    format!("must be no more than {bytes} bytes")
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte == b'-' || byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_qualified(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    outer(text.as_bytes().first()) && outer(text.as_bytes().last()) && text.bytes().all(inner)
}

/// Checks the name of a Namespace or Service.
pub(crate) fn dns_label(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push(too_long(63));
    }
    if !is_label(text) {
        let rule = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                    and must start and end with an alphanumeric character";
        let dots = is_subdomain(text);
        wrong.push(if dots {
            "must not contain dots".to_owned()
        } else {
            explain(rule, LABEL, &["my-name", "123-abc"])
        });
    }
    wrong
}

/// Checks a name in a CustomResourceDefinition, which must be an RFC 1035 label.
pub(crate) fn dns_1035_label(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push(too_long(63));
    }
    if !text.starts_with(|first: char| first.is_ascii_lowercase()) || !is_label(text) {
        let rule = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
                    start with an alphabetic character, and end with an alphanumeric character";
        wrong.push(explain(rule, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    wrong
}

/// Checks the names of most objects.
pub(crate) fn dns_subdomain(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 253 {
        wrong.push(too_long(253));
    }
    if !is_subdomain(text) {
        let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                    and must start and end with an alphanumeric character";
        wrong.push(explain(rule, &format!("{LABEL}(\\.{LABEL})*"), &["example.com"]));
    }
    wrong
}

/// Checks the name of a role or binding, which only has to be a valid path segment.
pub(crate) fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    let found = ["/", "%"].into_iter().filter(|part| text.contains(part));
    found.map(|part| format!("may not contain '{part}'")).collect()
}

/// Checks the key of a label or annotation, or a finalizer: a name with an optional domain and slash before it.
pub(crate) fn label_key(text: &str) -> Vec<String> {
    const RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', \
                        and must start and end with an alphanumeric character";
    let explained = |what: &str| explain(&format!("{what} {RULE}"), QUALIFIED, &["MyName", "my.name", "123-abc"]);
    let mut wrong = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(dns_subdomain(prefix).iter().map(|wrong| format!("prefix part {wrong}")));
            }
            name
        }
        _ => {
            let explained = explained("a valid label key");
            return vec![format!(
                "{explained} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        wrong.push(format!("name part {}", too_long(63)));
    }
    if !is_qualified(name) {
        wrong.push(explained("name part"));
    }
    wrong
}

pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push(too_long(63));
    }
    if !text.is_empty() && !is_qualified(text) {
        let rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                    and must start and end with an alphanumeric character";
        wrong.push(explain(rule, &format!("({QUALIFIED})?"), &["MyValue", "my_value", "12345"]));
    }
    wrong
}

/// Checks a key of a ConfigMap or Secret.
pub(crate) fn config_key(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 253 {
        wrong.push(too_long(253));
    }
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.is_empty() || !text.bytes().all(inner) {
        let rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        wrong.push(explain(rule, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    match text {
        "." => wrong.push("must not be '.'".to_owned()),
        ".." => wrong.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let cases: &[(Check, &str, &[&str])] = &[
            (dns_label, "a-1", &[]),
            (dns_label, "1a", &[]),
            (dns_label, "a.b", &["must not contain dots"]),
            (dns_label, "-a", &["a lowercase RFC 1123 label must consist of"]),
            (dns_label, "", &["a lowercase RFC 1123 label must consist of"]),
            (dns_subdomain, "a.b-c.d", &[]),
            (dns_subdomain, "a..b", &["a lowercase RFC 1123 subdomain must consist of"]),
            (dns_subdomain, "A", &["a lowercase RFC 1123 subdomain must consist of"]),
            (path_segment, "system:a", &[]),
            (path_segment, "..", &["may not be '..'"]),
            (path_segment, "a/%", &["may not contain '/'", "may not contain '%'"]),
            (label_key, "example.com/My_Name", &[]),
            (label_key, "/x", &["prefix part must be non-empty"]),
            (label_key, "b!/x", &["prefix part a lowercase RFC 1123 subdomain"]),
            (label_key, "a/b/c", &["a valid label key must consist of"]),
            (label_key, "a/", &["name part must be non-empty", "name part must consist of"]),
            (label_value, "", &[]),
            (label_value, "-", &["a valid label must be an empty string or"]),
            (config_key, ".a", &[]),
            (config_key, "..", &["must not be '..'"]),
            (config_key, "a b", &["a valid config key must consist of"]),
        ];
        for (check, text, expected) in cases {
            let wrong = check(text);
            let same = wrong.len() == expected.len() && wrong.iter().zip(*expected).all(|(a, b)| a.starts_with(b));
            assert!(same, "{text:?}: {wrong:?}");
        }
        assert_eq!(dns_label(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        let all = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                   alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                   '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        assert_eq!(label_key("-a"), [all]);
    }
}
