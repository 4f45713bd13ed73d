//! The sections of the report for the plans of papers and for the comparison with ns-3. Each has text, plots and a
//! table.

use super::agreement;
use crate::figure::{Figure, WITHIN};
use crate::plot::{self, Bars, Series};
use crate::report::{Report, Row};
use std::io;

pub(super) fn blink(report: &mut Report<'_>, figures: &[Figure]) -> io::Result<()> {
    report.say(
        "Every figure of tables I to V beside ours. Bytes are those of frames and datagrams that this stack writes, \
         and equal to the paper's. The energies of tables IV and V follow from the paper's own measurement of its \
         board; three of its figures contradict its others. Time and energy of this stack are instructions of a \
         Cortex-M3, counted under QEMU, at the clock and power of the paper's board: another processor and other \
         ciphers, so they show what the protocol needs and not who is faster.",
    );
    report.pairs("blink-frames", "Frames of tables II and III", "bytes", figures, "/frame")?;
    report.figures(figures)
}

pub(super) fn blink_bytes(report: &mut Report<'_>, figures: &[Figure]) -> io::Result<()> {
    report.say(
        "Bytes of the minimal profile, which is the paper's, and of the default profile, which has more extensions. The bytes of each \
         extension are read from the hellos.",
    );
    report.figures(figures)
}

pub(super) fn objects_bytes(report: &mut Report<'_>, figures: &[Figure]) -> io::Result<()> {
    report.say(
        "What protection adds to a request and to its response, on messages that this stack builds. Every figure is the \
         paper's. With NDN the paper counts all elements of the signature, of which an unprotected packet has some, too. Its text has 27 bytes for a response over DTLS where its \
         table has 29: records are 29, both ways. Figure 3 draws some bars without a number. Rows of these bars have no value of the paper; they are for a \
         GET of sensors/temperature with a token of two bytes.",
    );
    report.pairs("objects-overhead", "What protection adds", "bytes", figures, "/all")?;
    report.figures(figures)
}

pub(super) fn objects_delay(report: &mut Report<'_>, figures: &[Figure]) -> io::Result<()> {
    report.say(
        "Over a single hop, ten sensors around a gateway, each asked every two seconds. One number is fitted: what the \
         operating system takes for a datagram, so that plain CoAP has the paper's median. All others are predicted from \
         bytes and instructions. The medians of OSCORE and DTLS come out about a millisecond early: RIOT's \
         libOSCORE, tinyDTLS and their sockets take more than this stack's ciphers. Only requests that were answered at \
         the first try count, as a single one that was sent again after two seconds would show in the paper's deviations.",
    );
    report.say(
        "The paper's mean and deviation for DTLS fit a handshake before a fifth of the requests. Its OSCORE row cannot hold \
         as many recoveries: with one more round trip in a fifth of the requests the deviation would be above 7 ms, \
         and it prints 2.72, less than for plain CoAP. So both are shown, with losses of memory and without.",
    );
    report.say(
        "Over several hops the paper's topology is drawn without losses, so three guesses are shown instead of one curve, all \
         with about its share of requests that are answered at once. If all links lose the same share of frames, four \
         retransmissions answer nearly all. Only links that differ, or that stay bad for long, leave a quarter \
         without an answer, as in the paper. Requests are sent again after 2 to 3 s, doubling each time (RFC 7252), not \
         every 2 s, and each waits for the one before; DTLS opens its session over the same links. Interests of NDN are sent again \
         every 2 s on each hop. The links were chosen on CoAP alone, and none of the guesses gives NDN the paper's 92 to 97 %.",
    );
    report.pairs(
        "objects-median",
        "Median from request to answer, single hop, with reboots",
        "ms",
        figures,
        "/median",
    )?;
    let title = "Time from request to answer, single hop";
    let around = ("fig9/single_hop/", "/median");
    report.distributions("objects-single-hop", title, "requests", figures, around)?;
    for (links, name) in
        [("equal", "equal links"), ("unequal", "unequal links"), ("unequal_bursty", "unequal links with bursts")]
    {
        let start = format!("fig9/multi_hop/{links}/");
        let title = format!("Time from request to answer over several hops, {name}");
        report.distributions(
            &format!("objects-multi-hop-{links}"),
            &title,
            "requests",
            figures,
            (&start, "/success"),
        )?;
    }
    report.pairs("objects-success", "Requests answered over several hops", "percent", figures, "/success")?;
    report.figures(figures)
}

pub(super) fn objects_discovery(report: &mut Report<'_>, figures: &[Figure]) -> io::Result<()> {
    report.say(
        "A client that has lost the address of a server sends a request with OSCORE to a multicast address that the context maps to. \
         Nodes without a context of this address do not take it, and of the others the owner of the context alone opens it. The paper \
         leaves open how 24 bits come from an identifier: here they come from a digest.",
    );
    report.figures(figures)
}

pub(super) fn objects_cache(report: &mut Report<'_>, figures: &[Figure]) -> io::Result<()> {
    report.say(
        "Three consumers ask up to ten producers over a row of up to five forwarders. Plain CoAP repeats a request from end to end. A \
         proxy repeats it on its own hop, and stores 30 responses. So does each node of NDN, whose packets keep their protection in the \
         store. One number is fitted, on plain CoAP in the largest topology alone: the \
         loss of every link. All other shares are predicted.",
    );
    report.pairs("objects-cache", "Requests answered over a row of forwarders", "percent", figures, "/success")?;
    report.figures(figures)
}

pub(super) fn objects_creation(report: &mut Report<'_>, figures: &[Figure]) -> io::Result<()> {
    report.say(
        "Instructions of this stack, counted under QEMU, as time on the paper's processor of 72 MHz at 1.0 to 1.3 cycles \
         for an instruction. The paper's times go from the application through the sockets of RIOT to UDP, so that even \
         a request that is only sent again takes 43 us there; ours are what CoAP and its protection take alone. The \
         conclusion of the paper holds: DTLS encrypts a request again each time it is sent, OSCORE protects it once.",
    );
    report.pairs("objects-creation", "Creating a request", "us", figures, "/time_most")?;
    report.figures(figures)
}

pub(super) fn handshakes(report: &mut Report<'_>, figures: &[Figure]) -> io::Result<()> {
    report.say(
        "The baselines of the paper on delegated handshakes, beside handshakes that two ends complete in this process. With a \
         pre-shared key bytes, messages and fragments are the paper's. With certificates messages are; bytes are near its, and \
         fragments fewer, since a flight travels in one datagram here. Memory and instructions are those of the firmware's images, \
         counted under QEMU: a Cortex-M3, and P-256 in constant time.",
    );
    let ours = |name: &str, flight: u32| {
        let id = format!("transmission/{name}/flight_{flight}/bytes");
        figures.iter().find(|figure| figure.id == id).and_then(|figure| figure.ours)
    };
    let bars: Vec<_> = (1..=6)
        .filter_map(|n| Some(Bars::pair(format!("flight {n}"), ours("certificate", n)?, ours("psk", n)?)))
        .collect();
    let names = ["certificates", "pre-shared key"];
    report.plot("handshakes-flights", &plot::bars("Flights of a handshake (figure 8)", "bytes", &names, &bars))?;
    report.figures(figures)
}

pub(super) fn delegation(report: &mut Report<'_>, figures: &[Figure]) -> io::Result<()> {
    report.say(
        "A device resumes a session that its delegation server opened with certificates. Bytes and frames are those of handshakes that \
         two ends complete in this process, with the ticket of the product; instructions and memory are those of firmware images, \
         counted under QEMU. All three handshakes are counted in the same way: ROM is the text of an image over that of an empty one, \
         with CoAP, and instructions are those of one end. Computation and transmission save at least the share of the paper. \
         Memory saves less, because P-256 is small here.",
    );
    report.say(
        "Beyond the paper: all peers of a device return after the end of its epoch, beside handshakes with certificates at the same \
         device; a fleet of 1,000 devices whose epochs end; and a device whose radio sleeps.",
    );
    let ours = |id: &str| figures.iter().find(|figure| figure.id == id).and_then(|figure| figure.ours);
    let bars: Vec<_> = (1..=6)
        .filter_map(|flight| {
            let bytes = |name: &str| ours(&format!("figure8/{name}/flight_{flight}/bytes"));
            Some(Bars::pair(format!("flight {flight}"), bytes("certificate")?, bytes("delegation").unwrap_or(0.0)))
        })
        .collect();
    let names = ["certificates", "delegation"];
    report.plot("delegation-flights", &plot::bars("Flights of a handshake (figure 8)", "bytes", &names, &bars))?;
    report.figures(figures)
}

pub(super) fn two_way(report: &mut Report<'_>, figures: &[Figure]) -> io::Result<()> {
    report.say(
        "Table I follows from its own currents and times: all of its energies and sums within 0.4 %, and so the lives of its \
         batteries. The times of its processor are compared with the instructions of this stack on a Cortex-M3 of the same clock, \
         which has no TPM. Records of its cipher suite are 50 to 65 bytes longer than their content, not 64 at most: the byte \
         that counts the padding was left out.",
    );
    report.say(
        "Round trips are simulated as plain datagrams of the length of its records, with what it gives for its ciphers added; no \
         mote here has that cipher suite. Over four hops protection adds nearly the time of the paper. Over one hop it adds \
         a larger share here: the plain text of the paper takes longer there than radio alone explains.",
    );
    for hops in ["single_hop", "four_hops"] {
        let series: Vec<_> = ["plain", "sha1_only", "aes128_sha1"]
            .into_iter()
            .map(|name| {
                let start = format!("fig6/{hops}/{name}/");
                let point = |figure: &Figure| {
                    let size = figure.id.strip_prefix(&start)?.strip_suffix("_bytes")?;
                    Some((size.parse().ok()?, figure.value()?))
                };
                Series { name: name.replace('_', " "), points: figures.iter().filter_map(point).collect() }
            })
            .collect();
        let title = format!("Round trips, {} (figure 6)", hops.replace('_', " "));
        report.plot(&format!("two-way-{hops}"), &plot::lines(&title, "bytes of plain text", "ms", &series))?;
    }
    report.figures(figures)
}

pub(super) fn two_way_architecture(report: &mut Report<'_>, figures: &[Figure]) -> io::Result<()> {
    report.say(
        "The exchanges between a publisher and the Internet, with the messages of this project, over one hop and four. The \
         handshakes of the paper are datagrams of the lengths of their messages, and its TPM takes the times of table I, also \
         where the key has 1024 bits. With RSA of 2048 bits and both ends authenticated, the flight with the client's certificate \
         needs two datagrams; over four hops their fragments collide, and a handshake then waits five seconds or more. The paper \
         reports the same.",
    );
    report.figures(figures)
}

pub(super) fn axiom(report: &mut Report<'_>, figures: &[Figure]) -> io::Result<()> {
    report.say(
        "One sender asks a group: in clear, over DTLS sessions, with the keys of the group and responses over sessions (draft-keoh), and \
         under Axiom. Each mote has the node of this project, and all schemes send the same request over the same links. These, the \
         lengths of payloads and the time of the operating system were set on plain CoAP before the others ran. Energies of all schemes \
         come within a quarter of the paper's sums, except for a listener without handshakes, whose operating system takes less there. \
         A handshake takes a third of the paper's time or less, so that the leisure of the listeners hides most of its end.",
    );
    report.say(
        "The conclusions of the paper stand at the end of the table, each with the size of the group or the number of exchanges from which \
         on it holds for this stack. ROM is that of images of the firmware, without an operating system and a radio; those of Axiom are \
         provisioned and have no handshake. RAM is that of the state of each scheme alone. Frames of an eviction contain the exchanges of \
         members that missed its messages; those of the key tree are sent four times, as by default.",
    );
    let ours = |id: &str| figures.iter().find(|figure| figure.id == id)?.value();
    let both = |one: &dyn Fn(&str) -> String, other: &dyn Fn(&str) -> String| -> Vec<Bars> {
        let row = |name: &&str| {
            Some(Bars { name: name.replace('_', " "), values: vec![ours(&one(name))?, ours(&other(name))?] })
        };
        SCHEMES.iter().filter_map(row).collect()
    };
    let ends = ["sender", "listener"];
    let rom = both(&|name| format!("figure7/sender/{name}"), &|name| format!("figure7/listener/{name}"));
    report.plot("axiom-figure7", &plot::bars("ROM of each scheme (figure 7)", "kB", &ends, &rom))?;
    let state = both(&|name| format!("figure8/sender/{name}"), &|name| format!("figure8/listener/{name}"));
    report.plot("axiom-figure8", &plot::bars("State of each scheme (figure 8)", "bytes", &ends, &state))?;
    let memory = series(figures, |name| (format!("figure9/{name}/"), "_listeners".into()));
    report.plot("axiom-figure9", &plot::lines("State of the sender (figure 9)", "listeners", "kB", &memory))?;
    let times =
        both(&|name| format!("figure10/with_leisure/{name}"), &|name| format!("figure10/without_leisure/{name}"));
    let names = ["with the leisure", "without"];
    report.plot("axiom-figure10", &plot::bars("First transaction (figure 10)", "s", &names, &times))?;
    report.pairs("axiom-figure11", "Energy of the sender (figure 11)", "mJ", &energies(figures, "figure11"), "")?;
    report.pairs("axiom-figure12", "Energy of a listener (figure 12)", "mJ", &energies(figures, "figure12"), "")?;
    let sizes = series(figures, |name| ("size/".into(), format!("/{name}/sender_energy")));
    report.plot("axiom-sizes", &plot::lines("Energy of the sender by size of the group", "members", "mJ", &sizes))?;
    let lost = |loss| format!("rekeying/1000_members/{loss}_percent_lost");
    let repairs = [1, 5, 20].into_iter().filter_map(|loss| {
        let frames = |way: &str| ours(&format!("{}/{way}/frames", lost(loss)));
        let values = vec![frames("key_tree/sent_4_times")?, frames("point_to_point")?];
        Some(Bars { name: format!("{loss} % lost"), values })
    });
    let names = ["key tree", "point to point"];
    let title = "Frames of an eviction among 1,000 members";
    report.plot("axiom-repairs", &plot::bars(title, "frames", &names, &repairs.collect::<Vec<_>>()))?;
    report.figures(figures)
}

/// Returns a line of a plot for each scheme, which is one of the compared protocols. Each of `figures` is a value with
/// a name. For a scheme, `around` returns a prefix and a suffix. If the name of a value consists of this prefix, a
/// number and this suffix, the value becomes a point of the line. The number is the position of the point on the
/// horizontal axis.
fn series(figures: &[Figure], around: impl Fn(&str) -> (String, String)) -> Vec<Series> {
    let of = |name: &&str| {
        let (start, end) = around(name);
        let point = |figure: &Figure| {
            let x = figure.id.strip_prefix(&start)?.strip_suffix(&end)?.parse().ok()?;
            Some((x, figure.value()?))
        };
        Series { name: name.replace('_', " "), points: figures.iter().filter_map(point).collect() }
    };
    SCHEMES.iter().map(of).collect()
}

/// Returns the energies of all schemes that belong to the figure `name` of the paper on Axiom.
fn energies(figures: &[Figure], name: &str) -> Vec<Figure> {
    let is_of = |figure: &&Figure| {
        figure.id.split_once('/').is_some_and(|(of, scheme)| of == name && SCHEMES.contains(&scheme))
    };
    figures.iter().filter(is_of).cloned().collect()
}

/// The names of the schemes of the paper on Axiom, as its figures contain them.
const SCHEMES: [&str; 5] = ["coap_uni", "coap_mul", "uni_uni", "mul_uni", "mul_mul"];

pub(super) fn agreement(report: &mut Report<'_>, rows: &[agreement::Row]) -> io::Result<()> {
    let differing: Vec<_> = rows.iter().filter(|row| row.verdict == agreement::DIFFERS).collect();
    let (below, saturated) = (agreement::TOLERANCE, agreement::SATURATED);
    report.say(&format!(
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
    for row in differing {
        report.say(&format!(
            "{} differs by {:+.2} points of delivery and {:+.1} % of the mean.",
            row.id, row.difference.delivered_points, row.difference.mean_percent
        ));
    }
    let bars: Vec<_> = rows
        .iter()
        .filter(|row| !row.saturated)
        .map(|row| Bars {
            name: row.id.clone(),
            values: vec![(row.ns3.mean_ms, None), (row.ours.mean_ms, row.mean_ms_interval)],
        })
        .collect();
    report.plot("ns3-mean", &plot::bars("Mean time from request to answer", "ms", &["ns-3", "ours"], &bars))?;
    let table: Vec<Row> = rows
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
            cells.push(row.verdict.to_string());
            let verdict = if row.verdict == agreement::AGREES { WITHIN } else { &*row.verdict };
            let table = if row.file == agreement::GIVEN { "node 0 asks" } else { "leaves ask" };
            Row { anchor: report.count(table, verdict), cells }
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
    report.table(&header, &table)
}
