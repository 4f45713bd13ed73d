use super::config_file::{keys, section};
use super::options::listen_address;
use super::reload::CHANGEABLE;
use super::*;
use clap::{Arg, ArgAction};
use std::collections::BTreeSet;
use std::fmt::Write as _;

#[test]
fn an_address_with_its_port_is_told_apart() {
    assert_eq!(listen_address("::1"), Ok(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)));
    assert!(listen_address("[::1]:5684").unwrap_err().contains("--port 5684"));
    assert!(listen_address("localhost").unwrap_err().contains("127.0.0.1"));
}

/// The options that a file cannot set.
const NOT_IN_A_FILE: &[&str] = &["check-config", "config", "help", "json", "version"];

#[test]
fn a_file_can_set_every_option_and_each_that_changes_is_one() {
    let command = settings::command();
    let without_section = command.get_arguments().filter(|arg| section(arg).is_none());
    let names: BTreeSet<&str> = without_section.filter_map(Arg::get_long).collect();
    assert_eq!(names, NOT_IN_A_FILE.iter().copied().collect());
    let all: BTreeSet<&str> = keys(&command).filter_map(Arg::get_long).collect();
    assert!(CHANGEABLE.iter().all(|key| all.contains(key)));
}

/// The tables of docs/service.md.
fn tables() -> String {
    let (mut text, mut last) = (String::new(), String::new());
    for arg in keys(&settings::command()) {
        let name = section(arg).unwrap();
        if name != last {
            let _ = writeln!(
                text,
                "\n### [{name}]\n\n| key | value | default | changes by | meaning |\n| --- | --- | --- | --- | --- |"
            );
            last = name;
        }
        let value = arg.get_value_names().map(|names| names[0].to_string()).unwrap_or_default();
        let value = match arg.get_action() {
            ArgAction::SetTrue => "true, false".to_owned(),
            ArgAction::Append => format!("list of {value}"),
            _ => value,
        };
        let default = arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
        let default = default.filter(|_| !matches!(arg.get_action(), ArgAction::SetTrue)).unwrap_or_default();
        let key = arg.get_long().unwrap();
        let change = if CHANGEABLE.contains(&key) { "reload" } else { "restart" };
        let help = arg.get_help().unwrap().to_string();
        let meaning = help.split_once(". ").map_or(help.as_str(), |(first, _)| first).trim_end_matches('.');
        let _ = writeln!(text, "| `{key}` | {value} | {default} | {change} | {meaning} |");
    }
    text
}

#[test]
fn the_documentation_lists_every_key() {
    let expected = tables();
    let page = include_str!("../../../docs/service.md").replace("\r\n", "\n");
    assert!(page.contains(&expected), "replace the tables of docs/service.md by these:\n{expected}");
}

#[test]
fn the_file_of_the_unit_and_that_of_the_documentation_are_right() {
    let page = include_str!("../../../docs/service.md");
    let (_, example) = page.split_once("```toml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let file = std::env::temp_dir().join(format!("tegmen-documented-{}.toml", std::process::id()));
    let command = settings::command();
    for text in [example, include_str!("../../../dist/tegmen.toml")] {
        std::fs::write(&file, text).unwrap();
        let given = command.clone().try_get_matches_from(["serve"]).unwrap();
        let (options, _) = config_file::read(&file, &command, &given).unwrap();
        assert!(command.clone().try_get_matches_from([vec!["serve".into()], options].concat()).is_ok());
    }
    std::fs::remove_file(file).unwrap();
}
