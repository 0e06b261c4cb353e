//! Fetches charts from registries, by the distribution specification of the OCI.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, StatusCode, header};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::{
    address::{Reference, is_digest, is_docker_hub},
    http::{Answer, Call, Client, FetchError, join},
    packed::MAX_PACKED,
};

/// The kinds of manifests.
const MANIFESTS: &str =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
/// The media types of charts: that of helm, and that of helm before 3.7.
const CHARTS: [&str; 2] = ["application/vnd.cncf.helm.chart.content.v1.tar+gzip", "application/tar+gzip"];
/// The maximum size of manifests, lists of tags and tokens.
const MAX_DOCUMENT: u64 = 4 << 20;
/// How many pages of tags are read.
const MAX_PAGES: usize = 20;

/// A registry, and what is known about the access to it.
pub(crate) struct Registry<'a> {
    client: &'a Client,
    base: String,
    repository: &'a str,
    /// An entry of a docker config, or with the field `header` a header to send.
    entry: Option<&'a Map<String, Value>>,
    authorities: Option<&'a str>,
    /// The header of all requests, once the registry has asked for one.
    authorization: Option<String>,
}

/// The field of an entry that holds the value of a header as it is sent.
pub(crate) const HEADER: &str = "header";

impl<'a> Registry<'a> {
    pub(crate) fn new(
        client: &'a Client,
        reference: &Reference<'a>,
        entry: Option<&'a Map<String, Value>>,
        authorities: Option<&'a str>,
    ) -> Self {
        let host = if is_docker_hub(reference.host) { "registry-1.docker.io" } else { reference.host };
        let authorization = entry.and_then(|entry| {
            let token = text(entry, "registrytoken").map(|token| format!("Bearer {token}"));
            text(entry, HEADER).map(str::to_owned).or(token)
        });
        let base = format!("https://{host}/v2/{}", reference.repository);
        Self { client, base, repository: reference.repository, entry, authorities, authorization }
    }

    /// Returns the digest of the chart in a manifest; without tag and digest, of the newest version.
    pub(crate) async fn chart(&mut self, reference: &Reference<'_>) -> Result<String, FetchError> {
        let name = match (reference.digest, reference.tag) {
            (Some(digest), _) => digest.to_owned(),
            // A `+` cannot be part of a tag.
            (None, Some(tag)) => tag.replace('+', "_"),
            (None, None) => self.newest().await?,
        };
        let url = format!("{}/manifests/{name}", self.base);
        let answer = self.get(&url, "the manifest of the chart", MAX_DOCUMENT, Some(MANIFESTS)).await?;
        verify(&url, reference.digest, &answer.body)?;
        let manifest: Value = parse(&url, &answer)?;
        let layers = manifest["layers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let chart = CHARTS.iter().find_map(|kind| layers.iter().find(|layer| layer["mediaType"] == *kind));
        let digest = chart.and_then(|layer| layer["digest"].as_str());
        let missing = || content(&url, "it is not the manifest of a chart: no layer has the media type of one");
        Ok(digest.filter(|digest| is_digest(digest)).ok_or_else(missing)?.to_owned())
    }

    /// Fetches a chart by its digest.
    pub(crate) async fn blob(&mut self, digest: &str) -> Result<Vec<u8>, FetchError> {
        let url = format!("{}/blobs/{digest}", self.base);
        let answer = self.get(&url, "the packed chart", MAX_PACKED, None).await?;
        verify(&url, Some(digest), &answer.body)?;
        Ok(answer.body.into())
    }

    /// Returns the tag of the newest version that is not a pre-release.
    async fn newest(&mut self) -> Result<String, FetchError> {
        let mut url = format!("{}/tags/list?n=1000", self.base);
        let mut newest: Option<(semver::Version, String)> = None;
        for _ in 0..MAX_PAGES {
            let answer = self.get(&url, "the list of tags", MAX_DOCUMENT, None).await?;
            let page: Value = parse(&url, &answer)?;
            let tags = page["tags"].as_array().map(Vec::as_slice).unwrap_or_default();
            for tag in tags.iter().filter_map(Value::as_str) {
                let version = semver::Version::parse(&tag.replace('_', "+")).ok().filter(|found| found.pre.is_empty());
                let Some(version) = version else { continue };
                if newest.as_ref().is_none_or(|(known, _)| version.cmp_precedence(known).is_gt()) {
                    newest = Some((version, tag.to_owned()));
                }
            }
            match next_page(&answer.headers) {
                // It stays on this registry.
                Some(next) => url = join(&url, next),
                None => break,
            }
        }
        newest.map(|(_, tag)| tag).ok_or_else(|| content(&url, "no tag is a version, so there is no newest one"))
    }

    /// Sends a request, and a second one with credentials if the registry asks for them.
    async fn get(
        &mut self,
        url: &str,
        what: &'static str,
        limit: u64,
        accept: Option<&'static str>,
    ) -> Result<Answer, FetchError> {
        let mut refused = false;
        loop {
            let authorization = self.authorization.clone();
            let (authorization, authorities) = (authorization.as_deref(), self.authorities);
            let call = Call { accept, authorization, authorities, ..Call::get(url, what, limit) };
            let answer = self.client.send(&call).await?;
            if answer.status != StatusCode::UNAUTHORIZED {
                return Ok(answer);
            }
            let asked = if refused { None } else { self.authenticate(&answer.headers).await? };
            let Some(authorization) = asked else { return Err(unauthorized(url)) };
            (self.authorization, refused) = (Some(authorization), true);
        }
    }

    /// Returns the header that a registry asks for; none if there are no credentials for it.
    async fn authenticate(&self, headers: &HeaderMap) -> Result<Option<String>, FetchError> {
        let own = |name: &str| self.entry.and_then(|entry| text(entry, name));
        if own(HEADER).is_some() || own("registrytoken").is_some() {
            // It was sent already.
            return Ok(None);
        }
        let basic = own("auth").map(|auth| format!("Basic {auth}"));
        let challenges = headers.get_all(header::WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        for challenge in challenges {
            let (scheme, parameters) = challenge.split_once(' ').unwrap_or((challenge, ""));
            if scheme.eq_ignore_ascii_case("Bearer") {
                return self.token(parameters, basic.as_deref(), own("identitytoken")).await.map(Some);
            }
            if scheme.eq_ignore_ascii_case("Basic") && basic.is_some() {
                return Ok(basic);
            }
        }
        Ok(None)
    }

    /// Fetches a token from the server that the registry names.
    async fn token(&self, parameters: &str, basic: Option<&str>, identity: Option<&str>) -> Result<String, FetchError> {
        let realm = parameter(parameters, "realm").unwrap_or_default();
        if !realm.starts_with("https://") {
            return Err(content(&self.base, "it asks for a token of a server without https://"));
        }
        let scope = parameter(parameters, "scope").unwrap_or_else(|| format!("repository:{}:pull", self.repository));
        let service = parameter(parameters, "service").unwrap_or_default();
        let query = format!("service={}&scope={}", encode(&service), encode(&scope));
        let form = identity.map(|token| {
            format!("grant_type=refresh_token&client_id=billhook&{query}&refresh_token={}", encode(token))
        });
        let url = match &form {
            Some(_) => realm.clone(),
            None => format!("{realm}{}{query}", if realm.contains('?') { '&' } else { '?' }),
        };
        let call = Call {
            authorization: basic.filter(|_| form.is_none()),
            authorities: self.authorities,
            form: form.as_deref(),
            ..Call::get(&url, "a token", MAX_DOCUMENT)
        };
        let answer = self.client.send(&call).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            return Err(unauthorized(&realm));
        }
        let found: Value = parse(&realm, &answer)?;
        let token = ["token", "access_token"].iter().find_map(|name| found[*name].as_str());
        token.map(|token| format!("Bearer {token}")).ok_or_else(|| content(&realm, "the answer has no token"))
    }
}

fn text<'e>(entry: &'e Map<String, Value>, name: &str) -> Option<&'e str> {
    entry.get(name).and_then(Value::as_str)
}

fn content(url: &str, problem: &str) -> FetchError {
    FetchError::Content { url: url.to_owned(), problem: problem.to_owned() }
}

fn unauthorized(url: &str) -> FetchError {
    FetchError::Status { url: url.to_owned(), status: StatusCode::UNAUTHORIZED }
}

fn parse(url: &str, answer: &Answer) -> Result<Value, FetchError> {
    serde_json::from_slice(&answer.body).map_err(|_| content(url, "the answer is not JSON"))
}

/// Checks that content has a digest.
fn verify(url: &str, digest: Option<&str>, content: &[u8]) -> Result<(), FetchError> {
    let Some(digest) = digest else { return Ok(()) };
    let found: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    match digest.strip_prefix("sha256:").is_some_and(|digest| digest.eq_ignore_ascii_case(&found)) {
        true => Ok(()),
        false => Err(self::content(url, "the answer has another digest")),
    }
}

/// Returns a parameter of a challenge such as `realm="https://a.example/token",service="a"`.
fn parameter(parameters: &str, name: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        let (key, value) = rest.split_once('=')?;
        let (value, after) = match value.trim_start().strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => value.split_once(',').unwrap_or((value, "")),
        };
        let value = value.trim();
        if key.trim_matches([' ', ',']).eq_ignore_ascii_case(name) {
            return Some(value.to_owned());
        }
        rest = after;
    }
}

/// Encodes a text for a query or a form.
fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

/// Returns the path of the next page of a list: `Link: </v2/x/tags/list?n=1000&last=z>; rel="next"`.
fn next_page(headers: &HeaderMap) -> Option<&str> {
    let link = headers.get(header::LINK)?.to_str().ok()?;
    let (path, relation) = link.trim().strip_prefix('<')?.split_once('>')?;
    (path.starts_with('/') && !path.starts_with("//") && relation.contains("next")).then_some(path)
}

/// Returns an entry with a header of the scheme `Basic`, as in a docker config, or with another one as it is sent.
pub(crate) fn entry_of_header(value: &str) -> Map<String, Value> {
    let (scheme, rest) = value.trim().split_once(' ').unwrap_or_default();
    let basic = scheme.eq_ignore_ascii_case("Basic") && STANDARD.decode(rest.trim()).is_ok();
    let (name, value) = if basic { ("auth", rest.trim()) } else { (HEADER, value.trim()) };
    Map::from_iter([(name.to_owned(), value.into())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_a_challenge_are_read() {
        let challenge =
            r#"realm="https://a.example/token?x=y,z", service=a.example , scope="repository:b/c:pull,push""#;
        let read = |name: &str| parameter(challenge, name);
        assert_eq!(read("realm").as_deref(), Some("https://a.example/token?x=y,z"));
        assert_eq!(read("service").as_deref(), Some("a.example"));
        assert_eq!(read("scope").as_deref(), Some("repository:b/c:pull,push"));
        assert_eq!(read("other"), None);
        assert_eq!(parameter("realm=\"x", "realm"), None);
        assert_eq!(parameter("", "realm"), None);
    }

    #[test]
    fn the_next_page_of_tags_is_on_the_same_registry() {
        fn check(link: &str, expected: Option<&str>) {
            let headers = HeaderMap::from_iter([(header::LINK, link.parse().unwrap())]);
            assert_eq!(next_page(&headers), expected, "{link}");
        }
        check("</v2/x/tags/list?n=1&last=z>; rel=\"next\"", Some("/v2/x/tags/list?n=1&last=z"));
        check("</v2/x/tags/list>; rel=\"prev\"", None);
        check("<https://evil.example/x>; rel=\"next\"", None);
        check("<//evil.example/x>; rel=\"next\"", None);
    }

    #[test]
    fn content_must_have_its_digest() {
        let digest = "sha256:2CF24DBA5FB0A30E26E83B2AC5B9E29E1B161E5C1FA7425E73043362938B9824";
        verify("x", Some(digest), b"hello").unwrap();
        verify("x", None, b"hello").unwrap();
        assert_eq!(verify("x", Some(digest), b"hullo").unwrap_err().to_string(), "x: the answer has another digest");
    }

    #[test]
    fn a_header_of_any_scheme_can_be_used() {
        let entry = |value: &str| Value::from(entry_of_header(value));
        assert_eq!(entry("basic bWU6c2VzYW1l"), serde_json::json!({"auth": "bWU6c2VzYW1l"}));
        assert_eq!(entry("Bearer abc"), serde_json::json!({"header": "Bearer abc"}));
    }
}
