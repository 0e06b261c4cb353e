//! Files, folders and standard input.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    error::{CommandError, Problem},
    session::Session,
};

/// A text and the name the user knows it by.
pub(crate) struct Text {
    /// The file as the user named it, or `-`.
    pub(crate) name: Arc<str>,
    /// What it says.
    pub(crate) content: String,
}

/// What the paths of a call hold, and what is wrong with them.
#[derive(Default)]
pub(crate) struct Texts {
    pub(crate) texts: Vec<Text>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) hints: Vec<String>,
}

/// Reads what the paths name, in their order; folders sorted by name.
pub(crate) fn read_texts(session: &Session, paths: &[PathBuf], recursive: bool) -> Texts {
    let mut all = Texts::default();
    for path in paths {
        let name = path.display();
        if ["http://", "https://"].iter().any(|scheme| path.to_string_lossy().starts_with(scheme)) {
            all.problems.push(format!("{name} is an address, and only files are read").into());
            all.hints.push(format!("curl -fsSL {name} | billhook … -f -"));
        } else if !session.path(path).is_dir() {
            all.read(session, path);
        } else {
            let mut folder = Folder::default();
            folder.enter(session, path, recursive, &mut all.problems);
            if folder.files.is_empty() {
                all.problems.push(format!("{name} holds no file that ends in .yaml, .yml or .json").into());
                if folder.subfolders && !recursive {
                    all.hints.push("-R goes into subfolders".to_owned());
                }
            }
            folder.files.iter().for_each(|file| all.read(session, file));
        }
    }
    all
}

impl Texts {
    fn read(&mut self, session: &Session, path: &Path) {
        match read_file(session, path) {
            Ok(content) => self.texts.push(Text { name: path.display().to_string().into(), content }),
            Err(problem) => self.problems.push(problem),
        }
    }

    /// The texts, if nothing is wrong.
    pub(crate) fn check(self) -> Result<Vec<Text>, CommandError> {
        let Self { texts, problems, hints } = self;
        if problems.is_empty() { Ok(texts) } else { Err(CommandError { hints, ..CommandError::inputs(problems) }) }
    }
}

/// Reads one file, or standard input where it is named `-`.
pub(crate) fn read_file(session: &Session, path: &Path) -> Result<String, Problem> {
    let failed = |error: std::io::Error| {
        Problem::from(match error.kind() {
            std::io::ErrorKind::NotFound => format!("{} does not exist", path.display()),
            std::io::ErrorKind::InvalidData => format!("{} is not text in UTF-8", path.display()),
            _ => format!("failed to read {}: {error}", path.display()),
        })
    };
    if path != Path::new("-") {
        return std::fs::read_to_string(session.path(path)).map_err(failed);
    }
    let mut stdin = session.take_stdin().ok_or("standard input can be read only once")?;
    let mut content = String::new();
    stdin.read_to_string(&mut content).map_err(failed)?;
    Ok(content)
}

/// The manifests of a folder, in the order of their paths.
#[derive(Default)]
struct Folder {
    files: Vec<PathBuf>,
    subfolders: bool,
}

impl Folder {
    fn enter(&mut self, session: &Session, folder: &Path, recursive: bool, problems: &mut Vec<Problem>) {
        let entries = std::fs::read_dir(session.path(folder)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return problems.push(format!("failed to read {}: {error}", folder.display()).into()),
        };
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = folder.join(entry.file_name());
            // A link to a folder is not followed: it may lead in circles.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.subfolders = true;
                if recursive {
                    self.enter(session, &path, recursive, problems);
                }
            } else if is_manifest(&path) && session.path(&path).is_file() {
                self.files.push(path);
            }
        }
    }
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
}
