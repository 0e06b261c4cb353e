//! The top level of the command line: parses the arguments, runs one command, reports its error.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    future::ready,
    io::Write as _,
    path::Path,
    pin::Pin,
    sync::{Mutex, OnceLock},
};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

#[cfg(feature = "sandbox")]
use crate::commands::{demo, rehearse, sandbox};
use crate::{
    args::{ColorChoice, GlobalArgs, LogFormat, OutputFormat},
    commands::{
        apply, clean, completion, controller, delete, diff, forget, list, payload, plan, restore, schema, status,
        validate, webhook, why,
    },
    error::{CommandError, Exit},
    log::Logging,
    output::{Paint, Printer},
    session::{Interrupts, Session},
    world::World,
};

/// Ordered, explainable deployment and deletion for Kubernetes
#[derive(Debug, Parser)]
#[command(name = "billhook", version, max_term_width = 100, after_help = after_help())]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    Apply(apply::ApplyArgs),
    Delete(delete::DeleteArgs),
    Restore(restore::RestoreArgs),
    Clean(clean::CleanArgs),
    Plan(plan::PlanArgs),
    #[cfg(feature = "sandbox")]
    Rehearse(rehearse::RehearseArgs),
    Diff(diff::DiffArgs),
    Status(status::Status),
    Why(why::WhyArgs),
    List(list::List),
    Forget(forget::Forget),
    Payload(payload::PayloadArgs),
    Validate(validate::ValidateArgs),
    Schema(schema::SchemaArgs),
    Controller(controller::ControllerArgs),
    Webhook(webhook::WebhookArgs),
    #[cfg(feature = "sandbox")]
    Sandbox(sandbox::SandboxArgs),
    #[cfg(feature = "sandbox")]
    Demo(demo::DemoArgs),
    Completion(completion::CompletionArgs),
}

impl Cli {
    /// Returns what is logged if standard error is a terminal or not.
    fn logging(&self, terminal: bool) -> Logging {
        let (keeps_running, json) = match &self.command {
            Command::Controller(_) => (true, !terminal),
            Command::Webhook(_) => (true, false),
            Command::Payload(args) => (args.keeps_running(), false),
            _ => (false, false),
        };
        Logging::new(&self.global, keeps_running, if json { LogFormat::Json } else { LogFormat::Text })
    }
}

impl Command {
    /// Rejects a format in which the command prints nothing.
    fn check_format(&self, format: OutputFormat) -> Result<(), CommandError> {
        let prints = match self {
            Self::Payload(args) => args.prints(format),
            Self::Plan(_) | Self::Why(_) => format != OutputFormat::Sarif,
            _ => matches!(format, OutputFormat::Text | OutputFormat::Json),
        };
        let problem = "this command does not print results in this format";
        if prints { Ok(()) } else { Err(CommandError::input(problem).hint("use -o text or -o json")) }
    }
}

const APPLY_USAGE: &str = "NAME <-f PATH... | -k DIR | --chart REF> [OPTIONS]";
const DELETE_USAGE: &str = "<NAME | -f PATH... | -k DIR> [OPTIONS]";

fn after_help() -> String {
    let rehearse = if cfg!(feature = "sandbox") {
        "  billhook rehearse delete shop            play it on a copy of the cluster, to see what would remain\n"
    } else {
        ""
    };
    let demo = if cfg!(feature = "sandbox") {
        "  billhook demo                            show all of this without a cluster\n"
    } else {
        ""
    };
    format!(
        "\
Examples:
  billhook apply shop -f manifests/        deploy a release
  billhook diff shop -f manifests/         show what deploying it would change, field by field
  billhook plan delete shop                show what deleting it would do, in order
{rehearse}  billhook delete shop                     delete it group by group until all objects are gone
  billhook status shop                     show its objects and what blocks them
  billhook why namespace shop              explain why it is not gone, and what to do
{demo}
Exit codes:
  0  success
  1  failed
  2  invalid input; nothing was changed
  3  timed out or interrupted with objects remaining; run the same command again to resume
  4  stopped by a guard; nothing was changed
diff exits with 1 if there are differences, and with 5 if it failed; why exits with 3 if something is blocked, and
rehearse with 3 if something would be."
    )
}

/// Parses the arguments and runs the command.
pub(crate) async fn run(world: World) -> Exit {
    let program = program_name(&world.args);
    let cli = match parse(&world.args, program) {
        Ok(cli) => cli,
        Err(error) => return print_usage(world, &error),
    };
    let printer = Printer::new(
        (world.stdout, paint(cli.global.color, &world.env, world.stdout_terminal)),
        (world.stderr, paint(cli.global.color, &world.env, world.stderr_terminal)),
    );
    printer.set_program(program);
    let logging = cli.logging(world.stderr_terminal);
    let session = Session {
        printer: printer.clone(),
        logging,
        env: world.env,
        directory: world.directory,
        global: cli.global,
        stdin_terminal: world.stdin_terminal,
        stdout_terminal: world.stdout_terminal,
        stderr_terminal: world.stderr_terminal,
        stdin: Mutex::new(Some(world.stdin)),
        connect: world.connect,
        server: OnceLock::new(),
        context: OnceLock::new(),
        cluster: OnceLock::new(),
    };
    let mut interrupts = Interrupts(world.interrupts);
    let result = dispatch(&session, &mut interrupts, cli.command).await;
    result.unwrap_or_else(|mut error| {
        if error.unreachable
            && let Some(server) = session.server.get()
        {
            error.hints.push(format!("check that {server} is the right API server and that it is running"));
        }
        if !session.log().fail(&error) {
            printer.error(&error);
        }
        error.exit
    })
}

/// A command that runs.
type CommandFuture<'a> = Pin<Box<dyn Future<Output = Result<Exit, CommandError>> + Send + 'a>>;

/// Returns the future of a command. It is boxed, because a future with room for any command takes much of the stack.
fn dispatch<'a>(session: &'a Session, interrupts: &'a mut Interrupts, command: Command) -> CommandFuture<'a> {
    if let Err(error) = command.check_format(session.global.output) {
        return Box::pin(ready(Err(error)));
    }
    match command {
        Command::Apply(args) => Box::pin(apply::run(session, interrupts, args)),
        Command::Delete(args) => Box::pin(delete::run(session, interrupts, args)),
        Command::Restore(args) => Box::pin(restore::run(session, interrupts, args)),
        Command::Clean(args) => Box::pin(clean::run(session, interrupts, args)),
        Command::Plan(args) => Box::pin(plan::run(session, interrupts, args)),
        #[cfg(feature = "sandbox")]
        Command::Rehearse(args) => Box::pin(rehearse::run(session, interrupts, args)),
        Command::Diff(args) => Box::pin(diff::run(session, interrupts, args)),
        Command::Status(args) => Box::pin(interrupts.unless(status::run(session, args))),
        Command::Why(args) => Box::pin(interrupts.unless(why::run(session, args))),
        Command::List(args) => Box::pin(interrupts.unless(list::run(session, args))),
        Command::Forget(args) => Box::pin(forget::run(session, interrupts, args)),
        Command::Payload(args) => Box::pin(async move { payload::run(session, interrupts, &args).await }),
        Command::Validate(args) => Box::pin(ready(validate::run(session, &args))),
        Command::Schema(args) => Box::pin(ready(Ok(schema::run(session, &args)))),
        Command::Controller(args) => Box::pin(controller::run(session, interrupts, args)),
        Command::Webhook(args) => Box::pin(webhook::run(session, interrupts, args)),
        #[cfg(feature = "sandbox")]
        Command::Sandbox(args) => Box::pin(sandbox::run(session, interrupts, args)),
        #[cfg(feature = "sandbox")]
        Command::Demo(args) => Box::pin(interrupts.unless(demo::run(session, args, run_boxed))),
        Command::Completion(args) => {
            Box::pin(ready(Ok(completion::run(session, &args, &mut self::command("billhook")))))
        }
    }
}

/// Runs the program for the demo: a future that contains itself must be boxed.
#[cfg(feature = "sandbox")]
fn run_boxed(world: World) -> demo::ProgramFuture {
    Box::pin(run(world))
}

/// Returns the definition of the command line for a program of this name.
pub(crate) fn command(name: &str) -> clap::Command {
    let usage =
        |command: clap::Command, words: &str, rest: &str| command.override_usage(format!("{name} {words} {rest}"));
    let mut command = Cli::command()
        .bin_name(name.to_owned())
        .mut_subcommand("apply", |apply| usage(apply, "apply", APPLY_USAGE))
        .mut_subcommand("delete", |delete| usage(delete, "delete", DELETE_USAGE))
        .mut_subcommand("diff", |diff| usage(diff, "diff", APPLY_USAGE))
        .mut_subcommand("plan", |plan| {
            plan.mut_subcommand("apply", |apply| usage(apply, "plan apply", APPLY_USAGE))
                .mut_subcommand("delete", |delete| usage(delete, "plan delete", DELETE_USAGE))
        });
    if cfg!(feature = "sandbox") {
        command = command.mut_subcommand("rehearse", |rehearse| {
            rehearse.mut_subcommand("delete", |delete| usage(delete, "rehearse delete", DELETE_USAGE))
        });
    }
    if name == "billhook" { command } else { rename_examples(command, name) }
}

/// Returns what is logged; nothing if the arguments cannot be parsed.
pub(crate) fn logging(args: &[OsString], terminal: bool) -> Option<Logging> {
    parse(args, "billhook").ok().map(|cli| cli.logging(terminal))
}

fn parse(args: &[OsString], name: &str) -> Result<Cli, clap::Error> {
    let mut command = command(name);
    let matches = command.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Returns what the user types to run the program: kubectl runs a plugin under its own name.
fn program_name(args: &[OsString]) -> &'static str {
    let stem = args.first().map(Path::new).and_then(Path::file_stem);
    if stem.is_some_and(|stem| stem == "kubectl-billhook") { "kubectl billhook" } else { "billhook" }
}

/// Puts the program's name into the examples of a command and its subcommands.
fn rename_examples(mut command: clap::Command, name: &str) -> clap::Command {
    if let Some(examples) = command.get_after_help().map(|text| text.to_string()) {
        command = command.after_help(examples.replace("  billhook ", &format!("  {name} ")));
    }
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, sub| command.mut_subcommand(sub, |sub| rename_examples(sub, name)))
}

/// Prints help and version to standard output, and usage errors to standard error.
fn print_usage(world: World, error: &clap::Error) -> Exit {
    let terminal = if error.use_stderr() { world.stderr_terminal } else { world.stdout_terminal };
    let colored = paint(ColorChoice::Auto, &world.env, terminal).0;
    let text = if colored { error.render().ansi().to_string() } else { error.render().to_string() };
    // This is clap's text, with clap's own escape sequences, and none of it comes from a cluster.
    let (mut stream, exit) = if error.use_stderr() { (world.stderr, Exit::Input) } else { (world.stdout, Exit::Done) };
    let _ = writeln!(stream, "{}", text.trim_end());
    if error.use_stderr()
        && text.contains("  <NAME>\n")
        && world.args.iter().any(|arg| arg == "-f" || arg == "--filename")
    {
        let _ = writeln!(stream, "hint: put NAME before -f, which takes all arguments after it as paths");
    }
    exit
}

/// Decides whether to color: by the flag, then by the usual environment variables, then by whether it is a terminal.
fn paint(color: ColorChoice, env: &BTreeMap<String, String>, terminal: bool) -> Paint {
    let set = |name: &str| env.get(name).is_some_and(|value| !value.is_empty());
    Paint(match color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if set("NO_COLOR") => false,
        ColorChoice::Auto if env.get("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0") => true,
        ColorChoice::Auto => terminal && env.get("TERM").is_none_or(|term| term != "dumb"),
    })
}
