//! `tegmen ndn put` and `tegmen ndn serve`: producers.

use super::content_key::{Encryption, Keys};
use super::sign::{PacketSigner, Signing};
use super::{At, failure, name_of};
use crate::output::{Failure, Output, runtime};
use crate::serve::ended;
use clap::Args;
use serde_json::json;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use tegmen_ndn::{Data, Interest, Name, ReceivedData, ReceivedInterest};
use tegmen_ndn_host::client::{Client, Received};
use tegmen_ndn_host::object::Object;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tegmen ndn put /house/plan plan.pdf\n  \
    echo 21.5 | tegmen ndn put /house/temp --key keys/temp\n  \
    echo 21.5 | tegmen ndn put /house/temp --producer oven --protokey oven.protokey\n\n\
    The version is the time in microseconds, unless --version-number gives another one.")]
pub(super) struct Put {
    /// The name of the object, without a version.
    name: String,
    /// The file with the content. Default: the standard input.
    file: Option<PathBuf>,
    #[command(flatten)]
    at: At,
    /// The version of the object. It must be higher than the versions of earlier contents of the name.
    #[arg(long, value_name = "N")]
    version_number: Option<u64>,
    /// Milliseconds for which caches consider a segment fresh.
    #[arg(long, value_name = "MS", default_value_t = 4000)]
    freshness: u64,
    #[command(flatten)]
    signing: Signing,
    #[command(flatten)]
    encryption: Encryption,
}

impl Put {
    pub(super) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let prefix = name_of(&self.name)?;
        let prefix = Name::of_checked(&prefix);
        let content = match &self.file {
            Some(path) => {
                std::fs::read(path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?
            }
            None => {
                let mut content = Vec::new();
                std::io::stdin().read_to_end(&mut content).map_err(Failure::io)?;
                content
            }
        };
        let version = self.version_number.unwrap_or_else(microseconds);
        let signer = self.signing.pair()?;
        runtime()?.block_on(async {
            let mut client = self.at.connect().await?;
            let (freshness, keys) = (self.freshness, self.encryption.keys(&[prefix]).await?);
            let object = match keys.and_then(|Keys { identity, mut keys }| Some((identity, keys.pop()?))) {
                Some((identity, key)) => {
                    let key = (identity.as_bytes(), key);
                    Object::encrypted(&mut client, &prefix, key, version, &content, freshness, &signer)
                }
                None => Object::new(&mut client, &prefix, version, &content, freshness, &signer),
            };
            let object = object.map_err(failure)?;
            client.register(&prefix).await.map_err(failure)?;
            register_keys(&mut client, &signer).await?;
            let name = object.name().to_string();
            out.line(
                || format!("{name} is published: {} bytes in {} segments", content.len(), object.len()),
                || json!({ "event": "published", "name": name, "bytes": content.len(), "segments": object.len() }),
            );
            tokio::select! {
                served = answer_segments(&mut client, &object, &signer) => served?,
                () = ended() => {}
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Registers the names of the keys whose certificates this producer publishes, so that Interests for the certificates
/// reach the producer.
pub(super) async fn register_keys(client: &mut Client, signer: &PacketSigner) -> Result<(), Failure> {
    for prefix in signer.prefixes() {
        client.register(&Name::of_checked(&prefix)).await.map_err(failure)?;
    }
    Ok(())
}

/// Returns the certificate that answers an Interest; `None` if there is none.
pub(super) fn certificate_for<'s>(signer: &'s PacketSigner, interest: &Interest<'_>) -> Option<&'s [u8]> {
    let answers = |packet: &&Vec<u8>| {
        ReceivedData::parse(packet).is_ok_and(|found| {
            tegmen_ndn::tables::answers(&interest.name, interest.can_be_prefix, &found.data.name, None)
        })
    };
    signer.certificates().iter().find(answers).map(Vec::as_slice)
}

/// Answers Interests for an object and for certificates until the forwarder ends the connection.
async fn answer_segments(client: &mut Client, object: &Object, signer: &PacketSigner) -> Result<(), Failure> {
    loop {
        let Received::Interest(packet) = client.receive().await.map_err(failure)? else { continue };
        let Ok(received) = ReceivedInterest::parse(&packet) else { continue };
        let interest = &received.interest;
        if let Some(answer) = certificate_for(signer, interest).or_else(|| object.answer(interest)) {
            client.send(answer).await.map_err(failure)?;
        }
    }
}

pub(super) fn microseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tegmen ndn serve --value /house/temp=21.5 --ping /house --key keys/temp\n  \
    tegmen ndn serve --value /house/temp=21.5 --key keys/temp --producer oven --protokey oven.protokey\n  \
    tegmen ndn serve --value /house/temp=21.5 --producer oven --access-server coaps://access.example --credentials oven.toml\n\n\
    With --key the command also publishes the certificates of the key.\n\
    With --producer each value is an encrypted object.")]
pub(super) struct Serve {
    #[command(flatten)]
    at: At,
    /// Publish a packet with this name and content: NAME=TEXT. May be given several times.
    #[arg(long, value_name = "NAME=TEXT", required_unless_present = "ping")]
    value: Vec<String>,
    /// Answer pings below this prefix. May be given several times.
    #[arg(long, value_name = "PREFIX")]
    ping: Vec<String>,
    /// Milliseconds for which caches consider a value fresh.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    freshness: u64,
    #[command(flatten)]
    signing: Signing,
    #[command(flatten)]
    encryption: Encryption,
}

/// Pairs of a name and the content of its packet.
type Values = Vec<(Vec<u8>, Vec<u8>)>;

/// The contents that `serve` publishes.
struct Served {
    /// The contents in clear.
    values: Values,
    /// The encrypted contents.
    objects: Vec<Object>,
    /// The prefixes of pings.
    pings: Vec<Vec<u8>>,
}

impl Serve {
    pub(super) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let values: Values = self.value.iter().map(|text| value(text)).collect::<Result<_, _>>()?;
        let pings: Vec<Vec<u8>> = self
            .ping
            .iter()
            .map(|text| name_of(&format!("{}/ping", text.trim_end_matches('/'))))
            .collect::<Result<_, _>>()?;
        let signer = self.signing.pair()?;
        runtime()?.block_on(async {
            let mut client = self.at.connect().await?;
            let objects = self.objects(&mut client, &values, &signer).await?;
            register_keys(&mut client, &signer).await?;
            for prefix in values.iter().map(|(name, _)| name).chain(&pings) {
                let prefix = Name::of_checked(prefix);
                client.register(&prefix).await.map_err(failure)?;
                out.line(
                    || format!("{prefix} is registered"),
                    || json!({ "event": "registered", "prefix": prefix.to_string() }),
                );
            }
            let served = match objects {
                Some(objects) => Served { values: Vec::new(), objects, pings },
                None => Served { values, objects: Vec::new(), pings },
            };
            tokio::select! {
                answered = answer(&mut client, &served, self.freshness, &signer) => answered?,
                () = ended() => {}
            }
            Ok(ExitCode::SUCCESS)
        })
    }

    /// Makes an encrypted object of each value. Returns `None` if the options ask for no encryption.
    async fn objects(
        &self,
        client: &mut Client,
        values: &Values,
        signer: &PacketSigner,
    ) -> Result<Option<Vec<Object>>, Failure> {
        let names: Vec<Name<'_>> = values.iter().map(|(name, _)| Name::of_checked(name)).collect();
        let Some(Keys { identity, keys }) = self.encryption.keys(&names).await? else { return Ok(None) };
        let mut objects = Vec::with_capacity(values.len());
        // Two values of one name have the same key, so each value gets its own version, and therefore its own nonce.
        for (((name, (_, content)), key), version) in names.iter().zip(values).zip(keys).zip(microseconds()..) {
            let key = (identity.as_bytes(), key);
            let object = Object::encrypted(client, name, key, version, content, self.freshness, signer);
            objects.push(object.map_err(failure)?);
        }
        Ok(Some(objects))
    }
}

/// Reads NAME=TEXT. The name ends at the last `=`.
fn value(text: &str) -> Result<(Vec<u8>, Vec<u8>), Failure> {
    let refused = || Failure::usage(format!("--value {text}: write NAME=TEXT, as /house/temp=21.5"));
    let (name, value) = text.rsplit_once('=').ok_or_else(refused)?;
    Ok((name_of(name)?, value.as_bytes().to_vec()))
}

/// Answers Interests until the forwarder ends the connection.
async fn answer(
    client: &mut Client,
    Served { values, objects, pings }: &Served,
    freshness: u64,
    signer: &PacketSigner,
) -> Result<(), Failure> {
    loop {
        let Received::Interest(packet) = client.receive().await.map_err(failure)? else { continue };
        let Ok(received) = ReceivedInterest::parse(&packet) else { continue };
        let interest = &received.interest;
        let of_object = || objects.iter().find_map(|object| object.answer(interest));
        if let Some(packet) = certificate_for(signer, interest).or_else(of_object) {
            client.send(packet).await.map_err(failure)?;
            continue;
        }
        let asked = |name: &Name<'_>| tegmen_ndn::tables::answers(&interest.name, interest.can_be_prefix, name, None);
        let found = values.iter().find(|(name, _)| asked(&Name::of_checked(name)));
        let is_ping = pings.iter().any(|prefix| Name::of_checked(prefix).is_prefix_of(&interest.name));
        let (name, content, freshness) = match found {
            Some((name, content)) => (Name::of_checked(name), content.as_slice(), freshness),
            None if is_ping => (interest.name, &b"ping"[..], 0),
            None => continue,
        };
        let data = Data { name, freshness: Some(freshness), content: Some(content), ..Data::default() };
        let packet = client.sign(&data, signer).map_err(failure)?;
        client.send(&packet).await.map_err(failure)?;
    }
}
