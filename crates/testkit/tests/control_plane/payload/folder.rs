//! The files of a real payload, read as lines of text: which documents count, what their objects are, and how a version of them
//! with other annotations or fewer documents is written. It shares no code with what it tests.

use std::{collections::BTreeMap, fs, io::Write as _, path::Path, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use billhook_objects::{GroupKind, ObjectKey};

const INCLUDE: &str = "include.release.openshift.io/self-managed-high-availability";

/// The documents of a payload, by their files.
#[derive(Clone)]
pub struct Folder {
    files: BTreeMap<String, Vec<Document>>,
}

/// A document of a file.
#[derive(Clone)]
struct Document {
    text: String,
    key: ObjectKey,
}

impl Folder {
    /// Reads the payload of the fixtures; nothing if it does not exist, which is reported.
    pub fn read() -> Result<Option<Self>> {
        let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures");
        let root = std::env::var_os("BILLHOOK_FIXTURES").map_or_else(|| PathBuf::from(beside), PathBuf::from);
        let folder = root.join("openshift-payload");
        let Ok(entries) = fs::read_dir(&folder) else {
            let shown = folder.display();
            writeln!(std::io::stderr(), "skipped: {shown} does not exist; set BILLHOOK_FIXTURES to its parent")?;
            return Ok(None);
        };
        let mut files = BTreeMap::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).context("the name of a file")?.to_owned();
            let text = fs::read_to_string(&path)?;
            let documents = text.split("\n---").filter(|text| text.lines().any(|line| line.starts_with("kind:")));
            files.insert(name, documents.map(Document::of).collect::<Result<_>>()?);
        }
        Ok(Some(Self { files }))
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns the objects of the documents that count for the feature set `Default`, in the order of the payload, with their
    /// run levels.
    pub fn counting(&self) -> Vec<(u32, ObjectKey)> {
        let of_file = |(name, documents): (&String, &Vec<Document>)| {
            let level = name.split('_').nth(1).and_then(|level| level.parse().ok()).unwrap_or_default();
            let counting = documents.iter().filter(|document| document.counts());
            counting.map(|document| (level, document.key.clone())).collect::<Vec<_>>()
        };
        self.files.iter().flat_map(of_file).collect()
    }

    /// Returns the payload with an annotation `true` on the documents of these objects that count.
    pub fn annotated(&self, objects: &[ObjectKey], annotation: &str) -> Result<Self> {
        let line = format!("\n  annotations:\n    {annotation}: \"true\"\n");
        let mut count = 0;
        let mut changed = self.clone();
        for document in changed.files.values_mut().flatten().filter(|one| one.counts() && objects.contains(&one.key)) {
            document.text = document.text.replacen("\n  annotations:\n", &line, 1);
            count += usize::from(document.annotation(annotation).is_some());
        }
        ensure!(count == objects.len(), "annotated {count} of {objects:?}");
        Ok(changed)
    }

    /// Returns the payload without the documents of these objects.
    pub fn without(&self, objects: &[ObjectKey]) -> Self {
        let mut changed = self.clone();
        for documents in changed.files.values_mut() {
            documents.retain(|document| !objects.contains(&document.key));
        }
        changed.files.retain(|_, documents| !documents.is_empty());
        changed
    }

    /// Writes the files.
    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for (name, documents) in &self.files {
            let texts: Vec<&str> = documents.iter().map(|document| document.text.as_str()).collect();
            fs::write(folder.join(name), texts.join("\n---\n"))?;
        }
        Ok(())
    }
}

impl Document {
    fn of(text: &str) -> Result<Self> {
        let at_margin = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let kind = at_margin("kind:").context("a document without kind")?;
        let version = at_margin("apiVersion:").context("a document without apiVersion")?;
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let metadata = text.lines().skip_while(|line| *line != "metadata:").skip(1);
        let metadata: Vec<&str> = metadata.take_while(|line| line.starts_with(' ')).collect();
        let field = |name: &str| metadata.iter().find_map(|line| line.strip_prefix(name)).map(|v| v.trim().to_owned());
        let name = field("  name:").with_context(|| format!("a {kind} without name"))?;
        let key = ObjectKey::new(GroupKind::new(group, kind), field("  namespace:").as_deref(), name);
        // Directives before the first document, and the rest of a separator line, are no content.
        let text = text.trim_start_matches("---").trim_start_matches('\n').to_owned();
        Ok(Self { text, key })
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        let line = self.text.lines().map(str::trim).find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().trim_matches('"'))
    }

    /// Returns whether the document counts, without any feature gate and with all capabilities.
    fn counts(&self) -> bool {
        let sets = self.annotation("release.openshift.io/feature-set");
        let known = ["Default", "OKD", "CustomNoUpgrade", "DevPreviewNoUpgrade", "TechPreviewNoUpgrade"];
        let in_set = sets.is_none_or(|sets| {
            sets.split(',').all(|set| known.contains(&set)) && sets.split(',').any(|s| s == "Default")
        });
        let gate = self.annotation("release.openshift.io/feature-gate");
        in_set && gate.is_none_or(|gate| gate.starts_with('-')) && self.annotation(INCLUDE) == Some("true")
    }
}
