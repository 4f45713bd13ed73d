//! A picture that is being drawn. It has a size and colors, and breaks texts into lines that fit.

use super::escape;
use std::fmt::Write as _;

/// A picture that is being drawn. Its height follows from the drawn elements.
pub(super) struct Canvas {
    title: String,
    body: String,
    /// The distance from the top of the picture to the end of the drawn elements, in SVG units.
    pub(super) bottom: f64,
}

impl Canvas {
    /// Begins a picture. Writes its title in as many lines as the title needs.
    pub(super) fn new(title: &str) -> Self {
        let mut canvas = Self { title: title.to_owned(), body: String::new(), bottom: 4.0 };
        for line in wrapped(title, (WIDTH - 2.0 * MARGIN) / BOLD) {
            canvas.bottom += LINE;
            let (y, line) = (canvas.bottom, escape(&line));
            canvas.add(&format!("<text x=\"{MARGIN}\" y=\"{y:.0}\" font-weight=\"600\">{line}</text>"));
        }
        canvas
    }

    /// Adds an SVG element to the picture.
    pub(super) fn add(&mut self, element: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.body, "{element}");
    }

    /// Writes a text with its base line at `y`. The text begins, ends, or has its middle at `x`, as `anchor` selects.
    pub(super) fn text(&mut self, anchor: Anchor, x: f64, y: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        self.add(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{}</text>", escape(text)));
    }

    /// Writes a text below the drawn elements. It begins at `x`, and has as many lines as it needs up to the right
    /// margin.
    pub(super) fn below(&mut self, x: f64, text: &str) {
        for line in wrapped(text, WIDTH - MARGIN - x) {
            self.bottom += LINE;
            self.text(Anchor::Start, x, self.bottom, &line);
        }
    }

    /// Writes the legend of a plot with bars: each name follows a box in its color. A line contains as many names as
    /// fit.
    pub(super) fn legend_of_bars(&mut self, names: &[&str]) {
        let mut x = WIDTH;
        for (n, name) in names.iter().enumerate() {
            let wide = 20.0 + width(name) + 16.0;
            if x + wide > WIDTH - MARGIN {
                self.bottom += LINE;
                x = MARGIN;
            }
            let (y, color) = (self.bottom, color(n));
            self.add(&format!(
                "<rect class=\"{color}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"10\"/>",
                y - 10.0
            ));
            self.text(Anchor::Start, x + 20.0, y, name);
            x += wide;
        }
        self.bottom += 6.0;
    }

    /// Returns the picture as the text of an SVG file.
    pub(super) fn finish(self) -> String {
        let (title, body, height) = (escape(&self.title), self.body, self.bottom + 10.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"{FONT}\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n{body}</svg>\n"
        )
    }
}

/// Selects which part of a text is at the given position: its beginning, its middle or its end.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Returns the CSS class for the color of the series with the index `n`.
pub(super) const fn color(n: usize) -> &'static str {
    ["c0", "c1", "c2", "c3", "c4", "c5"][n % COLORS]
}

/// Returns the maximum width of a text. It is computed for a wide font (DejaVu Sans); most other fonts need less.
pub(super) fn width(text: &str) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' | '/' => 0.35,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.99,
        'A'..='Z' | '+' | '=' | '<' | '>' => 0.84,
        _ => 0.65,
    };
    text.chars().map(em).sum::<f64>() * FONT
}

/// Breaks a text into lines of at most the width `most`. A line ends after a space, or inside a word that is longer
/// than a line.
pub(super) fn wrapped(text: &str, most: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_inclusive(' ') {
        let begun = lines.last().map_or("", String::as_str);
        if !begun.is_empty() && width(&format!("{begun}{}", word.trim_end())) > most {
            lines.push(String::new());
        }
        for c in word.chars() {
            if lines.last().is_some_and(|line| c != ' ' && width(line) + width(c.encode_utf8(&mut [0; 4])) > most) {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                line.push(c);
            }
        }
    }
    lines
}

/// The width of a picture, in SVG units. It is small, so that letters are readable on a phone, where the picture fills
/// the screen. On a screen with a width of 390 pixels, letters are 11 pixels high.
pub(super) const WIDTH: f64 = 400.0;
pub(super) const MARGIN: f64 = 12.0;
/// The height of letters, in SVG units.
pub(super) const FONT: f64 = 13.0;
pub(super) const LINE: f64 = 18.0;
/// The width of bold letters, divided by the width of other letters.
const BOLD: f64 = 1.15;
/// The number of different colors for series.
pub(super) const COLORS: usize = 6;
/// The style sheet. People who cannot distinguish red and green can distinguish the colors (after Okabe and Ito). The
/// colors are darker on a white page, and lighter on a black page.
const STYLE: &str = ".plot text{fill:#222}.paper{fill:#fff}.grid{stroke:#ddd}.axis{stroke:#666;fill:none}\
    .range{stroke:#222;fill:none}.c0{color:#0072b2}.c1{color:#c44e00}.c2{color:#00805d}.c3{color:#b0558a}.c4{color:#8f6400}\
    .c5{color:#555}.c0,.c1,.c2,.c3,.c4,.c5{fill:currentColor}.line{fill:none;stroke:currentColor}\
    .node{fill:#fff;stroke:#666}.m0{fill:#0072b2}.m1{fill:#74b6dd}.m2{fill:#f2e3a6}.m3{fill:#f0a040}.m4{fill:#b84700}\
    .plot .on-dark{fill:#fff}.plot .on-light{fill:#000}\
    @media(prefers-color-scheme:dark){.plot text{fill:#ddd}.paper{fill:#181818}.grid{stroke:#444}.axis{stroke:#999}\
    .node{fill:#181818;stroke:#999}.range{stroke:#eee}.c0{color:#4aa3df}.c1{color:#ff8c42}.c2{color:#3ecf9a}.c3{color:#e8a0c8}.c4{color:#f0c24b}\
    .c5{color:#bbb}}";
