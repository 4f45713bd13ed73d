//! Checks the tables of conformance (`conformance/*.toml`; `conformance/README.md` describes them). The number of rules
//! in a table must be the number that the table states. The functions and tests that a table names must exist, and so must
//! the tests that `tegmen-testbed/faults.toml` names. With `--nocapture` the tests print the counts.

use serde::Deserialize;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    title: String,
    /// The copy of the standard from which the rules were read.
    source: String,
    /// Number of rules with MUST or MUST NOT.
    #[serde(default)]
    musts: usize,
    /// Number of rules with SHALL, SHALL NOT or REQUIRED, which mean the same (RFC 2119).
    #[serde(default)]
    shalls: usize,
    /// Number of statements of a paper.
    #[serde(default)]
    statements: usize,
    rule: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    section: String,
    word: Word,
    rule: String,
    status: Status,
    /// The functions that implement the rule, as `path/from/root.rs::function` or `path/from/root.rs::Type::method`.
    #[serde(default)]
    code: Vec<String>,
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
    /// A statement of a paper, which uses none of the words of RFC 2119.
    #[serde(rename = "statement")]
    Statement,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
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

/// Returns the tables, sorted by the names of their files.
fn tables() -> Vec<Table> {
    let files = fs::read_dir(root().join("conformance")).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|kind| kind == "toml")).collect();
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

fn read(file: &Path) -> Table {
    let table = toml::from_str(&fs::read_to_string(file).unwrap());
    table.unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the files that can contain a test with the name `target::path`. The target is a crate, or a file or a folder
/// in a folder `tests`.
fn sources(target: &str) -> Vec<PathBuf> {
    let crates = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("Cargo.toml").exists());
    let mut found = Vec::new();
    for of in crates {
        let name = of.file_name().unwrap().to_string_lossy().replace('-', "_");
        // The folders of some crates have shorter names. The program of `tegmen-cli` has the name of another crate.
        let is_shorter = target.strip_prefix("tegmen_") == Some(name.as_str());
        if name == target || is_shorter || (target, name.as_str()) == ("tegmen", "tegmen_cli") {
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

/// Returns true if the test exists in the file of its module. A module `tests` can also be in the file of the module above.
fn exists(test: &str) -> bool {
    let Some((target, path)) = test.split_once("::") else { return false };
    let (modules, name) = path.rsplit_once("::").unwrap_or(("", path));
    let module = modules.replace("::", "/");
    let above = module.strip_suffix("/tests").unwrap_or(&module);
    sources(target).iter().any(|file| {
        let file_module = file.with_extension("");
        let of_module = module.is_empty() || file_module.ends_with(&module) || file_module.ends_with(above);
        of_module && fs::read_to_string(file).unwrap().contains(&format!("fn {name}("))
    })
}

/// Returns true if the file that `code` names contains the function. A method also needs an `impl` or a trait of its
/// type.
fn has_code(code: &str) -> bool {
    let Some((file, function)) = code.split_once(".rs::") else { return false };
    let Ok(text) = fs::read_to_string(root().join(format!("{file}.rs"))) else { return false };
    let (of_type, name) = function.rsplit_once("::").map_or((None, function), |(of, name)| (Some(of), name));
    let has_function = ["(", "<"].iter().any(|behind| text.contains(&format!(" fn {name}{behind}")))
        || ["(", "<"].iter().any(|behind| text.contains(&format!("\nfn {name}{behind}")));
    has_function && of_type.is_none_or(|of| names_type(&text, of))
}

/// Returns true if the file contains an `impl` or a `trait` with this name.
fn names_type(text: &str, name: &str) -> bool {
    let begins = ["\nimpl", "\npub trait ", "\npub(crate) trait ", "\ntrait "];
    let heads = begins.iter().flat_map(|begin| text.split(begin).skip(1));
    let words = |head: &str| -> Vec<String> {
        let head = head.split('{').next().unwrap_or_default();
        head.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect()
    };
    heads.into_iter().any(|head| words(head).iter().any(|word| word == name))
}

fn place(table: &Table, rule: &Rule) -> String {
    format!("{}, section {}, {:?}", table.title, rule.section, rule.rule)
}

#[test]
fn each_status_has_what_it_needs() {
    for table in tables() {
        assert!(!table.source.is_empty(), "{} names no source", table.title);
        for rule in &table.rule {
            let (place, note) = (place(&table, rule), rule.note.as_deref());
            let is_untested = note.is_some_and(|note| note.starts_with("no test"));
            match rule.status {
                Status::Done => {
                    assert!(!rule.code.is_empty() && !rule.tests.is_empty(), "{place} names code and tests")
                }
                Status::Partly => {
                    assert!(!rule.code.is_empty(), "{place} names code");
                    assert!(
                        is_untested == rule.tests.is_empty(),
                        "{place} names tests, or its note begins with \"no test\""
                    );
                }
                Status::NotApplicable | Status::Missing => {
                    assert!(rule.code.is_empty() && rule.tests.is_empty(), "{place} names neither code nor tests");
                }
            }
            assert!(note.is_some() || rule.status == Status::Done, "{place} has a note with the reason");
        }
    }
}

#[test]
fn the_tables_name_code_that_exists() {
    for table in tables() {
        for rule in &table.rule {
            for code in &rule.code {
                assert!(has_code(code), "{} names {code}, which does not exist", place(&table, rule));
            }
        }
    }
}

#[test]
fn the_tables_name_tests_that_exist() {
    for table in tables() {
        for rule in &table.rule {
            for test in &rule.tests {
                assert!(exists(test), "{} names {test}, which does not exist", place(&table, rule));
            }
        }
    }
}

#[test]
fn the_classes_of_faults_have_different_numbers_and_name_tests_that_exist() {
    #[derive(Deserialize)]
    struct Faults {
        fault: Vec<Fault>,
    }
    #[derive(Deserialize)]
    struct Fault {
        number: u32,
        #[serde(default)]
        tests: Vec<String>,
    }
    let text = fs::read_to_string(root().join("tegmen-testbed/faults.toml")).unwrap();
    let mut numbers = HashSet::new();
    for Fault { number, tests } in toml::from_str::<Faults>(&text).unwrap().fault {
        assert!(numbers.insert(number), "two faults have the number {number}");
        for test in tests {
            assert!(exists(&test), "fault {number} names {test}, which does not exist");
        }
    }
}

#[test]
fn the_tables_count_their_rules() {
    println!(
        "\n{:<24} {:>6} {:>6} {:>6} {:>8} {:>15}",
        "table", "rules", "done", "partly", "missing", "not applicable"
    );
    for table in tables() {
        let musts = table.rule.iter().filter(|rule| matches!(rule.word, Word::Must | Word::MustNot)).count();
        let statements = table.rule.iter().filter(|rule| rule.word == Word::Statement).count();
        let counts = (musts, table.rule.len() - musts - statements, statements);
        assert_eq!(counts, (table.musts, table.shalls, table.statements), "{}", table.title);
        let of = |status| table.rule.iter().filter(|rule| rule.status == status).count();
        let [done, partly] = [Status::Done, Status::Partly].map(of);
        let [missing, other] = [Status::Missing, Status::NotApplicable].map(of);
        let (title, rules) = (&table.title, table.rule.len());
        println!("{title:<24} {rules:>6} {done:>6} {partly:>6} {missing:>8} {other:>15}");
    }
}

#[test]
fn code_that_does_not_exist_is_found_missing() {
    const FILE: &str = "tegmen-coap/src/exchange.rs";
    for code in ["Exchanges::receive", "PeerExchanges::begin", "receive"] {
        assert!(has_code(&format!("{FILE}::{code}")), "{code}");
    }
    for code in ["Exchanges::none", "Other::receive", "Exchanges", "receiv"] {
        assert!(!has_code(&format!("{FILE}::{code}")), "{code}");
    }
    assert!(!has_code("tegmen-coap/src/none.rs::receive") && !has_code("receive"));
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
