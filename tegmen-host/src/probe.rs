//! Examines a DTLS server from outside: lists each flight of a handshake, the negotiated parameters, and the features
//! that the server lacks.

use crate::client::{ClientConfig, ClientError, ClientKey, Session, Tap, Tapped};
use crate::uri::Uri;
use crate::x509::CertificateInfo;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tegmen::coap::Code;
use tegmen::dtls::{
    CipherSuite, ConnectionIdConfig, ContentType, HandshakeFragment, HandshakeMessage, MessageType, Profile, Records,
};
use zeroize::Zeroizing;

/// The result of a probe.
#[derive(Clone, Debug)]
pub struct Report {
    /// The server's address.
    pub remote: Option<SocketAddr>,
    /// The reason why the handshake did not complete; `None` if it completed.
    pub failure: Option<String>,
    /// True if the probe has no key. A correct server then refuses the Finished message of the probe.
    pub without_key: bool,
    /// Every datagram of the handshake.
    pub datagrams: Vec<Datagram>,
    /// The time from the first ClientHello to the server's Finished.
    pub handshake_time: Duration,
    /// The parameters that the server chose; `None` if the handshake ended before the ServerHello.
    pub choice: Option<Choice>,
    /// The length of the cookie in bytes; `None` if the server asked for none.
    pub cookie_len: Option<usize>,
    /// The PSK identity hint of the server (RFC 4279, section 5.2).
    pub identity_hint: String,
    /// The identity that the server proved with a public key: the subject of its certificate, or the name of its raw
    /// public key.
    pub server: Option<String>,
    /// The certificates that the server showed, its own certificate first.
    pub chain: Vec<CertificateInfo>,
    /// The result of an attempt to resume the session; `None` if the server issued neither a ticket nor a session id.
    pub resumption: Option<Resumption>,
    /// True if the server accepts a client that offers no extensions; `None` if the probe did not try this, or got no
    /// answer.
    pub serves_minimal: Option<bool>,
    /// The round-trip time of a CoAP ping; `None` if there was no answer.
    pub ping: Option<Duration>,
    /// The content of `/.well-known/core`, or the code of the error response; `None` if there was no response.
    pub resources: Option<Result<String, Code>>,
}

/// The result of an attempt to resume a session.
#[derive(Clone, Copy, Debug)]
pub struct Resumption {
    /// The means of resumption: `ticket` or `session id`.
    pub by: &'static str,
    /// True if the server resumed the session. False if it made a full handshake, or no handshake was completed.
    pub taken: bool,
    /// In the second handshake: the number of bytes that the probe sent, and then the number of bytes that the probe
    /// received. Counts only UDP payloads.
    pub bytes: (usize, usize),
    /// Number of datagrams of the second handshake in both directions.
    pub datagrams: usize,
    /// The duration of the second handshake.
    pub time: Duration,
}

/// The choices of a server in its ServerHello.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The version, as the two bytes in the ServerHello.
    pub version: [u8; 2],
    /// The cipher suite.
    pub cipher_suite: CipherSuite,
    /// True if the session is bound to its handshake (RFC 7627).
    pub extended_master_secret: bool,
    /// True if the server has the protection against the renegotiation attack (RFC 5746).
    pub renegotiation_info: bool,
    /// Maximum length in bytes that the server accepts for the content of a record (RFC 8449); `None` if the server
    /// sent no such limit.
    pub record_size_limit: Option<u16>,
    /// Maximum length in bytes of the content of a record in both directions (RFC 6066, section 4); `None` if the
    /// server chose none.
    pub max_fragment_length: Option<u16>,
    /// The length in bytes of the connection id that the server expects in the records that it receives (RFC 9146);
    /// `None` if the server does not support connection ids.
    pub connection_id_len: Option<usize>,
    /// True if the server supports return routability checks (RFC 9853).
    pub return_routability: bool,
}

/// One datagram of the handshake.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// The time since the first datagram.
    pub at: Duration,
    /// True if the probe sent the datagram.
    pub sent: bool,
    /// Length of the UDP payload in bytes.
    pub len: usize,
    /// The handshake messages and records in the datagram.
    pub messages: Vec<String>,
    /// True if the datagram contains only repeated messages.
    pub repeated: bool,
}

impl Report {
    /// Returns the number of bytes of the handshake that the probe sent, and then the number of bytes that the probe
    /// received. Counts only UDP payloads.
    pub fn bytes(&self) -> (usize, usize) {
        bytes(&self.datagrams)
    }

    /// Returns the number of datagrams that the probe retransmitted, and then the number of datagrams that the server
    /// retransmitted.
    pub fn retransmissions(&self) -> (usize, usize) {
        let count = |sent| self.datagrams.iter().filter(|one| one.sent == sent && one.repeated).count();
        (count(true), count(false))
    }

    /// Returns a finding for each feature that the server lacks, with the reason why it matters.
    pub fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        let answered = self.datagrams.iter().any(|one| !one.sent);
        if answered && self.cookie_len.is_none() {
            findings.push(
                "it asks for no cookie (HelloVerifyRequest): forged ClientHellos make it work and answer for others \
                 (RFC 6347, section 4.2.1)"
                    .to_owned(),
            );
        }
        if let Some(choice) = self.choice {
            if !choice.extended_master_secret {
                findings.push(
                    "no extended master secret (RFC 7627): sessions must not be exported or resumed safely".to_owned(),
                );
            }
            if !choice.renegotiation_info {
                findings.push("no renegotiation indication (RFC 5746)".to_owned());
            }
        }
        if self.resumption.is_some_and(|resumption| !resumption.taken) {
            findings.push("it gave something to resume the session with, and did not take it".to_owned());
        }
        if self.serves_minimal == Some(false) {
            findings.push("it refuses clients that offer no extensions, as the smallest motes do".to_owned());
        }
        let amplified = self.amplification();
        if amplified > 3.0 {
            findings.push(format!(
                "its first answer is {amplified:.1} times as long as what it answers: it can be used to flood others"
            ));
        }
        if self.failure.is_none() && self.ping.is_none() {
            findings.push("it does not answer a CoAP ping (RFC 7252, section 4.3): is it a CoAP server?".to_owned());
        }
        findings
    }

    /// Returns the number of bytes of the server's first flight, divided by the number of bytes that the probe sent
    /// before this flight.
    fn amplification(&self) -> f64 {
        let ours: usize = self.datagrams.iter().take_while(|one| one.sent).map(|one| one.len).sum();
        let behind = self.datagrams.iter().skip_while(|one| one.sent);
        let theirs: usize = behind.take_while(|one| !one.sent).map(|one| one.len).sum();
        theirs as f64 / ours.max(1) as f64
    }
}

fn bytes(datagrams: &[Datagram]) -> (usize, usize) {
    let sum = |sent| datagrams.iter().filter(|one| one.sent == sent).map(|one| one.len).sum();
    (sum(true), sum(false))
}

/// A temporary directory for the session that is resumed. Dropping this value removes the directory.
struct Scratch(PathBuf);

impl Scratch {
    /// Makes a new directory for this probe.
    fn new() -> std::io::Result<Self> {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let dir = std::env::temp_dir().join(format!("tegmen-probe-{}-{nanos}", std::process::id()));
        #[cfg_attr(not(unix), expect(unused_mut, reason = "other systems have no mode"))]
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Probes the server of a `coaps` URI with the key of `config.trust.key`. Without a key, the probe sees the handshake
/// up to the Finished message of the server.
///
/// # Errors
/// [`ClientError`] if the server cannot be found. A handshake that fails is not an error: the report describes it.
pub async fn probe(uri: &Uri, config: ClientConfig) -> Result<Report, ClientError> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let without_key = config.trust.key.is_none() && config.trust.public_keys.is_none();
    let scratch = Scratch::new().map_err(ClientError::System)?;
    let watched = watched(&config, &seen, scratch.0.clone());
    let connected = match Session::connect(uri, watched.clone()).await {
        Err(error @ (ClientError::Resolve { .. } | ClientError::System(_))) => return Err(error),
        other => other,
    };
    let handshake = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    let mut report = Report {
        remote: connected.as_ref().ok().map(Session::remote),
        failure: connected.as_ref().err().map(ToString::to_string),
        without_key,
        handshake_time: connected.as_ref().map_or(Duration::ZERO, Session::handshake_time),
        choice: handshake.choice,
        cookie_len: handshake.cookie_len,
        identity_hint: connected.as_ref().map(Session::hint).unwrap_or_default(),
        server: connected.as_ref().ok().and_then(Session::server),
        chain: connected.as_ref().map(Session::chain).unwrap_or_default(),
        datagrams: handshake.datagrams,
        resumption: None,
        serves_minimal: None,
        ping: None,
        resources: None,
    };
    let Ok(client) = &connected else { return Ok(report) };
    report.ping = client.ping().await.ok();
    report.resources = links(client).await;
    let by = client.resumable_by();
    if let Ok(client) = connected {
        client.close();
    }
    if let Some(by) = by {
        report.resumption = Some(resume(uri, &watched, &seen, by).await);
    }
    let mut minimal = watched;
    minimal.log.tap = None;
    minimal.state.resume = None;
    minimal.dtls.profile = Profile::Minimal;
    let again = Session::connect(uri, minimal).await;
    report.serves_minimal = match &again {
        Ok(_) => Some(true),
        // A failed handshake is a refusal. Silence may have another reason, such as a limit of one session at a time.
        Err(ClientError::Handshake { .. }) => Some(false),
        Err(_) => None,
    };
    if let Ok(client) = again {
        client.close();
    }
    Ok(report)
}

/// Returns `config` with a tap that records the datagrams in `seen`, and with the extensions that the probe tests.
fn watched(config: &ClientConfig, seen: &Arc<Mutex<Seen>>, resume: PathBuf) -> ClientConfig {
    let key = config.trust.key.clone().unwrap_or_else(|| {
        // A server that knows it would be ill advised; it only brings the handshake to its end.
        ClientKey { identity: "tegmen-probe".to_owned(), key: Zeroizing::new(b"not a key".to_vec()) }
    });
    let (taps, outer) = (seen.clone(), config.log.tap.clone());
    let tap = Tap(Arc::new(move |tapped| {
        if let Some(outer) = &outer {
            (outer.0)(tapped);
        }
        if let Tapped::Datagram { sent, datagram, .. } = tapped {
            taps.lock().unwrap_or_else(PoisonError::into_inner).datagram(sent, datagram);
        }
    }));
    let mut watched = config.clone();
    watched.trust.key = Some(key);
    watched.log.tap = Some(tap);
    watched.state.resume = Some(resume);
    if watched.dtls.record_size_limit == 0 {
        // Asked for only to see what is answered.
        watched.dtls.record_size_limit = PROBED_RECORD_SIZE;
    }
    // As is this.
    let offered =
        *watched.dtls.connection_id.get_or_insert(ConnectionIdConfig { len: 0, ..ConnectionIdConfig::default() });
    seen.lock().unwrap_or_else(PoisonError::into_inner).our_id_len = offered.len.into();
    watched
}

/// Requests `/.well-known/core`. Returns `None` if the server does not answer.
async fn links(client: &Session) -> Option<Result<String, Code>> {
    client.get("/.well-known/core").await.ok().map(|reply| match reply.code.is_success() {
        true => Ok(String::from_utf8_lossy(&reply.payload).into_owned()),
        false => Err(reply.code),
    })
}

/// Resumes the session in a second handshake.
async fn resume(uri: &Uri, watched: &ClientConfig, seen: &Mutex<Seen>, by: &'static str) -> Resumption {
    *seen.lock().unwrap_or_else(PoisonError::into_inner) = Seen::default();
    let again = Session::connect(uri, watched.clone()).await;
    let handshake = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    let resumption = Resumption {
        by,
        taken: again.as_ref().is_ok_and(Session::is_resumed),
        bytes: bytes(&handshake.datagrams),
        datagrams: handshake.datagrams.len(),
        time: again.as_ref().map_or(Duration::ZERO, Session::handshake_time),
    };
    if let Ok(client) = again {
        client.close();
    }
    resumption
}

/// The record size limit that the probe offers, in bytes: enough for every CoAP message, and a valid value of
/// max_fragment_length.
const PROBED_RECORD_SIZE: u16 = 4096;

/// Maximum length in bytes of the body of a protected record that contains an alert. The body consists of the nonce,
/// the alert, its content type and the longest tag. The body of a record with a Finished message is always longer.
const ALERT_LEN: usize = 8 + 2 + 1 + 16;

/// The datagrams that the probe has sent and received until now, and the parameters that the probe read from the
/// datagrams.
#[derive(Default)]
struct Seen {
    start: Option<Instant>,
    datagrams: Vec<Datagram>,
    choice: Option<Choice>,
    cookie_len: Option<usize>,
    our_id_len: usize,
    /// Every handshake message and every protected record until now. The first value is true if the probe sent the
    /// message or record. The second value is a text with the type and the number of the message or record.
    known: Vec<(bool, String)>,
}

impl Seen {
    fn datagram(&mut self, sent: bool, datagram: &[u8]) {
        let at = self.start.get_or_insert_with(Instant::now).elapsed();
        let len = datagram.len();
        let mut bytes = datagram.to_vec();
        let mut records = Records::new(&mut bytes);
        let (mut messages, mut repeated) = (Vec::new(), true);
        let their_id_len = self.choice.and_then(|choice| choice.connection_id_len).unwrap_or(0);
        let id_len = if sent { their_id_len } else { self.our_id_len };
        while let Some(record) = records.next_record_with_id(id_len) {
            let Ok(record) = record else {
                messages.push("something that is no record".to_owned());
                continue;
            };
            let epoch = record.epoch();
            let name = match record.content_type() {
                ContentType::HANDSHAKE if epoch == 0 => {
                    for fragment in HandshakeFragment::each(record.body) {
                        self.message(&fragment);
                        let part = match fragment.body.len() == fragment.length as usize {
                            true => String::new(),
                            false => format!(" (part at {})", fragment.offset),
                        };
                        let name = format!("{}{part}", name_of(fragment.message_type));
                        repeated &= self.is_known(sent, format!("{name} {}", fragment.message_seq));
                        messages.push(name);
                    }
                    continue;
                }
                ContentType::HANDSHAKE => "Finished (protected)".to_owned(),
                ContentType::CHANGE_CIPHER_SPEC => "ChangeCipherSpec".to_owned(),
                ContentType::ALERT if epoch == 0 => match &*record.body {
                    [_, description] => format!("Alert {}", tegmen::dtls::AlertDescription(*description)),
                    _ => "Alert".to_owned(),
                },
                ContentType::ALERT => "Alert (protected)".to_owned(),
                ContentType::APPLICATION_DATA => "application data".to_owned(),
                // Before the session stands it can be nothing else; an alert is as short as that is long.
                ContentType::TLS12_CID if record.body.len() > ALERT_LEN => "Finished (protected, with id)".to_owned(),
                ContentType::TLS12_CID => "Alert (protected, with id)".to_owned(),
                other => format!("content type {}", other.0),
            };
            repeated &= self.is_known(sent, format!("{name} in epoch {epoch}"));
            messages.push(name);
        }
        repeated &= !messages.is_empty();
        self.datagrams.push(Datagram { at, sent, len, messages, repeated });
    }

    fn is_known(&mut self, sent: bool, name: String) -> bool {
        let one = (sent, name);
        let known = self.known.contains(&one);
        if !known {
            self.known.push(one);
        }
        known
    }

    fn message(&mut self, fragment: &HandshakeFragment<'_>) {
        match HandshakeMessage::read(fragment.message_type, fragment.body) {
            Ok(HandshakeMessage::HelloVerifyRequest { cookie }) => self.cookie_len = Some(cookie.len()),
            Ok(HandshakeMessage::ServerHello {
                version,
                cipher_suite,
                extended_master_secret,
                renegotiation_info,
                record_size_limit,
                max_fragment_length,
                connection_id,
                return_routability,
            }) => {
                self.choice = Some(Choice {
                    version,
                    cipher_suite,
                    extended_master_secret,
                    renegotiation_info,
                    record_size_limit,
                    max_fragment_length,
                    connection_id_len: connection_id.map(<[u8]>::len),
                    return_routability,
                });
            }
            _ => {}
        }
    }
}

fn name_of(message: MessageType) -> String {
    match message {
        MessageType::HELLO_REQUEST => "HelloRequest",
        MessageType::CLIENT_HELLO => "ClientHello",
        MessageType::SERVER_HELLO => "ServerHello",
        MessageType::HELLO_VERIFY_REQUEST => "HelloVerifyRequest",
        MessageType::SERVER_KEY_EXCHANGE => "ServerKeyExchange",
        MessageType::SERVER_HELLO_DONE => "ServerHelloDone",
        MessageType::CLIENT_KEY_EXCHANGE => "ClientKeyExchange",
        MessageType::FINISHED => "Finished",
        MessageType(4) => "NewSessionTicket",
        MessageType(11) => "Certificate",
        MessageType(13) => "CertificateRequest",
        MessageType(15) => "CertificateVerify",
        MessageType(other) => return format!("handshake message {other}"),
    }
    .to_owned()
}

/// Returns the name of the version.
pub fn version_name(version: [u8; 2]) -> String {
    match version {
        [254, 255] => "DTLS 1.0".to_owned(),
        [254, 253] => "DTLS 1.2".to_owned(),
        [a, b] => format!("version {a}.{b}"),
    }
}

/// Returns the name of a cipher suite in the IANA registry. For an unknown suite, returns its number.
pub fn suite_name(suite: CipherSuite) -> String {
    match suite.0 {
        0xc0a4 => "TLS_PSK_WITH_AES_128_CCM".to_owned(),
        other if suite.name() == "unknown" => format!("suite 0x{other:04x}"),
        _ => suite.name().to_owned(),
    }
}
