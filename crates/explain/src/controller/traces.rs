//! The traces that a controller leaves in a cluster.

use std::cell::OnceCell;

use billhook_objects::wellknown;
use serde_json::Value;

use super::party::Controller;
use crate::{
    Fact, ObjectRef,
    access::{Grant, Writers, writers},
    admission::webhooks,
    backend::Service,
    case::{Case, Priority, Seen},
    cause::Strength,
    kinds,
    known::Known,
    object, selector,
    workload::Workload,
};

/// How many points make a workload the controller: one clear trace.
pub(crate) const ENOUGH: u32 = 3;

/// What is known of the controller of a finalizer.
pub(crate) struct Traces<'a> {
    /// The reviewed facts.
    pub(crate) known: Option<&'static Known>,
    /// The field manager that set the finalizer, unless it is a tool.
    pub(crate) manager: Option<&'a str>,
    /// The API groups of the controller.
    pub(crate) groups: Vec<String>,
    /// Who may write objects of these groups.
    pub(crate) writers: Option<Writers>,
    /// The CRD of the object.
    crd: Option<&'a Value>,
    /// The Services of webhooks of these groups.
    services: Vec<Service<'a>>,
    /// The evidence of the traces themselves.
    pub(crate) facts: Vec<Fact>,
    prefix: OnceCell<String>,
}

impl<'a> Traces<'a> {
    pub(crate) fn look(
        case: &Case<'a>,
        reference: &ObjectRef,
        finalizers: &[&str],
        finalizer: &str,
        known: Option<&'static Known>,
        manager: Option<&'a str>,
    ) -> Self {
        let crd_name = case.crd_of(reference);
        let crd = crd_name.as_ref().and_then(|crd| case.get(crd, Priority::Controller).value());
        // Of two finalizers, the one with the domain of the kind is that of its controller.
        let is_other = !is_related(finalizer, reference)
            && finalizers.iter().any(|other| *other != finalizer && is_related(other, reference));
        let is_custom = (crd.is_some() || crd_name.is_some()) && (known.is_some() || !is_other);
        let groups = groups(case, reference, finalizer, known, is_custom);
        let plural = crd_name.is_some().then(|| case.resource(reference).map(|resource| resource.plural)).flatten();
        let by_kind = plural.as_deref().filter(|_| known.is_none());
        let writers = (!groups.is_empty()).then(|| writers(case, &groups, by_kind, reference.namespace.as_deref()));
        let conversion = crd.and_then(|crd| Service::of(crd.pointer("/spec/conversion/webhook/clientConfig/service")));
        let of_groups = |group: &String| {
            let all = webhooks(case).into_iter().filter(move |webhook| webhook.covers_group(group));
            all.filter_map(|webhook| webhook.service()).collect::<Vec<_>>()
        };
        let services = conversion.into_iter().chain(groups.iter().flat_map(of_groups)).collect();
        let set_by = manager
            .map(|manager| Fact::new(reference, "metadata.managedFields", format!("{finalizer} set by {manager}")));
        let facts = set_by.into_iter().collect();
        Self { known, manager, groups, writers, crd, services, facts, prefix: OnceCell::new() }
    }

    /// Returns how many workloads go by the name of the field manager.
    pub(crate) fn namesakes(&self, workloads: &[Workload<'_>]) -> usize {
        self.manager.map_or(0, |manager| workloads.iter().filter(|workload| workload.is_called(manager)).count())
    }

    /// Returns how clearly a workload is the controller.
    pub(crate) fn score(
        &self,
        case: &Case<'a>,
        workload: &Workload<'a>,
        reference: &ObjectRef,
        namesakes: usize,
    ) -> u32 {
        let by_facts = self.known.map_or(0, |known| self.score_known(known, workload, reference));
        let is_writer =
            self.writers.as_ref().is_some_and(|writers| writers.accounts.iter().any(|g| is_of(g, workload)));
        let is_manager = self.manager.is_some_and(|manager| workload.is_called(manager));
        let is_server = self.services.iter().any(|service| serves(case, service, workload));
        // Of a known system only the known workload counts, as others of it may write the same kinds; and of several writers
        // only one that another trace points to.
        let is_named = self.known.is_some_and(|known| known.labels.values().all(|wanted| wanted != "*"));
        let is_one_of_many = is_writer && !is_manager && !is_server && self.accounts() > 1;
        if by_facts < ENOUGH && (is_one_of_many || is_named) {
            return 0;
        }
        let points = |is: bool, points: u32| if is { points } else { 0 };
        // Many programs are called `operator`: of several, the name alone tells only in the object's namespace.
        let is_only = namesakes == 1 || reference.namespace.as_deref() == Some(workload.namespace());
        let by_name = if is_only { 3 } else { 1 };
        let mut score = by_facts + points(is_writer, 4) + points(is_manager, by_name) + points(is_server, 3);
        let release = |object: &'a Value| {
            let annotation = |key| object::annotation(object, key);
            Some((annotation("meta.helm.sh/release-namespace")?, annotation("meta.helm.sh/release-name")?))
        };
        // One release may have several workloads: of these, other traces tell which.
        if self.crd.and_then(release).is_some_and(|of_crd| release(workload.value) == Some(of_crd)) {
            score += 2;
        }
        score
    }

    /// Returns how many ServiceAccounts may write the kind.
    fn accounts(&self) -> usize {
        self.writers.as_ref().map_or(0, |writers| writers.accounts.len())
    }

    fn score_known(&self, known: &Known, workload: &Workload<'_>, reference: &ObjectRef) -> u32 {
        let in_place = known.namespaces.iter().any(|namespace| namespace == workload.namespace());
        let labelled = |(key, wanted): (&String, &String)| match (workload.label(key), wanted.as_str()) {
            (Some(_), "*") => true,
            (label, wanted) => label == Some(wanted),
        };
        let by_labels = !known.labels.is_empty() && known.labels.iter().all(labelled);
        // Of a label that many controllers have, other traces must tell which it is.
        let is_common = known.labels.values().any(|wanted| wanted == "*");
        let named = |name: &&String| {
            name.strip_suffix('*').map_or(workload.is_called(name), |start| workload.name().starts_with(start))
        };
        let candidates = self.prefix.get_or_init(|| self.prefix_of(known, reference));
        let by_name =
            known.workloads.iter().filter(|name| name.starts_with(candidates.as_str())).any(|name| named(&name));
        let by_place = u32::from(in_place);
        match (by_labels && !is_common, by_name) {
            (true, _) => 4 + by_place,
            // A name such as `controller` tells only in its own namespace.
            (false, true)
                if in_place || known.namespaces.is_empty() || known.workloads.iter().all(|name| name.contains('-')) =>
            {
                3 + by_place
            }
            _ => u32::from(by_labels) + by_place,
        }
    }

    /// Of several controllers of one system, returns the beginning of the name of the one in charge: the manager that set the
    /// finalizer, or the first word of the object's group.
    fn prefix_of(&self, known: &Known, reference: &ObjectRef) -> String {
        if let Some(manager) = self.manager.filter(|manager| known.workloads.iter().any(|name| name == manager)) {
            return manager.to_owned();
        }
        let first = reference.api_version.group().split('.').next().unwrap_or_default();
        let starts = known.workloads.iter().any(|name| !first.is_empty() && name.starts_with(&format!("{first}-")));
        if starts { format!("{first}-") } else { String::new() }
    }

    /// Returns the name of the workload in charge, if the reviewed facts have several.
    pub(crate) fn named_workload(&self) -> Option<&'static str> {
        let prefix = self.prefix.get()?;
        let known = self.known?;
        known.workloads.iter().find(|name| !prefix.is_empty() && name.starts_with(prefix.as_str())).map(String::as_str)
    }

    /// Returns the ServiceAccount that may write the kind, but that no workload uses.
    pub(crate) fn account(&self, case: &Case<'_>, workloads: &[Workload<'_>]) -> Option<Controller> {
        let writers = self.writers.as_ref().filter(|writers| writers.complete && !writers.others)?;
        // If another program may write it too, that one may be the controller.
        if writers.accounts.iter().any(|grant| workloads.iter().any(|workload| is_of(grant, workload))) {
            return None;
        }
        let grant = writers.accounts.first()?;
        let reference = kinds::SERVICE_ACCOUNT.named(Some(&grant.namespace), &grant.account);
        let seen = case.get_metadata(&reference, Priority::Controller);
        let (problem, strength, fact) = match seen {
            Seen::Missing => {
                let fact = Fact::missing(&reference);
                (format!("{reference} may write this kind, but does not exist"), Strength::Proven, Some(fact))
            }
            Seen::There(_) => {
                (format!("no workload uses {reference}, which may write this kind"), Strength::Stated, None)
            }
            _ => return None,
        };
        let facts = self.facts.iter().cloned().chain([grant.fact.clone()]).chain(fact).collect();
        let name = self.manager.map_or_else(|| format!("the controller of {reference}"), str::to_owned);
        let found = Controller::absent(name, problem, strength, facts);
        Some(Controller { account: Some((grant.namespace.clone(), grant.account.clone())), ..found })
    }

    /// Returns the controller behind a webhook of the group, if the webhook's Service does not exist.
    pub(crate) fn service(&self, case: &Case<'_>) -> Option<Controller> {
        let is_missing = |service: &&Service<'_>| {
            case.builtin(&kinds::SERVICE, Some(service.namespace), service.name, Priority::Controller).is_missing()
        };
        let service = self.services.iter().find(is_missing)?;
        let reference = kinds::SERVICE.named(Some(service.namespace), service.name);
        let problem = format!("{reference}, which serves its webhook, does not exist");
        let facts = self.facts.iter().cloned().chain([Fact::missing(&reference)]).collect();
        let name = self.manager.map_or_else(|| format!("the controller behind {reference}"), str::to_owned);
        Some(Controller::absent(name, problem, Strength::Stated, facts))
    }

    /// Returns the Helm release that installed the CRD, as `namespace/name`.
    pub(crate) fn release(&self) -> Option<String> {
        let annotation = |key| object::annotation(self.crd?, key);
        let namespace = annotation("meta.helm.sh/release-namespace")?;
        Some(format!("{namespace}/{}", annotation("meta.helm.sh/release-name")?))
    }
}

fn is_of(grant: &Grant, workload: &Workload<'_>) -> bool {
    grant.namespace == workload.namespace() && grant.account == workload.account()
}

/// Returns whether the Pods of a workload are behind a Service.
fn serves(case: &Case<'_>, service: &Service<'_>, workload: &Workload<'_>) -> bool {
    if service.namespace != workload.namespace() {
        return false;
    }
    let found = case.builtin(&kinds::SERVICE, Some(service.namespace), service.name, Priority::Controller).value();
    let wanted = found
        .and_then(|found| found.pointer("/spec/selector"))
        .filter(|s| s.as_object().is_some_and(|s| !s.is_empty()));
    wanted.is_some_and(|wanted| selector::contains(wanted, workload.pod_labels()))
}

/// Returns whether a finalizer has the domain of an object's group: `shop.example/backup` and `db.shop.example`.
fn is_related(finalizer: &str, reference: &ObjectRef) -> bool {
    let last_two = |text: &str| {
        text.split('/').next().unwrap_or(text).rsplitn(3, '.').take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    last_two(finalizer) == last_two(reference.api_version.group())
}

/// Returns the API groups of the controller: that of a custom resource, and those that the finalizer's domain names.
fn groups(
    case: &Case<'_>,
    reference: &ObjectRef,
    finalizer: &str,
    known: Option<&Known>,
    is_custom: bool,
) -> Vec<String> {
    let domain = finalizer.split('/').next().unwrap_or(finalizer);
    let is_part = |group: &str, whole: &str| whole == group || whole.ends_with(&format!(".{group}"));
    let crds = case.catalog.iter().map(|kind| kind.kind.group.as_str()).filter(|group| {
        group.contains('.') && !group.ends_with(".k8s.io") && (is_part(group, domain) || is_part(domain, group))
    });
    let own = reference.api_version.group();
    let mut groups: Vec<String> = crds.map(str::to_owned).collect();
    // A finalizer that names the group of another product is not that of the object's own.
    let is_custom = is_custom && (known.is_some() || groups.is_empty() || groups.iter().any(|group| group == own));
    groups.extend(known.into_iter().flat_map(|known| known.groups.iter().cloned()));
    if is_custom && !own.is_empty() && reference.group_kind() != wellknown::crd() {
        groups.push(own.to_owned());
    }
    groups.sort();
    groups.dedup();
    groups
}
