//! Objects with a version, which consist of segments. A metadata packet contains the name of the newest version (the
//! protocol RDR).
//!
//! The segments of `/file` are `/file/v=VERSION/seg=0` and so on. A consumer that does not know the version requests
//! `/file/32=metadata`.
//!
//! The segments of an encrypted object are `/file/32=key/IDENTITY/v=VERSION/seg=0` and so on. IDENTITY is the identity
//! of the key. The content of all segments together is the ciphertext and its tag, and the nonce is derived from the
//! name without the segment.

use crate::client::{Client, ClientError, Received, interest_bytes, name_bytes};
use crate::management::bytes_of;
use crate::trust::{Trust, TrustError};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tegmen_base::buf::Writer;
use tegmen_base::crypto::{NotAuthentic, RustCrypto};
use tegmen_ndn::publisher::{ContentKey, PublishError, Publisher, TAG_LEN};
use tegmen_ndn::signature::Signer;
use tegmen_ndn::tlv::{self, Type};
use tegmen_ndn::{Component, ContentType, Data, Interest, Name, ReceivedData, ReceivedInterest, WriteError};
use tokio::time::Instant;

/// Maximum number of content bytes in a segment.
pub const SEGMENT: usize = 8_000;

/// Maximum number of content bytes of an encrypted object: with a nonce of 13 bytes, AES-CCM cannot encrypt a longer
/// message (RFC 3610, section 2.1).
pub const MAX_ENCRYPTED: usize = u16::MAX as usize;

/// The keyword component before the identity of the key in the name of an encrypted object.
const KEY: &[u8] = b"key";
/// Maximum number of bytes of a component whose value is a number.
const MAX_NUMBER: usize = 16;

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
    let component = bytes_of(MAX_NUMBER, |out| tlv::write_integer(out, kind, number));
    [prefix, &component].concat()
}

/// Returns the name of an encrypted object without its version.
fn key_prefix(prefix: &Name<'_>, identity: &[u8]) -> Vec<u8> {
    let components = bytes_of(identity.len() + KEY.len() + MAX_NUMBER, |out| {
        Component { kind: Type::KEYWORD, value: KEY }.write(out)?;
        Component::generic(identity).write(out)
    });
    [prefix.as_bytes(), &components].concat()
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
        let versioned = numbered(prefix.as_bytes(), Type::VERSION, version);
        Self::of_version(client, prefix, (versioned, version), content, freshness, signer)
    }

    /// Makes an object with encrypted content. `key` is the key, with the identity by which consumers request it.
    ///
    /// Two objects with the same prefix and version that are encrypted under the same key have the same nonce. So a
    /// producer must use a new key with a new identity each time it starts. Then the producer need not store versions.
    ///
    /// # Errors
    /// [`ClientError::TooLong`] for more than [`MAX_ENCRYPTED`] bytes of content, or [`ClientError::Write`].
    pub fn encrypted(
        client: &mut Client,
        prefix: &Name<'_>,
        (identity, key): (&[u8], ContentKey),
        version: u64,
        content: &[u8],
        freshness: u64,
        signer: &(impl Signer<RustCrypto> + ?Sized),
    ) -> Result<Self, ClientError> {
        if content.len() > MAX_ENCRYPTED {
            return Err(ClientError::TooLong(content.len()));
        }
        let of_key = key_prefix(prefix, identity);
        let (mut name, mut sealed) = (vec![0; of_key.len() + MAX_NUMBER], vec![0; content.len() + TAG_LEN]);
        let (mut name, mut sealed) = (Writer::new(&mut name), Writer::new(&mut sealed));
        let mut publisher = Publisher::resume(key, version);
        publisher.extend(version.saturating_add(1));
        let written = sealed
            .put(content)
            .map_err(PublishError::from)
            .and_then(|()| publisher.publish(client.crypto(), &Name::of_checked(&of_key), &mut name, &mut sealed));
        written.map_err(|error| match error {
            PublishError::Unsupported => WriteError::Unsupported,
            PublishError::NoVersion | PublishError::Full => WriteError::Full,
        })?;
        let versioned = (name.written().to_vec(), version);
        Self::of_version(client, prefix, versioned, sealed.written(), freshness, signer)
    }

    /// Makes an object from its name with the version, and from its content.
    fn of_version(
        client: &mut Client,
        prefix: &Name<'_>,
        (versioned, version): (Vec<u8>, u64),
        content: &[u8],
        freshness: u64,
        signer: &(impl Signer<RustCrypto> + ?Sized),
    ) -> Result<Self, ClientError> {
        let prefix = prefix.as_bytes().to_vec();
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

impl Fetched {
    /// Returns the name of the object without key and version, and the identity of the key with which the content is
    /// encrypted. Returns `None` if the name has no identity of a key.
    pub fn key(&self) -> Option<(Name<'_>, &[u8])> {
        let name = Name::of_checked(&self.name);
        let len = name.len().checked_sub(3)?;
        let mut last = name.components().skip(len);
        let (keyword, identity, version) = (last.next()?, last.next()?, last.next()?);
        let is_encrypted = keyword == Component { kind: Type::KEYWORD, value: KEY }
            && identity == Component::generic(identity.value)
            && version.kind == Type::VERSION;
        is_encrypted.then(|| (name.prefix(len), identity.value))
    }

    /// Decrypts the content.
    ///
    /// # Errors
    /// [`NotAuthentic`] if the content was not encrypted with this key under this name. The content cannot be used
    /// after this error.
    pub fn decrypt(&mut self, key: &ContentKey) -> Result<(), NotAuthentic> {
        let mut crypto = RustCrypto::new([0; 32]);
        let len = key.open(&mut crypto, &Name::of_checked(&self.name), &mut self.content)?;
        self.content.truncate(len);
        Ok(())
    }
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
