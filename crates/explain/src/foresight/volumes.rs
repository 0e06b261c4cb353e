//! What becomes of the data on volumes: their reclaim policies say so.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    fate::{Fates, ToDelete},
    foreseen::Foreseen,
};
use crate::{
    ObjectRef,
    case::{Case, Found, Priority},
    kinds, object,
};

/// Returns the claims and volumes whose data is deleted, and those whose volumes are kept.
pub(super) fn foresee(case: &Case<'_>, fates: &Fates<'_>) -> Vec<Foreseen> {
    let of_kind = |kind: &'static kinds::Builtin| fates.objects.iter().filter(move |one| kind.is(&one.object));
    let (claims, volumes): (Vec<&ToDelete>, Vec<_>) =
        (of_kind(&kinds::CLAIM).collect(), of_kind(&kinds::VOLUME).collect());
    if claims.is_empty() && volumes.is_empty() {
        return Vec::new();
    }
    let list = case.list(&kinds::VOLUME, None, Priority::Cause);
    let by_claim: BTreeMap<(&str, &str), &Value> =
        list.items().iter().filter_map(|v| Some((claim_of(v)?, v))).collect();
    // Volumes beyond the first page are found by their claims.
    let is_cut = matches!(list, Found::Items(_, false));
    let (mut lost, mut kept) = (Vec::new(), Vec::new());
    let mut sort = |object: &ObjectRef, volume: &Value| match policy(volume) {
        Some("Retain") => kept.push(object.clone()),
        Some(_) => lost.push(object.clone()),
        None => {}
    };
    for claim in &claims {
        let key = (claim.object.namespace.as_deref().unwrap_or_default(), claim.object.name.as_str());
        let listed = by_claim.get(&key).copied();
        let volume = listed.or_else(|| if is_cut { volume_of(case, &claim.object) } else { None });
        if let Some(volume) = volume {
            sort(&claim.object, volume);
        }
    }
    let by_name: BTreeMap<&str, &Value> = list.items().iter().map(|v| (object::name(v), v)).collect();
    let claimed: BTreeSet<(&str, &str)> =
        claims.iter().filter_map(|one| Some((one.object.namespace.as_deref()?, one.object.name.as_str()))).collect();
    for volume in volumes {
        let Some(value) = by_name.get(volume.object.name.as_str()).copied() else { continue };
        if !claim_of(value).is_some_and(|claim| claimed.contains(&claim)) {
            sort(&volume.object, value);
        }
    }
    let finding = |(objects, lost): (Vec<ObjectRef>, bool)| Foreseen::VolumeData { objects, lost };
    [(lost, true), (kept, false)].into_iter().filter(|(objects, _)| !objects.is_empty()).map(finding).collect()
}

fn policy(volume: &Value) -> Option<&str> {
    object::text(volume, "/spec/persistentVolumeReclaimPolicy")
}

/// Returns the namespace and name of the claim that a volume is bound to.
fn claim_of(volume: &Value) -> Option<(&str, &str)> {
    let text = |pointer| object::text(volume, pointer);
    Some((text("/spec/claimRef/namespace")?, text("/spec/claimRef/name")?))
}

/// Reads the volume of one claim.
fn volume_of<'a>(case: &Case<'a>, claim: &ObjectRef) -> Option<&'a Value> {
    let name = object::text(case.get(claim, Priority::Detail).value()?, "/spec/volumeName")?;
    case.builtin(&kinds::VOLUME, None, name, Priority::Detail).value()
}
