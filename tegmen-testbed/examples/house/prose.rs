//! Proves that a rewrite of prose changed no token: `./ci.sh prose BASE`.
//!
//! Comments and doc comments may differ from those of the commit BASE. Rust must have the same tokens, TOML the same values, a
//! script the same lines, and Markdown the same blocks of code. String literals are tokens: a message changes in another commit.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::path::Path;
use std::process::Command;

/// Compares each file below `root` that differs from its version in the commit `base`. Returns the number of files and a line for
/// each difference.
///
/// # Errors
/// A commit that git does not know, or a file that cannot be read or parsed.
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

/// The first difference other than prose between two versions of a file, or `None` if there is none.
///
/// # Errors
/// A version that cannot be parsed.
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

/// Runs git in `root` and returns its output.
fn git(root: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new("git").current_dir(root).args(words).output().map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The tokens of a Rust file without comments and doc comments.
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

/// The trees after a doc comment, which is the attribute `doc = "..."` to the compiler, if `first` and `rest` begin with one.
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

/// The lines of the values of a TOML file.
fn values(text: &str) -> Result<Vec<String>, String> {
    let values: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
    Ok(format!("{values:#?}").lines().map(|line| line.trim().to_owned()).collect())
}

/// The lines of the blocks of code of a Markdown file.
fn blocks(text: &str) -> Vec<String> {
    let mut code = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        code || fence
    });
    lines.map(str::to_owned).collect()
}

/// The lines of a script that are no comments.
fn commands(text: &str) -> Vec<String> {
    let command = |line: &&str| !line.is_empty() && (line.starts_with("#!") || !line.starts_with('#'));
    text.lines().map(str::trim).filter(command).map(str::to_owned).collect()
}
