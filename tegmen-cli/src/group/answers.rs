//! Prints the answers of the members of a group.

use crate::ask::{object, readable};
use crate::output::{Output, printable_lines};
use serde_json::json;
use std::net::IpAddr;
use std::time::Duration;
use tegmen::coap::OptionNumber;
use tegmen_host::client::{AskedMembers, Response};
use tegmen_host::hex::to_hex;

/// Prints the members that answered a request, and the members that did not answer.
pub(super) fn summary(out: Output, event: &str, asked: &AskedMembers) {
    let names = |all: &[IpAddr]| all.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
    let (count, missing, challenged) = (asked.responded.len(), names(&asked.missing), names(&asked.challenged));
    out.line(
        || {
            let missing = if missing.is_empty() { String::new() } else { format!("; missing: {missing}") };
            let proof = if challenged.is_empty() { "" } else { "; asked for a proof that the request is new: " };
            format!("{count} answered{missing}{proof}{challenged}")
        },
        || json!({ "event": event, "answered": asked.responded, "missing": asked.missing, "challenged": asked.challenged }),
    );
}

/// Prints the answer of a member. For a notification of an observation, `since` is the time since the observation
/// began.
pub(super) fn print(out: Output, from: IpAddr, reply: &Response, since: Option<Duration>) {
    let text = || printable_lines(&readable(reply).unwrap_or_else(|| to_hex(&reply.payload)));
    let is_observed = reply.option(OptionNumber::OBSERVE).is_some();
    out.line(
        || {
            let time = since.map_or_else(String::new, |since| format!("{:>9.3} s  ", since.as_secs_f64()));
            let last = if since.is_some() && !is_observed { "  (this member sends no more)" } else { "" };
            format!("{time}{from}  {} {}{last}", reply.code, text())
        },
        || {
            let mut object = object(reply);
            object["from"] = json!(from.to_string());
            if let Some(since) = since {
                object["event"] = json!("representation");
                object["after_ms"] = json!(since.as_secs_f64() * 1e3);
                object["observed"] = json!(is_observed);
            }
            object
        },
    );
}
