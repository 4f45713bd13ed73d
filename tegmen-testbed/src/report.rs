//! The report: one HTML file that opens from disk, with the same figures as SVG and CSV files.

use crate::advice::Advice;
use crate::deployment::Plan;
use crate::figure::{CLASSES, Figure, Sample, Source, class};
use crate::interval::Mean;
use crate::plot::{self, Series, escape};
use crate::runs::Summary;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The report while it is written: a section after the other.
pub(crate) struct Report<'f> {
    folder: &'f Path,
    pub(crate) body: String,
    contents: String,
    /// For each table of each paper: its section, and the number of verdicts of each class.
    pub(crate) counts: Vec<Counted>,
}

/// The verdicts of one table of a paper.
pub(crate) struct Counted {
    section: String,
    pub(crate) paper: &'static str,
    pub(crate) table: String,
    /// The number of verdicts of each of [`CLASSES`].
    pub(crate) verdicts: [usize; CLASSES.len()],
}

impl<'f> Report<'f> {
    /// Begins a report in `folder`, which is created.
    pub(crate) fn new(folder: &'f Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder, body: String::new(), contents: String::new(), counts: Vec::new() })
    }

    /// Counts one verdict of a table, by its place in [`CLASSES`]. `section` is the section that has the table.
    pub(crate) fn count(&mut self, section: &str, paper: &'static str, table: &str, class: usize) {
        let place = self.counts.iter().position(|counted| counted.paper == paper && counted.table == table);
        let place = place.unwrap_or_else(|| {
            let (section, table) = (section.to_owned(), table.to_owned());
            self.counts.push(Counted { section, paper, table, verdicts: [0; CLASSES.len()] });
            self.counts.len() - 1
        });
        self.counts[place].verdicts[class] += 1;
    }

    /// All tables of all papers, with the number of rows of each verdict.
    pub(crate) fn matrix(&self) -> String {
        let header: String = CLASSES.iter().map(|class| format!("<th>{class}</th>")).collect();
        let mut html = format!(
            "<div class=\"wide\"><table id=\"matrix\"><thead><tr><th>paper</th><th>table</th>{header}</tr></thead><tbody>"
        );
        for Counted { section, paper, table, verdicts } in &self.counts {
            let cells: String = verdicts
                .iter()
                .map(|count| if *count == 0 { "<td></td>".into() } else { format!("<td>{count}</td>") })
                .collect();
            // Writing to a String cannot fail.
            let _ = writeln!(
                html,
                "<tr><td>{}</td><td><a href=\"#{section}\">{}</a></td>{cells}</tr>",
                escape(paper),
                escape(table)
            );
        }
        html + "</tbody></table></div>"
    }

    /// Begins a section.
    pub(crate) fn begin(&mut self, id: &str, title: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.contents, "<li><a href=\"#{id}\">{}</a></li>", escape(title));
        let _ = writeln!(self.body, "<section id=\"{id}\"><h2>{}</h2>", escape(title));
    }

    /// Ends a section with a link to its file.
    pub(crate) fn end(&mut self, csv: &str) {
        let _ = writeln!(self.body, "<p><a href=\"{csv}\">{csv}</a></p></section>");
    }

    /// Writes a paragraph.
    pub(crate) fn say(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
    }

    /// Writes a plot to the page and to a separate file.
    pub(crate) fn plot(&mut self, name: &str, svg: &str) -> io::Result<()> {
        let _ = writeln!(self.body, "<figure>{svg}</figure>");
        fs::write(self.folder.join(format!("{name}.svg")), svg)
    }

    /// Writes a table to the page and to a separate file. The first column is text.
    pub(crate) fn table(&mut self, name: &str, header: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
        let quoted = |cell: &String| match cell.contains([',', '"']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.clone(),
        };
        let mut csv = header.join(",") + "\n";
        for row in rows {
            csv += &(row.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n");
        }
        fs::write(self.folder.join(name), csv)?;
        let cells = |tag: &str, cells: &[String]| {
            // The parts of a name may stand on lines of their own.
            let text = |cell: &String| escape(cell).replace('/', "/<wbr>");
            cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", text(cell))).collect::<String>()
        };
        let header: Vec<String> = header.iter().map(|cell| cell.replace('_', " ")).collect();
        let _ =
            writeln!(self.body, "<div class=\"wide\"><table><thead><tr>{}</tr></thead><tbody>", cells("th", &header));
        for row in rows {
            let _ = writeln!(self.body, "<tr>{}</tr>", cells("td", row));
        }
        self.body += "</tbody></table></div>\n";
        Ok(())
    }

    /// Plots bars of the figures whose names end with `end` and for which the paper and this stack have a value.
    pub(crate) fn pairs(
        &mut self,
        name: &str,
        title: &str,
        unit: &str,
        figures: &[Figure],
        end: &str,
    ) -> io::Result<()> {
        let bars: Vec<_> = figures
            .iter()
            .filter_map(|figure| {
                let (_, name) = figure.id.strip_suffix(end)?.split_once('/')?;
                Some((name.replace(['/', '_'], " "), figure.paper?, figure.ours?))
            })
            .collect();
        self.plot(name, &plot::pairs(title, unit, ["paper", "ours"], &bars))
    }

    /// Writes the figures of a paper and ours as a table.
    pub(crate) fn figures(&mut self, csv: &str, paper: &'static str, figures: &[Figure]) -> io::Result<()> {
        let section = csv.trim_end_matches(".csv");
        for figure in figures {
            self.count(section, paper, figure.table(), class(&figure.verdict));
        }
        let number = |value: Option<f64>| value.map_or(String::new(), |v| format!("{}", (v * 1000.0).round() / 1000.0));
        let rows: Vec<Vec<String>> = figures
            .iter()
            .map(|figure| {
                let both = figure.paper.zip(figure.ours).filter(|(paper, _)| *paper != 0.0);
                let ratio = both.map_or(String::new(), |(paper, ours)| format!("{:.3}", ours / paper));
                let [paper, ours, derived] = [figure.paper, figure.ours, figure.derived].map(number);
                let source = figure.source.map_or("", Source::name).to_owned();
                let Sample { n, seeds, interval } = figure.sample.unwrap_or(Sample { n: 0, seeds: 0, interval: None });
                let [low, high] = interval.map_or([None; 2], |bounds| bounds.map(Some)).map(number);
                let [n, seeds] = [n, seeds].map(|count| if count == 0 { String::new() } else { count.to_string() });
                let (unit, verdict) = (figure.unit.into(), figure.verdict.clone());
                vec![figure.id.clone(), paper, ours, ratio, derived, unit, source, n, seeds, low, high, verdict]
            })
            .collect();
        let header = [
            "figure",
            "paper",
            "ours",
            "ratio",
            "from_the_paper's_own_numbers",
            "unit",
            "source",
            "n",
            "seeds",
            "low_95",
            "high_95",
            "verdict",
        ];
        self.table(csv, &header, &rows)
    }

    /// Writes the section of a plan: its figures by each swept number, its table, and the advice.
    pub(crate) fn plan(&mut self, name: &str, plan: &Plan, summaries: Vec<Summary>) -> io::Result<()> {
        self.begin(name, &plan.about);
        let (seeds, readings) =
            (summaries.first().map_or(0, |s| s.seeds), summaries.iter().map(|s| s.readings).sum::<u64>());
        self.say(&format!(
            "Simulated: {readings} readings in all, {seeds} seeds for each line, with intervals of 95 %. Energy is that \
             of the mote's processor and radio for one reading: with a radio that is on for frames only, and with one \
             that is always on."
        ));
        for (key, label, figure) in FIGURES {
            let series = series(&summaries, *figure);
            if let Some((x_label, series)) = series {
                let svg = plot::lines(label, &x_label, "", &series);
                self.plot(&format!("{name}-{key}"), &svg)?;
            }
        }
        let rows: Vec<Vec<String>> = summaries.iter().map(row).collect();
        let csv = format!("{name}.csv");
        self.table(&csv, HEADER, &rows)?;
        for sentence in Advice::of(summaries).recommendation {
            self.say(&sentence);
        }
        self.end(&csv);
        Ok(())
    }

    /// Writes the page and `manifest.json`, which names the commit and the plans. Returns the path of the page.
    pub(crate) fn finish(self, commit: &str, plans: &[(String, Plan)]) -> io::Result<PathBuf> {
        let manifest = json!({
            "commit": commit,
            "version": env!("CARGO_PKG_VERSION"),
            "plans": plans.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        });
        fs::write(self.folder.join("manifest.json"), format!("{manifest:#}\n"))?;
        let file = self.folder.join("index.html");
        let html = TEMPLATE.replace("{matrix}", &self.matrix()).replace("{contents}", &self.contents);
        let html = html.replace("{body}", &self.body).replace("{commit}", &escape(commit));
        fs::write(&file, html)?;
        Ok(file)
    }
}

type Pick = fn(&Summary) -> Mean;

/// What is plotted of a plan with a key that is a number.
const FIGURES: &[(&str, &str, Pick)] = &[
    ("delivered", "delivered, share of readings", |summary| summary.delivered),
    ("delay", "median from reading to answer, ms", |summary| summary.delay_p50_ms),
    ("energy", "energy of a reading, uJ, radio on for frames", |summary| summary.energy_uj),
];

/// Lines over the key with the most numbers; one for each protection and each value of the other keys. `None` if no key
/// has three numbers.
fn series(summaries: &[Summary], pick: Pick) -> Option<(String, Vec<Series>)> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (key, value) in summaries.iter().flat_map(|summary| &summary.case) {
        let numbers = values.entry(key).or_default();
        if let Ok(number) = value.parse::<f64>()
            && !numbers.contains(&number)
        {
            numbers.push(number);
        }
    }
    let (key, _) = values.iter().filter(|(_, numbers)| numbers.len() >= 3).max_by_key(|(_, numbers)| numbers.len())?;
    let key = (*key).to_owned();
    let mut series: Vec<Series> = Vec::new();
    for summary in summaries {
        let others = summary.case.iter().filter(|(other, _)| **other != key);
        let others = others.map(|(other, value)| format!(", {other} = {value}")).collect::<String>();
        let name = summary.protection.name().to_owned() + &others;
        let x = summary.case.get(&key)?.parse().ok()?;
        let figure = pick(summary);
        let point = (x, figure.mean, figure.interval);
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, points: vec![point] }),
        }
    }
    Some((key, series))
}

const HEADER: &[&str] = &[
    "case",
    "protection",
    "hops",
    "source",
    "readings",
    "delivered",
    "low_95",
    "high_95",
    "first_try",
    "mean_ms",
    "low_95",
    "high_95",
    "median_ms",
    "low_95",
    "high_95",
    "p95_ms",
    "bytes_per_reading",
    "frames_per_reading",
    "energy_uj",
    "energy_uj_overheard",
    "energy_uj_always_on",
    "sessions",
    "battery_years",
    "battery_years_always_on",
    "rom",
    "ram",
    "seeds",
];

/// A bound of an interval; empty where there is none.
fn bound(mean: &Mean, end: usize) -> String {
    mean.interval.map_or(String::new(), |bounds| format!("{:.4}", bounds[end]))
}

fn row(summary: &Summary) -> Vec<String> {
    let case: Vec<String> = summary.case.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    vec![
        case.join("; "),
        summary.protection.name().into(),
        summary.hops.to_string(),
        summary.source.name().into(),
        summary.readings.to_string(),
        format!("{:.4}", summary.delivered.mean),
        bound(&summary.delivered, 0),
        bound(&summary.delivered, 1),
        format!("{:.4}", summary.first_try.mean),
        format!("{:.3}", summary.delay_mean_ms.mean),
        bound(&summary.delay_mean_ms, 0),
        bound(&summary.delay_mean_ms, 1),
        format!("{:.3}", summary.delay_p50_ms.mean),
        bound(&summary.delay_p50_ms, 0),
        bound(&summary.delay_p50_ms, 1),
        format!("{:.3}", summary.delay_p95_ms.mean),
        format!("{:.2}", summary.bytes_per_reading.mean),
        format!("{:.2}", summary.frames_per_reading.mean),
        format!("{:.1}", summary.energy_uj.mean),
        format!("{:.1}", summary.overheard_uj.mean),
        format!("{:.0}", summary.energy_always_on_uj.mean),
        format!("{:.1}", summary.sessions.mean),
        format!("{:.2}", summary.battery_years),
        format!("{:.3}", summary.battery_years_always_on),
        summary.rom.to_string(),
        summary.ram.to_string(),
        summary.seeds.to_string(),
    ]
}

const TEMPLATE: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Tegmen: the laboratory's report</title>
<style>
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --line: #ddd; --head: #f6f6f6; --link: #0055a0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ddd; --paper: #181818; --line: #444; --head: #262626; --link: #7ab8ff; }
}
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1rem; color: var(--ink);
  background: var(--paper); }
p, ul, figure { max-width: 60rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
a { color: var(--link); }
figure { margin: 1rem 0; } svg { width: 100%; max-width: 36rem; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .8rem; }
th, td { padding: .2rem .35rem; text-align: right; border-bottom: 1px solid var(--line); }
td:first-child { min-width: 11rem; }
#matrix td:nth-child(2), #matrix th:nth-child(2) { text-align: left; }
#matrix td:last-child, #matrix th:last-child { text-align: right; min-width: 0; }
#matrix td:first-child { min-width: 8rem; }
th { position: sticky; top: 0; background: var(--head); }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
td:last-child { white-space: normal; min-width: 9rem; }
@media print {
  body { max-width: none; font-size: 10pt; } section { break-inside: auto; } figure { break-inside: avoid; }
  .wide { overflow: visible; } table { white-space: normal; font-size: 7pt; } nav { display: none; }
}
</style>
</head>
<body>
<h1>The laboratory's report</h1>
<p>What the papers measured, run again on the real stack. Written by <code>tegmen lab report</code> from commit
{commit}; the same seeds give the same figures on every machine.</p>
<p>Each row of each paper has one verdict. "Equal", "within" and "holds" compare what this program builds, simulates or counts with
the paper. "Paper agrees with itself" is arithmetic on the paper's own numbers: nothing of this program is in it.</p>
{matrix}
<nav><ul>
{contents}</ul></nav>
<main>
{body}</main>
</body>
</html>
"#;

#[cfg(test)]
mod tests;
