//! Builds billhook as a static program, and checks that programs are static.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::cargo;

/// The profile of the image that tests push: it compiles in a fraction of the time.
const FOR_TESTS: &str = "dev";

/// Builds billhook as a static program without the sandbox, and returns its path.
///
/// The C library is glibc, linked statically: it needs nothing to be installed beside a C compiler, unlike musl, and its
/// allocator is faster. It resolves names by files and by DNS without libraries.
pub(super) fn build(profile: &str) -> Result<PathBuf> {
    let host = host()?;
    ensure!(host.contains("-linux-"), "images are built on Linux, but this machine is {host}");
    let mut command = cargo();
    // With a target, the flags are not those of build scripts and macros.
    command.args(["build", "--locked", "--package=billhook", "--bin=billhook", "--no-default-features"]);
    command.args(["--profile", profile, "--target", &host, "--message-format=json-render-diagnostics"]);
    command.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static").stderr(Stdio::inherit());
    if profile == FOR_TESTS {
        // In a folder of its own, because cargo locks a folder while it compiles.
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        command.arg("--quiet").arg("--target-dir").arg(Path::new(&target).join("image-of-tests"));
        // It runs for seconds: what is optimized for the other tests would only take longer to compile.
        for setting in ["debug", "build-override.debug", "package.'*'.opt-level", "package.billhook-cluster.opt-level"]
        {
            command.arg("--config").arg(format!("profile.dev.{setting}=0"));
        }
        command.env_remove("CARGO_PROFILE_DEV_DEBUG").env("CARGO_INCREMENTAL", "0");
    }
    let output = command.output().context("failed to run cargo")?;
    if !output.status.success() {
        bail!(
            "failed to build billhook; to link it statically, the C library must be installed with its static archive"
        );
    }
    let messages = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let mut programs = messages.filter_map(|message: Value| message["executable"].as_str().map(PathBuf::from));
    programs.next_back().context("cargo built no program")
}

/// Builds the program of the image that tests push. It can be built while other tests run.
pub(crate) fn build_for_tests() -> Result<PathBuf> {
    build(FOR_TESTS)
}

/// Returns the target that rustc builds for by default.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("failed to run rustc")?;
    let text = String::from_utf8(output.stdout).context("rustc printed no text")?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not name its host")?.to_owned())
}

/// Returns the architecture of a program, as images name it, and fails if the program needs a loader or libraries.
pub(super) fn architecture_of_static(program: &[u8], path: &Path) -> Result<&'static str> {
    let elf = Elf::read(program).with_context(|| format!("{} is not a program for 64-bit Linux", path.display()))?;
    ensure!(
        !elf.has_interpreter,
        "{} is linked dynamically: it cannot run in an image without libraries",
        path.display()
    );
    match elf.machine {
        62 => Ok("amd64"),
        183 => Ok("arm64"),
        other => bail!("{} is built for the unknown architecture {other}", path.display()),
    }
}

/// What decides whether a program runs, from its header: <https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html>.
struct Elf {
    machine: u16,
    has_interpreter: bool,
}

impl Elf {
    /// Reads a little-endian ELF file of 64 bits.
    fn read(file: &[u8]) -> Option<Self> {
        file.strip_prefix(b"\x7fELF\x02\x01")?;
        let half = |at: usize| file.get(at..)?.first_chunk().copied().map(u16::from_le_bytes);
        let start = usize::try_from(u64::from_le_bytes(*file.get(32..)?.first_chunk()?)).ok()?;
        let (size, count) = (usize::from(half(54)?), usize::from(half(56)?));
        let mut has_interpreter = false;
        for index in 0..count {
            let at = start.checked_add(index.checked_mul(size)?)?;
            let kind = u32::from_le_bytes(*file.get(at..)?.first_chunk()?);
            // PT_INTERP
            has_interpreter |= kind == 3;
        }
        Some(Self { machine: half(18)?, has_interpreter })
    }
}
