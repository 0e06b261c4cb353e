//! Charts fetched from servers that answer as the tests want: caches, redirects, limits, and addresses that change.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    error::Error as _,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use billhook_charts::{Chart, Helm, RepositoryAuth, Source, fetch};
use billhook_hosts::{Dialer, HostRules};
use billhook_policy::ChartSource;
use flate2::{Compression, write::GzEncoder};

/// Returns a packed chart with this version.
fn packed(version: &str) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let text = format!("apiVersion: v2\nname: shop\nversion: {version}\n");
    let mut header = tar::Header::new_ustar();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "shop/Chart.yaml", text.as_bytes()).unwrap();
    archive.into_inner().unwrap().finish().unwrap()
}

/// A server without TLS, and the requests that it got: the path, and the headers.
struct Server {
    url: String,
    seen: Arc<Mutex<Vec<(String, HeaderMap)>>>,
}

impl Server {
    async fn start(answer: impl Fn(&Request) -> Response + Clone + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let noted = Arc::clone(&seen);
        let router = Router::new().fallback(move |request: Request| {
            noted.lock().unwrap().push((request.uri().to_string(), request.headers().clone()));
            let answer = answer(&request);
            async move { answer }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, seen }
    }

    /// Returns the values of a header in all requests since the last call.
    fn seen(&self, name: header::HeaderName) -> Vec<Option<String>> {
        let value = |headers: &HeaderMap| headers.get(&name).map(|value| value.to_str().unwrap().to_owned());
        self.seen.lock().unwrap().drain(..).map(|(_, headers)| value(&headers)).collect()
    }

    fn paths(&self) -> Vec<String> {
        self.seen.lock().unwrap().drain(..).map(|(path, _)| path).collect()
    }

    fn archive(&self, path: &str, header: Option<&str>) -> Chart {
        self.chart(ChartSource::RemoteArchive(format!("{}{path}", self.url)), header)
    }

    fn chart(&self, source: ChartSource, header: Option<&str>) -> Chart {
        let mut chart = Chart::from(source);
        let auth = header.map(|header| RepositoryAuth {
            url: self.url.clone(),
            auth_header: Some(header.to_owned()),
            ..RepositoryAuth::default()
        });
        chart.credentials.repositories.extend(auth);
        chart
    }
}

/// A helm that does not exist: nothing here needs it.
fn nowhere() -> Helm {
    Helm::new("/nowhere/helm")
}

/// Fetches a chart and returns its bytes, or the error with its causes.
async fn get(chart: Chart, helm: &Helm) -> Result<Vec<u8>, String> {
    match fetch(chart, helm).await {
        Ok(Chart { source: Source::Configured(ChartSource::Archive(bytes)), .. }) => Ok(bytes),
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            let mut text = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                text += &format!(": {error}");
                cause = error.source();
            }
            Err(text)
        }
    }
}

fn rules(deny: &str) -> Arc<HostRules> {
    Arc::new(HostRules { allow: Vec::new(), deny: vec![deny.parse().unwrap()] })
}

#[tokio::test]
async fn what_has_not_changed_is_fetched_once_and_only_for_the_same_credentials() {
    let version = Arc::new(Mutex::new("1.0.0"));
    let current = Arc::clone(&version);
    let server = Server::start(move |request| {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let etag = format!("\"{}\"", current.lock().unwrap());
        match header(header::AUTHORIZATION) {
            Some("Bearer right" | "Bearer also-right") => {}
            _ => return StatusCode::UNAUTHORIZED.into_response(),
        }
        if header(header::IF_NONE_MATCH) == Some(&etag) {
            return (StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response();
        }
        ([(header::ETAG, etag)], packed(&current.lock().unwrap())).into_response()
    })
    .await;
    let helm = nowhere();
    let fetch = async |header: Option<&str>| get(server.archive("/shop.tgz", header), &helm).await;
    let one = Some("\"1.0.0\"".to_owned());
    assert_eq!(fetch(Some("Bearer right")).await, Ok(packed("1.0.0")));
    assert_eq!(fetch(Some("Bearer right")).await, Ok(packed("1.0.0")));
    assert_eq!(server.seen(header::IF_NONE_MATCH), [None, one.clone()]);
    // Neither another user nor one without credentials gets anything out of the cache, nor learns what is in it.
    assert!(fetch(None).await.unwrap_err().ends_with("/shop.tgz: 401 Unauthorized"));
    assert!(fetch(Some("Bearer wrong")).await.is_err());
    assert_eq!(fetch(Some("Bearer also-right")).await, Ok(packed("1.0.0")));
    assert_eq!(server.seen(header::IF_NONE_MATCH), [None, None, None]);
    *version.lock().unwrap() = "2.0.0";
    assert_eq!(fetch(Some("Bearer right")).await, Ok(packed("2.0.0")));
    assert_eq!(server.seen(header::IF_NONE_MATCH), [one]);
}

#[tokio::test]
async fn a_date_is_a_validator_and_an_answer_without_one_is_not_kept() {
    const DATE: &str = "Tue, 24 Nov 2026 10:00:00 GMT";
    let server = Server::start(|request| match request.uri().path() {
        "/dated.tgz" if request.headers().contains_key(header::IF_MODIFIED_SINCE) => {
            StatusCode::NOT_MODIFIED.into_response()
        }
        "/dated.tgz" => ([(header::LAST_MODIFIED, DATE)], packed("1.0.0")).into_response(),
        // A server may answer so although it was not asked for that.
        "/wrong.tgz" => StatusCode::NOT_MODIFIED.into_response(),
        _ => packed("1.0.0").into_response(),
    })
    .await;
    let helm = nowhere();
    for (path, expected) in [("/dated.tgz", [None, Some(DATE.to_owned())]), ("/plain.tgz", [None, None])] {
        for _ in 0..2 {
            assert_eq!(get(server.archive(path, None), &helm).await, Ok(packed("1.0.0")));
        }
        assert_eq!(server.seen(header::IF_MODIFIED_SINCE), expected, "{path}");
    }
    let error = get(server.archive("/wrong.tgz", None), &helm).await.unwrap_err();
    assert!(error.ends_with("/wrong.tgz: 304 Not Modified"), "{error}");
}

#[tokio::test]
async fn the_index_of_a_repository_leads_to_the_chart_and_is_asked_for_again() {
    const INDEX: &str =
        "apiVersion: v1\nentries:\n  shop:\n  - {version: 1.0.0, urls: [charts/shop.tgz]}\n  - {version: 2.0.0}\n";
    let server = Server::start(|request| match request.uri().path() {
        "/x/index.yaml" if request.headers().contains_key(header::IF_NONE_MATCH) => {
            StatusCode::NOT_MODIFIED.into_response()
        }
        "/x/index.yaml" => ([(header::ETAG, "\"a\"")], INDEX).into_response(),
        "/x/charts/shop.tgz" => packed("1.0.0").into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    })
    .await;
    let helm = nowhere();
    let fetch = async |folder: &str, name: &str, version: &str| {
        let (name, version) = (name.to_owned(), Some(version.to_owned()));
        let source = ChartSource::Repository { url: format!("{}{folder}", server.url), name, version };
        get(server.chart(source, Some("Bearer abc")), &helm).await
    };
    assert_eq!(fetch("/x/?a=b", "shop", "1.0.0").await, Ok(packed("1.0.0")));
    assert_eq!(server.paths(), ["/x/index.yaml?a=b", "/x/charts/shop.tgz?a=b"]);
    assert_eq!(fetch("/x", "shop", "1.0.0").await, Ok(packed("1.0.0")));
    assert_eq!(fetch("/x", "shop", "1.0.0").await, Ok(packed("1.0.0")));
    let bearer = Some("Bearer abc".to_owned());
    assert_eq!(server.seen(header::AUTHORIZATION), [bearer.clone(), bearer.clone(), bearer.clone(), bearer]);
    for (folder, name, version, problem) in [
        ("/x", "flop", "1.0.0", "chart flop not found in its index"),
        ("/x", "shop", "2.0.0", "version 2.0.0 of chart shop has no address in its index"),
        ("/x", "../shop", "1.0.0", "the name of a chart in a repository must not be a path"),
        ("/y", "shop", "1.0.0", "/y/index.yaml: 404 Not Found"),
    ] {
        let error = fetch(folder, name, version).await.unwrap_err();
        assert!(error.ends_with(problem), "{error}");
    }
}

#[tokio::test]
async fn a_redirect_leads_to_no_denied_host_and_takes_no_credentials_along() {
    let elsewhere = Server::start(|_| packed("1.0.0").into_response()).await;
    let port = elsewhere.url.rsplit_once(':').unwrap().1.to_owned();
    let (allowed, denied) = (format!("{}/x.tgz", elsewhere.url), format!("http://127.0.0.2:{port}/x.tgz"));
    let server = Server::start(move |request| {
        let to = |location: &str| (StatusCode::FOUND, [(header::LOCATION, location.to_owned())]).into_response();
        match request.uri().path() {
            "/allowed" => to(&allowed),
            "/denied" => to(&denied),
            "/own" => to("/last"),
            "/endless" => to("/endless"),
            "/file" => to("file:///etc/passwd"),
            _ => packed("2.0.0").into_response(),
        }
    })
    .await;
    let helm = nowhere().fetching_with(Dialer::new(rules("127.0.0.2")));
    let fetch = async |path: &str| get(server.archive(path, Some("Bearer abc")), &helm).await;
    assert_eq!(fetch("/allowed").await, Ok(packed("1.0.0")));
    assert_eq!(elsewhere.seen(header::AUTHORIZATION), [None]);
    assert_eq!(fetch("/own").await, Ok(packed("2.0.0")));
    assert!(server.seen(header::AUTHORIZATION).iter().all(Option::is_some));
    let error = fetch("/denied").await.unwrap_err();
    assert!(error.ends_with("connections to 127.0.0.2 are not allowed: it is denied by the configuration"), "{error}");
    assert!(fetch("/endless").await.unwrap_err().ends_with("/endless: it is redirected too often"));
    assert!(fetch("/file").await.unwrap_err().contains("this is not an address"));
    assert_eq!(elsewhere.seen(header::HOST).len(), 0);
}

#[tokio::test]
async fn a_name_that_resolves_to_a_denied_address_later_is_not_connected_to() {
    let server = Server::start(|_| packed("1.0.0").into_response()).await;
    let port = server.url.rsplit_once(':').unwrap().1.to_owned();
    let answers = Arc::new(Mutex::new(vec!["127.0.0.1", "192.0.2.1"]));
    let resolve = Arc::new(move |_| {
        let next: IpAddr = answers.lock().unwrap().pop().unwrap().parse().unwrap();
        Box::pin(async move { Ok(vec![next]) }) as _
    });
    let dialer = Dialer::new(rules("loopback")).resolving_with(resolve);
    dialer.check("charts.example").await.unwrap();
    let source = ChartSource::RemoteArchive(format!("http://charts.example:{port}/shop.tgz"));
    let error = get(source.into(), &nowhere().fetching_with(dialer)).await.unwrap_err();
    assert!(
        error.ends_with("connections to charts.example are not allowed: it is denied by the configuration"),
        "{error}"
    );
    assert_eq!(server.paths().len(), 0);
}

#[tokio::test]
async fn what_is_too_large_is_not_read_to_its_end() {
    let server = Server::start(|_| {
        let chunk = || Ok::<_, std::io::Error>(Bytes::from(vec![0; 1 << 20]));
        // It never ends.
        let body = Body::from_stream(futures::stream::repeat_with(chunk));
        ([(header::ETAG, "\"a\"")], body).into_response()
    })
    .await;
    let helm = nowhere();
    let error = get(server.archive("/shop.tgz", None), &helm).await.unwrap_err();
    assert!(error.ends_with("/shop.tgz: the packed chart is larger than 20 MiB"), "{error}");
    let source = ChartSource::Repository { url: server.url.clone(), name: "shop".to_owned(), version: None };
    let error = get(source.into(), &helm).await.unwrap_err();
    assert!(error.ends_with("/index.yaml: the index of the repository is larger than 50 MiB"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_takes_a_minute() {
    // Connections to it are accepted by the kernel, and nobody answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x.tgz", listener.local_addr().unwrap());
    let begun = tokio::time::Instant::now();
    let error = get(ChartSource::RemoteArchive(url).into(), &nowhere()).await.unwrap_err();
    assert!(error.ends_with("fetching the chart took longer than 60 seconds"), "{error}");
    assert_eq!(begun.elapsed().as_secs(), 60);
}
