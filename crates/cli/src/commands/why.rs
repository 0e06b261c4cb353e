//! `billhook why`: explains why objects are not gone.

use std::collections::BTreeMap;

use billhook_engine::{ExplainOptions, explain, explain_all, of_release, release_status};
use billhook_explain::{Document, Finding, ObjectRef, State};
use billhook_objects::{ApiVersion, Catalog, KindName, ResolveError, ResourceType, Scope};
use billhook_policy::GoDuration;
use clap::Args;

use crate::{
    connect::Connection,
    error::{CommandError, Exit, Problem},
    render::{picture, why},
    session::Session,
};

/// Explain why objects are not gone: the root cause, the evidence, who has to act, and the next steps
///
/// It only reads. Exits with 0 if nothing is blocked, with 3 if something is, and with 1 if what was asked for could not be
/// read.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WhyArgs {
    /// Objects, as KIND NAME... or KIND/NAME..., with kinds as in kubectl
    #[arg(value_name = "KIND NAME | KIND/NAME", required_unless_present_any = ["release", "all_namespaces"])]
    objects: Vec<String>,
    /// Explain everything of this release that is being deleted
    #[arg(long, value_name = "NAME", conflicts_with_all = ["objects", "all_namespaces"])]
    release: Option<String>,
    /// Explain everything in the cluster that is being deleted
    #[arg(long, short = 'A', conflicts_with = "objects")]
    all_namespaces: bool,
    /// Look a second time after this pause where one look cannot tell slow from stuck
    #[arg(long, value_name = "DURATION")]
    watch: Option<GoDuration>,
    /// Send dry runs, which show what admission webhooks and policies would answer
    #[arg(long)]
    probe: bool,
}

const EXAMPLES: &str = "\
Examples:
  billhook why namespace shop
  billhook why -n shop pvc/data database.shop.example/main
  billhook why --release shop --watch 10s
  billhook why -A -o json
  billhook why -A -o html > why.html";

/// Runs the command.
pub(crate) async fn run(session: &Session, args: WhyArgs) -> Result<Exit, CommandError> {
    let options = ExplainOptions { probe: args.probe, watch: args.watch.map(|watch| watch.0) };
    let named = if args.objects.is_empty() { Vec::new() } else { named(&args.objects)? };
    let connection = session.connection().await?;
    let catalog = connection.cluster.catalog().await?;
    let (cluster, searched) = (connection.cluster.clone(), args.release.is_some() || args.all_namespaces);
    let document = match &args.release {
        _ if args.all_namespaces => explain_all(&cluster, &catalog, options).await,
        Some(name) => {
            let release = connection.release(name)?;
            let status = release_status(&connection.with(BTreeMap::new()), &release).await?;
            explain(&cluster, &catalog, of_release(&status, &catalog), options).await
        }
        None => {
            let subjects = subjects(session, &connection, &catalog, &named)?;
            explain(&cluster, &catalog, subjects, options).await
        }
    };
    Ok(show(session, &document, searched))
}

/// Prints the document. Where nothing was named, an empty one means that nothing is being deleted.
fn show(session: &Session, document: &Document, searched: bool) -> Exit {
    let printer = &session.printer;
    if let Some(drawn) = picture::draw(session.global.output, || picture::why::picture(document)) {
        printer.raw(&drawn);
    } else if session.json() {
        printer.json(document);
    } else {
        let all = session.global.verbose > 0;
        why::lines(document, all, printer.out_paint()).iter().for_each(|line| printer.out(line));
        if searched && document.findings.is_empty() && document.unread.is_empty() {
            printer.err("nothing is being deleted");
        }
        why::unread(document, all).iter().for_each(|line| printer.warn(line));
    }
    exit(document)
}

fn exit(document: &Document) -> Exit {
    let is_unread = |finding: &Finding| finding.state == State::Unknown;
    let is_unanswered = document.findings.is_empty() && !document.unread.is_empty();
    if document.findings.iter().any(Finding::is_blocked) {
        Exit::Unfinished
    } else if is_unanswered || document.findings.iter().any(is_unread) {
        Exit::Failed
    } else {
        Exit::Done
    }
}

/// A kind and a name, as they were written.
type Named = (String, String);

/// Reads `KIND NAME…` or `KIND/NAME…`, as kubectl does.
fn named(words: &[String]) -> Result<Vec<Named>, CommandError> {
    let split = |word: &String| {
        let (kind, name) = word.split_once('/')?;
        (!kind.is_empty() && !name.is_empty() && !name.contains('/')).then(|| (kind.to_owned(), name.to_owned()))
    };
    if words.iter().any(|word| word.contains('/')) {
        let read = |word| {
            split(word).ok_or_else(|| CommandError::input(format!("{word} is not KIND/NAME; name all objects so")))
        };
        return words.iter().map(read).collect();
    }
    match words {
        [kind, names @ ..] if !names.is_empty() => Ok(names.iter().map(|name| (kind.clone(), name.clone())).collect()),
        _ => Err(CommandError::input("name the objects as KIND NAME or KIND/NAME")),
    }
}

fn subjects(
    session: &Session,
    connection: &Connection,
    catalog: &Catalog,
    named: &[Named],
) -> Result<Vec<ObjectRef>, CommandError> {
    let (mut found, mut problems): (Vec<ObjectRef>, Vec<Problem>) = (Vec::new(), Vec::new());
    for (kind, name) in named {
        match resolve(catalog, kind) {
            Ok(Kind::Served(kind)) => {
                let namespace = (kind.scope == Scope::Namespaced).then_some(connection.namespace.as_str());
                let object = ObjectRef::new(kind.api_version(None), &kind.kind.kind, namespace, name);
                if !found.contains(&object) {
                    found.push(object);
                }
            }
            Ok(Kind::NotServed(version, kind)) => {
                found.push(ObjectRef::new(version, kind, session.global.namespace.as_deref(), name));
            }
            Err(problem) => problems.push(problem.into()),
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(CommandError::all(Exit::Input, problems)) }
}

/// A kind that was named.
enum Kind<'a> {
    Served(&'a ResourceType),
    /// Its CRD or its API may be gone while its objects are not.
    NotServed(ApiVersion, String),
}

/// Resolves `kind`, `kind.group` or `kind.version.group`. Without a group, the core group comes first, then the only other
/// group with such a kind.
fn resolve<'a>(catalog: &'a Catalog, written: &str) -> Result<Kind<'a>, String> {
    let (name, group) = written.split_once('.').unwrap_or((written, ""));
    let of = |group: &str| catalog.resolve(&KindName { group: group.to_owned(), name: name.to_owned() });
    let ambiguous = |kinds: &[billhook_objects::GroupKind]| {
        let kinds: Vec<_> = kinds.iter().map(ToString::to_string).collect();
        format!("{written} may be {}: write its group", kinds.join(" or "))
    };
    let elsewhere = match of(group) {
        Ok(kind) => return Ok(Kind::Served(kind)),
        Err(ResolveError::Ambiguous { candidates, .. }) => return Err(ambiguous(&candidates)),
        Err(ResolveError::NotServed { elsewhere, .. }) => elsewhere,
    };
    if let Some((version, group)) = group.split_once('.')
        && is_version(version)
        && let Ok(kind) = of(group)
    {
        return Ok(Kind::Served(kind));
    }
    if !group.is_empty() {
        let of_group = |version: &&String| version.split_once('/').is_some_and(|(known, _)| known == group);
        let stale = catalog.stale.iter().find(of_group).and_then(|version| ApiVersion::parse(version).ok());
        return Ok(Kind::NotServed(stale.unwrap_or_else(|| ApiVersion::new(group, "v1")), name.to_owned()));
    }
    match elsewhere.as_slice() {
        [one] => catalog.get(one).map(Kind::Served).ok_or_else(|| format!("the cluster does not serve {written}")),
        [] => Err(format!("the cluster does not serve the kind {written}; if its CRD was deleted, write KIND.GROUP")),
        many => Err(ambiguous(many)),
    }
}

fn is_version(text: &str) -> bool {
    text.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use billhook_objects::GroupKind;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn objects_are_named_as_for_kubectl() {
        let check = |line: &str, expected: &[(&str, &str)]| {
            let found = named(&words(line)).unwrap();
            let found: Vec<_> = found.iter().map(|(kind, name)| (kind.as_str(), name.as_str())).collect();
            assert_eq!(found, expected, "{line}");
        };
        check("ns shop", &[("ns", "shop")]);
        check("pods a b", &[("pods", "a"), ("pods", "b")]);
        check("pod/a crd/x.y.z", &[("pod", "a"), ("crd", "x.y.z")]);
        for wrong in ["pods", "pod/a b", "pod/", "/a", "a/b/c"] {
            assert!(named(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn kinds_are_found_by_their_names_and_groups() {
        let mut catalog = Catalog::default();
        let kinds = [
            ("", "Pod", "pods", "po"),
            ("", "Event", "events", "ev"),
            ("events.k8s.io", "Event", "events", "ev"),
            ("shop.example", "Database", "databases", "db"),
            ("a.example", "Thing", "things", ""),
            ("b.example", "Thing", "things", ""),
        ];
        catalog.extend(kinds.map(|(group, kind, plural, short)| ResourceType {
            kind: GroupKind::new(group, kind),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            short_names: vec![short.into()],
            scope: Scope::Namespaced,
            versions: vec!["v1".into()],
            verbs: vec![],
        }));
        catalog.stale = vec!["metrics.x.example/v1beta1".into()];
        let check = |written: &str, expected: &str| {
            let found = match resolve(&catalog, written) {
                Ok(Kind::Served(kind)) => kind.kind.to_string(),
                Ok(Kind::NotServed(version, kind)) => format!("not served: {version} {kind}"),
                Err(problem) => problem,
            };
            assert!(found.starts_with(expected), "{written}: {found}");
        };
        check("po", "Pod");
        check("Event", "Event");
        check("events.events.k8s.io", "Event.events.k8s.io");
        check("db", "Database.shop.example");
        check("databases.v1.shop.example", "Database.shop.example");
        check("thing", "thing may be Thing.a.example or Thing.b.example");
        check("Metric.metrics.x.example", "not served: metrics.x.example/v1beta1 Metric");
        check("Gone.x.example", "not served: x.example/v1 Gone");
        check("gone", "the cluster does not serve the kind gone");
    }
}
