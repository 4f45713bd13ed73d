//! `tegmen probe`: examines a server.

use crate::connect::Connect;
use crate::output::{Failure, Output, printable_lines, runtime};
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use tegmen_host::probe::{Choice, Datagram, Report, Resumption, probe, suite_name, version_name};
use tegmen_host::uri::{Scheme, Uri};
use tegmen_host::x509::date;

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen probe coaps://gateway.local\n  \
    tegmen probe -u Client_identity -k 73656372657450534b coaps://127.0.0.1:5684\n  \
    tegmen probe --credentials keys.toml --json coaps://[2001:db8::1]\n\n\
    Without a key the probe sees everything up to the server's Finished. The server's log shows up to three handshakes\n\
    of this client, one of them without extensions.")]
pub(crate) struct Probe {
    /// URI of the server: `coaps://host[:port]`.
    uri: String,
    #[command(flatten)]
    connect: Connect,
}

impl Probe {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let uri = Uri::parse(&self.uri).map_err(Failure::usage)?;
        if uri.scheme == Scheme::Coap {
            return Err(Failure::usage(
                "probe examines DTLS: give a coaps URI (`tegmen get` works with plain servers)",
            ));
        }
        let config = self.connect.config(&uri)?;
        let report = runtime()?.block_on(probe(&uri, config)).map_err(Failure::request)?;
        out.line(|| printable_lines(&text(&uri, &report)), || object(&report));
        Ok(if report.failure.is_none() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

fn text(uri: &Uri, report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_text(&mut text, uri, report);
    text.truncate(text.trim_end().len());
    text
}

/// Writes to `text` the parameters on which client and server agreed.
fn write_choice(text: &mut String, report: &Report, choice: Choice) -> std::fmt::Result {
    let yes = |there| if there { "yes" } else { "no" };
    writeln!(text, "\nAgreed\n")?;
    writeln!(text, "  version                 {}", version_name(choice.version))?;
    writeln!(text, "  cipher suite            {}", suite_name(choice.cipher_suite))?;
    if let Some(server) = &report.server {
        writeln!(text, "  the server is           {server}")?;
    }
    for (number, certificate) in report.chain.iter().enumerate() {
        let what = if number == 0 { "certificate" } else { "issued by" };
        let (names, until) = (certificate.names.join(", "), date(certificate.not_after));
        writeln!(text, "  {what:<23} {} ({names}), valid until {until}", certificate.subject)?;
    }
    writeln!(text, "  extended master secret  {}", yes(choice.extended_master_secret))?;
    writeln!(text, "  renegotiation info      {}", yes(choice.renegotiation_info))?;
    let record_size = match (choice.record_size_limit, choice.max_fragment_length) {
        (Some(limit), _) => format!("it takes {limit} bytes (record_size_limit)"),
        (None, Some(length)) => format!("{length} bytes both ways (max_fragment_length)"),
        (None, None) => "no limit given".to_owned(),
    };
    writeln!(text, "  size of records         {record_size}")?;
    let connection_id = match choice.connection_id_len {
        None => "no".to_owned(),
        Some(len) => format!("it wants {len} bytes in each record"),
    };
    writeln!(text, "  connection id           {connection_id}")?;
    writeln!(text, "  return routability      {}", yes(choice.return_routability))?;
    Ok(())
}

/// Writes to `text` how the session was resumed, and the answer of the server to a CoAP request.
fn write_coap(text: &mut String, report: &Report) -> std::fmt::Result {
    let resumption = match &report.resumption {
        None => "no".to_owned(),
        Some(Resumption { by, taken: false, .. }) => format!("by {by}, but it was not taken"),
        Some(Resumption { by, bytes: (sent, received), datagrams, time, .. }) => {
            let time = millis(*time);
            format!("by {by}: {} bytes in {datagrams} datagrams, {time:.2} ms", sent + received)
        }
    };
    writeln!(text, "  resumption              {resumption}")?;
    writeln!(text, "\nCoAP\n")?;
    let ping = report.ping.map_or("not answered".to_owned(), |ping| format!("{:.2} ms", millis(ping)));
    writeln!(text, "  ping                    {ping}")?;
    let resources = match &report.resources {
        None => "not answered".to_owned(),
        Some(Err(code)) => format!("{code} {}", code.name()),
        Some(Ok(links)) => match links.matches('<').count() {
            1 => "1 resource".to_owned(),
            count => format!("{count} resources"),
        },
    };
    writeln!(text, "  /.well-known/core       {resources}")?;
    Ok(())
}

fn write_text(text: &mut String, uri: &Uri, report: &Report) -> std::fmt::Result {
    let remote = report.remote.map_or(format!("{}:{}", uri.host, uri.port), |remote| remote.to_string());
    writeln!(text, "Handshake with {remote}\n")?;
    writeln!(text, "  {:>9}  {:<9} {:>5}  content", "ms", "direction", "bytes")?;
    for Datagram { at, sent, len, messages, repeated } in &report.datagrams {
        let direction = if *sent { "-> server" } else { "<- server" };
        let again = if *repeated { "  (sent again)" } else { "" };
        writeln!(text, "  {:>9.2}  {direction} {len:>5}  {}{again}", millis(*at), messages.join(", "))?;
    }
    let (sent, received) = report.bytes();
    writeln!(text, "\n  {} bytes sent, {} received in {} datagrams", sent, received, report.datagrams.len())?;
    match &report.failure {
        None => writeln!(text, "  established after {:.2} ms", millis(report.handshake_time))?,
        Some(_) if report.without_key && report.choice.is_some() => {
            writeln!(text, "  not established: no key was given (--identity and --key, or --credentials)")?;
        }
        Some(failure) => writeln!(text, "  not established: {failure}")?,
    }
    let (ours, theirs) = report.retransmissions();
    if ours + theirs > 0 {
        writeln!(text, "  sent again: {ours} by us, {theirs} by the server")?;
    }
    if let Some(choice) = report.choice {
        write_choice(text, report, choice)?;
    }
    if report.datagrams.iter().any(|one| !one.sent) {
        let cookie = report.cookie_len.map_or("none".to_owned(), |len| format!("{len} bytes"));
        writeln!(text, "  cookie                  {cookie}")?;
    }
    if !report.identity_hint.is_empty() {
        writeln!(text, "  identity hint           {}", report.identity_hint)?;
    }
    if report.failure.is_none() {
        write_coap(text, report)?;
    }
    let findings = report.findings();
    if !findings.is_empty() {
        writeln!(text, "\nWhat it lacks\n")?;
        for finding in findings {
            writeln!(text, "  * {finding}")?;
        }
    } else if report.failure.is_none() {
        writeln!(text, "\nAll checks passed.")?;
    }
    Ok(())
}

fn object(report: &Report) -> Value {
    let datagrams: Vec<Value> = report
        .datagrams
        .iter()
        .map(|one| {
            json!({ "ms": millis(one.at), "sent": one.sent, "bytes": one.len, "messages": one.messages,
                    "repeated": one.repeated })
        })
        .collect();
    let (sent, received) = report.bytes();
    let (again_ours, again_theirs) = report.retransmissions();
    json!({
        "remote": report.remote.map(|remote| remote.to_string()),
        "established": report.failure.is_none(),
        "failure": report.failure,
        "without_key": report.without_key,
        "handshake_ms": millis(report.handshake_time),
        "datagrams": datagrams,
        "bytes_sent": sent,
        "bytes_received": received,
        "retransmissions": { "ours": again_ours, "theirs": again_theirs },
        "version": report.choice.map(|choice| version_name(choice.version)),
        "cipher_suite": report.choice.map(|choice| suite_name(choice.cipher_suite)),
        "server": report.server,
        "certificates": report.chain.iter().map(|one| json!({
            "subject": one.subject, "issuer": one.issuer, "names": one.names, "not_after": date(one.not_after),
        })).collect::<Vec<_>>(),
        "extended_master_secret": report.choice.map(|choice| choice.extended_master_secret),
        "renegotiation_info": report.choice.map(|choice| choice.renegotiation_info),
        "record_size_limit": report.choice.and_then(|choice| choice.record_size_limit),
        "max_fragment_length": report.choice.and_then(|choice| choice.max_fragment_length),
        "connection_id_bytes": report.choice.and_then(|choice| choice.connection_id_len),
        "return_routability": report.choice.map(|choice| choice.return_routability),
        "cookie_bytes": report.cookie_len,
        "identity_hint": report.identity_hint,
        "resumption": report.resumption.map(|one| json!({
            "by": one.by, "taken": one.taken, "bytes_sent": one.bytes.0, "bytes_received": one.bytes.1,
            "datagrams": one.datagrams, "ms": millis(one.time),
        })),
        "serves_minimal": report.serves_minimal,
        "ping_ms": report.ping.map(millis),
        "resources": report.resources.as_ref().and_then(|links| links.as_ref().ok()),
        "findings": report.findings(),
    })
}
