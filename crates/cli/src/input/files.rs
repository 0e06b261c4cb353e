//! Reads files, folders and standard input.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    error::{CommandError, Exit, Problem},
    session::Session,
};

/// The content of a file or of standard input.
pub(crate) struct SourceText {
    /// The file as the user named it, or `-`.
    pub(crate) name: Arc<str>,
    pub(crate) content: String,
}

/// The contents of all paths, and the problems of those that cannot be read.
#[derive(Default)]
pub(crate) struct SourceTexts {
    pub(crate) texts: Vec<SourceText>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) hints: Vec<String>,
}

/// Reads the paths in their order, and the files of a folder in the order of their names.
pub(crate) fn read_texts(session: &Session, paths: &[PathBuf], recursive: bool) -> SourceTexts {
    let mut all = SourceTexts::default();
    for path in paths {
        let name = path.display();
        if ["http://", "https://"].iter().any(|scheme| path.to_string_lossy().starts_with(scheme)) {
            all.problems.push(format!("{name} is a URL; only files and directories are supported").into());
            all.hints.push(format!("run curl -fsSL {name} | billhook … -f -"));
        } else if !session.path(path).is_dir() {
            all.read(session, path);
        } else {
            let mut folder = Folder::default();
            folder.collect(session, path, recursive, &mut all.problems);
            if folder.files.is_empty() {
                all.problems.push(format!("{name} contains no .yaml, .yml or .json files").into());
                if folder.subfolders && !recursive {
                    all.hints.push("use -R to read subdirectories".to_owned());
                }
            }
            folder.files.iter().for_each(|file| all.read(session, file));
        }
    }
    all
}

impl SourceTexts {
    fn read(&mut self, session: &Session, path: &Path) {
        match read_file(session, path) {
            Ok(content) => self.texts.push(SourceText { name: path.display().to_string().into(), content }),
            Err(problem) => self.problems.push(problem),
        }
    }

    /// Returns the texts, or all problems if there are any.
    pub(crate) fn check(self) -> Result<Vec<SourceText>, CommandError> {
        let Self { texts, problems, hints } = self;
        if problems.is_empty() {
            Ok(texts)
        } else {
            Err(CommandError { hints, ..CommandError::all(Exit::Input, problems) })
        }
    }
}

/// Reads a file, or standard input if the path is `-`.
pub(crate) fn read_file(session: &Session, path: &Path) -> Result<String, Problem> {
    let failed = |error: std::io::Error| {
        Problem::from(match error.kind() {
            std::io::ErrorKind::NotFound => format!("{} does not exist", path.display()),
            std::io::ErrorKind::InvalidData => format!("{} is not valid UTF-8", path.display()),
            _ => format!("failed to read {}: {error}", path.display()),
        })
    };
    if path != Path::new("-") {
        return std::fs::read_to_string(session.path(path)).map_err(failed);
    }
    let mut stdin = session.take_stdin().ok_or("standard input can be read only once")?;
    let mut content = String::new();
    stdin.read_to_string(&mut content).map_err(failed)?;
    // The program at the other end of a pipe failed: this is no version without objects.
    if content.trim().is_empty() { Err("standard input is empty".into()) } else { Ok(content) }
}

/// The manifest files of a folder, in the order of their paths.
#[derive(Default)]
struct Folder {
    files: Vec<PathBuf>,
    subfolders: bool,
}

impl Folder {
    fn collect(&mut self, session: &Session, folder: &Path, recursive: bool, problems: &mut Vec<Problem>) {
        let entries = std::fs::read_dir(session.path(folder)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return problems.push(format!("failed to read {}: {error}", folder.display()).into()),
        };
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = folder.join(entry.file_name());
            // Links to folders are not followed: they may form a cycle.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.subfolders = true;
                if recursive {
                    self.collect(session, &path, recursive, problems);
                }
            } else if is_manifest(&path) {
                match std::fs::metadata(session.path(&path)) {
                    // A link to a folder.
                    Ok(found) if found.is_dir() => {}
                    // Opening a named pipe would wait for its writer.
                    Ok(found) if !found.is_file() => {
                        problems.push(format!("{} is not a regular file", path.display()).into())
                    }
                    // A link without a target fails when it is read: to skip it would prune its objects.
                    _ => self.files.push(path),
                }
            }
        }
    }
}

/// Returns whether a file of a folder is read as a manifest, by its name.
pub(crate) fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
}
