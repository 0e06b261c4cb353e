//! Expectations of `why`: its findings, and that following a harmless next step unblocks the object.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use billhook_objects::{ApiVersion, GroupKind, ObjectKey};
use serde::Deserialize;
use serde_json::Value;

use super::{
    admin::parse_key,
    call::{Called, words},
    stage::Stage,
};

/// What no command may contain: it removes more than the evidence supports, or what was to be cleaned up is never cleaned up.
const HARMFUL: [&str; 8] = [
    "/finalize ",
    "/finalize?",
    "finalizers\":null",
    "finalizers\":[]",
    "--force",
    "--grace-period",
    "--all",
    "etcdctl",
];

/// What `why -o json` finds about an object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Why {
    /// The object.
    pub object: String,
    /// Its state; not compared if it is not set.
    #[serde(default)]
    pub state: Option<String>,
    /// The code of the root cause; none if there must be none.
    #[serde(default)]
    pub code: Option<String>,
    /// The object of the root cause.
    #[serde(default)]
    pub cause: Option<String>,
    /// Texts that its sentence contains.
    #[serde(default)]
    pub says: Vec<String>,
    /// Who has to act: `NAME: STATE`, with the end of a name.
    #[serde(default)]
    pub responsible: Option<String>,
    /// Texts of which each is part of a `PATH: VALUE` of the evidence.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// Commands among the next steps, each as `RISK: COMMAND`.
    #[serde(default)]
    pub commands: Vec<String>,
    /// Whether the command without risk is followed, after which the object and these others must be gone.
    #[serde(default)]
    pub follow: Option<Vec<String>>,
}

impl Stage<'_> {
    /// Checks the findings of a command.
    pub(super) async fn explained(&self, called: &Called, expected: &[Why]) -> Result<()> {
        if expected.is_empty() {
            return Ok(());
        }
        let document = document(&called.stdout).context("why needs -o json to be checked")?;
        ensure!(document["version"] == 1, "the version is {}", document["version"]);
        for why in expected {
            let finding = find(&document, &why.object)?;
            why.check(finding).with_context(|| format!("{}: {finding:#}", why.object))?;
        }
        for why in expected {
            let Some(others) = &why.follow else { continue };
            let steps = list(&find(&document, &why.object)?["nextSteps"]);
            let harmless = steps.iter().filter(|step| step["risk"] == "none").find_map(|step| step["command"].as_str());
            let command = harmless.ok_or_else(|| anyhow!("{}: no command has the risk none", why.object))?;
            self.follow(command).await.with_context(|| format!("follow {command:?}"))?;
            for object in std::iter::once(&why.object).chain(others) {
                self.gone(&parse_key(object)?).await.with_context(|| format!("after {command:?}"))?;
            }
        }
        Ok(())
    }

    /// Does what kubectl would do.
    async fn follow(&self, command: &str) -> Result<()> {
        let words = words(command);
        let (mut positional, mut namespace, mut replicas, mut patch) = (Vec::new(), None, None, None);
        let mut rest = words.iter().map(String::as_str);
        ensure!(rest.next() == Some("kubectl"), "not a command of kubectl");
        while let Some(word) = rest.next() {
            match word {
                "-n" => namespace = rest.next(),
                "-p" => patch = rest.next(),
                "--type=json" | "--type=merge" => {}
                _ if word.starts_with("--replicas=") => replicas = word.strip_prefix("--replicas="),
                _ if word.starts_with('-') => bail!("unknown flag {word}"),
                _ => positional.push(word),
            }
        }
        let (verb, kind, name) = match positional.as_slice() {
            [verb, kind, name] => (*verb, *kind, *name),
            [verb, both] => both.split_once('/').map(|(kind, name)| (*verb, kind, name)).context("no name")?,
            _ => bail!("expected a verb and an object"),
        };
        let key = ObjectKey::new(self.admin.kind_named(kind).await?, namespace, name);
        match (verb, replicas, patch) {
            ("create", None, None) => {
                ensure!(kind == "namespace", "only a Namespace is created without more");
                self.admin.create(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")).await
            }
            ("delete", None, None) => self.admin.request_deletion(&key, "Background").await,
            ("scale", Some(replicas), None) => {
                let replicas: u32 = replicas.parse()?;
                self.admin.patch(&key, &serde_json::json!({"spec": {"replicas": replicas}})).await
            }
            ("patch", None, Some(patch)) if command.contains("--type=merge") => {
                self.admin.patch(&key, &serde_json::from_str(patch)?).await
            }
            ("patch", None, Some(patch)) => self.admin.json_patch(&key, patch).await,
            _ => bail!("not a command that is known here"),
        }
    }

    async fn gone(&self, key: &ObjectKey) -> Result<()> {
        for _ in 0..600 {
            if !self.admin.any(key).await? {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("{key} still exists after 60 s")
    }
}

impl Why {
    fn check(&self, finding: &Value) -> Result<()> {
        let root = &finding["rootCause"];
        let code = root["code"].as_str();
        ensure!(code == self.code.as_deref(), "the code is {code:?}, not {:?}", self.code);
        if let Some(state) = &self.state {
            ensure!(finding["state"] == **state, "the state is {}, not {state}", finding["state"]);
        }
        if let Some(cause) = &self.cause {
            let found = key(&root["object"])?;
            ensure!(found == parse_key(cause)?, "the cause is {found}, not {cause}");
        }
        let message = root["message"].as_str().unwrap_or_default();
        for text in &self.says {
            ensure!(message.contains(text.as_str()), "{message:?} does not say {text:?}");
        }
        if let Some(responsible) = &self.responsible {
            let text = |field: &str| root["responsible"][field].as_str().unwrap_or_default();
            let found = format!("{}: {}", text("name"), text("state"));
            ensure!(found.ends_with(responsible.as_str()), "responsible is {found:?}, not {responsible:?}");
        }
        let mut evidence = Vec::new();
        facts(list(&finding["causes"]), &mut evidence);
        ensure!(code.is_none() || !evidence.is_empty(), "there is a root cause, and no evidence");
        for text in &self.evidence {
            ensure!(evidence.iter().any(|fact| fact.contains(text.as_str())), "no evidence has {text:?}: {evidence:?}");
        }
        let steps = list(&finding["nextSteps"]);
        let commands =
            steps.iter().filter_map(|step| Some(format!("{}: {}", step["risk"].as_str()?, step["command"].as_str()?)));
        let commands: Vec<_> = commands.collect();
        for wanted in &self.commands {
            ensure!(commands.contains(wanted), "no command is {wanted:?}: {commands:?}");
        }
        for command in &commands {
            let harmful = HARMFUL.iter().find(|words| command.contains(*words));
            ensure!(harmful.is_none(), "{command:?} does harm");
        }
        Ok(())
    }
}

/// Returns the document that `why -o json` prints, or the one among the events of `rehearse -o json`.
fn document(stdout: &str) -> Result<Value> {
    let mut lines = stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    match lines.find(|line| line["event"] == "rehearsed") {
        Some(mut rehearsed) => Ok(rehearsed["why"].take()),
        None => Ok(serde_json::from_str(stdout)?),
    }
}

fn find<'a>(document: &'a Value, object: &str) -> Result<&'a Value> {
    let wanted = parse_key(object)?;
    let mut findings = list(&document["findings"]).iter();
    let found = findings.find(|finding| key(&finding["object"]).is_ok_and(|found| found == wanted));
    found.ok_or_else(|| anyhow!("there is no finding about {object}: {document:#}"))
}

/// Reads an object of the document.
fn key(object: &Value) -> Result<ObjectKey> {
    let text = |field: &str| object[field].as_str();
    let version = ApiVersion::parse(text("apiVersion").context("an object without apiVersion")?)?;
    let kind = GroupKind::new(version.group(), text("kind").context("an object without kind")?);
    Ok(ObjectKey::new(kind, text("namespace"), text("name").context("an object without name")?))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Collects `PATH: VALUE` of all causes.
fn facts(causes: &[Value], found: &mut Vec<String>) {
    for cause in causes {
        let shown = |fact: &Value| {
            let text = |field: &str| fact[field].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("path"), text("value"))
        };
        found.extend(list(&cause["evidence"]).iter().map(shown));
        facts(list(&cause["causes"]), found);
    }
}
