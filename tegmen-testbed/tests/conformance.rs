//! The tables of conformance (`conformance/*.toml`): they count what they have, and the tests that they name exist.

use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    title: String,
    /// MUST and MUST NOT.
    musts: usize,
    /// SHALL, SHALL NOT and REQUIRED, which mean the same (RFC 2119).
    shalls: usize,
    rule: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    section: String,
    word: Word,
    rule: String,
    status: Status,
    #[serde(default)]
    tests: Vec<String>,
    note: Option<String>,
}

#[derive(Deserialize, PartialEq)]
enum Word {
    #[serde(rename = "MUST")]
    Must,
    #[serde(rename = "MUST NOT")]
    MustNot,
    #[serde(rename = "SHALL")]
    Shall,
    #[serde(rename = "SHALL NOT")]
    ShallNot,
    #[serde(rename = "REQUIRED")]
    Required,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Status {
    Done,
    Partly,
    #[serde(rename = "not applicable")]
    NotApplicable,
    Missing,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn tables() -> Vec<Table> {
    let files = fs::read_dir(root().join("conformance")).unwrap();
    files.map(|file| toml::from_str(&fs::read_to_string(file.unwrap().path()).unwrap()).unwrap()).collect()
}

/// The files in which a test may be that is named `target::path`: the target is a crate, or a file or folder in a folder `tests`.
fn sources(target: &str) -> Vec<PathBuf> {
    let crates = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("Cargo.toml").exists());
    let mut found = Vec::new();
    for of in crates {
        if of.file_name().unwrap().to_string_lossy().replace('-', "_") == target {
            walk(&of.join("src"), &mut found);
        }
        walk(&of.join("tests").join(target), &mut found);
        found.extend(Some(of.join("tests").join(format!("{target}.rs"))).filter(|file| file.exists()));
    }
    found
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
}

/// True if a file of this path has the test: the file is that of the module, or of a folder of it.
fn exists(test: &str) -> bool {
    let Some((target, path)) = test.split_once("::") else { return false };
    let (modules, name) = path.rsplit_once("::").unwrap_or(("", path));
    let module = modules.replace("::", "/");
    sources(target).iter().any(|file| {
        let of_module = module.is_empty() || file.with_extension("").ends_with(&module);
        of_module && fs::read_to_string(file).unwrap().contains(&format!("fn {name}("))
    })
}

#[test]
fn the_tables_name_tests_that_exist() {
    for table in tables() {
        for rule in &table.rule {
            let place = format!("{}, section {}, {:?}", table.title, rule.section, rule.rule);
            let is_tested = matches!(rule.status, Status::Done | Status::Partly);
            assert_eq!(is_tested, !rule.tests.is_empty(), "{place}");
            assert!(rule.note.is_some() || rule.status == Status::Done, "{place} says no reason");
            for test in &rule.tests {
                assert!(exists(test), "{place} names {test}, which does not exist");
            }
        }
    }
}

#[test]
fn the_tables_count_their_rules() {
    for table in tables() {
        let musts = table.rule.iter().filter(|rule| matches!(rule.word, Word::Must | Word::MustNot)).count();
        assert_eq!((musts, table.rule.len() - musts), (table.musts, table.shalls), "{}", table.title);
    }
}

#[test]
fn a_test_that_does_not_exist_is_found_missing() {
    assert!(exists("conformance::a_test_that_does_not_exist_is_found_missing"));
    for test in
        ["conformance::none", "none::a_test_that_does_not_exist_is_found_missing", "tegmen_oscore::none::a", "none"]
    {
        assert!(!exists(test), "{test}");
    }
}
