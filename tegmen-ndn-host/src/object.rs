//! Objects with a version, which consist of segments. A metadata packet contains the name of the newest version (the
//! protocol RDR).
//!
//! The segments of `/file` are `/file/v=VERSION/seg=0` and so on. A consumer that does not know the version requests
//! `/file/32=metadata`.

use crate::client::{Client, ClientError, Received, interest_bytes, name_bytes};
use crate::management::bytes_of;
use crate::trust::{Trust, TrustError};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tegmen_base::crypto::RustCrypto;
use tegmen_ndn::signature::Signer;
use tegmen_ndn::tlv::{self, Type};
use tegmen_ndn::{Component, ContentType, Data, Interest, Name, ReceivedData, ReceivedInterest};
use tokio::time::Instant;

/// Maximum number of content bytes in a segment.
pub const SEGMENT: usize = 8_000;

/// The milliseconds for which metadata are fresh.
const METADATA_FRESHNESS: u64 = 10;

/// An object. All its segments are signed.
pub struct Object {
    prefix: Vec<u8>,
    /// The name of the object, whose last component is the version. It is the prefix of the names of the segments.
    versioned: Vec<u8>,
    segments: Vec<Vec<u8>>,
    metadata: Vec<u8>,
    metadata_name: Vec<u8>,
}

/// Returns a name with a further component of the type `kind`. The value of this component is `number`.
fn numbered(prefix: &[u8], kind: Type, number: u64) -> Vec<u8> {
    let component = bytes_of(16, |out| tlv::write_integer(out, kind, number));
    [prefix, &component].concat()
}

impl Object {
    /// Makes an object: divides a content into segments, and signs them. `freshness` is the FreshnessPeriod of the
    /// segments in milliseconds.
    ///
    /// # Errors
    /// [`ClientError::Write`].
    pub fn new(
        client: &mut Client,
        prefix: &Name<'_>,
        version: u64,
        content: &[u8],
        freshness: u64,
        signer: &(impl Signer<RustCrypto> + ?Sized),
    ) -> Result<Self, ClientError> {
        let prefix = prefix.as_bytes().to_vec();
        let versioned = numbered(&prefix, Type::VERSION, version);
        let pieces: Vec<&[u8]> = if content.is_empty() { vec![&[]] } else { content.chunks(SEGMENT).collect() };
        let mut bytes = [0; 8];
        let last = tlv::integer_bytes(pieces.len() as u64 - 1, &mut bytes);
        let final_block = Some(Component { kind: Type::SEGMENT, value: last });
        let mut segments = Vec::with_capacity(pieces.len());
        for (number, piece) in pieces.iter().enumerate() {
            let name = numbered(&versioned, Type::SEGMENT, number as u64);
            let name = Name::of_checked(&name);
            let content_type = Some(ContentType::BLOB);
            let data = Data { name, content_type, freshness: Some(freshness), final_block, content: Some(piece) };
            segments.push(client.sign(&data, signer)?);
        }
        let keyword = bytes_of(20, |out| tlv::write(out, Type::KEYWORD, b"metadata"));
        let metadata_prefix = [&prefix[..], &keyword].concat();
        let metadata_name = numbered(&numbered(&metadata_prefix, Type::VERSION, version), Type::SEGMENT, 0);
        let content = bytes_of(versioned.len() + 64, |out| {
            Name::of_checked(&versioned).write(out)?;
            let value = bytes_of(20, |out| tlv::write(out, Type::SEGMENT, last));
            tlv::write(out, Type::FINAL_BLOCK, &value)
        });
        let data = Data {
            name: Name::of_checked(&metadata_name),
            content_type: Some(ContentType::BLOB),
            freshness: Some(METADATA_FRESHNESS),
            final_block: Some(Component { kind: Type::SEGMENT, value: &[0] }),
            content: Some(&content),
        };
        let metadata = client.sign(&data, signer)?;
        Ok(Self { prefix, versioned, segments, metadata, metadata_name })
    }

    /// Returns the name of the object, whose last component is the version.
    pub fn name(&self) -> Name<'_> {
        Name::of_checked(&self.versioned)
    }

    /// Returns the number of segments.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Returns false, because an object has at least one segment.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the packet of this object that answers an Interest; `None` if no packet does.
    pub fn answer(&self, interest: &Interest<'_>) -> Option<&[u8]> {
        let asked = interest.name;
        if !Name::of_checked(&self.prefix).is_prefix_of(&asked) {
            let is_prefix = interest.can_be_prefix && asked.is_prefix_of(&Name::of_checked(&self.versioned));
            return self.segments.first().filter(|_| is_prefix).map(Vec::as_slice);
        }
        let rest = asked.as_bytes().get(self.versioned.len()..);
        if Name::of_checked(&self.versioned).is_prefix_of(&asked)
            && let Some(last) = rest.and_then(|rest| Name::of_checked(rest).last())
        {
            let number = last.number().filter(|_| last.kind == Type::SEGMENT)?;
            let is_whole = numbered(&self.versioned, Type::SEGMENT, number) == asked.as_bytes();
            return self.segments.get(usize::try_from(number).ok()?).filter(|_| is_whole).map(Vec::as_slice);
        }
        let metadata = Name::of_checked(&self.metadata_name);
        if asked == metadata
            || (interest.can_be_prefix
                && asked.len() > Name::of_checked(&self.prefix).len()
                && asked.is_prefix_of(&metadata))
        {
            return Some(&self.metadata);
        }
        let is_prefix = interest.can_be_prefix && asked.is_prefix_of(&Name::of_checked(&self.versioned));
        self.segments.first().filter(|_| is_prefix).map(Vec::as_slice)
    }

    /// Answers Interests until the forwarder ends the connection.
    ///
    /// # Errors
    /// [`ClientError::Closed`].
    pub async fn serve(&self, client: &mut Client) -> Result<(), ClientError> {
        loop {
            let Received::Interest(packet) = client.receive().await? else { continue };
            let Ok(received) = ReceivedInterest::parse(&packet) else { continue };
            if let Some(answer) = self.answer(&received.interest) {
                client.send(answer).await?;
            }
        }
    }
}

/// The reason why an object cannot be fetched.
#[derive(Debug)]
pub enum FetchError {
    /// A packet did not arrive.
    Client(ClientError),
    /// The signature of a packet is wrong.
    NotAuthentic,
    /// The origin of a packet is not proved.
    Trust(TrustError),
    /// The metadata contain no name.
    Metadata,
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => write!(f, "{error}"),
            Self::NotAuthentic => f.write_str("the signature of a packet is wrong, or its key is not known"),
            Self::Trust(error) => write!(f, "{error}"),
            Self::Metadata => f.write_str("the metadata of the object name no version"),
        }
    }
}

impl std::error::Error for FetchError {}

impl From<ClientError> for FetchError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<TrustError> for FetchError {
    fn from(error: TrustError) -> Self {
        Self::Trust(error)
    }
}

/// A verifier, which decides whether the origin of a packet is proved.
pub trait Authenticity {
    /// Verifies a packet. May fetch certificates; `within` is the time limit of one request for a certificate. All
    /// other packets that arrive during a fetch are dropped.
    ///
    /// # Errors
    /// [`FetchError`] if the packet must not be used.
    fn verify(
        &mut self,
        client: &mut Client,
        packet: &ReceivedData<'_>,
        within: Duration,
    ) -> impl Future<Output = Result<(), FetchError>>;
}

impl<F: FnMut(&ReceivedData<'_>) -> bool> Authenticity for F {
    async fn verify(&mut self, _: &mut Client, packet: &ReceivedData<'_>, _: Duration) -> Result<(), FetchError> {
        if self(packet) { Ok(()) } else { Err(FetchError::NotAuthentic) }
    }
}

impl Authenticity for Trust {
    async fn verify(
        &mut self,
        client: &mut Client,
        packet: &ReceivedData<'_>,
        within: Duration,
    ) -> Result<(), FetchError> {
        Ok(self.verify_by(client, packet, within).await?)
    }
}

/// A fetched object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// The value of the Name element of the object, with the version.
    pub name: Vec<u8>,
    /// The content of all segments.
    pub content: Vec<u8>,
    /// The number of segments.
    pub segments: u64,
}

/// Fetches an object. If the name has no version, fetches the newest version. `authenticity` verifies each packet. If
/// no answer to an Interest comes within `within`, the Interest is sent again.
///
/// # Errors
/// [`FetchError`].
pub async fn fetch(
    client: &mut Client,
    name: &Name<'_>,
    within: Duration,
    authenticity: &mut impl Authenticity,
) -> Result<Fetched, FetchError> {
    let is_versioned = name.last().is_some_and(|last| last.kind == Type::VERSION);
    let versioned = match is_versioned {
        true => name.as_bytes().to_vec(),
        false => newest(client, name, within, authenticity).await?,
    };
    let first = segment(client, &versioned, 0, within).await?;
    let received = checked(client, &first, within, authenticity).await?;
    let last = received.data.final_block.and_then(|last| last.number()).unwrap_or(0);
    let mut pieces = BTreeMap::new();
    pieces.insert(0, received.data.content.unwrap_or(&[]).to_vec());
    fetch_rest(client, &versioned, last, within, authenticity, &mut pieces).await?;
    let content = pieces.into_values().flatten().collect();
    Ok(Fetched { name: versioned, content, segments: last + 1 })
}

async fn checked<'p>(
    client: &mut Client,
    packet: &'p [u8],
    within: Duration,
    authenticity: &mut impl Authenticity,
) -> Result<ReceivedData<'p>, FetchError> {
    let received = ReceivedData::parse(packet).map_err(|_| FetchError::NotAuthentic)?;
    authenticity.verify(client, &received, within).await?;
    Ok(received)
}

async fn newest(
    client: &mut Client,
    name: &Name<'_>,
    within: Duration,
    authenticity: &mut impl Authenticity,
) -> Result<Vec<u8>, FetchError> {
    let keyword = name_bytes("/32=metadata").map_err(|_| FetchError::Metadata)?;
    let asked = [name.as_bytes(), &keyword].concat();
    let interest =
        Interest { name: Name::of_checked(&asked), can_be_prefix: true, must_be_fresh: true, ..Interest::default() };
    let packet = client.ask(&interest, within).await?;
    let received = checked(client, &packet, within, authenticity).await?;
    let content = received.data.content.unwrap_or(&[]);
    let element = tlv::Elements::of(content).map_while(Result::ok).find(|element| element.kind == Type::NAME);
    let versioned = element.and_then(|element| Name::parse(element.value).ok()).ok_or(FetchError::Metadata)?;
    // Metadata of another object would replace the one that was asked for.
    if name.is_prefix_of(&versioned) { Ok(versioned.as_bytes().to_vec()) } else { Err(FetchError::Metadata) }
}

async fn segment(client: &mut Client, versioned: &[u8], number: u64, within: Duration) -> Result<Vec<u8>, ClientError> {
    let name = numbered(versioned, Type::SEGMENT, number);
    let interest = Interest { name: Name::of_checked(&name), ..Interest::default() };
    client.ask(&interest, within).await
}

/// Maximum number of segments that are requested at the same time over a stream.
const WINDOW: usize = 64;
/// Maximum number of segments that are requested at the same time over UDP. The socket buffers cannot store more
/// segments.
const WINDOW_OF_DATAGRAMS: usize = 12;
/// Maximum number of requests for a segment.
const TRIES: u32 = 5;

/// A segment that was requested.
struct Asked {
    since: Instant,
    tries: u32,
}

async fn fetch_rest(
    client: &mut Client,
    versioned: &[u8],
    last: u64,
    within: Duration,
    authenticity: &mut impl Authenticity,
    pieces: &mut BTreeMap<u64, Vec<u8>>,
) -> Result<(), FetchError> {
    let mut asked: BTreeMap<u64, Asked> = BTreeMap::new();
    let mut next = 1;
    let window = if client.is_stream() { WINDOW } else { WINDOW_OF_DATAGRAMS };
    while next <= last || !asked.is_empty() {
        while next <= last && asked.len() < window {
            send_segment(client, versioned, next, within).await?;
            asked.insert(next, Asked { since: Instant::now(), tries: 1 });
            next += 1;
        }
        let oldest = asked.values().map(|asked| asked.since).min().unwrap_or_else(Instant::now);
        match tokio::time::timeout_at(oldest + within, client.receive()).await {
            Ok(Ok(Received::Data(packet))) => {
                let received = checked(client, &packet, within, authenticity).await?;
                let name = received.data.name;
                let number = name.last().filter(|last| last.kind == Type::SEGMENT).and_then(|last| last.number());
                let number = number.filter(|number| numbered(versioned, Type::SEGMENT, *number) == name.as_bytes());
                if let Some(number) = number
                    && asked.remove(&number).is_some()
                {
                    pieces.insert(number, received.data.content.unwrap_or(&[]).to_vec());
                }
            }
            Ok(Ok(Received::Nack(_, reason))) => return Err(ClientError::Nack(reason).into()),
            Ok(Ok(Received::Interest(_))) => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => {
                let late = asked.iter_mut().filter(|(_, asked)| asked.since.elapsed() >= within);
                let mut again = Vec::new();
                for (number, asked) in late {
                    if asked.tries >= TRIES {
                        return Err(ClientError::TimedOut.into());
                    }
                    (asked.since, asked.tries) = (Instant::now(), asked.tries + 1);
                    again.push(*number);
                }
                for number in again {
                    send_segment(client, versioned, number, within).await?;
                }
            }
        }
    }
    Ok(())
}

async fn send_segment(client: &mut Client, versioned: &[u8], number: u64, within: Duration) -> Result<(), ClientError> {
    let name = numbered(versioned, Type::SEGMENT, number);
    let nonce = Some(client.nonce());
    let lifetime = Some(within.as_millis().clamp(1, 60_000) as u64);
    let interest = Interest { name: Name::of_checked(&name), nonce, lifetime, ..Interest::default() };
    client.send(&interest_bytes(&interest)?).await
}
