//! The counters of a server as OpenMetrics text, which Prometheus and other collectors read.

use crate::proxy::ProxyCounts;
use crate::resumption::ResumptionCounters;
use crate::server::{Kind, Totals};
use std::fmt::Write as _;
use std::time::SystemTime;

/// The media type of [`render`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The state and the counts of the program that runs a server, such as `tegmen serve`. They are not in the [`Totals`]
/// of the server.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The time at which the program started.
    pub started: SystemTime,
    /// True while the program takes requests: it has started, and has not begun to end.
    pub ready: bool,
    /// The number of times that the configuration was read again and accepted.
    pub reloads: u64,
    /// The number of times that the configuration was read again and refused.
    pub reloads_refused: u64,
    /// The counts of the controller of groups, if the program has one.
    pub groups: Option<GroupTotals>,
    /// The counts of the delegation server, if the program opens sessions in the name of devices.
    pub delegation: Option<DelegationTotals>,
    /// The counts of the proxy, if the program has a proxy.
    pub proxy: Option<ProxyCounts>,
}

/// The counts of a controller of groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupTotals {
    /// The number of epochs that the controller has begun.
    pub epochs: u64,
    /// The number of rekey messages that were sent, counting repetitions.
    pub messages: u64,
    /// The number of failures: messages that the system did not send, changes of a group whose messages could not be
    /// made, and changes of a group that failed in the background.
    pub failures: u64,
}

/// The counts of a delegation server, which opens sessions in the name of devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DelegationTotals {
    /// The number of devices in whose name the server opens sessions.
    pub devices: usize,
    /// The number of devices that the server could not reach at the last attempt.
    pub unreachable: usize,
    /// The number of revocations that a device has not acknowledged yet.
    pub untold: usize,
    /// The number of devices without a certificate.
    pub uncertified: usize,
    /// The number of devices whose certificate cannot be obtained or renewed.
    pub certificate_problems: usize,
    /// The number of tickets that were issued to peers after they authenticated themselves.
    pub sealed: u64,
    /// The number of tickets that were issued to peers that returned with a ticket.
    pub reissued: u64,
    /// The number of sessions that the server handed over to devices.
    pub handed_over: u64,
    /// The number of peers that got no session because they have no rights at the device.
    pub without_rights: u64,
    /// The number of peers that got no session for a reason other than missing rights.
    pub not_given: u64,
    /// The number of refused tickets of returning peers.
    pub refused: u64,
    /// The number of conversations (contacts of the server with a device) in which the server delivered everything that
    /// waited for the device.
    pub conversations: u64,
    /// The number of conversations (contacts of the server with a device) that failed.
    pub failed_conversations: u64,
    /// The number of epochs that devices began.
    pub epochs: u64,
    /// The number of conversations (contacts of the server with a device) in which the device no longer had some
    /// revocations that it had acknowledged earlier.
    pub forgotten: u64,
}

/// Returns all counts of the server as text, and the state and the counts of the program if `operation` contains them.
/// The text contains no name of a peer and no identity.
pub fn render(totals: &Totals, operation: Option<&Operation>) -> String {
    let mut text = String::new();
    if let Some(operation) = operation {
        write_operation(&mut text, operation);
    }
    write_gauges(&mut text, totals);
    write_ends(&mut text, totals);
    write_sessions(&mut text, totals);
    write_datagrams(&mut text, totals);
    text.push_str("# EOF\n");
    text
}

fn gauge(text: &mut String, name: &str, unit: &str, help: &str, value: usize) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "# TYPE tegmen_{name} gauge");
    if !unit.is_empty() {
        let _ = writeln!(text, "# UNIT tegmen_{name} {unit}");
    }
    let _ = writeln!(text, "# HELP tegmen_{name} {help}\ntegmen_{name} {value}");
}

fn counter(text: &mut String, name: &str, help: &str, values: &[(&str, u64)]) {
    let _ = writeln!(text, "# TYPE tegmen_{name} counter\n# HELP tegmen_{name} {help}");
    for (label, value) in values {
        let _ = writeln!(text, "tegmen_{name}_total{label} {value}");
    }
}

/// Writes the state and the counts of the program that runs the server.
fn write_operation(text: &mut String, operation: &Operation) {
    let started = operation.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let help = "Time at which the service started, since 1970.";
    gauge(text, "start_time_seconds", "seconds", help, started.as_secs() as usize);
    gauge(text, "ready", "", "1 while the service takes requests.", operation.ready.into());
    let results = [("{result=\"taken\"}", operation.reloads), ("{result=\"refused\"}", operation.reloads_refused)];
    counter(text, "reloads", "Times that the configuration was read again, by the result.", &results);
    if let Some(GroupTotals { epochs, messages, failures }) = operation.groups {
        counter(text, "group_epochs", "Epochs of groups that this controller has begun.", &[("", epochs)]);
        counter(text, "group_messages", "Rekey messages that were sent, each time.", &[("", messages)]);
        let help =
            "Rekey messages that were not made or not sent, and changes of groups in the background that failed.";
        counter(text, "group_failures", help, &[("", failures)]);
    }
    if let Some(totals) = &operation.delegation {
        write_delegation(text, totals);
    }
    if let Some(counts) = &operation.proxy {
        write_proxy(text, counts);
    }
}

/// Writes the counts of a proxy.
fn write_proxy(text: &mut String, counts: &ProxyCounts) {
    gauge(text, "proxy_responses", "", "Responses that the proxy has stored.", counts.entries);
    let help = "Memory that the stored responses take (--proxy-cache).";
    gauge(text, "proxy_cache_bytes", "bytes", help, counts.bytes);
    gauge(text, "proxy_requests_waiting", "", "Requests to origins that wait for a response.", counts.open);
    let help = "Observations at origins, each for all clients that observe the same resource.";
    gauge(text, "proxy_observations", "", help, counts.observations);
    counter(
        text,
        "proxy_requests",
        "Requests that the proxy took, by the source of the response; one that waited for an earlier request is a miss, too.",
        &[
            ("{source=\"hit\"}", counts.hits),
            ("{source=\"miss\"}", counts.misses),
            ("{source=\"joined\"}", counts.joined),
            ("{source=\"passed\"}", counts.passed),
        ],
    );
    let help = "Stored responses that their origin confirmed to be valid.";
    counter(text, "proxy_revalidations", help, &[("", counts.revalidated)]);
    counter(text, "proxy_failures", "Requests to origins that failed.", &[("", counts.failed)]);
}

/// Writes the counts of sessions that the server opened in the name of devices.
fn write_delegation(text: &mut String, totals: &DelegationTotals) {
    gauge(text, "delegated_devices", "", "Devices in whose name the server opens sessions.", totals.devices);
    gauge(text, "delegated_devices_unreachable", "", "Devices that the server did not reach last.", totals.unreachable);
    gauge(text, "delegated_revocations_untold", "", "Revocations that devices have not acknowledged.", totals.untold);
    gauge(text, "delegated_devices_uncertified", "", "Devices without a certificate.", totals.uncertified);
    let help = "Devices whose certificate cannot be obtained or renewed.";
    gauge(text, "delegated_certificate_problems", "", help, totals.certificate_problems);
    counter(
        text,
        "delegations",
        "Sessions that were to be delegated to devices, by the result.",
        &[
            ("{result=\"ticket\"}", totals.sealed),
            ("{result=\"ticket_again\"}", totals.reissued),
            ("{result=\"handed_over\"}", totals.handed_over),
            ("{result=\"without_rights\"}", totals.without_rights),
            ("{result=\"ticket_refused\"}", totals.refused),
            ("{result=\"failed\"}", totals.not_given),
        ],
    );
    counter(
        text,
        "delegation_conversations",
        "Conversations with devices, by the result.",
        &[("{result=\"done\"}", totals.conversations), ("{result=\"failed\"}", totals.failed_conversations)],
    );
    counter(text, "delegation_epochs", "Epochs that devices began.", &[("", totals.epochs)]);
    let help = "Conversations in which a device had forgotten revocations, and got them again.";
    counter(text, "delegation_revocations_forgotten", help, &[("", totals.forgotten)]);
}

/// Writes the current sizes of the tables: peers, handshakes, observations and stored messages.
fn write_gauges(text: &mut String, totals: &Totals) {
    gauge(text, "peers", "", "Peers in the table.", totals.peers);
    gauge(
        text,
        "handshakes_under_way",
        "",
        "Places for handshakes that are taken (--max-handshakes).",
        totals.handshakes,
    );
    gauge(text, "peer_table_bytes", "bytes", "Memory that the peer tables take.", totals.table_bytes);
    gauge(
        text,
        "signatures_waiting",
        "",
        "Handshakes that wait for a signature or a decryption (--signatures-per-second).",
        totals.signatures.waiting,
    );
    gauge(text, "observations", "", "Observations that clients have registered.", totals.observations);
    gauge(
        text,
        "exchange_bytes",
        "bytes",
        "Replies and messages that are kept to be sent again (--max-exchange-bytes).",
        totals.exchange_bytes,
    );
    gauge(text, "transfer_bytes", "bytes", "Bodies of block-wise transfers that are held.", totals.body_bytes);
}

/// Writes the time until the certificate of the server expires, and the time until a list of revoked clients has to be
/// replaced.
fn write_ends(text: &mut String, totals: &Totals) {
    let now = SystemTime::now();
    for (name, help, at) in [
        ("certificate_expiry", "Time until the certificate of the server expires.", totals.certificate_expires),
        ("revocation_list_due", "Time until a list of revoked clients has to be replaced.", totals.revocation_due),
    ] {
        let Some(at) = at else { continue };
        let seconds = match at.duration_since(now) {
            Ok(left) => left.as_secs() as i64,
            Err(over) => -(over.duration().as_secs() as i64),
        };
        let name = format!("tegmen_{name}_seconds");
        let _ = writeln!(text, "# TYPE {name} gauge\n# UNIT {name} seconds\n# HELP {name} {help}\n{name} {seconds}");
    }
}

/// Writes the counts of requests, handshakes and sessions.
fn write_sessions(text: &mut String, totals: &Totals) {
    let counters = &totals.counters;
    counter(text, "requests", "Requests that were answered.", &[("", totals.requests)]);
    counter(
        text,
        "exchanges_refused",
        "Requests answered with 5.03 because --max-exchange-bytes are taken.",
        &[("", totals.exchanges_refused)],
    );
    counter(text, "duplicates", "Requests that were answered again.", &[("", counters.duplicates.into())]);
    counter(
        text,
        "handshakes",
        "Handshakes that ended, by how.",
        &[
            ("{result=\"established\"}", counters.established.into()),
            ("{result=\"failed\"}", counters.failed.into()),
            ("{result=\"table_full\"}", counters.table_full.into()),
        ],
    );
    let kinds = Kind::NAMES.map(|name| format!("{{kind=\"{name}\"}}"));
    let by_kind: Vec<_> = kinds.iter().map(String::as_str).zip(totals.established).collect();
    counter(text, "sessions", "Sessions that began, by how they got their keys.", &by_kind);
    let resumption = &totals.resumption;
    counter(text, "tickets", "Session tickets that were given.", &[("", resumption.tickets_sealed)]);
    counter(
        text,
        "resumptions",
        "Sessions that clients wanted to resume, by how they named them and what became of it.",
        &by_handle(resumption),
    );
    let devices = &totals.devices;
    let help = "Session tickets that were given in the name of devices.";
    counter(text, "device_tickets", help, &[("", devices.tickets_sealed)]);
    let help = "Sessions of devices that clients wanted to resume, by how they named them and what became of it.";
    counter(text, "device_resumptions", help, &by_handle(devices));
    counter(text, "cookies", "Hellos that were answered with a cookie.", &[("", counters.cookies_sent.into())]);
    counter(text, "hellos_dropped", "Hellos that were dropped because too many came.", &[("", totals.hellos_dropped)]);
    counter(
        text,
        "signatures",
        "Signatures and decryptions with keys of RSA or in a TPM for clients that had proved nothing yet, and handshakes that \
         were given up because too many waited.",
        &[("{result=\"done\"}", totals.signatures.done), ("{result=\"displaced\"}", totals.signatures.displaced)],
    );
}

/// Returns the counts of attempts of clients to resume a session. Each element has the OpenMetrics labels of a count,
/// and then the count.
const fn by_handle(resumption: &ResumptionCounters) -> [(&'static str, u64); 4] {
    [
        ("{by=\"ticket\",result=\"taken\"}", resumption.tickets_opened),
        ("{by=\"ticket\",result=\"refused\"}", resumption.tickets_refused),
        ("{by=\"id\",result=\"taken\"}", resumption.ids_found),
        ("{by=\"id\",result=\"refused\"}", resumption.ids_refused),
    ]
}

/// Writes the counts of repeated flights, evicted peers, dropped records, new addresses of clients, and datagrams that
/// one shard passed to another shard.
fn write_datagrams(text: &mut String, totals: &Totals) {
    let counters = &totals.counters;
    counter(text, "flights_repeated", "Flights that were sent again.", &[("", counters.retransmitted.into())]);
    counter(text, "peers_evicted", "Peers that were removed for others.", &[("", counters.evicted.into())]);
    counter(
        text,
        "records_dropped",
        "Records that were dropped, by reason.",
        &[
            ("{reason=\"malformed\"}", counters.malformed.into()),
            ("{reason=\"unknown_peer\"}", counters.unknown_peer.into()),
            ("{reason=\"replayed\"}", counters.replayed.into()),
            ("{reason=\"not_authentic\"}", counters.not_authentic.into()),
            ("{reason=\"unexpected\"}", counters.unexpected.into()),
            ("{reason=\"no_room\"}", counters.no_room.into()),
        ],
    );
    let changes = &totals.address_changes;
    counter(
        text,
        "address_changes",
        "Records of clients with connection ids that came from a new address, by result.",
        &[("{result=\"followed\"}", changes.followed.into()), ("{result=\"refused\"}", changes.refused.into())],
    );
    counter(
        text,
        "path_challenges",
        "New addresses that received a challenge to confirm the client.",
        &[("", changes.checked.into())],
    );
    counter(
        text,
        "datagrams_passed_on",
        "Datagrams that one shard received for a session of another, by result.",
        &[("{result=\"passed\"}", totals.passed_on), ("{result=\"dropped\"}", totals.not_passed_on)],
    );
}

#[cfg(test)]
mod tests;
