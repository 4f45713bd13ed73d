//! The report of the laboratory. It is one HTML file that a browser opens from disk. Separate files contain each plot
//! as SVG, and the tables of each section as CSV.

pub(crate) mod deployment;
pub(crate) mod overview;

use crate::figure::{Figure, Sample, Source};
use crate::plot::{self, Bars, Series, escape};
use overview::{Overview, Paper, anchor};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A report that is being written, section by section.
pub(crate) struct Report<'f> {
    folder: &'f Path,
    pub(crate) body: String,
    pub(crate) overview: Overview,
    /// The name of the section that was begun last.
    section: String,
}

impl<'f> Report<'f> {
    /// Begins a report. Creates the folder `folder`, into which its files are written.
    pub(crate) fn new(folder: &'f Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder, body: String::new(), overview: Overview::default(), section: String::new() })
    }

    /// Begins the section of a plan that reproduces a paper.
    pub(crate) fn begin(&mut self, paper: Paper, name: &str, title: &str) {
        self.overview.begin(paper, name);
        self.section(name, title);
    }

    /// Begins a section with this name and this heading.
    fn section(&mut self, name: &str, title: &str) {
        name.clone_into(&mut self.section);
        // Writing to a String cannot fail.
        let _ = writeln!(self.body, "<section id=\"{name}\"><h2>{}</h2>", escape(title));
    }

    /// Ends the section with a link to its CSV file.
    pub(crate) fn end(&mut self) {
        let csv = format!("{}.csv", self.section);
        let _ =
            writeln!(self.body, "<p><a href=\"{csv}\">{csv}</a> · <a href=\"#overview\">overview</a></p></section>");
    }

    /// Writes a paragraph.
    pub(crate) fn say(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
    }

    /// Adds a plot to the page, and writes it to a separate file.
    pub(crate) fn plot(&mut self, name: &str, svg: &str) -> io::Result<()> {
        let _ = writeln!(self.body, "<figure>{svg}</figure>");
        fs::write(self.folder.join(format!("{name}.svg")), svg)
    }

    /// Adds a table to the page, and writes it to the CSV file of the section.
    pub(crate) fn table(&mut self, header: &[&str], rows: &[Row]) -> io::Result<()> {
        let quoted = |cell: &String| match cell.contains([',', '"']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.clone(),
        };
        let mut csv = header.join(",") + "\n";
        for row in rows {
            csv += &(row.cells.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n");
        }
        fs::write(self.folder.join(format!("{}.csv", self.section)), csv)?;
        let cells = |tag: &str, cells: &[String]| {
            // A line of the table may break between two parts of a name.
            let text = |cell: &String| escape(cell).replace('/', "/<wbr>").replace('_', "_<wbr>");
            cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", text(cell))).collect::<String>()
        };
        let header: Vec<String> = header.iter().map(|cell| cell.replace('_', " ")).collect();
        let head = cells("th", &header);
        // The reader can also scroll the table with the keyboard.
        let _ = writeln!(self.body, "<div class=\"wide\" tabindex=\"0\"><table><thead><tr>{head}</tr></thead><tbody>");
        for Row { anchor, cells: row } in rows {
            let id = anchor.as_ref().map_or(String::new(), |anchor| format!(" id=\"{anchor}\""));
            let _ = writeln!(self.body, "<tr{id}>{}</tr>", cells("td", row));
        }
        self.body += "</tbody></table></div>\n";
        Ok(())
    }

    /// Plots bars for the figures whose names end with `end` and for which both the paper and Tegmen have a value.
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
                let values = vec![(figure.paper?, None), figure.value()?];
                Some(Bars { name: name.replace(['/', '_'], " "), values })
            })
            .collect();
        self.plot(name, &plot::bars(title, unit, &["paper", "ours"], &bars))
    }

    /// Draws a plot of the distributions of the values (`figures`) whose names begin with `start` and end with `end`.
    /// The distribution of each value becomes a line. The name of the line is the part of the value's name between
    /// `start` and `end`.
    pub(crate) fn distributions(
        &mut self,
        name: &str,
        title: &str,
        of: &str,
        figures: &[Figure],
        (start, end): (&str, &str),
    ) -> io::Result<()> {
        let line = |figure: &Figure| {
            let name = figure.id.strip_prefix(start)?.strip_suffix(end)?.replace('_', " ");
            let points = figure.distribution.iter().map(|(value, share)| (*value, (*share, None))).collect();
            Some(Series { name, points })
        };
        let series: Vec<_> = figures.iter().filter(|figure| !figure.distribution.is_empty()).filter_map(line).collect();
        self.plot(name, &plot::distribution(title, "ms", &format!("share of {of}"), &series))
    }

    /// Counts the verdict of a row. If it is the first row of its table, returns the HTML id for the row; otherwise
    /// `None`.
    pub(crate) fn count(&mut self, table: &str, verdict: &str) -> Option<String> {
        self.overview.count(table, verdict).then(|| anchor(&self.section, table))
    }

    /// Adds a table with the figures of a paper and those of Tegmen.
    pub(crate) fn figures(&mut self, figures: &[Figure]) -> io::Result<()> {
        let number = |value: Option<f64>| value.map_or(String::new(), |v| format!("{}", (v * 1000.0).round() / 1000.0));
        let row = |figure: &Figure| {
            let both = figure.paper.zip(figure.ours).filter(|(paper, _)| *paper != 0.0);
            let ratio = both.map_or(String::new(), |(paper, ours)| format!("{:.3}", ours / paper));
            let [paper, ours, derived] = [figure.paper, figure.ours, figure.derived].map(number);
            let source = figure.source.map_or("", Source::name).to_owned();
            let Sample { n, seeds, interval } = figure.sample.unwrap_or(Sample { n: 0, seeds: 0, interval: None });
            let [low, high] = interval.map_or([None; 2], |bounds| bounds.map(Some)).map(number);
            let [n, seeds] = [n, seeds].map(|count| if count == 0 { String::new() } else { count.to_string() });
            let (unit, verdict) = (figure.unit.to_string(), figure.verdict.clone());
            let cells =
                vec![figure.id.clone(), paper, ours, ratio, derived, unit, source, n, seeds, low, high, verdict];
            Row { anchor: self.count(figure.table(), &figure.verdict), cells }
        };
        let rows: Vec<Row> = figures.iter().map(row).collect();
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
        self.table(&header, &rows)
    }

    /// Writes the page, and `manifest.json` with the commit and the names of the plans. Returns the path of the page.
    pub(crate) fn finish(self, commit: &str, plans: &[&str]) -> io::Result<PathBuf> {
        let manifest = json!({ "commit": commit, "version": env!("CARGO_PKG_VERSION"), "plans": plans });
        fs::write(self.folder.join("manifest.json"), format!("{manifest:#}\n"))?;
        let file = self.folder.join("index.html");
        let html = PAGE.replace("{style}", STYLE).replace("{commit}", &escape(commit));
        fs::write(&file, html.replace("{overview}", &self.overview.html()).replace("{body}", &self.body))?;
        Ok(file)
    }
}

/// A row of a table in the report.
pub(crate) struct Row {
    /// The HTML id of the row; `None` if no link leads to the row.
    pub(crate) anchor: Option<String>,
    /// The texts of the cells, from left to right.
    pub(crate) cells: Vec<String>,
}

const PAGE: &str = include_str!("report/page.html");
const STYLE: &str = include_str!("report/style.css");

#[cfg(test)]
mod tests;
