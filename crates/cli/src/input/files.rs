//! Reads files, folders and standard input.

use std::{
    fs::FileType,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use billhook_objects::parallel;

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
        } else if session.path(path).is_dir() {
            all.read_folder(&session.directory, path, recursive);
        } else {
            all.add(path, read_file(session, path));
        }
    }
    all
}

impl SourceTexts {
    /// Reads the files of a folder in the order of their names. A relative path starts at the base.
    pub(crate) fn read_folder(&mut self, base: &Path, path: &Path, recursive: bool) {
        let mut folder = Folder::default();
        folder.collect(base, path, recursive, &mut self.problems);
        if folder.files.is_empty() {
            self.problems.push(format!("{} contains no .yaml, .yml or .json files", path.display()).into());
            if folder.subfolders && !recursive {
                self.hints.push("use -R to read subdirectories".to_owned());
            }
        }
        let read = parallel::map(&folder.files, |file| read_path(base, file));
        folder.files.iter().zip(read).for_each(|(file, read)| self.add(file, read));
    }

    fn add(&mut self, path: &Path, read: Result<String, Problem>) {
        match read {
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
    if path != Path::new("-") {
        return read_path(&session.directory, path);
    }
    let mut stdin = session.take_stdin().ok_or("standard input can be read only once")?;
    let mut content = String::new();
    stdin.read_to_string(&mut content).map_err(|error| unreadable(path, &error))?;
    // The program at the other end of a pipe failed: this is no version without objects.
    if content.trim().is_empty() { Err("standard input is empty".into()) } else { Ok(content) }
}

fn read_path(base: &Path, path: &Path) -> Result<String, Problem> {
    std::fs::read_to_string(base.join(path)).map_err(|error| unreadable(path, &error))
}

/// Returns the problem of a path that cannot be read.
pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Problem {
    Problem::from(match error.kind() {
        std::io::ErrorKind::NotFound => format!("{} does not exist", path.display()),
        std::io::ErrorKind::InvalidData => format!("{} is not valid UTF-8", path.display()),
        _ => format!("failed to read {}: {error}", path.display()),
    })
}

/// The manifest files of a folder, in the order of their paths.
#[derive(Default)]
struct Folder {
    files: Vec<PathBuf>,
    subfolders: bool,
}

impl Folder {
    fn collect(&mut self, base: &Path, folder: &Path, recursive: bool, problems: &mut Vec<Problem>) {
        let entries = std::fs::read_dir(base.join(folder)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return problems.push(format!("failed to read {}: {error}", folder.display()).into()),
        };
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = folder.join(entry.file_name());
            // Links to folders are not followed: they may form a cycle.
            let kind = entry.file_type();
            if kind.as_ref().is_ok_and(FileType::is_dir) {
                self.subfolders = true;
                if recursive {
                    self.collect(base, &path, recursive, problems);
                }
            } else if is_manifest(&path) {
                let target = || std::fs::metadata(base.join(&path)).map(|found| found.file_type());
                match kind.ok().filter(FileType::is_file).map_or_else(target, Ok) {
                    // A link to a folder.
                    Ok(kind) if kind.is_dir() => {}
                    // Opening a named pipe would wait for its writer.
                    Ok(kind) if !kind.is_file() => {
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
