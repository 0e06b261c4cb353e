//! Which cluster: flags, `$KUBECONFIG`, `~/.kube/config`, or the pod's own.

use std::path::{Path, PathBuf};

use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::{
    error::{CommandError, Exit, Problem},
    session::Session,
};

/// Loads the configuration of the release's own cluster.
pub(crate) async fn load(session: &Session) -> Result<Config, CommandError> {
    let common = &session.common;
    let options = KubeConfigOptions {
        context: common.context.clone(),
        cluster: common.cluster.clone(),
        user: common.user.clone(),
    };
    let mut config = match kubeconfig(session)? {
        Some(kubeconfig) => of_kubeconfig(kubeconfig, &options).await?,
        None if session.env.contains_key("KUBERNETES_SERVICE_HOST") => {
            Config::incluster_env().map_err(|error| wrong("use the pod's own configuration", &error))?
        }
        None => {
            let problem = "there is no kubeconfig and no cluster around this process";
            return Err(CommandError::input(problem).hint("set KUBECONFIG or give --kubeconfig FILE"));
        }
    };
    if common.as_user.is_none() && !common.as_group.is_empty() {
        return Err(CommandError::input("--as-group needs --as"));
    }
    if let Some(user) = &common.as_user {
        config.auth_info.impersonate = Some(user.clone());
        config.auth_info.impersonate_groups = Some(common.as_group.clone()).filter(|groups| !groups.is_empty());
    }
    Ok(config)
}

/// Loads the configuration that one kubeconfig file holds.
pub(crate) async fn of_file(path: &Path, options: &KubeConfigOptions) -> Result<Config, CommandError> {
    of_kubeconfig(read(path)?, options).await
}

async fn of_kubeconfig(kubeconfig: Kubeconfig, options: &KubeConfigOptions) -> Result<Config, CommandError> {
    let contexts: Vec<_> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
    let config = Config::from_custom_kubeconfig(kubeconfig, options).await;
    config.map_err(|error| match &error {
        KubeconfigError::CurrentContextNotSet | KubeconfigError::LoadContext(_) => {
            let problem = match &error {
                KubeconfigError::LoadContext(name) => format!("the kubeconfig has no context {name}"),
                _ => "the kubeconfig has no current context".to_owned(),
            };
            let known = if contexts.is_empty() { "it has none".to_owned() } else { contexts.join(", ") };
            CommandError::input(problem).hint(format!("choose one with --context: {known}"))
        }
        _ => wrong("use the kubeconfig", &error),
    })
}

/// The kubeconfig of the user; none where there is none.
fn kubeconfig(session: &Session) -> Result<Option<Kubeconfig>, CommandError> {
    if let Some(path) = &session.common.kubeconfig {
        return read(&session.path(Path::new(path))).map(Some);
    }
    let named = session.env.get("KUBECONFIG").map(String::as_str).unwrap_or_default();
    let mut paths: Vec<PathBuf> = std::env::split_paths(named).filter(|path| !path.as_os_str().is_empty()).collect();
    if paths.is_empty() {
        let home = session.env.get("HOME").or_else(|| session.env.get("USERPROFILE"));
        paths.extend(home.map(|home| Path::new(home).join(".kube").join("config")));
    }
    // As for kubectl, files of the list that do not exist are passed over.
    let files: Vec<_> = paths.iter().map(|path| session.path(path)).filter(|path| path.exists()).collect();
    if files.is_empty() {
        if named.is_empty() {
            return Ok(None);
        }
        return Err(CommandError::input(format!("$KUBECONFIG names {named}, which does not exist")));
    }
    let mut merged = Kubeconfig::default();
    for file in files {
        merged = merged.merge(read(&file)?).map_err(|error| wrong("merge the files of $KUBECONFIG", &error))?;
    }
    Ok(Some(merged))
}

fn read(path: &Path) -> Result<Kubeconfig, CommandError> {
    Kubeconfig::read_from(path).map_err(|error| match error {
        KubeconfigError::ReadConfig(error, _) => wrong(&format!("read the kubeconfig {}", path.display()), &error),
        // The parser would quote the line, which may hold a token.
        KubeconfigError::Parse(_) => CommandError::input(format!("{} is not a kubeconfig", path.display())),
        error => wrong(&format!("read the kubeconfig {}", path.display()), &error),
    })
}

fn wrong(what: &str, error: &dyn std::error::Error) -> CommandError {
    let problem = Problem::Said(format!("failed to {what}"), vec![error.to_string()]);
    CommandError { exit: Exit::Input, problems: vec![problem], hints: Vec::new(), unreachable: false }
}
