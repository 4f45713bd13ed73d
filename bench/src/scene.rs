//! An access control server without sockets. The benchmarks call its service directly. Its files are in a separate
//! directory.

use crate::failure::failure;
use std::{fs, path::PathBuf, sync::Arc};
use tegmen_bench_line::Failure;
use tegmen_control::{
    access::{
        policy::OwnedParty,
        protokey::{AcceptedBounds, Mode},
    },
    audit::{AuditBounds, AuditLog},
    service::Service,
    state::{Bounds, Credential, NewDevice, State},
};
use tegmen_host::x509::signer::SoftwareKey;
use tegmen_store::{Database, Options, SealingKey};
use tokio::{runtime::Runtime, task::JoinSet};

const POLICY: &str = r#"[[rule]]
subject = "tag:display"
publisher = "tag:kitchen"
allow = "read /*"

[[rule]]
subject = "tag:display"
publisher = "controller"
allow = "POST /ace-group/*"

[[rule]]
subject = "CN=peer-*"
publisher = "tag:delegated"
allow = "GET /v"
"#;

/// Number of devices or groups that are added at the same time. So one commit of the database contains many devices or
/// groups.
pub(crate) const AT_ONCE: usize = 256;

/// An access control service, the key that signs its audit log, and its database.
type Opened = (Arc<Service<Database>>, Arc<SoftwareKey>, Database);

/// The directory of the server, and the runtime of the server. The directory is removed when this value is dropped.
pub(crate) struct Scene(pub(crate) PathBuf, pub(crate) Runtime);

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Scene {
    pub(crate) fn new() -> Result<Self, Failure> {
        let dir =
            std::env::current_dir().map_err(failure)?.join(format!("target/bench-control-{}", std::process::id()));
        Self::at(dir)
    }

    /// Creates the directory `dir`, and writes a sealing key into it.
    pub(crate) fn at(dir: PathBuf) -> Result<Self, Failure> {
        fs::create_dir_all(&dir).map_err(failure)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
        let key = dir.join("sealing.key");
        fs::write(&key, "4".repeat(64)).map_err(failure)?;
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).map_err(failure)?;
        Ok(Self(dir, runtime))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs a future of the service until it is complete.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.1.block_on(future)
    }

    /// Runs `work` for each item of `many`. At most [`AT_ONCE`] items are worked on at the same time.
    pub(crate) fn at_once<T, F>(
        &self,
        many: impl IntoIterator<Item = Result<T, Failure>>,
        work: impl Fn(T) -> F,
    ) -> Result<(), Failure>
    where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let mut many = many.into_iter();
        self.1.block_on(async {
            let mut all = JoinSet::new();
            loop {
                while all.len() < AT_ONCE
                    && let Some(one) = many.next()
                {
                    all.spawn(work(one?));
                }
                let Some(done) = all.join_next().await else { return Ok(()) };
                done.map_err(failure)??;
            }
        })
    }

    fn database(&self, name: &str) -> Result<Database, Failure> {
        let sealing = Some(Arc::new(SealingKey::from_file(&self.file("sealing.key")).map_err(failure)?) as Arc<_>);
        Database::open_with(&self.file(name), Options { sealing, ..Options::default() }).map_err(failure)
    }

    pub(crate) fn state(&self, name: &str) -> Result<State<Database>, Failure> {
        self.state_of(self.database(name)?)
    }

    fn state_of(&self, database: Database) -> Result<State<Database>, Failure> {
        let sessions = AcceptedBounds { identities: 4_000_000, each: 4_000_000, ..AcceptedBounds::default() };
        let bounds = Bounds { sessions, ..Bounds::default() };
        self.1.block_on(State::open(database, bounds, Box::new(|_| {}))).map_err(failure)
    }

    /// Creates a service with a policy, and with the publisher `oven` and the subscriber `display`.
    pub(crate) fn service(&self) -> Result<Opened, Failure> {
        let pair = rcgen::KeyPair::generate().map_err(failure)?;
        let signer = Arc::new(SoftwareKey::from_pem(pair.serialize_pem().as_bytes()).map_err(failure)?);
        let audit = AuditLog::open(&self.file("audit.log"), Arc::clone(&signer) as _, AuditBounds::default());
        let database = self.database("grants.db")?;
        let service = Service::new(self.state_of(database.clone())?, audit.map_err(failure)?).map_err(failure)?;
        self.1.block_on(async {
            service.apply_policy("operator", ("policy.toml", POLICY), None).await.map_err(failure)?;
            for (words, credential) in [
                ("oven tag:kitchen", Credential::Protokey(Mode::Bound)),
                ("display tag:display", Credential::SharedKey),
            ] {
                service.add("operator", &device(words, credential)?).await.map_err(failure)?;
            }
            Ok((Arc::new(service), signer, database))
        })
    }
}

/// Makes a new device with a secret. `words` contains the name and the tags of the device.
pub(crate) fn device(words: &str, credential: Credential) -> Result<NewDevice, Failure> {
    let party = OwnedParty::from_words(words.split(' ')).map_err(failure)?;
    NewDevice::secret(party, credential, &[7; 16]).map_err(Failure::new)
}
