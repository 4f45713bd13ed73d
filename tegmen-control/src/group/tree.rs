//! The key tree of a group: a binary tree of secrets. Each leaf of the tree can belong to a member. This module also
//! makes the messages that replace secrets.

use super::GroupIdentity;
use serde::{Deserialize, Serialize};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tegmen::axiom::Admission;
use tegmen::axiom::rekey::{MAX_MESSAGE, Place, link, master_secret, parent_of, seal_epoch, seal_node};
use tegmen::buf::{Full, Writer};
use tegmen::crypto::{Crypto, DIGEST_LEN, KEY_LEN, hmac};
use tegmen::secret::Secret;
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_trust::x509::signer::Signer;

/// The secrets of all members and epochs of a group.
///
/// The tree does no input and output, and reads no clock. [`Self::join`], [`Self::evict`] and [`Self::rekey`] plan a
/// [`Change`], which begins the next epoch. The caller makes the change durable, [applies](Self::apply) it, and sends
/// the [messages](Self::messages) of the change. The messages are derived from the tree after the change, so a caller
/// that restarts makes the same messages again. No message is sealed before the change is applied.
pub struct KeyTree {
    group: GroupIdentity,
    levels: u8,
    /// The secrets of the nodes. The key is the number of the node. A node without a member below it has no secret.
    nodes: BTreeMap<u32, Secret<KEY_LEN>>,
    /// The free leaves with numbers below `unused`.
    free: BTreeSet<u32>,
    /// The leaf with the lowest number that never had a member. No leaf with a higher number had a member either.
    unused: u32,
    /// The leaves of members that do not check signatures.
    pairwise: BTreeSet<u32>,
    epoch: u16,
    /// The leaves whose paths got new secrets in the last change, in the order in which the paths got them. A path has
    /// all nodes from a leaf to the root. A node on several paths has the secret that the last of these paths gave it.
    changed: Vec<u32>,
    /// The elements of the hash chain, beginning with the element of epoch 0.
    chain: Vec<[u8; DIGEST_LEN]>,
    /// Two values that the controller derives from the seed: the client random and the server random. They replace those
    /// of a DTLS handshake when the members derive their keys.
    randoms: [[u8; DIGEST_LEN]; 2],
    /// The seed from which the secrets of all epochs, the first secrets of all nodes, and the secrets of the paths of
    /// members that join are derived.
    seed: Secret<DIGEST_LEN>,
}

/// A change that is planned but not applied yet.
pub struct Change {
    /// The number of the epoch that the change begins.
    pub(super) epoch: u16,
    /// The paths whose nodes get new secrets. The rekey messages of the paths are sent in this order. A node on several
    /// paths gets the secret of the last of these paths.
    pub(super) paths: Vec<Path>,
}

/// New secrets for the nodes from a leaf towards the root. A change of the group has one path for each member that
/// joins, leaves or gets new secrets. If two paths of a change have a node in common, only the later path has a secret
/// for this node, and the earlier path ends below it.
pub(super) struct Path {
    pub(super) leaf: u32,
    /// True if the member at the leaf checks signatures.
    pub(super) checks_signatures: bool,
    /// The nodes of the key tree from the leaf upwards. If the change evicts the member at the leaf, the lowest nodes
    /// have no secret, because no other member is below them.
    pub(super) nodes: Nodes,
    /// The data from which the secrets are derived; `None` for the path of an eviction, whose secrets are random.
    pub(super) origin: Option<PathOrigin>,
}

/// The data from which the controller derives the secrets of a path when a member joins, together with the seed of the
/// group, the leaf and the epoch. Only the seed is secret. The nonce is drawn for each admission. So two admissions
/// never have the same secrets, even if an old copy of the store has the same leaf and the same epoch again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct PathOrigin {
    nonce: [u8; NONCE_LEN],
    /// The number of nodes of the path that have secrets from this origin, from the leaf upwards.
    count: u8,
}

/// Length in bytes of the nonce of a [`PathOrigin`].
const NONCE_LEN: usize = 16;

impl From<PathOrigin> for String {
    fn from(PathOrigin { nonce, count }: PathOrigin) -> Self {
        to_hex(&[nonce.as_slice(), &[count]].concat())
    }
}

impl TryFrom<String> for PathOrigin {
    type Error = &'static str;

    fn try_from(digits: String) -> Result<Self, Self::Error> {
        const WRONG: &str = "the path is not 34 hexadecimal digits of at most 24 nodes: restore a backup";
        let bytes = from_hex(&digits).ok_or(WRONG)?;
        match bytes.split_first_chunk() {
            Some((nonce, &[count @ 1..=MAX_NODES])) => Ok(Self { nonce: *nonce, count }),
            _ => Err(WRONG),
        }
    }
}

/// The numbers of nodes, each with its secret. A node without a secret has no member below it.
pub(super) type Nodes = Vec<(u32, Option<Secret<KEY_LEN>>)>;

impl Change {
    /// Returns the leaf of the first member that joins in this change, or of the member that is evicted. Returns `None`
    /// if the change only begins an epoch.
    pub fn leaf(&self) -> Option<u32> {
        self.leaves().next()
    }

    /// Returns the leaves of the members that join in this change, in the order in which the caller named them.
    pub fn leaves(&self) -> impl Iterator<Item = u32> {
        self.paths.iter().map(|path| path.leaf)
    }
}

/// A rekey message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RekeyMessage {
    /// The leaf of the only member that receives the message. `None` if the message goes to the address of the group.
    pub to: Option<u32>,
    /// The bytes of the message.
    pub bytes: Vec<u8>,
}

/// The reason why a change is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// All leaves have members.
    #[error("the group is full; create another group with more levels")]
    Full,
    /// The leaf has no member.
    #[error("no member has this leaf; list the members")]
    NoMember,
    /// The hash chain has no further element, or its remaining elements are [reserved](KeyTree::epochs_reserved) for
    /// evictions.
    #[error("the group has no further epoch for this change; create a new group")]
    LastEpoch,
    /// The signer did not sign with ECDSA on secp256r1.
    #[error("the key of the controller did not sign; check that it is on secp256r1 and can be reached, and try again")]
    NotSigned,
}

/// The parameters of one member, which the member receives over its own session with the controller.
pub struct Admitted {
    pub(super) group: GroupIdentity,
    pub(super) epoch: u16,
    pub(super) chain: [u8; DIGEST_LEN],
    pub(super) secret: Secret<DIGEST_LEN>,
    pub(super) leaf: u32,
    pub(super) path: zeroize::Zeroizing<Vec<[u8; KEY_LEN]>>,
}

impl Admitted {
    /// Returns the parameters of the member in the form that [`tegmen::axiom`] takes.
    pub fn admission(&self) -> Admission<'_> {
        Admission {
            group: &self.group,
            epoch: self.epoch,
            chain: &self.chain,
            secret: self.secret.expose(),
            leaf: self.leaf,
            path: &self.path,
        }
    }
}

/// Maximum number of levels below the root. With more levels, some numbers of nodes would not fit into the 24 bits that
/// a rekey message has for such a number.
pub const MAX_LEVELS: u8 = 23;
/// Maximum number of nodes of a path, with its leaf and the root.
const MAX_NODES: u8 = MAX_LEVELS + 1;

impl KeyTree {
    /// Makes the tree of a new group, with 2^`levels` leaves (at most 2^[`MAX_LEVELS`]). The group has the epochs from
    /// 1 to `last`; a `last` of 0 counts as 1. Leaves have the numbers from 2^`levels` on. The first `members` leaves
    /// get members.
    pub fn new<C: Crypto>(crypto: &mut C, levels: u8, last: u16, members: u32) -> Self {
        let mut group = [0; 16];
        crypto.random(&mut group);
        let mut seed = Secret::zeroed();
        crypto.random(seed.expose_mut());
        let mut tree = Self::from_seed::<C>(group, seed, levels, last);
        for leaf in (tree.leaves()..tree.leaves().saturating_mul(2)).take(members as usize) {
            tree.occupy::<C>(leaf, true);
        }
        tree
    }

    /// Makes the tree of a group from its seed, in the state of epoch 1 and without members.
    pub(super) fn from_seed<C: Crypto>(group: GroupIdentity, seed: Secret<DIGEST_LEN>, levels: u8, last: u16) -> Self {
        let levels = levels.clamp(1, MAX_LEVELS);
        let mut end: [u8; DIGEST_LEN] = hmac::<C, DIGEST_LEN>(&[seed.expose()], &[b"axiom end"]);
        let mut chain = vec![end];
        for epoch in (1..=last.max(1)).rev() {
            end = link::<C>(&group, epoch, &end, &secret_of::<C>(&seed, epoch));
            chain.push(end);
        }
        chain.reverse();
        let nodes = BTreeMap::new();
        let (free, pairwise, changed) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        let random = |label| hmac::<C, DIGEST_LEN>(&[seed.expose()], &[label]);
        let randoms = [random(b"axiom client random".as_slice()), random(b"axiom server random")];
        Self { group, levels, nodes, free, unused: 1 << levels, pairwise, epoch: 1, changed, chain, randoms, seed }
    }

    /// Puts a member at a leaf. The leaf and the nodes above it get their first secrets, except the nodes that already
    /// have a secret.
    pub(super) fn occupy<C: Crypto>(&mut self, leaf: u32, checks_signatures: bool) {
        for node in path(leaf) {
            if self.nodes.contains_key(&node) {
                break;
            }
            let code = Secret::new(hmac::<C, DIGEST_LEN>(&[self.seed.expose()], &[b"axiom node", &node.to_be_bytes()]));
            let mut secret = Secret::zeroed();
            secret.expose_mut().iter_mut().zip(code.expose()).for_each(|(to, from)| *to = *from);
            self.nodes.insert(node, secret);
        }
        self.take(leaf, checks_signatures);
    }

    /// Restores the epoch and the secrets of a group from its rows. The members must already have their leaves. `nodes`
    /// are the secrets from earlier changes, the oldest first. `changed` are the leaves whose paths to the root got new
    /// secrets in the last change.
    pub(super) fn resume(
        &mut self,
        nodes: impl IntoIterator<Item = (u32, Option<Secret<KEY_LEN>>)>,
        epoch: u16,
        changed: Vec<u32>,
    ) {
        self.put(nodes);
        self.epoch = epoch;
        self.changed = changed;
    }

    fn put(&mut self, nodes: impl IntoIterator<Item = (u32, Option<Secret<KEY_LEN>>)>) {
        for (node, secret) in nodes {
            match secret {
                Some(secret) => self.nodes.insert(node, secret),
                None => self.nodes.remove(&node),
            };
        }
    }

    fn take(&mut self, leaf: u32, checks_signatures: bool) {
        self.free.extend(self.unused..leaf);
        self.unused = self.unused.max(leaf.saturating_add(1));
        self.free.remove(&leaf);
        self.pairwise.remove(&leaf);
        if !checks_signatures {
            self.pairwise.insert(leaf);
        }
    }

    pub(super) const fn seed(&self) -> &Secret<DIGEST_LEN> {
        &self.seed
    }

    /// Returns the current epoch, and the leaves whose paths to the root got new secrets in the change that began this
    /// epoch.
    pub(super) fn last(&self) -> (u16, &[u32]) {
        (self.epoch, &self.changed)
    }

    /// Returns the client random and the server random of the group.
    pub(super) const fn randoms(&self) -> &[[u8; DIGEST_LEN]; 2] {
        &self.randoms
    }

    /// Returns the identity of the group.
    pub const fn group(&self) -> &GroupIdentity {
        &self.group
    }

    /// Returns the current epoch.
    pub const fn epoch(&self) -> u16 {
        self.epoch
    }

    /// Returns the number of epochs that can follow the current epoch. Create a new group long before this number is 0.
    pub fn epochs_left(&self) -> usize {
        self.chain.len().saturating_sub(usize::from(self.epoch)).saturating_sub(1)
    }

    /// Returns the number of epochs at the end of the hash chain that are reserved for evictions: a tenth of all
    /// epochs. So members that join and leave cannot use up the epochs that an eviction needs.
    pub const fn epochs_reserved(&self) -> usize {
        reserved(self.chain.len())
    }

    /// Returns the master secret of the current epoch, from which the controller derives the keys for its own requests
    /// to the group.
    pub fn master_secret<C: Crypto>(&self) -> Secret<48> {
        master_secret::<C>(&self.group, self.epoch, &secret_of::<C>(&self.seed, self.epoch))
    }

    /// Returns a planned change in which a new member joins. All secrets that the member gets are new. After the
    /// change, [`Self::admit`] returns the parameters of the member. A member that does not check signatures gets
    /// separate rekey messages.
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::LastEpoch`].
    pub fn join<C: Crypto>(&self, crypto: &mut C, checks_signatures: bool) -> Result<Change, Refused> {
        let leaf = self.free_leaves(1).next().ok_or(Refused::Full)?;
        self.admit_all(crypto, &[(leaf, checks_signatures)])
    }

    /// Returns a planned change in which the member at `leaf` gets new secrets, as if the member had left and joined
    /// again.
    ///
    /// # Errors
    /// [`Refused::NoMember`], [`Refused::LastEpoch`].
    pub fn renew<C: Crypto>(&self, crypto: &mut C, leaf: u32, checks_signatures: bool) -> Result<Change, Refused> {
        self.check_member(leaf)?;
        self.admit_all(crypto, &[(leaf, checks_signatures)])
    }

    /// Returns the leaves without a member, in the order in which `count` new members get them if they join in one
    /// change. A single member gets the lowest leaf. Several members get a block of leaves that begins at a multiple of
    /// a power of two, if such a block is left. All leaves below the lowest nodes of the block are then without other
    /// members, so the change has fewer messages. Members that join later get the leaves between the blocks.
    pub fn free_leaves(&self, count: usize) -> impl Iterator<Item = u32> {
        let end = self.leaves().saturating_mul(2);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let size = 1_u32 << count.checked_ilog2().unwrap_or(0).min(MAX_LEVELS.into());
        let block = self.unused.next_multiple_of(size);
        let is_left = count > 1 && block.saturating_add(count) <= end;
        let block = if is_left { block } else { end };
        (block..end).chain(self.free.iter().copied()).chain(self.unused..block)
    }

    /// Returns a planned change in which `members` join, in one new epoch. Each element of `members` is a leaf, and a
    /// flag that is true if the member at this leaf checks signatures. All leaves must differ. A leaf is
    /// [free](Self::free_leaves), or belongs to a member, which then gets new secrets.
    ///
    /// # Errors
    /// [`Refused::LastEpoch`].
    pub fn admit_all<C: Crypto>(&self, crypto: &mut C, members: &[(u32, bool)]) -> Result<Change, Refused> {
        let epoch = self.spare_epoch()?;
        let mut replaced = BTreeSet::new();
        let of = |&(leaf, checks_signatures): &(u32, bool)| {
            let is_new = |(at, node): &(usize, u32)| *at == 0 || replaced.insert(*node);
            let count = path(leaf).enumerate().take_while(is_new).count();
            let mut origin = PathOrigin { nonce: [0; NONCE_LEN], count: u8::try_from(count).unwrap_or(MAX_NODES) };
            crypto.random(&mut origin.nonce);
            let nodes = self.derive::<C>((leaf, epoch), &origin);
            Path { leaf, checks_signatures, nodes, origin: Some(origin) }
        };
        // The last path reaches the root. Each other path ends below the first node that is also on a later path.
        let mut paths: Vec<Path> = members.iter().rev().map(of).collect();
        paths.reverse();
        Ok(Change { epoch, paths })
    }

    /// Derives the secrets of the path of a member that joined at `leaf` in the change that began `epoch`. The secret of
    /// the leaf and the lowest secret above the leaf are two halves of one code, which only the seed of the group gives.
    /// Each higher secret is derived from the secret of the node below.
    pub(super) fn derive<C: Crypto>(&self, (leaf, epoch): (u32, u16), origin: &PathOrigin) -> Nodes {
        let parts: [&[u8]; 4] = [b"axiom path", &leaf.to_be_bytes(), &epoch.to_be_bytes(), &origin.nonce];
        let code: Secret<DIGEST_LEN> = Secret::new(hmac::<C, DIGEST_LEN>(&[self.seed.expose()], &parts));
        let (mut own, mut secret) = (Secret::zeroed(), Secret::zeroed());
        let to = own.expose_mut().iter_mut().chain(secret.expose_mut());
        to.zip(code.expose()).for_each(|(to, from)| *to = *from);
        // With its whole capacity from the beginning, the vector leaves no copy of secrets behind.
        let mut nodes = Vec::with_capacity(origin.count.into());
        nodes.push((leaf, Some(own)));
        for node in path(leaf).take(origin.count.into()).skip(1) {
            let parent = parent_of::<C>(&self.group, &secret);
            nodes.push((node, Some(std::mem::replace(&mut secret, parent))));
        }
        nodes
    }

    /// Returns a planned change that evicts the member at `leaf`. The change replaces all secrets that the member had.
    ///
    /// # Errors
    /// [`Refused::NoMember`], [`Refused::LastEpoch`].
    pub fn evict<C: Crypto>(&self, crypto: &mut C, leaf: u32) -> Result<Change, Refused> {
        self.check_member(leaf)?;
        let epoch = self.next_epoch()?;
        Ok(Change { epoch, paths: vec![self.vacate(crypto, leaf)] })
    }

    /// Returns a planned change that begins the next epoch with the same members. This change has one message for all
    /// members.
    ///
    /// # Errors
    /// [`Refused::LastEpoch`].
    pub fn rekey(&self) -> Result<Change, Refused> {
        Ok(Change { epoch: self.spare_epoch()?, paths: Vec::new() })
    }

    /// Applies a change. The change must have been planned for the current state of the tree.
    pub fn apply(&mut self, change: Change) {
        let Change { epoch, paths } = change;
        self.changed = paths.iter().map(|path| path.leaf).collect();
        for Path { leaf, checks_signatures, nodes, .. } in paths {
            self.put(nodes);
            if self.nodes.contains_key(&leaf) {
                self.take(leaf, checks_signatures);
            } else {
                self.pairwise.remove(&leaf);
                self.free.insert(leaf);
            }
        }
        self.epoch = epoch;
    }

    /// Returns the messages of the last change, in the order in which they must be sent. The last message begins the
    /// epoch. Each call seals the same bytes. Without `signer`, each member gets separate messages.
    ///
    /// # Errors
    /// [`Refused::NotSigned`].
    pub fn messages<C: Crypto>(
        &self,
        crypto: &mut C,
        signer: Option<&dyn Signer>,
    ) -> Result<Vec<RekeyMessage>, Refused> {
        let mut messages = Vec::new();
        if self.epoch == 1 {
            return Ok(messages);
        }
        // For each node, the child from whose secret that of the node is derived. The members below the other child get a message,
        // except those that join: their parameters have the secret.
        let mut sources = BTreeMap::new();
        for leaf in self.changed.iter().rev() {
            for child in path(*leaf).filter(|node| *node > 1) {
                // The last path gave all nodes above this one their secrets.
                let Entry::Vacant(source) = sources.entry(child / 2) else { break };
                source.insert(child);
            }
        }
        // The lowest level comes first: the secret that encrypts a message may be new, and an earlier message then has it.
        let changed: BTreeSet<u32> = self.changed.iter().copied().collect();
        let gets_message = |other: u32| self.nodes.range(self.below(other)).any(|(leaf, _)| !changed.contains(leaf));
        for (node, source) in sources.into_iter().rev().filter(|(_, source)| gets_message(source ^ 1)) {
            if let Some(new) = self.nodes.get(&node) {
                self.tell(crypto, signer, source ^ 1, new, &mut messages)?;
            }
        }
        messages.extend(self.epoch_message(crypto)?);
        Ok(messages)
    }

    /// Returns the parameters of a member. A member needs its parameters after it joined, and after it missed a
    /// message.
    ///
    /// # Errors
    /// [`Refused::NoMember`].
    pub fn admit<C: Crypto>(&self, leaf: u32) -> Result<Admitted, Refused> {
        self.check_member(leaf)?;
        // With its whole capacity from the beginning, the vector leaves no copy of secrets behind.
        let mut secrets = zeroize::Zeroizing::new(Vec::with_capacity(usize::from(MAX_LEVELS) + 1));
        for node in path(leaf) {
            secrets.push(*self.nodes.get(&node).ok_or(Refused::NoMember)?.expose());
        }
        Ok(Admitted {
            group: self.group,
            epoch: self.epoch,
            chain: *self.chain.get(usize::from(self.epoch)).ok_or(Refused::LastEpoch)?,
            secret: secret_of::<C>(&self.seed, self.epoch),
            leaf,
            path: secrets,
        })
    }

    /// Returns the number of levels below a node.
    const fn height(&self, node: u32) -> u32 {
        (self.levels as u32).saturating_sub(node.ilog2())
    }

    /// Returns the leaves below a node. For a leaf, returns only this leaf.
    const fn below(&self, node: u32) -> Range<u32> {
        let first = node << self.height(node);
        first..first.saturating_add(1 << self.height(node))
    }

    fn check_member(&self, leaf: u32) -> Result<(), Refused> {
        let is_leaf = leaf >= self.leaves() && self.nodes.contains_key(&leaf);
        if is_leaf { Ok(()) } else { Err(Refused::NoMember) }
    }

    const fn leaves(&self) -> u32 {
        1 << self.levels
    }

    /// Returns the number of the next epoch, for a change that is not an eviction. Refuses an epoch that is reserved
    /// for evictions.
    fn spare_epoch(&self) -> Result<u16, Refused> {
        if self.epochs_left() > self.epochs_reserved() { self.next_epoch() } else { Err(Refused::LastEpoch) }
    }

    fn next_epoch(&self) -> Result<u16, Refused> {
        let next = self.epoch.checked_add(1).ok_or(Refused::LastEpoch)?;
        if usize::from(next) < self.chain.len() { Ok(next) } else { Err(Refused::LastEpoch) }
    }

    /// Makes new secrets for the nodes above `leaf`, the leaf of a member that is evicted. A node gets a new secret
    /// only if another member is still below this node.
    fn vacate<C: Crypto>(&self, crypto: &mut C, leaf: u32) -> Path {
        let mut is_below = false;
        let mut nodes = vec![(leaf, None)];
        let mut last: Option<Secret<KEY_LEN>> = None;
        for child in path(leaf).filter(|node| *node > 1) {
            is_below |= self.nodes.contains_key(&(child ^ 1));
            let new = is_below.then(|| match &last {
                Some(secret) => parent_of::<C>(&self.group, secret),
                None => random(crypto),
            });
            last = new.as_ref().map(|secret| Secret::new(*secret.expose()));
            nodes.push((child / 2, new));
        }
        Path { leaf, checks_signatures: true, nodes, origin: None }
    }

    /// Makes the rekey messages for the members below `node`, and appends them to `messages`. These messages contain
    /// `new`, which is the new secret of the parent of `node`.
    fn tell<C: Crypto>(
        &self,
        crypto: &mut C,
        signer: Option<&dyn Signer>,
        node: u32,
        new: &Secret<KEY_LEN>,
        messages: &mut Vec<RekeyMessage>,
    ) -> Result<(), Refused> {
        let Some(key) = self.nodes.get(&node) else { return Ok(()) };
        let (below, leaves) = (self.height(node), self.below(node));
        if let Some(signer) = signer.filter(|_| below > 0) {
            let sign = |digest: &[u8; DIGEST_LEN], out: &mut [u8; 72]| {
                let signature = signer.sign_digest(digest).ok()?;
                out.get_mut(..signature.len())?.copy_from_slice(&signature);
                Some(signature.len())
            };
            let place = Place { epoch: self.epoch, under: node, up: 1 };
            messages.push(written(None, |out| seal_node(crypto, &self.group, place, (key, new), Some(&sign), out))?);
            for leaf in self.pairwise.range(leaves) {
                messages.push(self.pairwise(crypto, (*leaf, below), new)?);
            }
        } else {
            for leaf in self.nodes.range(leaves).map(|(leaf, _)| *leaf) {
                messages.push(self.pairwise(crypto, (leaf, below), new)?);
            }
        }
        Ok(())
    }

    fn pairwise<C: Crypto>(
        &self,
        crypto: &mut C,
        (leaf, below): (u32, u32),
        new: &Secret<KEY_LEN>,
    ) -> Result<RekeyMessage, Refused> {
        let key = self.nodes.get(&leaf).ok_or(Refused::NoMember)?;
        let up = u8::try_from(below.saturating_add(1)).unwrap_or(u8::MAX);
        let place = Place { epoch: self.epoch, under: leaf, up };
        written(Some(leaf), |out| seal_node(crypto, &self.group, place, (key, new), None, out))
    }

    /// Makes the message that begins the epoch; returns `None` if the group has no member.
    fn epoch_message<C: Crypto>(&self, crypto: &mut C) -> Result<Option<RekeyMessage>, Refused> {
        let chain = self.chain.get(usize::from(self.epoch)).ok_or(Refused::LastEpoch)?;
        let secret = &secret_of::<C>(&self.seed, self.epoch);
        let seal =
            |root| written(None, |out| seal_epoch(crypto, &self.group, (self.epoch, chain), (root, secret), out));
        self.nodes.get(&1).map(seal).transpose()
    }
}

/// Returns how many epochs are reserved for evictions: a tenth of `elements`, the number of elements of the hash chain.
pub(super) const fn reserved(elements: usize) -> usize {
    elements / 10
}

/// Returns the nodes from a leaf to the root.
pub(super) fn path(leaf: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(leaf), |node| Some(node / 2).filter(|node| *node > 0))
}

fn secret_of<C: Crypto>(seed: &Secret<DIGEST_LEN>, epoch: u16) -> Secret<DIGEST_LEN> {
    Secret::new(hmac::<C, DIGEST_LEN>(&[seed.expose()], &[b"axiom epoch", &epoch.to_be_bytes()]))
}

fn random<C: Crypto>(crypto: &mut C) -> Secret<KEY_LEN> {
    let mut secret = Secret::zeroed();
    crypto.random(secret.expose_mut());
    secret
}

fn written(to: Option<u32>, write: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) -> Result<RekeyMessage, Refused> {
    let mut bytes = [0; MAX_MESSAGE];
    let mut writer = Writer::new(&mut bytes);
    write(&mut writer).map_err(|_| Refused::NotSigned)?;
    Ok(RekeyMessage { to, bytes: writer.written().to_vec() })
}

#[cfg(test)]
mod tests;
