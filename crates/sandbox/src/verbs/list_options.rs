//! Validation of `ListOptions`, as `ValidateListOptions` of apimachinery does it.

use serde_json::Value;

use crate::{
    call::Call,
    state::State,
    status::{ApiError, Cause},
};

/// Rejects options that contradict each other.
pub(super) fn check(call: &Call, watch: bool) -> Result<(), ApiError> {
    let rule = call.text("resourceVersionMatch");
    let forbidden = |detail: &str| Cause::forbidden("resourceVersionMatch", detail);
    let mut causes = Vec::new();
    if watch {
        match (call.text("sendInitialEvents"), rule) {
            (Some(_), Some("NotOlderThan")) | (None, None) => {}
            (Some(_), _) => {
                causes.push(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
            }
            (None, Some(_)) => {
                causes.push(forbidden(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
        }
    } else if let Some(rule) = rule {
        if call.text("resourceVersion").is_none() {
            causes.push(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if call.text("continue").is_some() {
            causes.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(rule, "Exact" | "NotOlderThan") {
            let supported = ["Exact", "NotOlderThan", ""].map(str::to_owned);
            causes.push(Cause::unsupported("resourceVersionMatch", &Value::from(rule), &supported));
        }
        if rule == "Exact" && call.text("resourceVersion") == Some("0") {
            causes.push(forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
        }
    }
    if !watch && call.text("sendInitialEvents").is_some() {
        causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::options("ListOptions", causes)) }
}

/// Parses a `resourceVersion`.
pub(super) fn revision(text: &str) -> Result<u64, String> {
    let parse = || format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
    text.parse().map_err(|_| format!("resourceVersion: Invalid value: \"{text}\": {}", parse()))
}

/// Rejects a revision in the future, for which the API server would wait.
pub(super) fn check_revision(state: &State, call: &Call) -> Result<(), ApiError> {
    let Some(text) = call.text("resourceVersion") else { return Ok(()) };
    if call.text("continue").is_some() && text != "0" {
        return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
    }
    let wanted = revision(text);
    let wanted = wanted.map_err(|why| ApiError::bad_request(format!("invalid resource version: {why}")))?;
    let now = state.store.revision();
    if wanted <= now {
        return Ok(());
    }
    let message = format!("Timeout: Too large resource version: {wanted}, current: {now}");
    let mut error = ApiError::new(http::StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
    error.retry_after = Some(1);
    let message = "Too large resource version".to_owned();
    Err(error.causes(vec![Cause { reason: "ResourceVersionTooLarge", field: String::new(), message }]))
}
