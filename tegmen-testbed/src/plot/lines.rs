//! Draws lines over two axes.

use super::Value;
use super::canvas::{Anchor, COLORS, Canvas, LINE, MARGIN, WIDTH, color, width, wrapped};
use super::escape;
use super::scale::Scale;

/// A line of a plot.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// The name of the line in the legend.
    pub name: String,
    /// The points from left to right: the value on the horizontal axis, and the value on the vertical axis with its
    /// confidence interval.
    pub points: Vec<(f64, Value)>,
}

/// Draws lines with a mark for each point. Both axes begin at zero. If the largest value is between 0.5 and 1, the
/// values are probably shares, and the vertical axis ends at 1.
pub fn lines(title: &str, x_label: &str, y_label: &str, series: &[Series]) -> String {
    let all = || series.iter().flat_map(|series| &series.points);
    let most = all().map(|(_, (y, interval))| interval.map_or(*y, |bounds| bounds[1])).fold(0.0, f64::max);
    let y = if (0.5..=1.0).contains(&most) { Scale::SHARES } else { Scale::linear(most) };
    let x = Scale::linear(all().map(|point| point.0).fold(0.0, f64::max));
    let mut area = Area::new(title, (x, x_label), (y, y_label));
    for (n, Series { name, points }) in series.iter().enumerate() {
        let path: Vec<String> =
            points.iter().map(|(x, (y, _))| format!("{:.1},{:.1}", area.x(*x), area.y(*y))).collect();
        area.line(n, &path.join(" "));
        for (x, (y, interval)) in points {
            let (cx, cy, color) = (area.x(*x), area.y(*y), color(n));
            if let Some([low, high]) = interval {
                let (low, high) = (area.y(low.max(0.0)), area.y(*high));
                area.canvas.add(&format!(
                    "<path class=\"{color} line\" d=\"M{cx:.1},{low:.1}V{high:.1}m-4,0h8M{cx:.1},{low:.1}m-4,0h8\"/>"
                ));
            }
            let name = escape(name);
            area.canvas.add(&format!(
                "<circle class=\"{color}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\"><title>{name}: {x}, {y:.3}</title></circle>"
            ));
        }
    }
    area.finish(series)
}

/// Draws distributions as lines with steps. The horizontal axis is logarithmic. Each point has a value above zero, and
/// the share of the sample up to this value.
pub fn distribution(title: &str, x_label: &str, y_label: &str, series: &[Series]) -> String {
    let values = || series.iter().flat_map(|series| &series.points).map(|point| point.0);
    let scale = Scale::powers(values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let mut area = Area::new(title, (scale, x_label), (Scale::SHARES, y_label));
    for (n, Series { points, .. }) in series.iter().enumerate() {
        let mut path = String::new();
        let mut share = 0.0;
        for (x, (y, _)) in points {
            path += &format!("{:.1},{:.1} {0:.1},{:.1} ", area.x(*x), area.y(share), area.y(*y));
            share = *y;
        }
        if !points.is_empty() {
            path += &format!("{:.1},{:.1}", WIDTH - RIGHT, area.y(share));
        }
        area.line(n, path.trim_end());
    }
    area.finish(series)
}

/// The area of a plot, in which the lines are drawn, and its two axes.
struct Area {
    canvas: Canvas,
    x: Scale,
    y: Scale,
    left: f64,
    top: f64,
}

impl Area {
    fn new(title: &str, (x, x_label): (Scale, &str), (y, y_label): (Scale, &str)) -> Self {
        let mut canvas = Canvas::new(title);
        if !y_label.is_empty() {
            canvas.below(MARGIN, y_label);
        }
        let left = MARGIN + 8.0 + y.marks().iter().map(|(_, text)| width(text)).fold(0.0, f64::max);
        let mut area = Self { top: canvas.bottom + 14.0, canvas, x, y, left };
        let (right, bottom) = (WIDTH - RIGHT, area.top + HEIGHT);
        for (value, text) in y.marks() {
            let y = area.y(value);
            area.canvas.add(&format!("<path class=\"grid\" d=\"M{left:.1},{y:.1}H{right}\"/>"));
            area.canvas.text(Anchor::End, left - 6.0, y + 4.0, &text);
        }
        for (value, text) in x.marks() {
            let x = area.x(value);
            area.canvas.add(&format!("<path class=\"axis\" d=\"M{x:.1},{bottom:.1}v4\"/>"));
            area.canvas.text(Anchor::Middle, x, bottom + 20.0, &text);
        }
        area.canvas.add(&format!("<path class=\"axis\" d=\"M{left:.1},{:.1}V{bottom:.1}H{right}\"/>", area.top));
        area.canvas.bottom = bottom + 22.0;
        for line in wrapped(x_label, WIDTH - 2.0 * MARGIN) {
            area.canvas.bottom += LINE;
            area.canvas.text(Anchor::Middle, (left + right) / 2.0, area.canvas.bottom, &line);
        }
        area
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.x.place(value) * (WIDTH - RIGHT - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + HEIGHT - self.y.place(value) * HEIGHT
    }

    fn line(&mut self, n: usize, points: &str) {
        let (color, dash) = (color(n), dash(n));
        self.canvas.add(&format!("<polyline class=\"{color} line\" points=\"{points}\" stroke-width=\"2\"{dash}/>"));
    }

    /// Writes the legend: a piece of each line, and the name of the line.
    fn finish(self, series: &[Series]) -> String {
        let mut canvas = self.canvas;
        canvas.bottom += 8.0;
        for (n, Series { name, .. }) in series.iter().enumerate() {
            let (y, color, dash) = (canvas.bottom + LINE - 4.0, color(n), dash(n));
            let end = MARGIN + 24.0;
            canvas
                .add(&format!("<path class=\"{color} line\" d=\"M{MARGIN},{y:.1}H{end}\" stroke-width=\"4\"{dash}/>"));
            canvas.below(MARGIN + 30.0, name);
        }
        canvas.finish()
    }
}

/// Returns the dashes of a line. Lines with the same color have different dashes.
const fn dash(n: usize) -> &'static str {
    ["", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 2\""][n / COLORS % 3]
}

/// Height of the area between the axes, in SVG units.
const HEIGHT: f64 = 230.0;
/// Width of the free space at the right edge, in SVG units. Half of the last label extends into it.
const RIGHT: f64 = 30.0;
