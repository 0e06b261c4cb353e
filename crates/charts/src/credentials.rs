//! Credentials for registries and repositories: pull secrets and Landscaper's `helmChartRepoCredentials`.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use crate::{
    address::{Address, Reference, without_user},
    registry::entry_of_header,
};

/// A mistake in credentials. It never contains a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {problem}")]
pub struct CredentialsError {
    /// The field, such as `auths[0].url`, or the registry or repository.
    pub what: String,
    /// The mistake, and how to correct it.
    pub problem: String,
}

fn wrong(what: impl Into<String>, problem: impl Into<String>) -> CredentialsError {
    CredentialsError { what: what.into(), problem: problem.into() }
}

/// All credentials that are available for a chart. Only those for its address are used.
#[derive(Clone, Default)]
pub struct Credentials {
    /// Entries of docker configs, in their order.
    registries: Vec<(Address, Map<String, Value>)>,
    /// Credentials for repositories and archives, and with an address `oci://HOST/PATH` for registries.
    pub repositories: Vec<RepositoryAuth>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registries: Vec<_> = self.registries.iter().map(|(address, _)| address).collect();
        f.debug_struct("Credentials")
            .field("registries", &registries)
            .field("repositories", &self.repositories)
            .finish()
    }
}

impl Credentials {
    /// Adds the content of `.dockerconfigjson` of a pull secret.
    ///
    /// As in docker, the key of an entry is a host, with or without a path and a scheme. The entry with the longest path is
    /// used, and the first of equal ones. Credential helper programs are not run.
    ///
    /// # Errors
    ///
    /// When the text is not the JSON of a docker config.
    pub fn add_docker_config(&mut self, json: &str) -> Result<(), CredentialsError> {
        let what = || "docker config".to_owned();
        // The parser's message does not contain values of a document that is not JSON.
        let config: Value = serde_json::from_str(json).map_err(|error| wrong(what(), error.to_string()))?;
        let auths = match config.get("auths") {
            Some(Value::Object(auths)) => auths,
            None if config.is_object() => return Ok(()),
            _ => return Err(wrong(what(), "it must be an object with an object \"auths\"")),
        };
        for (key, entry) in auths {
            let entry = docker_entry(entry).map_err(|problem| wrong(format!("docker config, {key}"), problem))?;
            self.registries.push((Address::of_docker_key(key), entry));
        }
        Ok(())
    }

    /// Returns the entry for a reference, as in a docker config, if there are credentials for it.
    pub(crate) fn registry_entry(
        &self,
        reference: &Reference<'_>,
    ) -> Result<Option<Map<String, Value>>, CredentialsError> {
        let address = reference.address();
        let from_secrets = best(&address, self.registries.iter().map(|(general, entry)| (general.clone(), entry)));
        if let Some(entry) = from_secrets {
            return Ok(Some(entry.clone()));
        }
        let header = self.fitting(&address)?.and_then(|auth| auth.auth_header.as_deref());
        Ok(header.map(entry_of_header))
    }

    /// Returns the credentials for an address: those with the longest address that covers it.
    pub(crate) fn fitting(&self, address: &Address) -> Result<Option<&RepositoryAuth>, CredentialsError> {
        let auths = self.repositories.iter().filter_map(|auth| Some((Address::parse(&auth.url)?, auth)));
        let found = best(address, auths);
        match found.and_then(|auth| Some((auth, auth.secret_ref.as_ref().filter(|_| auth.auth_header.is_none())?))) {
            Some((auth, secret)) => {
                Err(wrong(without_user(&auth.url), format!("Secret {} has not been read", secret.name)))
            }
            None => Ok(found),
        }
    }
}

/// Returns the candidate that covers most of an address; the first of equal ones.
fn best<T>(address: &Address, candidates: impl Iterator<Item = (Address, T)>) -> Option<T> {
    let fitting = candidates.filter_map(|(general, value)| Some((address.covered_by(&general)?, value)));
    let longest = fitting.reduce(|best, next| if next.0 > best.0 { next } else { best });
    longest.map(|(_, value)| value)
}

/// Returns the relevant fields of an entry in a docker config: a user with a password, or a token.
fn docker_entry(entry: &Value) -> Result<Map<String, Value>, &'static str> {
    let entry = entry.as_object().ok_or("an entry must be an object with auth, or with username and password")?;
    let text = |name: &str| entry.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let pair = text("username").zip(text("password")).map(|(user, password)| format!("{user}:{password}"));
    let auth = match (text("auth"), pair) {
        (Some(auth), _) => {
            let decoded = STANDARD.decode(auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            decoded.filter(|pair| pair.contains(':')).ok_or("auth must be the base64 of USER:PASSWORD")?;
            Some(auth.to_owned())
        }
        (None, pair) => pair.map(|pair| STANDARD.encode(pair)),
    };
    let tokens = ["identitytoken", "registrytoken"].map(|name| (name, text(name).map(str::to_owned)));
    let fields = tokens.into_iter().chain([("auth", auth)]);
    Ok(fields.filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect())
}

/// An entry of Landscaper's `helmChartRepoCredentials`: the credentials for all repositories and archives below an address.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RepositoryAuth {
    /// The address. If several entries match, the one with the longest path is used.
    pub url: String,
    /// The value of the `Authorization` header, of any scheme.
    pub auth_header: Option<String>,
    /// The Secret with the header. The caller reads it and sets `auth_header`.
    pub secret_ref: Option<SecretReference>,
    /// CA certificates to trust in addition to those of the machine: PEM, or the base64 of it.
    pub custom_ca_data: Option<String>,
}

/// A value in a Secret in the namespace of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretReference {
    /// The name of the Secret.
    pub name: String,
    /// The key of the value in its data.
    pub key: Option<String>,
}

impl fmt::Debug for RepositoryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RepositoryAuth")
            .field("url", &without_user(&self.url))
            .field("auth_header", &self.auth_header.as_ref().map(|_| "…"))
            .field("secret_ref", &self.secret_ref)
            .field("custom_ca_data", &self.custom_ca_data.as_ref().map(|_| "…"))
            .finish()
    }
}

impl RepositoryAuth {
    /// Parses `{auths: [{url, authHeader | secretRef: {name, key}, customCAData}]}`, the value of `helmChartRepoCredentials`
    /// in the configurations of a Landscaper Context.
    ///
    /// # Errors
    ///
    /// When the format is wrong, or an entry has neither a header nor a certificate, or both kinds of header.
    pub fn list(configuration: &Value) -> Result<Vec<Self>, CredentialsError> {
        let auths = match configuration.get("auths") {
            Some(Value::Array(auths)) => auths.as_slice(),
            None | Some(Value::Null) if configuration.is_object() => &[],
            _ => return Err(wrong("helmChartRepoCredentials", "it must be an object with a list \"auths\"")),
        };
        auths.iter().enumerate().map(|(index, auth)| Self::read(auth, &format!("auths[{index}]"))).collect()
    }

    fn read(auth: &Value, at: &str) -> Result<Self, CredentialsError> {
        let text = |value: &Value, name: &str| match value.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Some(_) => Err(wrong(format!("{at}.{name}"), "it must be a string")),
        };
        let url = text(auth, "url")?.filter(|url| Address::parse(url).is_some());
        let url =
            url.ok_or_else(|| wrong(format!("{at}.url"), "it must be an address such as https://charts.example"))?;
        let secret_ref = match auth.get("secretRef").filter(|reference| !reference.is_null()) {
            Some(reference) => {
                let name = text(reference, "name")?;
                let name =
                    name.ok_or_else(|| wrong(format!("{at}.secretRef.name"), "it must be the name of a Secret"))?;
                Some(SecretReference { name, key: text(reference, "key")? })
            }
            None => None,
        };
        let read = Self {
            url,
            auth_header: text(auth, "authHeader")?,
            secret_ref,
            custom_ca_data: text(auth, "customCAData")?,
        };
        match (&read.auth_header, &read.secret_ref, &read.custom_ca_data) {
            (Some(_), Some(_), _) => Err(wrong(at, "only one of authHeader and secretRef may be set")),
            (None, None, None) => Err(wrong(at, "authHeader, secretRef or customCAData must be set")),
            _ => Ok(read),
        }
    }

    /// Returns the CA certificates as PEM, if there are any.
    pub(crate) fn authorities(&self) -> Result<Option<String>, CredentialsError> {
        let Some(data) = &self.custom_ca_data else { return Ok(None) };
        let is_pem = |text: &String| text.contains("-----BEGIN CERTIFICATE-----");
        let decode = || {
            let compact: String = data.split_whitespace().collect();
            STANDARD.decode(compact).ok().and_then(|bytes| String::from_utf8(bytes).ok())
        };
        let pem = Some(data.clone()).filter(is_pem).or_else(|| decode().filter(is_pem));
        let problem = "customCAData must be certificates in PEM format, or the base64 of it";
        pem.map(Some).ok_or_else(|| wrong(without_user(&self.url), problem))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn registry_entry(configs: &[Value], reference: &str) -> Option<Value> {
        let mut credentials = Credentials::default();
        configs.iter().for_each(|config| credentials.add_docker_config(&config.to_string()).unwrap());
        credentials.registry_entry(&Reference::parse(reference).unwrap()).unwrap().map(Value::Object)
    }

    /// Returns an entry for the user `a` with a password.
    fn entry(password: &str) -> Value {
        json!({"auth": STANDARD.encode(format!("a:{password}"))})
    }

    #[test]
    fn the_most_specific_entry_is_used() {
        let first = json!({
            "auths": {"a.example": entry("host"), "https://b.example:5000/v2/": entry("v2"), "a.example/x": entry("x")},
        });
        let second = json!({
            "auths": {
                "a.example": entry("later"),
                "a.example/x/y": entry("y"),
                "c.example": {"username": "a", "password": "pair"},
            },
            "credsStore": "program",
        });
        let check = |reference: &str, expected: Option<&str>| {
            let found = registry_entry(&[first.clone(), second.clone()], reference);
            assert_eq!(found, expected.map(entry), "{reference}");
        };
        check("a.example/shop:1.0.0", Some("host"));
        check("a.example/x/shop:1.0.0", Some("x"));
        check("a.example/x/y/shop:1.0.0", Some("y"));
        check("a.example/xy/shop:1.0.0", Some("host"));
        check("b.example:5000/shop:1.0.0", Some("v2"));
        check("c.example/shop:1.0.0", Some("pair"));
        check("b.example/shop:1.0.0", None);
        check("sub.a.example/shop:1.0.0", None);
    }

    #[test]
    fn docker_hub_is_found_under_any_of_its_names() {
        for key in ["https://index.docker.io/v1/", "docker.io", "registry-1.docker.io"] {
            for host in ["docker.io", "index.docker.io", "registry-1.docker.io"] {
                let found = registry_entry(&[json!({"auths": {key: entry("hub")}})], &format!("{host}/a/shop:1.0.0"));
                assert_eq!(found, Some(entry("hub")), "{key} {host}");
            }
        }
    }

    #[test]
    fn tokens_of_a_docker_config_are_kept() {
        let tokens = json!({"identitytoken": "i", "registrytoken": "r", "auth": "", "email": "x"});
        let found = registry_entry(&[json!({"auths": {"a.example": tokens}})], "a.example/shop").unwrap();
        assert_eq!(found, json!({"identitytoken": "i", "registrytoken": "r"}));
    }

    #[test]
    fn errors_in_a_docker_config_hide_its_secrets() {
        for (config, problem) in [
            ("{", "docker config: EOF while parsing an object at line 1 column 1"),
            ("\"sesame\"", "docker config: it must be an object with an object \"auths\""),
            (r#"{"auths": "sesame"}"#, "docker config: it must be an object with an object \"auths\""),
            (
                r#"{"auths": {"a.example": "sesame"}}"#,
                "docker config, a.example: an entry must be an object with auth, or with username and password",
            ),
            (
                r#"{"auths": {"a.example": {"auth": "sesame"}}}"#,
                "docker config, a.example: auth must be the base64 of USER:PASSWORD",
            ),
        ] {
            let error = Credentials::default().add_docker_config(config).unwrap_err();
            assert_eq!(error.to_string(), problem);
        }
        Credentials::default().add_docker_config("{}").unwrap();
    }

    #[test]
    fn the_credentials_with_the_longest_address_are_used() {
        let auth = |url: &str, header: &str| json!({"url": url, "authHeader": header});
        let list = json!({
            "auths": [auth("https://a.example", "1"), auth("https://a.example/x", "2"), auth("https://a.example/x/", "3")],
        });
        let credentials = Credentials { repositories: RepositoryAuth::list(&list).unwrap(), ..Credentials::default() };
        for (url, expected) in [
            ("https://a.example/y", Some("1")),
            ("https://a.example/x/y", Some("2")),
            ("https://a.example/xy", Some("1")),
            ("http://a.example/x", None),
        ] {
            let found = credentials.fitting(&Address::of_url(url).unwrap()).unwrap();
            assert_eq!(found.and_then(|auth| auth.auth_header.as_deref()), expected, "{url}");
        }
    }

    #[test]
    fn mistakes_in_repository_credentials_are_reported() {
        for (list, problem) in [
            (json!([]), "helmChartRepoCredentials: it must be an object with a list \"auths\""),
            (json!({"auths": {}}), "helmChartRepoCredentials: it must be an object with a list \"auths\""),
            (json!({"auths": [{"url": "x"}]}), "auths[0].url: it must be an address such as https://charts.example"),
            (json!({"auths": [{"url": "https://x", "authHeader": 7}]}), "auths[0].authHeader: it must be a string"),
            (json!({"auths": [{"url": "https://x"}]}), "auths[0]: authHeader, secretRef or customCAData must be set"),
            (
                json!({"auths": [{"url": "https://x", "secretRef": {}}]}),
                "auths[0].secretRef.name: it must be the name of a Secret",
            ),
            (
                json!({"auths": [{"url": "https://x", "authHeader": "a", "secretRef": {"name": "s"}}]}),
                "auths[0]: only one of authHeader and secretRef may be set",
            ),
        ] {
            assert_eq!(RepositoryAuth::list(&list).unwrap_err().to_string(), problem);
        }
        assert_eq!(RepositoryAuth::list(&json!({})).unwrap(), []);
    }

    #[test]
    fn a_secret_that_was_not_read_is_an_error_only_if_it_is_used() {
        let secret_ref = Some(SecretReference { name: "s".to_owned(), key: None });
        let unread = RepositoryAuth { url: "https://a.example".to_owned(), secret_ref, ..RepositoryAuth::default() };
        let credentials = Credentials { repositories: vec![unread], ..Credentials::default() };
        let find =
            |url: &str| credentials.fitting(&Address::of_url(url).unwrap()).map(Option::<&RepositoryAuth>::cloned);
        assert_eq!(find("https://b.example"), Ok(None));
        assert_eq!(find("https://a.example").unwrap_err().to_string(), "https://a.example: Secret s has not been read");
    }

    #[test]
    fn a_header_of_any_scheme_is_used_for_a_registry() {
        let header = |header: &str| {
            let url = "oci://a.example/charts".to_owned();
            let auth = RepositoryAuth { url, auth_header: Some(header.to_owned()), ..RepositoryAuth::default() };
            let credentials = Credentials { repositories: vec![auth], ..Credentials::default() };
            let find = |text: &str| credentials.registry_entry(&Reference::parse(text).unwrap()).unwrap();
            assert_eq!(find("a.example/other/shop"), None);
            Value::Object(find("a.example/charts/shop").unwrap())
        };
        assert_eq!(header("Basic bWU6c2VzYW1l"), json!({"auth": "bWU6c2VzYW1l"}));
        assert_eq!(header("Bearer abc"), json!({"header": "Bearer abc"}));
    }

    #[test]
    fn certificates_are_pem_or_base64_of_pem() {
        let pem = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
        let read = |data: String| {
            RepositoryAuth {
                url: "https://a.example".to_owned(),
                custom_ca_data: Some(data),
                ..RepositoryAuth::default()
            }
            .authorities()
        };
        assert_eq!(read(pem.to_owned()), Ok(Some(pem.to_owned())));
        assert_eq!(read(format!("{}\n", STANDARD.encode(pem))), Ok(Some(pem.to_owned())));
        assert!(read("MA==".to_owned()).unwrap_err().to_string().starts_with("https://a.example: customCAData"));
    }
}
