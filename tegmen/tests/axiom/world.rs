//! Members of a group on a network that loses, repeats, reorders and damages records, with restarts and new epochs,
//! over thousands of seeds. Each member is compared with a model that stores the TSNs of all records. The crypto
//! provider fails if a nonce is used twice.

use crate::group::{Group, address, hear_request, hear_response, try_request, try_response, tsn_of};
use crate::keys::Keys;
use crate::recorder::{Recorder, Spent};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use tegmen::axiom::{Association, Kept, Member, Proof, SealRefused, SenderId, Signatures as _, Suite, Unverified};
use tegmen::cx::Discard;

/// Number of members of the group. Each sends requests, and answers those of the other members.
const MEMBERS: usize = 3;
/// Number of bytes of a challenge.
const CHALLENGE: usize = 8;

/// A random generator: SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % sides as u64) as usize
    }
}

/// A model of the TSNs that a correct member stores about one other member.
#[derive(Default)]
struct Model {
    /// The first accepted TSN. All lower TSNs count as used.
    floor: u64,
    accepted: BTreeSet<u64>,
    used: bool,
}

impl Model {
    fn from(floor: u64) -> Self {
        Self { floor, accepted: BTreeSet::new(), used: true }
    }

    /// True if a record with this TSN must be delivered.
    fn takes(&self, tsn: u64) -> bool {
        let newest = self.accepted.last().copied().unwrap_or(0);
        tsn >= self.floor && tsn + 64 > newest && !self.accepted.contains(&tsn)
    }
}

/// The decision of a model about a record.
#[derive(PartialEq, Eq, Debug)]
enum Verdict {
    Fresh,
    Unverified,
    Replayed,
}

type Models = BTreeMap<usize, Model>;

fn verdict(models: &Models, from: usize, tsn: u64) -> Verdict {
    match models.get(&from) {
        None => Verdict::Unverified,
        Some(model) if model.takes(tsn) => Verdict::Fresh,
        Some(_) => Verdict::Replayed,
    }
}

fn accept(models: &mut Models, from: usize, tsn: u64) {
    let model = models.entry(from).or_insert_with(|| Model::from(tsn));
    model.accepted.insert(tsn);
    model.used = true;
}

/// Removes the models that were not used since the last call. Returns one more than the highest TSN of these models.
fn forget(models: &mut Models) -> u64 {
    let idle = models.values().filter(|model| !model.used);
    let forgotten = idle.map(|model| model.accepted.last().map_or(model.floor, |last| last + 1)).max().unwrap_or(0);
    models.retain(|_, model| std::mem::take(&mut model.used));
    forgotten
}

struct Node<const KEY: usize> {
    member: Member<4, 4, KEY, Keys>,
    epoch: u16,
    /// The ends of the record numbers that are reserved for the requests and for the responses of the member, as they
    /// were last stored durably.
    kept: Kept,
    /// True if a value of the current epoch was stored durably. Before that, the member opens no request.
    is_kept: bool,
    senders: Models,
    /// The first TSN that is new for each sender without a model. `None` if the member did not follow a rekeying into
    /// this epoch: then no TSN of such a sender is certain to be new.
    first_of_unknown: Option<u64>,
    listeners: Models,
    /// The open requests of this run by their number: the TSN of each, and the members that answered it.
    open: HashMap<u64, (u64, HashSet<usize>)>,
    /// The lowest TSN that the next request can have. The next field is a limit for responses from a listener whose
    /// TSNs are not known: such a response is accepted only if its request has this TSN or a higher TSN.
    next: u64,
    proving: u64,
    /// The last challenge that this member received from each member, by the number of the member.
    challenges: [[u8; CHALLENGE]; MEMBERS],
}

/// A record that a member has sent. An attacker may have recorded it.
#[derive(Clone)]
struct Sent {
    bytes: Vec<u8>,
    content: Vec<u8>,
    epoch: u16,
    tsn: u64,
    from: usize,
    /// The sender whose request this record answers; `None` if the record is a request.
    to: Option<usize>,
}

struct World<const KEY: usize> {
    dice: Dice,
    crypto: Recorder,
    is_signed: bool,
    /// The group in each epoch. The first element is epoch 1.
    epochs: Vec<Group>,
    nodes: Vec<Node<KEY>>,
    sent: Vec<Sent>,
    /// The number of the next content. Each sent content begins with another number.
    next: u64,
    /// For each delivered content: the member that accepted the content, and the number of the content.
    taken: HashSet<(usize, u64)>,
    counts: Counts,
}

/// The number of events of each kind.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    requests: usize,
    responses: usize,
    verified: usize,
    replays: usize,
    spoilt: usize,
    restarts: usize,
    rekeyed: usize,
}

/// Creates a member with the SenderID of its association.
fn member<const KEY: usize>(
    crypto: &mut Recorder,
    association: &Association<'_>,
    kept: &Kept,
    is_signed: bool,
) -> Member<4, 4, KEY, Keys> {
    let mut member = Member::with(Keys::cheap(is_signed, association.sender_id.unwrap()));
    member.begin(crypto, association, kept).unwrap();
    member
}

fn number_of(content: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(*content[8 * at..].first_chunk().unwrap())
}

impl<const KEY: usize> World<KEY> {
    fn new(seed: u64, (suite, is_signed): (Suite, bool)) -> Self {
        let mut crypto = Recorder::new([seed as u8; 32], Spent::default());
        let group = Group::new(suite);
        let nodes = (0..MEMBERS).map(|who| {
            let mut member = member(&mut crypto, &group.association(who as u8), &Kept::default(), is_signed);
            let mut senders = Models::new();
            for other in (0..MEMBERS).filter(|other| *other != who) {
                member.know_sender::<Recorder>(other as u8, 0).unwrap();
                senders.insert(other, Model::from(0));
            }
            let (kept, listeners, open) = (Kept::default(), Models::new(), HashMap::new());
            Node {
                member,
                epoch: 1,
                kept,
                is_kept: false,
                senders,
                first_of_unknown: None,
                listeners,
                open,
                next: 0,
                proving: 0,
                challenges: [[0; CHALLENGE]; MEMBERS],
            }
        });
        let nodes = nodes.collect();
        let (dice, sent, taken, counts) = (Dice(seed), Vec::new(), HashSet::new(), Counts::default());
        Self { dice, crypto, is_signed, epochs: vec![group], nodes, sent, next: 0, taken, counts }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            let who = self.dice.roll(MEMBERS);
            match self.dice.roll(40) {
                0..10 => self.ask(who),
                10..32 => self.deliver(),
                32..34 => self.spoil(),
                34 => self.restart(who),
                35 => {
                    let node = &mut self.nodes[who];
                    node.member.forget_idle(&mut self.crypto);
                    let forgotten = forget(&mut node.senders);
                    node.first_of_unknown = node.first_of_unknown.map(|first| first.max(forgotten));
                    let before = node.listeners.len();
                    forget(&mut node.listeners);
                    if node.listeners.len() < before {
                        node.proving = node.next;
                    }
                }
                36 if self.dice.roll(4) == 0 => {
                    let next = self.epochs.last().unwrap().next();
                    self.epochs.push(next);
                }
                _ => self.follow(who),
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Puts a record on the network.
    fn send(&mut self, from: usize, to: Option<usize>, bytes: Vec<u8>, content: Vec<u8>) {
        let number = u64::from_be_bytes(*bytes[3..].first_chunk().unwrap());
        let (epoch, tsn) = (self.nodes[from].epoch, number & ((1 << 40) - 1));
        assert_eq!((number >> 48) as u16, epoch);
        self.sent.push(Sent { bytes, content, epoch, tsn, from, to });
    }

    /// Stores a new reservation of record numbers durably, and then allows the member to use these record numbers.
    /// Sometimes the power fails between these two steps.
    fn lease(&mut self, who: usize) {
        let more = self.dice.roll(5) as u64 + 1;
        let node = &mut self.nodes[who];
        node.kept = node.member.reserve(more, more);
        if self.dice.roll(6) == 0 {
            return self.restart(who);
        }
        node.member.extend(&node.kept);
        node.is_kept = true;
    }

    /// Sends a request to the group. The request contains the last challenge of each member.
    fn ask(&mut self, who: usize) {
        let number = self.number();
        let node = &mut self.nodes[who];
        let content = [&number.to_be_bytes()[..], &node.challenges.concat()].concat();
        match try_request(&mut node.member, &mut self.crypto, &content) {
            Ok(bytes) => {
                node.next = tsn_of(&bytes) + 1;
                node.open.insert(number, (tsn_of(&bytes), HashSet::new()));
                self.send(who, None, bytes, content);
            }
            Err(SealRefused::LeaseSpent) => self.lease(who),
            Err(other) => panic!("{other}"),
        }
    }

    /// Delivers one of the sent records, often a late one, to a member.
    fn deliver(&mut self) {
        let Some(sent) = self.choose() else { return };
        match sent.to {
            None => {
                let who = self.dice.roll(MEMBERS);
                self.on_request(who, &sent);
            }
            // An attacker may send it to another sender, or from the address of another listener.
            Some(to) => match self.dice.roll(8) {
                0 => self.on_strange_response((to + 1) % MEMBERS, sent.from, &sent),
                1 => self.on_strange_response(to, (sent.from + 1) % MEMBERS, &sent),
                _ => self.on_response(to, &sent),
            },
        }
    }

    fn choose(&mut self) -> Option<Sent> {
        let all = self.sent.len();
        let recent = if self.dice.roll(4) == 0 { all } else { all.min(6) };
        (recent > 0).then(|| self.sent[all - 1 - self.dice.roll(recent)].clone())
    }

    fn on_request(&mut self, who: usize, sent: &Sent) {
        let node = &mut self.nodes[who];
        let heard = hear_request(&mut node.member, &mut self.crypto, &sent.bytes);
        if sent.epoch != node.epoch {
            assert_eq!(heard.err(), Some(Discard::UnknownPeer));
            return;
        }
        if !node.is_kept {
            assert_eq!(heard.err(), Some(Discard::Unexpected));
            return;
        }
        if sent.from == who {
            assert_eq!(heard.err(), Some(Discard::Replayed), "our own record is no clash");
            return;
        }
        if let Some(first) = node.first_of_unknown.filter(|first| sent.tsn >= *first) {
            node.senders.entry(sent.from).or_insert_with(|| Model::from(first));
        }
        match verdict(&node.senders, sent.from, sent.tsn) {
            Verdict::Replayed => {
                self.counts.replays += 1;
                assert_eq!(heard.err(), Some(Discard::Replayed));
            }
            Verdict::Fresh => {
                let (sender, heard) = heard.unwrap();
                assert_eq!(heard.fresh(), sent.content);
                self.take_request(who, sender, sent);
            }
            Verdict::Unverified => {
                let (sender, heard) = heard.unwrap();
                let (content, record) = heard.unverified();
                assert_eq!(content, sent.content);
                self.verify(who, sender, sent, record);
            }
        }
    }

    /// Processes a request that may be a replay. If it repeats our challenge, it is accepted; otherwise it gets a
    /// response with our challenge.
    fn verify(&mut self, who: usize, sender: SenderId, sent: &Sent, record: Unverified) {
        let node = &mut self.nodes[who];
        let echo = &sent.content[8 + CHALLENGE * who..][..CHALLENGE];
        let is_right = echo == node.member.challenge();
        let accepted = node.member.accept::<Recorder>(record, Proof::Echo(echo));
        if is_right {
            accepted.unwrap();
            self.counts.verified += 1;
            self.take_request(who, sender, sent);
        } else {
            assert_eq!(accepted, Err(Discard::Unexpected));
            self.answer(who, sender, sent);
        }
    }

    fn take_request(&mut self, who: usize, sender: SenderId, sent: &Sent) {
        assert_eq!(usize::from(sender.number()), sent.from);
        assert!(self.taken.insert((who, number_of(&sent.content, 0))), "a request was delivered twice");
        accept(&mut self.nodes[who].senders, sent.from, sent.tsn);
        self.counts.requests += 1;
        if self.dice.roll(3) > 0 {
            self.answer(who, sender, sent);
        }
    }

    /// Sends a response that contains our challenge.
    fn answer(&mut self, who: usize, sender: SenderId, sent: &Sent) {
        let number = self.number();
        let node = &mut self.nodes[who];
        let content = [&number.to_be_bytes()[..], &sent.content[..8], node.member.challenge()].concat();
        match try_response(&mut node.member, &mut self.crypto, sender, &content) {
            Ok(bytes) => self.send(who, Some(sent.from), bytes, content),
            Err(SealRefused::LeaseSpent) => self.lease(who),
            Err(other) => panic!("{other}"),
        }
    }

    fn on_response(&mut self, who: usize, sent: &Sent) {
        let node = &mut self.nodes[who];
        let heard = hear_response(&mut node.member, &mut self.crypto, &address(sent.from as u8), &sent.bytes);
        if sent.epoch != node.epoch {
            assert_eq!(heard.err(), Some(Discard::UnknownPeer));
            return;
        }
        let is_awaited = |node: &mut Node<KEY>| {
            let answered = node.open.get_mut(&number_of(&sent.content, 1));
            answered.and_then(|(tsn, answered)| answered.insert(sent.from).then_some(*tsn))
        };
        let is_known = node.member.signatures().asked(who as u8, &sent.content).is_some();
        match verdict(&node.listeners, sent.from, sent.tsn) {
            Verdict::Replayed => {
                self.counts.replays += 1;
                assert_eq!(heard.err(), Some(Discard::Replayed));
                return;
            }
            // The request was of a run before.
            _ if self.is_signed && !is_known => {
                assert_eq!(heard.err(), Some(Discard::Unexpected));
                return;
            }
            Verdict::Fresh => {
                assert_eq!(heard.unwrap().fresh(), sent.content);
                is_awaited(node);
            }
            Verdict::Unverified => {
                let (content, record) = heard.unwrap().unverified();
                assert_eq!(content, sent.content);
                let Some(asked) = is_awaited(node) else { return };
                if asked < node.proving {
                    assert_eq!(
                        node.member.accept::<Recorder>(record, Proof::AnswerTo(asked)),
                        Err(Discard::Unexpected)
                    );
                    return;
                }
                node.member.accept::<Recorder>(record, Proof::AnswerTo(asked)).unwrap();
                self.counts.verified += 1;
            }
        }
        accept(&mut node.listeners, sent.from, sent.tsn);
        node.challenges[sent.from].copy_from_slice(&sent.content[16..]);
        assert!(self.taken.insert((who, number_of(&sent.content, 0))), "a response was delivered twice");
        self.counts.responses += 1;
    }

    /// Delivers a response to a sender that did not send the request, or delivers it from the address of another
    /// listener. The sender must refuse the response.
    fn on_strange_response(&mut self, who: usize, from: usize, sent: &Sent) {
        let heard = hear_response(&mut self.nodes[who].member, &mut self.crypto, &address(from as u8), &sent.bytes);
        assert!(heard.is_err(), "{heard:?}");
    }

    /// Changes some bits of a record. Every member drops it, and no state changes.
    fn spoil(&mut self) {
        let Some(mut sent) = self.choose() else { return };
        for _ in 0..=self.dice.roll(3) {
            let (at, bit) = (self.dice.roll(sent.bytes.len()), self.dice.roll(8));
            sent.bytes[at] ^= 1 << bit;
        }
        if self.sent.iter().any(|other| other.bytes == sent.bytes) {
            return;
        }
        self.counts.spoilt += 1;
        for who in 0..MEMBERS {
            let heard = hear_request(&mut self.nodes[who].member, &mut self.crypto, &sent.bytes);
            assert!(heard.is_err(), "{heard:?}");
            self.on_strange_response(who, sent.from, &sent);
        }
    }

    /// Restarts a member after a power cut: it keeps only its durable values.
    fn restart(&mut self, who: usize) {
        let group = &self.epochs[usize::from(self.nodes[who].epoch) - 1];
        let node = &mut self.nodes[who];
        node.member = member(&mut self.crypto, &group.association(who as u8), &node.kept, self.is_signed);
        node.senders.clear();
        node.first_of_unknown = None;
        node.listeners.clear();
        node.open.clear();
        node.proving = 0;
        node.is_kept = node.kept.epoch == node.epoch;
        // The controller might have received nothing of this epoch.
        for other in (0..MEMBERS).filter(|other| *other != who) {
            node.member.know_sender::<Recorder>(other as u8, 0).unwrap();
            if !node.is_kept {
                node.senders.insert(other, Model::from(0));
            }
        }
        self.counts.restarts += 1;
    }

    /// Lets a member begin the next epoch. A member that has missed an epoch begins the newest epoch.
    fn follow(&mut self, who: usize) {
        let group = self.epochs.last().unwrap();
        let node = &mut self.nodes[who];
        if group.epoch == node.epoch {
            return;
        }
        let association = &group.association(who as u8);
        if group.epoch == node.epoch + 1 {
            node.member.rekey(&mut self.crypto, association).unwrap();
            node.senders.values_mut().for_each(|model| *model = Model::from(0));
            node.first_of_unknown = Some(0);
        } else {
            node.member = member(&mut self.crypto, association, &node.kept, self.is_signed);
            node.senders.clear();
            node.first_of_unknown = None;
        }
        node.listeners.clear();
        // No response in the new epoch is to a request of the one before.
        node.open.clear();
        (node.next, node.proving) = (0, 0);
        node.epoch = group.epoch;
        node.is_kept = false;
        self.counts.rekeyed += 1;
    }

    /// Lets all members begin the newest epoch. Then asserts that each member accepts a request of each other member. A
    /// challenge may be necessary.
    fn ends_well(&mut self) {
        for who in 0..MEMBERS {
            self.follow(who);
        }
        for from in 0..MEMBERS {
            for who in (0..MEMBERS).filter(|who| *who != from) {
                let before = self.counts.requests;
                for _ in 0..3 {
                    self.pass(from, who);
                }
                assert!(self.counts.requests > before, "member {who} does not hear member {from}");
            }
        }
    }

    /// Sends a request from one member to another, and delivers the response.
    fn pass(&mut self, from: usize, to: usize) {
        for who in [from, to] {
            let node = &mut self.nodes[who];
            node.kept = node.member.reserve(2, 2);
            node.member.extend(&node.kept);
            node.is_kept = true;
        }
        self.ask(from);
        let asked = self.sent.last().unwrap().clone();
        self.on_request(to, &asked);
        if let Some(answer) = self.sent.last().filter(|last| last.to == Some(from)).cloned() {
            self.on_response(from, &answer);
        }
    }
}

fn run<const KEY: usize>(group: (Suite, bool), seeds: std::ops::Range<u64>) -> Counts {
    let mut all = Counts::default();
    for seed in seeds {
        let mut world = World::<KEY>::new(seed, group);
        world.run(200);
        world.ends_well();
        let Counts { requests, responses, verified, replays, spoilt, restarts, rekeyed } = world.counts;
        all.requests += requests;
        all.responses += responses;
        all.verified += verified;
        all.replays += replays;
        all.spoilt += spoilt;
        all.restarts += restarts;
        all.rekeyed += rekeyed;
    }
    // The seeds reach what they are for.
    let Counts { requests, responses, verified, replays, spoilt, restarts, rekeyed } = all;
    assert!(
        [requests, responses, verified, replays, spoilt, restarts, rekeyed].iter().all(|count| *count > 500),
        "{all:?}"
    );
    all
}

#[test]
fn members_on_a_bad_network_take_each_record_once() {
    run::<16>((Suite::Ccm, false), 0..2000);
}

#[test]
fn members_with_short_tags_take_each_record_once() {
    run::<16>((Suite::Ccm8, false), 2000..3000);
}

#[test]
fn members_with_gcm_take_each_record_once() {
    run::<16>((Suite::Gcm, false), 3000..4000);
}

#[test]
fn members_without_encryption_take_each_record_once() {
    run::<32>((Suite::MacOnly, false), 4000..5000);
}

#[test]
fn members_with_signatures_take_each_record_once() {
    run::<16>((Suite::Ccm, true), 5000..6000);
    run::<32>((Suite::MacOnly, true), 6000..6500);
}
