//! `tegmen ndn get` and `tegmen ndn ping`: consumers.

use super::content_key::Decryption;
use super::sign::Trusted;
use super::{At, failure, name_of};
use crate::output::{Failure, Output, runtime};
use clap::Args;
use serde_json::json;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tegmen_base::crypto::RustCrypto;
use tegmen_ndn::signature::{DigestSha256, SignatureType};
use tegmen_ndn::tlv::{self, Type};
use tegmen_ndn::{Component, Interest, Name, ReceivedData};
use tegmen_ndn_host::client::{Client, ClientError};
use tegmen_ndn_host::object::{Authenticity, FetchError, Fetched, fetch};
use tegmen_ndn_host::trust::Trust;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tegmen ndn get /house/temp\n  \
    tegmen ndn get /house/temp/v=7 > temp.bin\n  \
    tegmen ndn get /house/temp --packet --prefix --fresh\n  \
    tegmen ndn get /house/temp --anchor keys/house.cert\n  \
    tegmen ndn get /house/temp --access-server coaps://access.example --credentials display.toml\n\n\
    An object has segments and a version. Without a version in the name the command fetches the newest version.\n\
    With --anchor the command also fetches the producer's certificates, and prints only content that they verify.\n\
    With --access-server the command accepts only encrypted objects, and the server gives their keys.\n\
    With --producer it accepts only objects that this producer encrypted.")]
pub(super) struct Get {
    /// The name of the object, such as /house/temp.
    name: String,
    #[command(flatten)]
    at: At,
    /// Fetch one packet instead of an object that consists of segments. An encrypted packet is not decrypted.
    #[arg(long, conflicts_with = "access_server")]
    packet: bool,
    /// Accept a packet whose name begins with the name in the request, and has further components.
    #[arg(long, requires = "packet")]
    prefix: bool,
    /// Accept a packet from a cache only if it is fresh.
    #[arg(long, requires = "packet")]
    fresh: bool,
    /// Milliseconds after which the Interest for a packet is sent again.
    #[arg(long, value_name = "MS", default_value_t = 4000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    lifetime: u64,
    #[command(flatten)]
    trusted: Trusted,
    #[command(flatten)]
    decryption: Decryption,
}

/// The way in which the command verifies packets.
pub(super) enum Verification {
    /// Only the digests of packets are checked, and no signatures.
    Digest,
    Trust(Box<Trust>),
}

impl Verification {
    /// Returns the way in which packets are verified with the given anchors. Without an anchor, returns
    /// [`Self::Digest`].
    pub(super) fn of(trusted: &Trusted) -> Result<Self, Failure> {
        Ok(trusted.trust()?.map_or(Self::Digest, |trust| Self::Trust(Box::new(trust))))
    }
}

impl Authenticity for Verification {
    async fn verify(
        &mut self,
        client: &mut Client,
        packet: &ReceivedData<'_>,
        within: Duration,
    ) -> Result<(), FetchError> {
        match self {
            Self::Digest => is_intact(packet).then_some(()).ok_or(FetchError::NotAuthentic),
            Self::Trust(trust) => Authenticity::verify(trust.as_mut(), client, packet, within).await,
        }
    }
}

impl Get {
    pub(super) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let bytes = name_of(&self.name)?;
        let name = Name::of_checked(&bytes);
        let within = Duration::from_millis(self.lifetime);
        let mut verification = Verification::of(&self.trusted)?;
        let is_verified = matches!(verification, Verification::Trust(_));
        runtime()?.block_on(async {
            let mut client = self.at.connect().await?;
            let fetched = if self.packet {
                let interest =
                    Interest { name, can_be_prefix: self.prefix, must_be_fresh: self.fresh, ..Interest::default() };
                let packet = client.ask(&interest, within).await.map_err(failure)?;
                let received = ReceivedData::parse(&packet).map_err(Failure::new)?;
                verification.verify(&mut client, &received, within).await.map_err(Failure::new)?;
                let content = received.data.content.unwrap_or(&[]).to_vec();
                Fetched { name: received.data.name.as_bytes().to_vec(), content, segments: 1 }
            } else {
                let fetched = fetch(&mut client, &name, within, &mut verification).await.map_err(Failure::new)?;
                self.decryption.decrypted(fetched).await?
            };
            if !is_verified {
                eprintln!("tegmen: only digests are verified, which prove no origin: name a certificate that you trust by --anchor");
            }
            let Fetched { name, content, segments } = fetched;
            if out.json {
                let name = Name::of_checked(&name).to_string();
                let text = String::from_utf8(content);
                let object = match text {
                    Ok(text) => json!({ "name": name, "segments": segments, "origin_verified": is_verified, "content": text }),
                    Err(error) => {
                        let digits = tegmen_base::hex::to_hex(error.as_bytes());
                        json!({ "name": name, "segments": segments, "origin_verified": is_verified, "content_hex": digits })
                    }
                };
                out.line(String::new, || object);
            } else {
                std::io::stdout().write_all(&content).map_err(Failure::io)?;
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Returns false if the packet has a wrong digest in place of a signature. Signatures are not verified.
fn is_intact(received: &ReceivedData<'_>) -> bool {
    received.signed.info.kind != SignatureType::DIGEST_SHA256
        || received.signed.verify(&mut RustCrypto::new([0; 32]), &DigestSha256).is_ok()
}

#[derive(Args)]
#[command(after_help = "Example:\n  tegmen ndn ping /house --count 4")]
pub(super) struct Ping {
    /// The prefix of a producer that answers pings: `tegmen ndn serve --ping`, or `ndnd pingserver`.
    prefix: String,
    #[command(flatten)]
    at: At,
    /// Number of pings.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Milliseconds between pings.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    interval: u64,
    /// Milliseconds after which a ping counts as lost.
    #[arg(long, value_name = "MS", default_value_t = 4000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    lifetime: u64,
}

impl Ping {
    pub(super) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let prefix = name_of(&self.prefix)?;
        let within = Duration::from_millis(self.lifetime);
        runtime()?.block_on(async {
            let mut client = self.at.connect().await?;
            let start = u64::from(u32::from_be_bytes(client.nonce()));
            let (mut times, mut lost) = (Vec::new(), 0u32);
            for number in 0..self.count {
                if number > 0 {
                    tokio::time::sleep(Duration::from_millis(self.interval)).await;
                }
                let name = ping_name(&prefix, start + u64::from(number));
                let interest = Interest { name: Name::of_checked(&name), must_be_fresh: true, ..Interest::default() };
                let begun = Instant::now();
                match client.ask(&interest, within).await {
                    Ok(_) => {
                        let millis = begun.elapsed().as_secs_f64() * 1000.0;
                        times.push(millis);
                        out.line(
                            || format!("{}: {millis:.3} ms", Name::of_checked(&name)),
                            || json!({ "event": "answer", "milliseconds": millis }),
                        );
                    }
                    Err(error @ (ClientError::TimedOut | ClientError::Nack(_))) => {
                        lost += 1;
                        out.line(|| error.to_string(), || json!({ "event": "lost", "reason": error.to_string() }));
                    }
                    Err(error) => return Err(failure(error)),
                }
            }
            let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
            out.line(
                || format!("{} answers, {lost} lost, {mean:.3} ms on average", times.len()),
                || json!({ "event": "ended", "answers": times.len(), "lost": lost, "mean_milliseconds": mean }),
            );
            Ok(if times.is_empty() { ExitCode::from(1) } else { ExitCode::SUCCESS })
        })
    }
}

/// Returns the name of a ping: the prefix, `ping` and a sequence number.
fn ping_name(prefix: &[u8], number: u64) -> Vec<u8> {
    let mut bytes = vec![0; prefix.len() + 40];
    let mut out = tegmen_base::buf::Writer::new(&mut bytes);
    let mut value = [0; 8];
    let number = Component { kind: Type::SEQUENCE, value: tlv::integer_bytes(number, &mut value) };
    let written = out.put(prefix).and_then(|()| Component::generic(b"ping").write(&mut out));
    let written = written.and_then(|()| number.write(&mut out));
    debug_assert!(written.is_ok());
    out.written().to_vec()
}
