//! Chooses the cluster: by flags, `$KUBECONFIG`, `~/.kube/config`, or the in-cluster configuration.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
};

use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::{
    error::{CommandError, Problem},
    session::Session,
};

/// Loads the configuration of the cluster that holds the release.
pub(crate) async fn load(session: &Session) -> Result<Config, CommandError> {
    let global = &session.global;
    let options = KubeConfigOptions {
        context: global.context.clone(),
        cluster: global.cluster.clone(),
        user: global.user.clone(),
    };
    let mut config = match kubeconfig(session)? {
        Some(kubeconfig) => {
            if let Some(context) = options.context.as_ref().or(kubeconfig.current_context.as_ref()) {
                session.context.get_or_init(|| context.clone());
                let named = kubeconfig.contexts.iter().find(|named| named.name == *context);
                let cluster = named.and_then(|named| named.context.as_ref()).map(|context| &context.cluster);
                if let Some(cluster) = options.cluster.as_ref().or(cluster) {
                    session.cluster.get_or_init(|| cluster.clone());
                }
            }
            from_kubeconfig(kubeconfig, &options).await?
        }
        None if session.env.contains_key("KUBERNETES_SERVICE_HOST") => {
            Config::incluster_env().map_err(|error| failed("load the in-cluster configuration", error))?
        }
        None => {
            let problem = "no kubeconfig found, and not running inside a cluster";
            return Err(CommandError::input(problem).hint("set KUBECONFIG or pass --kubeconfig FILE"));
        }
    };
    impersonate(session, &mut config)?;
    Ok(config)
}

/// Loads the configuration of a target's kubeconfig file.
pub(crate) async fn load_target(
    session: &Session,
    path: &Path,
    options: &KubeConfigOptions,
) -> Result<Config, CommandError> {
    let mut config = from_kubeconfig(read(&session.path(path))?, options).await?;
    impersonate(session, &mut config)?;
    Ok(config)
}

/// Applies `--as` and `--as-group`, which hold for all clusters of a command.
fn impersonate(session: &Session, config: &mut Config) -> Result<(), CommandError> {
    session.check_impersonation()?;
    let global = &session.global;
    if let Some(user) = &global.as_user {
        config.auth_info.impersonate = Some(user.clone());
        config.auth_info.impersonate_groups = Some(global.as_group.clone()).filter(|groups| !groups.is_empty());
    }
    Ok(())
}

async fn from_kubeconfig(kubeconfig: Kubeconfig, options: &KubeConfigOptions) -> Result<Config, CommandError> {
    let contexts: Vec<_> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
    Config::from_custom_kubeconfig(kubeconfig, options).await.map_err(|error| {
        let problem = match &error {
            KubeconfigError::LoadContext(name) => format!("the kubeconfig does not contain the context {name}"),
            KubeconfigError::CurrentContextNotSet => "the kubeconfig does not set a current context".to_owned(),
            _ => return failed("load the kubeconfig", error),
        };
        CommandError::input(problem).hint(match contexts.as_slice() {
            [] => "the kubeconfig contains no contexts; pass another file with --kubeconfig FILE".to_owned(),
            contexts => format!("choose one with --context: {}", contexts.join(", ")),
        })
    })
}

/// Reads the user's kubeconfig, if one exists.
fn kubeconfig(session: &Session) -> Result<Option<Kubeconfig>, CommandError> {
    if let Some(path) = &session.global.kubeconfig {
        return read(&session.path(Path::new(path))).map(Some);
    }
    let variable = session.env.get("KUBECONFIG").map(String::as_str).unwrap_or_default();
    let mut paths: Vec<PathBuf> = std::env::split_paths(variable).filter(|path| !path.as_os_str().is_empty()).collect();
    if paths.is_empty() {
        let home = session.env.get("HOME").or_else(|| session.env.get("USERPROFILE"));
        paths.extend(home.map(|home| Path::new(home).join(".kube").join("config")));
    }
    // Like kubectl, skip the files of the list that do not exist.
    let files: Vec<_> = paths.iter().map(|path| session.path(path)).filter(|path| path.exists()).collect();
    if files.is_empty() {
        if variable.is_empty() {
            return Ok(None);
        }
        return Err(CommandError::input(format!("no file in $KUBECONFIG exists: {variable}")));
    }
    let mut merged = Kubeconfig::default();
    for file in files {
        merged = merged.merge(read(&file)?).map_err(|error| failed("merge the files of $KUBECONFIG", error))?;
    }
    Ok(Some(merged))
}

fn read(path: &Path) -> Result<Kubeconfig, CommandError> {
    Kubeconfig::read_from(path).map_err(|error| match error {
        KubeconfigError::ReadConfig(error, _) => failed(&format!("read the kubeconfig {}", path.display()), error),
        // The parser's message quotes the line, which may contain a token.
        KubeconfigError::Parse(_) => CommandError::input(format!("{} is not a valid kubeconfig", path.display())),
        error => failed(&format!("read the kubeconfig {}", path.display()), error),
    })
}

fn failed(what: &str, error: impl Display) -> CommandError {
    CommandError::input(Problem::caused(format!("failed to {what}"), error))
}
