//! The configuration file: TOML, whose keys are options of `tegmen serve`. Each key is converted to the option with the
//! same name, so key and option have one definition.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::collections::HashMap;
use std::error::Error as _;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A setting that is wrong: the name of the option, and the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    /// The option without its dashes. Empty if the mistake does not belong to one option.
    pub(super) key: String,
    pub(super) why: String,
}

impl Mistake {
    pub(super) fn new(key: &str, why: impl ToString) -> Self {
        Self { key: key.to_owned(), why: why.to_string() }
    }
}

/// The path of the configuration file, and for each option in the file the number of its line.
#[derive(Default)]
pub(super) struct Places {
    file: PathBuf,
    lines: HashMap<String, usize>,
}

impl Places {
    /// Returns the text of a mistake: the file and the line if the option is in the file, the name of the option, and
    /// the reason.
    pub(super) fn describe(&self, mistake: &Mistake) -> String {
        let Mistake { key, why } = mistake;
        match self.lines.get(key) {
            Some(line) => format!("{}:{line}: {key}: {why}", self.file.display()),
            None if key.is_empty() => why.clone(),
            None => format!("--{key}: {why}"),
        }
    }
}

/// Returns the section of an option: the heading of the option in the help, in lower case.
pub(super) fn section(arg: &Arg) -> Option<String> {
    Some(arg.get_help_heading()?.to_lowercase().replace(' ', "-"))
}

/// Returns the options that a file may set. `serve` is the command `tegmen serve`.
pub(super) fn keys(serve: &Command) -> impl Iterator<Item = &Arg> {
    serve.get_arguments().filter(|arg| section(arg).is_some())
}

/// One key of a file.
struct Entry<'c> {
    arg: &'c Arg,
    line: usize,
    options: Vec<OsString>,
}

/// Reads a file and returns the options that it sets, with their lines. Leaves out an option if `given` (the command
/// line and the environment) has this option or an option that excludes it.
///
/// # Errors
/// All mistakes of the file, each with file, line and key.
pub(super) fn read(file: &Path, serve: &Command, given: &ArgMatches) -> Result<(Vec<OsString>, Places), Vec<String>> {
    let name = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| vec![format!("{name}: {error}; correct the path, or the permissions there")])?;
    let line_of = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    let table = DeTable::parse(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(span.start));
        vec![format!("{name}:{line}: {}", error.message())]
    })?;
    let mut mistakes = Vec::new();
    let mut entries = Vec::new();
    for (name_of_section, content) in table.get_ref() {
        let line = line_of(name_of_section.span().start);
        let section_name: &str = name_of_section.get_ref();
        let DeValue::Table(content) = content.get_ref() else {
            mistakes.push((line, section_name.to_owned(), why_outside(serve, section_name)));
            continue;
        };
        if !keys(serve).any(|arg| section(arg).as_deref() == Some(section_name)) {
            mistakes.push((line, section_name.to_owned(), format!("no such section; there are {}", sections(serve))));
            continue;
        }
        for (key, value) in content {
            let line = line_of(key.span().start);
            match entry(serve, section_name, (key.get_ref(), line), value) {
                Ok(entry) => entries.push(entry),
                Err(why) => mistakes.push((line, format!("{section_name}.{}", key.get_ref()), why)),
            }
        }
    }
    mistakes.sort_by_key(|(line, ..)| *line);
    if !mistakes.is_empty() {
        return Err(mistakes.into_iter().map(|(line, key, why)| format!("{name}:{line}: {key}: {why}")).collect());
    }
    entries.retain(|entry| !is_overridden(serve, entry.arg, given));
    let lines = entries.iter().map(|entry| (long(entry.arg).to_owned(), entry.line)).collect();
    let options = entries.into_iter().flat_map(|entry| entry.options).collect();
    Ok((options, Places { file: file.to_owned(), lines }))
}

fn long(arg: &Arg) -> &str {
    arg.get_long().unwrap_or_default()
}

fn sections(serve: &Command) -> String {
    let mut names: Vec<String> = Vec::new();
    for section in keys(serve).filter_map(section) {
        if !names.contains(&section) {
            names.push(section);
        }
    }
    names.iter().map(|name| format!("[{name}]")).collect::<Vec<_>>().join(", ")
}

/// Returns the reason why a key outside of a section is wrong.
fn why_outside(serve: &Command, key: &str) -> String {
    match keys(serve).find(|arg| long(arg) == key).and_then(section) {
        Some(section) => format!("it belongs to the section [{section}]"),
        None => format!("each key belongs to a section; there are {}", sections(serve)),
    }
}

/// Returns true if the command line or the environment gives this option, or an option that excludes it.
fn is_overridden(serve: &Command, arg: &Arg, given: &ArgMatches) -> bool {
    let is_given = |arg: &Arg| {
        let source = given.value_source(arg.get_id().as_str());
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    let excludes = |one: &Arg, other: &Arg| {
        serve.get_arg_conflicts_with(one).iter().any(|excluded| excluded.get_id() == other.get_id())
    };
    is_given(arg)
        || keys(serve).filter(|other| is_given(other)).any(|other| excludes(other, arg) || excludes(arg, other))
}

/// Reads one key of a section of the configuration file.
///
/// # Errors
/// The reason why the key is wrong, and the correction.
fn entry<'c>(
    serve: &'c Command,
    section_name: &str,
    (key, line): (&str, usize),
    value: &Spanned<DeValue<'_>>,
) -> Result<Entry<'c>, String> {
    let arg = keys(serve).find(|arg| long(arg) == key).ok_or_else(|| why_unknown(serve, section_name, key))?;
    if section(arg).as_deref() != Some(section_name) {
        return Err(why_outside(serve, key));
    }
    let values = values(arg, value.get_ref())?;
    check(arg, &values)?;
    let option = |value: &String| match arg.get_action() {
        ArgAction::SetTrue => format!("--{key}").into(),
        _ => format!("--{key}={value}").into(),
    };
    Ok(Entry { arg, line, options: values.iter().map(option).collect() })
}

/// Checks the values of an option as the command line checks them, except for conflicts with other options.
fn check(arg: &Arg, values: &[String]) -> Result<(), String> {
    if matches!(arg.get_action(), ArgAction::SetTrue) || values.is_empty() {
        return Ok(());
    }
    let alone = Arg::new(arg.get_id().clone()).value_parser(arg.get_value_parser().clone()).num_args(1..);
    let command = Command::new("serve").no_binary_name(true).arg(alone);
    let arguments = ["--".to_owned()].into_iter().chain(values.iter().cloned());
    command.try_get_matches_from(arguments).map(drop).map_err(|error| why_wrong(arg, &error))
}

fn why_unknown(serve: &Command, section_name: &str, key: &str) -> String {
    // The command line has a search for what resembles a name.
    let guess = serve.clone().no_binary_name(true).try_get_matches_from([format!("--{key}=")]).err();
    let guess = guess.as_ref().and_then(|error| error.get(ContextKind::SuggestedArg));
    let like = match guess {
        Some(ContextValue::String(like)) => keys(serve).find(|arg| Some(long(arg)) == like.strip_prefix("--")),
        _ => None,
    };
    if let Some((like, section)) = like.and_then(|like| Some((long(like), section(like)?))) {
        return format!("no such key; {like} in [{section}] is like it");
    }
    let own = keys(serve).filter(|arg| section(arg).as_deref() == Some(section_name)).map(long);
    format!("no such key; [{section_name}] has {}", own.collect::<Vec<_>>().join(", "))
}

/// Returns the values of an option in the file. A switch that is true has one empty value, and a switch that is false
/// has none.
fn values(arg: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let expected = |what: &str| format!("{what} is expected, and here is {}", article(value.type_str()));
    let (list, what) = match (arg.get_action(), value) {
        (ArgAction::SetTrue, DeValue::Boolean(true)) => return Ok(vec![String::new()]),
        (ArgAction::SetTrue, DeValue::Boolean(false)) => return Ok(Vec::new()),
        (ArgAction::SetTrue, _) => return Err(expected("true or false")),
        (ArgAction::Append, DeValue::Array(list)) => {
            (list.iter().map(|value| text(value.get_ref())).collect(), "a list of texts")
        }
        (ArgAction::Append, value) => (text(value).map(|one| vec![one]), "a list of texts"),
        (_, value) => (text(value).map(|one| vec![one]), "one text or number"),
    };
    list.ok_or_else(|| expected(what))
}

fn article(kind: &str) -> String {
    let vowel = kind.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {kind}", if vowel { "an" } else { "a" })
}

/// Returns a text or a number in the form that the command line has.
fn text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// Returns the reason why the command line refuses a value, and the help of the option.
fn why_wrong(arg: &Arg, error: &clap::Error) -> String {
    let value = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.as_str(),
        _ => "",
    };
    if let Some(ContextValue::Strings(right)) = error.get(ContextKind::ValidValue).filter(|_| !value.is_empty()) {
        return format!("\"{value}\" is none of {}", right.join(", "));
    }
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    match error.source() {
        Some(source) => format!("\"{value}\" is wrong: {source} ({help})"),
        None => format!("a value is missing ({help})"),
    }
}

/// Returns the mistakes that `error` reports. Each option is valid alone, but the options are wrong together: for
/// example, two options exclude each other.
pub(super) fn together(error: &clap::Error) -> Vec<Mistake> {
    let key = |kind| match error.get(kind) {
        Some(ContextValue::String(option)) => {
            option.split([' ', '=', '<']).next().map(|name| name.trim_start_matches('-').to_owned())
        }
        _ => None,
    };
    let rendered = error.render().to_string();
    match (error.kind(), key(ContextKind::InvalidArg), key(ContextKind::PriorArg)) {
        (ErrorKind::ArgumentConflict, Some(one), Some(other)) => {
            vec![Mistake::new(&one, format!("it cannot be used together with {other}"))]
        }
        (_, Some(key), _) => vec![Mistake::new(&key, rendered.lines().next().unwrap_or_default())],
        _ => vec![Mistake::new("", rendered.trim_end())],
    }
}
