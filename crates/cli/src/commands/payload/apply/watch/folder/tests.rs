use std::{fs, path::Path, time::Duration};

use tokio::time::timeout;

use super::{Folder, Stamp, places};
use crate::watched::tests::Root;

/// How long a report may take.
const PATIENCE: Duration = Duration::from_secs(20);

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
    let changed = |stamp: &Stamp, earlier| stamp.changed_since(earlier).map(ToOwned::to_owned);
    assert_eq!(changed(&second, &first), Some("b.yaml".into()));
    assert_eq!(changed(&third, &second), Some("a.yaml".into()));
    assert_eq!(changed(&third, &third), None);
    fs::remove_file(root.at("release/b.yaml")).unwrap();
    let fourth = stamp(&folder);
    assert_eq!(changed(&fourth, &third), Some("b.yaml".into()));
    assert_ne!(fourth, third);
}

/// Does something to a watched folder, and waits until it is reported.
async fn reported(folder: &mut Folder, what: &str, act: impl FnOnce()) {
    act();
    timeout(PATIENCE, folder.reports().notified()).await.unwrap_or_else(|_| panic!("{what} was not reported"));
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

/// Changes a file more often than there can be reports of what was done before.
async fn changes_are_reported(root: &Root, folder: &mut Folder) {
    for number in 0..100 {
        reported(folder, "a change", || root.write("release/a.yaml", &number.to_string())).await;
    }
}

#[tokio::test]
async fn a_folder_that_returns_is_followed() {
    let root = Root::new();
    root.write("release/a.yaml", "one");
    let mut folder = watched(&root, "release");
    fs::rename(root.at("release"), root.at("aside")).unwrap();
    fs::rename(root.at("aside"), root.at("release")).unwrap();
    changes_are_reported(&root, &mut folder).await;
}

#[tokio::test]
async fn a_folder_that_is_replaced_before_its_removal_is_known_is_followed() {
    let root = Root::new();
    root.write("release/a.yaml", "one");
    let mut folder = watched(&root, "release");
    fs::remove_dir_all(root.at("release")).unwrap();
    // Many file systems give it the same inode.
    root.write("release/a.yaml", "two");
    changes_are_reported(&root, &mut folder).await;
}

#[tokio::test]
async fn a_folder_below_one_that_returns_is_followed() {
    let root = Root::new();
    root.write("srv/release/a.yaml", "one");
    root.link("srv/release", "release");
    let mut folder = watched(&root, "release");
    fs::rename(root.at("srv"), root.at("aside")).unwrap();
    fs::rename(root.at("aside"), root.at("srv")).unwrap();
    changes_are_reported(&root, &mut folder).await;
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
