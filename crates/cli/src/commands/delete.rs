//! `billhook delete`: deletes a release, or the objects of manifests.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use billhook_engine::{
    BackupMode, Clusters, DeleteInput, DeletionOrder, OperationError, PreparedDelete, RunOptions, Subject,
};
use billhook_objects::ReleaseName;
use billhook_plan::Unlabelled;
use billhook_policy::{GoDuration, ItemTimeout, Propagation};
use clap::{ArgAction, ArgGroup, Args};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Cascade, DryRun, Order},
    backup_dir::BackupDir,
    connect::Target,
    error::{CommandError, Exit, both},
    input::{self, Input, Sources},
    render::{self, plan::collections},
    session::{Interrupts, Session},
};

use super::{
    apply::Planned,
    operate::{self, RunFlags},
    take_over::taking_over,
};

/// Delete a release, or the objects of manifests, group by group, and wait until all are gone
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    deletion: DeletionArgs,
    /// Time limit for the whole operation; 0 means no limit [default: 10m]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<GoDuration>,
    /// Preview the operation instead of running it
    #[arg(long, value_name = "MODE", default_value = "none")]
    dry_run: DryRun,
    /// Do not ask for confirmation, and carry out the plan even if it has dangerous notes
    #[arg(long, short)]
    yes: bool,
    /// Succeed if the release does not exist
    #[arg(long)]
    ignore_not_found: bool,
    /// Take over from another operation that works on the release, which then stops [default: refuse]
    #[arg(long, requires = "name")]
    take_over: bool,
    /// At the end, look for the release's label in all kinds, and fail if an object still carries it
    #[arg(long, requires = "name")]
    verify: bool,
    /// Save the live objects as files in this new or empty directory, and not in the record of the release; only the user may
    /// read them
    #[arg(long, value_name = "DIR", conflicts_with = "backup")]
    backup_dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  billhook delete shop
  billhook delete shop --policy policy.yaml --timeout 5m
  billhook delete shop --order safe
  billhook delete -f manifests/ -R --yes
  billhook delete shop --target workload=workload.kubeconfig";

/// What to delete, for `delete` and `plan delete`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").required(true).multiple(false))]
pub(crate) struct DeletionArgs {
    /// Name of the release
    #[arg(group = "source")]
    name: Option<String>,
    #[command(flatten)]
    sources: Sources,
    /// Use this policy file, or the default policy with "default"; required to delete a release that lost its record
    /// [default: the policy recorded with the release]
    #[arg(long, value_name = "FILE|default")]
    policy: Option<PathBuf>,
    /// Choose the order of the deletion
    #[arg(long, value_name = "ORDER", default_value = "policy")]
    order: Order,
    /// Choose how dependents are deleted, unless the policy specifies it
    #[arg(long, value_name = "MODE", default_value = "background")]
    cascade: Cascade,
    /// Change nothing if the plan deletes more than N objects, not even with --yes
    #[arg(long, value_name = "N")]
    max_deletions: Option<usize>,
    /// Save the live objects in the record of the release first, so that billhook restore can create them again [default: true if
    /// a force stage may remove finalizers]
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", hide_possible_values = true, conflicts_with_all = ["filename", "kustomize"])]
    backup: Option<bool>,
    /// Use this cluster for a targetName of the policy; can be repeated
    #[arg(long, value_name = "NAME=KUBECONFIG[#CONTEXT]")]
    pub(crate) target: Vec<Target>,
}

/// How a deletion is planned.
#[derive(Clone, Copy, Default)]
pub(crate) struct Mode {
    /// Whether dangerous notes are accepted.
    pub(crate) yes: bool,
    pub(crate) verify: bool,
    /// Whether the live objects are saved elsewhere than in the record.
    pub(crate) saves_elsewhere: bool,
}

/// What to delete, as it was read.
pub(crate) struct Deletion {
    pub(crate) clusters: Clusters,
    pub(crate) input: DeleteInput,
    pub(crate) order: DeletionOrder,
    item_timeout: Option<ItemTimeout>,
}

impl Deletion {
    /// Plans the deletion. Returns none if there is no such release and this is no error.
    async fn plan(
        self,
        session: &Session,
        ignore_not_found: bool,
    ) -> Result<Option<Planned<PreparedDelete>>, CommandError> {
        let Self { clusters, input, order, item_timeout } = self;
        match billhook_engine::prepare_delete_foreseen(&clusters, input, order).await {
            Ok(prepared) => Ok(Some(Planned { prepared, clusters, item_timeout })),
            Err(OperationError::NoRelease(release, unlisted)) if ignore_not_found => {
                session.printer.err(&format!("release {release} not found; nothing to delete"));
                unlisted.iter().for_each(|failure| session.printer.err(&format!("  {failure}")));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the release whose lock is to be taken over.
    fn release(&self) -> Option<ReleaseName> {
        match &self.input.subject {
            Subject::Release(release) => Some(release.clone()),
            Subject::Manifests(..) => None,
        }
    }

    /// Returns the time limit of the deletion.
    #[cfg(feature = "sandbox")]
    pub(crate) fn time_limit(&self, flag: Option<GoDuration>) -> Option<std::time::Duration> {
        input::time_limit(flag, self.item_timeout)
    }
}

/// Reads the input of a deletion.
pub(crate) async fn read(session: &Session, args: DeletionArgs, mode: Mode) -> Result<Deletion, CommandError> {
    let input = input::read(session, &args.sources, args.policy.as_ref()).await;
    let connection = session.connection().await.and_then(|connection| {
        let release = args.name.as_ref().map(|name| connection.release(name)).transpose()?;
        Ok((connection, release))
    });
    let targets = session.targets(&args.target).await;
    let ((input, (connection, release)), targets) = both(both(input, connection), targets)?;
    let namespace = connection.namespace.clone();
    let clusters = connection.with(targets);
    let Input { manifests, directives, policy, timeout: item_timeout } = input;
    let input = DeleteInput {
        subject: release.map_or_else(|| Subject::Manifests(manifests, directives), Subject::Release),
        policy,
        propagation: Propagation::from(args.cascade),
        max_deletions: args.max_deletions,
        namespace,
        inherited: Vec::new(),
        require_record: true,
        unlabelled: if mode.yes { Unlabelled::Take } else { Unlabelled::Leave },
        retain: true,
        verify: mode.verify,
        backup: match args.backup {
            _ if mode.saves_elsewhere => BackupMode::Never,
            None => BackupMode::Forced,
            Some(true) => BackupMode::Always,
            Some(false) => BackupMode::Never,
        },
        catalog: None,
    };
    Ok(Deletion { clusters, input, order: args.order.into(), item_timeout })
}

/// Reads the input and plans, without changing anything.
pub(crate) async fn plan(
    session: &Session,
    args: DeletionArgs,
) -> Result<Option<Planned<PreparedDelete>>, CommandError> {
    read(session, args, Mode::default()).await?.plan(session, false).await
}

/// Runs the command.
pub(crate) async fn run(
    session: &Session,
    interrupts: &mut Interrupts,
    args: DeleteArgs,
) -> Result<Exit, CommandError> {
    let mode = Mode { yes: args.yes, verify: args.verify, saves_elsewhere: args.backup_dir.is_some() };
    let deletion = interrupts.unless(read(session, args.deletion, mode)).await?;
    let (clusters, release) = (deletion.clusters.clone(), deletion.release());
    let taken = release.as_ref().filter(|_| args.take_over && args.dry_run == DryRun::None);
    let how = Execution { dry_run: args.dry_run, timeout: args.timeout, yes: args.yes, backup_dir: args.backup_dir };
    let work = async |interrupts: &mut Interrupts| match interrupts
        .unless(deletion.plan(session, args.ignore_not_found))
        .await?
    {
        Some(planned) => execute(session, interrupts, planned, how).await,
        None => Ok(Exit::Done),
    };
    taking_over(session, interrupts, &CancellationToken::new(), (&clusters, taken), work).await
}

/// How a planned deletion is carried out.
struct Execution {
    dry_run: DryRun,
    timeout: Option<GoDuration>,
    yes: bool,
    backup_dir: Option<PathBuf>,
}

/// Carries out a deletion, or shows what it would do.
async fn execute(
    session: &Session,
    interrupts: &mut Interrupts,
    planned: Planned<PreparedDelete>,
    how: Execution,
) -> Result<Exit, CommandError> {
    let Planned { mut prepared, clusters, item_timeout } = planned;
    let timeout = operate::time_limit(how.timeout, item_timeout, &mut prepared.plan);
    match how.dry_run {
        DryRun::Client => {
            operate::print_plan(session, &prepared.plan);
            return Ok(Exit::Done);
        }
        DryRun::Server => {
            let (manifests, not_served) = (BTreeMap::new(), BTreeSet::new());
            let answers = operate::dry_run(session, &prepared.plan, &clusters, &manifests, &not_served, false);
            return interrupts.unless(answers).await;
        }
        DryRun::None => {}
    }
    let deletes = prepared.plan.deletions() + collections(&prepared.plan) > 0;
    let confirmed = deletes && session.stdin_terminal && !how.yes;
    // There is no use in a question about a deletion that is refused.
    interrupts.unless(async { Ok(prepared.check_lock(&clusters).await?) }).await?;
    operate::guard(session, &prepared.plan, Some("billhook plan delete"), how.yes)?;
    if confirmed {
        operate::confirm(session, interrupts, &prepared.plan).await?;
    }
    if let Some(path) = how.backup_dir {
        interrupts.unless(save(session, &clusters, &prepared, &path)).await?;
    }
    let flags = RunFlags { timeout, confirmed, ..RunFlags::default() };
    let work =
        async |options: RunOptions| billhook_engine::delete(&clusters, prepared, &options).await.map_err(not_deleted);
    operate::carry_out(session, interrupts, flags, work).await
}

/// Returns the error of a deletion that did not start.
fn not_deleted(error: OperationError) -> CommandError {
    match &error {
        OperationError::NotSaved { .. } => {
            CommandError::from(error).hint("or save the objects as files with --backup-dir DIR")
        }
        _ => error.into(),
    }
}

/// Saves the live objects of a planned deletion as files.
async fn save(
    session: &Session,
    clusters: &Clusters,
    prepared: &PreparedDelete,
    path: &Path,
) -> Result<(), CommandError> {
    let path = session.path(path);
    let mut directory = BackupDir::create(path.clone())?;
    billhook_engine::save_objects(clusters, prepared, |object| directory.save(object)).await?;
    session.printer.err(&format!("{} saved in {}", render::count(directory.files, "object"), path.display()));
    Ok(())
}
