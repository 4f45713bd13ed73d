//! The program of a server that resumes sessions. It is either a device on a host, or a server that delegates nothing
//! and issues its own tickets.

use super::{
    authority::Authority,
    devices::Ram,
    peers::{Kept, copy},
    server::Process,
};
use crate::failure::failure;
use rcgen::ExtendedKeyUsagePurpose;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};
use tegmen::{
    buf::Writer,
    crypto::Crypto as _,
    dtls::{CipherSuite, ClientAuthentication, SessionState},
    secret::Secret,
};
use tegmen_bench_line::Failure;
use tegmen_delegation::{Connection, Delegation, Device, DeviceKey, Epoch, Issuer, LONGEST_TICKET, PSK_LEN, Ticket};
use tegmen_host::{
    clock,
    credentials::Credentials,
    delegate::{Delegate, Delegated, Proved},
    provider::HostCrypto,
    public_keys::PublicKeys,
    resources::Resources,
    server::{HelloLimits, Server, ServerConfig, Severity},
};

pub(crate) const VERB: &str = "resuming-server";
/// The server name (server_name) that peers request at the device and at the server without delegation.
pub(super) const NAME: &str = "gateway.example";
/// Number of verified certificate chains that the server without delegation remembers. It is enough for all clients.
const REMEMBERED: usize = 1 << 14;
/// Time for which the tickets of the device are valid, in seconds.
const LIFETIME: u32 = 24 * 3600;

/// A server that is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A device, which resumes sessions with the tickets of its delegation server.
    Device,
    /// A server that delegates nothing, and resumes the sessions that it has opened itself.
    Bare,
}

impl Kind {
    /// Starts the program of this server.
    pub(super) fn start(self, directory: &Path) -> Result<Process, Failure> {
        let word = if self == Self::Device { "device" } else { "bare" };
        Process::spawn(VERB, &[word.to_owned(), directory.to_string_lossy().into_owned()])
    }
}

fn seconds() -> u32 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs() as u32)
}

/// Makes the epoch of the device. The process of the benchmark makes the same epoch.
fn epoch() -> Result<Epoch, Failure> {
    let first = Epoch::first(DeviceKey(Secret::new([7; PSK_LEN])));
    first.next::<HostCrypto>(&Secret::new([8; PSK_LEN])).ok_or_else(|| Failure::new("no epoch"))
}

/// Makes the sessions and tickets that `count` peers of the device would receive from the delegation server.
pub(super) fn delegated(count: usize) -> Result<Vec<Kept>, Failure> {
    let (mut issuer, mut crypto) = (Issuer::new(epoch()?, None, 0), HostCrypto::from_os().map_err(failure)?);
    let mut all = Vec::new();
    for number in 0..count as u32 {
        let mut master = Secret::zeroed();
        crypto.random(master.expose_mut());
        let connection = Connection::new(number, 0).ok_or_else(|| Failure::new("no such connection"))?;
        let cipher_suite = CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8;
        let since = Some(seconds());
        let session = SessionState { cipher_suite, master, principal: connection.principal(), since };
        let delegation = Delegation { session: copy(&session), expires: seconds() + LIFETIME };
        let mut room = [0; LONGEST_TICKET];
        let ticket = issuer.seal(&mut crypto, &delegation, &mut room).map_err(failure)?.0.to_vec();
        all.push(Kept { session, ticket });
    }
    Ok(all)
}

/// Runs the server until its standard input ends. `words` are the arguments `device|bare DIRECTORY`.
pub(crate) fn serve(words: &[String]) -> Result<(), Failure> {
    let [kind, directory] = words else { return Err(Failure::new(format!("{VERB} device|bare DIRECTORY"))) };
    let is_device = kind == "device";
    let config = ServerConfig::default().with(|config| {
        config.shards = 1;
        config.sessions.hellos = HelloLimits { per_prefix: 0, total: 0 };
        config.log.report_requests = false;
    });
    let credentials = Credentials::default();
    let builder = Server::with(config).listen("coaps://127.0.0.1:0").credentials(credentials.clone());
    let builder = builder.on_event(|event| {
        if matches!(event.severity(), Severity::Warning | Severity::Error) {
            eprintln!("resuming server: {event}");
        }
    });
    let builder = match is_device {
        true => builder.delegate(Arc::new(OnHost::new()?)),
        false => {
            let authority = Authority::open(&PathBuf::from(directory))?;
            let keys = authority.issue(NAME, ExtendedKeyUsagePurpose::ServerAuth)?;
            let keys = keys.believing(authority.verifier(REMEMBERED)?).asking(ClientAuthentication::Required);
            builder.trust(keys)
        }
    };
    let server = builder.serve(Resources::new([])).map_err(failure)?;
    println!("{}", server.addresses()[0].address);
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match line.as_str() {
            "peers" => println!("{}", credentials.peers()),
            other => return Err(Failure::new(format!("not known: {other}"))),
        }
    }
    Ok(())
}

/// A device on a host. It stays in the same epoch.
struct OnHost(Mutex<(Device<Ram, 4, 4, 64>, HostCrypto)>);

impl OnHost {
    fn new() -> Result<Self, Failure> {
        let mut device = Device::load(Ram(Some(epoch()?))).map_err(|_| Failure::new("no device"))?;
        device.set_time(clock::now(), seconds());
        Ok(Self(Mutex::new((device, HostCrypto::from_os().map_err(failure)?))))
    }
}

impl Delegate for OnHost {
    fn device(&self, _: &[u8]) -> Option<u32> {
        Some(1)
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
