//! Delegation: a server does the handshake with certificates in the name of a lamp, and gives the client a ticket. With
//! this ticket the client resumes the session at the lamp, which has neither a certificate nor a private key.
//!
//! `cargo run -p tegmen-host --example delegation`
//!
//! The lamp and the server share an epoch, which contains the key that protects the tickets. `tegmen serve` is such a
//! server, and keeps its state in a store: docs/delegation.md.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::convert::Infallible;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use tegmen::buf::Writer;
use tegmen::coap::Code;
use tegmen::dtls::{CipherSuite, SessionState, Suites};
use tegmen::secret::Secret;
use tegmen_delegation::{
    Connection, Delegation, Device, DeviceKey, Epoch, Issuer, LONGEST_TICKET, Lost, Memory, Ticket,
};
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::clock;
use tegmen_host::credentials::Credentials;
use tegmen_host::delegate::{Delegate, Delegated, Proved};
use tegmen_host::provider::HostCrypto;
use tegmen_host::public_keys::PublicKeys;
use tegmen_host::server::{Kind, Router, Server};
use tegmen_host::uri::Scheme;
use tegmen_host::x509::signer::SoftwareKey;
use tegmen_host::x509::{Settings, Trust, Verifier};

/// The only cipher suite of delegated sessions.
const SUITES: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8]);
const LAMP: &str = "lamp.example";
/// The number by which the server identifies the lamp.
const NUMBER: u32 = 1;
/// A lifetime of tickets, in seconds.
const HOUR: u32 = 3600;

fn seconds() -> u32 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs() as u32)
}

/// Returns the epoch of the lamp and the server. The lamp and the server derive the epoch from the key of the lamp and
/// from a session between them. In this example both inputs are constant.
fn epoch() -> Result<Epoch, &'static str> {
    let first = Epoch::first(DeviceKey(Secret::new([1; 32])));
    first.next::<HostCrypto>(&Secret::new([2; 32])).ok_or("there is no further epoch")
}

/// The server, which has the certificate of the lamp.
struct DelegationServer(Arc<PublicKeys>, Mutex<(Issuer, HostCrypto)>);

impl Delegate for DelegationServer {
    fn device(&self, server_name: &[u8]) -> Option<u32> {
        (server_name == LAMP.as_bytes()).then_some(NUMBER)
    }

    fn credentials(&self, _: u32) -> Option<Arc<PublicKeys>> {
        Some(Arc::clone(&self.0))
    }

    /// Seals the ticket of a client. A real server decides here about the rights of the client. The server passes these
    /// rights as the scope, which is the second argument of [`Connection::new`].
    fn seal(&self, _: u32, _: Option<Proved<'_>>, session: &SessionState, ticket: &mut Writer<'_>) -> Option<u32> {
        let (issuer, crypto) = &mut *self.1.lock().unwrap_or_else(PoisonError::into_inner);
        let principal = Connection::new(0, 0)?.principal();
        let master = Secret::new(*session.master.expose());
        let session = SessionState { master, principal, since: Some(seconds()), ..*session };
        let mut storage = [0; LONGEST_TICKET];
        let sealed = issuer.seal(crypto, &Delegation { session, expires: seconds() + HOUR }, &mut storage).ok()?;
        ticket.put(sealed.0).ok()?;
        Some(HOUR)
    }

    fn open(&self, _: u32, _: &[u8]) -> Option<Delegated> {
        None
    }

    fn find(&self, _: u32, _: &[u8]) -> Option<Delegated> {
        None
    }

    fn remember(&self, _: u32, _: Option<Proved<'_>>, _: &[u8], _: &SessionState) {}
}

/// The memory of the lamp. A real device stores its epoch, and the connections that it refuses: see `FlashMemory`.
struct Ram(Option<Epoch>);

impl Memory for Ram {
    type Error = Infallible;

    fn load(&mut self, epoch: &mut Epoch, _: &mut [u32]) -> Result<usize, Lost> {
        *epoch = self.0.take().ok_or(Lost)?;
        Ok(0)
    }

    fn keep_epoch(&mut self, _: &Epoch) -> Result<(), Infallible> {
        Ok(())
    }

    fn keep_refused(&mut self, _: u16, _: u32) -> Result<(), Infallible> {
        Ok(())
    }
}

/// The lamp.
struct Lamp(Mutex<(Device<Ram, 4, 4, 64>, HostCrypto)>);

impl Delegate for Lamp {
    fn device(&self, _: &[u8]) -> Option<u32> {
        Some(NUMBER)
    }

    fn credentials(&self, _: u32) -> Option<Arc<PublicKeys>> {
        None
    }

    fn seal(&self, _: u32, _: Option<Proved<'_>>, _: &SessionState, _: &mut Writer<'_>) -> Option<u32> {
        None
    }

    fn open(&self, _: u32, ticket: &[u8]) -> Option<Delegated> {
        let (device, crypto) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = device.open(clock::now(), crypto, Ticket(ticket)).ok()?.session;
        let connection = Connection::of(session.principal)?;
        Some(Delegated { peer: format!("connection {}", connection.number), session, renew: false })
    }

    fn find(&self, _: u32, _: &[u8]) -> Option<Delegated> {
        None
    }

    fn remember(&self, _: u32, _: Option<Proved<'_>>, _: &[u8], _: &SessionState) {}
}

/// Starts the delegation server. Returns the server, and the keys of a client. The client trusts the authority that
/// issued the certificate of the lamp.
fn delegation_server() -> Result<(Server, PublicKeys), Box<dyn Error>> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let mut trust = Trust::default();
    trust.add_anchors(authority.pem().as_bytes())?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![LAMP.to_owned()])?.signed_by(&key, &authority)?.der().to_vec();
    let signer = Arc::new(SoftwareKey::from_pem(key.serialize_pem().as_bytes())?);
    let keys = Arc::new(PublicKeys::new(SUITES).with_chain(&[certificate], signer)?);
    let delegate = DelegationServer(keys, Mutex::new((Issuer::new(epoch()?, None, 0), HostCrypto::from_os()?)));

    let verifier = Arc::new(Verifier::new(trust, Settings::default()));
    let server = Server::builder()
        .listen("coaps://127.0.0.1:0")
        .trust(PublicKeys::new(SUITES))
        .delegate(Arc::new(delegate))
        .serve(Router::new())?;
    Ok((server, PublicKeys::new(SUITES).believing(verifier).expecting(LAMP)))
}

async fn run() -> Result<(), Box<dyn Error>> {
    let (server, keys) = delegation_server()?;
    let mut device = Device::load(Ram(Some(epoch()?))).map_err(|_| "the lamp has no epoch")?;
    device.set_time(clock::now(), seconds());
    let credentials = Credentials::default();
    let known = credentials.clone();
    let lamp = Server::builder()
        .listen("coaps://127.0.0.1:0")
        .credentials(credentials)
        .delegate(Arc::new(Lamp(Mutex::new((device, HostCrypto::from_os()?)))))
        .policy_later(move |request, _| Some(known.delegated(request.identity.principal).is_some()))
        .on_event(|event| println!("lamp: {event}"))
        .serve(Router::new().get("/light", |_, response| response.payload(b"on")))?;

    let config = ClientConfig::default().with(|config| {
        config.trust.public_keys = Some(keys);
        config.state.hand_over = true;
    });
    let session = Session::connect_to(server.addresses()[0].address, Scheme::Coaps, config).await?;
    let resumable = session.take_resumable().ok_or("the server gave no ticket")?;
    println!("client: the server has the certificate of {LAMP}; its ticket has {} bytes", resumable.handle.len());
    session.close();

    let config = ClientConfig::default().with(|config| {
        // No keys: the name and the cipher suite alone.
        config.trust.public_keys = Some(PublicKeys::new(SUITES).expecting(LAMP));
        config.state.handed_over = Some(Arc::new(resumable));
    });
    let session = Session::connect_to(lamp.addresses()[0].address, Scheme::Coaps, config).await?;
    let response = session.get("/light").await?;
    println!("client: GET /light: {} {}", response.code, String::from_utf8_lossy(&response.payload));
    if (response.code, &response.payload[..]) != (Code::CONTENT, b"on") {
        return Err("the lamp did not answer".into());
    }
    session.close();
    server.stop();
    if lamp.stop().established[Kind::Resumed as usize] != 1 {
        return Err("the lamp did not resume the session".into());
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
