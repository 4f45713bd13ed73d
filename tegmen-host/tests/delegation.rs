//! Tests sessions that a server opens in the name of devices. OpenSSL opens a session with the server, and then resumes
//! it at a device, which has neither a certificate nor a private key. All ends use real sockets on the loopback
//! interface.

mod test_ca;

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tegmen::buf::Writer;
use tegmen::dtls::{CipherSuite, ClientAuthentication, Handle, SessionState, Suites};
use tegmen::secret::Secret;
use tegmen_delegation::{
    Connection, Delegation, Device, DeviceKey, Epoch, HandedOver, Issuer, LONGEST_TICKET, Lost, Memory, Refused, Ticket,
};
use tegmen_host::clock;
use tegmen_host::credentials::Credentials;
use tegmen_host::delegate::{Delegate, Delegated, Proved};
use tegmen_host::provider::HostCrypto;
use tegmen_host::public_keys::{PublicKeys, SUITES};
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Event, Kind, Listen, Server, ServerConfig};
use tegmen_host::uri::Scheme;
use test_ca::TestCa;

/// The only suite that the devices resume.
const CCM_8: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8]);
/// The cipher suites that the client offers. The server itself would choose the first suite.
const OFFERED: &str = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-CCM8:@SECLEVEL=0";
const NAMES: [&str; 2] = ["lamp.example", "door.example"];
const VALUE: &str = "a value";

fn seconds() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as u32
}

fn crypto() -> HostCrypto {
    HostCrypto::from_os().unwrap()
}

fn copy(session: &SessionState) -> SessionState {
    SessionState { master: Secret::new(*session.master.expose()), ..*session }
}

/// Returns the first epoch of a device. The delegation server and the device derive it from the same bytes.
fn epoch(device: u32) -> Epoch {
    let first = Epoch::first(DeviceKey(Secret::new([device as u8; 32])));
    first.next::<HostCrypto>(&Secret::new([device as u8; 32])).unwrap()
}

/// A session that the delegation server opened.
struct Opened {
    device: u32,
    peer: Option<String>,
    /// The time at which the certificate of the peer expires.
    until: Option<SystemTime>,
    since: u32,
    /// The session id, for a client without support for tickets.
    id: Option<Vec<u8>>,
    session: SessionState,
}

/// A delegation server of two devices, 1 and 2, without a store. The number of a connection is its index in `opened`.
struct DelegationServer {
    credentials: Vec<Arc<PublicKeys>>,
    issuers: Mutex<Vec<Issuer>>,
    opened: Mutex<Vec<Opened>>,
}

impl DelegationServer {
    fn new(ca: &TestCa) -> Self {
        let credentials = NAMES.map(|name| {
            let (certificate, signer) = ca.issue(name, ExtendedKeyUsagePurpose::ServerAuth);
            Arc::new(PublicKeys::new(CCM_8).with_chain(&[certificate], signer).unwrap())
        });
        let issuers = [1, 2].map(|device| Issuer::new(epoch(device), None, 0));
        Self { credentials: credentials.into(), issuers: Mutex::new(issuers.into()), opened: Mutex::default() }
    }

    fn note(&self, device: u32, peer: Option<Proved<'_>>, id: Option<&[u8]>, session: &SessionState) -> Connection {
        let mut opened = self.opened.lock().unwrap();
        let until = peer.and_then(|peer| peer.until);
        let (peer, id) = (peer.map(|peer| peer.name.to_owned()), id.map(<[u8]>::to_vec));
        let since = session.since.unwrap_or_else(seconds);
        opened.push(Opened { device, peer, until, since, id, session: copy(session) });
        Connection::new(opened.len() as u32 - 1, 3).unwrap()
    }
}

impl Delegate for DelegationServer {
    fn device(&self, server_name: &[u8]) -> Option<u32> {
        NAMES.iter().position(|name| name.as_bytes() == server_name).map(|index| index as u32 + 1)
    }

    fn credentials(&self, device: u32) -> Option<Arc<PublicKeys>> {
        self.credentials.get(device as usize - 1).cloned()
    }

    fn seal(
        &self,
        device: u32,
        peer: Option<Proved<'_>>,
        session: &SessionState,
        ticket: &mut Writer<'_>,
    ) -> Option<u32> {
        let connection = self.note(device, peer, None, session);
        let since = Some(session.since.unwrap_or_else(seconds));
        let session = SessionState { principal: connection.principal(), since, ..copy(session) };
        let delegation = Delegation { session, expires: seconds() + 3600 };
        let mut room = [0; LONGEST_TICKET];
        let issuer = &mut self.issuers.lock().unwrap()[device as usize - 1];
        ticket.put(issuer.seal(&mut crypto(), &delegation, &mut room).ok()?.0).ok()?;
        Some(3600)
    }

    /// Opens the ticket of a client that returns to the server. The client gets a new ticket, with the time at which it
    /// first authenticated itself.
    fn open(&self, device: u32, ticket: &[u8]) -> Option<Delegated> {
        let issuer = &self.issuers.lock().unwrap()[device as usize - 1];
        let delegation = issuer.reissue(&mut crypto(), Ticket(ticket), seconds(), 9, |_| false).ok()?;
        Some(Delegated { session: delegation.session, peer: "one who came back".to_owned(), renew: true })
    }

    fn find(&self, _: u32, _: &[u8]) -> Option<Delegated> {
        None
    }

    fn remember(&self, device: u32, peer: Option<Proved<'_>>, id: &[u8], session: &SessionState) {
        self.note(device, peer, Some(id), session);
    }
}

/// The memory of the device with this number. It keeps nothing when the process ends: each process begins with the
/// first epoch of the device.
struct Forgetful(u32);

impl Memory for Forgetful {
    type Error = Infallible;

    fn load(&mut self, of_device: &mut Epoch, _: &mut [u32]) -> Result<usize, Lost> {
        *of_device = epoch(self.0);
        Ok(0)
    }

    fn keep_epoch(&mut self, _: &Epoch) -> Result<(), Infallible> {
        Ok(())
    }

    fn keep_refused(&mut self, _: u16, _: u32) -> Result<(), Infallible> {
        Ok(())
    }
}

/// A device that is a program on a host. Its only secret is the secret of its epoch.
struct OnHost(Mutex<Device<Forgetful, 4, 4, 64>>);

impl OnHost {
    fn new(device: u32) -> Arc<Self> {
        let mut state = Device::load(Forgetful(device)).unwrap();
        state.set_time(clock::now(), seconds());
        Arc::new(Self(Mutex::new(state)))
    }

    fn delegated(session: SessionState) -> Delegated {
        let connection = Connection::of(session.principal).unwrap();
        Delegated { peer: format!("connection {}", connection.number), session, renew: false }
    }
}

/// The number with which the device names itself to its own server. The device uses this number for every server_name.
const ITSELF: u32 = 77;

impl Delegate for OnHost {
    fn device(&self, _: &[u8]) -> Option<u32> {
        Some(ITSELF)
    }

    fn credentials(&self, _: u32) -> Option<Arc<PublicKeys>> {
        None
    }

    fn seal(&self, _: u32, _: Option<Proved<'_>>, _: &SessionState, _: &mut Writer<'_>) -> Option<u32> {
        None
    }

    fn open(&self, _: u32, ticket: &[u8]) -> Option<Delegated> {
        let opened = self.0.lock().unwrap().open(clock::now(), &mut crypto(), Ticket(ticket));
        opened.ok().map(|delegation| OnHost::delegated(delegation.session))
    }

    fn find(&self, _: u32, id: &[u8]) -> Option<Delegated> {
        self.0.lock().unwrap().find(clock::now(), id).map(OnHost::delegated)
    }

    fn remember(&self, _: u32, _: Option<Proved<'_>>, _: &[u8], _: &SessionState) {}
}

/// For a request of a peer that has a session with a device: the number of the device, and the number of the session at
/// this device. `None` for any other request.
type Asked = Option<(u32, u32)>;

struct Running {
    server: Server,
    address: SocketAddr,
    credentials: Credentials,
    events: Arc<Mutex<Vec<String>>>,
    /// An entry for each request that the server received.
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Running {
    fn start(delegate: Arc<dyn Delegate>, keys: Option<PublicKeys>) -> Self {
        let (events, asked) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let (keep, note, credentials) = (events.clone(), asked.clone(), Credentials::default());
        let of = credentials.clone();
        let config = ServerConfig::default().with(|config| {
            config.listen = vec![Listen { address: SocketAddr::from(([127, 0, 0, 1], 0)), scheme: Scheme::Coaps }];
            config.shards = 2;
            config.trust.public_keys = keys;
        });
        let builder = Server::with(config)
            .delegate(delegate)
            .credentials(credentials.clone())
            .on_event(move |event: Event| keep.lock().unwrap().push(format!("{event:?}")))
            .policy_later(move |request, _| {
                note.lock().unwrap().push(of.delegated(request.identity.principal));
                Some(true)
            });
        let server = builder.serve(Resources::new([("v".to_owned(), Resource::value(VALUE.as_bytes()))])).unwrap();
        let address = server.addresses()[0].address;
        Self { server, address, credentials, events, asked }
    }

    /// Starts the server of a device on a host. The server has no keys of its own.
    fn device(device: &Arc<OnHost>) -> Self {
        Self::start(device.clone(), None)
    }

    fn heard(&self, text: &str) -> bool {
        self.events.lock().unwrap().iter().any(|event| event.contains(text))
    }

    /// Ends each session that its peer has not ended. Waits until all sessions are gone, and returns the number of
    /// peers that are still registered.
    fn end_sessions(&self) -> usize {
        for session in self.server.sessions() {
            self.server.close(session.id);
        }
        // The entry of a peer goes after the alert.
        let is_quiet = |_: &u32| {
            std::thread::sleep(Duration::from_millis(20));
            self.server.totals().peers == 0 && self.credentials.peers() == 0
        };
        (0..100).find(is_quiet);
        self.credentials.peers()
    }
}

/// Maximum running time of OpenSSL in seconds, as an argument of the program `timeout`.
const MINUTES: &str = "120";

/// A directory with the files of a client.
struct Files(PathBuf);

impl Files {
    fn new(name: &str, ca: &TestCa) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-delegation-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "remote");
        params.not_after = rcgen::date_time_ymd(2100, 1, 1);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        std::fs::write(dir.join("client.pem"), params.signed_by(&key, &ca.ca).unwrap().pem()).unwrap();
        std::fs::write(dir.join("client.key"), key.serialize_pem()).unwrap();
        std::fs::write(dir.join("ca.pem"), ca.ca.pem()).unwrap();
        Self(dir)
    }

    /// Lets OpenSSL request a value. Returns the output of OpenSSL up to the value, or up to the end of the session.
    fn openssl(&self, at: &Running, name: &str, more: &[&str]) -> String {
        self.openssl_within(MINUTES, at, name, more)
    }

    /// Does the same as [`Self::openssl`], and ends OpenSSL after this number of seconds.
    fn openssl_within(&self, seconds: &str, at: &Running, name: &str, more: &[&str]) -> String {
        let mut client = Command::new("timeout")
            .current_dir(&self.0)
            .args([
                seconds,
                "openssl",
                "s_client",
                "-dtls1_2",
                "-nocommands",
                "-cipher",
                OFFERED,
                "-connect",
                &at.address.to_string(),
            ])
            .args(["-CAfile", "ca.pem", "-verify_return_error", "-verify_hostname", name, "-servername", name])
            .args(["-cert", "client.pem", "-key", "client.key"])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The client sends it once the handshake is over.
        let mut stdin = client.stdin.take().unwrap();
        stdin.write_all(b"\x40\x01\x00\x07\xb1v").unwrap();
        let mut stdout = client.stdout.take().unwrap();
        let (mut text, mut part) = (String::new(), [0; 4096]);
        while !text.contains(VALUE) {
            match stdout.read(&mut part).unwrap() {
                0 => break,
                len => text += &String::from_utf8_lossy(&part[..len]),
            }
        }
        let _ = client.kill();
        client.wait().unwrap();
        text
    }

    /// Checks that OpenSSL resumes the session in `session.pem` and reads the value in it.
    fn resumes(&self, at: &Running, name: &str, more: &[&str]) {
        let text = self.openssl(at, name, &[&["-sess_in", "session.pem"], more].concat());
        assert!(text.contains("Reused, ") && text.contains(VALUE), "{text}");
    }

    /// Checks that the session in the file `session` is not resumed, and that there is no full handshake either.
    fn is_refused(&self, at: &Running, name: &str, session: &str) {
        let text = self.openssl(at, name, &["-sess_in", session]);
        assert!(!text.contains(VALUE) && !text.contains("Reused, "), "{text}");
        assert!(at.asked.lock().unwrap().is_empty());
    }

    /// Checks that OpenSSL reads no record of the session in the file `session`. The server accepts the ticket, and
    /// OpenSSL repeats its messages.
    fn opens_nothing(&self, at: &Running, name: &str, session: &str) {
        let text = self.openssl_within("3", at, name, &["-sess_in", session]);
        assert!(!text.contains(VALUE), "{text}");
        assert!(at.asked.lock().unwrap().is_empty());
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Starts a delegation server, which has no certificate of its own.
fn delegation_server(ca: &TestCa) -> (Arc<DelegationServer>, Running) {
    let delegation = Arc::new(DelegationServer::new(ca));
    let keys = PublicKeys::new(SUITES).believing(ca.verifier()).asking(ClientAuthentication::Required);
    let running = Running::start(delegation.clone(), Some(keys));
    (delegation, running)
}

/// Opens a session with the server in the name of a device. OpenSSL writes the ticket of the session to `session.pem`.
fn authenticate(files: &Files, server: &Running, name: &str, more: &[&str]) {
    let text = files.openssl(server, name, &[&["-sess_out", "session.pem"], more].concat());
    assert!(text.contains("New, ") && text.contains(VALUE), "{text}");
    assert!(text.contains("ECDHE-ECDSA-AES128-CCM8"), "the suite of the device: {text}");
    assert!(files.0.join("session.pem").exists(), "{text}");
}

#[test]
fn openssl_resumes_at_the_device_with_the_ticket_of_the_server() {
    let ca = TestCa::new("Works");
    let files = Files::new("ticket", &ca);
    let (delegation, server) = delegation_server(&ca);
    let [lamp, door] = [1, 2].map(OnHost::new);
    authenticate(&files, &server, NAMES[0], &[]);
    {
        let opened = delegation.opened.lock().unwrap();
        assert_eq!((opened.len(), opened[0].device), (1, 1));
        assert!(opened[0].peer.as_deref().is_some_and(|peer| peer.contains("remote")), "{:?}", opened[0].peer);
        assert_eq!(opened[0].until, Some(UNIX_EPOCH + Duration::from_secs(4_102_444_800)));
    }
    // Another device refuses the ticket.
    let other = Running::device(&door);
    files.is_refused(&other, NAMES[0], "session.pem");
    let refused = door.0.lock().unwrap().status().refusals.of(Refused::Unknown);
    assert_eq!((u64::from(refused), refused > 0), (other.server.stop().devices.tickets_refused, true));
    // A ticket without its master secret opens nothing.
    let at_lamp = Running::device(&lamp);
    damage_master(&files.0);
    files.opens_nothing(&at_lamp, NAMES[0], "damaged.pem");
    files.resumes(&at_lamp, NAMES[0], &[]);
    files.resumes(&at_lamp, NAMES[0], &[]);
    assert!(at_lamp.heard("identity: \"connection 0\", resumed: true"), "{:?}", at_lamp.events.lock().unwrap());
    let number = Connection::new(0, 3).unwrap().principal().0;
    assert_eq!(*at_lamp.asked.lock().unwrap(), [Some((ITSELF, number)); 2]);
    // Without an entry of its name, the file gives such a peer no rights.
    let principal = at_lamp.credentials.delegated_as("connection 0", ITSELF, number);
    assert!(at_lamp.credentials.standing(principal).is_none());
    // The device refuses the connection from now on.
    lamp.0.lock().unwrap().refuse(0).unwrap();
    at_lamp.asked.lock().unwrap().clear();
    files.is_refused(&at_lamp, NAMES[0], "session.pem");
    let totals = at_lamp.server.stop();
    assert_eq!(totals.established[Kind::Resumed as usize], 2);
    assert!(totals.devices.tickets_opened >= 3 && totals.resumption.tickets_opened == 0);
    let totals = server.server.stop();
    assert_eq!((totals.devices.tickets_sealed, totals.resumption.tickets_sealed), (1, 0));
}

#[test]
fn a_client_that_returns_to_the_server_gets_a_ticket_with_the_old_time() {
    let ca = TestCa::new("Works");
    let files = Files::new("renewed", &ca);
    let (delegation, server) = delegation_server(&ca);
    authenticate(&files, &server, NAMES[1], &[]);
    files.resumes(&server, NAMES[1], &[]);
    let opened = delegation.opened.lock().unwrap();
    assert_eq!(opened.len(), 2);
    assert_eq!((opened[1].device, opened[1].since), (2, opened[0].since));
    assert_eq!(opened[1].peer.as_deref(), Some("one who came back"));
    assert_eq!(opened[1].session.principal, Connection::new(9, 3).unwrap().principal());
    drop(opened);
    let totals = server.server.stop();
    assert_eq!((totals.devices.tickets_sealed, totals.established[Kind::Resumed as usize]), (2, 1));
}

#[test]
fn openssl_without_tickets_resumes_a_session_that_was_handed_over() {
    let ca = TestCa::new("Works");
    let files = Files::new("id", &ca);
    let (delegation, server) = delegation_server(&ca);
    let lamp = OnHost::new(1);
    let at_lamp = Running::device(&lamp);
    authenticate(&files, &server, NAMES[0], &["-no_ticket"]);
    files.is_refused(&at_lamp, NAMES[0], "session.pem");
    let mut opened = delegation.opened.lock().unwrap().remove(0);
    opened.session.principal = Connection::new(5, 0).unwrap().principal();
    opened.session.since = Some(opened.since);
    let delegation = Delegation { session: opened.session, expires: seconds() + 60 };
    let handle = Handle::Id(opened.id.as_deref().unwrap());
    lamp.0
        .lock()
        .unwrap()
        .keep(HandedOver { state: delegation.state().unwrap().expose(), handle, opens: false })
        .unwrap();
    files.resumes(&at_lamp, NAMES[0], &["-no_ticket"]);
    assert!(at_lamp.heard("identity: \"connection 5\", resumed: true"));
    assert_eq!(at_lamp.server.stop().devices.ids_found, 1);
}

#[test]
fn a_name_that_is_none_of_a_device_gets_no_certificate_of_one() {
    let ca = TestCa::new("Works");
    let files = Files::new("unknown", &ca);
    let (delegation, server) = delegation_server(&ca);
    let text = files.openssl(&server, "window.example", &[]);
    assert!(!text.contains(VALUE) && text.contains("no peer certificate available"), "{text}");
    assert!(delegation.opened.lock().unwrap().is_empty());
}

#[test]
fn nothing_is_left_of_a_delegated_session_that_ended() {
    let ca = TestCa::new("Works");
    let files = Files::new("left", &ca);
    let (_, server) = delegation_server(&ca);
    let at_lamp = Running::device(&OnHost::new(1));
    authenticate(&files, &server, NAMES[0], &[]);
    assert_eq!(server.end_sessions(), 0);
    for _ in 0..2 {
        files.resumes(&at_lamp, NAMES[0], &[]);
    }
    assert!(at_lamp.asked.lock().unwrap().iter().any(Option::is_some), "the peer had a number");
    assert_eq!(at_lamp.end_sessions(), 0);
    // The same peer comes again.
    files.resumes(&at_lamp, NAMES[0], &[]);
    assert!(at_lamp.asked.lock().unwrap().iter().all(|asked| asked.is_some_and(|(device, _)| device == ITSELF)));
    // A peer that returns to the server has the name that the delegate gives.
    files.resumes(&server, NAMES[0], &[]);
    assert_eq!(server.end_sessions(), 0);
}

/// Writes `damaged.pem`: the session in `session.pem` with another master secret.
fn damage_master(dir: &Path) {
    let convert = |args: &[&str]| {
        assert!(Command::new("openssl").current_dir(dir).arg("sess_id").args(args).status().unwrap().success());
    };
    convert(&["-in", "session.pem", "-outform", "DER", "-out", "session.der"]);
    let mut session = std::fs::read(dir.join("session.der")).unwrap();
    // The first OCTET STRING of 48 bytes.
    let master = session.windows(2).position(|head| head == [4, 48]).unwrap() + 2;
    session[master] ^= 1;
    std::fs::write(dir.join("session.der"), session).unwrap();
    convert(&["-inform", "DER", "-in", "session.der", "-out", "damaged.pem"]);
}
