//! Draws lines of prose by a seed, for a reader who reads each of them once: `./ci.sh words --draw SEED [COUNT]`.

use crate::source::{Place, files};
use crate::text::{Kind, Text, texts};
use std::path::Path;

/// A shorter line is left out, in characters.
const SHORTEST: usize = 40;

/// Markdown files of the root whose lines are drawn.
const PAGES: [&str; 4] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"];

/// Holds the results of earlier readings, so that a new result does not change the next drawing.
const RESULTS: &str = "docs/reading.md";

/// One line of a paragraph.
pub(crate) struct Line {
    pub(crate) place: Place,
    pub(crate) text: String,
}

/// `count` lines below `root`, each at most once, in the order of the files. The same files and seed give the same lines.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn draw(root: &Path, seed: u64, count: usize) -> Result<Vec<Line>, String> {
    let mut lines = lines(root)?;
    let mut random = SplitMix(seed);
    let count = count.min(lines.len());
    for drawn in 0..count {
        let rest = lines.len() - drawn;
        lines.swap(drawn, drawn + random.below(rest));
    }
    lines.truncate(count);
    lines.sort_by(|a, b| a.place.cmp(&b.place));
    Ok(lines)
}

/// Every line that can be drawn.
fn lines(root: &Path) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for file in [files(root, ".md")?, files(root, ".rs")?].concat() {
        let shown = file.strip_prefix(root).unwrap_or(&file);
        let Some(kind) = source_of(&shown.to_string_lossy()) else { continue };
        let content = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        for text in texts(shown, &content).iter().filter(|text| text.kind == kind && has_sentence(text)) {
            let long = text.lines().filter(|(_, words)| words.chars().count() >= SHORTEST);
            lines.extend(long.map(|(line, words)| Line {
                place: Place { file: shown.display().to_string(), line },
                text: words.to_owned(),
            }));
        }
    }
    Ok(lines)
}

/// The kind of text that is drawn from a file: the prose of a page, or the doc comments of a crate, which are the help of the
/// command too.
fn source_of(file: &str) -> Option<Kind> {
    let parts: Vec<&str> = file.split('/').collect();
    match parts.as_slice() {
        [page] if PAGES.contains(page) => Some(Kind::Markdown),
        ["docs", page] if page.ends_with(".md") && file != RESULTS => Some(Kind::Markdown),
        [_, "src", .., name] if name.ends_with(".rs") && !name.ends_with("tests.rs") && !parts.contains(&"tests") => {
            Some(Kind::Doc)
        }
        _ => None,
    }
}

/// True for a paragraph with an end of a sentence or for a row of words, not for a heading or the line below the head of a table.
fn has_sentence(text: &Text) -> bool {
    let heading = text.text.starts_with('#');
    let row = text.text.starts_with('|') && text.text.contains(char::is_alphabetic);
    let ends = text.text.split_whitespace().any(|word| word.ends_with(['.', ':', '?', ';']));
    !heading && (row || ends)
}

/// The generator of Steele, Lea and Flood, which needs no library.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap_or(0)
    }
}
