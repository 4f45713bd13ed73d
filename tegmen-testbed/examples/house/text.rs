//! Finds the prose in a file: comments and strings of Rust, paragraphs of Markdown, and comments of scripts and TOML.

use std::path::Path;

/// The origin of a piece of prose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A paragraph of a doc comment.
    Doc,
    Comment,
    /// A string literal that contains more than one word.
    Literal,
    Markdown,
}

/// One paragraph. A space joins its lines.
pub(crate) struct Text {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    /// For each line of the paragraph: the index of the line's first byte in `text`, and then the number of the line in
    /// the file.
    lines: Vec<(usize, usize)>,
}

impl Text {
    /// Returns the number that the line with the byte `at` of the text has in the file.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.lines.iter().rev().find(|(begin, _)| *begin <= at).map_or(0, |(_, line)| *line)
    }

    /// Returns the lines of which the text consists. Each line has its number in the file.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let ends = self.lines.iter().skip(1).map(|(begin, _)| *begin).chain([self.text.len()]);
        self.lines.iter().zip(ends).map(|((begin, line), end)| (*line, self.text[*begin..end].trim()))
    }

    /// Returns the sentence that contains byte `at` of the text.
    pub(crate) fn sentence(&self, at: usize) -> &str {
        let ends = |(end, _): (usize, &str)| end + 2;
        let begin = self.text[..at].rmatch_indices(". ").next().map_or(0, ends);
        let end = self.text[at..].find(". ").map_or(self.text.len(), |end| at + end + 1);
        self.text[begin..end].trim()
    }

    /// Returns the text in which a backtick replaces each character between backticks, because names are not prose.
    pub(crate) fn prose(&self) -> String {
        let mut code = false;
        let blank = self.text.chars().map(|c| {
            code ^= c == '`';
            if code && c.is_ascii() { '`' } else { c }
        });
        blank.collect()
    }
}

/// Returns the paragraphs of a file. The end of its name selects the language. String literals in tests are left out.
pub(crate) fn texts(file: &Path, content: &str) -> Vec<Text> {
    let mut texts = Texts::default();
    let name = file.to_string_lossy();
    if name.ends_with(".rs") {
        let test = name.ends_with("tests.rs") || name.contains("/tests/");
        rust(content, !test, &mut texts);
    } else if name.ends_with(".md") {
        markdown(content, &mut texts);
    } else {
        for (number, line) in content.lines().enumerate() {
            match line.trim_start().strip_prefix("# ") {
                Some(comment) => texts.add(Kind::Comment, number + 1, comment),
                None => texts.end(),
            }
        }
    }
    texts.end();
    texts.done
}

#[derive(Default)]
struct Texts {
    done: Vec<Text>,
    current: Option<Text>,
    /// True if the current line is between two lines of three backticks.
    code: bool,
}

impl Texts {
    /// Adds a line. The line continues the current paragraph if it has the same kind. An empty line ends the paragraph.
    fn add(&mut self, kind: Kind, line: usize, words: &str) {
        let words = words.trim();
        let fence = words.starts_with("```");
        self.code ^= fence;
        if self.current.as_ref().is_some_and(|text| text.kind != kind) || words.is_empty() || fence || self.code {
            self.end_paragraph();
        }
        if words.is_empty() || fence || self.code {
            return;
        }
        let text = self.current.get_or_insert_with(|| Text { kind, text: String::new(), lines: Vec::new() });
        if !text.text.is_empty() {
            text.text.push(' ');
        }
        text.lines.push((text.text.len(), line));
        text.text.push_str(words);
        // A heading is a paragraph.
        if words.starts_with("# ") {
            self.end_paragraph();
        }
    }

    fn end_paragraph(&mut self) {
        self.done.extend(self.current.take());
    }

    fn end(&mut self) {
        self.end_paragraph();
        self.code = false;
    }
}

fn markdown(content: &str, texts: &mut Texts) {
    for (number, line) in content.lines().enumerate() {
        let first = line.trim_start().chars().next();
        // Items, rows and headings are paragraphs.
        if !texts.code && first.is_some_and(|first| "*-|#".contains(first)) {
            texts.end_paragraph();
        }
        texts.add(Kind::Markdown, number + 1, line);
    }
}

/// Finds the comments and the string literals in Rust code, in the same way as the compiler does.
fn rust(content: &str, literals: bool, texts: &mut Texts) {
    let mut rest = content;
    let (mut line, mut ident) = (1, false);
    while let Some(next) = rest.chars().next() {
        let (length, text) = if let Some(comment) = rest.strip_prefix("//") {
            let comment = comment.lines().next().unwrap_or("");
            let doc = comment.strip_prefix('!').or_else(|| comment.strip_prefix('/').filter(|it| !it.starts_with('/')));
            let kind = if doc.is_some() { Kind::Doc } else { Kind::Comment };
            texts.add(kind, line, doc.unwrap_or(comment));
            (comment.len() + 2, None)
        } else if rest.starts_with("/*") {
            let end = rest.find("*/").map_or(rest.len(), |end| end + 2);
            (end, Some((Kind::Comment, &rest[2..end.max(4) - 2])))
        } else if let Some((length, text)) = literal(rest).filter(|_| !ident) {
            (length, text.filter(|text| literals && text.contains(' ')).map(|text| (Kind::Literal, text)))
        } else {
            if !next.is_whitespace() {
                texts.end();
            }
            (next.len_utf8(), None)
        };
        if let Some((kind, text)) = text {
            texts.end();
            text.lines()
                .enumerate()
                .for_each(|(index, words)| texts.add(kind, line + index, words.trim_end_matches('\\')));
            texts.end();
        }
        line += rest[..length].matches('\n').count();
        ident = length == 1 && (next.is_alphanumeric() || next == '_');
        rest = &rest[length..];
    }
}

/// Returns the length of the string or character literal at the beginning of `rest`, and the content if it is a string.
fn literal(rest: &str) -> Option<(usize, Option<&str>)> {
    let body = rest.trim_start_matches(['b', 'c']);
    let prefix = rest.len() - body.len();
    if let Some(raw) = body.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let text = raw[hashes..].strip_prefix('"')?;
        let end = text.find(&format!("\"{}", "#".repeat(hashes)))?;
        return Some((prefix + 1 + hashes + 1 + end + 1 + hashes, Some(&text[..end])));
    }
    let quote = body.chars().next().filter(|quote| "\"'".contains(*quote))?;
    // `'a` is a lifetime, `'a'` a character.
    let character = body.chars().nth(1) == Some('\\') || body.chars().nth(2) == Some('\'');
    if quote == '\'' && !character {
        return None;
    }
    let mut escaped = false;
    let end = body[1..].find(|c: char| {
        let ends = c == quote && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    Some((prefix + end + 2, (quote == '"').then(|| &body[1..=end])))
}
