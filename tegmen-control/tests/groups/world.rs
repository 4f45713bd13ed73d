//! The members and the evicted members of a group, whose controller has a database in a file. All messages that the
//! controller seals are recorded.

pub(crate) use crate::disk::{Counting, Moment, Scene, wait};
use crate::recorder::{Recording, Seals};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use tegmen::axiom::{KeyPath, Rekeyed};
use tegmen_control::group::{Controller, GroupConfig, NewMember, Rekeying};
use tegmen_store::store::Scan;
use tegmen_store::{Database, Store};
use tegmen_trust::provider::HostCrypto;
use tegmen_trust::x509::signer::{Signer, SoftwareKey};

/// The name of the group in the tests.
pub(crate) const LAMPS: &str = "lamps";
pub(crate) type Keys = KeyPath<8>;
pub(crate) fn software_key() -> Arc<SoftwareKey> {
    let pair = rcgen::KeyPair::generate().unwrap();
    Arc::new(SoftwareKey::from_pem(pair.serialize_pem().as_bytes()).unwrap())
}

/// Returns the keys of all rows of groups in the database.
pub(crate) fn rows(database: &Database) -> Vec<String> {
    let page = database.scan(Scan::of("group/", 1000)).wait().unwrap();
    page.entries.iter().map(|entry| String::from_utf8(entry.key.clone()).unwrap()).collect()
}

/// Returns the configuration of a group with 8 leaves, 100 epochs and 4 SenderIDs.
pub(crate) fn config() -> GroupConfig {
    GroupConfig { levels: 3, last_epoch: 100, senders: 4, ..GroupConfig::at("[ff15::1]:5684".parse().unwrap()) }
}

/// Returns a new member with the address fd00::`host`. It checks signatures if `host` is odd.
pub(crate) fn member(name: &str, host: u8, sends: bool) -> NewMember {
    let address = Some(IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into())));
    NewMember {
        name: name.to_owned(),
        address,
        sends,
        checks_signatures: host % 2 == 1,
        public_key: None,
        oscore: None,
    }
}

/// The devices of a group: members that receive all messages, and evicted members.
pub(crate) struct Devices {
    pub(crate) signer: Arc<SoftwareKey>,
    pub(crate) seals: Seals,
    members: BTreeMap<String, (Keys, bool)>,
    evicted: Vec<Keys>,
    history: Vec<Vec<u8>>,
    /// The name of the owner of each SenderID in each epoch. The key is the epoch and the SenderID.
    sender_ids: BTreeMap<(u16, u8), String>,
}

impl Devices {
    pub(crate) fn new() -> Self {
        let (signer, seals) = (software_key(), Seals::default());
        let (members, evicted, history) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { signer, seals, members, evicted, history, sender_ids: BTreeMap::new() }
    }

    pub(crate) fn controller<S: Store>(&self, store: S) -> Controller<S, Recording> {
        let signer = Arc::clone(&self.signer) as Arc<dyn Signer>;
        Controller::with(store, Some(signer), Recording::new(&self.seals, HostCrypto::from_os().unwrap()))
    }

    /// Gives a device its parameters. From then on the device is a member.
    pub(crate) fn admit<S: Store>(&mut self, controller: &Controller<S, Recording>, name: &str) {
        let parameters = wait(controller.parameters(LAMPS, name)).unwrap();
        let keys = Keys::new(&parameters.admission()).unwrap();
        let report = wait(controller.show(LAMPS)).unwrap();
        let checks = report.members.iter().any(|(known, member)| known == name && member.checks_signatures);
        self.members.insert(name.to_owned(), (keys, checks));
    }

    /// Moves a device to the evicted members. The device keeps the keys that it has.
    pub(crate) fn evict(&mut self, name: &str) {
        self.evicted.extend(self.members.remove(name).map(|(keys, _)| keys));
    }

    /// Lets all devices open the messages of a change: see [`Self::open`]. Then checks that the members have the keys
    /// of the controller.
    pub(crate) fn hear<S: Store>(&mut self, controller: &Controller<S, Recording>, rekeying: &Rekeying) {
        self.open(rekeying);
        self.check(controller, rekeying.epoch);
    }

    /// Lets all devices open the messages of a change. Checks that each member is then in the new epoch, and that an
    /// evicted member opens neither these messages nor earlier ones.
    pub(crate) fn open(&mut self, rekeying: &Rekeying) {
        let messages: Vec<Vec<u8>> = rekeying.messages.iter().map(|message| message.bytes.clone()).collect();
        let crypto = &mut HostCrypto::from_os().unwrap();
        self.history.extend(messages.iter().cloned());
        for keys in &mut self.evicted {
            for message in &self.history {
                let opened = keys.open(crypto, Some(self.signer.public_key()), message);
                assert!(!matches!(opened, Ok(Rekeyed::Nodes | Rekeyed::Epoch)), "an evicted member opened a message");
            }
        }
        for (keys, checks) in self.members.values_mut() {
            let key = checks.then(|| self.signer.public_key());
            for message in &messages {
                let _ = keys.open(crypto, key, message);
            }
            assert_eq!(keys.epoch(), rekeying.epoch, "a member misses nothing");
        }
        assert_eq!(self.seals.lock().unwrap().repeated, 0, "a key and a nonce have two contents");
    }

    /// Checks that the controller is in this epoch, that each SenderID has one owner, and that each member has the keys
    /// of the controller.
    fn check<S: Store>(&mut self, controller: &Controller<S, Recording>, epoch: u16) {
        let report = wait(controller.show(LAMPS)).unwrap();
        assert_eq!(report.epoch, epoch);
        let of_members = report.members.iter().filter_map(|(name, member)| Some((name, member.sender_id?)));
        let of_replicas = report.replicas.iter().map(|(name, id)| (name, *id));
        for (name, id) in of_members.chain(of_replicas) {
            let known = self.sender_ids.entry((report.epoch, id)).or_insert_with(|| name.clone());
            assert_eq!(known, name, "a SenderID has two owners in one epoch");
        }
        for (name, (keys, _)) in &self.members {
            let parameters = wait(controller.parameters(LAMPS, name)).unwrap();
            let path = Keys::new(&parameters.admission()).unwrap();
            assert_eq!(
                path.master_secret::<HostCrypto>().expose(),
                keys.master_secret::<HostCrypto>().expose(),
                "{name} has the keys of the controller"
            );
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }
}
