//! URLs of the Kubernetes API.

use billhook_plan::Resource;

/// Returns the URL of all objects of a kind, or of those in one namespace.
pub(crate) fn collection(resource: &Resource, namespace: Option<&str>) -> String {
    let mut url = if resource.kind.group.is_empty() {
        format!("/api/{}", segment(&resource.version))
    } else {
        format!("/apis/{}/{}", segment(&resource.kind.group), segment(&resource.version))
    };
    if let Some(namespace) = namespace.filter(|_| resource.namespaced) {
        url.push_str("/namespaces/");
        url.push_str(&segment(namespace));
    }
    url.push('/');
    url.push_str(&segment(&resource.plural));
    url
}

/// Returns the URL of one object.
pub(crate) fn object(resource: &Resource, namespace: Option<&str>, name: &str) -> String {
    format!("{}/{}", collection(resource, namespace), segment(name))
}

/// Returns the URL for requests of tokens of a ServiceAccount.
pub(crate) fn service_account_token(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", segment(namespace), segment(name))
}

/// Adds query parameters, without those that have an empty value.
pub(crate) fn with_query(url: &str, parameters: &[(&str, &str)]) -> String {
    let mut out = url.to_owned();
    let mut separator = '?';
    for (key, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        out.push(separator);
        out.push_str(key);
        out.push('=');
        escape(value, "-._~", &mut out);
        separator = '&';
    }
    out
}

/// Escapes one segment of a path. Names such as `system:node` keep their colon, as in kubectl's requests.
fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape(text, "-._~:@!$&'()*+,;=", &mut out);
    out
}

fn escape(text: &str, plain: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.as_bytes().contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use billhook_objects::GroupKind;

    use super::*;

    fn check(group: &str, namespaced: bool, namespace: Option<&str>, name: &str, expected: &str) {
        let kind = GroupKind::new(group, "Thing");
        let resource = Resource { kind, version: "v1".into(), plural: "things".into(), namespaced };
        assert_eq!(object(&resource, namespace, name), expected);
    }

    #[test]
    fn urls_follow_the_api_conventions() {
        check("", true, Some("a"), "b", "/api/v1/namespaces/a/things/b");
        check("", false, Some("ignored"), "b", "/api/v1/things/b");
        check("x.example", true, Some("a"), "b", "/apis/x.example/v1/namespaces/a/things/b");
        check("rbac", false, None, "system:a/b c", "/apis/rbac/v1/things/system:a%2Fb%20c");
    }

    #[test]
    fn query_values_are_escaped() {
        assert_eq!(with_query("/a", &[("x", ""), ("s", "a=b,c"), ("t", "1")]), "/a?s=a%3Db%2Cc&t=1");
    }
}
