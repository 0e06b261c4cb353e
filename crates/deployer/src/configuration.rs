//! Reads the configuration of an item: the settings of its deployer, its time limit and its schedule.

use std::time::Duration;

use billhook_policy::{
    Diagnostic, Diagnostics, ItemTimeout, ProviderConfiguration, parse_configuration, parse_timeout,
};

use crate::{api::DeployItem, error::ItemFailure, schedule::Schedule};

/// The time limit of items that do not set one.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// Returns the configuration of an item with its warnings.
///
/// # Errors
///
/// When the configuration, `spec.type` or `spec.timeout` is wrong; the message lists all mistakes.
pub(crate) fn configuration(item: &DeployItem) -> Result<(ProviderConfiguration, Diagnostics), ItemFailure> {
    let Some(config) = &item.spec.config else {
        return Err(ItemFailure::configuration(
            "InvalidConfiguration",
            "spec.config is missing: set it to a ProviderConfiguration",
        ));
    };
    let mut mistakes = Vec::new();
    if let Some(Err(error)) = item.spec.timeout.as_deref().map(parse_timeout) {
        mistakes.push(format!("spec.timeout: {error}"));
    }
    let parsed = parse_configuration(config);
    match &parsed {
        Ok((parsed, _)) => {
            let expected = parsed.provider.item_type();
            if item.spec.r#type != expected {
                mistakes.push(format!(
                    "spec.type is {:?}, but spec.config is the configuration of an item of type {expected:?}",
                    item.spec.r#type
                ));
            }
            if let Some(Err(error)) = parsed.continuous_reconcile.as_ref().map(Schedule::try_from) {
                mistakes.push(format!("continuousReconcile: failed to {error}"));
            }
        }
        Err(found) => mistakes.extend(found.iter().map(Diagnostic::at_path).chain(found.more())),
    }
    match parsed {
        Ok(parsed) if mistakes.is_empty() => Ok(parsed),
        _ => Err(ItemFailure::configuration("InvalidConfiguration", mistakes.join("\n"))),
    }
}

/// Returns the time limit of an item, or `None` for no limit. An invalid limit counts as the default here:
/// [`configuration`] reports it.
pub(crate) fn time_limit(item: &DeployItem) -> Option<Duration> {
    match item.spec.timeout.as_deref().map(parse_timeout) {
        Some(Ok(ItemTimeout::Unlimited)) => None,
        Some(Ok(ItemTimeout::After(limit))) => Some(limit.0),
        None | Some(Err(_)) => Some(DEFAULT_TIMEOUT),
    }
}

/// Returns the schedule of an item, if its configuration is valid and has one.
pub(crate) fn schedule_of(item: &DeployItem) -> Option<Schedule> {
    let config = item.spec.config.as_ref().filter(|config| config.get("continuousReconcile").is_some())?;
    let (configuration, _) = parse_configuration(config).ok()?;
    Schedule::try_from(&configuration.continuous_reconcile?).ok()
}
