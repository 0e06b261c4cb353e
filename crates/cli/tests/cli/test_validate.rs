//! `validate`: diagnostics with their places, and exit code 2 if any is an error.

use crate::call::Place;

#[test]
fn errors_are_shown_in_the_source() {
    let place = Place::new(&[("p.yaml", "deletionGroups:\n  - predefinedResourcegroup: {type: crds}\n")]);
    let called = place.call("validate p.yaml");
    assert_eq!(called.exit, 2);
    let place_in_source = " --> p.yaml:2:5\n  |\n2 |   - predefinedResourcegroup: {type: crds}\n";
    assert!(called.out.contains(place_in_source), "{}", called.out);
    assert!(called.out.ends_with("1 file checked: 1 error, 0 warnings\n"), "{}", called.out);
    assert_eq!(called.err, "");
}

#[test]
fn valid_files_are_counted() {
    let place = Place::new(&[("d/p.yaml", "deletionGroups: []\n"), ("d/deep/q.yaml", "deletionOrderRules: []\n")]);
    let called = place.call("validate -R d");
    assert_eq!((called.exit, called.out.as_str()), (0, "2 files checked: 0 errors, 0 warnings\n"));
}

#[test]
fn standard_input_is_checked_and_json_printed() {
    let called = Place::new(&[]).call_with("validate - -o json", "deletionGroups: 3\n");
    assert_eq!(called.exit, 2);
    let found: serde_json::Value = serde_json::from_str(&called.out).unwrap();
    assert_eq!(
        (&found[0]["severity"], &found[0]["file"], &found[0]["line"]),
        (&"error".into(), &"-".into(), &1.into())
    );
}

#[test]
fn a_missing_file_is_an_error() {
    Place::new(&[]).call("validate p.yaml").is_input_error("error: p.yaml does not exist\n");
}

#[test]
fn a_hundred_problems_of_all_files_are_printed_and_the_others_counted() {
    let wrong = "- wrong: 1\n".repeat(60);
    let file = format!("deletionGroups:\n{wrong}");
    let called = Place::new(&[("d/a.yaml", &file), ("d/b.yaml", &file)]).call("validate d");
    let errors = called.out.lines().filter(|line| line.starts_with("error: ")).count();
    assert_eq!((called.exit, errors), (2, 100), "{}", called.out);
    let total: usize = called.out.rsplit_once("checked: ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
    assert!(called.out.contains(&format!("\n{} more problems\n", total - 100)), "{}", called.out);
}
