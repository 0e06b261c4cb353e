use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use notify::{
    Event, EventKind,
    event::{AccessKind, AccessMode, CreateKind, Flag, ModifyKind, RemoveKind, RenameMode},
};
use tempfile::TempDir;
use tokio::time::timeout;

use super::{Folder, Place, Places, Stamp, concerns, look_up, places};

/// How long a report may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A temporary folder by its path without links.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, target: &str, path: &str) {
        symlink(target, self.at(path)).unwrap();
    }

    /// Points a link to another target, as the kubelet does.
    fn relink(&self, target: &str, path: &str) {
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

#[test]
fn only_changes_of_what_is_watched_count() {
    let place =
        |names: &[&str], manifests| Place { id: None, manifests, names: names.iter().map(Into::into).collect() };
    let places = Places::from([
        (PathBuf::from("/srv"), place(&["release"], false)),
        (PathBuf::from("/srv/release"), place(&["..data"], true)),
    ]);
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
        let event = paths.iter().fold(Event::new(kind), |event, path| event.add_path(PathBuf::from(path)));
        assert_eq!(concerns(&places, &event), counts, "{kind:?} {paths:?}");
    }
    let overflow = Event::new(EventKind::Other).set_flag(Flag::Rescan);
    assert!(concerns(&places, &overflow), "events were lost");
}

#[test]
fn a_stamp_changes_with_the_manifests_only() {
    let root = Root::new();
    let stamp = |folder: &Folder| folder.stamp();
    let folder = Folder::watch(root.at("release")).unwrap();
    assert!(matches!(stamp(&folder), Stamp::Unreadable(std::io::ErrorKind::NotFound)));
    root.write("release/a.yaml", "one");
    let first = stamp(&folder);
    root.write("release/README.md", "text");
    root.write("release/deep/b.yaml", "text");
    root.link("nowhere", "release/.#a.yaml");
    assert_eq!(stamp(&folder), first);
    root.write("release/b.yaml", "");
    let second = stamp(&folder);
    assert_ne!(second, first);
    // Another file of the same name and length.
    root.write("aside", "two");
    fs::rename(root.at("aside"), root.at("release/a.yaml")).unwrap();
    let third = stamp(&folder);
    assert_ne!(third, second);
    fs::remove_file(root.at("release/b.yaml")).unwrap();
    assert_ne!(stamp(&folder), third);
}

/// Does something to a watched folder, and waits until it is reported.
async fn reported(folder: &mut Folder, what: &str, act: impl FnOnce()) {
    act();
    timeout(PATIENCE, folder.changed()).await.unwrap_or_else(|_| panic!("{what} was not reported"));
    folder.follow().unwrap();
}

/// Watches a path, and returns the manifests that are watched now.
fn watched(root: &Root, path: &str) -> Folder {
    Folder::watch(root.at(path)).unwrap()
}

fn is_watched(folder: &Folder, directory: &Path) -> bool {
    folder.watched.places.get(directory).is_some_and(|place| place.manifests)
}

#[tokio::test]
async fn each_change_of_a_file_is_reported() {
    let root = Root::new();
    root.write("release/a.yaml", "one");
    root.write("release/b.yaml", "one");
    root.write("aside/c.yaml", "one");
    let at = |path: &str| root.at(path);
    let changes: [(&str, &dyn Fn()); 5] = [
        ("a write", &|| fs::write(at("release/a.yaml"), "two").unwrap()),
        ("a new file", &|| fs::write(at("release/d.json"), "{}").unwrap()),
        ("a removal", &|| fs::remove_file(at("release/b.yaml")).unwrap()),
        ("a rename to the folder", &|| fs::rename(at("aside/c.yaml"), at("release/c.yaml")).unwrap()),
        ("a rename out of it", &|| fs::rename(at("release/c.yaml"), at("aside/c.yaml")).unwrap()),
    ];
    for (what, change) in changes {
        // A watch that was just started has nothing to report.
        reported(&mut watched(&root, "release"), what, change).await;
    }
}

#[tokio::test]
async fn a_folder_that_is_replaced_by_a_rename_is_followed() {
    let root = Root::new();
    root.write("release/a.yaml", "one");
    root.write("next/a.yaml", "two");
    let mut folder = watched(&root, "release");
    reported(&mut folder, "the removal", || fs::rename(root.at("release"), root.at("old")).unwrap()).await;
    assert!(!is_watched(&folder, &root.at("release")));
    reported(&mut folder, "the replacement", || fs::rename(root.at("next"), root.at("release")).unwrap()).await;
    assert!(is_watched(&folder, &root.at("release")));
    reported(&mut folder, "a change in the new folder", || root.write("release/a.yaml", "three")).await;
}

#[tokio::test]
async fn a_folder_that_is_removed_and_recreated_is_followed() {
    let root = Root::new();
    root.write("release/a.yaml", "one");
    let mut folder = watched(&root, "release");
    reported(&mut folder, "the removal", || fs::remove_dir_all(root.at("release")).unwrap()).await;
    // The reports of the removal of the file and of the folder may be two.
    while is_watched(&folder, &root.at("release")) {
        reported(&mut folder, "the removal", || {}).await;
    }
    reported(&mut folder, "the new folder", || fs::create_dir(root.at("release")).unwrap()).await;
    assert!(is_watched(&folder, &root.at("release")));
    reported(&mut folder, "a file in it", || root.write("release/a.yaml", "two")).await;
}

#[tokio::test]
async fn a_link_to_another_folder_is_followed() {
    let root = Root::new();
    root.write("v1/a.yaml", "one");
    root.write("v2/a.yaml", "two");
    root.link("v1", "current");
    let mut folder = watched(&root, "current");
    reported(&mut folder, "a change behind the link", || root.write("v1/a.yaml", "more")).await;
    let mut folder = watched(&root, "current");
    reported(&mut folder, "the other link", || root.relink("v2", "current")).await;
    assert!(is_watched(&folder, &root.at("v2")) && !is_watched(&folder, &root.at("v1")));
    reported(&mut folder, "a change behind the other link", || root.write("v2/a.yaml", "three")).await;
}

#[tokio::test]
async fn a_volume_of_a_config_map_is_followed() {
    let root = Root::new();
    root.write("volume/..2026_01/a.yaml", "one");
    root.link("..2026_01", "volume/..data");
    root.link("..data/a.yaml", "volume/a.yaml");
    let mut folder = watched(&root, "volume");
    let first = folder.stamp();
    root.write("volume/..2026_02/a.yaml", "two");
    reported(&mut folder, "the new data", || root.relink("..2026_02", "volume/..data")).await;
    assert_ne!(folder.stamp(), first);
    fs::remove_dir_all(root.at("volume/..2026_01")).unwrap();
    let mut folder = watched(&root, "volume");
    reported(&mut folder, "a change behind two links", || root.write("volume/..2026_02/a.yaml", "three")).await;
}

#[test]
fn the_places_of_a_folder_are_known_by_their_inodes() {
    let root = Root::new();
    root.write("release/a.yaml", "one");
    let first = places(&root.at("release"));
    assert_eq!(places(&root.at("release")), first);
    fs::rename(root.at("release"), root.at("old")).unwrap();
    root.write("release/a.yaml", "one");
    assert_ne!(places(&root.at("release")), first, "another directory has its path");
}
