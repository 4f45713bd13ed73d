//! Tests clients that resume sessions with a server without a key exchange, over real sockets on the loopback
//! interface.

mod test_ca;

use rcgen::ExtendedKeyUsagePurpose;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::Code;
use tegmen::crypto::RustCrypto;
use tegmen::crypto::hash::HmacKey;
use tegmen::dtls::{CipherSuite, ClientAuthentication, ContentType, Suites};
use tegmen_host::client::{ClientConfig, ClientError, ClientKey, Session, Tap, Tapped};
use tegmen_host::credentials::Credentials;
use tegmen_host::hex::from_hex;
use tegmen_host::public_keys::{PublicKeys, SUITES};
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::resumption::ResumptionConfig;
use tegmen_host::server::{Event, Kind, Listen, Server, ServerConfig};
use tegmen_host::uri::Scheme;
use tegmen_host::x509::signer::Signer;
use tegmen_host::x509::{AllowedKey, RawKeys, Settings, Trust, Verifier};
use test_ca::TestCa;

/// A separate directory of a test, which is removed at the end of the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-resumption-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Running {
    server: Server,
    address: SocketAddr,
    events: Arc<Mutex<Vec<String>>>,
}

fn start(config: ServerConfig, credentials: &Credentials, port: u16) -> Running {
    let events = Arc::new(Mutex::new(Vec::new()));
    let keep = events.clone();
    let sink = move |event: Event| keep.lock().unwrap().push(format!("{event:?}"));
    let listen = vec![Listen { address: SocketAddr::from(([127, 0, 0, 1], port)), scheme: Scheme::Coaps }];
    let mut config = config;
    config.listen = listen;
    config.shards = 2;
    let resources = Resources::new([("value".to_owned(), Resource::value(b"first"))]);
    let server = Server::with(config).credentials(credentials.clone()).on_event(sink).serve(resources).unwrap();
    let address = server.addresses()[0].address;
    Running { server, address, events }
}

fn psk(dir: &Path, key: &[u8]) -> ClientConfig {
    let key = ClientKey { identity: "me".to_owned(), key: key.to_vec().into() };
    ClientConfig::default().with(|config| {
        config.trust.key = Some(key);
        config.state.resume = Some(dir.to_owned());
    })
}

/// Sends a request and expects a 2.05 Content response. Returns true if the session was resumed.
async fn get(remote: SocketAddr, config: ClientConfig) -> Result<bool, ClientError> {
    let (resumed, code) = asked(remote, config).await?;
    assert_eq!(code, Code::CONTENT);
    Ok(resumed)
}

/// Sends a request. Returns true if the session was resumed, and the code of the response.
async fn asked(remote: SocketAddr, config: ClientConfig) -> Result<(bool, Code), ClientError> {
    let mut config = config;
    config.coap.timeout = Duration::from_secs(10);
    config.dtls.handshake_timeout = Duration::from_secs(8);
    let client = Session::connect_to(remote, Scheme::Coaps, config).await?;
    let code = client.get("value").await?.code;
    Ok((client.is_resumed(), code))
}

#[tokio::test]
async fn a_client_comes_back_with_a_ticket_or_an_id() {
    let credentials = Credentials::single("me", b"0123456789abcdef");
    for tickets in [true, false] {
        let dir = Dir::new(if tickets { "ticket" } else { "id" });
        let resumption = Some(ResumptionConfig { tickets, ..ResumptionConfig::default() });
        let running = start(ServerConfig::default().with(|config| config.resumption = resumption), &credentials, 0);
        let config = psk(&dir.0, b"0123456789abcdef");
        assert!(!get(running.address, config.clone()).await.unwrap());
        assert!(get(running.address, config.clone()).await.unwrap());
        assert!(get(running.address, config.clone()).await.unwrap());
        // Without the directory nothing is offered.
        assert!(!get(running.address, config.with(|config| config.state.resume = None)).await.unwrap());
        let events = running.events.lock().unwrap().clone();
        assert_eq!(events.iter().filter(|event| event.contains("resumed: true")).count(), 2, "{events:?}");
        let totals = running.server.stop();
        let resumption = totals.resumption;
        let taken = if tickets { resumption.tickets_opened } else { resumption.ids_found };
        assert_eq!((taken, totals.established[Kind::Resumed as usize]), (2, 2), "{resumption:?}");
        assert_eq!(totals.established[Kind::Psk as usize], 2);
    }
}

#[tokio::test]
async fn tickets_outlive_a_server_whose_keys_are_in_a_file() {
    let dir = Dir::new("restart");
    let credentials = Credentials::single("me", b"0123456789abcdef");
    let config = |keys: Option<PathBuf>| {
        let resumption = Some(ResumptionConfig { keys, ..ResumptionConfig::default() });
        ServerConfig::default().with(|config| config.resumption = resumption)
    };
    let client = psk(&dir.0, b"0123456789abcdef");
    for (keys, again) in [(Some(dir.0.join("ticket-keys")), true), (None, false)] {
        let running = start(config(keys.clone()), &credentials, 0);
        let address = running.address;
        get(address, client.clone()).await.unwrap();
        running.server.stop();
        let running = start(config(keys), &credentials, address.port());
        assert_eq!(get(address, client.clone()).await.unwrap(), again);
        running.server.stop();
    }
}

#[tokio::test]
async fn who_got_another_key_goes_through_a_full_handshake() {
    let dir = Dir::new("key");
    let file = dir.0.join("ticket-keys");
    let resumption = Some(ResumptionConfig { keys: Some(file), ..ResumptionConfig::default() });
    let mut config = ServerConfig::default();
    config.resumption = resumption;
    let running = start(config.clone(), &Credentials::single("me", b"0123456789abcdef"), 0);
    let address = running.address;
    get(address, psk(&dir.0, b"0123456789abcdef")).await.unwrap();
    running.server.stop();
    let running = start(config, &Credentials::single("me", b"another key here"), address.port());
    // The ticket of the old key is refused, and so is the old key.
    let refused = get(address, psk(&dir.0, b"0123456789abcdef")).await.unwrap_err();
    assert!(matches!(refused, ClientError::IdentityOrKey { .. }), "{refused}");
    assert!(!get(address, psk(&dir.0, b"another key here")).await.unwrap());
    assert!(get(address, psk(&dir.0, b"another key here")).await.unwrap());
    assert_eq!(running.server.stop().resumption.tickets_refused, 2);
}

fn certified(dir: &Path, keys: PublicKeys) -> ClientConfig {
    ClientConfig::default().with(|config| {
        config.trust.public_keys = Some(keys);
        config.state.resume = Some(dir.to_owned());
    })
}

#[tokio::test]
async fn certificates_are_asked_for_again_once_they_may_be_revoked() {
    let dir = Dir::new("certificates");
    let test_ca = TestCa::new("Works");
    let verifier = test_ca.verifier();
    let keys = test_ca.server().believing(verifier.clone()).asking(ClientAuthentication::Required);
    let running =
        start(ServerConfig::default().with(|config| config.trust.public_keys = Some(keys)), &Credentials::default(), 0);
    let client = test_ca.client(SUITES).expecting("127.0.0.1");
    assert!(!get(running.address, certified(&dir.0, client.clone())).await.unwrap());
    assert!(get(running.address, certified(&dir.0, client.clone())).await.unwrap());
    // Another certificate of the same name is another client.
    let other = test_ca.client(SUITES).expecting("127.0.0.1");
    assert!(!get(running.address, certified(&dir.0, other)).await.unwrap());
    assert!(get(running.address, certified(&dir.0, client.clone())).await.unwrap());
    // The server now trusts others, and judges a resumption by that trust.
    let mut trust = Trust::default();
    trust.add_anchors(test_ca.ca.pem().as_bytes()).unwrap();
    verifier.replace(trust);
    assert!(get(running.address, certified(&dir.0, client.clone())).await.unwrap());
    // A client whose authority is no longer trusted cannot resume.
    let mut trust = Trust::default();
    trust.add_anchors(TestCa::new("Others").ca.pem().as_bytes()).unwrap();
    verifier.replace(trust);
    assert!(get(running.address, certified(&dir.0, client)).await.is_err());
}

#[tokio::test]
async fn a_raw_public_key_comes_back_for_as_long_as_it_is_listed_also_after_a_restart() {
    let dir = Dir::new("raw");
    let test_ca = TestCa::new("Works");
    let key = |name| test_ca.issue(name, ExtendedKeyUsagePurpose::ServerAuth).1;
    let (ours, theirs) = (key("device"), key("server"));
    let believing = |other: &Arc<dyn Signer>, name| Arc::new(RawKeys(vec![AllowedKey::of(other.public_key(), name)]));
    let config = |listed: &Arc<dyn Signer>| {
        let server = PublicKeys::new(SUITES).with_raw_key(theirs.clone()).believing(believing(listed, "the device"));
        let resumption = Some(ResumptionConfig { keys: Some(dir.0.join("keys")), ..ResumptionConfig::default() });
        let public_keys = Some(server.asking(ClientAuthentication::Required));
        ServerConfig::default().with(|config| {
            config.trust.public_keys = public_keys;
            config.resumption = resumption;
        })
    };
    let client = PublicKeys::new(Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8])).with_raw_key(ours.clone());
    let client = certified(&dir.0, client.believing(believing(&theirs, "the server")));
    let running = start(config(&ours), &Credentials::default(), 0);
    let address = running.address;
    assert!(!get(address, client.clone()).await.unwrap());
    running.server.stop();
    let running = start(config(&ours), &Credentials::default(), address.port());
    assert!(get(address, client.clone()).await.unwrap());
    assert!(running.events.lock().unwrap().iter().any(|event| event.contains("the device")));
    running.server.stop();
    let running = start(config(&theirs), &Credentials::default(), address.port());
    assert!(get(address, client).await.is_err());
    running.server.stop();
}

#[tokio::test]
async fn who_proved_nothing_does_not_come_back_where_a_proof_is_asked_for_by_now() {
    let dir = Dir::new("nobody");
    let test_ca = TestCa::new("Works");
    let config = |how| {
        let resumption = Some(ResumptionConfig { keys: Some(dir.0.join("keys")), ..ResumptionConfig::default() });
        ServerConfig::default().with(|config| {
            config.trust.public_keys = Some(test_ca.server().asking(how));
            config.resumption = resumption;
        })
    };
    let nobody = PublicKeys::new(SUITES).believing(test_ca.verifier()).expecting("127.0.0.1");
    let nobody = certified(&dir.0, nobody);
    let running = start(config(ClientAuthentication::Asked), &Credentials::default(), 0);
    let address = running.address;
    // It gets a session, and nothing in it.
    assert!(matches!(asked(address, nobody.clone()).await, Ok((false, Code::UNAUTHORIZED))));
    assert!(matches!(asked(address, nobody.clone()).await, Ok((true, Code::UNAUTHORIZED))));
    running.server.stop();
    let running = start(config(ClientAuthentication::Required), &Credentials::default(), address.port());
    assert!(asked(address, nobody).await.is_err());
    running.server.stop();
}

#[tokio::test]
async fn a_damaged_file_is_as_good_as_none_and_a_bad_directory_is_an_error() {
    let dir = Dir::new("damaged");
    let credentials = Credentials::single("me", b"0123456789abcdef");
    let running = start(ServerConfig::default(), &credentials, 0);
    let config = psk(&dir.0.join("new"), b"0123456789abcdef");
    get(running.address, config.clone()).await.unwrap();
    let files: Vec<_> = std::fs::read_dir(dir.0.join("new")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(std::fs::metadata(&files[0]).unwrap().permissions().mode() & 0o777, 0o600);
    let whole = std::fs::read_to_string(&files[0]).unwrap();
    for text in [&whole[..whole.len() / 2], "", "cipher_suite = 7\n"] {
        std::fs::write(&files[0], text).unwrap();
        assert!(!get(running.address, config.clone()).await.unwrap());
    }
    assert!(get(running.address, config.clone()).await.unwrap());
    // One that others may read is not used, and is its owner's alone from then on.
    std::fs::set_permissions(&files[0], std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(!get(running.address, config.clone()).await.unwrap());
    assert!(get(running.address, config.clone()).await.unwrap());
    let mut no_dir = config;
    no_dir.state.resume = Some(files[0].clone());
    assert!(matches!(get(running.address, no_dir).await, Err(ClientError::Resume { .. })));
}

/// A forwarder between a client and its server that can intercept a ClientHello.
struct Between {
    address: SocketAddr,
    is_armed: Arc<AtomicBool>,
    /// The socket to the client.
    before: UdpSocket,
    /// The socket to the server.
    behind: UdpSocket,
    client: Arc<Mutex<Option<SocketAddr>>>,
}

impl Between {
    /// Starts a forwarder. After a test sets `is_armed` to true, the forwarder answers the next ClientHello with
    /// `answer`, or sends no answer if `answer` is `None`. It handles every later ClientHello with the
    /// same random in the same way. The server receives none of these messages.
    fn new(server: SocketAddr, answer: Option<&'static [u8]>) -> Self {
        let (before, behind) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let (address, is_armed) = (before.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        before.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        behind.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let armed = is_armed.clone();
        let (to_client, to_server) = (before.try_clone().unwrap(), behind.try_clone().unwrap());
        let this = Self { address, is_armed, before: to_client, behind: to_server, client: Arc::default() };
        let client = this.client.clone();
        std::thread::spawn(move || {
            let (mut datagram, mut dropped) = ([0; 2000], Vec::new());
            loop {
                if let Ok((len, from)) = before.recv_from(&mut datagram) {
                    *client.lock().unwrap() = Some(from);
                    let is_hello = datagram[0] == 22 && datagram[13] == 1;
                    let random = datagram[27..59].to_vec();
                    if is_hello && armed.swap(false, Ordering::SeqCst) {
                        dropped = random.clone();
                    }
                    if is_hello && random == dropped {
                        if let Some(answer) = answer {
                            before.send_to(answer, from).unwrap();
                        }
                    } else {
                        behind.send_to(&datagram[..len], server).unwrap();
                    }
                }
                if let (Ok(len), Some(client)) = (behind.recv(&mut datagram), *client.lock().unwrap()) {
                    before.send_to(&datagram[..len], client).unwrap();
                }
            }
        });
        this
    }

    /// Sends the client a datagram that seems to come from the server.
    fn tell_client(&self, datagram: &[u8]) {
        self.before.send_to(datagram, self.client.lock().unwrap().unwrap()).unwrap();
    }
}

/// Returns an alert in a protected record of the client or of the server. `secrets` is the line of the key log, and
/// `hello` is a datagram that begins with the ServerHello.
fn alert_of(is_client: bool, (secrets, hello): (&str, &[u8]), alert: [u8; 2]) -> Vec<u8> {
    // The random, the session id and the suite follow the record header, the handshake header and the version.
    let (server_random, rest) = hello[27..].split_at(32);
    let suite = &rest[1 + usize::from(rest[0])..];
    let suite = CipherSuite(u16::from_be_bytes([suite[0], suite[1]]));
    let words: Vec<_> = secrets.trim().split(' ').skip(1).map(|word| from_hex(word).unwrap()).collect();
    let [client_random, master] = words.as_slice() else { panic!("{secrets}") };
    let mut block = [0; 40];
    HmacKey::new::<RustCrypto>(&[master])
        .prf::<RustCrypto>(&[b"key expansion", server_random, client_random], &mut block);
    let mut channel = suite.channel(false, &block, is_client).unwrap();
    let (mut crypto, mut last) = (RustCrypto::new([1; 32]), Vec::new());
    // The endpoint has already used the first record numbers.
    for _ in 0..20 {
        let mut storage = [0; 100];
        let mut frame = Frame::new(&mut storage, 40);
        frame.append(&alert).unwrap();
        channel.seal(&mut crypto, ContentType::ALERT, &mut frame).unwrap();
        last = frame.bytes().to_vec();
    }
    last
}

/// The line of the key log of a client, and the datagram that begins with the ServerHello.
type Seen = Arc<Mutex<(String, Vec<u8>)>>;

/// Returns what a client sees of its handshake, and the tap that stores it.
fn watched() -> (Seen, Tap) {
    let seen = Arc::new(Mutex::new((String::new(), Vec::new())));
    let seeing = seen.clone();
    let tap = Tap(Arc::new(move |tapped| match tapped {
        Tapped::Secrets(line) => seeing.lock().unwrap().0 = line.to_owned(),
        // A handshake record that begins with a ServerHello.
        Tapped::Datagram { sent: false, datagram, .. } if datagram[0] == 22 && datagram.get(13) == Some(&2) => {
            seeing.lock().unwrap().1 = datagram.to_vec();
        }
        Tapped::Datagram { .. } => {}
    }));
    (seen, tap)
}

/// RFC 5246, section 7.2.2: a session that a fatal alert ended is not resumed. A session that close_notify ended can be
/// resumed, and so can the session of another client that has replaced the file.
#[tokio::test]
async fn a_session_that_a_fatal_alert_ended_is_forgotten() {
    let credentials = Credentials::single("me", b"0123456789abcdef");
    let resumption = Some(ResumptionConfig::default());
    let running = start(ServerConfig::default().with(|config| config.resumption = resumption), &credentials, 0);
    for (alert, is_replaced, left) in [([2, 22], false, 0), ([2, 22], true, 1), ([1, 0], false, 1)] {
        let (dir, between) = (Dir::new(&format!("alert-{left}-{}", alert[1])), Between::new(running.address, None));
        let (seen, tap) = watched();
        let client = psk(&dir.0, b"0123456789abcdef").with(|config| {
            config.log.tap = Some(tap);
            config.recovery.reconnect = false;
        });
        let session = Session::connect_to(between.address, Scheme::Coaps, client).await.unwrap();
        session.get("/value").await.unwrap();
        let files = || std::fs::read_dir(&dir.0).unwrap().count();
        assert_eq!(files(), 1);
        if is_replaced {
            let other = Between::new(running.address, None);
            let other_dir = Dir::new("alert-other");
            get(other.address, psk(&other_dir.0, b"0123456789abcdef")).await.unwrap();
            let file = |dir: &Dir| std::fs::read_dir(&dir.0).unwrap().next().unwrap().unwrap().path();
            std::fs::rename(file(&other_dir), file(&dir)).unwrap();
        }
        let (secrets, hello) = seen.lock().unwrap().clone();
        between.tell_client(&alert_of(false, (&secrets, &hello), alert));
        let mut tries = 0;
        while session.get("/value").await.is_ok() {
            tries += 1;
            assert!(tries < 100, "the alert did not end the session");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(files(), left, "{alert:?}");
    }
}

/// RFC 5246, section 7.2.2: a server resumes no session of a client that ended a session with a fatal alert, if the
/// client opened the session before the alert. The client of this test keeps the ticket or the session id, as a client of
/// another stack may do.
#[tokio::test]
async fn a_server_does_not_resume_a_session_that_a_fatal_alert_ended() {
    let credentials = Credentials::single("me", b"0123456789abcdef");
    for (tickets, alert, is_resumed) in [(true, [2, 22], false), (false, [2, 22], false), (true, [1, 0], true)] {
        let resumption = Some(ResumptionConfig { tickets, ..ResumptionConfig::default() });
        let running = start(ServerConfig::default().with(|config| config.resumption = resumption), &credentials, 0);
        let dir = Dir::new(&format!("server-alert-{tickets}-{}", alert[1]));
        let between = Between::new(running.address, None);
        let (seen, tap) = watched();
        let client = psk(&dir.0, b"0123456789abcdef").with(|config| config.log.tap = Some(tap));
        let session = Session::connect_to(between.address, Scheme::Coaps, client).await.unwrap();
        session.get("/value").await.unwrap();
        let (secrets, hello) = seen.lock().unwrap().clone();
        between.behind.send_to(&alert_of(true, (&secrets, &hello), alert), running.address).unwrap();
        let has_ended = || {
            let events = running.events.lock().unwrap();
            events.iter().any(|event| event.starts_with("Failed") || event.starts_with("Closed"))
        };
        while !has_ended() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The times of sessions have the unit of one second.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let again = psk(&dir.0, b"0123456789abcdef");
        assert_eq!(get(between.address, again.clone()).await.unwrap(), is_resumed, "{tickets} {alert:?}");
        assert!(get(between.address, again).await.unwrap(), "the later session");
        drop(session);
    }
}

#[tokio::test]
async fn a_resumption_that_ends_in_an_alert_or_in_silence_becomes_a_full_handshake() {
    const INTERNAL_ERROR: &[u8] = &[21, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 80];
    let credentials = Credentials::single("me", b"0123456789abcdef");
    let resumption = Some(ResumptionConfig::default());
    let running = start(ServerConfig::default().with(|config| config.resumption = resumption), &credentials, 0);
    for (name, answer) in [("alert", Some(INTERNAL_ERROR)), ("silence", None)] {
        let (dir, between) = (Dir::new(name), Between::new(running.address, answer));
        let client = psk(&dir.0, b"0123456789abcdef");
        assert!(!get(between.address, client.clone()).await.unwrap());
        assert!(get(between.address, client.clone()).await.unwrap());
        between.is_armed.store(true, Ordering::SeqCst);
        assert!(!get(between.address, client.clone()).await.unwrap(), "a full handshake");
        assert!(get(between.address, client.clone()).await.unwrap(), "with a ticket of its own");
    }
}

#[tokio::test]
async fn a_session_whose_resumption_ended_in_an_alert_is_forgotten() {
    const INTERNAL_ERROR: &[u8] = &[21, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 80];
    let credentials = Credentials::single("me", b"0123456789abcdef");
    let running = start(
        ServerConfig::default().with(|config| config.resumption = Some(ResumptionConfig::default())),
        &credentials,
        0,
    );
    let (dir, between) = (Dir::new("forgotten"), Between::new(running.address, Some(INTERNAL_ERROR)));
    let client = psk(&dir.0, b"0123456789abcdef");
    get(between.address, client.clone()).await.unwrap();
    let files = || std::fs::read_dir(&dir.0).unwrap().count();
    assert_eq!(files(), 1);
    between.is_armed.store(true, Ordering::SeqCst);
    running.server.stop();
    // The full handshake that follows finds nobody.
    assert!(get(between.address, client).await.is_err());
    assert_eq!(files(), 0);
}

#[tokio::test]
async fn a_tap_sees_the_secrets_of_a_resumed_session_before_the_records_that_they_open() {
    let dir = Dir::new("tap");
    let credentials = Credentials::single("me", b"0123456789abcdef");
    let resumption = Some(ResumptionConfig::default());
    let running = start(ServerConfig::default().with(|config| config.resumption = resumption), &credentials, 0);
    let client = psk(&dir.0, b"0123456789abcdef");
    assert!(!get(running.address, client.clone()).await.unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tap = {
        let seen = seen.clone();
        Tap(Arc::new(move |tapped| {
            let mut seen = seen.lock().unwrap();
            match tapped {
                Tapped::Secrets(_) => seen.push("secrets"),
                // A handshake record with a ServerHello in front.
                Tapped::Datagram { sent: false, datagram: [22, _, _, _, _, _, _, _, _, _, _, _, _, 2, ..], .. } => {
                    seen.push("server's flight");
                }
                Tapped::Datagram { .. } => {}
            }
        }))
    };
    assert!(get(running.address, client.with(|config| config.log.tap = Some(tap))).await.unwrap());
    assert_eq!(*seen.lock().unwrap(), ["secrets", "server's flight"]);
}

#[tokio::test]
async fn a_client_resumes_only_while_it_believes_the_same_servers() {
    let (test_ca, others) = (TestCa::new("Works"), TestCa::new("Others"));
    let (dir, keys) = (Dir::new("trust"), test_ca.server());
    let mut config = ServerConfig::default();
    config.trust.public_keys = Some(keys);
    let running = start(config, &Credentials::default(), 0);
    let client = test_ca.client(SUITES).expecting("127.0.0.1");
    let revoking = || {
        let mut trust = Trust::default();
        trust.add_anchors(test_ca.ca.pem().as_bytes()).unwrap();
        trust.add_revoked(&format!("{} # nobody\n", "00".repeat(32))).unwrap();
        Arc::new(Verifier::new(trust, Settings::default()))
    };
    assert!(!get(running.address, certified(&dir.0, client.clone())).await.unwrap());
    assert!(get(running.address, certified(&dir.0, client.clone())).await.unwrap());
    // Another authority: the client does not use the kept session, and refuses the server.
    let refused =
        get(running.address, certified(&dir.0, client.clone().believing(others.verifier()))).await.unwrap_err();
    assert!(refused.to_string().contains("no trust anchor"), "{refused}");
    // The same authority with another list of revoked certificates: a full handshake.
    assert!(!get(running.address, certified(&dir.0, client.clone().believing(revoking()))).await.unwrap());
    assert!(get(running.address, certified(&dir.0, client.believing(revoking()))).await.unwrap());
    running.server.stop();

    let dir = Dir::new("pins");
    let key = |name| test_ca.issue(name, ExtendedKeyUsagePurpose::ServerAuth).1;
    let (ours, theirs) = (key("device"), key("server"));
    let pinned = |key: &Arc<dyn Signer>| Arc::new(RawKeys(vec![AllowedKey::of(key.public_key(), "a key")]));
    let keys = PublicKeys::new(SUITES).with_raw_key(theirs.clone()).believing(pinned(&ours));
    let keys = keys.asking(ClientAuthentication::Required);
    let mut config = ServerConfig::default();
    config.trust.public_keys = Some(keys);
    let running = start(config, &Credentials::default(), 0);
    let client = PublicKeys::new(SUITES).with_raw_key(ours.clone());
    assert!(!get(running.address, certified(&dir.0, client.clone().believing(pinned(&theirs)))).await.unwrap());
    assert!(get(running.address, certified(&dir.0, client.clone().believing(pinned(&theirs)))).await.unwrap());
    let refused = get(running.address, certified(&dir.0, client.believing(pinned(&ours)))).await.unwrap_err();
    assert!(refused.to_string().contains("not on the allow list"), "{refused}");
}

#[tokio::test]
async fn a_client_with_a_certificate_resumes_after_a_restart_if_it_is_believed_by_then() {
    let (dir, test_ca) = (Dir::new("certified"), TestCa::new("Works"));
    let (kept, own) = (dir.0.join("clients"), test_ca.server());
    let (certificate, signer) = test_ca.issue("device1", ExtendedKeyUsagePurpose::ClientAuth);
    let digest: String = tegmen_host::x509::sha256(&certificate).iter().map(|byte| format!("{byte:02x}")).collect();
    let client = PublicKeys::new(SUITES).with_chain(&[certificate], signer).unwrap();
    let client = certified(&dir.0, client.believing(test_ca.verifier()).expecting("127.0.0.1"));
    let serve = |revoked: &str, port| {
        let mut trust = Trust::default();
        trust.add_anchors(test_ca.ca.pem().as_bytes()).unwrap();
        trust.add_revoked(revoked).unwrap();
        let verifier = Verifier::new(trust, Settings::default());
        verifier.keep_clients_in(&kept).unwrap();
        let public_keys = Some(own.clone().believing(Arc::new(verifier)).asking(ClientAuthentication::Required));
        let resumption = Some(ResumptionConfig { keys: Some(dir.0.join("keys")), ..ResumptionConfig::default() });
        start(
            ServerConfig::default().with(|config| {
                config.trust.public_keys = public_keys;
                config.resumption = resumption;
            }),
            &Credentials::default(),
            port,
        )
    };
    let running = serve("", 0);
    let address = running.address;
    assert!(!get(address, client.clone()).await.unwrap());
    running.server.stop();
    let running = serve("", address.port());
    assert!(get(address, client.clone()).await.unwrap());
    assert!(running.events.lock().unwrap().iter().any(|event| event.contains("CN=device1")));
    running.server.stop();
    // A restarted server also checks a kept client certificate, which is now revoked.
    let running = serve(&digest, address.port());
    assert!(get(address, client).await.is_err());
    running.server.stop();
}
