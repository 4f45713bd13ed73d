//! Draws plots as SVG. They contain no script and no font, and load nothing. Their colors are light or dark, as the
//! reader has chosen.

mod bars;
mod canvas;
mod lines;
mod map;
mod scale;

pub use bars::{Bars, bars};
pub use lines::{Series, distribution, lines};
pub use map::{Node, map};

/// A value, and the lower and upper bound of its confidence interval; `None` if there is no interval.
pub type Value = (f64, Option<[f64; 2]>);

/// Returns the text with the escapes that HTML and SVG require.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
