//! References to charts in registries, and addresses of repositories, which decide the credentials.

/// A mistake in the reference or address of a chart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {problem}")]
pub struct SourceError {
    /// The reference or address.
    pub what: String,
    /// The mistake, and how to write it.
    pub problem: &'static str,
}

fn wrong(what: &str, problem: &'static str) -> SourceError {
    SourceError { what: what.to_owned(), problem }
}

/// A reference to a chart in a registry: `HOST/REPOSITORY[:TAG][@sha256:DIGEST]`, with or without `oci://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference<'a> {
    pub(crate) host: &'a str,
    pub(crate) repository: &'a str,
    pub(crate) tag: Option<&'a str>,
    pub(crate) digest: Option<&'a str>,
}

impl<'a> Reference<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, SourceError> {
        let rest = text.strip_prefix("oci://").unwrap_or(text);
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (rest, None),
        };
        let no_host = "a reference to a chart in a registry must begin with the registry's host, \
                       such as registry.example/charts/shop:1.2.3";
        let (host, path) = rest.split_once('/').ok_or_else(|| wrong(text, no_host))?;
        let (repository, tag) = match path.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        let is_host = host == "localhost" || host.contains(['.', ':']);
        if !is_host || host.ends_with(':') || !made_of(host, ".-:[]") {
            return Err(wrong(text, no_host));
        }
        if repository.chars().any(char::is_uppercase) || repository.split('/').any(|part| !made_of(part, "._-")) {
            return Err(wrong(text, "the name of a repository consists of lower-case letters, digits and . _ - /"));
        }
        if tag.is_some_and(|tag| !made_of(tag, "._-+")) {
            return Err(wrong(text, "a tag consists of letters, digits and . _ -"));
        }
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(wrong(text, "a digest is sha256: and 64 hexadecimal digits"));
        }
        Ok(Self { host, repository, tag, digest })
    }

    /// Returns the address for the lookup of credentials.
    pub(crate) fn address(&self) -> Address {
        Address::new("oci", self.host, self.repository)
    }
}

/// Returns whether a text is not empty and consists of ASCII letters, digits and some other characters.
fn made_of(text: &str, others: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

/// Returns whether a text is a digest as registries use them.
pub(crate) fn is_digest(digest: &str) -> bool {
    let hex = digest.strip_prefix("sha256:").unwrap_or_default();
    hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The parts of an address that decide the credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    scheme: String,
    host: String,
    path: Vec<String>,
}

impl Address {
    fn new(scheme: &str, host: &str, path: &str) -> Self {
        let path = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Self { scheme: scheme.to_lowercase(), host: host.to_lowercase(), path }
    }

    /// Parses the address of a repository or an archive, which is fetched over HTTP.
    pub(crate) fn of_url(url: &str) -> Result<Self, SourceError> {
        let address = Self::parse(url).filter(|address| ["http", "https"].contains(&address.scheme.as_str()));
        let address =
            address.ok_or_else(|| wrong(&without_user(url), "an address must begin with https:// or http://"))?;
        if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(wrong(&without_user(url), "an address must not contain white space"));
        }
        if address.host.contains('@') {
            return Err(wrong(&without_user(url), "the address of a chart must not contain a user and password"));
        }
        Ok(address)
    }

    /// Parses `SCHEME://HOST/PATH`, and ignores a query.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        Some(Self::new(scheme, host, path)).filter(|address| !address.host.is_empty())
    }

    /// Parses the key of an entry in a docker config: a host, with or without a scheme and a path.
    pub(crate) fn of_docker_key(key: &str) -> Self {
        let key = key.split_once("://").map_or(key, |(_, rest)| rest);
        let (host, path) = key.split_once('/').unwrap_or((key, ""));
        // docker itself writes https://index.docker.io/v1/
        let path = if ["v1", "v2"].contains(&path.trim_matches('/')) { "" } else { path };
        let mut address = Self::new("oci", host, path);
        if is_docker_hub(&address.host) {
            address.host = DOCKER_HUB.to_owned();
        }
        address
    }

    pub(crate) fn host_without_port(&self) -> &str {
        match self.host.rsplit_once(':') {
            // Not a colon of an IPv6 address.
            Some((host, port)) if !port.ends_with(']') => host,
            _ => &self.host,
        }
    }

    /// Returns the number of path segments that a more general address shares with this one, if it covers this one.
    pub(crate) fn covered_by(&self, general: &Self) -> Option<usize> {
        let host = if is_docker_hub(&self.host) { DOCKER_HUB } else { &self.host };
        let same = self.scheme == general.scheme && (self.host == general.host || host == general.host);
        (same && self.path.starts_with(&general.path)).then_some(general.path.len())
    }
}

const DOCKER_HUB: &str = "docker.io";

/// Returns whether a host is one of the names of Docker Hub.
pub(crate) fn is_docker_hub(host: &str) -> bool {
    [DOCKER_HUB, "index.docker.io", "registry-1.docker.io"].contains(&host)
}

/// Removes the user and password from an address, for messages.
pub(crate) fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].rsplit_once('@').map_or(&rest[..end], |(_, host)| host);
    format!("{scheme}://{host}{}", &rest[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn a_reference_has_a_host_a_repository_a_tag_and_a_digest() {
        fn check(text: &str, host: &str, repository: &str, tag: Option<&str>, digest: Option<&str>) {
            assert_eq!(Reference::parse(text), Ok(Reference { host, repository, tag, digest }), "{text}");
        }
        check("a.example/charts/shop:1.2.3", "a.example", "charts/shop", Some("1.2.3"), None);
        check("oci://a.example:5000/shop:1.2.3", "a.example:5000", "shop", Some("1.2.3"), None);
        check("localhost/shop:1.2.3_build.7", "localhost", "shop", Some("1.2.3_build.7"), None);
        check("[::1]:5000/shop", "[::1]:5000", "shop", None, None);
        check(&format!("a.example/shop@{DIGEST}"), "a.example", "shop", None, Some(DIGEST));
        check(&format!("a.example/shop:1.2.3@{DIGEST}"), "a.example", "shop", Some("1.2.3"), Some(DIGEST));
    }

    #[test]
    fn an_invalid_reference_is_an_error() {
        for (text, problem) in [
            ("shop:1.2.3", "must begin with the registry's host"),
            ("charts/shop:1.2.3", "must begin with the registry's host"),
            ("https://a.example/shop:1.2.3", "must begin with the registry's host"),
            ("user:secret@a.example/shop", "must begin with the registry's host"),
            ("a.example/Shop", "lower-case"),
            ("a.example/", "lower-case"),
            ("a.example/../shop", ""),
            ("a.example/shop:", "a tag"),
            ("a.example/shop:1.2.3 --repo=x", "a tag"),
            ("a.example/shop@sha256:12", "a digest"),
        ] {
            match Reference::parse(text) {
                Ok(reference) => assert!(problem.is_empty(), "{text}: {reference:?}"),
                Err(error) => assert!(error.problem.contains(problem), "{text}: {error}"),
            }
        }
    }

    #[test]
    fn an_address_is_covered_by_whole_segments() {
        fn check(url: &str, general: &str, expected: Option<usize>) {
            let covered = Address::parse(url).unwrap().covered_by(&Address::parse(general).unwrap());
            assert_eq!(covered, expected, "{url} by {general}");
        }
        check("https://a.example/x/y.tgz?z=1", "https://a.example", Some(0));
        check("https://a.example/x/y.tgz", "https://A.example/x/", Some(1));
        check("https://a.example/xx/y.tgz", "https://a.example/x", None);
        check("https://a.example.evil/x", "https://a.example", None);
        check("https://a.example:8443/x", "https://a.example", None);
        check("http://a.example/x", "https://a.example", None);
    }

    #[test]
    fn the_host_of_a_chart_has_no_port() {
        use crate::chart::Chart;
        use billhook_policy::ChartSource::{Archive, Oci, RemoteArchive, Repository};
        let repository = |url: &str| Repository { url: url.to_owned(), name: "shop".to_owned(), version: None };
        for (source, host) in [
            (Oci("A.example:5000/shop:1.2.3".to_owned()), Some("a.example")),
            (Oci("oci://[::1]:5000/shop".to_owned()), Some("[::1]")),
            (RemoteArchive("https://a.example/x.tgz".to_owned()), Some("a.example")),
            (RemoteArchive("http://[::1]/x.tgz".to_owned()), Some("[::1]")),
            (repository("https://169.254.169.254:80?x=/y"), Some("169.254.169.254")),
            (Archive(Vec::new()), None),
        ] {
            assert_eq!(Chart::from(source.clone()).host().unwrap().as_deref(), host, "{source:?}");
        }
        Chart::from(Oci("shop".to_owned())).host().unwrap_err();
        Chart::from(repository("https://a.example@b.example")).host().unwrap_err();
    }

    #[test]
    fn the_error_for_an_address_hides_its_password() {
        for (url, error) in [
            ("ftp://a.example/x.tgz", "ftp://a.example/x.tgz: an address must begin with https:// or http://"),
            ("x.tgz", "x.tgz: an address must begin with https:// or http://"),
            (
                "https://user:secret@a.example/x.tgz",
                "https://a.example/x.tgz: the address of a chart must not contain a user and password",
            ),
        ] {
            assert_eq!(Address::of_url(url).unwrap_err().to_string(), error);
        }
    }
}
