use std::{fs, os::unix::fs::symlink, path::PathBuf};

use notify::{
    Event, EventKind,
    event::{AccessKind, AccessMode, CreateKind, Flag, MetadataKind, ModifyKind, RemoveKind, RenameMode},
};
use tempfile::TempDir;

use super::{Place, Places, concerns, ends_watch, look_up};

/// A temporary folder by its path without links.
pub(crate) struct Root(TempDir);

impl Root {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn link(&self, target: &str, path: &str) {
        symlink(target, self.at(path)).unwrap();
    }

    /// Points a link to another target, as the kubelet does.
    pub(crate) fn relink(&self, target: &str, path: &str) {
        let aside = self.at("aside");
        symlink(target, &aside).unwrap();
        fs::rename(aside, self.at(path)).unwrap();
    }
}

/// Returns the names that are looked up below the root, as `directory:name`.
fn lookups(root: &Root, path: &str) -> (Vec<String>, Option<PathBuf>) {
    let mut places = Places::new();
    let found = look_up(&root.at(path), &mut places);
    let mut names = Vec::new();
    for (directory, place) in &places {
        let Ok(below) = directory.strip_prefix(root.at("")) else { continue };
        names.extend(place.names.iter().map(|name| format!("{}:{}", below.display(), name.display())));
    }
    (names, found)
}

#[test]
fn every_name_that_a_path_leads_through_is_watched() {
    let root = Root::new();
    root.write("srv/v1/release/a.yaml", "");
    root.link("v1", "srv/current");
    root.link("../srv/current/release", "srv/by-parent");
    root.link(root.at("srv/current").to_str().unwrap(), "absolute");
    root.link("loop", "loop");
    for (path, expected, found) in [
        ("srv/v1/release", &[":srv", "srv:v1", "srv/v1:release"][..], Some("srv/v1/release")),
        ("srv/./v1/../v1", &[":srv", "srv:v1"], Some("srv/v1")),
        ("srv/current/release", &[":srv", "srv:current", "srv:v1", "srv/v1:release"], Some("srv/v1/release")),
        ("absolute/release", &[":absolute", ":srv", "srv:current", "srv:v1", "srv/v1:release"], Some("srv/v1/release")),
        (
            "srv/by-parent",
            &[":srv", "srv:by-parent", "srv:current", "srv:v1", "srv/v1:release"],
            Some("srv/v1/release"),
        ),
        // The missing name is watched where it will appear.
        ("srv/v2/release", &[":srv", "srv:v2"], None),
        ("loop/release", &[":loop"], None),
    ] {
        let (mut names, resolved) = lookups(&root, path);
        names.sort();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(
            (names, resolved),
            (expected.iter().map(|&n| n.to_owned()).collect(), found.map(|p| root.at(p))),
            "{path}"
        );
    }
}

/// Returns the directories to watch for a volume.
fn volume() -> Places {
    let place =
        |names: &[&str], manifests| Place { id: None, manifests, names: names.iter().map(Into::into).collect() };
    Places::from([
        (PathBuf::from("/srv"), place(&["release"], false)),
        (PathBuf::from("/srv/release"), place(&["..data"], true)),
    ])
}

fn event(kind: EventKind, paths: &[&str]) -> Event {
    paths.iter().fold(Event::new(kind), |event, path| event.add_path(PathBuf::from(path)))
}

#[test]
fn only_changes_of_what_is_watched_count() {
    let places = volume();
    let create = EventKind::Create(CreateKind::File);
    let renamed = EventKind::Modify(ModifyKind::Name(RenameMode::Both));
    let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
    for (kind, paths, counts) in [
        (create, &["/srv/release/a.yaml"][..], true),
        (create, &["/srv/release/a.yml"], true),
        (create, &["/srv/release/README.md"], false),
        (create, &["/srv/release/.a.yaml.swp"], false),
        (create, &["/srv/release/a.yaml~"], false),
        (create, &["/srv/release/4913"], false),
        (renamed, &["/srv/release/sedX1", "/srv/release/a.yaml"], true),
        (renamed, &["/srv/release/..data_tmp", "/srv/release/..data"], true),
        (create, &["/srv/release/..data_tmp"], false),
        (create, &["/srv/release"], true),
        (EventKind::Remove(RemoveKind::Folder), &["/srv/release"], true),
        (create, &["/srv/other.yaml"], false),
        (create, &["/srv/other"], false),
        (written, &["/srv/release/a.yaml"], true),
        (EventKind::Access(AccessKind::Open(AccessMode::Any)), &["/srv/release/a.yaml"], false),
        (EventKind::Access(AccessKind::Close(AccessMode::Read)), &["/srv/release"], false),
    ] {
        assert_eq!(concerns(&places, &event(kind, paths)), counts, "{kind:?} {paths:?}");
    }
    let overflow = Event::new(EventKind::Other).set_flag(Flag::Rescan);
    assert!(concerns(&places, &overflow), "events were lost");
}

#[test]
fn the_watch_of_a_directory_ends_with_its_name() {
    let places = volume();
    let renamed = |mode| EventKind::Modify(ModifyKind::Name(mode));
    for (kind, paths, ends) in [
        (EventKind::Remove(RemoveKind::Folder), &["/srv/release"][..], true),
        (EventKind::Remove(RemoveKind::Other), &["/srv/release"], true),
        (renamed(RenameMode::From), &["/srv/release"], true),
        (renamed(RenameMode::To), &["/srv/release"], true),
        (renamed(RenameMode::Both), &["/srv/release", "/srv/aside"], true),
        (renamed(RenameMode::From), &["/srv"], true),
        (EventKind::Create(CreateKind::Folder), &["/srv/release"], false),
        (EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any)), &["/srv/release"], false),
        (EventKind::Remove(RemoveKind::File), &["/srv/release/a.yaml"], false),
        (renamed(RenameMode::Both), &["/srv/release/..data_tmp", "/srv/release/..data"], false),
    ] {
        assert_eq!(ends_watch(&places, &event(kind, paths)), ends, "{kind:?} {paths:?}");
    }
    assert!(ends_watch(&places, &Event::new(EventKind::Other).set_flag(Flag::Rescan)), "events were lost");
}
