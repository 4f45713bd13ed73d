//! `tegmen group verify`: a signature verifier of a Group OSCORE group.

use super::failure;
use crate::connect::Connect;
use crate::output::{Failure, Output, printable, runtime};
use clap::Args;
use serde_json::json;
use std::io::{BufRead, BufReader, Read, stdin};
use std::path::PathBuf;
use std::process::ExitCode;
use tegmen_host::controller::{Controller, NotVerified, OscoreVerifier, Verified};
use tegmen_host::hex::{from_hex, to_hex};

/// Maximum number of bytes of a line: a datagram of UDP in hexadecimal digits, and the end of the line.
const LONGEST_LINE: u64 = 2 * 65_536;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tshark -r capture.pcap -Y 'udp.port == 5683' -T fields -e udp.payload | tegmen group verify coaps://controller.example/ace-group/lights --credentials gateway.toml\n  \
    tegmen group verify coaps://controller.example/ace-group/lights --file messages.txt --credentials gateway.toml\n\n\
    The client needs the right POST /ace-group/NAME/verifier, and is no member of the group. The exit code is 1 if a message is not verified.")]
pub(crate) struct Verify {
    /// The group at its controller: coaps://host[:port]/ace-group/NAME.
    uri: String,
    /// Read the messages from this file. Each line has one CoAP message in hexadecimal digits, in the order in which the
    /// messages were sent. Default: the standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
}

impl Verify {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let config = self.connect.of_member(&self.uri)?;
        let controller = Controller::of_group(&self.uri, config).map_err(failure)?;
        let mut messages: Box<dyn BufRead> = match &self.file {
            None => Box::new(BufReader::new(stdin())),
            Some(file) => {
                let failed = |error| Failure::usage(format!("--file: {}: {error}", file.display()));
                Box::new(BufReader::new(std::fs::File::open(file).map_err(failed)?))
            }
        };
        let mut verifier = runtime()?.block_on(controller.verifier_oscore()).map_err(failure)?;
        let (epoch, gid, members) = (verifier.epoch(), to_hex(verifier.gid()), verifier.members());
        out.line(
            || printable(&format!("Epoch {epoch}, Group Identifier {gid}, members that sign messages: {members}.")),
            || json!({ "event": "verifier", "epoch": epoch, "gid": gid, "members": members }),
        );
        let (mut number, mut all_verified) = (0_u64, true);
        let mut line = String::new();
        loop {
            line.clear();
            let read = messages.by_ref().take(LONGEST_LINE).read_line(&mut line);
            if read.map_err(|error| Failure::new(format!("the messages cannot be read: {error}")))? == 0 {
                break;
            }
            let digits = line.trim();
            if digits.is_empty() {
                continue;
            }
            number = number.saturating_add(1);
            if line.len() as u64 == LONGEST_LINE && !line.ends_with('\n') {
                let text = format!("message {number} is longer than a datagram: give one message in each line");
                return Err(Failure::usage(text));
            }
            all_verified &= verify(&mut verifier, (number, digits), out)?;
        }
        if number == 0 {
            return Err(Failure::new(
                "there are no messages to verify: give one message in hexadecimal digits in each line",
            ));
        }
        Ok(if all_verified { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Verifies a message in hexadecimal digits, and prints the result. Returns true if the message is verified.
fn verify(verifier: &mut OscoreVerifier, (number, digits): (u64, &str), out: Output) -> Result<bool, Failure> {
    let no_hex =
        || Failure::usage(format!("message {number} is not in hexadecimal digits: give one message in each line"));
    let message = from_hex(digits).ok_or_else(no_hex)?;
    let result = verifier.verify(&message);
    out.line(|| printable(&text(number, &result)), || value(number, &result));
    Ok(result.is_ok())
}

fn text(number: u64, result: &Result<Verified, NotVerified>) -> String {
    match result {
        Ok(Verified { is_request, id, name }) => {
            let kind = if *is_request { "request" } else { "response" };
            let name = name.as_deref().unwrap_or("a member without a name");
            format!("{number}: {kind} of {name}, Sender ID {}: the signature is valid", to_hex(id))
        }
        Err(why) => format!("{number}: not verified: {why}"),
    }
}

fn value(number: u64, result: &Result<Verified, NotVerified>) -> serde_json::Value {
    match result {
        Ok(Verified { is_request, id, name }) => json!({
            "event": "message", "number": number, "verified": true, "request": is_request, "sender_id": to_hex(id), "member": name
        }),
        Err(why) => json!({ "event": "message", "number": number, "verified": false, "why": why.to_string() }),
    }
}
