//! Keys of a group after Axiom ([`tegmen::axiom`]) at its controller: a binary tree of secrets, and the messages that replace them.
//!
//! A [`KeyTree`] has no input and output, and no clock. Each change begins the next epoch and returns its messages, in the order in
//! which to send them. The last one is that of the epoch. If a change is refused, nothing has changed.

use std::collections::BTreeSet;
use tegmen::axiom::Admission;
use tegmen::axiom::rekey::{GroupIdentity, MAX_MESSAGE, Place, link, master_secret, parent_of, seal_epoch, seal_node};
use tegmen::buf::{Full, Writer};
use tegmen::crypto::{Crypto, DIGEST_LEN, KEY_LEN, hmac};
use tegmen::secret::Secret;
use tegmen_trust::x509::signer::Signer;

/// The secrets of a group, of all members and epochs.
pub struct KeyTree {
    group: GroupIdentity,
    /// By the number of the node; `None` where no member is below it.
    nodes: Vec<Option<Secret<KEY_LEN>>>,
    free: BTreeSet<u32>,
    /// Leaves of members that do not check signatures.
    pairwise: BTreeSet<u32>,
    epoch: u16,
    /// Elements of the hash chain, from that of epoch 0.
    chain: Vec<[u8; DIGEST_LEN]>,
    /// The secrets of all epochs are derived from it.
    seed: Secret<DIGEST_LEN>,
}

/// A rekey message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RekeyMessage {
    /// The leaf of the only member that it is for. `None` if it goes to the address of the group.
    pub to: Option<u32>,
    /// Its bytes.
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
    /// The hash chain has no further element, or only those that are [reserved](KeyTree::epochs_reserved) for evictions.
    #[error("the group has no further epoch for this change; create a new group")]
    LastEpoch,
    /// The signer did not sign with ECDSA on secp256r1.
    #[error("the key of the controller did not sign; check that it is on secp256r1 and can be reached, and try again")]
    NotSigned,
}

/// The parameters of one member, which it gets over a session of its own.
pub struct Admitted {
    group: GroupIdentity,
    epoch: u16,
    chain: [u8; DIGEST_LEN],
    secret: Secret<DIGEST_LEN>,
    leaf: u32,
    path: zeroize::Zeroizing<Vec<[u8; KEY_LEN]>>,
}

impl Admitted {
    /// Returns the parameters as the member takes them.
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

/// The most levels below the root: the messages number nodes below 2^24.
pub const MAX_LEVELS: u8 = 23;

impl KeyTree {
    /// A group with space for 2^`levels` members, at most 2^[`MAX_LEVELS`], for the epochs from 1 to `last`, at least 1. Its first
    /// `members` have the first leaves, from 2^`levels` on.
    pub fn new<C: Crypto>(crypto: &mut C, levels: u8, last: u16, members: u32) -> Self {
        let leaves = 1_u32 << levels.clamp(1, MAX_LEVELS);
        let mut group = [0; 16];
        crypto.random(&mut group);
        let mut seed = Secret::zeroed();
        crypto.random(seed.expose_mut());
        let mut end = [0; DIGEST_LEN];
        crypto.random(&mut end);
        let mut chain = vec![end];
        for epoch in (1..=last.max(1)).rev() {
            end = link::<C>(&group, epoch, &end, &secret_of::<C>(&seed, epoch));
            chain.push(end);
        }
        chain.reverse();
        let ends = leaves.saturating_mul(2);
        let first_free = leaves.saturating_add(members).min(ends);
        let mut nodes: Vec<Option<Secret<KEY_LEN>>> = (0..ends).map(|_| None).collect();
        for leaf in leaves..first_free {
            for node in path(leaf) {
                match nodes.get_mut(node as usize) {
                    Some(place @ None) => *place = Some(random(crypto)),
                    _ => break,
                }
            }
        }
        Self { group, nodes, free: (first_free..ends).collect(), pairwise: BTreeSet::new(), epoch: 1, chain, seed }
    }

    /// Returns the current epoch.
    pub const fn epoch(&self) -> u16 {
        self.epoch
    }

    /// Returns how many more epochs the hash chain has. Create a new group long before there is none.
    pub fn epochs_left(&self) -> usize {
        self.chain.len().saturating_sub(usize::from(self.epoch)).saturating_sub(1)
    }

    /// Returns how many epochs at the end of the hash chain are for evictions only, a tenth of all: members that join and leave
    /// cannot use up those that an eviction needs.
    pub const fn epochs_reserved(&self) -> usize {
        self.chain.len() / 10
    }

    /// Returns the master secret of the current epoch, for the association of the controller's own member.
    pub fn master_secret<C: Crypto>(&self) -> Secret<48> {
        master_secret::<C>(&self.group, self.epoch, &secret_of::<C>(&self.seed, self.epoch))
    }

    /// Adds a member, and replaces all secrets that it gets. Returns its leaf; [`Self::admit`] has its parameters.
    /// `check_signatures` is true for a member that has the public key of the controller. Another member gets each node message
    /// under the secret of its own leaf. Without `signer` all members do.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn join<C: Crypto>(
        &mut self,
        crypto: &mut C,
        signer: Option<&dyn Signer>,
        check_signatures: bool,
    ) -> Result<(u32, Vec<RekeyMessage>), Refused> {
        let leaf = *self.free.first().ok_or(Refused::Full)?;
        self.spare_epoch()?;
        let secret = random(crypto);
        let messages = self.replace(crypto, signer, leaf, Some(secret))?;
        self.free.remove(&leaf);
        if !check_signatures {
            self.pairwise.insert(leaf);
        }
        Ok((leaf, messages))
    }

    /// Removes a member, and replaces all secrets that it had.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn evict<C: Crypto>(
        &mut self,
        crypto: &mut C,
        signer: Option<&dyn Signer>,
        leaf: u32,
    ) -> Result<Vec<RekeyMessage>, Refused> {
        self.check_member(leaf)?;
        let messages = self.replace(crypto, signer, leaf, None)?;
        self.pairwise.remove(&leaf);
        self.free.insert(leaf);
        Ok(messages)
    }

    /// Begins the next epoch with the same members: one message for all.
    ///
    /// # Errors
    /// [`Refused::LastEpoch`].
    pub fn rekey<C: Crypto>(&mut self, crypto: &mut C) -> Result<Vec<RekeyMessage>, Refused> {
        let next = self.spare_epoch()?;
        let message = self.epoch_message(crypto, next, self.node(1))?;
        self.epoch = next;
        Ok(message.into_iter().collect())
    }

    /// Returns the parameters of a member: when it joined, and when it missed a message.
    ///
    /// # Errors
    /// [`Refused::NoMember`].
    pub fn admit<C: Crypto>(&self, leaf: u32) -> Result<Admitted, Refused> {
        self.check_member(leaf)?;
        // With its whole capacity from the beginning, the vector leaves no copy of secrets behind.
        let mut secrets = zeroize::Zeroizing::new(Vec::with_capacity(usize::from(MAX_LEVELS) + 1));
        for node in path(leaf) {
            secrets.push(*self.node(node).ok_or(Refused::NoMember)?.expose());
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

    fn check_member(&self, leaf: u32) -> Result<(), Refused> {
        let is_leaf = leaf >= self.leaves() && self.node(leaf).is_some();
        if is_leaf { Ok(()) } else { Err(Refused::NoMember) }
    }

    fn leaves(&self) -> u32 {
        u32::try_from(self.nodes.len() / 2).unwrap_or(u32::MAX)
    }

    fn node(&self, node: u32) -> Option<&Secret<KEY_LEN>> {
        self.nodes.get(node as usize)?.as_ref()
    }

    /// The next epoch, for a change that is not an eviction.
    fn spare_epoch(&self) -> Result<u16, Refused> {
        if self.epochs_left() > self.epochs_reserved() { self.next_epoch() } else { Err(Refused::LastEpoch) }
    }

    fn next_epoch(&self) -> Result<u16, Refused> {
        let next = self.epoch.checked_add(1).ok_or(Refused::LastEpoch)?;
        if usize::from(next) < self.chain.len() { Ok(next) } else { Err(Refused::LastEpoch) }
    }

    /// Replaces the secrets from a leaf to the root.
    fn replace<C: Crypto>(
        &mut self,
        crypto: &mut C,
        signer: Option<&dyn Signer>,
        leaf: u32,
        secret: Option<Secret<KEY_LEN>>,
    ) -> Result<Vec<RekeyMessage>, Refused> {
        let epoch = self.next_epoch()?;
        let mut is_below = secret.is_some();
        let mut fresh = vec![(leaf, secret)];
        let mut messages = Vec::new();
        let mut last: Option<Secret<KEY_LEN>> = None;
        for child in path(leaf).filter(|node| *node > 1) {
            let beside = child ^ 1;
            is_below |= self.node(beside).is_some();
            let new = is_below.then(|| match &last {
                Some(secret) => parent_of::<C>(&self.group, secret),
                None => random(crypto),
            });
            if let Some(new) = &new {
                self.tell(crypto, signer, (epoch, beside), new, &mut messages)?;
            }
            last = new.as_ref().map(|secret| Secret::new(*secret.expose()));
            fresh.push((child / 2, new));
        }
        messages.extend(self.epoch_message(crypto, epoch, last.as_ref())?);
        for (node, secret) in fresh {
            if let Some(place) = self.nodes.get_mut(node as usize) {
                *place = secret;
            }
        }
        self.epoch = epoch;
        Ok(messages)
    }

    /// Writes the messages with the new secret of the parent of `node`, for the members below `node`.
    fn tell<C: Crypto>(
        &self,
        crypto: &mut C,
        signer: Option<&dyn Signer>,
        (epoch, node): (u16, u32),
        new: &Secret<KEY_LEN>,
        messages: &mut Vec<RekeyMessage>,
    ) -> Result<(), Refused> {
        let Some(key) = self.node(node) else { return Ok(()) };
        let below = self.leaves().ilog2().saturating_sub(node.ilog2());
        let first = node << below;
        let leaves = first..first.saturating_add(1 << below);
        if let Some(signer) = signer.filter(|_| below > 0) {
            let sign = |digest: &[u8; DIGEST_LEN], out: &mut [u8; 72]| {
                let signature = signer.sign_digest(digest).ok()?;
                out.get_mut(..signature.len())?.copy_from_slice(&signature);
                Some(signature.len())
            };
            let place = Place { epoch, under: node, up: 1 };
            messages.push(written(None, |out| seal_node(crypto, &self.group, place, (key, new), Some(&sign), out))?);
            for leaf in self.pairwise.range(leaves) {
                messages.push(self.pairwise(crypto, epoch, (*leaf, below), new)?);
            }
        } else {
            for leaf in leaves {
                if self.node(leaf).is_some() {
                    messages.push(self.pairwise(crypto, epoch, (leaf, below), new)?);
                }
            }
        }
        Ok(())
    }

    fn pairwise<C: Crypto>(
        &self,
        crypto: &mut C,
        epoch: u16,
        (leaf, below): (u32, u32),
        new: &Secret<KEY_LEN>,
    ) -> Result<RekeyMessage, Refused> {
        let key = self.node(leaf).ok_or(Refused::NoMember)?;
        let up = u8::try_from(below.saturating_add(1)).unwrap_or(u8::MAX);
        let place = Place { epoch, under: leaf, up };
        written(Some(leaf), |out| seal_node(crypto, &self.group, place, (key, new), None, out))
    }

    /// Writes the message of an epoch, if there is a member.
    fn epoch_message<C: Crypto>(
        &self,
        crypto: &mut C,
        epoch: u16,
        root: Option<&Secret<KEY_LEN>>,
    ) -> Result<Option<RekeyMessage>, Refused> {
        let chain = self.chain.get(usize::from(epoch)).ok_or(Refused::LastEpoch)?;
        let secret = &secret_of::<C>(&self.seed, epoch);
        root.map(|root| written(None, |out| seal_epoch(crypto, &self.group, (epoch, chain), (root, secret), out)))
            .transpose()
    }
}

/// The nodes from a leaf to the root.
fn path(leaf: u32) -> impl Iterator<Item = u32> {
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
