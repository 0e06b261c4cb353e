//! Requests: their time limit, their slot in the limiter, and when they are retried.

use std::{sync::atomic::Ordering, time::Duration};

use billhook_hosts::Denied;
use http::{Request, StatusCode, header};
use hyper::body::Bytes;
use jiff::{Timestamp, fmt::rfc2822};
use kube::client::Body;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    answer_body::{self, Unread},
    cluster::Cluster,
    counts::Verb,
    error::{self, Error, ErrorKind, Status},
    guarded_body::{Closed, Fences},
};

/// How long a request is retried while a backend of the API server is unavailable: that is a blocker, not an outage.
const WEBHOOK_PATIENCE: Duration = Duration::from_secs(2);
/// How long a request is retried while the server has never answered.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);

/// Returns whether a failure is transient for one particular request.
type IsTransient = fn(&Error) -> bool;

/// A request to send.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) what: String,
    pub(crate) verb: Verb,
    pub(crate) url: String,
    pub(crate) accept: &'static str,
    pub(crate) body: Option<(&'static str, Bytes)>,
    /// Whether it is retried at all.
    pub(crate) retry: bool,
    /// Whether it is retried although the answer to a try was lost, so that it may have been carried out.
    pub(crate) retry_lost: bool,
    /// Whether it bypasses the limit of requests in flight.
    pub(crate) urgent: bool,
    /// Which other failures of this request are retried, and for how long.
    pub(crate) also_retried: Option<(IsTransient, Duration)>,
}

impl Call {
    pub(crate) fn new(verb: Verb, what: impl Into<String>, url: String) -> Self {
        Self {
            what: what.into(),
            verb,
            url,
            accept: "application/json",
            body: None,
            retry: true,
            retry_lost: true,
            urgent: false,
            also_retried: None,
        }
    }

    pub(crate) fn get(what: impl Into<String>, url: String) -> Self {
        Self::new(Verb::Get, what, url)
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    pub(crate) fn body(mut self, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        self.body = Some((content_type, body.into()));
        self
    }

    pub(crate) fn retry(mut self, retry: bool) -> Self {
        self.retry = retry;
        self
    }

    pub(crate) fn retry_lost(mut self, retry: bool) -> Self {
        self.retry_lost = retry;
        self
    }

    pub(crate) fn urgent(mut self) -> Self {
        self.urgent = true;
        self
    }

    pub(crate) fn also_retry(mut self, is_transient: IsTransient, within: Duration) -> Self {
        self.also_retried = Some((is_transient, within));
        self
    }

    fn request(&self) -> Result<Request<Body>, Error> {
        let mut request = Request::builder()
            .method(self.verb.method())
            .uri(&self.url)
            .header(header::ACCEPT, self.accept)
            // The client names its spans by this extension.
            .extension("billhook");
        if self.verb == Verb::Watch {
            // A compressor would hold events back until it has enough of them.
            request = request.header(header::ACCEPT_ENCODING, "identity");
        }
        let body = match &self.body {
            Some((content_type, body)) => {
                request = request.header(header::CONTENT_TYPE, *content_type);
                Body::from(body.clone())
            }
            None => Body::empty(),
        };
        request.body(body).map_err(|source| Error::new(&self.what, ErrorKind::Other).with_source(source))
    }
}

/// A 2xx answer.
#[derive(Debug)]
pub(crate) struct Reply {
    what: String,
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
    date: Option<Timestamp>,
}

impl Reply {
    /// Returns when the server answered, by its own clock: the one that sets the timestamps of objects. Both have a
    /// resolution of one second.
    pub(crate) fn date(&self) -> Option<Timestamp> {
        self.date
    }

    /// Decodes the body. An error gives the position only, because the body may hold secrets.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| unreadable(&self.what, &error))
    }
}

/// Makes an error for an answer that cannot be decoded. serde's own message would quote it.
pub(crate) fn unreadable(what: impl Into<String>, error: &serde_json::Error) -> Error {
    let place = format!("the answer cannot be read (line {}, column {})", error.line(), error.column());
    Error::new(what, ErrorKind::Other).because(place)
}

/// A failed try.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    transient: bool,
    lost: bool,
}

impl Failure {
    /// Classifies an error that [`Cluster::send`] has returned.
    pub(crate) fn of(cluster: &Cluster, error: Error) -> Self {
        let early = matches!(error.code(), Some(401 | 403)) && cluster.just_came_back();
        Self { transient: early || error.is_transient(), lost: false, error }
    }

    pub(crate) fn is_transient(&self) -> bool {
        self.transient
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, transient: false, lost: false }
    }
}

impl Cluster {
    /// Sends a request, retries it while its failure is transient, and returns a 2xx answer.
    pub(crate) async fn send(&self, call: &Call) -> Result<Reply, Error> {
        let mut first_failure = None;
        let mut answer_lost = false;
        for attempt in 0_u32.. {
            let failure = match self.attempt(call).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let now = Instant::now();
            let since = now.duration_since(*first_failure.get_or_insert(now));
            let pause = match failure.error.retry_after() {
                Some(after) => after + after.mul_f64(self.jitter() / 10.0),
                None => self.backoff(attempt),
            };
            let patience = self.patience(call, &failure);
            let is_final = failure.lost && !call.retry_lost;
            let error = failure.error.with_answer_lost(answer_lost || is_final);
            answer_lost |= failure.lost;
            if is_final {
                return Err(error);
            }
            if !call.retry || patience.is_none_or(|patience| since + pause > patience) {
                return Err(error);
            }
            // The message of an answer may quote what was sent.
            let cause = error.status().is_none().then(|| error.message());
            tracing::debug!(what = %call.what, attempt, ?pause, code = error.code(), cause = cause.as_deref(), "retrying");
            sleep(pause).await;
        }
        Err(Error::new(&call.what, ErrorKind::Other))
    }

    /// Returns how long this failure of this request is retried, counted from the first failure; none if not at all.
    fn patience(&self, call: &Call, failure: &Failure) -> Option<Duration> {
        let all = self.inner.options.patience;
        if let Some((is_transient, within)) = call.also_retried
            && is_transient(&failure.error)
        {
            return Some(within);
        }
        if *failure.error.kind() == ErrorKind::Webhook && failure.transient {
            Some(WEBHOOK_PATIENCE.min(all))
        } else if failure.transient {
            let reached = self.inner.reached.load(Ordering::Relaxed);
            Some(if reached { all } else { FIRST_PATIENCE.min(all) })
        } else {
            None
        }
    }

    /// Sends a request once and reads the whole answer.
    async fn attempt(&self, call: &Call) -> Result<Reply, Failure> {
        let limiter = &self.inner.limiter;
        let _slot = if call.urgent { None } else { Some(limiter.acquire().await) };
        let answer = timeout(self.inner.options.request_timeout, async {
            let response = self.transmit(call).await?;
            let retry_after = retry_after(response.headers());
            let date = date(response.headers());
            let status = response.status();
            let body = self.read(call, response.into_body()).await?;
            Ok((status, retry_after, date, body))
        });
        match answer.await {
            Ok(Ok((status, _, date, body))) if status.is_success() => {
                limiter.answered();
                Ok(Reply { what: call.what.clone(), status, body, date })
            }
            Ok(Ok((status, retry_after, _, body))) => {
                if status == StatusCode::TOO_MANY_REQUESTS {
                    limiter.congested();
                } else {
                    limiter.answered();
                }
                Err(self.refused(call, status, retry_after, &body))
            }
            Ok(Err(failure)) => Err(failure),
            Err(_) => {
                limiter.congested();
                Err(self.timed_out(call))
            }
        }
    }

    /// Opens a watch: sends the request once, outside the limiter, and returns the body as a stream.
    pub(crate) async fn open(&self, call: &Call) -> Result<Body, Failure> {
        let limit = self.inner.options.request_timeout;
        let opened = timeout(limit, async {
            let response = self.transmit(call).await?;
            let status = response.status();
            if status.is_success() {
                return Ok(response.into_body());
            }
            let retry_after = retry_after(response.headers());
            let body = self.read(call, response.into_body()).await?;
            Err(self.refused(call, status, retry_after, &body))
        });
        opened.await.unwrap_or_else(|_| Err(self.timed_out(call)))
    }

    /// Reads an answer to its end, up to the limit of the server.
    async fn read(&self, call: &Call, body: Body) -> Result<Bytes, Failure> {
        let limit = self.inner.options.answer_limit;
        let too_large = |problem: String| Error::new(&call.what, ErrorKind::TooLarge).because(problem);
        match answer_body::read(body, limit, &self.inner.reading).await {
            Ok(body) => Ok(body),
            Err(Unread::Broken(source)) => Err(self.broken(call, source)),
            Err(Unread::TooLarge) => Err(too_large(format!("the answer has more than {} MiB", limit >> 20)).into()),
            Err(Unread::TooMany) => {
                let error =
                    too_large("too many large answers of the server are being read at the same time".to_owned());
                Err(Failure { error, transient: true, lost: true })
            }
        }
    }

    async fn transmit(&self, call: &Call) -> Result<http::Response<Body>, Failure> {
        let mut request = call.request()?;
        let stopped = |why: &str| Failure::from(Error::new(&call.what, ErrorKind::Stopped).because(why));
        if let Some(closed) = self.fences.iter().find(|fence| !fence.lets_pass()) {
            return Err(stopped(&closed.why));
        }
        if !self.fences.is_empty() {
            request.extensions_mut().insert(Fences(self.fences.clone()));
        }
        self.inner.counters.sent(call.verb);
        let mut ended = Ended { cluster: self, verb: call.verb, code: 0 };
        match self.inner.client.send(request).await {
            Ok(response) => {
                ended.code = response.status().as_u16();
                tracing::debug!(code = ended.code, "{}", call.what);
                self.inner.reached.store(true, Ordering::Relaxed);
                self.note_answer(true);
                if let Some(date) = date(response.headers()).filter(|_| response.status().is_success()) {
                    self.note_time(date.as_second());
                }
                Ok(response)
            }
            Err(source) => {
                if let Some(Closed(why)) = causes(&source).find_map(<dyn std::error::Error>::downcast_ref) {
                    self.inner.counters.not_sent(call.verb);
                    return Err(stopped(why));
                }
                let failure = self.broken(call, source);
                if !failure.lost {
                    self.inner.counters.not_sent(call.verb);
                }
                Err(failure)
            }
        }
    }

    /// Classifies a failure of the connection.
    fn broken(&self, call: &Call, source: kube::Error) -> Failure {
        let trouble = Trouble::of(&source);
        let transient = match trouble {
            Trouble::NotSent | Trouble::Broken => true,
            Trouble::NoSuchHost => self.inner.reached.load(Ordering::Relaxed),
            Trouble::Permanent => false,
        };
        if transient {
            self.note_outage();
        }
        self.note_answer(false);
        let kind = if trouble == Trouble::Permanent { ErrorKind::Other } else { ErrorKind::Unreachable };
        let error = Error::new(&call.what, kind).with_source(source);
        let message = match trouble {
            Trouble::NotSent | Trouble::NoSuchHost => format!("the server cannot be reached ({})", error.message()),
            Trouble::Broken => format!("the connection broke ({})", error.message()),
            Trouble::Permanent => error.message(),
        };
        Failure { error: error.because(message), transient, lost: trouble == Trouble::Broken }
    }

    fn refused(&self, call: &Call, code: StatusCode, header: Option<Duration>, body: &[u8]) -> Failure {
        let status = Status::read(code.as_u16(), body, self.inner.options.foreign.is_none());
        let retry_after = header.or(status.retry_after.map(Duration::from_secs));
        // A server that is starting has not loaded all rights yet.
        let early = matches!(status.code, 401 | 403) && self.just_came_back();
        let transient = early || error::is_transient(&status);
        // After a gateway's or etcd's timeout, the request may have been carried out.
        let lost = matches!(status.code, 500 | 502 | 504) && transient;
        Failure { error: Error::answered(&call.what, status).with_retry_after(retry_after), transient, lost }
    }

    fn timed_out(&self, call: &Call) -> Failure {
        self.note_answer(false);
        let limit = self.inner.options.request_timeout;
        let error = Error::new(&call.what, ErrorKind::Timeout).because(format!("no answer within {limit:?}"));
        Failure { error, transient: true, lost: true }
    }
}

/// Counts how a request ended, even if the caller stops waiting for the answer.
struct Ended<'a> {
    cluster: &'a Cluster,
    verb: Verb,
    code: u16,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.cluster.inner.counters.ended(self.verb, self.code);
    }
}

/// A failure below HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// The connection was refused: the request was not sent.
    NotSent,
    /// The connection broke: the request may have been carried out.
    Broken,
    /// The host name cannot be resolved.
    NoSuchHost,
    /// A retry does not help: the certificate or credential is wrong, or the host is denied.
    Permanent,
}

impl Trouble {
    fn of(error: &kube::Error) -> Self {
        use std::io::ErrorKind as Io;
        if matches!(error, kube::Error::Auth(_)) {
            return Self::Permanent;
        }
        for error in causes(error) {
            if error.is::<kube::client::AuthError>() || error.is::<Denied>() {
                return Self::Permanent;
            }
            if let Some(io) = error.downcast_ref::<std::io::Error>() {
                match io.kind() {
                    Io::ConnectionRefused | Io::HostUnreachable | Io::NetworkUnreachable => return Self::NotSent,
                    // rustls reports an untrusted certificate this way.
                    Io::InvalidData => return Self::Permanent,
                    _ if io.to_string().contains("failed to lookup address") => return Self::NoSuchHost,
                    _ => {}
                }
            }
        }
        Self::Broken
    }
}

/// Returns an error and its causes.
fn causes(error: &kube::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source())
}

fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

fn date(headers: &http::HeaderMap) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(headers.get(header::DATE)?.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_answer_is_read() {
        for (value, seconds) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Sun, 06 Nov 1994 08:49:37 +0000", Some(784_111_777)),
            ("yesterday", None),
            ("", None),
        ] {
            let headers = http::HeaderMap::from_iter([(header::DATE, http::HeaderValue::from_static(value))]);
            assert_eq!(date(&headers).map(Timestamp::as_second), seconds, "{value}");
        }
        assert_eq!(date(&http::HeaderMap::new()), None);
    }
}
