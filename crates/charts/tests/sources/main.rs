//! The real helm with charts from a real registry and a repository, and with releases in a real cluster.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test fails by panicking")]

mod deploy;
mod servers;

use std::{
    error::Error as _,
    sync::{Arc, Mutex},
};

use axum::{
    extract::Request,
    http::{StatusCode, header},
    response::{IntoResponse as _, Redirect},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use billhook_charts::{Chart, Error, Helm, Release, RepositoryAuth, fetch, template, values};
use billhook_policy::ChartSource;
use serde_json::json;
use servers::{HEADER, PROGRAM, Registry, helm, pack, repository};

const RELEASE: Release<'_> = Release { name: "shop", namespace: "store", values: None, values_files: &[], set: &[] };

/// Returns the text of an error with all its causes.
fn message(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// Renders the chart `shop` and returns its version, or the error.
async fn version(chart: &Chart) -> Result<String, String> {
    let rendered = template(chart, &RELEASE, None, None, &PROGRAM).await.map_err(|error| message(&error))?;
    let [manifest] = rendered.manifests.as_slice() else { panic!("{rendered:?}") };
    Ok(manifest.value()["data"]["version"].as_str().unwrap().to_owned())
}

async fn check(chart: &Chart, expected: &str) {
    assert_eq!(version(chart).await.as_deref(), Ok(expected), "{chart:?}");
}

/// Checks the values that the templates of a fetched chart see.
async fn check_values(chart: &Chart) {
    let found = values(chart, &RELEASE, None, false, &PROGRAM).await.map_err(|error| message(&error)).unwrap();
    assert_eq!(found["Values"], json!({"color": "red"}), "{chart:?}");
    assert_eq!((&found["Release"]["Name"], &found["Release"]["Namespace"]), (&json!("shop"), &json!("store")));
}

/// Checks that the error contains all words, ignoring case.
async fn check_error(chart: &Chart, words: &[&str]) {
    let error = version(chart).await.unwrap_err();
    let small = error.to_lowercase();
    assert!(words.iter().all(|word| small.contains(&word.to_lowercase())), "{error}\nlacks some of {words:?}");
}

fn oci(reference: String) -> Chart {
    ChartSource::Oci(reference).into()
}

/// Returns credentials with a header for a user and password.
fn basic(url: &str, user: &str, password: &str) -> RepositoryAuth {
    let header = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    RepositoryAuth { url: url.to_owned(), auth_header: Some(header), ..RepositoryAuth::default() }
}

fn ca(url: &str, pem: &str) -> RepositoryAuth {
    RepositoryAuth { url: url.to_owned(), custom_ca_data: Some(STANDARD.encode(pem)), ..RepositoryAuth::default() }
}

#[tokio::test]
async fn a_chart_in_a_registry_is_found_by_tag_and_by_digest() {
    let registry = Registry::private();
    let (old, new) = ("1.2.3", "1.3.0+build.7");
    let folder = registry.folder.path();
    let digest = registry.push(&pack(folder, old));
    registry.push(&pack(folder, new));
    let host = &registry.host;
    let find = |rest: &str| {
        let mut chart = oci(format!("{host}/charts/{rest}"));
        chart.credentials.add_docker_config(&registry.docker_config(&registry.password)).unwrap();
        chart.credentials.repositories.push(ca(&format!("oci://{host}"), &registry.ca));
        chart
    };
    check(&find("shop:1.2.3"), old).await;
    check_values(&find(&format!("shop@{digest}"))).await;
    check(&find("shop:1.3.0_build.7"), new).await;
    check(&find("shop:1.3.0+build.7"), new).await;
    check(&find(&format!("shop@{digest}")), old).await;
    check(&find(&format!("shop:1.3.0@{digest}")), old).await;
    check(&find("shop"), new).await;
    check_error(&find("shop:1.9.9"), &[host, "1.9.9", "not found"]).await;
    check_error(&find("flop:1.2.3"), &[host, "flop", "not found"]).await;
    let wrong = format!("sha256:{}", "0".repeat(64));
    check_error(&find(&format!("shop@{wrong}")), &[host, &wrong, "not found"]).await;
}

#[tokio::test]
async fn a_chart_with_a_digest_is_fetched_once_with_the_same_credentials() {
    let registry = Registry::private();
    let digest = registry.push(&pack(registry.folder.path(), "1.2.3"));
    let chart = |password: &str| {
        let mut chart = oci(format!("{}/charts/shop@{digest}", registry.host));
        chart.credentials.add_docker_config(&registry.docker_config(password)).unwrap();
        chart.credentials.repositories.push(ca(&format!("oci://{}", registry.host), &registry.ca));
        chart
    };
    let (right, wrong) = (chart(&registry.password), chart("wrong"));
    let helm = Helm::new(&*servers::HELM);
    let render = async |chart: &Chart, helm: &Helm| template(chart, &RELEASE, None, None, helm).await.is_ok();
    assert!(render(&right, &helm).await);
    assert!(!render(&wrong, &helm).await);
    drop(registry);
    assert!(render(&right, &helm).await);
    assert!(!render(&right, &Helm::new(&*servers::HELM)).await);
}

#[tokio::test]
async fn a_registry_accepts_only_the_right_credentials() {
    let registry = Registry::private();
    registry.push(&pack(registry.folder.path(), "1.2.3"));
    let host = &registry.host;
    let anonymous = || {
        let mut chart = oci(format!("{host}/charts/shop:1.2.3"));
        chart.credentials.repositories.push(ca(&format!("oci://{host}"), &registry.ca));
        chart
    };
    let with = |configs: &[String]| {
        let mut chart = anonymous();
        configs.iter().for_each(|config| chart.credentials.add_docker_config(config).unwrap());
        chart
    };
    let unauthorized = [host.as_str(), "401 unauthorized"];
    check_error(&anonymous(), &unauthorized).await;
    check_error(&with(&[registry.docker_config("wrong")]), &unauthorized).await;
    let entry = json!({"auth": STANDARD.encode(format!("{}:{}", servers::USER, registry.password))});
    let elsewhere = json!({"auths": {"registry.example": entry}}).to_string();
    check_error(&with(std::slice::from_ref(&elsewhere)), &unauthorized).await;
    let as_docker_writes = json!({"auths": {format!("https://{host}/v2/"): entry}}).to_string();
    check(&with(&[elsewhere, as_docker_writes]), "1.2.3").await;
    let for_path = json!({"auths": {format!("{host}/charts"): entry}}).to_string();
    check(&with(&[registry.docker_config("wrong"), for_path]), "1.2.3").await;

    let mut chart = with(&[registry.docker_config(&registry.password)]);
    chart.credentials.repositories.clear();
    check_error(&chart, &[host, "certificate"]).await;
    let header = basic(&format!("oci://{host}/charts"), servers::USER, &registry.password);
    chart = oci(format!("{host}/charts/shop:1.2.3"));
    chart.credentials.repositories.push(RepositoryAuth { custom_ca_data: Some(registry.ca.clone()), ..header });
    check(&chart, "1.2.3").await;
}

#[tokio::test]
async fn a_registry_that_wants_a_token_gets_one_for_the_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let archive = std::fs::read(pack(folder.path(), "1.2.3")).unwrap();
    let (url, pem) = servers::serve(move |request| servers::token_registry(&archive, request)).await;
    let host = url.strip_prefix("https://").unwrap().to_owned();
    let find = |tag: &str, header: Option<&str>| {
        let mut chart = oci(format!("{host}/charts/shop:{tag}"));
        let auth = RepositoryAuth { auth_header: header.map(str::to_owned), ..ca(&format!("oci://{host}"), &pem) };
        chart.credentials.repositories.push(auth);
        chart
    };
    check(&find("1.2.3", Some(HEADER)), "1.2.3").await;
    // A header of another scheme is sent as it is.
    check(&find("1.2.3", Some("Bearer abc")), "1.2.3").await;
    for header in [None, Some("Bearer other"), Some("Basic bWU6d3Jvbmc=")] {
        check_error(&find("1.2.3", header), &[&host, "401 unauthorized"]).await;
    }
    check_error(&find("empty", Some(HEADER)), &["it is not the manifest of a chart"]).await;
    check_error(&find("forged", Some(HEADER)), &["the answer has another digest"]).await;
    check_error(&find("9.9.9", Some(HEADER)), &["404 not found"]).await;
}

#[tokio::test]
async fn a_registry_without_tls_is_rejected() {
    let registry = Registry::open();
    registry.push(&pack(registry.folder.path(), "1.2.3"));
    let chart = oci(format!("{}/charts/shop:1.2.3", registry.host));
    check_error(&chart, &[&registry.host, "https"]).await;
}

#[tokio::test]
async fn a_chart_in_a_repository_is_found_by_name_and_version() {
    let folder = tempfile::tempdir().unwrap();
    ["1.2.3", "1.3.0", "2.0.0"].iter().for_each(|version| drop(pack(folder.path(), version)));
    helm(["repo", "index", folder.path().to_str().unwrap()]);
    let (url, pem) = repository(folder.path()).await;
    let find = |name: &str, version: Option<&str>| {
        let source =
            ChartSource::Repository { url: url.clone(), name: name.to_owned(), version: version.map(str::to_owned) };
        let mut chart = Chart::from(source);
        let auth = RepositoryAuth { auth_header: Some(HEADER.to_owned()), ..ca(&url, &pem) };
        chart.credentials.repositories.push(auth);
        chart
    };
    check(&find("shop", Some("1.2.3")), "1.2.3").await;
    check_values(&find("shop", Some("1.2.3"))).await;
    check(&find("shop", Some("^1.0.0")), "1.3.0").await;
    check(&find("shop", None), "2.0.0").await;
    check_error(&find("flop", None), &["chart flop of", &url, "not found"]).await;
    check_error(&find("shop", Some("1.9.9")), &["no version of chart shop that matches 1.9.9 found"]).await;
    check_error(&find("../shop", None), &["../shop", "must not be a path"]).await;

    let with = |auth: RepositoryAuth| {
        let mut chart = find("shop", None);
        chart.credentials.repositories = vec![auth];
        chart
    };
    let header = |header: &str| RepositoryAuth { auth_header: Some(header.to_owned()), ..ca(&url, &pem) };
    check_error(&with(ca(&url, &pem)), &[&url, "401 unauthorized"]).await;
    let wrong = basic(&url, "me", "wrong").auth_header.unwrap();
    check_error(&with(header(&wrong)), &[&url, "401 unauthorized"]).await;
    check_error(&with(header("Bearer abc")), &[&url, "401 unauthorized"]).await;
    check_error(&with(RepositoryAuth { custom_ca_data: None, ..header(HEADER) }), &[&url, "certificate"]).await;
}

#[tokio::test]
async fn a_remote_archive_is_fetched() {
    let folder = tempfile::tempdir().unwrap();
    pack(folder.path(), "1.2.3");
    std::fs::write(folder.path().join("broken.tgz"), "this is no archive").unwrap();
    let (url, pem) = repository(folder.path()).await;
    let find = |path: &str, auth: Option<RepositoryAuth>| {
        let mut chart = Chart::from(ChartSource::RemoteArchive(format!("{url}/{path}")));
        chart.credentials.repositories.extend(auth);
        chart
    };
    let only_ca = || Some(ca(&url, &pem));
    let all = || Some(RepositoryAuth { auth_header: Some(HEADER.to_owned()), ..ca(&url, &pem) });
    check(&find("shop-1.2.3.tgz", all()), "1.2.3").await;
    check_values(&find("shop-1.2.3.tgz", all())).await;
    check(&find("moved/shop-1.2.3.tgz", all()), "1.2.3").await;
    check(&find("open/shop-1.2.3.tgz", only_ca()), "1.2.3").await;
    check_error(&find("open/shop-1.2.3.tgz", None), &[&url, "certificate"]).await;
    check_error(&find("shop-1.2.3.tgz", only_ca()), &[&url, "401 unauthorized"]).await;
    check_error(&find("flop.tgz", all()), &[&url, "flop.tgz", "404 not found"]).await;
    check_error(&find("broken.tgz", all()), &["broken.tgz", "gzip"]).await;
    let elsewhere = RepositoryAuth { url: format!("{url}/other"), ..all().unwrap() };
    check_error(&find("shop-1.2.3.tgz", Some(elsewhere)), &[&url, "certificate"]).await;
}

#[tokio::test]
async fn values_are_validated_against_the_schema_of_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(pack(folder.path(), "1.2.3")).unwrap();
    let chart = Chart::from(ChartSource::Archive(bytes));
    let render = async |values: serde_json::Value| {
        let release = Release { values: Some(&values), ..RELEASE };
        template(&chart, &release, None, None, &PROGRAM).await
    };
    let rendered = render(json!({"color": "blue"})).await.unwrap();
    assert_eq!(rendered.manifests[0].value()["data"]["color"], "blue");
    let skipped = Release { values: Some(&json!({"color": 7})), ..RELEASE };
    let found = values(&chart, &skipped, None, true, &PROGRAM).await.unwrap();
    assert_eq!(found["Values"], json!({"color": 7}));
    let error = message(&render(json!({"color": 7})).await.unwrap_err());
    assert!(error.contains("values don't meet the specifications of the schema"), "{error}");
    assert!(error.contains("at '/color': got number, want string"), "{error}");
    check_error(&ChartSource::Archive(b"this is no archive".to_vec()).into(), &["render chart in an archive", "gzip"])
        .await;
}

/// The requests that a server got: the path, and the header with credentials.
type Seen = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// Notes the path of a request and its credentials.
fn note(seen: &Seen, request: &Request) {
    let header = request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    seen.lock().unwrap().push((request.uri().path().to_owned(), header));
}

#[tokio::test]
async fn a_server_to_which_a_registry_redirects_gets_no_credentials_although_it_asks_for_them() {
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    let (storage, storage_pem) = servers::serve(move |request| {
        note(&noted, request);
        let host = request.headers()[header::HOST].to_str().unwrap();
        let challenge = format!(r#"Bearer realm="https://{host}/token""#);
        (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
    })
    .await;
    let (url, pem) = servers::serve(move |request| match request.uri().path() {
        "/token" => Redirect::temporary(&format!("{storage}/form")).into_response(),
        "/v2/charts/shop/manifests/token" => {
            let host = request.headers()[header::HOST].to_str().unwrap();
            let challenge = format!(r#"Bearer realm="https://{host}/token""#);
            (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
        }
        _ => Redirect::temporary(&format!("{storage}/storage")).into_response(),
    })
    .await;
    let host = url.strip_prefix("https://").unwrap();
    for (tag, entry, problem) in [
        ("moved", json!({"username": "me", "password": "sesame"}), "/storage: 401 unauthorized"),
        (
            "token",
            json!({"identitytoken": "sesame"}),
            "/token: it redirects to another server, which gets no credentials",
        ),
    ] {
        let mut chart = oci(format!("{host}/charts/shop:{tag}"));
        chart.credentials.add_docker_config(&json!({"auths": {host: entry}}).to_string()).unwrap();
        chart.credentials.repositories.push(ca(&format!("oci://{host}"), &format!("{pem}{storage_pem}")));
        let error = message(&fetch(chart, &Helm::new("/nowhere/helm")).await.unwrap_err());
        assert!(error.to_lowercase().ends_with(problem), "{error}");
    }
    assert_eq!(*seen.lock().unwrap(), [("/storage".to_owned(), None)]);
}
