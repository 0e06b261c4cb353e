//! The HTTP client for the servers of charts: its connections go to addresses that the rules allow, and what it reads has limits.

use std::{fmt, io, sync::Arc};

use billhook_hosts::{DialError, Dialer};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper_util::{client::proxy::matcher::Matcher, rt::TokioIo};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{address::without_user, tls::Tls};

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 10;
/// The maximum size of a proxy's answer to `CONNECT`.
const MAX_HEAD: u64 = 16 << 10;

/// A chart or index that could not be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// There is no connection to the server, or it is not allowed.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The address is not one, or may not be redirected to.
    #[error("{url}: {problem}")]
    Address {
        /// The address.
        url: String,
        /// The mistake.
        problem: &'static str,
    },
    /// The server's certificate is not trusted, or TLS failed in another way.
    #[error("{url}: {source}")]
    Tls {
        /// The address.
        url: String,
        /// The error, such as an unknown issuer of the certificate.
        source: io::Error,
    },
    /// The connection broke, or the answer is not HTTP.
    #[error("{url}: {problem}")]
    Broken {
        /// The address.
        url: String,
        /// The error.
        problem: String,
    },
    /// The answer is not a success.
    #[error("{url}: {status}")]
    Status {
        /// The address.
        url: String,
        /// The status.
        status: StatusCode,
    },
    /// The answer is too large.
    #[error("{url}: {what} is larger than {} MiB", .limit >> 20)]
    TooLarge {
        /// The address.
        url: String,
        /// What was to be read.
        what: &'static str,
        /// The limit in bytes.
        limit: u64,
    },
    /// The answer is not what was asked for.
    #[error("{url}: {problem}")]
    Content {
        /// The address.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl FetchError {
    /// Returns whether another try has the same result as long as nobody changes a configuration.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Dial(DialError::Denied(_)) | Self::Address { .. } | Self::TooLarge { .. })
    }
}

/// What tells whether an answer is still the current one (RFC 9110, section 8.8).
#[derive(Clone, Debug, Default)]
pub(crate) struct Validators {
    etag: Option<HeaderValue>,
    modified: Option<HeaderValue>,
}

impl Validators {
    /// Returns the validators of an answer, if it has any.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let get = |name| headers.get(name).cloned();
        let found = Self { etag: get(header::ETAG), modified: get(header::LAST_MODIFIED) };
        (found.etag.is_some() || found.modified.is_some()).then_some(found)
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) url: &'a str,
    /// What is to be read, for messages.
    pub(crate) what: &'static str,
    /// The maximum size of the answer.
    pub(crate) limit: u64,
    pub(crate) accept: Option<&'static str>,
    /// The value of the header `Authorization`. It is not sent to other servers to which the address is redirected.
    pub(crate) authorization: Option<&'a str>,
    /// Certificates in PEM to trust in addition to those of the machine.
    pub(crate) authorities: Option<&'a str>,
    /// Those of an answer that the caller has: if it is the current one, the status is 304.
    pub(crate) validators: Option<&'a Validators>,
    /// The content of a form to post.
    pub(crate) form: Option<&'a str>,
}

impl<'a> Call<'a> {
    pub(crate) fn get(url: &'a str, what: &'static str, limit: u64) -> Self {
        let (accept, authorization, authorities, validators, form) = (None, None, None, None, None);
        Self { url, what, limit, accept, authorization, authorities, validators, form }
    }
}

/// An answer: a success, 304 for a call with validators, or 401 of the server that the call names.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The client. Clones share the certificates that the machine trusts.
#[derive(Clone)]
pub(crate) struct Client {
    dialer: Dialer,
    tls: Tls,
    /// The proxies in the environment: the operator's, so the rules do not apply to them.
    proxies: Arc<Matcher>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("dialer", &self.dialer).finish_non_exhaustive()
    }
}

/// A connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Client {
    pub(crate) fn new(dialer: Dialer) -> Self {
        Self { dialer, tls: Tls::default(), proxies: Arc::new(Matcher::from_env()) }
    }

    /// Sends a request, and follows redirects.
    pub(crate) async fn send(&self, call: &Call<'_>) -> Result<Answer, FetchError> {
        let mut url = call.url.to_owned();
        let origin = origin(&parse(&url)?);
        for _ in 0..=MAX_REDIRECTS {
            let uri = parse(&url)?;
            let own = self::origin(&uri) == origin;
            if !own && call.form.is_some() {
                // It holds a token.
                return Err(address(call.url, "it redirects to another server, which gets no credentials"));
            }
            let answer = self.exchange(&uri, call, own).await?;
            let redirected = answer.headers.get(header::LOCATION).filter(|_| is_redirect(answer.status));
            let Some(location) = redirected else { return accept(answer, call, &url, own) };
            let location =
                location.to_str().map_err(|_| address(&url, "it redirects to an address that is not one"))?;
            let next = join(&url, location);
            if uri.scheme_str() == Some("https") && !next.starts_with("https://") {
                return Err(address(&url, "it redirects to an address without TLS"));
            }
            url = next;
        }
        Err(address(call.url, "it is redirected too often"))
    }

    /// Sends one request. `own` is whether it goes to the server that the call names.
    async fn exchange(&self, uri: &Uri, call: &Call<'_>, own: bool) -> Result<Answer, FetchError> {
        let url = display(uri);
        let broken = |error: &dyn std::error::Error| FetchError::Broken { url: url.clone(), problem: chain(error) };
        let (stream, request) = self.open(uri, call).await?;
        let request = request.method(if call.form.is_some() { Method::POST } else { Method::GET });
        let request = request.header(header::HOST, authority(uri)).header(header::USER_AGENT, "billhook");
        let request = call.headers(own).into_iter().fold(request, |request, (name, value)| request.header(name, value));
        let body = Full::new(Bytes::from(call.form.unwrap_or_default().to_owned()));
        let request = request.body(body).map_err(|error| broken(&error))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        let exchange = async {
            let (parts, body) = sender.send_request(request).await.map_err(|error| broken(&error))?.into_parts();
            let limit = usize::try_from(call.limit).unwrap_or(usize::MAX);
            // The text of an error is not used.
            let wanted = parts.status.is_success();
            let body =
                if wanted { Limited::new(body, limit).collect().await } else { return Ok((parts, Bytes::new())) };
            let body = body.map_err(|error| match error.is::<LengthLimitError>() {
                true => FetchError::TooLarge { url: url.clone(), what: call.what, limit: call.limit },
                false => broken(error.as_ref()),
            })?;
            Ok::<_, FetchError>((parts, body.to_bytes()))
        };
        // The connection is driven here, so that it ends with this future.
        let driver = async {
            let _ended = connection.await;
            std::future::pending::<std::convert::Infallible>().await
        };
        let (parts, body) = tokio::select! {
            done = exchange => done?,
            never = driver => match never {},
        };
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    /// Connects to the server of an address, or to the proxy for it, and returns a request with the target that it expects.
    async fn open(&self, uri: &Uri, call: &Call<'_>) -> Result<(Box<dyn Stream>, http::request::Builder), FetchError> {
        let (host, port) = (uri.host().unwrap_or_default(), port(uri));
        let secure = uri.scheme_str() == Some("https");
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::builder().uri(path);
        // A proxy resolves the name, so its addresses are not checked.
        self.dialer.check_name(host).map_err(DialError::from)?;
        let proxy = self.proxies.intercept(uri);
        let stream = match &proxy {
            Some(proxy) => {
                let own = proxy.uri();
                if own.scheme_str() != Some("http") {
                    return Err(address(&display(own), "only a proxy with http:// can be used to fetch charts"));
                }
                let proxy_host = own.host().unwrap_or_default();
                let mut stream = Dialer::unrestricted().dial(proxy_host, self::port(own)).await?;
                if !secure {
                    let absolute = Request::builder().uri(uri.clone());
                    let absolute = proxy
                        .basic_auth()
                        .into_iter()
                        .fold(absolute, |request, value| request.header(header::PROXY_AUTHORIZATION, value));
                    return Ok((Box::new(stream), absolute));
                }
                connect(&mut stream, &format!("{host}:{port}"), proxy.basic_auth()).await?;
                stream
            }
            None => self.dialer.dial(host, port).await?,
        };
        if !secure {
            return Ok((Box::new(stream), request));
        }
        let failed = |source| FetchError::Tls { url: display(uri), source };
        let stream = self.tls.connect(stream, host, call.authorities).await.map_err(failed)?;
        Ok((Box::new(stream), request))
    }
}

impl Call<'_> {
    fn headers(&self, own: bool) -> Vec<(header::HeaderName, HeaderValue)> {
        let text = |text: &str| HeaderValue::from_str(text).ok();
        let authorization = self.authorization.filter(|_| own).and_then(text).map(|mut value| {
            value.set_sensitive(true);
            value
        });
        let validators = self.validators.cloned().unwrap_or_default();
        let form = self.form.map(|_| HeaderValue::from_static("application/x-www-form-urlencoded"));
        let headers = [
            (header::AUTHORIZATION, authorization),
            (header::ACCEPT, self.accept.and_then(text)),
            (header::CONTENT_TYPE, form),
            (header::IF_NONE_MATCH, validators.etag),
            (header::IF_MODIFIED_SINCE, validators.modified),
        ];
        headers.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// Returns an answer that the caller can use. Only the server that the call names may ask for credentials.
fn accept(answer: Answer, call: &Call<'_>, url: &str, own: bool) -> Result<Answer, FetchError> {
    let unchanged = call.validators.is_some() && answer.status == StatusCode::NOT_MODIFIED;
    if answer.status.is_success() || unchanged || (own && answer.status == StatusCode::UNAUTHORIZED) {
        return Ok(answer);
    }
    Err(FetchError::Status { url: without_query(url), status: answer.status })
}

/// Asks a proxy for a tunnel.
async fn connect(stream: &mut TcpStream, authority: &str, auth: Option<&HeaderValue>) -> Result<(), FetchError> {
    let broken = |problem: String| FetchError::Broken { url: format!("the proxy, for {authority}"), problem };
    let auth = auth.and_then(|auth| auth.to_str().ok());
    let auth = auth.map(|auth| format!("Proxy-Authorization: {auth}\r\n")).unwrap_or_default();
    let head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{auth}\r\n");
    stream.write_all(head.as_bytes()).await.map_err(|error| broken(error.to_string()))?;
    // Byte by byte, as what follows the head belongs to the tunnel.
    let (mut head, mut limited) = (Vec::new(), stream.take(MAX_HEAD));
    while !head.ends_with(b"\r\n\r\n") {
        head.push(limited.read_u8().await.map_err(|error| broken(error.to_string()))?);
    }
    let status = String::from_utf8_lossy(&head);
    let status = status.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(()),
        _ => Err(broken(format!("it answered {status:?}"))),
    }
}

fn address(url: &str, problem: &'static str) -> FetchError {
    FetchError::Address { url: without_query(url), problem }
}

fn parse(url: &str) -> Result<Uri, FetchError> {
    let uri: Uri = url.parse().map_err(|_| address(url, "this is not an address"))?;
    let plain = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    match uri.scheme_str() {
        Some("http" | "https") if plain => Ok(uri),
        _ => Err(address(url, "an address must begin with https:// or http://, without user and password")),
    }
}

fn is_redirect(status: StatusCode) -> bool {
    [301, 302, 303, 307, 308].contains(&status.as_u16())
}

fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 })
}

fn authority(uri: &Uri) -> &str {
    uri.authority().map_or("", |authority| authority.as_str())
}

/// Returns the scheme, host and port of an address.
fn origin(uri: &Uri) -> (Option<String>, String, u16) {
    (uri.scheme_str().map(str::to_owned), uri.host().unwrap_or_default().to_ascii_lowercase(), port(uri))
}

fn display(uri: &Uri) -> String {
    without_query(&uri.to_string())
}

/// Returns an address without what may be secret in it.
fn without_query(url: &str) -> String {
    let url = without_user(url);
    url.split(['?', '#']).next().unwrap_or_default().to_owned()
}

/// Returns whether a reference begins with a scheme, and does not merely have an address in its query.
pub(crate) fn is_absolute(reference: &str) -> bool {
    let scheme = reference.split_once("://").map_or("", |(scheme, _)| scheme);
    !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Returns the address that a reference in a document means (RFC 3986, section 5.2).
pub(crate) fn join(base: &str, reference: &str) -> String {
    let reference = reference.split('#').next().unwrap_or_default();
    if is_absolute(reference) {
        return reference.to_owned();
    }
    let (scheme, rest) = base.split_once("://").unwrap_or(("https", base));
    if let Some(rest) = reference.strip_prefix("//") {
        return format!("{scheme}://{rest}");
    }
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (reference, query) = match reference.split_once('?') {
        Some((reference, query)) => (reference, format!("?{query}")),
        None => (reference, String::new()),
    };
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let whole = match reference.strip_prefix('/') {
        Some(absolute) => absolute.to_owned(),
        None => format!("{folder}/{reference}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.trim_start_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("{scheme}://{host}/{}{query}", parts.join("/"))
}

/// Returns an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_relative_to_their_document() {
        fn check(base: &str, reference: &str, expected: &str) {
            assert_eq!(join(base, reference), expected, "{reference} in {base}");
        }
        check("https://a.example/charts/index.yaml", "shop-1.0.0.tgz", "https://a.example/charts/shop-1.0.0.tgz");
        check("https://a.example/charts/index.yaml", "x/shop.tgz?a=b#c", "https://a.example/charts/x/shop.tgz?a=b");
        check("https://a.example/charts/index.yaml", "/shop.tgz", "https://a.example/shop.tgz");
        check("https://a.example/x/y/index.yaml", "../shop.tgz", "https://a.example/x/shop.tgz");
        check("https://a.example/x/y/index.yaml", "../../../../shop.tgz", "https://a.example/shop.tgz");
        check("https://a.example", "shop.tgz", "https://a.example/shop.tgz");
        check("https://a.example/x?y=z/w", "shop.tgz", "https://a.example/shop.tgz");
        check(
            "https://a.example/x",
            "shop.tgz?from=http://b.example",
            "https://a.example/shop.tgz?from=http://b.example",
        );
        check("https://a.example/x", "http://b.example/shop.tgz", "http://b.example/shop.tgz");
        check("https://a.example/x", "//b.example/shop.tgz", "https://b.example/shop.tgz");
    }

    #[test]
    fn only_addresses_of_servers_are_accepted() {
        for url in
            ["file:///etc/passwd", "oci://a.example/x", "/x", "https://", "https://me:sesame@a.example/", "gopher://a"]
        {
            let error = parse(url).unwrap_err().to_string();
            assert!(!error.contains("sesame"), "{error}");
        }
        parse("https://[::1]:8443/x?y=z").unwrap();
    }

    #[test]
    fn servers_with_another_scheme_host_or_port_are_others() {
        let same = |one: &str, two: &str| origin(&parse(one).unwrap()) == origin(&parse(two).unwrap());
        assert!(same("https://a.example/x", "https://A.example:443/y"));
        for other in ["http://a.example/x", "https://b.example/x", "https://a.example:444/x"] {
            assert!(!same("https://a.example/x", other), "{other}");
        }
    }
}
