//! Console sessions: transcripts of shell commands and their output, run by bash with the real kubectl.
//!
//! ```text
//! $ kubectl delete configmap a &
//! configmap "a" deleted from [..] namespace
//! $ cat <<EOF | kubectl create -f -
//! > {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
//! > EOF
//! ? 1
//! Error from server (AlreadyExists): object is being deleted: configmaps "a" already exists
//! ```
//!
//! `$ ` starts a command and `> ` continues it; `? 1` is an exit code other than 0; all other lines are the expected output
//! on standard output and standard error, in which `[..]` matches any text within a line and `...` any lines. All commands
//! run in the same shell. After a background command, the next one starts only when the expected output has been printed.

use std::{
    fmt::{self, Display},
    path::Path,
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// The time limit of a command.
const LIMIT: Duration = Duration::from_secs(30);

/// The marker before the exit code of a command, which no program prints.
const MARK: u8 = 0x1e;

/// Reads commands that end with a NUL byte from descriptor 3, which commands do not use as their input.
const SHELL: &str = r#"exec 3<&0 </dev/null 2>&1
while IFS= read -r -d '' command <&3; do eval "$command"; printf '\036%d\n' $?; done"#;

/// Runs a transcript in a folder.
///
/// # Errors
///
/// Fails if a command has other output or another exit code, or does not end within 30 seconds.
pub async fn play(transcript: &str, kubeconfig: &Path, kubectl: &Path, dir: &Path) -> Result<()> {
    let entries = parse(transcript)?;
    let mut shell = Shell::start(kubeconfig, kubectl, dir).context("start bash")?;
    for entry in &entries {
        let ran = tokio::time::timeout(LIMIT, shell.run(entry)).await;
        let ran = ran.unwrap_or_else(|_| Err(anyhow!("it did not end and print the expected output within {LIMIT:?}")));
        ran.with_context(|| format!("{entry}--- printed\n{}---", shell.printed()))?;
    }
    Ok(())
}

/// A command and its expected result.
#[derive(Debug, Default, PartialEq, Eq)]
struct Entry {
    command: String,
    exit: i32,
    printed: Vec<String>,
}

impl Entry {
    /// Whether the command runs in the background.
    fn in_background(&self) -> bool {
        self.command.trim_end().ends_with('&')
    }
}

impl Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "$ {}", self.command.replace('\n', "\n> "))?;
        if self.exit != 0 {
            writeln!(f, "? {}", self.exit)?;
        }
        self.printed.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

fn parse(transcript: &str) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in transcript.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            entries.push(Entry { command: command.to_owned(), ..Entry::default() });
            continue;
        }
        let entry = entries.last_mut().ok_or_else(|| anyhow!("a transcript must start with a command: $ …"))?;
        let untouched = entry.exit == 0 && entry.printed.is_empty();
        match line.strip_prefix('>').filter(|_| untouched) {
            Some(more) => entry.command.extend(["\n", more.strip_prefix(' ').unwrap_or(more)]),
            None => match line.strip_prefix("? ").filter(|_| untouched) {
                Some(code) => {
                    entry.exit = code.trim().parse().with_context(|| format!("{line}: expected an exit code"))?
                }
                None => entry.printed.push(line.to_owned()),
            },
        }
    }
    ensure!(!entries.is_empty(), "the transcript has no commands");
    Ok(entries)
}

/// A bash process; all processes that it started end with it.
struct Shell {
    process: Child,
    commands: ChildStdin,
    output: ChildStdout,
    /// The output since the start of the last command.
    seen: Vec<u8>,
}

impl Shell {
    fn start(kubeconfig: &Path, kubectl: &Path, dir: &Path) -> Result<Self> {
        let folder = kubectl.parent().context("the path of kubectl has no folder")?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([folder.to_owned()].into_iter().chain(std::env::split_paths(&path)))?;
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc", "-c", SHELL]).current_dir(dir).env_clear();
        // kubectl caches discovery in its home, and different servers may use the same port one after the other.
        command.env("PATH", path).env("HOME", dir).env("LC_ALL", "C");
        command.env("KUBECONFIG", kubeconfig).env("BILLHOOK_KUBECTL", kubectl);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut process = command.spawn()?;
        let commands = process.stdin.take().context("no pipe to the shell")?;
        let output = process.stdout.take().context("no pipe from the shell")?;
        Ok(Self { process, commands, output, seen: Vec::new() })
    }

    /// Runs a command and compares its result.
    async fn run(&mut self, entry: &Entry) -> Result<()> {
        self.seen.clear();
        self.commands.write_all(entry.command.as_bytes()).await?;
        self.commands.write_all(b"\0").await?;
        let code = loop {
            match self.take_code() {
                Some(code) => break code,
                None => self.read().await?,
            }
        };
        while entry.in_background() && !matches(&entry.printed, &self.lines()) {
            self.read().await?;
        }
        ensure!(code == entry.exit, "exit code {code} instead of {}", entry.exit);
        ensure!(matches(&entry.printed, &self.lines()), "the output differs");
        Ok(())
    }

    /// Removes the exit code from the output, once it has been printed.
    fn take_code(&mut self) -> Option<i32> {
        let begin = self.seen.iter().position(|byte| *byte == MARK)?;
        let end = begin + self.seen[begin..].iter().position(|byte| *byte == b'\n')?;
        let code = std::str::from_utf8(&self.seen[begin + 1..end]).ok()?.parse().ok()?;
        self.seen.drain(begin..=end);
        Some(code)
    }

    async fn read(&mut self) -> Result<()> {
        if self.output.read_buf(&mut self.seen).await? == 0 {
            bail!("the shell has ended");
        }
        Ok(())
    }

    fn printed(&self) -> String {
        let text = String::from_utf8_lossy(&self.seen).into_owned();
        if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
    }

    fn lines(&self) -> Vec<String> {
        self.printed().lines().map(|line| line.trim_end().to_owned()).collect()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = self.process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let _ended = group.map(|group| kill_process_group(group, Signal::KILL));
    }
}

/// Returns whether lines match the expected ones, in which `...` matches any lines.
fn matches(expected: &[String], lines: &[String]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "..." => (0..=lines.len()).any(|skip| matches(rest, &lines[skip..])),
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, lines)| line_matches(first, line) && matches(rest, lines))
        }
    }
}

/// Returns whether a line matches the expected one, in which `[..]` matches any text.
fn line_matches(expected: &str, line: &str) -> bool {
    match expected.split_once("[..]") {
        None => expected.trim_end() == line,
        Some((before, after)) => line.strip_prefix(before).is_some_and(|line| {
            (0..=line.len()).filter(|at| line.is_char_boundary(*at)).any(|at| line_matches(after, &line[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &str, printed: &str, same: bool) {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(matches(&lines(expected), &lines(printed)), same, "{expected:?} {printed:?}");
    }

    #[test]
    fn lines_are_compared() {
        check("a\nb", "a\nb", true);
        check("a", "a\nb", false);
        check("a\nb", "a", false);
        check("", "", true);
        check("", "a", false);
        check("...", "", true);
        check("a\n...\nd", "a\nb\nc\nd", true);
        check("a\n...\nd", "a\nb\nd\nc", false);
        check("a [..] c", "a b c", true);
        check("[..]m [..]", "4m 3s", true);
        check("a [..] c", "a b d", false);
        check("a[..]", "ä", false);
    }

    #[test]
    fn transcripts_are_read() {
        let entries = parse("$ cat <<EOF\n> a\n>   b\n> EOF\n? 3\na\n  > b\n? 1\n$ true").unwrap();
        let printed = ["a", "  > b", "? 1"].map(str::to_owned).to_vec();
        let first = Entry { command: "cat <<EOF\na\n  b\nEOF".to_owned(), exit: 3, printed };
        assert_eq!(entries, [first, Entry { command: "true".to_owned(), ..Entry::default() }]);
        assert!(parse("a\n$ true").is_err());
        assert!(parse("").is_err());
    }

    async fn played(transcript: &str) -> Result<()> {
        let dir = tempfile::tempdir()?;
        play(transcript, Path::new("kubeconfig"), Path::new("/nowhere/kubectl"), dir.path()).await
    }

    #[tokio::test]
    async fn a_session_is_one_shell() {
        let session = "$ a=1; echo $KUBECONFIG\nkubeconfig\n$ (read b; echo $a$b; exit 2)\n? 2\n1\n\
                       $ cat <<EOF | tr a b\n> a\n> EOF\nb\n\
                       $ mkfifo pipe; (echo begun; cat pipe) &\nbegun\n$ echo x >pipe; wait\nx";
        played(session).await.unwrap();
    }

    #[tokio::test]
    async fn what_differs_is_shown() {
        for (session, why) in [
            ("$ echo b\na", "--- printed\nb\n---"),
            ("$ exit_with() { return 3; }; exit_with", "exit code 3 instead of 0"),
            ("$ exit", "the shell has ended"),
        ] {
            let error = played(session).await.unwrap_err();
            assert!(format!("{error:#}").contains(why), "{error:#}");
        }
    }
}
