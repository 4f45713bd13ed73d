//! An access control server over real sockets with the devices `oven`, `display` and `mallory`, for tests.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tegmen_control::access::policy::OwnedParty;
use tegmen_control::access::protokey::Mode;
use tegmen_control::audit::{AuditBounds, AuditLog};
use tegmen_control::server::{AccessServer, Revocations, SharedKeys};
use tegmen_control::service::Service;
use tegmen_control::state::{Bounds, Credential, NewDevice, State};
use tegmen_host::credentials::Credentials;
use tegmen_host::server::{Event, Server};
use tegmen_host::x509::signer::SoftwareKey;
use tegmen_store::{Database, Options, SealingKey};

/// The protokey of `oven`, and the key that the other devices share with the server.
pub(crate) const KEY: [u8; 16] = [7; 16];
const POLICY: &str = r#"[[rule]]
subject = "tag:display"
publisher = "tag:kitchen"
allow = "read /*"
"#;

/// A temporary directory, which is removed when the value is dropped.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Self {
        let dir = Self(std::env::temp_dir().join(format!("tegmen-{name}-{}", std::process::id())));
        let _ = std::fs::remove_dir_all(&dir.0);
        std::fs::create_dir_all(&dir.0).expect("a directory");
        dir
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An access control server with its database.
pub(crate) struct Access {
    pub(crate) server: Server,
    pub(crate) service: Arc<Service<Database>>,
    pub(crate) database: Database,
    failures: Arc<Mutex<Vec<String>>>,
}

impl Access {
    /// Starts the server. The first address of the server is for DTLS, and the second is for CoAP in clear. `oven` is
    /// the address at which the publisher accepts tokens.
    pub(crate) async fn start(dir: &Dir, oven: Option<SocketAddr>, bounds: Bounds) -> Self {
        let key = dir.0.join("key");
        std::fs::write(&key, "4".repeat(64)).expect("a file");
        #[cfg(unix)]
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("permissions");
        let sealing = Arc::new(SealingKey::from_file(&key).expect("a key"));
        let options = Options { sealing: Some(sealing), ..Options::default() };
        let database = Database::open_with(&dir.0.join("access.db"), options).expect("a database");
        let revocations = Revocations::default();
        let events = revocations.clone();
        let state = State::open(database.clone(), bounds, Box::new(move |event| events.take(&event))).await;
        let pair = rcgen::KeyPair::generate().expect("a key");
        let signer = SoftwareKey::from_pem(pair.serialize_pem().as_bytes()).expect("a key");
        let audit = AuditLog::open(&dir.0.join("audit.log"), Arc::new(signer), AuditBounds::default()).expect("a log");
        let service = Arc::new(Service::new(state.expect("a state"), audit).expect("randomness"));
        service.apply_policy("operator", ("policy.toml", POLICY), None).await.expect("a policy");
        for (words, credential) in [
            ("oven tag:kitchen", Credential::Protokey(Mode::Bound)),
            ("display tag:display", Credential::SharedKey),
            ("mallory tag:display", Credential::SharedKey),
        ] {
            let party = OwnedParty::from_words(words.split(' ')).expect(words);
            let mut device = NewDevice::secret(party, credential, &KEY).expect("a device");
            if let Some(address) = oven.filter(|_| credential != Credential::SharedKey) {
                device = device.at(address).expect("an address");
            }
            service.add("operator", &device).await.expect("added");
        }
        let credentials = Credentials::default();
        let application = AccessServer::new(Arc::clone(&service), credentials.clone(), revocations);
        let builder = Server::builder().listen("coaps://127.0.0.1:0").listen("coap://127.0.0.1:0").allow_plain();
        let builder = builder.shards(1).credentials(credentials);
        let failures = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&failures);
        let builder = builder.on_event(move |event| {
            if matches!(&event, Event::Request(answered) if answered.code.class() == 5) {
                seen.lock().expect("no panic").push(event.to_string());
            }
        });
        let server = builder.key_store(SharedKeys(Arc::clone(&service))).serve(application).expect("a server");
        Self { server, service, database, failures }
    }

    /// Removes and returns the lines of the operator's log about responses with a code 5.xx.
    pub(crate) fn failures(&self) -> Vec<String> {
        std::mem::take(&mut self.failures.lock().expect("no panic"))
    }
}
