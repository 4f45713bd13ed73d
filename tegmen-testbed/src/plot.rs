//! Plots as SVG: lines with marks over two axes, and bars. They contain no script and no font, and load nothing.

use std::fmt::Write as _;

/// A line of a plot.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// The name of the line in the legend.
    pub name: String,
    /// Points, and the bounds of their intervals.
    pub points: Vec<(f64, f64, Option<[f64; 2]>)>,
}

/// Lines over two axes. Both begin at zero; where all that is shown are shares, the second ends at 1.
pub fn lines(title: &str, x_label: &str, y_label: &str, series: &[Series]) -> String {
    let all = || series.iter().flat_map(|series| &series.points);
    let (x_step, x_end) = scale(all().map(|point| point.0).fold(0.0, f64::max));
    let most = all().map(|point| point.2.map_or(point.1, |bounds| bounds[1])).fold(0.0, f64::max);
    let (y_step, y_end) = if (0.5..=1.0).contains(&most) { (0.2, 1.0) } else { scale(most) };
    let x = |value: f64| LEFT + value / x_end * (RIGHT - LEFT);
    let y = |value: f64| BOTTOM - value / y_end * (BOTTOM - TOP);
    let names: Vec<Vec<String>> = series.iter().map(|series| wrapped(&series.name)).collect();
    let mut svg = open(title, names.iter().map(Vec::len).sum());
    let mut entry = HEIGHT + 8.0;
    axes(&mut svg, (x_step, x_end, x_label), (y_step, y_end, y_label));
    for (n, Series { name, points }) in series.iter().enumerate() {
        let color = COLORS[n % COLORS.len()];
        let dash = DASHES[n / COLORS.len() % DASHES.len()];
        let path: Vec<String> = points.iter().map(|(px, py, _)| format!("{:.1},{:.1}", x(*px), y(*py))).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"{dash}/>",
            path.join(" ")
        );
        for (px, py, interval) in points {
            let (cx, cy) = (x(*px), y(*py));
            if let Some([low, high]) = interval {
                let (low, high) = (y(low.max(0.0)), y(*high));
                let _ = writeln!(svg, "<path d=\"M{cx:.1},{low:.1}V{high:.1}\" stroke=\"{color}\"/>");
            }
            let _ = writeln!(
                svg,
                "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\" fill=\"{color}\"><title>{}: {px}, {py:.3}</title></circle>",
                escape(name)
            );
        }
        legend(&mut svg, LEFT, entry, (color, dash), &names[n][0]);
        for line in &names[n][1..] {
            entry += LINE;
            let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{entry:.1}\">{}</text>", LEFT + 30.0, escape(line));
        }
        entry += LINE;
    }
    svg + "</svg>\n"
}

/// Pairs of bars, from left to right, by name: what one says and what another says. Rows are as many as there are names,
/// each with its name above its bars, so that no name is cut.
pub fn pairs(title: &str, unit: &str, names: [&str; 2], rows: &[(String, f64, f64)]) -> String {
    let (step, end) = scale(rows.iter().map(|(_, a, b)| a.max(*b)).fold(0.0, f64::max));
    let x = |value: f64| LEFT_OF_BARS + value / end * (RIGHT - LEFT_OF_BARS);
    let bottom = TOP + 14.0 + SLOT * rows.len() as f64;
    let mut svg = sized(title, bottom + 40.0);
    for (n, name) in names.iter().enumerate() {
        legend(&mut svg, LEFT_OF_BARS + 130.0 * n as f64, 40.0, (COLORS[n], ""), name);
    }
    for n in 0..=(end / step).round() as u32 {
        let value = f64::from(n) * step;
        let x = x(value);
        // Writing to a String cannot fail.
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{x:.1},{}V{bottom:.1}\"/>", TOP + 4.0);
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            number(value)
        );
    }
    for (n, (name, a, b)) in rows.iter().enumerate() {
        let top = TOP + 14.0 + SLOT * n as f64;
        let _ = writeln!(svg, "<text x=\"{LEFT_OF_BARS}\" y=\"{:.1}\">{}</text>", top + 11.0, escape(name));
        for (half, value) in [a, b].into_iter().enumerate() {
            let _ = writeln!(
                svg,
                "<rect x=\"{LEFT_OF_BARS}\" y=\"{:.1}\" width=\"{:.1}\" height=\"7\" fill=\"{}\"><title>{}, {}: {value}</title></rect>",
                top + 15.0 + 8.0 * half as f64,
                (x(*value) - LEFT_OF_BARS).max(0.0),
                COLORS[half],
                escape(name),
                names[half]
            );
        }
    }
    let middle = (LEFT_OF_BARS + RIGHT) / 2.0;
    let _ =
        writeln!(svg, "<text x=\"{middle}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>", bottom + 33.0, escape(unit));
    svg + "</svg>\n"
}

/// A picture with space for a legend of a number of lines.
fn open(title: &str, entries: usize) -> String {
    sized(title, HEIGHT + 8.0 + LINE * entries as f64)
}

fn sized(title: &str, height: f64) -> String {
    let title = escape(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <text x=\"{LEFT_OF_BARS}\" y=\"18\" font-size=\"14\" font-weight=\"600\">{title}</text>\n"
    )
}

fn axes(svg: &mut String, (x_step, x_end, x_label): (f64, f64, &str), (y_step, y_end, y_label): (f64, f64, &str)) {
    for n in 0..=(y_end / y_step).round() as u32 {
        let value = f64::from(n) * y_step;
        let y = BOTTOM - value / y_end * (BOTTOM - TOP);
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{LEFT},{y:.1}H{RIGHT}\"/>");
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            number(value)
        );
    }
    if x_step.is_finite() {
        for n in 0..=(x_end / x_step).round() as u32 {
            let value = f64::from(n) * x_step;
            let x = LEFT + value / x_end * (RIGHT - LEFT);
            let _ = writeln!(svg, "<path class=\"axis\" d=\"M{x:.1},{BOTTOM}v4\"/>");
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 18.0,
                number(value)
            );
        }
    }
    let _ = writeln!(svg, "<path class=\"axis\" d=\"M{LEFT},{TOP}V{BOTTOM}H{RIGHT}\"/>");
    let middle = (LEFT + RIGHT) / 2.0;
    let _ =
        writeln!(svg, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>", BOTTOM + 36.0, escape(x_label));
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\" text-anchor=\"start\">{}</text>", TOP - 8.0, escape(y_label));
}

/// A line of the legend: a stroke as the series has it, and its name.
fn legend(svg: &mut String, x: f64, y: f64, (color, dash): (&str, &str), name: &str) {
    let (end, middle) = (x + 24.0, y - 4.0);
    let _ = writeln!(
        svg,
        "<path d=\"M{x:.1},{middle:.1}H{end:.1}\" stroke=\"{color}\" stroke-width=\"4\"{dash}/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
        x + 30.0,
        escape(name)
    );
}

/// A name in lines that fit beside its stroke, broken behind commas.
fn wrapped(name: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for part in name.split_inclusive(", ") {
        let begun = lines.last().map_or(0, String::len);
        match lines.last_mut().filter(|_| begun == 0 || begun + part.trim_end().len() <= CHARACTERS) {
            Some(line) => line.push_str(part),
            None => lines.push(part.to_owned()),
        }
    }
    lines
}

/// The step of an axis, 1, 2 or 5 of a power of ten, and its end.
fn scale(most: f64) -> (f64, f64) {
    if !(most.is_finite() && most > 0.0) {
        return (1.0, 1.0);
    }
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= rough).unwrap_or(rough);
    (step, (most / step).ceil() * step)
}

fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Text that may stand in HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Told apart by people who do not see red or green (Okabe and Ito).
const COLORS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// Of lines that share a color, and so differ in their legend as well.
const DASHES: [&str; 3] = ["", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 2\""];
/// Text is legible on white and on black.
const STYLE: &str = "text{fill:#222}.grid{stroke:#ddd}.axis{stroke:#666;fill:none}\
                     @media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#444}.axis{stroke:#999}}";
/// Characters of a line of the legend, at most.
const CHARACTERS: usize = 52;
/// Height of a line of the legend.
const LINE: f64 = 18.0;
/// Height of a pair of bars with its name.
const SLOT: f64 = 38.0;
const LEFT_OF_BARS: f64 = 12.0;
/// Narrow, so that a phone shows labels of a size that can be read.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 450.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 290.0;

#[cfg(test)]
mod tests;
