//! A key tree and its members, over a network that loses, reorders and repeats messages.

use std::collections::BTreeMap;
use tegmen::axiom::rekey::MAX_MESSAGE;
use tegmen::axiom::{KeyPath, Rekeyed};
use tegmen::crypto::Crypto;
use tegmen_control::group::{Change, KeyTree, Refused, RekeyMessage};
use tegmen_trust::provider::HostCrypto;
use tegmen_trust::x509::signer::{Signer, SoftwareKey};

pub(crate) const LEVELS: u8 = 4;
pub(crate) type Keys = KeyPath<5>;

/// A group, its members, and the evicted members with the keys that they had before their eviction.
pub(crate) struct World {
    pub(crate) crypto: HostCrypto,
    pub(crate) signer: SoftwareKey,
    pub(crate) tree: KeyTree,
    pub(crate) members: BTreeMap<u32, (Keys, bool)>,
    pub(crate) evicted: Vec<Keys>,
    /// All messages that were delivered so far.
    pub(crate) history: Vec<RekeyMessage>,
    pub(crate) caught_up: usize,
}

pub(crate) fn software_key() -> SoftwareKey {
    let pair = rcgen::KeyPair::generate().unwrap();
    SoftwareKey::from_pem(pair.serialize_pem().as_bytes()).unwrap()
}

impl World {
    pub(crate) fn new(seed: u64, members: u32, last: u16) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        let mut crypto = HostCrypto::new(bytes, 0);
        let tree = KeyTree::new(&mut crypto, LEVELS, last, members);
        let mut world = Self {
            crypto,
            signer: software_key(),
            tree,
            members: BTreeMap::new(),
            evicted: Vec::new(),
            history: Vec::new(),
            caught_up: 0,
        };
        for leaf in (1 << LEVELS)..(1 << LEVELS) + members {
            world.admit(leaf, true);
        }
        world
    }

    pub(crate) fn admit(&mut self, leaf: u32, checks: bool) {
        let admitted = self.tree.admit::<HostCrypto>(leaf).unwrap();
        self.members.insert(leaf, (Keys::new(&admitted.admission()).unwrap(), checks));
    }

    pub(crate) fn draw(&mut self, below: usize) -> usize {
        let mut bytes = [0; 8];
        self.crypto.random(&mut bytes);
        (u64::from_be_bytes(bytes) % below as u64) as usize
    }

    pub(crate) fn join(&mut self, checks: bool) -> Result<(u32, Vec<RekeyMessage>), Refused> {
        let change = self.tree.join(&mut self.crypto, checks)?;
        Ok((change.leaf().unwrap(), self.make(change)))
    }

    pub(crate) fn make(&mut self, change: Change) -> Vec<RekeyMessage> {
        self.tree.apply(change);
        self.tree.messages(&mut self.crypto, Some(&self.signer)).unwrap()
    }

    pub(crate) fn rekey(&mut self) -> Vec<RekeyMessage> {
        let change = self.tree.rekey().unwrap();
        self.make(change)
    }

    pub(crate) fn evict(&mut self, leaf: u32) -> Vec<RekeyMessage> {
        let change = self.tree.evict(&mut self.crypto, leaf).unwrap();
        let messages = self.make(change);
        self.evicted.push(self.members.remove(&leaf).unwrap().0);
        messages
    }

    /// Delivers the messages to all members. With `faults`, each message is lost with a probability of one in five,
    /// some messages arrive in another order, and old messages arrive again. Then checks that each member has the keys
    /// of the controller, and that no evicted member opens a message.
    pub(crate) fn deliver(&mut self, messages: &[RekeyMessage], faults: bool) {
        for leaf in self.members.keys().copied().collect::<Vec<_>>() {
            let mut heard: Vec<_> = messages.iter().filter(|it| it.to.is_none_or(|to| to == leaf)).cloned().collect();
            if faults {
                heard.retain(|_| self.draw(5) > 0);
                for _ in 0..2 {
                    let at = self.draw(heard.len() + 1);
                    let of = self.draw(self.history.len() + 1);
                    heard.extend(self.history.get(of).cloned());
                    let end = heard.len();
                    if at < end {
                        heard.swap(at, end - 1);
                    }
                }
            }
            let (path, checks) = self.members.get_mut(&leaf).unwrap();
            for message in heard {
                assert!(message.bytes.len() <= MAX_MESSAGE);
                let key = checks.then(|| self.signer.public_key());
                let _ = path.open(&mut self.crypto, key, &message.bytes);
            }
            if path.epoch() != self.tree.epoch() {
                assert!(faults, "a member without losses has all that it needs");
                path.catch_up(&self.tree.admit::<HostCrypto>(leaf).unwrap().admission()).unwrap();
                self.caught_up += 1;
            }
            let expected = self.tree.master_secret::<HostCrypto>();
            assert_eq!(path.master_secret::<HostCrypto>().expose(), expected.expose());
        }
        for path in &mut self.evicted {
            let before = path.epoch();
            for message in messages.iter().chain(&self.history) {
                let opened = path.open(&mut self.crypto, Some(self.signer.public_key()), &message.bytes);
                assert!(!matches!(opened, Ok(Rekeyed::Nodes | Rekeyed::Epoch)), "an evicted member opened a message");
            }
            assert_eq!(path.epoch(), before);
        }
        self.history.extend_from_slice(messages);
    }

    /// Lets one to four new members join in one epoch, sometimes together with a member that joins again.
    fn join_some(&mut self, faults: bool) {
        let count = 1 + self.draw(4);
        let mut leaves: Vec<u32> = self.tree.free_leaves(count).take(count).collect();
        if leaves.is_empty() {
            return assert_eq!(self.join(true).err(), Some(Refused::Full));
        }
        if !self.members.is_empty() && self.draw(2) == 0 {
            let (at, of) = (self.draw(leaves.len() + 1), self.draw(self.members.len()));
            let leaf = *self.members.keys().nth(of).unwrap();
            self.evicted.push(self.members.remove(&leaf).unwrap().0);
            leaves.insert(at, leaf);
        }
        let joining: Vec<(u32, bool)> = leaves.into_iter().map(|leaf| (leaf, self.draw(4) > 0)).collect();
        let change = self.tree.admit_all(&mut self.crypto, &joining).unwrap();
        let messages = self.make(change);
        self.deliver(&messages, faults);
        joining.into_iter().for_each(|(leaf, checks)| self.admit(leaf, checks));
    }

    /// Makes a random change of the group, and delivers its messages.
    pub(crate) fn step(&mut self, faults: bool) {
        let messages = match self.draw(3) {
            0 => return self.join_some(faults),
            1 if !self.members.is_empty() => {
                let at = self.draw(self.members.len());
                let leaf = *self.members.keys().nth(at).unwrap();
                self.evict(leaf)
            }
            _ => self.rekey(),
        };
        self.deliver(&messages, faults);
    }
}
