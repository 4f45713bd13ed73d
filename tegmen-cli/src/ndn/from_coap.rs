//! `tegmen ndn from-coap`: publishes the resources of a CoAP server as named objects.

use super::produce::{certificate_for, microseconds, register_keys};
use super::sign::PacketSigner;
use super::{At, failure, name_of, pem};
use crate::connect::Connect;
use crate::output::{Failure, Output, runtime};
use crate::serve::ended;
use clap::Args;
use serde_json::json;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber};
use tegmen_host::client::{Response, Session};
use tegmen_host::uri::{Uri, encoded_path};
use tegmen_ndn::tables::answers;
use tegmen_ndn::tlv::Type;
use tegmen_ndn::{Component, Data, Name, ReceivedData, ReceivedInterest};
use tegmen_ndn_host::client::{Client, Received};
use tegmen_ndn_host::object::{Object, SEGMENT};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Maximum number of objects whose segments are kept. `OBJECT_BYTES` is the maximum number of bytes of the contents of
/// these objects together. The newest object is always kept, even if its content is longer than `OBJECT_BYTES`.
const OBJECTS: usize = 64;
const OBJECT_BYTES: usize = 64 << 20;

/// Maximum number of requests that wait for the CoAP server at a time. Further Interests are dropped, and their
/// consumers send them again.
const REQUESTS: usize = 64;

#[derive(Args)]
#[command(after_help = "Example:\n  \
    tegmen ndn from-coap /house coap://sensor.local/sensors --key-pair keys/bridge\n  \
    tegmen ndn get /house/temp        # the content of coap://sensor.local/sensors/temp\n\n\
    The protection of the CoAP resource ends here: consumers trust this bridge, whose key signs. A resource whose content is a Data\n\
    packet with the name that was asked for keeps its signature: the packet is passed on as it is.")]
pub(super) struct FromCoap {
    /// The prefix of the names of the objects.
    prefix: String,
    /// The URI of the resources: coap://HOST[/PATH] or coaps://HOST[/PATH]. The components of a name after the prefix
    /// are appended to this URI.
    uri: String,
    #[command(flatten)]
    at: At,
    /// Sign with this key pair of `tegmen ndn key`. Without a key pair, packets carry a digest, which proves no
    /// origin.
    #[arg(long, value_name = "FOLDER/NAME")]
    key_pair: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
}

/// An Interest, and the response of the CoAP server to the request for this Interest. If there is no response, the
/// second value is the text of the error.
type Answered = (Vec<u8>, Result<Response, String>);

impl FromCoap {
    pub(super) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let prefix = name_of(&self.prefix)?;
        let uri = Uri::parse(&self.uri).map_err(|error| Failure::usage(format!("{}: {error}", self.uri)))?;
        self.connect.check(&uri)?;
        let config = self.connect.config(&uri)?;
        let signer = PacketSigner(self.key_pair.as_deref().map(pem::Pair::read).transpose()?);
        runtime()?.block_on(async {
            let session = Session::connect(&uri, config).await.map_err(Failure::request)?;
            let mut client = self.at.connect().await?;
            let prefix = Name::of_checked(&prefix);
            client.register(&prefix).await.map_err(failure)?;
            register_keys(&mut client, &signer).await?;
            out.line(
                || format!("{prefix} is registered: names below it are paths of {}", self.uri),
                || json!({ "event": "registered", "prefix": prefix.to_string(), "uri": self.uri }),
            );
            let base = uri.path.iter().map(|segment| segment_of(segment)).collect();
            let mut bridge = Bridge { prefix, base, client, signer, objects: VecDeque::new() };
            tokio::select! {
                served = bridge.serve(session) => served?,
                () = ended() => {}
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

struct Bridge<'b> {
    prefix: Name<'b>,
    base: String,
    client: Client,
    signer: PacketSigner,
    /// The kept objects, each with the number of bytes of its content. The newest object is the first.
    objects: VecDeque<(Object, usize)>,
}

impl Bridge<'_> {
    /// Answers Interests until the forwarder ends the connection.
    async fn serve(&mut self, session: Session) -> Result<(), Failure> {
        let (answered, mut answers) = mpsc::channel::<Answered>(REQUESTS);
        let mut requests = JoinSet::new();
        loop {
            tokio::select! {
                received = self.client.receive() => {
                    let Received::Interest(packet) = received.map_err(failure)? else { continue };
                    let Some(path) = self.answer_or_path(&packet).await? else { continue };
                    while requests.try_join_next().is_some() {}
                    if requests.len() < REQUESTS {
                        let (session, answered) = (session.clone(), answered.clone());
                        requests.spawn(async move {
                            let response = session.get(&path).await.map_err(|error| error.to_string());
                            let _ = answered.send((packet, response)).await;
                        });
                    }
                }
                Some((packet, response)) = answers.recv() => match response {
                    Ok(response) if response.code == Code::CONTENT => self.publish(&packet, &response).await?,
                    Ok(response) => tracing::info!(code = %response.code, "the server refuses a request"),
                    Err(error) => tracing::warn!(error, "the server does not answer"),
                }
            }
        }
    }

    /// Answers an Interest for a kept object, and returns `None`. For any other Interest, returns the path of its
    /// resource.
    async fn answer_or_path(&mut self, packet: &[u8]) -> Result<Option<String>, Failure> {
        let Ok(received) = ReceivedInterest::parse(packet) else { return Ok(None) };
        let interest = &received.interest;
        let kept = |(object, _): &(Object, usize)| object.answer(interest).map(<[u8]>::to_vec);
        let answer = match certificate_for(&self.signer, interest) {
            Some(certificate) => Some(certificate.to_vec()),
            // A version is that of an object; what is asked for without one is fetched again.
            None if has_version(&interest.name) => self.objects.iter().find_map(kept),
            None => return Ok(path_of(&self.prefix, &self.base, &interest.name)),
        };
        if let Some(answer) = answer {
            self.client.send(&answer).await.map_err(failure)?;
        }
        Ok(None)
    }

    /// Publishes the content of the resource that the Interest names.
    async fn publish(&mut self, packet: &[u8], response: &Response) -> Result<(), Failure> {
        let Ok(received) = ReceivedInterest::parse(packet) else { return Ok(()) };
        let interest = &received.interest;
        if let Ok(data) = ReceivedData::parse(&response.payload)
            && answers(&interest.name, interest.can_be_prefix, &data.data.name, None)
        {
            return self.client.send(&response.payload).await.map_err(failure);
        }
        let max_age = Duration::from_secs(response.uint(OptionNumber::MAX_AGE).unwrap_or(60).into());
        let freshness = max_age.as_millis() as u64;
        let is_exact = !interest.can_be_prefix && object_name(&interest.name) == interest.name;
        if is_exact && response.payload.len() <= SEGMENT {
            let content = Some(response.payload.as_slice());
            let data = Data { name: interest.name, freshness: Some(freshness), content, ..Data::default() };
            let packet = self.client.sign(&data, &self.signer).map_err(failure)?;
            return self.client.send(&packet).await.map_err(failure);
        }
        let (name, version) = (object_name(&interest.name), microseconds());
        let object = Object::new(&mut self.client, &name, version, &response.payload, freshness, &self.signer);
        let object = object.map_err(failure)?;
        if let Some(answer) = object.answer(interest) {
            self.client.send(answer).await.map_err(failure)?;
        }
        self.objects.push_front((object, response.payload.len()));
        let mut bytes = 0usize;
        let fits = self.objects.iter().take(OBJECTS).take_while(|(_, len)| {
            bytes = bytes.saturating_add(*len);
            bytes <= OBJECT_BYTES
        });
        let count = fits.count().max(1);
        self.objects.truncate(count);
        Ok(())
    }
}

/// Returns the generic components at the beginning of a name. The first component that is not generic is a version, a
/// segment number or the keyword of metadata.
fn object_name<'n>(name: &Name<'n>) -> Name<'n> {
    name.prefix(name.components().take_while(|component| component.kind == Type::GENERIC).count())
}

/// Returns true if the name has a version.
fn has_version(name: &Name<'_>) -> bool {
    name.components().any(|component| component.kind == Type::VERSION)
}

/// Returns the path and the query of the resource that a name denotes. Returns `None` if a component of the name is not
/// text.
fn path_of(prefix: &Name<'_>, base: &str, name: &Name<'_>) -> Option<String> {
    let rest = Name::of_checked(object_name(name).as_bytes().strip_prefix(prefix.as_bytes())?);
    let mut path = base.to_owned();
    for Component { value, .. } in rest.components() {
        path.push_str(&segment_of(std::str::from_utf8(value).ok()?));
    }
    Some(if path.is_empty() { "/".to_owned() } else { path })
}

fn segment_of(segment: &str) -> String {
    format!("/{}", encoded_path(segment).replace('/', "%2F"))
}
