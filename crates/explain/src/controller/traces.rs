//! The traces that a controller leaves in a cluster.

use std::{cell::OnceCell, collections::BTreeSet};

use billhook_objects::wellknown;
use serde_json::Value;

use super::{lease::Leases, party::Controller};
use crate::{
    Content, Fact, ObjectRef, ResponsibleState,
    access::{Grant, Writers, writers},
    admission::webhooks,
    backend::Service,
    case::{Case, Priority, Seen},
    cause::Strength,
    kinds,
    known::{Instance, Known},
    object, selector,
    workload::Workload,
};

/// How many points make a workload the controller: one clear trace.
pub(crate) const ENOUGH: u32 = 3;

/// How many ServiceAccounts are looked at for programs that are no workloads.
const ACCOUNTS: usize = 3;
/// The annotation of a Secret with a token that names the ServiceAccount.
const TOKEN_OF: &str = "kubernetes.io/service-account.name";

/// What uses a ServiceAccount beside workloads.
enum User {
    Program(Box<Controller>),
    Nobody,
}

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
    /// Which of several workloads of the known system is in charge, where it has several.
    instance: Option<(&'static Instance, Option<String>)>,
}

impl<'a> Traces<'a> {
    pub(crate) fn look(
        case: &Case<'a>,
        reference: &ObjectRef,
        value: &Value,
        finalizer: &str,
        known: Option<&'static Known>,
        manager: Option<&'a str>,
    ) -> Self {
        let crd_name = case.crd_of(reference);
        let crd = crd_name.as_ref().and_then(|crd| case.get(crd, Priority::Controller).value());
        // Of two finalizers, the one with the domain of the kind is that of its controller.
        let is_other = !is_related(finalizer, reference)
            && object::finalizers(value).iter().any(|other| *other != finalizer && is_related(other, reference));
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
        let instance = known.and_then(|known| known.instance.as_ref());
        let instance = instance.map(|instance| (instance, instance.of(value, finalizer)));
        Self { known, manager, groups, writers, crd, services, facts, prefix: OnceCell::new(), instance }
    }

    /// Returns whether the system has several such workloads, and the object does not tell which is in charge of it.
    pub(crate) fn is_unclear(&self) -> bool {
        matches!(self.instance, Some((_, None)))
    }

    /// Returns whether a workload is in charge of the object, where its system has several.
    fn is_of_instance(&self, workload: &Workload<'_>, leases: &Leases<'_>) -> bool {
        match &self.instance {
            Some((Instance::Label(key), Some(name))) => workload.label(key) == Some(name),
            Some((Instance::Type, Some(name))) => format!("-{}-", workload.name()).contains(&format!("-{name}-")),
            Some((Instance::Driver, Some(name))) => workload.names_driver(name) || leases.are_of_driver(workload, name),
            Some((_, None)) | None => true,
        }
    }

    /// Returns whether a workload has a known name itself, and not only one of its containers.
    pub(crate) fn is_named(&self, workload: &Workload<'_>) -> bool {
        self.known.is_some_and(|known| known.workloads.iter().any(|name| name == workload.name()))
    }

    /// Returns the namespaces that belong to the controller.
    pub(crate) fn namespaces(&self) -> BTreeSet<&str> {
        let accounts = self.writers.iter().flat_map(|writers| &writers.accounts).map(|grant| grant.namespace.as_str());
        let usual = self.known.iter().flat_map(|known| &known.namespaces).map(String::as_str);
        let of_release = self.release().map(|(namespace, _)| namespace);
        accounts.chain(usual).chain(of_release).chain(self.services.iter().map(|service| service.namespace)).collect()
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
        leases: &Leases<'a>,
    ) -> u32 {
        if !self.is_of_instance(workload, leases) {
            return 0;
        }
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
        // One release may have several workloads: of these, other traces tell which.
        if self.is_of_release(workload) {
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
        let starts = |name: &String| !first.is_empty() && name.starts_with(&format!("{first}-"));
        let is_one = known.workloads.iter().any(|name| name == first);
        if !is_one && known.workloads.iter().any(starts) { format!("{first}-") } else { String::new() }
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
        if writers.accounts.len() > ACCOUNTS {
            return None;
        }
        let mut unused = None;
        for grant in &writers.accounts {
            let reference = kinds::SERVICE_ACCOUNT.named(Some(&grant.namespace), &grant.account);
            match case.get_metadata(&reference, Priority::Controller) {
                Seen::Missing => {}
                // That of a known system is a workload: other programs may write its kinds, too.
                Seen::There(_) if self.known.is_some() => return None,
                Seen::There(_) => match self.user(case, grant) {
                    User::Nobody => unused = unused.or(Some(grant)),
                    User::Program(found) => return (writers.accounts.len() == 1).then_some(*found),
                },
                _ => return None,
            }
        }
        let grant = unused.or(writers.accounts.first())?;
        let reference = kinds::SERVICE_ACCOUNT.named(Some(&grant.namespace), &grant.account);
        // A program outside of the cluster can have a token of an account that exists.
        let (problem, strength, fact) = match unused {
            Some(_) => (format!("no workload uses {reference}, which may write this kind"), Strength::Possible, None),
            None => {
                let problem = format!("{reference} may write this kind, but does not exist");
                (problem, Strength::Proven, Some(Fact::missing(&reference)))
            }
        };
        let facts = self.facts.iter().cloned().chain([grant.fact.clone()]).chain(fact).collect();
        let name = self.manager.map_or_else(|| format!("the controller of {reference}"), str::to_owned);
        let found = Controller::absent(name, problem, strength, facts);
        Some(Controller { account: Some((grant.namespace.clone(), grant.account.clone())), ..found })
    }

    /// Returns the program that uses an account and is no workload: a Pod, one that is started from time to time, or one outside
    /// of the cluster that has the account's token.
    fn user(&self, case: &Case<'_>, grant: &Grant) -> User {
        let (namespace, account) = (Some(grant.namespace.as_str()), grant.account.as_str());
        let pods = case.list(&kinds::POD, namespace, Priority::Controller);
        let jobs = case.list(&kinds::CRON_JOB, namespace, Priority::Controller);
        let tokens = case.list_of(kinds::SECRET.resource(), namespace, Content::Metadata, Priority::Controller);
        let program = |name: String, works: bool| {
            let (state, strength) = match works {
                true => (ResponsibleState::Working, Strength::Stated),
                false => (ResponsibleState::Unknown, Strength::Possible),
            };
            let account = Some((grant.namespace.clone(), grant.account.clone()));
            let facts = self.facts.iter().cloned().chain([grant.fact.clone()]).collect();
            User::Program(Box::new(Controller { account, facts, ..Controller::new(name, state, strength) }))
        };
        let uses = |pod: &&Value| object::text(pod, "/spec/serviceAccountName") == Some(account);
        let is_ready = |pod: &Value| object::condition(pod, "Ready").is_some_and(object::Condition::is_true);
        if let Some(pod) = pods.items().iter().filter(uses).max_by_key(|pod| is_ready(pod)) {
            return program(kinds::POD.named(namespace, object::name(pod)).to_string(), is_ready(pod));
        }
        let path = "/spec/jobTemplate/spec/template/spec/serviceAccountName";
        if let Some(job) = jobs.items().iter().find(|job| object::text(job, path).unwrap_or("default") == account) {
            let reference = kinds::CRON_JOB.named(namespace, object::name(job));
            if job.pointer("/spec/suspend") == Some(&Value::Bool(true)) {
                let facts = self.facts.iter().cloned().chain([Fact::new(&reference, "spec.suspend", "true")]).collect();
                let problem = "it is suspended";
                let found = Controller::absent(reference.to_string(), problem, Strength::Proven, facts);
                return User::Program(Box::new(found));
            }
            return program(reference.to_string(), false);
        }
        let is_token = |secret: &Value| object::annotation(secret, TOKEN_OF) == Some(account);
        if tokens.items().iter().any(is_token) {
            let name = kinds::SERVICE_ACCOUNT.named(namespace, account);
            return program(format!("a program with the token of {name}"), false);
        }
        match [pods, jobs, tokens].iter().all(|list| list.is_complete()) {
            true => User::Nobody,
            // Nothing is said about what could not be read.
            false => program(format!("a program with {}", kinds::SERVICE_ACCOUNT.named(namespace, account)), false),
        }
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

    /// Returns the namespace and name of the Helm release that installed the CRD.
    fn release(&self) -> Option<(&'a str, &'a str)> {
        self.crd.and_then(release)
    }

    /// Returns whether the Helm release that installed the CRD has a workload.
    pub(crate) fn is_of_release(&self, workload: &Workload<'_>) -> bool {
        self.release().is_some_and(|of_crd| release(workload.value) == Some(of_crd))
    }

    /// Returns the Helm release that installed the CRD, as `namespace/name`, if it does not exist any more. One that exists and has
    /// no workload may consist of CRDs alone.
    pub(crate) fn lost_release(&self, case: &Case<'_>) -> Option<String> {
        let (namespace, name) = self.release()?;
        let records = case.list_of(kinds::SECRET.resource(), Some(namespace), Content::Metadata, Priority::Controller);
        let start = format!("sh.helm.release.v1.{name}.v");
        let is_gone = records.is_complete() && !records.items().iter().any(|one| object::name(one).starts_with(&start));
        is_gone.then(|| format!("{namespace}/{name}"))
    }
}

fn release(object: &Value) -> Option<(&str, &str)> {
    let annotation = |key| object::annotation(object, key);
    Some((annotation("meta.helm.sh/release-namespace")?, annotation("meta.helm.sh/release-name")?))
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
