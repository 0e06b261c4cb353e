//! Translates a scenario of commands to one of DeployItems: each `apply` and `delete` becomes an action on an item of that
//! name, and the expectations of objects are kept.

use super::{
    Expect, File, ItemAction, Scenario, Step,
    call::words,
    release::{Release, Removal},
};

/// The reason why a scenario has no equivalent for DeployItems.
type Reason = String;

impl Scenario {
    /// Returns the scenario with DeployItems.
    ///
    /// # Errors
    ///
    /// Returns the reason if it has no equivalent.
    pub fn with_items(mut self) -> Result<Self, Reason> {
        if self.helm || self.kubectl || self.steps.iter().any(|step| step.console.is_some()) {
            return Err("it runs external programs".to_owned());
        }
        if !self.gives_policy() {
            return Err("it has no policy".to_owned());
        }
        if !self.namespace {
            return Err("the namespace of the item does not exist".to_owned());
        }
        for step in &mut self.steps {
            step.translate()?;
        }
        if !self.deploys_items() {
            return Err("it applies and deletes nothing".to_owned());
        }
        Ok(self)
    }

    /// Returns whether there is a policy, in its own file or in one of Landscaper's documents.
    fn gives_policy(&self) -> bool {
        let has = |file: &File| {
            let text = file.text();
            text.contains("kind: ProviderConfiguration") || text.contains("kind: DeployItem")
        };
        let by_flag = |step: &Step| step.billhook.as_ref().is_some_and(|line| line.contains("--policy"));
        let in_fixture = self.fixtures.keys().any(|name| name == "item.yaml");
        in_fixture || self.files.values().any(has) || self.steps.iter().any(by_flag)
    }
}

impl Step {
    fn translate(&mut self) -> Result<(), Reason> {
        if let Some(line) = self.billhook.take() {
            for (not, why) in [
                (self.restricted, "a user without permissions runs a command"),
                (self.terminal.is_some(), "the user is asked at a terminal"),
                (!self.faults.is_empty(), "requests of a command have faults"),
                (self.during.iter().any(|during| during.interrupt), "Ctrl-C is pressed"),
                (self.during.iter().any(|during| during.when.is_some()), "an event waits for a line of output"),
                (self.expect.exit == 4, "a safety check of the command line rejects the command"),
            ] {
                if not {
                    return Err(why.to_owned());
                }
            }
            self.deploy_item = Some(action(&line, std::mem::take(&mut self.stdin))?);
        }
        self.expect.translate();
        Ok(())
    }
}

/// Translates a command line.
fn action(line: &str, stdin: String) -> Result<ItemAction, Reason> {
    let words = words(line);
    let (verb, mut rest) = match words.split_first() {
        Some((verb, rest)) if verb == "apply" || verb == "delete" => {
            (verb.as_str(), rest.iter().map(String::as_str).peekable())
        }
        _ => return Err(format!("billhook {} has no equivalent", words.first().map_or("", String::as_str))),
    };
    let name =
        rest.next_if(|word| !word.starts_with('-')).ok_or_else(|| format!("billhook {verb} names no release"))?;
    let mut release = Release { name: name.to_owned(), stdin, wait: true, ..Release::default() };
    let mut removal = Removal { name: name.to_owned(), ..Removal::default() };
    while let Some(option) = rest.next() {
        let mut value = || rest.next().map(str::to_owned).ok_or_else(|| format!("{option} has no value"));
        match (verb, option) {
            (_, "--policy") => release.policy = Some(value()?),
            (_, "--timeout") => release.timeout = Some(value()?),
            (_, "-n") => release.namespace = Some(value()?),
            (_, "--yes") => {}
            ("apply", "-f") => {
                while let Some(file) = rest.next_if(|word| *word == "-" || !word.starts_with('-')) {
                    release.files.push(file.to_owned());
                }
            }
            ("apply", "--wait=false") => release.wait = false,
            ("delete", "--ignore-not-found") => removal.ignore_not_found = true,
            ("delete", "--target") => {
                let target = value()?;
                let (name, file) =
                    target.split_once('=').ok_or_else(|| format!("--target {target}: NAME=FILE is needed"))?;
                if name.contains(char::is_uppercase) {
                    return Err(format!("{name} is not a valid name of a Target"));
                }
                removal.targets.push((name.to_owned(), file.to_owned()));
            }
            _ => return Err(format!("{option} of billhook {verb} has no equivalent")),
        }
    }
    if verb == "apply" {
        return Ok(ItemAction::Release(release));
    }
    let Release { namespace, policy, timeout, .. } = release;
    Ok(ItemAction::Remove(Removal { namespace, policy, timeout, ..removal }))
}

/// The label of the release on its objects, and the label of the item.
const LABELS: [&str; 2] = ["billhook.dev/release", "manifest.deployer.landscaper.gardener.cloud/deployitem"];

impl Expect {
    /// Drops the expectations of output, and expects the record and label of the item in place of those of the release.
    fn translate(&mut self) {
        let Self { stdout, stderr, silent, requests_at_most, requests_of, .. } = self;
        [stdout, stderr, silent].into_iter().for_each(Vec::clear);
        *requests_at_most = None;
        requests_of.clear();
        let record = |object: &mut String| *object = object.replace("/billhook.", "/billhook.deployitem.");
        self.stays.iter_mut().chain(&mut self.absent).for_each(record);
        for wanted in self.holds.values_mut() {
            let Some(labels) = wanted.pointer_mut("/metadata/labels").and_then(|labels| labels.as_object_mut()) else {
                continue;
            };
            let release = labels.remove(LABELS[0]);
            let name = release.as_ref().and_then(|release| release.as_str()?.split('.').next());
            labels.extend(name.map(|name| (LABELS[1].to_owned(), name.into())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let found = match action(line, String::new()) {
            Ok(action) => format!("{action:?}"),
            Err(reason) => reason,
        };
        assert!(found.contains(expected), "{line}: {found}");
    }

    #[test]
    fn calls_are_read() {
        check(
            "apply web -f a.yaml b.yaml --policy p.yaml",
            r#"files: ["a.yaml", "b.yaml"], stdin: "", policy: Some("p.yaml")"#,
        );
        check("apply web -f - --timeout 2s --wait=false", r#"timeout: Some("2s"), wait: false"#);
        check("apply web -n other -f a.yaml", r#"namespace: Some("other")"#);
        check(
            "delete web --target edge=second.kubeconfig --timeout 4s --yes",
            r#"targets: [("edge", "second.kubeconfig")]"#,
        );
        check("apply web -f a.yaml --adopt", "--adopt of billhook apply has no equivalent");
        check("apply web -R -f all", "-R of billhook apply has no equivalent");
        check("delete -f a.yaml", "names no release");
        check("plan delete web", "billhook plan has no equivalent");
        check("delete web --cascade orphan", "--cascade of billhook delete has no equivalent");
    }

    #[test]
    fn what_is_expected_of_objects_stays() {
        let expect = serde_json::json!({
            "stdout": ["deleted"], "absent": ["Secret/s-a/billhook.web"], "stays": ["ConfigMap/s-a/b"],
            "holds": {"ConfigMap/s-a/a": {"metadata": {"labels": {"billhook.dev/release": "web.s-a"}}}},
        });
        let mut expect: Expect = serde_json::from_value(expect).unwrap();
        expect.translate();
        assert!(expect.stdout.is_empty());
        assert_eq!(
            (expect.absent, expect.stays),
            (vec!["Secret/s-a/billhook.deployitem.web".into()], vec!["ConfigMap/s-a/b".into()])
        );
        let labels = &expect.holds["ConfigMap/s-a/a"]["metadata"]["labels"];
        assert_eq!(*labels, serde_json::json!({"manifest.deployer.landscaper.gardener.cloud/deployitem": "web"}));
    }
}
