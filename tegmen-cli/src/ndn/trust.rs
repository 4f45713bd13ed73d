//! `tegmen ndn trust`: trust schemas in LVS.

use super::{name_of, pem};
use crate::files::{self, Readers};
use crate::output::{Failure, Output, printable, printable_lines};
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tegmen_ndn::Name;
use tegmen_ndn_host::schema::{self, Schema};

/// Exit code if a key must not sign a packet.
const REFUSED: u8 = 3;

#[derive(Args)]
pub(super) struct Trust {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check a schema, and check whether a key may sign a packet.
    #[command(after_help = "Examples:\n  tegmen ndn trust check house.tlv\n  \
        tegmen ndn trust check house.tlv --packet /house/temp/v=1 --key /house/temp/KEY/1/house/v=7\n\n\
        Exit codes: 0 if the key may sign the packet, 3 if it must not, 2 if the file has a mistake.")]
    Check(Check),
    /// Compile the text of a schema to a model. python-ndn and ndnd can read the model, too.
    #[command(after_help = "Example:\n  tegmen ndn trust compile house.lvs house.tlv")]
    Compile {
        /// The file with the text of the schema.
        file: PathBuf,
        /// The file for the model.
        output: PathBuf,
    },
    /// Run the tests of a schema.
    #[command(after_help = "Example:\n  tegmen ndn trust test house.toml\n\n\
        The file names the schema beside it, and has a test for each decision that matters:\n\n  \
        schema = \"house.tlv\"\n\n  [[test]]\n  packet = \"/house/temp/v=1\"\n  key = \"/house/temp/KEY/1/house/v=7\"\n  \
        expect = \"allow\"\n\n\
        Exit codes: 0 if all tests pass, 1 if one fails, 2 if a file has a mistake.")]
    Test {
        /// The file with the tests.
        file: PathBuf,
    },
}

#[derive(Args)]
struct Check {
    /// The file with the schema: a model, or the text of LVS.
    file: PathBuf,
    /// The name of a packet.
    #[arg(long, value_name = "NAME")]
    packet: Option<String>,
    /// The name of the certificate of a key.
    #[arg(long, value_name = "NAME", requires = "packet")]
    key: Option<String>,
}

impl Trust {
    pub(super) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Check(check) => check.run(out),
            Command::Compile { file, output } => compile(&file, &output, out),
            Command::Test { file } => test(&file, out),
        }
    }
}

/// The first byte of each compiled trust schema (an LVS model): the TLV type of the version field of the model. No
/// trust schema in text form begins with this byte.
const MODEL: u8 = 0x61;

/// Reads a trust schema from a file, which contains either a compiled model or the text of the schema.
pub(super) fn read_schema(file: &Path) -> Result<Schema, Failure> {
    let bytes = pem::read(file)?;
    let model = if bytes.first() == Some(&MODEL) { bytes } else { compile_text(file, bytes)? };
    Schema::parse(&model).map_err(|error| Failure::usage(format!("the schema {}: {error}", file.display())))
}

fn compile_text(file: &Path, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let name = file.display();
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| Failure::usage(format!("the schema {name} is neither a model nor text in UTF-8")))?;
    schema::compile(&text).map_err(|error| Failure::usage(format!("the schema {name}, {error}")))
}

fn compile(file: &Path, output: &Path, out: Output) -> Result<ExitCode, Failure> {
    let model = compile_text(file, pem::read(file)?)?;
    let schema = Schema::parse(&model);
    let schema = schema.map_err(|error| Failure::usage(format!("the schema {}: {error}", file.display())))?;
    files::write(output, &model, Readers::All)?;
    out.line(
        || format!("{} has {} nodes: {} bytes", output.display(), schema.len(), model.len()),
        || json!({ "file": output.display().to_string(), "nodes": schema.len(), "bytes": model.len() }),
    );
    Ok(ExitCode::SUCCESS)
}

impl Check {
    fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let schema = read_schema(&self.file)?;
        let Some(packet) = &self.packet else {
            let (rules, roots) = (schema.rules(), schema.roots());
            out.line(
                || {
                    let rules = rules.iter().copied().collect::<Vec<_>>().join(" ");
                    printable(&format!("{} nodes; rules: {rules}; roots of trust: {}", schema.len(), roots.join(" ")))
                },
                || json!({ "nodes": schema.len(), "rules": rules, "roots": roots }),
            );
            return Ok(ExitCode::SUCCESS);
        };
        let name = name_of(packet)?;
        let name = Name::of_checked(&name);
        let rules = schema.rules_of(&name);
        let listed = || rules.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        let Some(key) = &self.key else {
            out.line(
                || {
                    printable(&format!(
                        "{packet} matches {}",
                        if rules.is_empty() { "no rule".into() } else { listed() }
                    ))
                },
                || json!({ "packet": packet, "rules": rules }),
            );
            return Ok(ExitCode::from(if rules.is_empty() { REFUSED } else { 0 }));
        };
        let certificate = name_of(key)?;
        let certificate = Name::of_checked(&certificate);
        let (is_allowed, of_key) = (schema.allows(&name, &certificate), schema.rules_of(&certificate));
        out.line(
            || {
                let verb = if is_allowed { "may" } else { "must not" };
                let of_key = of_key.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
                let or_none = |rules: String| if rules.is_empty() { "no rule".to_owned() } else { rules };
                printable(&format!("{key} ({}) {verb} sign {packet} ({})", or_none(of_key), or_none(listed())))
            },
            || json!({ "packet": packet, "key": key, "rules": rules, "rules_of_key": of_key, "allowed": is_allowed }),
        );
        Ok(ExitCode::from(if is_allowed { 0 } else { REFUSED }))
    }
}

/// The tests of a schema.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tests {
    /// The file with the schema. A relative path begins at the folder of the file with the tests.
    schema: PathBuf,
    #[serde(default)]
    test: Vec<Test>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Test {
    packet: String,
    key: String,
    expect: Expected,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Expected {
    Allow,
    Deny,
}

fn test(file: &Path, out: Output) -> Result<ExitCode, Failure> {
    let name = file.display().to_string();
    let text = pem::read(file)?;
    let text = String::from_utf8(text).map_err(|_| Failure::usage(format!("{name}: write it in UTF-8")))?;
    let tests: Tests = toml::from_str(&text).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let schema = read_schema(&tegmen_store::files::directory_of(file).join(&tests.schema))?;
    if tests.test.is_empty() {
        return Err(Failure::usage(format!("{name} has no [[test]]: write one for each decision that matters")));
    }
    let mut failed = Vec::new();
    for test in &tests.test {
        let (packet, key) = (name_of(&test.packet)?, name_of(&test.key)?);
        let is_allowed = schema.allows(&Name::of_checked(&packet), &Name::of_checked(&key));
        if is_allowed != (test.expect == Expected::Allow) {
            let verb = if is_allowed { "may" } else { "must not" };
            failed.push(format!("{} {verb} sign {}", test.key, test.packet));
        }
    }
    out.line(
        || {
            let lines: Vec<String> = failed.iter().map(|failed| format!("{name}: {failed}\n")).collect();
            let (passed, all) = (tests.test.len() - failed.len(), tests.test.len());
            printable_lines(&format!("{}{passed} of {all} tests passed", lines.concat()))
        },
        || json!({ "file": name, "tests": tests.test.len(), "failed": failed }),
    );
    Ok(ExitCode::from(u8::from(!failed.is_empty())))
}
