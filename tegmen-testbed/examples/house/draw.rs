//! Chooses random lines of prose for a reader who reads each of them once: `./ci.sh words --draw SEED [COUNT]`.

use crate::source::{Place, files};
use crate::text::{Kind, Text, texts};
use std::path::Path;

/// Minimum length of a line, in characters. Shorter lines are left out.
const SHORTEST: usize = 40;

/// The Markdown files in the root folder whose lines can be drawn.
const PAGES: [&str; 4] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"];

/// The page with the results of earlier readings. Its lines are left out, so that a new result does not change the next
/// drawing.
const RESULTS: &str = "docs/reading.md";

/// One line of a paragraph.
pub(crate) struct Line {
    pub(crate) place: Place,
    pub(crate) text: String,
}

/// Draws `count` lines below `root`, each at most once, and returns them in the order of the files. The same files and
/// the same seed give the same lines.
///
/// # Errors
/// If a file cannot be read.
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

/// Returns every line that can be drawn.
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

/// Returns the kind of text that is drawn from a file; `None` if nothing is drawn from it. The text is the prose of a
/// page, or the doc comments of a crate. Doc comments are also the help of the command.
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

/// Returns true for a paragraph that contains the end of a sentence, and for a table row that contains words. Returns
/// false for a heading, and for the line below the head of a table.
fn has_sentence(text: &Text) -> bool {
    let heading = text.text.starts_with('#');
    let row = text.text.starts_with('|') && text.text.contains(char::is_alphabetic);
    let ends = text.text.split_whitespace().any(|word| word.ends_with(['.', ':', '?', ';']));
    !heading && (row || ends)
}

/// The random number generator of Steele, Lea and Flood (SplitMix). It needs no library.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number from 0 to `limit - 1`. `limit` must not be 0.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap_or(0)
    }
}
