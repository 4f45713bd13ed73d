//! Reads the text of a policy file.

use super::pattern::{OwnedParty, Pattern};
use super::rule::{Effect, Resource, Rule, Test, is_request_path};
use std::collections::BTreeMap;
use std::ops::Range;
use tegmen_coap::{self as coap, Code, Methods};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum number of rules of a policy.
pub const MAX_RULES: usize = 65_536;

/// The reason why a policy file cannot be used. Its text has the form `file:line: key: correction`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct PolicyError {
    /// The name of the file, as the caller gave it.
    pub file: String,
    /// The number of the line, from 1.
    pub line: usize,
    /// The key and the mistake, with its correction.
    pub message: String,
}

/// The rules and the tests of a policy file.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) rules: Vec<Rule>,
    pub(super) tests: Vec<Test>,
}

/// A mistake in the text: its position in bytes, and the correction.
type Mistake = (usize, String);
type Value<'i> = Spanned<DeValue<'i>>;

const RULE_KEYS: [&str; 5] = ["name", "subject", "publisher", "allow", "deny"];
const TEST_KEYS: [&str; 5] = ["subject", "publisher", "request", "expect", "by"];

/// Reads the text of a policy.
pub(super) fn parse(file: &str, text: &str) -> Result<Contents, PolicyError> {
    read(text).map_err(|(at, message)| {
        let line = lines(text).partition_point(|start| *start <= at).max(1);
        PolicyError { file: file.to_owned(), line, message }
    })
}

/// Returns the offsets in bytes at which the lines begin.
fn lines(text: &str) -> Vec<usize> {
    let behind = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at.saturating_add(1));
    std::iter::once(0).chain(behind).collect()
}

fn read(text: &str) -> Result<Contents, Mistake> {
    let lines = lines(text);
    let line_of = |span: Range<usize>| lines.partition_point(|start| *start <= span.start);
    let table = DeTable::parse(text)
        .map_err(|error| (error.span().map_or(0, |span| span.start), error.message().to_owned()))?
        .into_inner();
    let mut contents = Contents::default();
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "rule" => {
                for entry in entries("rule", value)? {
                    let line = line_of(entry.span());
                    contents.rules.push(rule(line, &Entry::new("rule", &RULE_KEYS, &entry)?)?);
                    if contents.rules.len() > MAX_RULES {
                        return Err((entry.span().start, format!("rule: at most {MAX_RULES} rules")));
                    }
                }
            }
            "test" => {
                for entry in entries("test", value)? {
                    let line = line_of(entry.span());
                    contents.tests.push(test(line, &Entry::new("test", &TEST_KEYS, &entry)?)?);
                }
            }
            other => {
                let message = format!("{other}: a policy has only [[rule]] and [[test]]");
                return Err((key.span().start, message));
            }
        }
    }
    check_names(text, &contents)?;
    Ok(contents)
}

/// Checks that no two rules have the same name. If a test has the key `by`, checks that a rule has the name in the
/// value of this key.
fn check_names(text: &str, contents: &Contents) -> Result<(), Mistake> {
    let lines = lines(text);
    let at = |line: usize| lines.get(line.saturating_sub(1)).copied().unwrap_or(0);
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for rule in &contents.rules {
        let Some(name) = rule.name.as_deref() else { continue };
        if let Some(first) = names.insert(name, rule.line) {
            return Err((
                at(rule.line),
                format!("name: {name} is the name of the rule in line {first} too; change one"),
            ));
        }
    }
    for test in &contents.tests {
        let Some(by) = test.by.as_deref().filter(|by| !names.contains_key(by)) else { continue };
        let similar = names.keys().min_by_key(|name| distance(name, by));
        let hint = similar.map_or_else(String::new, |name| format!("; there is {name}"));
        return Err((at(test.line), format!("by: no rule has the name {by}{hint}")));
    }
    Ok(())
}

/// Returns the number of positions at which two names differ. This measure is enough to find a misspelled name.
fn distance(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).filter(|(a, b)| a != b).count().saturating_add(a.len().abs_diff(b.len()))
}

/// Returns the tables of an array of tables, such as all `[[rule]]` entries.
fn entries<'i>(key: &str, value: Value<'i>) -> Result<Vec<Value<'i>>, Mistake> {
    let at = value.span().start;
    match value.into_inner() {
        DeValue::Array(array) => Ok(array.into_iter().collect()),
        _ => Err((at, format!("{key}: write [[{key}]] before each entry, with two brackets"))),
    }
}

/// The keys and values of one `[[rule]]` or `[[test]]`.
struct Entry<'e, 'i> {
    kind: &'static str,
    at: usize,
    table: &'e DeTable<'i>,
}

impl<'e, 'i> Entry<'e, 'i> {
    fn new(kind: &'static str, known: &[&str], value: &'e Value<'i>) -> Result<Self, Mistake> {
        let at = value.span().start;
        let DeValue::Table(table) = value.get_ref() else {
            return Err((at, format!("{kind}: write [[{kind}]] before each entry, with two brackets")));
        };
        for key in table.keys() {
            let word = key.get_ref().as_ref();
            if !known.contains(&word) {
                return Err((key.span().start, format!("{word}: a [[{kind}]] has the keys {}", known.join(", "))));
            }
        }
        Ok(Self { kind, at, table })
    }

    fn get(&self, key: &str) -> Option<&'e Value<'i>> {
        self.table.get(key)
    }

    fn required(&self, key: &str, example: &str) -> Result<&'e Value<'i>, Mistake> {
        self.get(key).ok_or_else(|| (self.at, format!("{key}: missing in this [[{}]]: {key} = {example}", self.kind)))
    }
}

/// Reads a value that must be a string.
fn string<'e>(key: &str, value: &'e Value<'_>) -> Result<(usize, &'e str), Mistake> {
    let at = value.span().start;
    match value.get_ref() {
        DeValue::String(text) => Ok((at, text)),
        other => Err((at, format!("{key}: a text in quotation marks, this is of type {}", other.type_str()))),
    }
}

/// Reads a value that must be a string, or a list of strings that is not empty.
fn strings<'e>(key: &str, value: &'e Value<'_>) -> Result<Vec<(usize, &'e str)>, Mistake> {
    let DeValue::Array(array) = value.get_ref() else {
        return string(key, value).map(|one| vec![one]);
    };
    if array.is_empty() {
        return Err((value.span().start, format!("{key}: the list is empty; remove the entry, or name one")));
    }
    array.iter().map(|value| string(key, value)).collect()
}

fn patterns(key: &str, value: &Value<'_>) -> Result<Vec<Pattern>, Mistake> {
    let parse = |(at, word): (usize, &str)| Pattern::parse(word).map_err(|message| (at, format!("{key}: {message}")));
    strings(key, value)?.into_iter().map(parse).collect()
}

fn party(key: &str, value: &Value<'_>) -> Result<OwnedParty, Mistake> {
    let words = strings(key, value)?;
    OwnedParty::from_words(words.into_iter().map(|(_, word)| word))
        .map_err(|message| (value.span().start, format!("{key}: {message}")))
}

fn resource(key: &str, at: usize, text: &str) -> Result<Resource, Mistake> {
    let wrong = |message: String| (at, format!("{key}: {message}"));
    let rule = coap::Rule::parse(text).ok_or_else(|| wrong(format!("{}; this is \"{text}\"", coap::Rule::EXPECTED)))?;
    // A path that ends with `*` stands for all paths with this beginning. The check below uses the path with `x` for
    // the `*`.
    let path = rule.path.strip_suffix('*').map_or_else(|| rule.path.to_owned(), |beginning| format!("{beginning}x"));
    if path.contains('*') {
        return Err(wrong(format!("a * stands only at the end of a path; {} has one before", rule.path)));
    }
    if !is_request_path(&path) {
        return Err(wrong(format!(
            "no request has the path {}: a segment of it is empty, or is . or .. (RFC 7252, section 5.10.1)",
            rule.path
        )));
    }
    Ok(Resource::new(&rule))
}

fn rule(line: usize, entry: &Entry<'_, '_>) -> Result<Rule, Mistake> {
    let name = entry.get("name").map(|value| string("name", value)).transpose()?;
    if let Some((at, "")) = name {
        return Err((at, "name: it is empty; give the rule a name, or remove the key".to_owned()));
    }
    let subjects = patterns("subject", entry.required("subject", "\"NAME\" or \"tag:TAG\"")?)?;
    let publishers = patterns("publisher", entry.required("publisher", "\"NAME\" or \"tag:TAG\"")?)?;
    let (effect, list) = match (entry.get("allow"), entry.get("deny")) {
        (Some(list), None) => (Effect::Allow, list),
        (None, Some(list)) => (Effect::Deny, list),
        (Some(_), Some(both)) => {
            let message = "deny: a [[rule]] has allow or deny, not both; write two of them".to_owned();
            return Err((both.span().start, message));
        }
        (None, None) => {
            return Err((
                entry.at,
                "allow: missing in this [[rule]]: allow = [\"GET /sensors/*\"], or deny".to_owned(),
            ));
        }
    };
    let key = effect.name();
    let resources =
        strings(key, list)?.into_iter().map(|(at, text)| resource(key, at, text)).collect::<Result<_, _>>()?;
    Ok(Rule { line, name: name.map(|(_, name)| name.to_owned()), subjects, publishers, effect, resources })
}

fn test(line: usize, entry: &Entry<'_, '_>) -> Result<Test, Mistake> {
    let subject = party("subject", entry.required("subject", "\"NAME\" or [\"NAME\", \"tag:TAG\"]")?)?;
    let publisher = party("publisher", entry.required("publisher", "\"NAME\" or [\"NAME\", \"tag:TAG\"]")?)?;
    let (at, text) = string("request", entry.required("request", "\"GET /path\"")?)?;
    let (method, path) = request(text).map_err(|message| (at, format!("request: {message}")))?;
    let (at, expect) = string("expect", entry.required("expect", "\"allow\" or \"deny\"")?)?;
    let expect = match expect {
        "allow" => Effect::Allow,
        "deny" => Effect::Deny,
        other => return Err((at, format!("expect: \"allow\" or \"deny\"; this is \"{other}\""))),
    };
    let by = entry.get("by").map(|value| string("by", value)).transpose()?.map(|(_, by)| by.to_owned());
    Ok(Test { line, subject, publisher, method, path: path.to_owned(), expect, by })
}

/// Reads a request such as `GET /temp`, and returns its method and its path.
///
/// # Errors
/// If `text` is no request: a text that explains how to write a request.
pub fn request(text: &str) -> Result<(Code, &str), String> {
    let right = "one method and one path, as \"GET /temp\"";
    let rule = coap::Rule::parse(text).ok_or_else(|| format!("{right}; this is \"{text}\""))?;
    let method = (1..=7).map(Code).find(|code| Methods::of(*code) == rule.methods);
    let method = method.ok_or_else(|| format!("{right}; {} is more than one method", rule.methods))?;
    if rule.path.ends_with('*') {
        return Err(format!("{right}; {} is many paths", rule.path));
    }
    Ok((method, rule.path))
}
