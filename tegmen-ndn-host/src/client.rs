//! A client of a forwarder: a consumer and a producer.

use crate::management::bytes_of;
use crate::reassembly::Reassembly;
use crate::stream::Framed;
use crate::uri::FaceUri;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tegmen_base::buf::{Frame, Writer};
use tegmen_base::crypto::{Crypto as _, RustCrypto};
use tegmen_ndn::lp::{LpPacket, MAX_FIELDS, NackReason};
use tegmen_ndn::signature::{DigestSha256, KeyLocator, SignatureInfo, Signer};
use tegmen_ndn::tlv::{self, Type};
use tegmen_ndn::{Data, Interest, MAX_HEAD, MAX_PACKET, Name, ReceivedData, ReceivedInterest, WriteError, write_uri};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket, UnixStream};
use tokio::time::Instant;

/// The reason why an operation of a client failed.
#[derive(Debug)]
pub enum ClientError {
    /// The forwarder cannot be reached.
    NotConnected(FaceUri, io::Error),
    /// The forwarder ended the connection.
    Closed,
    /// No Data packet arrived within the time limit.
    TimedOut,
    /// The forwarder refused the Interest.
    Nack(NackReason),
    /// The packet cannot be encoded.
    Write(WriteError),
    /// The content is too long for encryption. The value is the length of the content in bytes.
    TooLong(usize),
    /// The forwarder refused to register a prefix. The values are the status code and the text of its answer.
    Refused(u64, String),
    /// The answer of the forwarder cannot be parsed.
    NotUnderstood,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected(to, error) => {
                write!(
                    f,
                    "no forwarder at {to} ({error}): start one with `tegmen ndn forward`, or name another by --face"
                )
            }
            Self::Closed => f.write_str("the forwarder ended the connection"),
            Self::TimedOut => f.write_str("no Data packet arrived in time"),
            Self::Nack(NackReason::NO_ROUTE) => {
                f.write_str("the forwarder has no route for the name: no producer registered it")
            }
            Self::Nack(NackReason::CONGESTION) => f.write_str("the forwarder is overloaded: try again later"),
            Self::Nack(NackReason::DUPLICATE) => f.write_str("the Interest looped"),
            Self::Nack(NackReason(reason)) => write!(f, "the forwarder refused the Interest for reason {reason}"),
            Self::Write(error) => write!(f, "{error}"),
            Self::TooLong(len) => {
                write!(
                    f,
                    "an encrypted object has at most {} bytes, and this one has {len}: divide it into several objects",
                    u16::MAX
                )
            }
            Self::Refused(code, text) => write!(f, "the forwarder refused to register the prefix: {code} {text}"),
            Self::NotUnderstood => f.write_str("the answer of the forwarder is not understood"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<WriteError> for ClientError {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

/// A connection to a forwarder.
enum Connection {
    Stream(Framed<Pin<Box<dyn AsyncRead + Send>>>, Pin<Box<dyn AsyncWrite + Send>>),
    Udp(UdpSocket, Box<[u8]>),
}

/// A packet that a client received.
#[derive(Clone, Debug)]
pub enum Received {
    /// An Interest, for a producer.
    Interest(Vec<u8>),
    /// A Data packet.
    Data(Vec<u8>),
    /// A Nack: an Interest of this client that the forwarder does not answer with Data, and the reason.
    Nack(Vec<u8>, NackReason),
}

/// A consumer and a producer, connected to one forwarder.
pub struct Client {
    connection: Connection,
    crypto: RustCrypto,
    /// The time of the last command, in milliseconds since 1970. The time of each command is later than that of the
    /// previous command.
    last_command: u64,
    reassembly: Reassembly,
    begun: Instant,
}

impl Client {
    /// Connects to a forwarder.
    ///
    /// # Errors
    /// [`ClientError::NotConnected`].
    pub async fn connect(to: &FaceUri) -> Result<Self, ClientError> {
        let refused = |error| ClientError::NotConnected(to.clone(), error);
        let connection = match to {
            FaceUri::Unix(path) => {
                let (reader, writer) = UnixStream::connect(path).await.map_err(refused)?.into_split();
                Connection::Stream(Framed::new(Box::pin(reader)), Box::pin(writer))
            }
            FaceUri::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(refused)?;
                stream.set_nodelay(true).map_err(refused)?;
                let (reader, writer) = stream.into_split();
                Connection::Stream(Framed::new(Box::pin(reader)), Box::pin(writer))
            }
            FaceUri::Udp(address) => {
                let any: std::net::SocketAddr = if address.is_ipv4() {
                    (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
                } else {
                    (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
                };
                let socket = UdpSocket::bind(any).await.map_err(refused)?;
                socket.connect(address).await.map_err(refused)?;
                Connection::Udp(socket, vec![0; MAX_PACKET + MAX_FIELDS].into())
            }
        };
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| refused(io::Error::other(error.to_string())))?;
        Ok(Self {
            connection,
            crypto: RustCrypto::new(seed),
            last_command: 0,
            reassembly: Reassembly::default(),
            begun: Instant::now(),
        })
    }

    /// Returns true if the connection to the forwarder is over TCP or a Unix socket.
    pub const fn is_stream(&self) -> bool {
        matches!(self.connection, Connection::Stream(..))
    }

    /// Returns a new random Nonce.
    pub fn nonce(&mut self) -> [u8; 4] {
        let mut nonce = [0; 4];
        self.crypto.random(&mut nonce);
        nonce
    }

    /// Returns the crypto provider of the client.
    pub const fn crypto(&mut self) -> &mut RustCrypto {
        &mut self.crypto
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// [`ClientError::Closed`].
    pub async fn send(&mut self, packet: &[u8]) -> Result<(), ClientError> {
        let sent = match &mut self.connection {
            Connection::Stream(_, writer) => writer.write_all(packet).await.map(drop),
            Connection::Udp(socket, _) => socket.send(packet).await.map(drop),
        };
        sent.map_err(|_| ClientError::Closed)
    }

    /// Receives the next packet.
    ///
    /// # Errors
    /// [`ClientError::Closed`].
    pub async fn receive(&mut self) -> Result<Received, ClientError> {
        loop {
            let bytes: &[u8] = match &mut self.connection {
                Connection::Stream(framed, _) => framed.next().await.ok_or(ClientError::Closed)?,
                Connection::Udp(socket, buffer) => {
                    let len = socket.recv(buffer).await.map_err(|_| ClientError::Closed)?;
                    buffer.get(..len).unwrap_or(&[])
                }
            };
            let Ok(packet) = LpPacket::parse(bytes) else { continue };
            let Some(fragment) = packet.fragment else { continue };
            let whole = match packet.part {
                None => fragment.to_vec(),
                Some(part) => {
                    let now = tegmen_base::time::Instant::from_micros(self.begun.elapsed().as_micros() as u64);
                    let Some(whole) = self.reassembly.add(now, part, fragment) else { continue };
                    whole
                }
            };
            match (whole.first(), packet.nack) {
                (Some(5), Some(reason)) => return Ok(Received::Nack(whole, reason)),
                (Some(5), None) => return Ok(Received::Interest(whole)),
                (Some(6), None) => return Ok(Received::Data(whole)),
                _ => {}
            }
        }
    }

    /// Sends an Interest up to three times. After each transmission, waits up to `within` for an answer. Returns the
    /// Data packet that answers the Interest. While this function waits, it drops all other packets that arrive.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn ask(&mut self, interest: &Interest<'_>, within: Duration) -> Result<Vec<u8>, ClientError> {
        const TRIES: u32 = 3;
        let lifetime = Some(within.as_millis().clamp(1, 60_000) as u64);
        for _ in 0..TRIES {
            let interest = Interest { nonce: Some(self.nonce()), lifetime, ..*interest };
            let packet = interest_bytes(&interest)?;
            self.send(&packet).await?;
            let end = Instant::now() + within;
            loop {
                match tokio::time::timeout_at(end, self.receive()).await {
                    Err(_) => break,
                    Ok(Err(error)) => return Err(error),
                    Ok(Ok(Received::Data(data))) if answers(&packet, &data) => return Ok(data),
                    Ok(Ok(Received::Nack(asked, reason))) if asked == packet => return Err(ClientError::Nack(reason)),
                    Ok(Ok(_)) => {}
                }
            }
        }
        Err(ClientError::TimedOut)
    }

    /// Registers a prefix at the forwarder. The forwarder then sends Interests with this prefix to this client. While
    /// this function waits, it drops the Interests that arrive.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn register(&mut self, prefix: &Name<'_>) -> Result<(), ClientError> {
        let parameters = bytes_of(prefix.as_bytes().len() + 40, |out| {
            tlv::write_head(out, Type(0x68), tlv::element_len(Type::NAME, prefix.as_bytes().len()))?;
            prefix.write(out)
        });
        let name = bytes_of(parameters.len() + 100, |out| {
            write_uri("/localhost/nfd/rib/register", out).map_err(|_| tegmen_base::buf::Full)?;
            tlv::write(out, Type::GENERIC, &parameters)
        });
        // Commands of one millisecond would be taken for copies.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        self.last_command = now.max(self.last_command + 1);
        let command_nonce = [self.nonce(), self.nonce()].concat();
        let interest = Interest {
            name: Name::of_checked(&name),
            must_be_fresh: true,
            nonce: Some(self.nonce()),
            lifetime: Some(4000),
            ..Interest::default()
        };
        let signer: &dyn Signer<RustCrypto> = &DigestSha256;
        let info = SignatureInfo { nonce: Some(&command_nonce), time: Some(self.last_command), ..signer.info() };
        let mut storage = vec![0; name.len() + 300];
        let mut frame = Frame::new(&mut storage, MAX_HEAD);
        interest.write_signed(&mut self.crypto, signer, &info, &mut frame)?;
        let packet = frame.bytes().to_vec();
        self.send(&packet).await?;
        let end = Instant::now() + Duration::from_secs(4);
        loop {
            match tokio::time::timeout_at(end, self.receive()).await.map_err(|_| ClientError::TimedOut)?? {
                Received::Data(data) if answers(&packet, &data) => return check_response(&data),
                Received::Nack(asked, reason) if asked == packet => return Err(ClientError::Nack(reason)),
                _ => {}
            }
        }
    }

    /// Signs a Data packet.
    ///
    /// # Errors
    /// [`ClientError::Write`].
    pub fn sign(
        &mut self,
        data: &Data<'_>,
        signer: &(impl Signer<RustCrypto> + ?Sized),
    ) -> Result<Vec<u8>, ClientError> {
        let locator = match signer.info().key {
            Some(KeyLocator::Name(name)) => name.as_bytes().len(),
            _ => 0,
        };
        let len = data.name.as_bytes().len() + data.content.map_or(0, <[u8]>::len) + locator + 600;
        let mut storage = vec![0; len];
        let mut frame = Frame::new(&mut storage, MAX_HEAD);
        data.write(&mut self.crypto, signer, &mut frame)?;
        Ok(frame.bytes().to_vec())
    }
}

/// Encodes an Interest.
///
/// # Errors
/// [`ClientError::Write`].
pub fn interest_bytes(interest: &Interest<'_>) -> Result<Vec<u8>, ClientError> {
    let hint = interest.hint.map_or(0, |hint| hint.as_bytes().len());
    let len = interest.name.as_bytes().len() + interest.parameters.map_or(0, <[u8]>::len) + hint + 200;
    let mut storage = vec![0; len];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    interest.write::<RustCrypto>(&mut frame)?;
    Ok(frame.bytes().to_vec())
}

/// Returns true if a Data packet answers an Interest. Both are given as encoded packets.
fn answers(interest: &[u8], data: &[u8]) -> bool {
    let (Ok(asked), Ok(data)) = (ReceivedInterest::parse(interest), ReceivedData::parse(data)) else { return false };
    let digest = data.implicit_digest::<RustCrypto>();
    tegmen_ndn::tables::answers(&asked.interest.name, asked.interest.can_be_prefix, &data.data.name, Some(&digest))
}

/// Returns an error unless the ControlResponse in a Data packet has the status code 200.
fn check_response(data: &[u8]) -> Result<(), ClientError> {
    let understood = || {
        let data = ReceivedData::parse(data).ok()?;
        let value = tlv::only(data.data.content?, Type(0x65)).ok()?;
        let fields: HashMap<u32, &[u8]> =
            tlv::Elements::of(value).map_while(Result::ok).map(|element| (element.kind.0, element.value)).collect();
        let code = tlv::integer(fields.get(&0x66)?, Type(0x66)).ok()?;
        let text = fields.get(&0x67).map(|text| String::from_utf8_lossy(text).into_owned());
        Some((code, text.unwrap_or_default()))
    };
    match understood() {
        Some((200, _)) => Ok(()),
        Some((code, text)) => Err(ClientError::Refused(code, text)),
        None => Err(ClientError::NotUnderstood),
    }
}

/// Parses the text form of a name, such as `/kitchen/temp`. Returns the value of the Name element.
///
/// # Errors
/// [`UriError`](tegmen_ndn::UriError).
pub fn name_bytes(text: &str) -> Result<Vec<u8>, tegmen_ndn::UriError> {
    let mut bytes = vec![0; text.len() * 5 + 100];
    let mut out = Writer::new(&mut bytes);
    write_uri(text, &mut out)?;
    let len = out.len();
    bytes.truncate(len);
    Ok(bytes)
}
