//! The commands, one file each, and what they share.

pub(crate) mod apply;
pub(crate) mod completion;
pub(crate) mod controller;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod list;
pub(crate) mod operate;
pub(crate) mod plan;
pub(crate) mod sandbox;
pub(crate) mod status;
pub(crate) mod validate;

use std::sync::{Mutex, PoisonError};

use crate::{
    World,
    args::{self, Color, Command},
    error::{CommandError, Exit},
    output::{Paint, Printer},
    session::{Interrupts, Session},
};

/// Parses the arguments and runs the command.
pub(crate) async fn run(world: World) -> Exit {
    let program = args::program_name(&world.args);
    let cli = match args::parse(&world.args, program) {
        Ok(cli) => cli,
        Err(error) => return usage(world, &error),
    };
    let printer = Printer::new(
        (world.stdout, paint(cli.common.color, &world.env, world.stdout_terminal)),
        (world.stderr, paint(cli.common.color, &world.env, world.stderr_terminal)),
    );
    let session = Session {
        printer: printer.clone(),
        env: world.env,
        directory: world.directory,
        common: cli.common,
        stdin_terminal: world.stdin_terminal,
        stdout_terminal: world.stdout_terminal,
        stderr_terminal: world.stderr_terminal,
        stdin: Mutex::new(Some(world.stdin)),
        connect: world.connect,
        server: Mutex::default(),
    };
    let mut interrupts = Interrupts(world.interrupts);
    let done = dispatch(&session, &mut interrupts, cli.command).await;
    done.unwrap_or_else(|mut error| {
        if error.unreachable {
            let server = session.server.lock().unwrap_or_else(PoisonError::into_inner);
            error.hints.push(format!("the server is {server}; is it the right one, and does it run?"));
        }
        printer.error(&error, program);
        error.exit
    })
}

async fn dispatch(session: &Session, interrupts: &mut Interrupts, command: Command) -> Result<Exit, CommandError> {
    match command {
        Command::Apply(args) => apply::run(session, interrupts, args).await,
        Command::Delete(args) => delete::run(session, interrupts, args).await,
        Command::Plan(args) => plan::run(session, interrupts, args).await,
        Command::Status(args) => interrupts.unless(status::run(session, args)).await,
        Command::List(args) => interrupts.unless(list::run(session, args)).await,
        Command::Validate(args) => validate::run(session, &args),
        Command::Controller(args) => controller::run(session, interrupts, args).await,
        Command::Sandbox(args) => sandbox::run(session, interrupts, args).await,
        Command::Demo(args) => interrupts.unless(demo::run(session, args)).await,
        Command::Completion(args) => Ok(completion::run(session, &args)),
    }
}

/// Help and version are results; what is wrong with the arguments is not.
fn usage(world: World, error: &clap::Error) -> Exit {
    let plain =
        paint(Color::Auto, &world.env, if error.use_stderr() { world.stderr_terminal } else { world.stdout_terminal });
    let text = if plain.0 { error.render().ansi().to_string() } else { error.render().to_string() };
    let printer = Printer::new((world.stdout, plain), (world.stderr, plain));
    if error.use_stderr() {
        printer.err(text.trim_end());
        if text.contains("  <NAME>\n") && world.args.iter().any(|arg| arg == "-f" || arg == "--filename") {
            printer.err("hint: NAME stands before -f, which takes all paths behind it");
        }
        Exit::Input
    } else {
        printer.text(&text);
        Exit::Done
    }
}

/// Whether to colour: the flag, then the variables that programs have agreed on, then whether it is a terminal.
fn paint(color: Color, env: &std::collections::BTreeMap<String, String>, terminal: bool) -> Paint {
    let set = |name: &str| env.get(name).is_some_and(|value| !value.is_empty());
    Paint(match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto if set("NO_COLOR") => false,
        Color::Auto if env.get("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0") => true,
        Color::Auto => terminal && env.get("TERM").is_none_or(|term| term != "dumb"),
    })
}
