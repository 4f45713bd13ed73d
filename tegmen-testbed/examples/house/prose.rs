//! Checks that a change of prose has changed no token of the code: `./ci.sh prose BASE`.
//!
//! Only comments and doc comments may differ from those in the commit BASE. A Rust file must have the same tokens, a
//! TOML file the same values, a script the same lines of code, and a Markdown file the same code blocks. String
//! literals are tokens, so a message must be changed in a separate commit.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::path::Path;
use std::process::Command;

/// Compares each file below `root` with its version in the commit `base`. Returns the number of files that differ, and
/// a line for each file that differs in more than its prose.
///
/// # Errors
/// If git does not know the commit, or if a file cannot be read or parsed.
pub(crate) fn changes(root: &Path, base: &str) -> Result<(usize, Vec<String>), String> {
    let names = git(root, &["diff", "--name-status", "--no-renames", "-z", base, "--"])?;
    let mut fields = names.split('\0');
    let (mut count, mut changes) = (0, Vec::new());
    while let (Some(status), Some(file)) = (fields.next(), fields.next()) {
        count += 1;
        if status != "M" {
            changes.push(format!("{file}: added or deleted"));
            continue;
        }
        let before = git(root, &["show", &format!("{base}:{file}")])?;
        let now = std::fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))?;
        changes.extend(change(file, &before, &now)?.map(|what| format!("{file}: {what}")));
    }
    Ok((count, changes))
}

/// Returns the first difference between two versions of a file that is not in its prose; `None` if there is none.
///
/// # Errors
/// If one of the versions cannot be parsed.
pub(crate) fn change(file: &str, before: &str, now: &str) -> Result<Option<String>, String> {
    let versions = [before, now];
    let [before, now] = if file.ends_with(".rs") {
        versions.map(tokens)
    } else if file.ends_with(".toml") {
        versions.map(values)
    } else if file.ends_with(".md") {
        versions.map(|text| Ok(blocks(text)))
    } else {
        versions.map(|text| Ok(commands(text)))
    };
    let unreadable = |error| format!("{file}: {error}");
    let (before, now) = (before.map_err(unreadable)?, now.map_err(unreadable)?);
    let same = before.iter().zip(&now).take_while(|(before, now)| before == now).count();
    if same == before.len() && same == now.len() {
        return Ok(None);
    }
    let part = |of: &[String]| of[same.saturating_sub(3).min(of.len())..of.len().min(same + 4)].join(" ");
    Ok(Some(format!("`{}` became `{}`", part(&before), part(&now))))
}

/// Runs git in the folder `root`, and returns its output.
fn git(root: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new("git").current_dir(root).args(words).output().map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the tokens of a Rust file, without comments and doc comments.
fn tokens(text: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    flatten(text.parse().map_err(|error: proc_macro2::LexError| error.to_string())?, &mut tokens);
    Ok(tokens)
}

fn flatten(stream: TokenStream, tokens: &mut Vec<String>) {
    let mut trees = stream.into_iter();
    while let Some(tree) = trees.next() {
        if let Some(rest) = after_doc_comment(&tree, &trees) {
            trees = rest;
            continue;
        }
        match tree {
            TokenTree::Group(group) => {
                let [open, close] = match group.delimiter() {
                    Delimiter::Parenthesis => ["(", ")"],
                    Delimiter::Brace => ["{", "}"],
                    Delimiter::Bracket => ["[", "]"],
                    Delimiter::None => ["", ""],
                };
                tokens.push(open.to_owned());
                flatten(group.stream(), tokens);
                tokens.push(close.to_owned());
            }
            tree => tokens.push(tree.to_string()),
        }
    }
}

/// Returns the tokens that follow a doc comment, if `first` and `rest` begin with one; `None` otherwise. The parser
/// represents a doc comment as the attribute `doc = "..."`.
fn after_doc_comment(
    first: &TokenTree,
    rest: &proc_macro2::token_stream::IntoIter,
) -> Option<proc_macro2::token_stream::IntoIter> {
    let punct = |tree: &TokenTree, expected| matches!(tree, TokenTree::Punct(punct) if punct.as_char() == expected);
    let mut rest = rest.clone();
    if !punct(first, '#') {
        return None;
    }
    let mut tree = rest.next()?;
    if punct(&tree, '!') {
        tree = rest.next()?;
    }
    let TokenTree::Group(group) = tree else { return None };
    let mut inner = group.stream().into_iter();
    let doc = matches!(inner.next()?, TokenTree::Ident(ident) if ident == "doc");
    let is = doc && punct(&inner.next()?, '=') && matches!(inner.next(), Some(TokenTree::Literal(_)));
    (is && inner.next().is_none()).then_some(rest)
}

/// Returns the values of a TOML file as lines of text.
fn values(text: &str) -> Result<Vec<String>, String> {
    let values: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
    Ok(format!("{values:#?}").lines().map(|line| line.trim().to_owned()).collect())
}

/// Returns the lines in the code blocks of a Markdown file.
fn blocks(text: &str) -> Vec<String> {
    let mut code = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        code || fence
    });
    lines.map(str::to_owned).collect()
}

/// Returns the lines of a script that are not comments.
fn commands(text: &str) -> Vec<String> {
    let command = |line: &&str| !line.is_empty() && (line.starts_with("#!") || !line.starts_with('#'));
    text.lines().map(str::trim).filter(command).map(str::to_owned).collect()
}
