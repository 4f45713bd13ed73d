//! `tegmen group send-image`.

use super::sender::Sender;
use crate::output::{Failure, Output, runtime};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tegmen_host::client::{ask_for_image, send_image};
use tegmen_host::group::Membership;
use tegmen_host::hex::to_hex;
use tegmen_host::image::{Advance, ImageReport, ImageTransfer, UNIT};
use tegmen_host::uri::Uri;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tegmen group send-image coap://[ff15::1]/firmware --file fw.bin --state switch --credentials switch.toml\n  \
    tegmen group send-image coap://[ff15::1]/firmware --file fw.bin --state switch --block 64 --interval 200   # over a radio\n\n\
    The members run `tegmen serve --image /firmware=FILE`. Exit code 1 if a member lacks the image at the end, or none answers. \
    The keys of a group prove only that a member sent the image: sign your images.")]
pub(crate) struct SendImage {
    #[command(flatten)]
    sender: Sender,
    /// The file with the image.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Bytes per block: 64, 128, 256, 512 or 1024. Over a radio, small blocks are lost less often than large blocks.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    block: usize,
    /// Milliseconds between two blocks.
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    interval: u64,
    /// Send blocks again, at most N times, if members lack them.
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: u32,
}

impl SendImage {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let image = std::fs::read(&self.file)
            .map_err(|error| Failure::usage(format!("--file: {} cannot be read: {error}", self.file.display())))?;
        let mut transfer = ImageTransfer::new(&image, self.block).map_err(Failure::usage)?;
        let (membership, uri) = self.sender.open()?;
        let expected = membership.expected();
        runtime()?.block_on(self.send(out, &membership, &uri, (&mut transfer, &expected)))?;
        if transfer.members().is_empty() {
            out.failure(&self.sender.silence_of(&membership));
        }
        Ok(summarize(out, &transfer, &expected))
    }

    /// Sends blocks and asks the members which blocks they lack. Repeats this until all members have the image, until
    /// no member gets further blocks, or until all rounds are used.
    async fn send(
        &self,
        out: Output,
        membership: &Membership,
        uri: &Uri,
        (transfer, expected): (&mut ImageTransfer<'_>, &[IpAddr]),
    ) -> Result<(), Failure> {
        self.sender.catch_up(membership).await?;
        for round in 0..=self.rounds {
            let (id, digest) = (transfer.id(), *transfer.digest());
            let show = |member: IpAddr, report: &ImageReport| {
                let (text, object) = (text_of(report, &digest), object_of(member, report, &digest));
                out.line(|| format!("{member}  {text}"), || object);
            };
            let asked = ask_for_image(membership, uri, transfer, self.sender.wait(), show).await;
            let asked = asked.map_err(Failure::request)?;
            let is_missing = !missing(transfer, expected).is_empty() || !asked.challenged.is_empty();
            if transfer.advance(is_missing) != Advance::Again || round == self.rounds {
                break;
            }
            if asked.responded.is_empty() || !asked.missing.is_empty() {
                // Perhaps the group has another epoch by now.
                self.sender.catch_up(membership).await?;
            }
            let blocks = transfer.blocks().count();
            if blocks == 0 {
                continue;
            }
            out.line(
                || format!("round {}: {blocks} blocks of {} bytes", round + 1, self.block),
                || json!({ "event": "round", "round": round + 1, "image": id.to_string(), "blocks": blocks, "block": self.block }),
            );
            let bar = progress(out, blocks);
            let interval = Duration::from_millis(self.interval);
            send_image(membership, uri, transfer, interval, || bar.inc(1)).await.map_err(Failure::request)?;
            bar.finish_and_clear();
        }
        Ok(())
    }
}

/// Returns the expected members that have not answered yet.
fn missing(transfer: &ImageTransfer<'_>, expected: &[IpAddr]) -> Vec<IpAddr> {
    expected.iter().copied().filter(|member| !transfer.members().contains_key(member)).collect()
}

fn progress(out: Output, blocks: usize) -> ProgressBar {
    if out.json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(blocks as u64);
    match ProgressStyle::with_template("{wide_bar} {pos}/{len} blocks, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Returns the number of bytes that a member lacks. `gaps` are the ranges of missing units in the report of the member.
/// Each unit counts as [`UNIT`] bytes, although the last unit of an image may be shorter.
fn lacks(gaps: &[std::ops::Range<u32>]) -> u64 {
    gaps.iter().map(|gap| u64::from(gap.end - gap.start) * u64::from(UNIT)).sum()
}

fn text_of(report: &ImageReport, digest: &[u8; 32]) -> String {
    match report {
        ImageReport::Complete(theirs) if theirs == digest => "has the image".to_owned(),
        ImageReport::Complete(theirs) => format!("has another image, with the digest {}", to_hex(theirs)),
        ImageReport::Lacks(gaps) if gaps.is_empty() => "has all blocks, and verifies them".to_owned(),
        ImageReport::Lacks(gaps) => format!("lacks {} bytes or more, in {} places", lacks(gaps), gaps.len()),
        ImageReport::Busy(other) => {
            format!(
                "receives another image ({}), and takes this one if that gets no new block for a minute",
                to_hex(other)
            )
        }
        ImageReport::TooLarge(max) => format!("takes no image of more than {max} bytes (serve --image-max)"),
    }
}

fn object_of(member: IpAddr, report: &ImageReport, digest: &[u8; 32]) -> Value {
    let (state, detail) = match report {
        ImageReport::Complete(theirs) if theirs == digest => ("complete", Value::Null),
        ImageReport::Complete(theirs) => ("other", json!(to_hex(theirs))),
        ImageReport::Lacks(gaps) if gaps.is_empty() => ("verifies", Value::Null),
        ImageReport::Lacks(gaps) => ("lacks", json!(lacks(gaps))),
        ImageReport::Busy(other) => ("busy", json!(to_hex(other))),
        ImageReport::TooLarge(max) => ("too-large", json!(max)),
    };
    json!({ "event": "member", "from": member, "state": state, "detail": detail })
}

/// Prints the members that have the image, and the members that do not.
fn summarize(out: Output, transfer: &ImageTransfer<'_>, expected: &[IpAddr]) -> ExitCode {
    let (complete, incomplete): (BTreeSet<_>, BTreeSet<_>) = transfer
        .members()
        .keys()
        .partition(|member| transfer.members().get(*member).is_some_and(|report| transfer.is_complete(report)));
    let missing: BTreeSet<_> = missing(transfer, expected).into_iter().collect();
    let names = |what: &str, all: &BTreeSet<IpAddr>| match all.len() {
        0 => String::new(),
        _ => format!("; {what}: {}", all.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")),
    };
    out.line(
        || {
            let (incomplete, missing) = (names("do not have it", &incomplete), names("missing", &missing));
            format!("{} members have the image {}{incomplete}{missing}", complete.len(), transfer.id())
        },
        || {
            json!({
                "event": "sent", "image": transfer.id().to_string(), "sha256": to_hex(transfer.digest()),
                "complete": complete, "incomplete": incomplete, "missing": missing,
            })
        },
    );
    let is_done = !complete.is_empty() && incomplete.is_empty() && missing.is_empty();
    if is_done { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
