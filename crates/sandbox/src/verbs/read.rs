//! GET of an object or a list.

use std::sync::Arc;

use super::{list_options, table};
use crate::{
    call::{self, Call},
    conversion::readable,
    kinds::Kind,
    object::{Stored, meta},
    selector::Selector,
    state::State,
    status::ApiError,
};

/// The representation of objects that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Complete objects.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `Table`.
    Table,
}

impl Form {
    /// Parses an `Accept` header and returns the first supported representation.
    pub(crate) fn of(accept: &str) -> Result<Self, ApiError> {
        if accept.is_empty() {
            return Ok(Self::Whole);
        }
        let mut json = false;
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let known = matches!(parts.next(), Some("application/json" | "application/*" | "*/*" | "application/yaml"));
            json |= known;
            match parts.filter_map(|part| part.split_once('=')).find(|(key, _)| *key == "as") {
                None if known => return Ok(Self::Whole),
                Some((_, "PartialObjectMetadata" | "PartialObjectMetadataList")) if known => return Ok(Self::Metadata),
                Some((_, "Table")) if known && range.contains("v=v1;") => return Ok(Self::Table),
                _ => {}
            }
        }
        let accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        let message = if json {
            format!("only the following media types are accepted: {accepted}")
        } else {
            format!(
                "406: Not Acceptable\n\nAvailable representations: {accepted}, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
            )
        };
        let error = ApiError::new(http::StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message);
        Err(if json { error } else { error.about_nothing() })
    }

    /// Writes an object in this representation.
    pub(crate) fn write(self, object: &Stored, api_version: &str, out: &mut String) {
        match self {
            Self::Whole | Self::Table => object.write(api_version, out),
            Self::Metadata => object.write_metadata(out),
        }
    }
}

/// Returns an object as JSON.
pub(crate) fn get(
    state: &State,
    kind: &Kind,
    version: usize,
    namespace: &str,
    name: &str,
    call: &Call,
) -> Result<String, ApiError> {
    list_options::check_revision(state, call)?;
    let form = Form::of(call.accept())?;
    let object = state.store.get(kind.table(), namespace, name);
    let object = object.ok_or_else(|| ApiError::not_found(&kind.resource(), name))?;
    let object = &readable(state, kind, version, std::slice::from_ref(object))?[0];
    if form == Form::Table {
        let metadata = format!(r#"{{"resourceVersion":"{}"}}"#, meta(&object.value(), "resourceVersion"));
        return Ok(table::write(state, kind, version, std::slice::from_ref(object), &metadata));
    }
    let mut out = String::new();
    form.write(object, &kind.api_version(&kind.versions[version].name), &mut out);
    Ok(out)
}

/// One page of a list.
struct Page {
    objects: Vec<Arc<Stored>>,
    revision: u64,
    /// The token for the next page, and the number of remaining objects if it is known.
    rest: Option<(String, Option<usize>)>,
}

/// Returns a list as JSON.
pub(crate) fn list(
    state: &State,
    kind: &Kind,
    version: usize,
    namespace: Option<&str>,
    selector: &Selector,
    call: &Call,
) -> Result<String, ApiError> {
    let form = Form::of(call.accept())?;
    let api_version = kind.api_version(&kind.versions[version].name);
    // The API server decodes objects before it selects.
    if state.store.is_corrupt(kind.table(), namespace, None) {
        return Err(ApiError::undecodable());
    }
    let page = page(state, kind, namespace, selector, call)?;
    let objects = readable(state, kind, version, &page.objects)?;
    let mut metadata = format!(r#"{{"resourceVersion":"{}""#, page.revision);
    if let Some((token, left)) = &page.rest {
        metadata.push_str(&format!(r#","continue":"{token}""#));
        if let Some(left) = left {
            metadata.push_str(&format!(r#","remainingItemCount":{left}"#));
        }
    } else if kind.crd.is_some() && form == Form::Whole {
        // A list of custom resources always has the field.
        metadata.push_str(r#","continue":"""#);
    }
    metadata.push('}');
    let (list_kind, list_version) = match form {
        Form::Whole => (kind.list_kind.as_str(), api_version.as_str()),
        Form::Metadata => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
        Form::Table => return Ok(table::write(state, kind, version, &objects, &metadata)),
    };
    let mut out = format!(r#"{{"kind":"{list_kind}","apiVersion":"{list_version}","metadata":{metadata},"items":["#);
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        match form {
            // In lists of Kubernetes' own kinds, items have no `apiVersion` and `kind`.
            Form::Whole if kind.crd.is_none() => object.write_item(&mut out),
            form => form.write(object, &api_version, &mut out),
        }
    }
    out.push_str("]}");
    Ok(out)
}

fn page(
    state: &State,
    kind: &Kind,
    namespace: Option<&str>,
    selector: &Selector,
    call: &Call,
) -> Result<Page, ApiError> {
    list_options::check(call, false)?;
    let limit: usize = call.text("limit").map(call::number).transpose()?.unwrap_or(0);
    let token = call.text("continue").map(Token::read).transpose()?;
    list_options::check_revision(state, call)?;
    // For revision 0 the API server answers from its cache and ignores limits.
    let cached = call.text("resourceVersion") == Some("0");
    let limit = if limit == 0 || cached { usize::MAX } else { limit };
    let exact = call.param("resourceVersionMatch") == Some("Exact");
    let at = match &token {
        Some(token) => token.revision,
        None if exact => call.text("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or_default(),
        None => state.store.revision(),
    };
    let after = token.as_ref().map(|token| (token.namespace.as_str(), token.name.as_str()));
    let mut found: Vec<Arc<Stored>> = if at == state.store.revision() {
        let table = state.store.peek(kind.table());
        let objects = table.into_iter().flat_map(|table| table.list_after(namespace, after));
        objects.filter(|object| selector.matches(object)).cloned().collect()
    } else {
        let past = state.store.at(kind.table(), at).ok_or_else(|| too_old(token.is_some()))?;
        past.list_after(namespace, after).into_iter().filter(|object| selector.matches(object)).collect()
    };
    let mut rest = None;
    if found.len() > limit {
        let left = found.len() - limit;
        found.truncate(limit);
        let last = found.last().map(|object| Token {
            revision: at,
            namespace: object.namespace.to_string(),
            name: object.name.to_string(),
        });
        // With a selector, the API server does not count the remaining objects.
        rest = last.map(|token| (token.write(), selector.is_everything().then_some(left)));
    }
    Ok(Page { objects: found, revision: at, rest })
}

fn too_old(continues: bool) -> ApiError {
    ApiError::expired(if continues {
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
    } else {
        "The resourceVersion for the provided list is too old."
    })
}

/// A position in a list at a revision: after the object with this key.
struct Token {
    revision: u64,
    namespace: String,
    name: String,
}

impl Token {
    /// Encodes the token. Neither namespaces nor names contain a slash.
    fn write(&self) -> String {
        let text = format!("{}/{}/{}", self.revision, self.namespace, self.name);
        text.bytes().map(|byte| format!("{byte:02x}")).collect()
    }

    fn read(text: &str) -> Result<Self, ApiError> {
        let wrong = || ApiError::bad_request(format!("invalid continue token: continue key is not valid: {text}"));
        let pair = |index: usize| text.get(index..index + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(pair).collect();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(wrong)?;
        let mut parts = text.splitn(3, '/');
        let mut next = || parts.next().ok_or_else(wrong);
        let revision = next()?.parse().map_err(|_| wrong())?;
        Ok(Self { revision, namespace: next()?.to_owned(), name: next()?.to_owned() })
    }
}
