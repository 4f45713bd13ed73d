//! Finds idioms that a reader has to read twice, in all texts that people read: `./ci.sh words`.

use crate::source::{Place, files};
use crate::text::{Kind, texts};
use regex::Regex;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// `words.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Words {
    idiom: Vec<Idiom>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Idiom {
    name: String,
    /// A regular expression for the idiom. It matches upper case and lower case.
    pattern: String,
    /// Another regular expression. A hit at a place where it matches does not count.
    except: Option<String>,
    /// Plain words that can replace the idiom.
    better: String,
    /// True if only doc comments are searched for the idiom.
    #[serde(default)]
    doc: bool,
}

/// One place of an idiom.
pub(crate) struct Hit {
    pub(crate) place: Place,
    pub(crate) idiom: String,
    pub(crate) sentence: String,
    pub(crate) better: String,
}

/// Returns every hit below `root`, in the order of the files.
///
/// # Errors
/// If a pattern is not a regular expression, or if a file cannot be read.
pub(crate) fn hits(root: &Path, words: &Words) -> Result<Vec<Hit>, String> {
    let expression = |pattern: &str| Regex::new(&format!("(?i){pattern}")).map_err(|error| error.to_string());
    let mut idioms = Vec::new();
    for idiom in &words.idiom {
        let except = idiom.except.as_ref().map(|except| expression(&format!("^(?:{except})"))).transpose()?;
        idioms.push((idiom, expression(&idiom.pattern)?, except));
    }
    let mut hits = Vec::new();
    for file in
        [".rs", ".md", ".toml", ".sh"].iter().map(|suffix| files(root, suffix)).collect::<Result<Vec<_>, _>>()?.concat()
    {
        let content = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let shown = file.strip_prefix(root).unwrap_or(&file);
        for text in texts(shown, &content) {
            let prose = text.prose();
            for (idiom, expression, except) in idioms.iter().filter(|(idiom, ..)| !idiom.doc || text.kind == Kind::Doc)
            {
                for found in expression.find_iter(&prose) {
                    if except.as_ref().is_some_and(|except| except.is_match(&prose[found.start()..])) {
                        continue;
                    }
                    let at = found.end();
                    hits.push(Hit {
                        place: Place { file: shown.display().to_string(), line: text.line(at) },
                        idiom: idiom.name.clone(),
                        sentence: text.sentence(at).to_owned(),
                        better: idiom.better.clone(),
                    });
                }
            }
        }
    }
    hits.sort_by(|a, b| a.place.cmp(&b.place));
    Ok(hits)
}

/// Returns the number of hits in each folder. Folders are counted two levels deep, and `.` stands for files in the
/// root.
pub(crate) fn by_folder(hits: &[Hit]) -> BTreeMap<String, usize> {
    let mut folders = BTreeMap::new();
    for hit in hits {
        let parts: Vec<&str> = hit.place.file.split('/').collect();
        let folder = match parts.as_slice() {
            [_] => ".".to_owned(),
            [folder, _] => (*folder).to_owned(),
            [folder, inner, ..] => format!("{folder}/{inner}"),
            [] => continue,
        };
        *folders.entry(folder).or_default() += 1;
    }
    folders
}

/// Prints the number of hits in each folder and of each idiom.
pub(crate) fn print(words: &Words, hits: &[Hit]) {
    for (folder, count) in by_folder(hits) {
        println!("{count:>6}  {folder}");
    }
    println!();
    for idiom in &words.idiom {
        let count = hits.iter().filter(|hit| hit.idiom == idiom.name).count();
        println!("{count:>6}  {:<28} better: {}", idiom.name, idiom.better);
    }
    println!("{:>6}  in all", hits.len());
}

/// Prints each hit below `folder`, with its sentence and the better words.
pub(crate) fn list(hits: &[Hit], folder: &str) {
    let folder = folder.trim_end_matches('/');
    let below = |file: &str| file.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    for hit in hits.iter().filter(|hit| folder.is_empty() || folder == "." || below(&hit.place.file)) {
        let Hit { place, idiom, sentence, better } = hit;
        println!("{}:{}: {sentence}\n    {idiom} -> {better}", place.file, place.line);
    }
}
