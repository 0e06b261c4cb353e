//! The certificate of the webhook, which is read again when its files change.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::json;
use tokio::{
    sync::watch,
    task::{JoinError, spawn_blocking},
    time::timeout,
};

use crate::{
    log::Log,
    watched::{Places, Watched, identified, look_up},
};

/// How often the files are read without a report: network file systems do not report changes by other machines.
const INTERVAL: Duration = Duration::from_secs(60);

/// The files of a certificate and its key.
pub(super) struct Files {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

/// The content of the files.
#[derive(PartialEq, Eq)]
pub(super) struct Pair {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    /// Returns the directories to watch.
    pub(super) fn places(&self) -> Places {
        let mut places = Places::new();
        look_up(&self.cert, &mut places);
        look_up(&self.key, &mut places);
        identified(places)
    }

    /// Reads the files, and returns the configuration of a server that uses them.
    pub(super) fn load(&self) -> Result<(Pair, ServerConfig), String> {
        let (cert, key) = (self.cert.display(), self.key.display());
        let pair = Pair {
            cert: fs::read(&self.cert).map_err(|error| format!("failed to read {cert}: {error}"))?,
            key: fs::read(&self.key).map_err(|error| format!("failed to read {key}: {error}"))?,
        };
        // The errors of the parser quote the file.
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&pair.cert)
            .collect::<Result<_, _>>()
            .map_err(|_| format!("{cert} is not a complete PEM file"))?;
        if chain.is_empty() {
            return Err(format!("{cert} contains no certificate in PEM"));
        }
        let private = PrivateKeyDer::from_pem_slice(&pair.key)
            .map_err(|_| format!("{key} contains no complete private key in PEM"))?;
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => {
                    format!("the key in {key} is not that of the certificate in {cert}")
                }
                error => format!("failed to use {cert} with {key}: {error}"),
            })?;
        Ok((pair, config))
    }
}

/// Warns that changes of the files are not reported.
pub(super) fn not_watched(error: &notify::Error) {
    tracing::warn!(%error, "the certificate is not watched, and read every minute");
}

/// Loads the files again whenever they change, and sends the configuration to the server. Without a watch, they are read every
/// minute. While they cannot be used, such as when only one of them was replaced, the former certificate remains in use, which is
/// reported once. Another thread reads them, because a file system that hangs must not keep reviews waiting; if it ends early, its
/// error is returned.
pub(super) async fn follow(
    files: Files,
    mut used: Pair,
    watched: Option<Watched>,
    configs: watch::Sender<Arc<ServerConfig>>,
    log: &Log,
) -> JoinError {
    let reports = watched.as_ref().map(Watched::reports).unwrap_or_default();
    let mut followed = (files, watched);
    let mut reported = None;
    loop {
        let _elapsed = timeout(INTERVAL, reports.notified()).await;
        let read = spawn_blocking(move || {
            let (files, watched) = &mut followed;
            if let Some(Err(error)) = watched.as_mut().map(|watched| watched.follow(|| files.places())) {
                not_watched(&error);
            }
            let loaded = files.load();
            (followed, loaded)
        });
        let loaded;
        (followed, loaded) = match read.await {
            Ok(read) => read,
            Err(error) => return error,
        };
        match loaded {
            Ok((pair, config)) => {
                reported = None;
                if pair != used {
                    used = pair;
                    configs.send_replace(Arc::new(config));
                    log.say("certificate-loaded", json!({}), "loaded the new certificate");
                }
            }
            Err(problem) => {
                if reported.as_ref() != Some(&problem) {
                    let text = format!("{problem}; the former certificate remains in use");
                    log.warn("certificate-unusable", json!({"problem": problem}), &text);
                }
                reported = Some(problem);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn without_a_watch_the_files_are_read_every_minute() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let replace = || {
            let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            fs::write(&cert, generated.cert.pem()).unwrap();
            fs::write(&key, generated.signing_key.serialize_pem()).unwrap();
        };
        replace();
        let files = Files { cert: cert.clone(), key: key.clone() };
        let (pair, config) = files.load().unwrap();
        let (configs, mut config) = watch::channel(Arc::new(config));
        let following = tokio::spawn(async move { follow(files, pair, None, configs, &Log::silent()).await });
        for _ in 0..2 {
            replace();
            let begun = Instant::now();
            config.changed().await.unwrap();
            assert_eq!(begun.elapsed().as_secs(), INTERVAL.as_secs());
        }
        // The same files are no change.
        assert!(timeout(3 * INTERVAL, config.changed()).await.is_err());
        following.abort();
    }
}
