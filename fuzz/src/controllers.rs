//! Executes scripts of events for two controllers of groups, which have one database, and for the devices of a group.

use crate::Input;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use tegmen::axiom::{KeyPath, Rekeyed};
use tegmen_control::group::{Controller, GroupConfig, GroupError, NewMember, Refused, Rekeying};
use tegmen_store::{Database, Options, SealingKey};
use tegmen_trust::provider::HostCrypto;
use tegmen_trust::x509::signer::{Signer, SoftwareKey};
use tokio::runtime::Runtime;

/// Number of levels below the root of the key tree.
const LEVELS: u8 = 2;
/// Number of devices. The group has space for fewer devices.
const DEVICES: usize = 6;
/// Number of SenderIDs of the group.
const SENDERS: u16 = 3;
/// Maximum number of steps in one script. The number is small because each step commits to the database and signs.
const STEPS: usize = 24;

/// The database, the key and the runtime that all scripts use.
struct Bench {
    runtime: Runtime,
    database: Database,
    signer: Arc<SoftwareKey>,
    /// Number of scripts that have run in this process.
    scripts: Cell<u64>,
}

thread_local! {
    static BENCH: Bench = Bench::new();
}

/// Returns the directory of the databases: `/dev/shm`, which is in memory, if it exists.
fn parent() -> PathBuf {
    Some(PathBuf::from("/dev/shm")).filter(|memory| memory.is_dir()).unwrap_or_else(std::env::temp_dir)
}

/// Removes the databases of processes that have ended.
fn remove_leftovers() {
    for entry in std::fs::read_dir(parent()).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let process = name.strip_prefix("tegmen-fuzz-");
        if process.is_some_and(|id| !PathBuf::from("/proc").join(id).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Bench {
    fn new() -> Self {
        remove_leftovers();
        let dir = parent().join(format!("tegmen-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let key = dir.join("key");
        std::fs::write(&key, "4".repeat(64)).expect("a file");
        #[cfg(unix)]
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("our file");
        let sealing = Arc::new(SealingKey::from_file(&key).expect("a key"));
        let options = Options { sealing: Some(sealing), ..Options::default() };
        let database = Database::open_with(&dir.join("groups.db"), options).expect("a new database");
        let signer = Arc::new(SoftwareKey::from_pem(include_bytes!("../x509/controller.pem")).expect("our own"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        Self { runtime, database, signer, scripts: Cell::new(0) }
    }

    fn controller(&self, signs: bool) -> Controller<Database> {
        let signer = signs.then(|| Arc::clone(&self.signer) as Arc<dyn Signer>);
        Controller::new(self.database.clone(), signer).expect("random numbers")
    }
}

/// A device with the keys that it received last.
struct Device {
    keys: KeyPath<{ LEVELS as usize + 1 }>,
    checks_signatures: bool,
    /// For an evicted device, the last epoch in which it was a member. `None` for a member.
    until: Option<u16>,
}

struct Script<'b> {
    bench: &'b Bench,
    group: String,
    signs: bool,
    controllers: [Controller<Database>; 2],
    devices: BTreeMap<usize, Device>,
    replicas: BTreeSet<String>,
    sent: Vec<Vec<u8>>,
    /// The master secrets of all epochs.
    masters: BTreeMap<u16, [u8; 48]>,
    epoch: u16,
}

/// Reads the bytes as a script for a group. Members are admitted, join again, leave or are evicted at one of two
/// controllers. Controllers start again or get a SenderID. Devices receive rekey messages late, several times or never.
/// Each change must begin exactly the next epoch. No SenderID and no address is given twice, and all members have the
/// same secrets. An evicted device gets no keys, and no message brings it into an epoch after its last epoch.
pub fn script(data: &[u8]) {
    BENCH.with(|bench| {
        let mut input = Input::new(data);
        let number = bench.scripts.get();
        bench.scripts.set(number + 1);
        let signs = input.byte() & 1 == 0;
        let last_epoch = 2 + u16::from(input.byte() % 32);
        let group = format!("group-{number}");
        let controllers = [bench.controller(signs), bench.controller(signs)];
        let address = SocketAddr::from(([0xff15, 0, 0, 0, 0, 0, 0, 1], 5684));
        let config = GroupConfig { levels: LEVELS, last_epoch, senders: SENDERS, ..GroupConfig::at(address) };
        bench.runtime.block_on(async {
            controllers[0].create(&group, config, &[]).await.expect("a new group");
            let (devices, replicas, sent, masters) = Default::default();
            let mut script = Script { bench, group, signs, controllers, devices, replicas, sent, masters, epoch: 1 };
            for _ in 0..STEPS {
                if input.is_empty() {
                    break;
                }
                script.step(&mut input).await;
                script.examine().await;
            }
            script.finish().await;
        });
    });
}

fn name(device: usize) -> String {
    format!("device-{device}")
}

impl Script<'_> {
    async fn step(&mut self, input: &mut Input<'_>) {
        let command = input.byte();
        let which = usize::from(command >> 3) % DEVICES;
        let at = usize::from(command >> 7);
        match command & 7 {
            0 | 1 => self.admit(at, which, input.byte()).await,
            2 => {
                let is_member = self.is_member(which);
                let outcome = self.controllers[at].evict(&self.group, &name(which)).await;
                let is_no_member = matches!(outcome, Err(GroupError::NoMember { .. }));
                assert_eq!(is_no_member, !is_member, "{outcome:?}");
                if self.changed(outcome).await {
                    self.devices.get_mut(&which).expect("a member").until = Some(self.epoch - 1);
                }
            }
            3 => {
                let outcome = self.controllers[at].rekey(&self.group).await;
                self.changed(outcome).await;
            }
            4 => self.controllers[at] = self.bench.controller(self.signs),
            5 => self.hear(which, input.byte()),
            6 => self.replicate(at, which).await,
            _ => self.catch_up(at, which).await,
        }
    }

    fn is_member(&self, which: usize) -> bool {
        self.devices.get(&which).is_some_and(|device| device.until.is_none())
    }

    async fn admit(&mut self, at: usize, which: usize, options: u8) {
        let address =
            (options & 4 == 0).then(|| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(options >> 5))));
        let (sends, checks_signatures) = (options & 1 == 0 || address.is_none(), options & 2 == 0 && self.signs);
        let new = NewMember { name: name(which), address, sends, checks_signatures, public_key: None, oscore: None };
        let outcome = self.controllers[at].admit(&self.group, &new).await;
        if let Err(GroupError::AddressTaken { member, .. }) = &outcome {
            assert_ne!(*member, new.name, "its own address");
        }
        if self.changed(outcome).await {
            let keys = self.controllers[at].parameters(&self.group, &new.name).await.expect("a member");
            assert_eq!((keys.epoch, keys.sender_id.is_some()), (self.epoch, sends));
            let keys = KeyPath::new(&keys.admission()).expect("it fits");
            self.devices.insert(which, Device { keys, checks_signatures, until: None });
        }
    }

    /// Processes the result of a change of the group. Stores the rekey messages of the change, and returns true.
    /// Returns false if the controller refused the change for an allowed reason. The group is then unchanged.
    async fn changed(&mut self, outcome: Result<Rekeying, GroupError>) -> bool {
        match outcome {
            Ok(rekeying) => {
                assert_eq!(rekeying.epoch, self.epoch + 1);
                self.epoch = rekeying.epoch;
                self.sent.extend(rekeying.messages.into_iter().map(|message| message.bytes));
                true
            }
            Err(
                GroupError::NoMember { .. }
                | GroupError::AddressTaken { .. }
                | GroupError::NoSenderId(SENDERS)
                | GroupError::Refused(Refused::Full | Refused::LastEpoch),
            ) => false,
            Err(other) => panic!("{other}"),
        }
    }

    /// Delivers a rekey message to a device. The message may be old, or from a time before the device was admitted.
    fn hear(&mut self, which: usize, message: u8) {
        let at = usize::from(message) % self.sent.len().max(1);
        let (Some(device), Some(message)) = (self.devices.get_mut(&which), self.sent.get(at)) else { return };
        let key = (device.checks_signatures && self.signs).then(|| self.bench.signer.public_key());
        let before = device.keys.epoch();
        let opened = device.keys.open(&mut HostCrypto::new([1; 32], 0), key, message);
        assert_eq!(device.keys.epoch(), before + u16::from(opened == Ok(Rekeyed::Epoch)));
        assert!(device.until.is_none_or(|until| device.keys.epoch() <= until), "it got beyond its eviction");
    }

    /// Lets the controller with the index `at` give a SenderID to one of two replicas, which `which` selects. If the
    /// replica already has a SenderID, the controller removes this SenderID instead.
    async fn replicate(&mut self, at: usize, which: usize) {
        let replica = format!("replica-{}", which % 2);
        if self.replicas.contains(&replica) {
            let outcome = self.controllers[at].retire(&self.group, &replica).await;
            if self.changed(outcome).await {
                self.replicas.remove(&replica);
            }
        } else {
            match self.controllers[at].replica(&self.group, &replica).await {
                Ok(_) => assert!(self.replicas.insert(replica)),
                Err(GroupError::NoSenderId(SENDERS)) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// Lets a device request the keys of the current epoch.
    async fn catch_up(&mut self, at: usize, which: usize) {
        let outcome = self.controllers[at].parameters(&self.group, &name(which)).await;
        let device = self.devices.get_mut(&which).filter(|device| device.until.is_none());
        match (outcome, device) {
            (Ok(keys), Some(device)) => {
                assert_eq!(keys.epoch, self.epoch);
                device.keys.catch_up(&keys.admission()).expect("it is not older");
                let master = *device.keys.master_secret::<HostCrypto>().expose();
                assert_eq!(*self.masters.entry(self.epoch).or_insert(master), master, "two secrets of an epoch");
            }
            (Err(GroupError::NoMember { .. }), None) => {}
            (outcome, _) => panic!("{:?}", outcome.err()),
        }
    }

    /// Checks that both controllers show the operator the same group: with the current epoch, and with the members that
    /// the steps of the script have admitted and not evicted.
    async fn examine(&mut self) {
        let shown = [self.controllers[0].show(&self.group).await, self.controllers[1].show(&self.group).await];
        let [first, second] = shown.map(|report| report.expect("the group is there"));
        assert_eq!(first, second);
        assert_eq!(first.epoch, self.epoch);
        let members = self.devices.iter().filter(|(_, device)| device.until.is_none());
        let names: BTreeSet<String> = members.map(|(which, _)| name(*which)).collect();
        assert_eq!(first.members.iter().map(|(name, _)| name.clone()).collect::<BTreeSet<_>>(), names);
        let addresses: Vec<_> = first.members.iter().filter_map(|(_, member)| member.address).collect();
        let ids = first.members.iter().filter_map(|(_, member)| member.sender_id);
        let ids: Vec<_> = ids.chain(first.replicas.iter().map(|(_, id)| *id)).collect();
        assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), addresses.len(), "an address twice");
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "a SenderID twice");
        assert!(ids.len() <= usize::from(SENDERS) && first.members.len() <= 1 << LEVELS);
    }

    /// Starts both controllers again. Lets all members request the current keys, and deletes the group.
    async fn finish(mut self) {
        self.controllers = [self.bench.controller(self.signs), self.bench.controller(self.signs)];
        self.examine().await;
        for which in 0..DEVICES {
            self.catch_up(which % 2, which).await;
        }
        self.controllers[0].delete(&self.group, None).await.expect("the group is there");
        let gone = self.controllers[1].show(&self.group).await;
        assert!(matches!(gone, Err(GroupError::NoGroup(_))), "{gone:?}");
    }
}
