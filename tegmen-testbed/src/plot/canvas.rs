//! A picture while it is drawn: its size, its colors, and texts in lines that fit.

use super::escape;
use std::fmt::Write as _;

/// A picture while it is drawn. Its height is that of what was drawn.
pub(super) struct Canvas {
    title: String,
    body: String,
    /// The end of what was drawn, from above.
    pub(super) bottom: f64,
}

impl Canvas {
    /// Begins a picture with its title, in as many lines as the title needs.
    pub(super) fn new(title: &str) -> Self {
        let mut canvas = Self { title: title.to_owned(), body: String::new(), bottom: 4.0 };
        for line in wrapped(title, (WIDTH - 2.0 * MARGIN) / BOLD) {
            canvas.bottom += LINE;
            let (y, line) = (canvas.bottom, escape(&line));
            canvas.add(&format!("<text x=\"{MARGIN}\" y=\"{y:.0}\" font-weight=\"600\">{line}</text>"));
        }
        canvas
    }

    /// Adds an element.
    pub(super) fn add(&mut self, element: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.body, "{element}");
    }

    /// Writes a text that begins, ends, or has its middle at `x`, with its base line at `y`.
    pub(super) fn text(&mut self, anchor: Anchor, x: f64, y: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        self.add(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{}</text>", escape(text)));
    }

    /// Writes a text below what was drawn, in as many lines as it needs from `x` to the right margin.
    pub(super) fn below(&mut self, x: f64, text: &str) {
        for line in wrapped(text, WIDTH - MARGIN - x) {
            self.bottom += LINE;
            self.text(Anchor::Start, x, self.bottom, &line);
        }
    }

    /// Writes the legend of bars: names beside their colors, as many in a line as there is space for.
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

    /// The picture as SVG.
    pub(super) fn finish(self) -> String {
        let (title, body, height) = (escape(&self.title), self.body, self.bottom + 10.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"{FONT}\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n{body}</svg>\n"
        )
    }
}

/// The place of a text.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The class of a color, by the place of a series.
pub(super) const fn color(n: usize) -> &'static str {
    ["c0", "c1", "c2", "c3", "c4", "c5"][n % COLORS]
}

/// The largest width of a text. Widths are those of a wide font (DejaVu Sans), so that most others need less.
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

/// A text in lines of at most this width. Lines end after a space, or inside of a word that is longer than a line.
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

/// Narrow, so that a label is readable where the picture fills a phone: 11 pixels high on a screen of 390.
pub(super) const WIDTH: f64 = 400.0;
pub(super) const MARGIN: f64 = 12.0;
/// Height of letters, and of a line.
pub(super) const FONT: f64 = 13.0;
pub(super) const LINE: f64 = 18.0;
/// The width of bold letters over that of others.
const BOLD: f64 = 1.15;
/// Series of different colors.
pub(super) const COLORS: usize = 6;
/// Colors that people distinguish who do not see red or green, after Okabe and Ito: darker on white, lighter on black.
const STYLE: &str = ".plot text{fill:#222}.paper{fill:#fff}.grid{stroke:#ddd}.axis{stroke:#666;fill:none}\
    .range{stroke:#222;fill:none}.c0{color:#0072b2}.c1{color:#c44e00}.c2{color:#00805d}.c3{color:#b0558a}.c4{color:#8f6400}\
    .c5{color:#555}.c0,.c1,.c2,.c3,.c4,.c5{fill:currentColor}.line{fill:none;stroke:currentColor}\
    .node{fill:#fff;stroke:#666}.m0{fill:#0072b2}.m1{fill:#74b6dd}.m2{fill:#f2e3a6}.m3{fill:#f0a040}.m4{fill:#b84700}\
    .plot .on-dark{fill:#fff}.plot .on-light{fill:#000}\
    @media(prefers-color-scheme:dark){.plot text{fill:#ddd}.paper{fill:#181818}.grid{stroke:#444}.axis{stroke:#999}\
    .node{fill:#181818;stroke:#999}.range{stroke:#eee}.c0{color:#4aa3df}.c1{color:#ff8c42}.c2{color:#3ecf9a}.c3{color:#e8a0c8}.c4{color:#f0c24b}\
    .c5{color:#bbb}}";
