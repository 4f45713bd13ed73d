//! Plots as SVG, by hand: lines with marks over two axes, and bars. No script, no font, nothing from elsewhere.

use std::fmt::Write as _;

/// A line of a plot.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Points, and the bounds of their intervals.
    pub points: Vec<(f64, f64, Option<[f64; 2]>)>,
}

/// Lines over two axes. Both begin at zero.
pub fn lines(title: &str, x_label: &str, y_label: &str, series: &[Series]) -> String {
    let all = || series.iter().flat_map(|series| &series.points);
    let (x_step, x_end) = scale(all().map(|point| point.0).fold(0.0, f64::max));
    let most = all().map(|point| point.2.map_or(point.1, |bounds| bounds[1])).fold(0.0, f64::max);
    let (y_step, y_end) = scale(most);
    let x = |value: f64| LEFT + value / x_end * (RIGHT - LEFT);
    let y = |value: f64| BOTTOM - value / y_end * (BOTTOM - TOP);
    let mut svg = open(title, series.len());
    axes(&mut svg, (x_step, x_end, x_label), (y_step, y_end, y_label));
    for (n, Series { name, points }) in series.iter().enumerate() {
        let color = COLORS[n % COLORS.len()];
        let dash = ["", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 2\""][n / COLORS.len() % 3];
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
        legend(
            &mut svg,
            LEFT + (n % 2) as f64 * (WIDTH - LEFT) / 2.0,
            HEIGHT + 8.0 + 18.0 * (n / 2) as f64,
            color,
            name,
        );
    }
    svg + "</svg>\n"
}

/// Pairs of bars: what one says and what another says, by name.
pub fn pairs(title: &str, y_label: &str, names: [&str; 2], rows: &[(String, f64, f64)]) -> String {
    let (step, end) = scale(rows.iter().map(|(_, a, b)| a.max(*b)).fold(0.0, f64::max));
    let y = |value: f64| BOTTOM - value / end * (BOTTOM - TOP);
    let mut svg = open(title, 0);
    axes(&mut svg, (f64::INFINITY, 1.0, ""), (step, end, y_label));
    let slot = (RIGHT - LEFT) / rows.len().max(1) as f64;
    for (n, (name, a, b)) in rows.iter().enumerate() {
        let left = LEFT + slot * n as f64;
        for (half, value) in [a, b].into_iter().enumerate() {
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{}, {}: {value}</title></rect>",
                left + slot * (0.12 + 0.38 * half as f64),
                y(*value),
                slot * 0.36,
                (BOTTOM - y(*value)).max(0.0),
                COLORS[half],
                escape(name),
                names[half]
            );
        }
        let (cx, cy) = (left + slot / 2.0, BOTTOM + 12.0);
        let _ = writeln!(
            svg,
            "<text x=\"{cx:.1}\" y=\"{cy:.1}\" transform=\"rotate(-35 {cx:.1} {cy:.1})\" text-anchor=\"end\" font-size=\"10\">{}</text>",
            escape(name)
        );
    }
    // Above the bars: below them stand their names.
    names
        .iter()
        .enumerate()
        .for_each(|(n, name)| legend(&mut svg, RIGHT - 160.0 + 80.0 * n as f64, 40.0, COLORS[n], name));
    svg + "</svg>\n"
}

fn open(title: &str, entries: usize) -> String {
    let height = HEIGHT + 18.0 * entries.div_ceil(2) as f64;
    let title = escape(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#222\">\n<title>{title}</title>\n\
         <text x=\"{LEFT}\" y=\"18\" font-size=\"14\" font-weight=\"600\">{title}</text>\n"
    )
}

fn axes(svg: &mut String, (x_step, x_end, x_label): (f64, f64, &str), (y_step, y_end, y_label): (f64, f64, &str)) {
    for n in 0..=(y_end / y_step).round() as u32 {
        let value = f64::from(n) * y_step;
        let y = BOTTOM - value / y_end * (BOTTOM - TOP);
        let _ = writeln!(svg, "<path d=\"M{LEFT},{y:.1}H{RIGHT}\" stroke=\"#ddd\"/>");
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
            let _ = writeln!(svg, "<path d=\"M{x:.1},{BOTTOM}v4\" stroke=\"#666\"/>");
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 18.0,
                number(value)
            );
        }
    }
    let _ = writeln!(svg, "<path d=\"M{LEFT},{TOP}V{BOTTOM}H{RIGHT}\" fill=\"none\" stroke=\"#666\"/>");
    let middle = (LEFT + RIGHT) / 2.0;
    let _ =
        writeln!(svg, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>", BOTTOM + 36.0, escape(x_label));
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{}\" text-anchor=\"start\" fill=\"#555\">{}</text>",
        TOP - 8.0,
        escape(y_label)
    );
}

fn legend(svg: &mut String, x: f64, y: f64, color: &str, name: &str) {
    let _ = writeln!(svg, "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{color}\"/>", y - 10.0);
    let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>", x + 18.0, escape(name));
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
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 625.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 290.0;

#[cfg(test)]
mod tests;
