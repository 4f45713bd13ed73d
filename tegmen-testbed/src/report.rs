//! The report: one HTML file that opens from disk, with the same figures as SVG and CSV files.

use crate::advice::Advice;
use crate::deployment::Plan;
use crate::figure::{CLASSES, Figure, Sample, Source, WITHIN, class};
use crate::interval::Mean;
use crate::papers::agreement;
use crate::papers::blink::paper;
use crate::papers::handshakes;
use crate::papers::objects;
use crate::papers::two_way;
use crate::plot::{self, Series, escape};
use crate::runs::{self, Store, Summary};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Runs the papers, the comparison with ns-3 (with at most this number of seeds) and these plans, each with a name.
/// Writes the report to `folder`, and returns the path of its HTML file. Calls `done` with the name of the part, and
/// the numbers of its finished runs and of all its runs.
///
/// # Errors
/// If a file cannot be written.
pub fn write(
    folder: &Path,
    store: &Store,
    commit: &str,
    seeds: u64,
    plans: &[(String, Plan)],
    done: impl Fn(&str, usize, usize) + Sync,
) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let mut report = Report::new(folder);
    report.blink(&paper::figures())?;
    report.objects_bytes(&objects::bytes::figures())?;
    let effort = objects::delay::Effort { seeds: objects::delay::FULL.seeds.min(seeds), ..objects::delay::FULL };
    report.objects_delay(&objects::delay::figures(effort, |n, all| done("objects-delay", n, all)))?;
    report.objects_creation(&objects::creation::figures())?;
    report.handshakes(&handshakes::figures())?;
    let effort = two_way::Effort { seeds: two_way::FULL.seeds.min(seeds), ..two_way::FULL };
    report.two_way(&two_way::figures(effort, |n, all| done("two-way", n, all)))?;
    report.agreement(&agreement::rows(seeds, |n, all| done("ns3-agreement", n, all)))?;
    for (name, plan) in plans {
        let summaries = runs::run(plan, store, |n, all| done(name, n, all));
        report.plan(name, plan, summaries)?;
    }
    let manifest = json!({
        "commit": commit,
        "version": env!("CARGO_PKG_VERSION"),
        "plans": plans.iter().map(|(name, _)| name).collect::<Vec<_>>(),
    });
    fs::write(folder.join("manifest.json"), format!("{manifest:#}\n"))?;
    let file = folder.join("index.html");
    let matrix = report.matrix();
    let Report { body, contents, .. } = report;
    let html = TEMPLATE.replace("{matrix}", &matrix).replace("{contents}", &contents);
    let html = html.replace("{body}", &body).replace("{commit}", &escape(commit));
    fs::write(&file, html)?;
    Ok(file)
}

struct Report<'f> {
    folder: &'f Path,
    body: String,
    contents: String,
    /// Of each table of each paper: the section that has it, and how many verdicts of each class.
    counts: Vec<Counted>,
}

struct Counted {
    section: String,
    paper: &'static str,
    table: String,
    verdicts: [usize; CLASSES.len()],
}

impl<'f> Report<'f> {
    const fn new(folder: &'f Path) -> Self {
        Self { folder, body: String::new(), contents: String::new(), counts: Vec::new() }
    }

    fn count(&mut self, section: &str, paper: &'static str, table: &str, class: usize) {
        let place = self.counts.iter().position(|counted| counted.paper == paper && counted.table == table);
        let place = place.unwrap_or_else(|| {
            let (section, table) = (section.to_owned(), table.to_owned());
            self.counts.push(Counted { section, paper, table, verdicts: [0; CLASSES.len()] });
            self.counts.len() - 1
        });
        self.counts[place].verdicts[class] += 1;
    }

    /// All tables of all papers, with how many of their rows have which verdict.
    fn matrix(&self) -> String {
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

    fn begin(&mut self, id: &str, title: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.contents, "<li><a href=\"#{id}\">{}</a></li>", escape(title));
        let _ = writeln!(self.body, "<section id=\"{id}\"><h2>{}</h2>", escape(title));
    }

    fn end(&mut self, csv: &str) {
        let _ = writeln!(self.body, "<p><a href=\"{csv}\">{csv}</a></p></section>");
    }

    fn say(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
    }

    fn plot(&mut self, name: &str, svg: &str) -> io::Result<()> {
        let _ = writeln!(self.body, "<figure>{svg}</figure>");
        fs::write(self.folder.join(format!("{name}.svg")), svg)
    }

    /// Writes a table to the page and to a separate file. The first column is text.
    fn table(&mut self, name: &str, header: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
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

    fn blink(&mut self, figures: &[Figure]) -> io::Result<()> {
        self.begin("blink", "The Blink paper: CoAP over DTLS on two motes");
        self.say(
            "Every figure of tables I to V beside ours. Bytes are those of frames and datagrams that this stack writes, \
             and equal to the paper's. The energies of tables IV and V follow from the paper's own measurement of its \
             board; three of its figures contradict its others. Time and energy of this stack are instructions of a \
             Cortex-M3, counted under QEMU, at the clock and power of the paper's board: another processor and other \
             ciphers, so they show what the protocol needs and not who is faster.",
        );
        self.pairs("blink-frames", "Frames of tables II and III", "bytes", figures, "/frame")?;
        self.figures("blink.csv", "The Blink paper", figures)?;
        self.end("blink.csv");
        Ok(())
    }

    fn objects_bytes(&mut self, figures: &[Figure]) -> io::Result<()> {
        self.begin("objects-bytes", "Content objects: bytes of protection (table II, figure 3)");
        self.say(
            "What protection adds to a request and to its response, on messages that this stack builds. Every figure is the \
             paper's; NDN's column is empty until NDN is here. The paper's text has 27 bytes for a response over DTLS where its \
             table has 29: records are 29, both ways. What its figure 3 draws without a number stands beside nothing, for a \
             GET of sensors/temperature with a token of two bytes.",
        );
        self.pairs("objects-overhead", "What protection adds", "bytes", figures, "/all")?;
        self.figures("objects-bytes.csv", "Content objects", figures)?;
        self.end("objects-bytes.csv");
        Ok(())
    }

    fn objects_delay(&mut self, figures: &[Figure]) -> io::Result<()> {
        self.begin("objects-delay", "Content objects: from request to answer (figure 9, table III)");
        self.say(
            "Over a single hop, ten sensors around a gateway, each asked every two seconds. One number is fitted: what the \
             operating system takes for a datagram, so that plain CoAP has the paper's median. All others are predicted from \
             bytes and instructions. The medians of OSCORE and DTLS come out about a millisecond early: RIOT's \
             libOSCORE, tinyDTLS and their sockets take more than this stack's ciphers. Only requests that were answered at \
             the first try count, as a single one that was sent again after two seconds would show in the paper's deviations.",
        );
        self.say(
            "The paper's mean and deviation for DTLS fit a handshake before a fifth of the requests. Its OSCORE row cannot hold \
             as many recoveries: with one more round trip in a fifth of the requests the deviation would be above 7 ms, \
             and it prints 2.72, less than for plain CoAP. So both are shown, with losses of memory and without.",
        );
        self.say(
            "Over several hops the paper's topology is drawn without losses, so three guesses are shown instead of one curve, all \
             with about its share of requests that are answered at once. If all links lose the same share of frames, four \
             retransmissions answer nearly all. Only links that differ, or that stay bad for long, leave a quarter \
             without an answer, as in the paper. Requests are sent again after 2 to 3 s, doubling each time (RFC 7252), not \
             every 2 s, and each waits for the one before; DTLS opens its session over the same links.",
        );
        self.pairs(
            "objects-median",
            "Median from request to answer, single hop, with reboots",
            "ms",
            figures,
            "/median",
        )?;
        self.pairs("objects-success", "Requests answered over several hops", "percent", figures, "/success")?;
        self.figures("objects-delay.csv", "Content objects", figures)?;
        self.end("objects-delay.csv");
        Ok(())
    }

    fn objects_creation(&mut self, figures: &[Figure]) -> io::Result<()> {
        self.begin("objects-creation", "Content objects: creating a request, and creating it again (figure 11)");
        self.say(
            "Instructions of this stack, counted under QEMU, as time on the paper's processor of 72 MHz at 1.0 to 1.3 cycles \
             for an instruction. The paper's times go from the application through the sockets of RIOT to UDP, so that even \
             a request that is only sent again takes 43 us there; ours are what CoAP and its protection take alone. What \
             the paper concludes holds: over DTLS each time is sealed anew, with OSCORE a request is protected once.",
        );
        self.pairs("objects-creation", "Creating a request", "us", figures, "/time_most")?;
        self.figures("objects-creation.csv", "Content objects", figures)?;
        self.end("objects-creation.csv");
        Ok(())
    }

    fn handshakes(&mut self, figures: &[Figure]) -> io::Result<()> {
        self.begin("handshakes", "Handshakes: certificates, raw public keys, a pre-shared key, a ticket");
        self.say(
            "The baselines of the paper on delegated handshakes, beside handshakes that two ends complete in this process. With a              pre-shared key bytes, messages and fragments are the paper's. With certificates messages are; bytes are near its, and              fragments fewer, since a flight travels in one datagram here. Memory and instructions are those of the firmware's images,              counted under QEMU: a Cortex-M3, and P-256 in constant time, which is large. Delegation itself is not part of this              program, and its figures stand alone.",
        );
        let ours = |name: &str, flight: u32| {
            let id = format!("transmission/{name}/flight_{flight}/bytes");
            figures.iter().find(|figure| figure.id == id).and_then(|figure| figure.ours)
        };
        let bars: Vec<_> = (1..=6)
            .filter_map(|flight| Some((format!("flight {flight}"), ours("certificate", flight)?, ours("psk", flight)?)))
            .collect();
        let names = ["certificates", "pre-shared key"];
        self.plot("handshakes-flights", &plot::pairs("Flights of a handshake (figure 8)", "bytes", names, &bars))?;
        self.figures("handshakes.csv", "Delegated handshakes", figures)?;
        self.end("handshakes.csv");
        Ok(())
    }

    fn two_way(&mut self, figures: &[Figure]) -> io::Result<()> {
        self.begin("two-way", "Two-way authentication: a handshake with a TPM, records, round trips");
        self.say(
            "Table I follows from its own currents and times: all of its energies and sums within 0.4 %, and so the lives of its \
             batteries. What its processor computes stands beside this stack's instructions on a Cortex-M3 of the same clock, which \
             has no TPM. Records of its cipher suite are 50 to 65 bytes longer than their content, not 64 at most: the byte \
             that counts the padding was left out.",
        );
        self.say(
            "Round trips are simulated as plain datagrams of the length of its records, with what it gives for its ciphers added; no \
             mote here has that cipher suite. Over four hops protection adds nearly what the paper says; over one hop more, in \
             proportion, as its plain text takes longer there than radio alone explains.",
        );
        for hops in ["single_hop", "four_hops"] {
            let series: Vec<_> = ["plain", "sha1_only", "aes128_sha1"]
                .into_iter()
                .map(|name| {
                    let start = format!("fig6/{hops}/{name}/");
                    let point = |figure: &Figure| {
                        let size = figure.id.strip_prefix(&start)?.strip_suffix("_bytes")?;
                        Some((size.parse().ok()?, figure.ours?, figure.sample?.interval))
                    };
                    Series { name: name.replace('_', " "), points: figures.iter().filter_map(point).collect() }
                })
                .collect();
            let title = format!("Round trips, {} (figure 6)", hops.replace('_', " "));
            self.plot(&format!("two-way-{hops}"), &plot::lines(&title, "bytes of plain text", "ms", &series))?;
        }
        self.figures("two-way.csv", "Two-way authentication", figures)?;
        self.end("two-way.csv");
        Ok(())
    }

    /// Bars of those figures whose names end so and that both have.
    fn pairs(&mut self, name: &str, title: &str, unit: &str, figures: &[Figure], end: &str) -> io::Result<()> {
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
    fn figures(&mut self, csv: &str, paper: &'static str, figures: &[Figure]) -> io::Result<()> {
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

    fn agreement(&mut self, rows: &[agreement::Row]) -> io::Result<()> {
        self.begin("ns3", "The radio and MAC beside ns-3");
        let differing: Vec<_> = rows.iter().filter(|row| row.verdict == agreement::DIFFERS).collect();
        let (below, saturated) = (agreement::TOLERANCE, agreement::SATURATED);
        self.say(&format!(
            "Bare frames that ask and answer, 300 requests of each timer in a run, here and in the model lr-wpan of \
             ns-3 3.37. Nothing is fitted. {} of {} cases agree: within {} % of mean and median and {} point of delivery; \
             within {} % and {} points where a queue grows as long as the case runs.",
            rows.len() - differing.len(),
            rows.len(),
            below.percent,
            below.points,
            saturated.percent,
            saturated.points
        ));
        for row in rows {
            let verdict = if row.verdict == agreement::AGREES { WITHIN } else { row.verdict };
            self.count(
                "ns3",
                "ns-3",
                if row.file == agreement::GIVEN { "node 0 asks" } else { "leaves ask" },
                class(verdict),
            );
        }
        for row in differing {
            self.say(&format!(
                "{} differs by {:+.2} points of delivery and {:+.1} % of the mean.",
                row.id, row.difference.delivered_points, row.difference.mean_percent
            ));
        }
        let bars: Vec<_> = rows
            .iter()
            .filter(|row| !row.saturated)
            .map(|row| (row.id.clone(), row.ns3.mean_ms, row.ours.mean_ms))
            .collect();
        self.plot("ns3-mean", &plot::pairs("Mean time from request to answer", "ms", ["ns-3", "ours"], &bars))?;
        let table: Vec<Vec<String>> = rows
            .iter()
            .map(|row| {
                let mut cells = vec![row.id.clone()];
                cells.extend([row.ns3.delivered, row.ours.delivered].map(|value| format!("{value:.4}")));
                let times = [row.ns3.mean_ms, row.ours.mean_ms, row.ns3.p50_ms, row.ours.p50_ms];
                cells.extend(times.map(|value| format!("{value:.3}")));
                cells.push(format!("{:+.2}", row.difference.delivered_points));
                cells.extend([row.difference.mean_percent, row.difference.p50_percent].map(|d| format!("{d:+.2}")));
                cells.extend([row.source.name().into(), row.n.to_string(), row.seeds.to_string()]);
                cells.push(row.mean_ms_interval.map_or(String::new(), |[low, high]| format!("{low:.3} to {high:.3}")));
                cells.push(row.verdict.into());
                cells
            })
            .collect();
        let header = [
            "case",
            "ns3_delivered",
            "delivered",
            "ns3_mean_ms",
            "mean_ms",
            "ns3_median_ms",
            "median_ms",
            "points",
            "mean_percent",
            "median_percent",
            "source",
            "n",
            "seeds",
            "mean_ms_95",
            "verdict",
        ];
        self.table("ns3.csv", &header, &table)?;
        self.end("ns3.csv");
        Ok(())
    }

    fn plan(&mut self, name: &str, plan: &Plan, summaries: Vec<Summary>) -> io::Result<()> {
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
