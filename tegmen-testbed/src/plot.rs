//! Plots as SVG. They contain no script and no font, load nothing, and follow the reader's choice of a light or a dark scheme.

mod bars;
mod canvas;
mod lines;
mod map;
mod scale;

pub use bars::{Bars, bars};
pub use lines::{Series, distribution, lines};
pub use map::{Node, map};

/// A value, and the bounds of its interval.
pub type Value = (f64, Option<[f64; 2]>);

/// Text in the form that HTML and SVG allow.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
