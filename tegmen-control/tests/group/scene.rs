//! A scene: a controller, its devices, and a network that an attacker controls. The attacker has each message that was
//! ever sent. It can deliver a message to any device, at any time, any number of times, or never. The controller and
//! the devices run the real code of Tegmen, and not a model of this code.
//!
//! Each device keeps a history of the events that changed it. Two scenes with the same histories are in the same state,
//! because the random bytes of a device do not depend on other devices.

use crate::recorder::{Recording, Seals};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use tegmen::address::Address;
use tegmen::axiom::rekey::{MAX_MESSAGE, Place, seal_epoch, seal_node};
use tegmen::axiom::{
    Admission, Association, Kept, KeyPath, Member, Opened, Proof, Rekeyed, SenderId, Suite, Unverified,
};
use tegmen::buf::{Frame, Writer};
use tegmen::crypto::Crypto;
use tegmen::cx::Discard;
use tegmen::dtls::Records;
use tegmen::secret::Secret;
use tegmen_control::group::{Change, KeyTree};
use tegmen_trust::provider::HostCrypto;
use tegmen_trust::x509::signer::{Signer, SoftwareKey};

const PORT: u16 = 5684;
const GROUP_ID: u8 = 9;
/// Length of a challenge in bytes. A listener puts its challenge into a response, and the sender repeats it in its next
/// request to prove that this request is fresh.
const CHALLENGE: usize = 8;
/// The number that names the controller as the sender of a message. All rekey messages have this sender, including
/// those that an attacker forged.
const CONTROLLER: usize = 0xff;

/// A fault that a careless implementation could have; [`Mutant::None`] is no fault. A test with a fault must end with a
/// [`Violation`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutant {
    None,
    /// A device that restarts numbers its records from 0 again.
    NoStorage,
    /// A device delivers a record that may be a replay, without a proof that the record is fresh.
    NoProof,
    /// An eviction begins an epoch, but replaces no secret in the key tree.
    KeepsNodes,
}

/// An action of a device, of the controller, or of the attacker that delivers messages. A device is named by its index
/// in [`Scene::devices`], a message by its index in [`Scene::sent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// A device sends a request to the group.
    Ask(usize),
    /// A message (the first value) arrives at a device (the second value). If the message is a request, the device
    /// responds.
    Deliver(usize, usize),
    /// A device restarts: it loses its memory, but not its durable data. If the device is a member, it gets its keys
    /// from the controller again.
    Restart(usize),
    /// A device that missed an epoch gets its keys from the controller.
    CatchUp(usize),
    /// A device forgets the senders that were silent.
    Forget(usize),
    Evict(usize),
    /// A device joins the group. If the device is already a member, it has also lost its durable data.
    Join(usize),
    Rekey,
}

/// A check that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Violation(pub(crate) String);

/// The result of an action. The value is true if the action has changed a device or the controller. The error is the
/// check that failed.
pub(crate) type Acted = Result<bool, Violation>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Request,
    /// A response to the request of this device.
    Response(usize),
    Rekey,
}

/// A message on the network. The attacker has recorded it, and can deliver it at any time.
#[derive(Clone)]
pub(crate) struct Message {
    pub(crate) bytes: Vec<u8>,
    content: Vec<u8>,
    kind: Kind,
    from: usize,
    /// The number of the message among the messages of the same sender.
    number: u32,
    epoch: u16,
    /// True if the attacker, a member or an evicted device forged or changed the message. No device may accept it.
    is_forged: bool,
}

pub(crate) struct Device {
    crypto: Recording,
    leaf: u32,
    sender_id: u8,
    /// True if the device checks the signatures of rekey messages. With false, the device gets separate rekey messages.
    checks: bool,
    keys: KeyPath<4>,
    pub(crate) member: Member<4, 4>,
    pub(crate) kept: Kept,
    /// The last epoch in which the device was a member, if it was evicted; `None` for a member.
    pub(crate) until: Option<u16>,
    /// The numbers of the contents that the device has delivered to its application.
    taken: HashSet<u32>,
    /// The last challenge that the device has received from each other device; zeros if it has received none.
    challenges: Vec<[u8; CHALLENGE]>,
    /// The requests that the device sent since it last restarted or began an epoch. The key is the number of the
    /// request. The value has the TSN of the request, and the devices that have responded.
    open: BTreeMap<u32, (u64, BTreeSet<usize>)>,
    sent: u32,
    pub(crate) history: Vec<u32>,
}

impl Device {
    pub(crate) const fn epoch(&self) -> u16 {
        self.keys.epoch()
    }
}

/// Counters of the events that have happened since a [`Scene`] was made.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) requests: usize,
    pub(crate) responses: usize,
    pub(crate) verified: usize,
    pub(crate) refused: usize,
    pub(crate) epochs: usize,
}

pub(crate) struct Scene {
    suite: Suite,
    mutant: Mutant,
    crypto: Recording,
    /// The provider with which the attacker and its accomplices seal messages. It does not record nonces, because a
    /// nonce that an attacker repeats is no fault.
    attacker: HostCrypto,
    seals: Seals,
    signer: Option<Arc<SoftwareKey>>,
    pub(crate) tree: KeyTree,
    history: Vec<u32>,
    /// The devices that are members, and the devices that were evicted.
    pub(crate) devices: Vec<Device>,
    pub(crate) sent: Vec<Message>,
    masters: BTreeMap<u16, [u8; 48]>,
    pub(crate) counts: Counts,
}

fn address(which: usize) -> Address {
    Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, which as u8], port: PORT, scope: 0 }
}

fn association(
    suite: Suite,
    (which, sender_id): (usize, u8),
    epoch: u16,
    master_secret: &Secret<48>,
) -> Association<'_> {
    Association {
        group_id: GROUP_ID,
        group: Address { ip: *b"\xff\x15grouptegmen.g1", port: PORT, scope: 0 },
        suite,
        epoch,
        senders: 8,
        sender_id: Some(sender_id),
        address: address(which).ip,
        master_secret: master_secret.expose(),
        client_random: &[2; 32],
        server_random: &[3; 32],
    }
}

fn provider(seals: &Seals, seed: u64, which: usize) -> Recording {
    let mut bytes = [which as u8; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    Recording::new(seals, HostCrypto::new(bytes, 16))
}

/// Returns the code of an event in a history: its kind, the sender of the message, and the number of the message.
fn event(kind: u8, from: usize, number: u32) -> u32 {
    u32::from(kind) << 24 | (from as u32 & 0xff) << 16 | number & 0xffff
}

fn number_of(content: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*content[at..].first_chunk().unwrap())
}

impl Scene {
    /// Makes a group with space for 2^`levels` devices. In epoch 1 the group has `members` members. The group has the
    /// epochs from 1 to `last`.
    pub(crate) fn new(
        (seed, suite, mutant): (u64, Suite, Mutant),
        (levels, members, last): (u8, usize, u16),
        signer: Option<Arc<SoftwareKey>>,
    ) -> Self {
        let seals = Seals::default();
        let mut crypto = provider(&seals, seed, CONTROLLER);
        let tree = KeyTree::new(&mut crypto, levels, last, members as u32);
        let (attacker, history) = (HostCrypto::new([seed as u8; 32], 1), Vec::new());
        let (devices, sent, masters, counts) = (Vec::new(), Vec::new(), BTreeMap::new(), Counts::default());
        let mut scene =
            Self { suite, mutant, crypto, attacker, seals, signer, tree, history, devices, sent, masters, counts };
        scene.masters.insert(1, *scene.tree.master_secret::<HostCrypto>().expose());
        for which in 0..members {
            let leaf = (1 << levels) + which as u32;
            let device = scene.device(seed, leaf, which);
            scene.devices.push(device);
        }
        for which in 0..members {
            scene.begin(which, true);
        }
        scene
    }

    /// Makes the device `which`, which was just admitted to this leaf of the key tree.
    fn device(&self, seed: u64, leaf: u32, which: usize) -> Device {
        let mut crypto = provider(&self.seals, seed, which);
        let keys = self.with_admission(leaf, |admission| KeyPath::new(admission).unwrap());
        let sender_id = leaf as u8;
        let master = keys.master_secret::<HostCrypto>();
        let association = association(self.suite, (which, sender_id), keys.epoch(), &master);
        let member = Member::new(&mut crypto, &association, &Kept::default()).unwrap();
        let (taken, open, history) = (HashSet::new(), BTreeMap::new(), Vec::new());
        let (kept, challenges) = (Kept::default(), vec![[0; CHALLENGE]; 8]);
        let (until, sent) = (None, 0);
        let checks = true;
        Device { crypto, leaf, sender_id, checks, keys, member, kept, until, taken, challenges, open, sent, history }
    }

    fn with_admission<T>(&self, leaf: u32, take: impl FnOnce(&Admission<'_>) -> T) -> T {
        take(&self.tree.admit::<HostCrypto>(leaf).unwrap().admission())
    }

    /// Begins an epoch at a device that has just got the keys of this epoch. With `is_new`, the device expects that the
    /// record numbers of all other senders begin with 0.
    fn begin(&mut self, which: usize, is_new: bool) {
        let others: Vec<u8> = self.devices.iter().map(|other| other.sender_id).collect();
        let device = &mut self.devices[which];
        for other in others.into_iter().filter(|id| is_new && *id != device.sender_id) {
            let _ = device.member.know_sender::<HostCrypto>(other, 0);
        }
        device.open.clear();
        device.kept = device.member.reserve(0, 0);
        let kept = device.kept;
        device.member.extend(&kept);
    }

    /// Returns the state of the scene: the histories of all devices and of the controller.
    pub(crate) fn state(&self) -> Box<[u32]> {
        let histories = self.devices.iter().map(|device| &device.history).chain([&self.history]);
        histories.flat_map(|history| history.iter().copied().chain([u32::MAX])).collect()
    }

    /// Returns the indices of the rekey messages that a device needs next, in their order.
    pub(crate) fn rekeying(&self, who: usize) -> Vec<usize> {
        let next = self.devices[who].epoch() + 1;
        let is_next = |at: &usize| self.sent[*at].kind == Kind::Rekey && self.sent[*at].epoch == next;
        (0..self.sent.len()).filter(is_next).collect()
    }

    /// Executes an action. Then checks that no key was used twice with the same nonce for different contents.
    pub(crate) fn act(&mut self, action: Action) -> Acted {
        let changed = match action {
            Action::Ask(who) => self.ask(who)?,
            Action::Deliver(at, who) => self.deliver(at, who)?,
            Action::Restart(who) => self.restart(who),
            Action::CatchUp(who) => self.catch_up(who)?,
            Action::Forget(who) => {
                let device = &mut self.devices[who];
                device.member.forget_idle(&mut device.crypto);
                device.history.push(event(b'f', 0, 0));
                true
            }
            Action::Evict(who) => self.evict(who),
            Action::Join(who) => self.join(who),
            Action::Rekey => match self.tree.rekey() {
                Ok(change) => self.change(change, event(b'k', 0, 0)),
                Err(_) => false,
            },
        };
        let repeated = self.seals.lock().unwrap().repeated;
        if repeated > 0 {
            return Err(Violation("a key and a nonce were used for two contents".to_owned()));
        }
        Ok(changed)
    }

    /// Applies a change of the key tree, and sends its rekey messages. `code` is the code of this event, which is added
    /// to the history of the controller: see [`event`].
    fn change(&mut self, change: Change, code: u32) -> bool {
        self.tree.apply(change);
        let signer = self.signer.as_deref().map(|signer| signer as &dyn Signer);
        let messages = self.tree.messages(&mut self.crypto, signer).unwrap();
        let epoch = self.tree.epoch();
        for (number, message) in messages.into_iter().enumerate() {
            let number = u32::from(epoch) << 8 | number as u32;
            let (content, kind) = (Vec::new(), Kind::Rekey);
            let bytes = message.bytes;
            self.sent.push(Message { bytes, content, kind, from: CONTROLLER, number, epoch, is_forged: false });
        }
        self.masters.insert(epoch, *self.tree.master_secret::<HostCrypto>().expose());
        self.history.push(code);
        true
    }

    fn evict(&mut self, who: usize) -> bool {
        let device = &self.devices[who];
        let before = self.tree.epoch();
        let planned = match self.mutant {
            _ if device.until.is_some() => return false,
            Mutant::KeepsNodes => self.tree.rekey(),
            _ => self.tree.evict(&mut self.crypto, device.leaf),
        };
        let Ok(change) = planned else { return false };
        self.devices[who].until = Some(before);
        self.change(change, event(b'e', who, 0))
    }

    /// Lets a device join again: a device that was evicted, or a member that has lost its durable data. From then on
    /// the device with the index 2 checks no signatures, and the other devices check them.
    fn join(&mut self, who: usize) -> bool {
        let checks = who != 2;
        let device = &self.devices[who];
        let planned = match device.until {
            None => self.tree.renew(&mut self.crypto, device.leaf, checks),
            Some(_) => self.tree.join(&mut self.crypto, checks),
        };
        let Ok(change) = planned else { return false };
        let leaf = change.leaf().unwrap();
        let lost_storage = device.until.is_none();
        self.change(change, event(b'j', who, 0));
        let keys = self.with_admission(leaf, |admission| KeyPath::new(admission).unwrap());
        let device = &mut self.devices[who];
        (device.leaf, device.sender_id, device.until, device.keys) = (leaf, leaf as u8, None, keys);
        device.checks = checks;
        if lost_storage {
            device.kept = Kept::default();
        }
        self.renew(who, true);
        let now = self.history.len() as u32;
        self.devices[who].history.push(event(b'j', 0, now));
        true
    }

    /// Makes the [`Member`] of a device again, from the keys of the device and its durable data.
    fn renew(&mut self, who: usize, is_new: bool) {
        let device = &mut self.devices[who];
        let master = device.keys.master_secret::<HostCrypto>();
        let association = association(self.suite, (who, device.sender_id), device.keys.epoch(), &master);
        device.member = Member::new(&mut device.crypto, &association, &device.kept).unwrap();
        self.begin(who, is_new);
    }

    fn restart(&mut self, who: usize) -> bool {
        let device = &self.devices[who];
        if device.until.is_none() {
            self.devices[who].keys = self.with_admission(device.leaf, |admission| KeyPath::new(admission).unwrap());
        }
        if self.mutant == Mutant::NoStorage {
            self.devices[who].kept = Kept::default();
        }
        // The controller might have received nothing of this epoch: the numbers that it gives are 0.
        self.renew(who, true);
        let now = if self.devices[who].until.is_none() { self.history.len() as u32 } else { 0 };
        self.devices[who].history.push(event(b'r', 0, now));
        true
    }

    fn catch_up(&mut self, who: usize) -> Acted {
        let device = &self.devices[who];
        if device.until.is_some() || device.epoch() == self.tree.epoch() {
            return Ok(false);
        }
        let admitted = self.tree.admit::<HostCrypto>(device.leaf).unwrap();
        self.devices[who].keys.catch_up(&admitted.admission()).unwrap();
        self.renew(who, false);
        let now = self.history.len() as u32;
        self.devices[who].history.push(event(b'c', 0, now));
        self.check_master(who)
    }

    fn check_master(&self, who: usize) -> Acted {
        let keys = &self.devices[who].keys;
        let is_right = self.masters.get(&keys.epoch()) == Some(keys.master_secret::<HostCrypto>().expose());
        if is_right { Ok(true) } else { Err(Violation(format!("device {who} has another secret of the epoch"))) }
    }

    fn lease(&mut self, who: usize) {
        let device = &mut self.devices[who];
        device.kept = device.member.reserve(1, 1);
        let kept = device.kept;
        device.member.extend(&kept);
    }

    /// Seals a content in a record of the device `who`, and puts the record on the network. Without `to` the record is
    /// a request to the group. Otherwise it is a response, and `to` is the SenderID and the index of the device that
    /// sent the request. Returns the TSN of a request, and 0 for a response.
    fn send(&mut self, who: usize, content: Vec<u8>, to: Option<(SenderId, usize)>) -> Result<u64, Violation> {
        self.lease(who);
        let device = &mut self.devices[who];
        let mut storage = [0; 160];
        let mut frame = Frame::new(&mut storage, device.member.overhead().0);
        frame.append(&content).unwrap();
        let sealed = match to {
            None => device.member.seal_request(&mut device.crypto, &mut frame),
            Some((to, _)) => device.member.seal_response(&mut device.crypto, to, &mut frame).map(|()| 0),
        };
        let tsn = sealed.map_err(|refused| Violation(format!("device {who} cannot send: {refused:?}")))?;
        let (bytes, number, epoch) = (frame.bytes().to_vec(), number_of(&content, 0), device.keys.epoch());
        let kind = to.map_or(Kind::Request, |(_, to)| Kind::Response(to));
        self.sent.push(Message { bytes, content, kind, from: who, number, epoch, is_forged: false });
        Ok(tsn)
    }

    /// Returns a new number for a content of this device. No other content has this number.
    fn number(&mut self, who: usize) -> u32 {
        let device = &mut self.devices[who];
        device.sent += 1;
        (who as u32) << 16 | device.sent
    }

    fn ask(&mut self, who: usize) -> Acted {
        let number = self.number(who);
        let content = [&number.to_be_bytes()[..], &self.devices[who].challenges.concat()].concat();
        let tsn = self.send(who, content, None)?;
        let device = &mut self.devices[who];
        device.open.insert(number, (tsn, BTreeSet::new()));
        device.history.push(event(b'a', 0, 0));
        Ok(true)
    }

    /// Sends a response of the device `who` to the request with the number `asked`. The device `to`, which has the
    /// SenderID `sender`, sent this request. The response contains the challenge of `who`.
    fn answer(&mut self, who: usize, (sender, to): (SenderId, usize), asked: u32) -> Acted {
        let number = self.number(who);
        let challenge = self.devices[who].member.challenge();
        let content = [&number.to_be_bytes()[..], &asked.to_be_bytes(), challenge].concat();
        self.send(who, content, Some((sender, to)))?;
        Ok(true)
    }

    fn deliver(&mut self, at: usize, who: usize) -> Acted {
        let message = self.sent[at].clone();
        let changed = match message.kind {
            Kind::Request => self.on_request(who, &message)?,
            Kind::Response(_) => self.on_response(who, &message)?,
            Kind::Rekey => self.on_rekey(who, &message)?,
        };
        if changed {
            let device = &mut self.devices[who];
            device.history.push(event(b'd', message.from, message.number));
        } else {
            self.counts.refused += 1;
        }
        Ok(changed)
    }

    fn on_rekey(&mut self, who: usize, message: &Message) -> Acted {
        let device = &mut self.devices[who];
        let key = self.signer.as_deref().map(Signer::public_key).filter(|_| device.checks);
        let opened = device.keys.open(&mut device.crypto, key, &message.bytes);
        if !matches!(opened, Ok(Rekeyed::Nodes | Rekeyed::Epoch)) {
            return Ok(false);
        }
        self.check_opened(who, message)?;
        if opened == Ok(Rekeyed::Epoch) {
            self.check_master(who)?;
            self.counts.epochs += 1;
            let device = &mut self.devices[who];
            let master = device.keys.master_secret::<HostCrypto>();
            let association = association(self.suite, (who, device.sender_id), device.keys.epoch(), &master);
            device.member.rekey(&mut device.crypto, &association).unwrap();
            self.begin(who, false);
        }
        Ok(true)
    }

    /// Checks that a message which a device opened is not forged, and that an evicted device opens no message of a
    /// later epoch.
    fn check_opened(&self, who: usize, message: &Message) -> Result<(), Violation> {
        if message.is_forged {
            return Err(Violation(format!("device {who} has taken a forged message")));
        }
        let until = self.devices[who].until;
        if until.is_some_and(|until| message.epoch > until) {
            return Err(Violation(format!("device {who} was evicted in epoch {until:?}, and opens {}", message.epoch)));
        }
        Ok(())
    }

    fn deliver_content(&mut self, who: usize, message: &Message) -> Result<(), Violation> {
        let number = number_of(&message.content, 0);
        let is_new = self.devices[who].taken.insert(number);
        if is_new { Ok(()) } else { Err(Violation(format!("device {who} has delivered a replay"))) }
    }

    fn on_request(&mut self, who: usize, message: &Message) -> Acted {
        let Some((sender, heard)) = self.hear(who, &message.bytes, None) else { return Ok(false) };
        self.check_opened(who, message)?;
        let (from, asked) = (message.from, number_of(&message.content, 0));
        let is_new = match self.check_heard(who, message, heard)? {
            None => true,
            Some(_) if self.mutant == Mutant::NoProof => true,
            Some(record) => {
                let device = &mut self.devices[who];
                let echo = message.content.get(4 + CHALLENGE * who..).and_then(|rest| rest.get(..CHALLENGE)).unwrap();
                let accepted = device.member.accept::<HostCrypto>(record, Proof::Echo(echo));
                self.counts.verified += usize::from(accepted.is_ok());
                accepted.is_ok()
            }
        };
        if is_new {
            self.deliver_content(who, message)?;
            self.counts.requests += 1;
        }
        // A request that may be a replay is answered with the challenge.
        self.answer(who, (sender.unwrap(), from), asked)
    }

    fn on_response(&mut self, who: usize, message: &Message) -> Acted {
        let Some((_, heard)) = self.hear(who, &message.bytes, Some(message.from)) else { return Ok(false) };
        self.check_opened(who, message)?;
        if message.kind != Kind::Response(who) {
            return Err(Violation(format!("device {who} has opened a response to another")));
        }
        let record = self.check_heard(who, message, heard)?;
        let device = &mut self.devices[who];
        let asked = device.open.get_mut(&number_of(&message.content, 4));
        let asked = asked.and_then(|(tsn, answered)| answered.insert(message.from).then_some(*tsn));
        let is_new = match (record, asked) {
            (None, _) => true,
            (Some(_), _) if self.mutant == Mutant::NoProof => true,
            (Some(record), Some(asked)) => {
                let accepted = device.member.accept::<HostCrypto>(record, Proof::AnswerTo(asked));
                self.counts.verified += usize::from(accepted.is_ok());
                accepted.is_ok()
            }
            (Some(_), None) => return Ok(false),
        };
        if is_new {
            device.challenges[message.from].copy_from_slice(&message.content[8..]);
            self.deliver_content(who, message)?;
            self.counts.responses += 1;
        }
        Ok(true)
    }

    /// Opens a record at the device `who`. Without `from` the record is a request; otherwise it is a response of the
    /// device `from`. Returns `None` if the device refuses the record. Otherwise returns two values. The first one is
    /// the SenderID of a request; `None` for a response. The second one is the content, with an [`Unverified`] if the
    /// record may be a replay. The second value is an error if the device reports a clash: two members use the same
    /// number for different records.
    #[expect(clippy::type_complexity, reason = "it is used once")]
    fn hear(
        &mut self,
        who: usize,
        bytes: &[u8],
        from: Option<usize>,
    ) -> Option<(Option<SenderId>, Result<(Vec<u8>, Option<Unverified>), ()>)> {
        let datagram = &mut bytes.to_vec();
        let mut records = Records::new(datagram);
        let record = records.next_record()?.ok()?;
        let device = &mut self.devices[who];
        let opened = match from {
            None => device.member.open_request(&mut device.crypto, record).map(|(id, opened)| (Some(id), opened)),
            Some(from) => {
                device.member.open_response(&mut device.crypto, &address(from), record).map(|opened| (None, opened))
            }
        };
        let (sender, opened) = opened.ok()?;
        let heard = match opened {
            Opened::Fresh(content) => Ok((content.to_vec(), None)),
            Opened::Unverified(content, record) => Ok((content.to_vec(), Some(record))),
            Opened::Clash => Err(()),
        };
        Some((sender, heard))
    }

    /// Checks the result of opening a record: the content must be the content that the sender sealed, and the device
    /// must report no clash. A clash means that two members use the same number for different records.
    fn check_heard(
        &self,
        who: usize,
        message: &Message,
        heard: Result<(Vec<u8>, Option<Unverified>), ()>,
    ) -> Result<Option<Unverified>, Violation> {
        let Ok((content, record)) = heard else {
            return Err(Violation(format!("device {who} reports a clash, and there is none")));
        };
        if content != message.content {
            return Err(Violation(format!("device {who} has opened what nobody sent")));
        }
        Ok(record)
    }

    /// Changes bits of a copy of a message, and delivers the copy to all devices, which must not accept it. Does
    /// nothing if the copy equals a message that was sent.
    pub(crate) fn spoil(&mut self, at: usize, bits: &[usize]) -> Result<(), Violation> {
        let mut message = self.sent[at].clone();
        for bit in bits {
            let len = message.bytes.len();
            message.bytes[bit / 8 % len] ^= 1 << (bit % 8);
        }
        if self.sent.iter().any(|sent| sent.bytes == message.bytes) {
            return Ok(());
        }
        message.is_forged = true;
        for who in 0..self.devices.len() {
            match message.kind {
                Kind::Request => self.on_request(who, &message)?,
                Kind::Response(_) => self.on_response(who, &message)?,
                Kind::Rekey => self.on_rekey(who, &message)?,
            };
        }
        Ok(())
    }

    /// A device that does not have the keys of the present epoch tries to take part in it, with the secret of its last
    /// epoch. Checks that the device opens no request of the present epoch. Then puts a request of the device on the
    /// network. No other device may accept this request.
    pub(crate) fn pose(&mut self, who: usize) -> Result<(), Violation> {
        let (epoch, device) = (self.tree.epoch(), &self.devices[who]);
        if device.epoch() == epoch {
            return Ok(());
        }
        let master = device.keys.master_secret::<HostCrypto>();
        let association = association(self.suite, (who, device.sender_id), epoch, &master);
        let mut posing: Member<4, 4> = Member::new(&mut self.attacker, &association, &Kept::default()).unwrap();
        posing.extend(&posing.reserve(1, 1));
        let is_secret = |sent: &&Message| sent.epoch == epoch && sent.kind == Kind::Request && !sent.is_forged;
        for message in self.sent.iter().filter(is_secret) {
            let datagram = &mut message.bytes.clone();
            let mut records = Records::new(datagram);
            let opened = posing.open_request(&mut self.attacker, records.next_record().unwrap().unwrap());
            if !matches!(opened, Err(Discard::NotAuthentic | Discard::Replayed)) {
                return Err(Violation(format!("device {who} opens a record of epoch {epoch} with an old secret")));
            }
        }
        let mut storage = [0; 160];
        let mut frame = Frame::new(&mut storage, posing.overhead().0);
        frame.append(&[0xee; 4 + 8 * CHALLENGE]).unwrap();
        posing.seal_request(&mut self.attacker, &mut frame).unwrap();
        let (bytes, content) = (frame.bytes().to_vec(), vec![0xee; 4 + 8 * CHALLENGE]);
        let kind = Kind::Request;
        self.sent.push(Message { bytes, content, kind, from: who, number: 0xffff, epoch, is_forged: true });
        Ok(())
    }

    /// Forges rekey messages with all secrets that the member `who` has: the message that begins the next epoch, and
    /// messages with new secrets of the nodes above its leaf. Each message with the secret of a node is made twice:
    /// without a signature, and with an invalid signature.
    pub(crate) fn forge_rekey(&mut self, who: usize) {
        let device = &self.devices[who];
        if device.until.is_some() {
            return;
        }
        let admitted = self.tree.admit::<HostCrypto>(device.leaf).unwrap();
        let Admission { group, epoch, chain, leaf, path, .. } = admitted.admission();
        let mut drawn = [0; 32];
        self.attacker.random(&mut drawn);
        let (root, epoch) = (Secret::new(*path.last().unwrap()), epoch + 1);
        let mut forged = Vec::new();
        let mut bytes = [0; MAX_MESSAGE];
        let mut writer = Writer::new(&mut bytes);
        let secrets = (&root, &Secret::new(drawn));
        seal_epoch(&mut self.attacker, group, (epoch, chain), secrets, &mut writer).unwrap();
        forged.push(writer.written().to_vec());
        for (below, secret) in path.iter().enumerate().skip(1).take(path.len() - 2) {
            for is_signed in [false, true] {
                let place = Place { epoch, under: leaf >> below, up: 1 };
                let sign = |digest: &[u8; 32], out: &mut [u8; 72]| {
                    let der = [&[0x30, 68, 2, 32][..], digest, &[2, 32], digest].concat();
                    out[..der.len()].copy_from_slice(&der);
                    Some(der.len())
                };
                let sign = is_signed.then_some(&sign as &dyn Fn(&_, &mut _) -> _);
                let mut writer = Writer::new(&mut bytes);
                let secrets = (&Secret::new(*secret), &Secret::new(*drawn.first_chunk().unwrap()));
                seal_node(&mut self.attacker, group, place, secrets, sign, &mut writer).unwrap();
                forged.push(writer.written().to_vec());
            }
        }
        let message = |bytes| Message {
            bytes,
            content: Vec::new(),
            kind: Kind::Rekey,
            from: CONTROLLER,
            number: 0xffff,
            epoch,
            is_forged: true,
        };
        self.sent.extend(forged.into_iter().map(message));
    }
}
