//! `tegmen policy`: runs the tests of a policy file, explains a decision, compares two policy files, and applies a file
//! at an access control server. Only `tegmen policy apply` needs a server.

use crate::admin::{Admin, done};
use crate::output::{Failure, Output, printable, printable_lines};
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tegmen_control::access::policy::{self, Change, Explanation, FailedTest, OwnedParty, Question, RuleId};

/// Exit code of `tegmen policy explain` if the policy refuses the request.
const REFUSED: u8 = 3;
/// Maximum number of changes that are printed as text; `--json` prints all changes.
const MAX_PRINTED: usize = 100;

#[derive(Args)]
pub(crate) struct Policy {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check a policy file and run the tests in it.
    #[command(after_help = "Example:\n  tegmen policy test policy.toml\n\n\
        Exit codes: 0 if all tests pass, 1 if one fails, 2 if the file has a mistake.")]
    Test {
        /// The policy.
        file: PathBuf,
    },
    /// Explain whether a request is allowed: show the rule that decides, and the rules that almost match.
    #[command(
        after_help = "Example:\n  tegmen policy explain policy.toml --subject display-3 --subject tag:display \\\n      \
        --publisher oven --publisher tag:kitchen GET /sensors/1\n\n\
        Exit codes: 0 if the request is allowed, 3 if it is refused, 2 if the file has a mistake."
    )]
    Explain(Explain),
    /// Compare two policy files: show which rules differ, and which requests are allowed or refused after the change.
    #[command(after_help = "Example:\n  tegmen policy diff policy.toml new.toml\n\n\
        The order of rules has no meaning and makes no difference. Decisions are compared for the parties in the tests of \
        both files and for examples of each pattern in them.")]
    Diff {
        /// The policy in force.
        old: PathBuf,
        /// The new policy.
        new: PathBuf,
    },
    /// Apply a policy at an access control server. The server runs the tests in the policy, and does not apply it if
    /// a test fails.
    #[command(
        after_help = "Example:\n  tegmen policy apply policy.toml --server https://localhost:8443 --ca ca.pem \\\n      \
        --key-file operator.key"
    )]
    Apply {
        /// The policy.
        file: PathBuf,
        #[command(flatten)]
        admin: Admin,
    },
}

#[derive(Args)]
struct Explain {
    /// The policy.
    file: PathBuf,
    /// Name of the party that sends the request, and `tag:TAG` for each of its tags; may be repeated.
    #[arg(long, required = true, value_name = "NAME|tag:TAG")]
    subject: Vec<String>,
    /// Name of the party that has the resource, and `tag:TAG` for each of its tags; may be repeated.
    #[arg(long, required = true, value_name = "NAME|tag:TAG")]
    publisher: Vec<String>,
    /// The method, such as GET.
    method: String,
    /// The path, such as /sensors/1.
    path: String,
}

impl Policy {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Test { file } => test(&file, out),
            Command::Explain(explain) => explain.run(out),
            Command::Diff { old, new } => diff(&old, &new, out),
            Command::Apply { file, admin } => apply(&file, &admin, out),
        }
    }
}

/// Reads a policy file.
fn read(path: &Path) -> Result<policy::Policy, Failure> {
    let (file, text) = text_of(path)?;
    policy::Policy::parse(&file, &text).map_err(Failure::usage)
}

/// Returns the name and the text of a policy file.
fn text_of(path: &Path) -> Result<(String, String), Failure> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        let next_step = match error.kind() {
            ErrorKind::InvalidData => "a policy is text in UTF-8",
            _ => "correct the path, or the permissions there",
        };
        Failure::usage(format!("the policy {file} cannot be read: {error}: {next_step}"))
    })?;
    Ok((file, text))
}

fn apply(path: &Path, admin: &Admin, out: Output) -> Result<ExitCode, Failure> {
    let (file, text) = text_of(path)?;
    admin.send_body(Method::PUT, "/v1/policy", &json!({ "file": file, "text": text }))?;
    out.line(|| printable(&format!("The policy {file} is in force.")), || done("applied", &file));
    Ok(ExitCode::SUCCESS)
}

fn test(file: &Path, out: Output) -> Result<ExitCode, Failure> {
    let policy = read(file)?;
    let failed = policy.failed_tests();
    let (rules, tests) = (policy.rules(), policy.tests());
    let object = |failed: &FailedTest| json!({ "line": failed.line, "message": failed.message });
    out.line(
        || {
            let lines: Vec<String> = failed.iter().map(|failed| format!("{failed}\n")).collect();
            let passed = tests - failed.len();
            printable_lines(&format!("{}{rules} rules, {passed} of {tests} tests passed", lines.concat()))
        },
        || {
            let name = file.display().to_string();
            json!({ "file": name, "rules": rules, "tests": tests, "failed": failed.iter().map(object).collect::<Vec<_>>() })
        },
    );
    Ok(ExitCode::from(u8::from(!failed.is_empty())))
}

impl Explain {
    fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let Self { file, subject, publisher, method, path } = self;
        let party = |option: &str, words: &[String]| {
            let words = words.iter().map(String::as_str);
            OwnedParty::from_words(words).map_err(|message| Failure::usage(format!("{option}: {message}")))
        };
        let (subject, publisher) = (party("--subject", &subject)?, party("--publisher", &publisher)?);
        let request = format!("{method} {path}");
        let (method, path) =
            policy::request(&request).map_err(|message| Failure::usage(format!("METHOD PATH: {message}")))?;
        let policy = read(&file)?;
        let question = Question { subject: subject.party(), publisher: publisher.party(), method, path };
        let explanation = policy.explain(&question);
        out.line(|| printable_lines(&explanation.to_string()), || explanation_object(&policy, &explanation));
        let allowed = explanation.decision.is_allowed();
        Ok(if allowed { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) })
    }
}

fn explanation_object(policy: &policy::Policy, explanation: &Explanation) -> Value {
    let rule =
        |id: RuleId| json!({ "line": policy.line_of(id), "name": policy.name_of(id), "rule": policy.describe(id) });
    let near = explanation
        .near
        .iter()
        .map(|near| json!({ "line": policy.line_of(near.rule), "part": near.part.name(), "message": near.message }));
    json!({
        "allowed": explanation.decision.is_allowed(),
        "code": explanation.decision.code(),
        "rule": explanation.decision.rule().map(rule),
        "message": explanation.message,
        "also": explanation.also.iter().map(|id| rule(*id)).collect::<Vec<_>>(),
        "near": near.collect::<Vec<_>>(),
    })
}

fn diff(old: &Path, new: &Path, out: Output) -> Result<ExitCode, Failure> {
    let (old, new) = (read(old)?, read(new)?);
    let diff = old.diff(&new, &[]);
    let object = |change: &Change| {
        json!({
            "subject": change.subject.to_string(),
            "publisher": change.publisher.to_string(),
            "methods": change.methods.to_string(),
            "path": change.path,
            "now": change.after.name(),
        })
    };
    if out.json {
        out.line(String::new, || {
            let changes: Vec<Value> = diff.changes.iter().map(object).collect();
            json!({ "removed": diff.removed, "added": diff.added, "changes": changes, "complete": diff.complete })
        });
        return Ok(ExitCode::SUCCESS);
    }
    if diff.is_empty() {
        out.text("The policies decide alike.");
    }
    for rule in &diff.removed {
        out.text(printable(&format!("- {rule}")));
    }
    for rule in &diff.added {
        out.text(printable(&format!("+ {rule}")));
    }
    for change in diff.changes.iter().take(MAX_PRINTED) {
        out.text(printable(&format!("  {change}")));
    }
    if let Some(more @ 1..) = diff.changes.len().checked_sub(MAX_PRINTED) {
        out.text(format!("  and {more} more changes: see --json"));
    }
    if !diff.complete {
        out.text(format!("Only the first {} requests were compared: the files have more.", policy::MAX_QUESTIONS));
    }
    Ok(ExitCode::SUCCESS)
}
