//! Checks the README.md of each crate. Its features must be those in Cargo.toml, and its numbers those of the workspace
//! and the footprint.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the testbed is a folder of the project").to_owned()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn toml(file: &Path) -> toml::Table {
    read(file).parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the folders of the library crates and of the program's crate.
fn crates() -> Vec<PathBuf> {
    let is_crate = |folder: &PathBuf| {
        folder.join("Cargo.toml").exists()
            && folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tegmen"))
    };
    fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()).filter(is_crate).collect()
}

/// Returns the rows in the README's table of features. Each has the name of the feature and the row.
fn features(readme: &str) -> Vec<(&str, &str)> {
    let rows = readme.lines().skip_while(|line| *line != "## Cargo features").skip(1);
    let rows =
        rows.take_while(|line| !line.starts_with("## ")).filter_map(|line| Some((line.strip_prefix("| `")?, line)));
    rows.filter_map(|(row, line)| Some((row.split_once('`')?.0, line))).collect()
}

#[test]
fn each_crate_describes_its_features_and_the_version_of_rust() {
    let workspace = toml(&root().join("Cargo.toml"));
    let rust = workspace["workspace"]["package"]["rust-version"].as_str().unwrap();
    let crates = crates();
    assert!(crates.len() > 20, "{crates:?}");
    for folder in crates {
        let manifest = toml(&folder.join("Cargo.toml"));
        let package = manifest["package"].as_table().unwrap();
        let name = package["name"].as_str().unwrap();
        for key in ["description", "license", "readme", "categories", "keywords"] {
            assert!(package.contains_key(key), "{name}: Cargo.toml has no {key}");
        }
        assert_eq!(package["readme"].as_str(), Some("README.md"), "{name}");
        let readme = read(&folder.join("README.md"));
        assert!(readme.starts_with(&format!("# {name}\n")), "{name}: the README has another title");
        assert!(readme.contains(&format!("Rust {rust} or newer")), "{name}: the README does not name Rust {rust}");
        let described: BTreeSet<&str> = features(&readme).into_iter().map(|(feature, _)| feature).collect();
        let features = manifest.get("features").and_then(|features| features.as_table());
        let names = features.into_iter().flat_map(|features| features.keys().map(String::as_str));
        let expected: BTreeSet<&str> = names.filter(|feature| *feature != "default").collect();
        assert_eq!(described, expected, "{name}: the README describes other features than Cargo.toml has");
    }
}

#[test]
fn sizes_of_the_features_of_the_core_are_those_of_the_budget() {
    let budget = toml(&root().join("firmware/budget.toml"));
    let readme = read(&root().join("tegmen/README.md"));
    let features = features(&readme);
    let images = [
        ("rustcrypto", "blink_client", "rustcrypto"),
        ("rustcrypto", "blink_client", "compact"),
        ("p256", "p256", "compact"),
        ("p256", "empty", "compact"),
        ("x25519", "p256", "rustcrypto"),
    ];
    for (feature, image, provider) in images {
        let text = budget[image][provider]["text"].as_integer().unwrap();
        let number = match text / 1000 {
            0 => text.to_string(),
            thousands => format!("{thousands},{:03}", text % 1000),
        };
        let (_, row) = features.iter().find(|(name, _)| *name == feature).expect("a row of the feature");
        assert!(
            row.contains(&number),
            "tegmen/README.md, {feature}: {image} with {provider} has {number} bytes of text"
        );
    }
}
