//! Checks the links in the Markdown files. Each link must lead to a file that exists, and to a heading in this file.
//! The pages in docs/ are a book, whose summary must name each page once. `./ci.sh docs` builds the book, and also runs
//! the test of the links in the book. The messages on the page about errors must be messages of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Returns the root folder of the project's checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the testbed is a folder of the project").to_owned()
}

/// Finds the files below `folder` whose names end with `end`. Files that a build or a tool has written are left out.
fn files(folder: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap_or_default();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !name.starts_with('.') && name != "target" && name != "corpus" {
            files(&entry.path(), end, found);
        } else if kind.is_file() && name.ends_with(end) {
            found.push(entry.path());
        }
    }
}

/// Returns the lines outside of code blocks, each with its number.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((at + 1, line))
    })
}

/// Returns the line without the parts that are formatted as code.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Returns the targets of all links in a line.
fn targets(line: &str) -> Vec<String> {
    let line = without_code(line);
    line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

/// Returns true if the target of a link is on another site.
fn is_elsewhere(target: &str) -> bool {
    target.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(|sign| sign.is_ascii_alphabetic()))
}

/// Returns the anchor of a heading in the form of GitHub and mdbook.
fn anchor(heading: &str) -> String {
    // Of a link the text counts.
    let mut shown = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        shown.push_str(before);
        rest = after.split_once(')').map_or("", |(_, behind)| behind);
    }
    shown.push_str(rest);
    shown
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(|sign| match sign {
            ' ' => Some('-'),
            '-' | '_' => Some(sign),
            _ => sign.is_alphanumeric().then_some(sign),
        })
        .collect()
}

/// Returns the anchors of all headings in a Markdown text. The anchor of a repeated heading has a number at its end.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor = anchor(heading);
        let count = seen.entry(anchor.clone()).or_default();
        anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    anchors
}

/// Returns the path to which a link in a file of the folder `folder` leads.
fn resolved(folder: &Path, target: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// Returns the links of a Markdown file whose target does not exist.
fn dead(file: &Path, text: &str) -> Vec<String> {
    let folder = file.parent().unwrap();
    let mut dead = Vec::new();
    for (number, line) in prose(text) {
        for target in targets(line).into_iter().filter(|target| !is_elsewhere(target)) {
            let (path, name) = target.split_once('#').unwrap_or((target.as_str(), ""));
            let to = if path.is_empty() { file.to_owned() } else { resolved(folder, path) };
            let is_dead = if name.is_empty() {
                !to.exists()
            } else if to == file {
                !anchors(text).contains(name)
            } else {
                !fs::read_to_string(&to).is_ok_and(|text| anchors(&text).contains(name))
            };
            if is_dead {
                dead.push(format!("{}:{number}: {target}", file.display()));
            }
        }
    }
    dead
}

#[test]
fn every_link_of_a_markdown_file_leads_to_a_file_and_a_heading() {
    let mut pages = Vec::new();
    files(&root(), ".md", &mut pages);
    assert!(pages.len() > 30, "the Markdown files are not found");
    let dead: Vec<_> = pages.iter().flat_map(|page| dead(page, &fs::read_to_string(page).unwrap())).collect();
    assert!(dead.is_empty(), "correct these links, or the headings that they name:\n{}", dead.join("\n"));
}

#[test]
fn a_dead_link_is_found() {
    let page = root().join("docs/page.md");
    let text = "# A *page*: its `name`, [link](index.md) and end_\n\n# Twice\n\n# Twice\n\n\
        [a](index.md) [b](#a-page-its-name-link-and-end_) [c](#twice-1) [d](../README.md#try-it) `[e](none.md)` [f](https://a/b.md)\n\
        ```\n[g](none.md)\n# Code\n```\n\
        [h](none.md) [i](#code) [j](../README.md#none) [k](#twice-2) [l](../none/)\n";
    let found: Vec<_> =
        dead(&page, text).into_iter().filter_map(|line| Some(line.rsplit_once(' ')?.1.to_owned())).collect();
    assert_eq!(found, ["none.md", "#code", "../README.md#none", "#twice-2", "../none/"]);
}

#[test]
fn the_summary_of_the_book_has_each_page_once() {
    let docs = root().join("docs");
    let mut pages = Vec::new();
    files(&docs, ".md", &mut pages);
    let mut pages: Vec<_> = pages.iter().map(|page| page.strip_prefix(&docs).unwrap().display().to_string()).collect();
    pages.retain(|page| page != "SUMMARY.md");
    pages.sort();
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut named: Vec<_> = summary.lines().flat_map(targets).collect();
    named.sort();
    assert_eq!(pages, named);
}

#[test]
fn the_messages_on_the_page_about_errors_are_those_of_the_program() {
    let mut sources = Vec::new();
    files(&root(), ".rs", &mut sources);
    let program: String = sources
        .iter()
        .filter(|source| {
            let path = source.strip_prefix(root()).unwrap().display().to_string();
            path.contains("/src/") && !path.contains("test")
        })
        .map(|source| joined(&fs::read_to_string(source).unwrap()))
        .collect();
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let messages: Vec<_> = page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0)).collect();
    assert!(messages.len() > 50, "the messages are not found");
    for message in messages {
        let text = match message.strip_prefix("tegmen_") {
            // The name of a metric, as `metrics.rs` has it.
            Some(metric) => {
                let name = metric.split_once('{').map_or(metric, |(name, _)| name);
                format!("\"{}\"", name.strip_suffix("_total").unwrap_or(name))
            }
            None => message.to_owned(),
        };
        assert!(
            program.contains(&text),
            "no message of the program has \"{message}\": correct docs/troubleshooting.md"
        );
    }
}

/// Returns the source code with each string literal in one line, also if the literal continues on the next line.
fn joined(source: &str) -> String {
    let mut text = String::new();
    for line in source.lines() {
        let line = if text.ends_with('\\') {
            text.pop();
            line.trim_start()
        } else {
            text.push('\n');
            line
        };
        text.push_str(line);
    }
    text
}

/// Returns the values of an attribute in an HTML page of the book.
fn values<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
    page.split(attribute).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0)).collect()
}

#[test]
#[ignore = "needs the book: ./ci.sh docs"]
fn every_link_of_the_book_leads_to_a_file_and_an_anchor() {
    let book = root().join("target/book");
    let mut files_of_book = Vec::new();
    files(&book, ".html", &mut files_of_book);
    let pages: BTreeMap<PathBuf, String> =
        files_of_book.into_iter().map(|file| (file.clone(), fs::read_to_string(file).unwrap())).collect();
    let mut docs = Vec::new();
    files(&root().join("docs"), ".md", &mut docs);
    assert!(pages.len() >= docs.len() - 1, "the book has not each page: mdbook build");
    let mut dead = Vec::new();
    for (file, page) in &pages {
        let links = values(page, " href=\"").into_iter().chain(values(page, " src=\""));
        for target in links.filter(|target| !is_elsewhere(target)) {
            let (path, name) = target.split_once('#').unwrap_or((target, ""));
            let to = if path.is_empty() { file.clone() } else { resolved(file.parent().unwrap(), path) };
            let has_anchor =
                pages.get(&to).is_none_or(|page| name.is_empty() || values(page, " id=\"").contains(&name));
            if !to.exists() || !has_anchor {
                dead.push(format!("{}: {target}", file.display()));
            }
        }
    }
    assert!(dead.is_empty(), "the book has dead links:\n{}", dead.join("\n"));
}
