//! Counts the instructions of an access decision with policies of 10,000 rules, which contain wildcards and tags:
//! `./ci.sh decisions`.
//!
//! The program starts itself under `valgrind --tool=callgrind`, which counts only the instructions in [`counted`]. Each
//! row is counted for two numbers of repetitions. The difference is divided by the additional repetitions. No decision
//! may need 10,000 instructions.

#[path = "../callgrind/mod.rs"]
mod callgrind;

use callgrind::{Failure, instructions};
use std::hint::black_box;
use std::process::ExitCode;
use tegmen::coap::Code;
use tegmen_control::access::policy::{OwnedParty, Policy, Question};

/// Number of rules in each policy.
const RULES: usize = 10_000;
/// Limit of instructions: each decision must need fewer instructions than this number.
const LIMIT: u64 = 10_000;
/// Numbers of repetitions in the two runs.
const TIMES: (u32, u32) = (10, 110);

/// A row: a policy, a request, and the code of the decision on this request.
struct Row {
    name: &'static str,
    rule: fn(usize) -> String,
    subject: &'static [&'static str],
    publisher: &'static [&'static str],
    path: &'static str,
    expected: &'static str,
}

const ROWS: [Row; 5] = [
    Row {
        name: "refused by the last of mixed rules",
        rule: mixed,
        subject: &["display-9999", "tag:display", "tag:floor-9"],
        publisher: &["oven-9999", "tag:kitchen", "tag:floor-9"],
        path: "/sensors/9999/temperature",
        expected: "denied-by-rule",
    },
    Row {
        name: "allowed by one of mixed rules",
        rule: mixed,
        subject: &["display-500", "tag:display", "tag:floor-9"],
        publisher: &["oven-500", "tag:kitchen", "tag:floor-9"],
        path: "/sensors/500/temperature",
        expected: "allowed",
    },
    Row {
        name: "covered by none of mixed rules",
        rule: mixed,
        subject: &["display-500", "tag:display", "tag:floor-9"],
        publisher: &["oven-501", "tag:kitchen", "tag:floor-9"],
        path: "/sensors/500/temperature",
        expected: "no-rule",
    },
    Row {
        name: "refused by the last, two of three parts fit each other",
        rule: crowded,
        subject: &["display-1", "tag:a", "tag:b", "tag:c", "tag:d"],
        publisher: &["oven-1", "tag:a", "tag:b", "tag:c", "tag:d"],
        path: "/sensors/1",
        expected: "denied-by-rule",
    },
    Row {
        name: "refused by the last, all others about names alike",
        rule: alike,
        subject: &["display-09999", "tag:display"],
        publisher: &["oven-09999", "tag:kitchen"],
        path: "/sensors/09999",
        expected: "denied-by-rule",
    },
];

/// Returns a rule with names, beginnings of names, or tags. Half of the rules deny access.
fn mixed(number: usize) -> String {
    let subject = match number % 3 {
        0 => format!("display-{number}"),
        1 => format!("display-{number}*"),
        _ => format!("tag:group-{number}"),
    };
    let publisher = match number % 4 {
        0 => format!("tag:zone-{number}*"),
        1 => "tag:kitchen".to_owned(),
        2 => "*".to_owned(),
        _ => format!("oven-{number}"),
    };
    let path = if number.is_multiple_of(2) { format!("/sensors/{number}/*") } else { "/sensors/*".to_owned() };
    let effect = if number.is_multiple_of(2) && number != RULES { "allow" } else { "deny" };
    match number {
        RULES => rule("display-9999", "tag:kit*", effect, "* /sensors/9999/*"),
        500 => rule("display-50*", "oven-500", effect, &format!("read {path}")),
        9999 | 1 => rule("tag:nobody", &publisher, effect, &format!("read {path}")),
        _ => rule(&subject, &publisher, effect, &format!("read {path}")),
    }
}

/// Returns a rule that matches two of the three parts of a request: its subject, its publisher and its path. Only the
/// last rule matches all three parts. As a result, for each part many rules are candidates, but only one rule is a
/// candidate for all parts.
fn crowded(number: usize) -> String {
    let tag = ["tag:a", "tag:b", "tag:c", "tag:d"][number / 3 % 4];
    match number {
        RULES => rule("*", "*", "deny", "* /*"),
        _ if number.is_multiple_of(3) => rule("tag:other", tag, "deny", "* /sen*"),
        _ if number % 3 == 1 => rule(tag, "tag:other", "deny", "* /sen*"),
        _ => rule(tag, tag, "deny", "* /other"),
    }
}

/// Returns a rule for one device. The names in the rules differ only in their digits.
fn alike(number: usize) -> String {
    let number = number - 1;
    rule(&format!("display-{number:05}"), &format!("oven-{number:05}"), "deny", &format!("GET /sensors/{number:05}"))
}

fn rule(subject: &str, publisher: &str, effect: &str, resource: &str) -> String {
    format!("[[rule]]\nsubject = \"{subject}\"\npublisher = \"{publisher}\"\n{effect} = \"{resource}\"\n")
}

/// Calls `work`. Callgrind counts the instructions of this function.
#[inline(never)]
fn counted<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &words[..] {
        [row, times] => repeat(row, times).map(|()| true),
        _ => compare(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("decisions: {error}");
            ExitCode::FAILURE
        }
    }
}

fn repeat(row: &str, times: &str) -> Result<(), Failure> {
    let row = ROWS.iter().find(|one| one.name == row).ok_or("no such row")?;
    let text: String = (1..=RULES).map(row.rule).collect();
    let policy = Policy::parse("policy.toml", &text)?;
    assert_eq!(policy.rules(), RULES);
    let subject = OwnedParty::from_words(row.subject.iter().copied())?;
    let publisher = OwnedParty::from_words(row.publisher.iter().copied())?;
    let question =
        Question { subject: subject.party(), publisher: publisher.party(), method: Code::GET, path: row.path };
    for _ in 0..times.parse()? {
        let decision = counted(|| black_box(&policy).decide(black_box(&question)));
        assert_eq!(decision.code(), row.expected, "{question}");
        if row.name.contains("the last") {
            let lines = text.matches('\n').count();
            assert_eq!(decision.rule().map(|rule| policy.line_of(rule)), Some(lines - 3), "the last rule");
        }
    }
    Ok(())
}

/// Prints each row. Returns true if all rows are below the limit.
fn compare() -> Result<bool, Failure> {
    println!("instructions of a decision under {RULES} rules, each below {LIMIT}");
    let (few, more) = TIMES;
    let mut within = true;
    for row in &ROWS {
        let difference =
            instructions("decisions", row.name, more)?.checked_sub(instructions("decisions", row.name, few)?);
        let count = difference.ok_or("fewer instructions for more work")? / u64::from(more - few);
        let note = if count < LIMIT { "" } else { "  above the limit" };
        within &= count < LIMIT;
        println!("{:55} {count:6}{note}", row.name);
    }
    Ok(within)
}
