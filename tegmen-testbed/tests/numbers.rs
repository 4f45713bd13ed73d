//! Checks the numbers in the README and on the pages in docs/. They must be those in the files of the benchmarks and
//! footprint.

use serde_json::Value;
use std::fs;
use std::path::Path;

/// Reads a file of the project.
fn read(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the ratio in the first row of a result that has this operation and this peer.
fn ratio(file: &str, operation: &str, peer: &str) -> f64 {
    let result: Value = serde_json::from_str(&read(&format!("bench/results/{file}"))).unwrap();
    let mut rows = result["rows"].as_array().unwrap().iter();
    let row = rows.find(|row| row["operation"] == operation && row["peer_name"] == peer);
    row.and_then(|row| row["ratio"].as_f64())
        .unwrap_or_else(|| panic!("{file} has no ratio of \"{operation}\" beside {peer}"))
}

/// Peers. Each has its name in a result, and its name on a page.
type Peers = &'static [(&'static str, &'static str)];

/// Ratios on a page. Each has the beginning of its row on the page, the file, the operation, and the peers.
const RATIOS: &[(&str, &str, &str, Peers)] = &[
    ("PSK handshakes", "dtls.json", "PSK-CCM8 handshake with cookie", DTLS),
    ("sessions resumed with a ticket", "dtls.json", "PSK-CCM8 handshake resumed with a ticket", BOTH),
    ("records of 64 bytes", "dtls.json", "64 B record, seal + open", RECORDS),
    ("records of 1,024 bytes", "dtls.json", "1024 B record, seal + open", DTLS),
    ("handshakes with ECDSA certificates", "dtls.json", "mutual ECDSA handshake, chains of two certificates", BOTH),
    ("handshakes with RSA certificates", "dtls.json", "mutual RSA handshake, chains of two certificates", BOTH),
    ("CoAP requests per second", "coap.json", "CON GET of 16 bytes, 64 in flight", &[("libcoap-notls", "libcoap")]),
    (
        "confirmable notifications",
        "coap.json",
        "notifications, 1000 observers, confirmable",
        &[("libcoap-notls", "libcoap")],
    ),
    ("OSCORE requests", "oscore.json", "OSCORE request and response", &[("liboscore", "libOSCORE")]),
    (
        "responses from the cache",
        "proxy.json",
        "GET of 16 bytes through a proxy, from the cache, 10000 addresses",
        &[("californium", "Californium"), ("libcoap-notls", "libcoap")],
    ),
    (
        "responses from the origin",
        "proxy.json",
        "GET of 16 bytes through a proxy, from the origin, 10000 addresses",
        &[("californium", "Californium"), ("aiocoap", "aiocoap")],
    ),
    ("NDN Interest", "ndn.json", "Interest and Data packet through a forwarder of NDN", &[("ndnd", "ndnd")]),
    ("Data packets from", "ndn.json", "Data packet from the content store of a forwarder of NDN", &[("ndnd", "ndnd")]),
];
const BOTH: Peers = &[("wolfssl", "wolfSSL"), ("openssl", "OpenSSL")];
const RECORDS: Peers = &[("wolfssl", "wolfSSL"), ("openssl", "OpenSSL"), ("tinydtls", "tinydtls")];
const DTLS: Peers = &[("dimpl", "dimpl"), ("wolfssl", "wolfSSL"), ("tinydtls", "tinydtls"), ("openssl", "OpenSSL")];

#[test]
fn ratios_are_those_of_the_results() {
    let mut wrong = Vec::new();
    for page in ["README.md", "docs/measure.md"] {
        let text = read(page);
        let mut found = 0;
        for (begin, file, operation, peers) in RATIOS {
            let Some(row) = text.lines().find(|line| line.starts_with(&format!("| {begin}"))) else { continue };
            found += 1;
            for (peer, name) in *peers {
                let ratio = ratio(file, operation, peer);
                let written = |number: &str| {
                    row.contains(&format!(" {number} {name}")) || row.contains(&format!(" {number} times {name}"))
                };
                if !written(&format!("{ratio:.1}")) && (ratio < 10.0 || !written(&format!("{ratio:.0}"))) {
                    wrong.push(format!("{page}, row \"{begin}\": {ratio:.1} {name}"));
                }
            }
        }
        assert!(found >= 5, "{page} has no table of ratios");
    }
    assert!(wrong.is_empty(), "write these numbers of bench/results:\n{}", wrong.join("\n"));
}

/// The images in the table of docs/choosing.md.
const IMAGES: [&str; 9] =
    ["dtls_psk", "dtls_resume", "dtls_rpk", "dtls_x509", "dtls_delegated", "oscore", "edhoc", "group_oscore", "ndn"];

#[test]
fn sizes_are_those_of_the_budget() {
    let budget: toml::Table = read("firmware/budget.toml").parse().unwrap();
    let kilobytes = |image: &str, size: &str| {
        let value = |image: &str| budget[image]["compact"][size].as_integer().unwrap() as f64;
        // Of the text, what an empty image has is not that of the protection.
        let empty = if size == "text" { value("empty") } else { 0.0 };
        format!("{:.1} KB", (value(image) - empty) / 1000.0)
    };
    let page = read("docs/choosing.md");
    for image in IMAGES {
        let row = page.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{image}`")));
        let row = row.unwrap_or_else(|| panic!("docs/choosing.md has no row of {image}"));
        for size in ["text", "stack"] {
            let number = kilobytes(image, size);
            assert!(row.contains(&format!("| {number}")), "docs/choosing.md, {image}: its {size} is {number}");
        }
    }
    let (client, both) = (kilobytes("dtls_psk_client", "text"), kilobytes("dtls_psk", "text"));
    for page in ["README.md", "docs/measure.md"] {
        let text = read(page);
        assert!(text.contains(&client) && text.contains(&both), "{page}: a client takes {client}, both ends {both}");
    }
}
