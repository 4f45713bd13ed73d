//! Executes scripts of events for the key tree of a controller, and for current and evicted members.

use crate::Input;
use std::collections::BTreeMap;
use tegmen::axiom::{KeyPath, Rekeyed};
use tegmen_control::group::{Change, KeyTree, RekeyMessage};
use tegmen_trust::provider::HostCrypto;
use tegmen_trust::x509::signer::{Signer, SoftwareKey};

/// Number of levels below the root of the key tree.
const LEVELS: u8 = 2;
/// Maximum number of changes and deliveries in one script. The number is small because signatures are slow.
const STEPS: usize = 64;

/// A current or an evicted member.
struct Member {
    keys: KeyPath<{ LEVELS as usize + 1 }>,
    leaf: u32,
    checks_signatures: bool,
    /// For an evicted member, the last epoch in which it was a member. `None` for a current member.
    until: Option<u16>,
}

struct Script {
    crypto: HostCrypto,
    signer: SoftwareKey,
    tree: KeyTree,
    members: Vec<Member>,
    sent: Vec<RekeyMessage>,
    /// The master secrets of all epochs.
    masters: BTreeMap<u16, [u8; 48]>,
}

/// Reads the bytes as a script: joins, evictions, new epochs, and rekey messages. Messages are delivered late,
/// delivered several times, damaged, or made by an outsider. No member may accept a message that the controller did not
/// send. The epoch of a member never decreases, and an evicted member never reaches an epoch after its last epoch. All
/// keys are derived from `seed`.
pub(super) fn script(seed: [u8; 32], mut input: Input<'_>) {
    let mut crypto = HostCrypto::new(seed, 0);
    let members = u32::from(input.byte() % 5);
    let tree = KeyTree::new(&mut crypto, LEVELS, 100, members);
    let signer = SoftwareKey::from_pem(include_bytes!("../../x509/controller.pem")).expect("our own");
    let mut script = Script { crypto, signer, tree, members: Vec::new(), sent: Vec::new(), masters: BTreeMap::new() };
    let first = 1 << LEVELS;
    for leaf in first..first + members {
        script.admit(leaf, true);
    }
    script.record();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        script.step(&mut input);
    }
    script.finish();
}

impl Script {
    fn admit(&mut self, leaf: u32, checks_signatures: bool) {
        let admitted = self.tree.admit::<HostCrypto>(leaf).expect("it is a member");
        let keys = KeyPath::new(&admitted.admission()).expect("it fits");
        self.members.push(Member { keys, leaf, checks_signatures, until: None });
    }

    /// Applies a change to the tree, and stores its rekey messages.
    fn make(&mut self, change: Change, is_signed: bool) {
        self.tree.apply(change);
        let signer = is_signed.then_some(&self.signer as &dyn Signer);
        self.sent.extend(self.tree.messages(&mut self.crypto, signer).expect("our own key signs"));
        self.record();
    }

    /// Stores the master secret of the current epoch.
    fn record(&mut self) {
        self.masters.insert(self.tree.epoch(), *self.tree.master_secret::<HostCrypto>().expose());
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let command = input.byte();
        let which = usize::from(command >> 4) % self.members.len().max(1);
        match command & 7 {
            0 => {
                let checks = command & 8 == 0;
                let Ok(change) = self.tree.join(&mut self.crypto, checks) else { return };
                let leaf = change.leaf().expect("it has a leaf");
                self.make(change, true);
                self.admit(leaf, checks);
            }
            1 => {
                let Some(member) = self.members.get_mut(which).filter(|member| member.until.is_none()) else { return };
                let before = self.tree.epoch();
                let change = self.tree.evict(&mut self.crypto, member.leaf).expect("it is a member");
                member.until = Some(before);
                self.make(change, command & 8 == 0);
            }
            2 => {
                let change = self.tree.rekey().expect("there are more epochs");
                self.make(change, true);
            }
            3 => {
                let Some(member) = self.members.get_mut(which).filter(|member| member.until.is_none()) else { return };
                let admitted = self.tree.admit::<HostCrypto>(member.leaf).expect("it is a member");
                member.keys.catch_up(&admitted.admission()).expect("it is not older");
            }
            4 | 5 => {
                let at = usize::from(input.byte()) % self.sent.len().max(1);
                let Some(RekeyMessage { bytes, .. }) = self.sent.get(at).cloned() else { return };
                self.hear(which, &bytes, false);
            }
            6 => {
                let at = usize::from(input.byte()) % self.sent.len().max(1);
                let Some(RekeyMessage { mut bytes, .. }) = self.sent.get(at).cloned() else { return };
                let place = usize::from(input.byte()) % bytes.len();
                bytes[place] ^= 1 << (input.byte() & 7);
                self.hear(which, &bytes, true);
            }
            _ => {
                let len = usize::from(input.byte() & 127);
                let bytes = input.bytes(len);
                let is_known = self.sent.iter().any(|sent| sent.bytes == bytes);
                self.hear(which, bytes, !is_known);
            }
        }
    }

    fn hear(&mut self, which: usize, message: &[u8], is_forged: bool) {
        let Some(member) = self.members.get_mut(which) else { return };
        let before = member.keys.epoch();
        let key = member.checks_signatures.then(|| self.signer.public_key());
        let opened = member.keys.open(&mut self.crypto, key, message);
        let is_taken = matches!(opened, Ok(Rekeyed::Nodes | Rekeyed::Epoch));
        assert!(!is_forged || !is_taken, "it opened");
        let epoch = member.keys.epoch();
        assert_eq!(epoch, before + u16::from(opened == Ok(Rekeyed::Epoch)));
        assert!(member.until.is_none_or(|until| epoch <= until), "an evicted member got beyond its eviction");
        assert_eq!(self.masters[&epoch], *member.keys.master_secret::<HostCrypto>().expose());
    }

    /// Lets all members get the current keys from the controller.
    fn finish(mut self) {
        for member in self.members.iter_mut().filter(|member| member.until.is_none()) {
            let admitted = self.tree.admit::<HostCrypto>(member.leaf).expect("it is a member");
            member.keys.catch_up(&admitted.admission()).expect("it is not older");
            assert_eq!(self.masters[&self.tree.epoch()], *member.keys.master_secret::<HostCrypto>().expose());
        }
    }
}
