//! Draws horizontal bars, which begin at the left edge.

use super::Value;
use super::canvas::{Anchor, Canvas, LINE, MARGIN, WIDTH, color, width, wrapped};
use super::escape;
use super::scale::{Scale, number};

/// A group of bars with one label above them. The group has one bar, and so one value, for each entry of the legend.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    /// The label of the group.
    pub name: String,
    /// The values, each with the bounds of its confidence interval.
    pub values: Vec<Value>,
}

impl Bars {
    /// Makes a group of two bars. Their values are `one` and `other`, without confidence intervals.
    pub fn pair(name: impl Into<String>, one: f64, other: f64) -> Self {
        Self { name: name.into(), values: vec![(one, None), (other, None)] }
    }
}

/// Draws groups of bars. The label of a group is above its bars, and each value follows its bar. `legend` contains the
/// names of the bars in a group. The legend is not drawn if a group has only one bar.
pub fn bars(title: &str, unit: &str, legend: &[&str], rows: &[Bars]) -> String {
    let mut canvas = Canvas::new(title);
    if legend.len() > 1 {
        canvas.legend_of_bars(legend);
    }
    let values = || rows.iter().flat_map(|row| &row.values);
    let end_of = |(value, interval): &Value| interval.map_or(*value, |bounds| bounds[1].max(*value));
    let scale = Scale::linear(values().map(end_of).fold(0.0, f64::max));
    let labels = values().map(|value| width(&label(value.0))).fold(0.0, f64::max);
    let x = |value: f64| MARGIN + scale.place(value.max(0.0)) * (WIDTH - 2.0 * MARGIN - labels - 8.0);
    let (top, lines) = (canvas.bottom + 4.0, |row: &Bars| wrapped(&row.name, WIDTH - 2.0 * MARGIN));
    let high = |row: &Bars| LINE * (lines(row).len() + row.values.len()) as f64 - row.values.len() as f64 + 6.0;
    let bottom = top + rows.iter().map(high).sum::<f64>();
    for (value, text) in scale.marks() {
        let x = x(value);
        canvas.add(&format!("<path class=\"grid\" d=\"M{x:.1},{top:.1}V{bottom:.1}\"/>"));
        canvas.text(if value == 0.0 { Anchor::Start } else { Anchor::Middle }, x, bottom + 16.0, &text);
    }
    for row in rows {
        for line in lines(row) {
            canvas.bottom += LINE;
            canvas.text(Anchor::Start, MARGIN, canvas.bottom, &line);
        }
        for (n, (value, interval)) in row.values.iter().enumerate() {
            let (y, color, wide) = (canvas.bottom + 4.0, color(n), x(*value) - MARGIN);
            let name = escape(&row.name);
            canvas.add(&format!(
                "<rect class=\"{color}\" x=\"{MARGIN}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"12\"><title>{name}: {value}</title></rect>"
            ));
            if let Some([low, high]) = interval {
                let (low, high, y) = (x(*low), x(*high), y + 6.0);
                canvas.add(&format!(
                    "<path class=\"range\" d=\"M{low:.1},{y:.1}H{high:.1}m0,-4v8M{low:.1},{y:.1}m0,-4v8\"/>"
                ));
            }
            canvas.bottom += LINE - 1.0;
            canvas.text(Anchor::Start, x(end_of(&(*value, *interval))) + 5.0, canvas.bottom - 2.0, &label(*value));
        }
        canvas.bottom += 6.0;
    }
    canvas.bottom = bottom + 18.0;
    for line in wrapped(unit, WIDTH - 2.0 * MARGIN).into_iter().filter(|line| !line.is_empty()) {
        canvas.bottom += LINE;
        canvas.text(Anchor::Middle, WIDTH / 2.0, canvas.bottom, &line);
    }
    canvas.finish()
}

/// Formats a value with three digits.
fn label(value: f64) -> String {
    let step = if value == 0.0 { 1.0 } else { 10f64.powf(value.abs().log10().floor() - 2.0) };
    number(value, step)
}
