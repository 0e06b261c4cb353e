//! Kinds of CustomResourceDefinitions.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::{CellSource, Column, Crd, Kind, ResourceId, Scale, Version, version_rank};
use crate::{
    names,
    object::{text, texts},
    schema::{Schema, of_crd},
    status::Cause,
};

/// Returns the kind that a CustomResourceDefinition describes, or everything that is wrong with it.
pub(crate) fn kind_of_crd(crd: &Value) -> Result<Kind, Vec<Cause>> {
    let spec = &crd["spec"];
    let names = Names::new(spec);
    let mut causes = Vec::new();
    check_name(crd, &names, &mut causes);
    check_group(spec, &mut causes);
    check_scope(spec, &mut causes);
    let mut versions = versions(spec, &mut causes);
    names.check(&mut causes);
    check_conversion(spec, &mut causes);
    check_stored(crd, &mut causes);
    check_approval(crd, &mut causes);
    if spec["preserveUnknownFields"] == true {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        causes.push(Cause::invalid("spec.preserveUnknownFields", &true.into(), detail));
    }
    if !causes.is_empty() {
        return Err(causes);
    }
    versions.sort_by(|(one, _), (other, _)| version_rank(&one.name).cmp(&version_rank(&other.name)));
    let storage = versions.iter().position(|(_, storage)| *storage).unwrap_or_default();
    let conversion = &spec["conversion"];
    let webhook = Some(&conversion["webhook"]).filter(|_| conversion["strategy"] == "Webhook");
    Ok(Kind {
        id: ResourceId::new(text(spec, "group"), &names.plural),
        kind: names.kind,
        list_kind: names.list_kind,
        singular: names.singular,
        short_names: names.short,
        categories: names.categories,
        namespaced: spec["scope"] == "Namespaced",
        versions: versions.into_iter().map(|(version, _)| version).collect(),
        storage,
        review: false,
        crd: Some(Crd { webhook: webhook.cloned() }),
    })
}

/// The names of a kind, with defaults for those left out.
struct Names {
    plural: String,
    singular: String,
    kind: String,
    list_kind: String,
    short: Vec<String>,
    categories: Vec<String>,
}

impl Names {
    fn new(spec: &Value) -> Self {
        let names = &spec["names"];
        let or = |name: &str, default: String| match text(names, name) {
            "" => default,
            text => text.to_owned(),
        };
        let kind = text(names, "kind").to_owned();
        Self {
            plural: text(names, "plural").to_owned(),
            singular: or("singular", kind.to_lowercase()),
            list_kind: or("listKind", if kind.is_empty() { String::new() } else { format!("{kind}List") }),
            short: texts(&names["shortNames"]),
            categories: texts(&names["categories"]),
            kind,
        }
    }

    fn check(&self, causes: &mut Vec<Cause>) {
        let all = [
            ("plural", &self.plural, ""),
            ("singular", &self.singular, ""),
            ("kind", &self.kind, "may have mixed case, but should otherwise match: "),
            ("listKind", &self.list_kind, "may have mixed case, but should otherwise match: "),
        ];
        for (field, _, _) in all.iter().filter(|(_, name, _)| name.is_empty()) {
            causes.push(Cause::required(format!("spec.names.{field}"), ""));
        }
        for (field, name, mixed) in all.iter().filter(|(_, name, _)| !name.is_empty()) {
            let lower = if mixed.is_empty() { (*name).clone() } else { name.to_lowercase() };
            if let Some(error) = label_error(&lower) {
                causes.push(Cause::invalid(
                    format!("spec.names.{field}"),
                    &name.as_str().into(),
                    &format!("{mixed}{error}"),
                ));
            }
        }
        let mut list = |field: &str, names: &[String]| {
            for (index, name) in names.iter().enumerate() {
                if let Some(error) = label_error(name) {
                    let field = format!("spec.names.{field}[{index}]");
                    causes.push(Cause::invalid(field, &name.as_str().into(), &error));
                }
            }
        };
        list("shortNames", &self.short);
        list("categories", &self.categories);
        if !self.kind.is_empty() && self.kind == self.list_kind {
            let name = self.list_kind.as_str().into();
            causes.push(Cause::invalid("spec.names.listKind", &name, "kind and listKind may not be the same"));
        }
    }
}

/// Returns what is wrong with a label of RFC 1035.
fn label_error(name: &str) -> Option<String> {
    Some(names::dns_1035_label(name).join(",")).filter(|errors| !errors.is_empty())
}

fn check_name(crd: &Value, names: &Names, causes: &mut Vec<Cause>) {
    let name = text(&crd["metadata"], "name");
    // The form of the name is checked with the metadata, as for every kind.
    if !name.is_empty() && name != format!("{}.{}", names.plural, text(&crd["spec"], "group")) {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &name.into(), detail));
    }
}

fn check_group(spec: &Value, causes: &mut Vec<Cause>) {
    let group = text(spec, "group");
    let errors = names::dns_subdomain(group);
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if !errors.is_empty() {
        causes.push(Cause::invalid("spec.group", &group.into(), &errors.join(",")));
    } else if !group.contains('.') {
        causes.push(Cause::invalid("spec.group", &group.into(), "should be a domain with at least one dot"));
    }
}

fn check_scope(spec: &Value, causes: &mut Vec<Cause>) {
    match text(spec, "scope") {
        "" => causes.push(Cause::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => {
            let supported = ["Cluster", "Namespaced"].map(str::to_owned);
            causes.push(Cause::unsupported("spec.scope", &other.into(), &supported));
        }
    }
}

/// Reads the versions, and whether each is the one that is stored.
fn versions(spec: &Value, causes: &mut Vec<Cause>) -> Vec<(Version, bool)> {
    let empty = Vec::new();
    let all = spec["versions"].as_array().unwrap_or(&empty);
    // The API server treats what all versions share as one part of the spec and reports its errors once.
    let common = |field: &str| all.iter().all(|version| version[field] == all[0][field]);
    let (schema_is_common, rest_is_common) = (common("schema"), ["subresources", "selectableFields"].map(common));
    for (index, version) in all.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            causes.push(Cause::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    let mut read: Vec<(Version, bool)> = Vec::new();
    for (index, source) in all.iter().enumerate() {
        let name = text(source, "name");
        if let Some(error) = label_error(name) {
            causes.push(Cause::invalid(format!("spec.versions[{index}].name"), &name.into(), &error));
        }
        let own = format!("spec.versions[{index}].");
        let schema = match read.first() {
            Some((first, _)) if schema_is_common => Arc::clone(&first.schema),
            _ => {
                let base = if schema_is_common { "spec.validation".to_owned() } else { format!("{own}schema") };
                schema(source, &format!("{base}.openAPIV3Schema"), causes)
            }
        };
        let base = |common: bool| if common { "spec.".to_owned() } else { own.clone() };
        let mut found = Vec::new();
        let scale = scale(&source["subresources"]["scale"], &base(rest_is_common[0]), &mut found);
        let selectable = selectable(source, &schema, &base(rest_is_common[1]), &mut found);
        found.retain(|cause| !causes.contains(cause));
        causes.extend(found);
        let version = Version {
            name: name.to_owned(),
            served: source["served"] == true,
            schema,
            status: source["subresources"]["status"].is_object(),
            scale,
            selectable,
            columns: columns(source),
        };
        read.push((version, source["storage"] == true));
    }
    let list = &spec["versions"];
    let unique: BTreeSet<_> = read.iter().map(|(version, _)| &version.name).collect();
    if unique.len() < read.len() {
        causes.push(Cause::invalid("spec.versions", list, "must contain unique version names"));
    }
    if read.iter().filter(|(_, storage)| *storage).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", list, detail));
    }
    read
}

/// Reads the schema of a version; without a valid one, the version accepts anything.
fn schema(version: &Value, base: &str, causes: &mut Vec<Cause>) -> Arc<Schema> {
    let source = &version["schema"]["openAPIV3Schema"];
    if !source.is_object() {
        return Schema::any();
    }
    if version["subresources"]["status"].is_object() {
        check_root(source, base, causes);
    }
    of_crd(source).unwrap_or_else(|found| {
        causes.extend(found.into_iter().map(|cause| match cause.field.as_str() {
            "<nil>" => cause,
            field => Cause { field: format!("{base}.{field}"), ..cause },
        }));
        Schema::any()
    })
}

/// With a status subresource, the root of a schema may only use keywords that keep their meaning without the status.
fn check_root(source: &Value, base: &str, causes: &mut Vec<Cause>) {
    const ALLOWED: &str = "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength \
        MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example \
        XPreserveUnknownFields XValidations";
    let is_allowed = |keyword: &str| {
        let name = keyword.replace("x-kubernetes-", "x").replace('-', "");
        ALLOWED.split(' ').any(|allowed| allowed.eq_ignore_ascii_case(&name))
    };
    let is_set = |value: &Value| !matches!(value, Value::Null | Value::Bool(false)) && value != "";
    if source["type"] != "object" && is_set(&source["type"]) {
        let detail =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        causes.push(Cause::invalid(format!("{base}.type"), &source["type"], detail));
    } else if source.as_object().into_iter().flatten().any(|(keyword, value)| is_set(value) && !is_allowed(keyword)) {
        let detail = format!(
            "only [{ALLOWED}] fields are allowed at the root of the schema if the status subresource is enabled"
        );
        causes.push(Cause::invalid(base, source, &detail));
    }
}

fn scale(source: &Value, base: &str, causes: &mut Vec<Cause>) -> Option<Scale> {
    let paths = [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ];
    source.as_object()?;
    for (name, under, detail) in paths {
        let (path, field) = (text(source, name), format!("{base}subresources.scale.{name}"));
        if path.is_empty() {
            if name != "labelSelectorPath" {
                causes.push(Cause::required(field, ""));
            }
        } else if !path.starts_with('.') {
            causes.push(Cause::invalid(field, &path.into(), "must be a simple json path starting with ."));
        } else if !under.iter().any(|under| path.starts_with(under)) {
            causes.push(Cause::invalid(field, &path.into(), detail));
        }
    }
    let path = |name: &str| text(source, name).trim_start_matches('.').to_owned();
    let selector = path("labelSelectorPath");
    Some(Scale {
        spec_replicas: path("specReplicasPath"),
        status_replicas: path("statusReplicasPath"),
        selector: (!selector.is_empty()).then_some(selector),
    })
}

fn selectable(version: &Value, schema: &Schema, base: &str, causes: &mut Vec<Cause>) -> Vec<String> {
    use crate::schema::Type;
    let mut paths: Vec<String> = Vec::new();
    for (index, source) in version["selectableFields"].as_array().into_iter().flatten().enumerate() {
        let (path, field) = (text(source, "jsonPath"), format!("{base}selectableFields[{index}].jsonPath"));
        if path.is_empty() {
            causes.push(Cause::required(field, ""));
            continue;
        }
        let mut invalid = |detail: &str| causes.push(Cause::invalid(field.as_str(), &path.into(), detail));
        let Some(names) = path.strip_prefix('.') else {
            let first = path.split(['.', '[', ']']).next().unwrap_or_default();
            invalid(&format!("is an invalid path: expected [ or . but got: {first}"));
            continue;
        };
        if names.contains('[') {
            invalid("is an invalid path: array notation is not allowed");
            continue;
        }
        let found = names.split('.').try_fold(schema, |schema, name| schema.field(name).map(|field| &**field));
        let Some(found) = found else {
            invalid("is an invalid path: does not refer to a valid field");
            continue;
        };
        if names.starts_with("metadata.") || names == "metadata" {
            invalid("must not point to fields in metadata");
        }
        if !matches!(found.types, Type::String | Type::Boolean | Type::Integer) {
            invalid(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats \
                 are allowed.",
            );
        }
        if paths.iter().any(|known| known == names) {
            causes.push(Cause::duplicate(field.as_str(), &path.into()));
        } else {
            paths.push(names.to_owned());
        }
    }
    if paths.len() > 8 {
        let what = format!("Too many: {}", paths.len());
        let field = format!("{base}selectableFields");
        causes.push(Cause::new("FieldValueTooMany", field, &what, "must have at most 8 items"));
    }
    paths
}

/// Returns the printer columns of a version.
fn columns(version: &Value) -> Vec<Column> {
    let column = |source: &Value| Column {
        name: text(source, "name").to_owned(),
        kind: text(source, "type").to_owned(),
        priority: source["priority"].as_i64().unwrap_or_default(),
        source: CellSource::Path(text(source, "jsonPath").to_owned()),
    };
    version["additionalPrinterColumns"].as_array().into_iter().flatten().map(column).collect()
}

fn check_conversion(spec: &Value, causes: &mut Vec<Cause>) {
    let conversion = &spec["conversion"];
    if !conversion.is_object() {
        return;
    }
    let (webhook, strategy) = (&conversion["webhook"], text(conversion, "strategy"));
    let (client, versions) = (&webhook["clientConfig"], texts(&webhook["conversionReviewVersions"]));
    let at = |field: &str| format!("spec.conversion.{field}");
    match strategy {
        "" => causes.push(Cause::required(at("strategy"), "")),
        "None" | "Webhook" => {}
        other => {
            let supported = ["None", "Webhook"].map(str::to_owned);
            causes.push(Cause::unsupported(at("strategy"), &other.into(), &supported));
        }
    }
    if strategy != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        for (field, set) in
            [("webhookClientConfig", client.is_object()), ("conversionReviewVersions", !versions.is_empty())]
        {
            if set {
                causes.push(Cause::forbidden(at(field), detail));
            }
        }
        return;
    }
    if !client.is_object() {
        causes.push(Cause::required(at("webhookClientConfig"), "required when strategy is set to Webhook"));
    } else if client["url"].is_string() == client["service"].is_object() {
        causes.push(Cause::required(at("webhookClientConfig"), "exactly one of url or service is required"));
    }
    let known = |version: &String| matches!(version.as_str(), "v1" | "v1beta1");
    if versions.is_empty() {
        causes.push(Cause::required(at("conversionReviewVersions"), ""));
    } else if !versions.iter().any(known) {
        let value = versions.into_iter().collect();
        causes.push(Cause::invalid(at("conversionReviewVersions"), &value, "must include at least one of v1, v1beta1"));
    }
}

/// Checks that no version with stored objects is removed.
fn check_stored(crd: &Value, causes: &mut Vec<Cause>) {
    let versions = crd["spec"]["versions"].as_array();
    let stored = texts(&crd["status"]["storedVersions"]);
    if crd["status"].is_object() && stored.is_empty() {
        let detail = "must have at least one stored version";
        return causes.push(Cause::invalid("status.storedVersions", &Value::Null, detail));
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions.into_iter().flatten().any(|version| version["name"] == **name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            causes.push(Cause::invalid(format!("status.storedVersions[{index}]"), &name.as_str().into(), &detail));
        }
    }
}

/// Checks that a definition in a group of Kubernetes itself is approved.
fn check_approval(crd: &Value, causes: &mut Vec<Cause>) {
    const KEY: &str = "api-approved.kubernetes.io";
    const FIELD: &str = "metadata.annotations[api-approved.kubernetes.io]";
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = text(&crd["spec"], "group");
    let within = |domain: &str| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if !within("k8s.io") && !within("kubernetes.io") {
        return;
    }
    let approval = text(&crd["metadata"]["annotations"], KEY);
    let is_url = approval.split_once("://").is_some_and(|(scheme, host)| !scheme.is_empty() && !host.is_empty());
    if approval.is_empty() {
        let detail = format!("protected groups must have approval annotation \"{KEY}\", {SEE}");
        causes.push(Cause::required(FIELD, &detail));
    } else if !approval.starts_with("unapproved") && !is_url {
        let detail = format!(
            "protected groups must have approval annotation \"{KEY}\" with either a URL or a reason starting with \
             \"unapproved\", {SEE}"
        );
        causes.push(Cause::invalid(FIELD, &approval.into(), &detail));
    }
}

#[cfg(test)]
mod tests;
