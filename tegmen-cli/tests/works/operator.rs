//! An access control server for tests: the files of its operator, and its devices.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use tegmen_control::access::policy::OwnedParty;
use tegmen_control::access::protokey::{Mode, Protokey, SessionIdentity};
use tegmen_control::state::{Bounds, Credential, NewDevice, State};
use tegmen_host::provider::HostCrypto;
use tegmen_store::{Database, Options, SealingKey};

pub(crate) const SHARED_KEY: [u8; 16] = [7; 16];
pub(crate) const PROTOKEY: [u8; 32] = [9; 32];
pub(crate) const POLICY: &str = r#"[[rule]]
name = "displays read"
subject = "tag:display"
publisher = "tag:kitchen"
allow = "read /*"
"#;
pub(crate) const OPTIONS: &str =
    "--store access.db --sealing-key sealing.key --policy policy.toml --audit audit.log --audit-key audit.pem";

pub(crate) fn secret(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join(name), text).unwrap();
    std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(0o600)).unwrap();
}

/// Changes the state in the store of a server that does not run.
pub(crate) fn with_state(dir: &Path, change: impl AsyncFnOnce(&State<Database>)) {
    let key = SealingKey::from_file(&dir.join("sealing.key")).unwrap();
    let options = Options { sealing: Some(Arc::new(key)), ..Options::default() };
    let database = Database::open_with(&dir.join("access.db"), options).unwrap();
    runtime()
        .block_on(async { change(&State::open(database, Bounds::default(), Box::new(|_| {})).await.unwrap()).await });
}

/// Writes the files of an operator, and adds the devices.
pub(crate) fn furnish(dir: &Path) {
    secret(dir, "sealing.key", &"4".repeat(64));
    secret(dir, "audit.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    std::fs::write(dir.join("policy.toml"), POLICY).unwrap();
    let party = |words: &str| OwnedParty::from_words(words.split(' ')).unwrap();
    let devices = [
        NewDevice::secret(party("oven tag:kitchen"), Credential::Protokey(Mode::Bound), &PROTOKEY).unwrap(),
        NewDevice::secret(party("display tag:display"), Credential::SharedKey, &SHARED_KEY).unwrap(),
        NewDevice::secret(party("mallory tag:display"), Credential::SharedKey, &SHARED_KEY).unwrap(),
        NewDevice::secret(party("lamp"), Credential::SharedKey, &SHARED_KEY).unwrap(),
    ];
    with_state(dir, async |state| {
        for device in &devices {
            state.add(device).await.unwrap();
        }
    });
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns the key that the oven derives for its session with a subscriber.
pub(crate) fn derived(identity: &str, subscriber: &str) -> Vec<u8> {
    let identity = SessionIdentity::parse(identity.as_bytes()).unwrap();
    let protokey = Protokey::new(&PROTOKEY).unwrap();
    protokey.session_key::<HostCrypto>(Mode::Bound, identity, subscriber).expose().to_vec()
}
