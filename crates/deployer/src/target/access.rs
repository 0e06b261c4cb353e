//! The access to a cluster that a kubeconfig gives.
//!
//! Whoever may write a Target chooses its kubeconfig, but must not thereby run programs or read files where the controller
//! runs. Programs differ in how they read a kubeconfig, so none of them gets the Target's text: this module reads the fields
//! that it knows, and writes a new kubeconfig from their values, which our own client and helm both use.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use billhook_hosts::Dialer;
use billhook_objects::yaml::{self, Node, NodeKind};
use http::Uri;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Map, Value, json};

/// Where the authors of Targets and DeployItems may let the controller connect to.
#[derive(Clone, Debug, Default)]
pub struct ConnectionRules {
    /// The hosts of API servers, registries and chart repositories.
    pub dialer: Dialer,
    /// Whether the kubeconfig of a Target may name a proxy.
    pub proxy_url: bool,
    /// The client configuration of the home cluster, whose address and certificates are those of Targets with `selfConfig`; none
    /// if there are no such Targets.
    pub home: Option<Arc<kube::Config>>,
}

/// What a field of a kubeconfig may hold.
#[derive(Clone, Copy)]
enum Content {
    Text,
    /// Bytes in base64.
    Data,
    Flag,
    Texts,
    /// Anything: nothing uses it.
    Unused,
    /// Nothing, because it would name a program to run.
    Program,
    /// Nothing, because it would name a file to read; the other field holds the content.
    File(&'static str),
    /// The address of a proxy, if that is allowed.
    Proxy,
}

/// The fields of a cluster, a user and a context in client-go's `tools/clientcmd/api/v1/types.go`, except `as-uid` and
/// `as-user-extra`, which are rejected like unknown ones.
const CLUSTER: [(&str, Content); 8] = [
    ("server", Content::Text),
    ("tls-server-name", Content::Text),
    ("insecure-skip-tls-verify", Content::Flag),
    ("certificate-authority", Content::File("certificate-authority-data")),
    ("certificate-authority-data", Content::Data),
    ("proxy-url", Content::Proxy),
    ("disable-compression", Content::Flag),
    ("extensions", Content::Unused),
];
const USER: [(&str, Content); 13] = [
    ("client-certificate", Content::File("client-certificate-data")),
    ("client-certificate-data", Content::Data),
    ("client-key", Content::File("client-key-data")),
    ("client-key-data", Content::Data),
    ("token", Content::Text),
    ("tokenFile", Content::File("token")),
    ("as", Content::Text),
    ("as-groups", Content::Texts),
    ("username", Content::Text),
    ("password", Content::Text),
    ("auth-provider", Content::Program),
    ("exec", Content::Program),
    ("extensions", Content::Unused),
];
const CONTEXT: [(&str, Content); 4] = [
    ("cluster", Content::Text),
    ("user", Content::Text),
    ("namespace", Content::Text),
    ("extensions", Content::Unused),
];

/// The access to one cluster as one user, from the current context of a kubeconfig.
pub(super) struct Access {
    /// The kubeconfig with nothing else.
    kubeconfig: Value,
    server: Door,
    proxy: Option<Door>,
}

/// A place to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Door {
    pub(super) scheme: String,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Door {
    /// Returns the place of an address with a scheme and a host.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        let scheme = uri.scheme_str()?;
        let usual = match scheme {
            "https" => 443,
            "socks5" => 1080,
            _ => 80,
        };
        Some(Self { scheme: scheme.to_owned(), host: uri.host()?.to_owned(), port: uri.port_u16().unwrap_or(usual) })
    }
}

impl Access {
    /// Reads a kubeconfig. Other contexts than the current one are ignored, with their clusters and users.
    ///
    /// # Errors
    ///
    /// When the text is not plain YAML ([`yaml::parse_plain`]), or the current context is missing, incomplete or
    /// contradictory, or names programs or files, or a host or proxy that the rules do not allow, or has fields that are
    /// unknown. The text lists all problems with their lines, and contains no values of fields except hosts.
    pub(super) fn read(text: &str, rules: &ConnectionRules) -> Result<Self, String> {
        let root = yaml::parse_plain(text).map_err(|error| error.to_string())?;
        let root = root.ok_or("it is empty")?;
        let mut reader = Reader { rules, problems: Vec::new() };
        let access = reader.access(&root);
        match (access, reader.problems.as_slice()) {
            (Some(access), []) => Ok(access),
            (_, problems) => Err(problems.join("; ")),
        }
    }

    /// Returns the kubeconfig as JSON, for programs that need one, with another proxy and another token if there are any.
    pub(super) fn kubeconfig(&self, proxy: Option<&str>, token: Option<&str>) -> String {
        let mut kubeconfig = self.kubeconfig.clone();
        if let Some(proxy) = proxy {
            kubeconfig["clusters"][0]["cluster"]["proxy-url"] = proxy.into();
        }
        if let Some(token) = token {
            kubeconfig["users"][0]["user"]["token"] = token.into();
        }
        kubeconfig.to_string()
    }

    /// Returns the server.
    pub(super) fn server(&self) -> &Door {
        &self.server
    }

    /// Returns the proxy that the kubeconfig names.
    pub(super) fn proxy(&self) -> Option<&Door> {
        self.proxy.as_ref()
    }

    /// Returns the configuration of a client.
    ///
    /// # Errors
    ///
    /// When a certificate is not one.
    pub(super) async fn config(&self) -> Result<kube::Config, String> {
        let kubeconfig: Kubeconfig =
            serde_json::from_value(self.kubeconfig.clone()).map_err(|error| error.to_string())?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        config.map_err(|error| error.to_string())
    }
}

/// Reads the parts of a kubeconfig, and collects all problems.
struct Reader<'r> {
    rules: &'r ConnectionRules,
    problems: Vec<String>,
}

impl Reader<'_> {
    /// Returns the access; `None` if a problem prevents it.
    fn access(&mut self, root: &Node) -> Option<Access> {
        let Some(current) = root.get("current-context").and_then(Node::as_str).filter(|name| !name.is_empty()) else {
            self.problem(root.line, "it has no current-context");
            return None;
        };
        let (context_node, context) = self.entry(root, "contexts", current, "context", &CONTEXT)?;
        let name = |field: &str| context.get(field).and_then(Value::as_str);
        let Some(cluster) = name("cluster") else {
            self.problem(context_node.line, "context.cluster is missing");
            return None;
        };
        let cluster = self.entry(root, "clusters", cluster, "cluster", &CLUSTER);
        let user = match name("user") {
            Some(user) => self.entry(root, "users", user, "user", &USER),
            None => Some((context_node, Map::new())),
        };
        let ((cluster_node, cluster), (user_node, user)) = cluster.zip(user)?;
        let cluster = self.cluster(cluster_node, cluster);
        self.check_user(user_node, &user);
        let (cluster, server, proxy) = cluster?;
        let mut context = Map::from_iter(context.into_iter().filter(|(field, _)| field == "namespace"));
        context.extend([("cluster".to_owned(), NAME.into()), ("user".to_owned(), NAME.into())]);
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": NAME,
            "contexts": [{ "name": NAME, "context": context }],
            "clusters": [{ "name": NAME, "cluster": cluster }],
            "users": [{ "name": NAME, "user": user }],
        });
        Some(Access { kubeconfig, server, proxy })
    }

    /// Returns the entry of a list that has this name: the node of its content, and the content's fields.
    fn entry<'n>(
        &mut self,
        root: &'n Node,
        list: &str,
        name: &str,
        kind: &str,
        fields: &[(&str, Content)],
    ) -> Option<(&'n Node, Map<String, Value>)> {
        let entries = root.get(list).map(|node| &node.kind);
        let entries = if let Some(NodeKind::Sequence(entries)) = entries { entries.as_slice() } else { &[] };
        let is_named = |entry: &&Node| entry.get("name").and_then(Node::as_str) == Some(name);
        let mut named = entries.iter().filter(is_named);
        let content = named.next().and_then(|entry| entry.get(kind));
        let Some(content) = content else {
            self.problem(root.line, &format!("{list} has no {kind} with the name {name:?}"));
            return None;
        };
        if let Some(second) = named.next() {
            self.problem(second.line, &format!("{list} has two entries with the name {name:?}"));
        }
        Some((content, self.fields(content, kind, fields)))
    }

    /// Returns the fields of a cluster, a user or a context that are set: null and empty values are the same as none.
    fn fields(&mut self, node: &Node, kind: &str, known: &[(&str, Content)]) -> Map<String, Value> {
        let entries = match &node.kind {
            NodeKind::Mapping(entries) => entries.as_slice(),
            NodeKind::Null => &[],
            _ => {
                self.problem(node.line, &format!("{kind} must be an object"));
                &[]
            }
        };
        let mut fields = Map::new();
        for (key, node) in entries {
            let Some((_, content)) = known.iter().find(|(name, _)| *name == key.text) else {
                self.problem(key.line, &format!("{kind}.{} is not supported", key.text));
                continue;
            };
            match content.read(node, self.rules) {
                Ok(Some(value)) => drop(fields.insert(key.text.clone(), value)),
                Ok(None) => {}
                Err(problem) => self.problem(key.line, &format!("{kind}.{} {problem}", key.text)),
            }
        }
        fields
    }

    /// Checks a cluster, and returns it with its addresses in a form that all programs read alike, its server and its proxy.
    fn cluster(
        &mut self,
        node: &Node,
        mut cluster: Map<String, Value>,
    ) -> Option<(Map<String, Value>, Door, Option<Door>)> {
        if cluster.contains_key("certificate-authority-data")
            && cluster.get("insecure-skip-tls-verify") == Some(&Value::Bool(true))
        {
            let both = "cluster has both certificate-authority-data and insecure-skip-tls-verify: remove one";
            self.problem(node.line, both);
        }
        let server = self.address(node, &mut cluster, "server", &["https", "http"]);
        if !cluster.contains_key("proxy-url") {
            return Some((cluster, server?, None));
        }
        let proxy = self.address(node, &mut cluster, "proxy-url", &["http", "https", "socks5"]);
        server.zip(proxy).map(|(server, proxy)| (cluster, server, Some(proxy)))
    }

    /// Checks an address of a cluster, and returns the place.
    fn address(
        &mut self,
        node: &Node,
        cluster: &mut Map<String, Value>,
        field: &str,
        schemes: &[&str],
    ) -> Option<Door> {
        let text = cluster.get(field).and_then(Value::as_str).unwrap_or_default();
        let checked = address(text, schemes).and_then(|(address, door)| {
            let allowed = self.rules.dialer.check_name(&door.host);
            allowed.map(|()| (address, door)).map_err(|denied| format!("is denied: {denied}"))
        });
        match checked {
            Ok((address, door)) => {
                cluster.insert(field.to_owned(), address.into());
                Some(door)
            }
            Err(problem) => {
                let line = node.get(field).map_or(node.line, |value| value.line);
                self.problem(line, &format!("cluster.{field} {problem}"));
                None
            }
        }
    }

    /// Checks that all programs choose the same credentials of a user.
    fn check_user(&mut self, node: &Node, user: &Map<String, Value>) {
        for (field, other) in [
            ("username", "password"),
            ("password", "username"),
            ("client-certificate-data", "client-key-data"),
            ("client-key-data", "client-certificate-data"),
            ("as-groups", "as"),
        ] {
            if user.contains_key(field) && !user.contains_key(other) {
                self.problem(node.line, &format!("user.{field} needs {other}"));
            }
        }
        if user.contains_key("token") && user.contains_key("username") {
            self.problem(node.line, "user has both a token and a username: remove one");
        }
    }

    fn problem(&mut self, line: usize, problem: &str) {
        self.problems.push(format!("line {line}: {problem}"));
    }
}

/// The name of everything in a kubeconfig that is written here.
const NAME: &str = "target";

impl Content {
    /// Returns the value of a field; `None` if it is null or empty.
    fn read(self, node: &Node, rules: &ConnectionRules) -> Result<Option<Value>, String> {
        let set = match &node.kind {
            NodeKind::Null => return Ok(None),
            NodeKind::String(text) => !text.is_empty(),
            NodeKind::Sequence(items) => !items.is_empty(),
            _ => true,
        };
        let value = match self {
            Self::Text => node.as_str().map(Value::from).ok_or("must be a string")?,
            Self::Data => node.as_str().and_then(base64).map(Value::from).ok_or("must be in base64")?,
            Self::Flag => match node.kind {
                NodeKind::Bool(flag) => flag.into(),
                _ => return Err("must be true or false".to_owned()),
            },
            Self::Texts => match &node.kind {
                NodeKind::Sequence(items) if items.iter().all(|item| item.as_str().is_some()) => node.to_value(),
                _ => return Err("must be a list of strings".to_owned()),
            },
            Self::Unused => return Ok(None),
            Self::Program => {
                return Err("runs a program, which is not allowed: use a token or a client certificate".to_owned());
            }
            Self::File(instead) if set => {
                return Err(format!("names a file, which is not allowed: put its content into {instead}"));
            }
            Self::Proxy if set && !rules.proxy_url => return Err("is not allowed by this controller".to_owned()),
            Self::Proxy => node.as_str().map(Value::from).ok_or("must be a string")?,
            Self::File(_) => return Ok(None),
        };
        Ok(Some(value).filter(|_| set))
    }
}

/// Returns a text in base64 without its line breaks, which Go ignores.
pub(super) fn base64(text: &str) -> Option<String> {
    let text = text.replace(['\r', '\n'], "");
    STANDARD.decode(&text).is_ok().then_some(text)
}

/// Reads the only document of a text.
pub(super) fn parse_yaml(text: &str) -> Result<Value, String> {
    let documents = billhook_objects::yaml::parse(text).map_err(|error| format!("not valid YAML: {error}"))?;
    documents.into_iter().next().map(|document| document.value).ok_or_else(|| "it is empty".to_owned())
}

/// Returns bytes in base64.
pub(super) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Returns an address in a form that all programs read alike, and the place.
fn address(text: &str, schemes: &[&str]) -> Result<(String, Door), String> {
    let uri: Uri = text.parse().map_err(|_| "must be an address such as https://api.example:6443")?;
    let scheme = uri.scheme_str().filter(|scheme| schemes.contains(scheme));
    let (Some(scheme), Some(authority)) = (scheme, uri.authority()) else {
        return Err(format!("must begin with {}://", schemes.join(":// or ")));
    };
    if authority.as_str().contains('@') {
        return Err("must not contain a user and password".to_owned());
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/:[]".contains(c);
    if uri.query().is_some() || !authority.as_str().chars().chain(uri.path().chars()).all(plain) {
        return Err("must consist of a host, a port and a path only".to_owned());
    }
    let address = format!("{scheme}://{authority}{}", uri.path().trim_end_matches('/'));
    let door = Door::of(&uri).ok_or("must have a host")?;
    Ok((address, door))
}

#[cfg(test)]
mod tests;
