//! The secrets that a member keeps for more than one epoch, and the rekey messages that replace these secrets.

use super::association::BadAssociation;
use super::rekey::{Message, check, link, master_secret, open_epoch, open_node, parent_of};
use crate::counters::Discard;
use crate::crypto::{Crypto, DIGEST_LEN, KEY_LEN};
use crate::secret::{Secret, same};

/// The parameters that a member gets from the controller when it joins, and when it missed a rekey message. The
/// controller sends them over a session with this member alone.
#[derive(Clone, Copy)]
pub struct Admission<'a> {
    /// The identity of the group: 16 random bytes that the controller has drawn.
    pub group: &'a [u8; 16],
    /// The current epoch; at least 1.
    pub epoch: u16,
    /// The element of the controller's hash chain for this epoch: see [`rekey`](super::rekey).
    pub chain: &'a [u8; DIGEST_LEN],
    /// The secret of the epoch, from which the master secret of the epoch is derived.
    pub secret: &'a [u8; DIGEST_LEN],
    /// The number of the member's leaf in the tree of keys: see [`rekey`](super::rekey).
    pub leaf: u32,
    /// The secrets of the nodes on the path from the leaf to the root, in this order. No other member ever gets the
    /// secret of the leaf.
    pub path: &'a [[u8; KEY_LEN]],
}

/// The result of processing a rekey message that the member did not drop. With the results `Nodes` and `Epoch`, the
/// message was authentic. With the result `Missed`, it may be forged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rekeyed {
    /// The member has stored new secrets of nodes in the tree of keys. The controller then sends the epoch message.
    Nodes,
    /// The next epoch has begun. Call [`Member::rekey`](super::Member::rekey) with an association that contains the
    /// [master secret](KeyPath::master_secret) of this epoch.
    Epoch,
    /// The member probably missed a rekey message. Ask the controller for an [`Admission`]. Anyone can forge a message
    /// that has this result, so limit the rate at which the member asks the controller.
    Missed,
}

/// The secrets of a member: at most `NODES` secrets of the nodes from its leaf to the root of the tree, and the secret
/// of the epoch. A tree of 2^(`NODES` - 1) leaves has paths of `NODES` nodes.
pub struct KeyPath<const NODES: usize> {
    group: [u8; 16],
    leaf: u32,
    epoch: u16,
    chain: [u8; DIGEST_LEN],
    secret: Secret<DIGEST_LEN>,
    path: [Secret<KEY_LEN>; NODES],
}

impl<const NODES: usize> KeyPath<NODES> {
    /// Creates the secrets of a member that was just admitted to the group.
    ///
    /// # Errors
    /// * [`BadAssociation::Epoch`] if the epoch is 0.
    /// * [`BadAssociation::Suite`] if the path does not have one secret for each level from the leaf to the root, or if
    ///   it has more than `NODES` secrets.
    pub fn new(admission: &Admission<'_>) -> Result<Self, BadAssociation> {
        let levels = admission.leaf.checked_ilog2().map(|depth| depth.wrapping_add(1) as usize);
        if levels != Some(admission.path.len()) || admission.path.len() > NODES {
            return Err(BadAssociation::Suite);
        }
        if admission.epoch == 0 {
            return Err(BadAssociation::Epoch);
        }
        let mut made = Self {
            group: *admission.group,
            leaf: admission.leaf,
            epoch: admission.epoch,
            chain: *admission.chain,
            secret: Secret::new(*admission.secret),
            path: [const { Secret::zeroed() }; NODES],
        };
        for (to, from) in made.path.iter_mut().zip(admission.path) {
            *to.expose_mut() = *from;
        }
        Ok(made)
    }

    /// Replaces the secrets by those in the parameters that the controller sent because the member missed a message.
    ///
    /// # Errors
    /// The errors of [`Self::new`], and:
    /// * [`BadAssociation::Epoch`] also if the parameters belong to another group, or to an epoch before the current
    ///   one.
    /// * [`BadAssociation::Admission`] if the parameters belong to another admission of this member. Then another
    ///   device has joined with the same credentials: it has the secrets of that admission, and seals with the same
    ///   nonces. If this device itself has joined again, it must call [`Self::new`].
    ///
    /// After an error, the secrets are unchanged.
    pub fn catch_up(&mut self, admission: &Admission<'_>) -> Result<(), BadAssociation> {
        *self = self.following(admission)?;
        Ok(())
    }

    fn following(&self, admission: &Admission<'_>) -> Result<Self, BadAssociation> {
        if *admission.group != self.group || admission.epoch < self.epoch {
            return Err(BadAssociation::Epoch);
        }
        // Only an admission gives the leaf a new secret.
        let mut leaves = self.path.iter().zip(admission.path).take(1);
        if admission.leaf != self.leaf || !leaves.all(|(ours, theirs)| same(ours.expose(), theirs)) {
            return Err(BadAssociation::Admission);
        }
        Self::new(admission)
    }

    /// Returns the parameters of the current epoch, so that the owner of the member can store them durably. After a
    /// restart, the owner passes them to [`Self::new`]. Writes the secrets of the nodes into `path`, which the owner
    /// must wipe.
    pub fn admission<'a>(&'a self, path: &'a mut [[u8; KEY_LEN]; NODES]) -> Admission<'a> {
        for (to, from) in path.iter_mut().zip(&self.path) {
            *to = *from.expose();
        }
        let Self { group, epoch, chain, secret, leaf, .. } = self;
        let levels = leaf.checked_ilog2().map_or(0, |depth| depth.wrapping_add(1) as usize);
        let path = path.get(..levels).unwrap_or(&[]);
        Admission { group, epoch: *epoch, chain, secret: secret.expose(), leaf: *leaf, path }
    }

    /// Returns the current epoch.
    pub const fn epoch(&self) -> u16 {
        self.epoch
    }

    /// Returns the master secret of the current epoch. The [`Association`](super::Association) of the epoch contains
    /// this master secret.
    pub fn master_secret<C: Crypto>(&self) -> Secret<48> {
        master_secret::<C>(&self.group, self.epoch, &self.secret)
    }

    /// Processes a rekey message. `controller` is the SubjectPublicKeyInfo of the controller, on secp256r1. If it is
    /// `None`, the member accepts epoch messages, but no node messages with a signature. A node message without a
    /// signature is encrypted under the secret of the member's own leaf.
    ///
    /// # Errors
    /// The reason why the message is dropped; the secrets are then unchanged.
    /// * [`Discard::Malformed`] if the message does not parse, or if its levels do not fit the path of this member.
    /// * [`Discard::UnknownPeer`] if the message is for other members.
    /// * [`Discard::Replayed`] if the epoch of the message has already begun, or if the node already has the secret in
    ///   the message.
    /// * [`Discard::NotAuthentic`] if the tag of the message, its signature or its element of the hash chain is wrong,
    ///   or if a signature is missing.
    /// * [`Discard::Unexpected`] if the message has a signature, and `controller` is `None`.
    pub fn open<C: Crypto>(
        &mut self,
        crypto: &mut C,
        controller: Option<&[u8]>,
        message: &[u8],
    ) -> Result<Rekeyed, Discard> {
        let parsed = Message::parse(message).map_err(|_| Discard::Malformed)?;
        let epoch = match &parsed {
            Message::Node { place, .. } => place.epoch,
            Message::Epoch { epoch, .. } => *epoch,
        };
        let next = self.epoch.checked_add(1).ok_or(Discard::Replayed)?;
        if epoch != next {
            return if epoch < next { Err(Discard::Replayed) } else { Ok(Rekeyed::Missed) };
        }
        match parsed {
            Message::Epoch { chain, .. } => self.open_epoch(crypto, next, chain, message),
            Message::Node { place, sealed, signature } => {
                let depth = self.leaf.checked_ilog2().ok_or(Discard::UnknownPeer)?;
                let below = place.under.checked_ilog2().and_then(|level| depth.checked_sub(level));
                let below = below.filter(|below| self.leaf.checked_shr(*below) == Some(place.under));
                let below = below.ok_or(Discard::UnknownPeer)?;
                let first = below.wrapping_add(place.up.into());
                if place.up == 0 || first > depth {
                    return Err(Discard::Malformed);
                }
                if signature.is_none() && below != 0 {
                    return Err(Discard::NotAuthentic);
                }
                let key = self.path.get(below as usize).ok_or(Discard::UnknownPeer)?;
                let secret = open_node(crypto, &self.group, key, sealed).map_err(|_| Discard::NotAuthentic)?;
                // Without this check, anyone who repeats a genuine message could make the member check its signature
                // again.
                if self.path.get(first as usize).is_some_and(|node| same(node.expose(), secret.expose())) {
                    return Err(Discard::Replayed);
                }
                if let Some(signature) = signature {
                    let controller = controller.ok_or(Discard::Unexpected)?;
                    check(crypto, &self.group, controller, sealed, signature).map_err(|_| Discard::NotAuthentic)?;
                }
                self.replace::<C>(first, depth, secret);
                Ok(Rekeyed::Nodes)
            }
        }
    }

    /// Stores `secret` as the secret of a node on the path. `first` is the number of levels from the leaf up to this
    /// node, and `depth` the number of levels from the leaf up to the root. Also derives and stores the secrets of the
    /// nodes above this node.
    fn replace<C: Crypto>(&mut self, first: u32, depth: u32, mut secret: Secret<KEY_LEN>) {
        let levels = depth.wrapping_add(1) as usize;
        for node in self.path.iter_mut().take(levels).skip(first as usize) {
            let parent = parent_of::<C>(&self.group, &secret);
            *node = core::mem::replace(&mut secret, parent);
        }
    }

    fn open_epoch<C: Crypto>(
        &mut self,
        crypto: &mut C,
        next: u16,
        chain: &[u8; DIGEST_LEN],
        message: &[u8],
    ) -> Result<Rekeyed, Discard> {
        let depth = self.leaf.checked_ilog2().ok_or(Discard::UnknownPeer)?;
        let root = self.path.get(depth as usize).ok_or(Discard::UnknownPeer)?;
        // Without the new secret of the root, the member cannot distinguish a genuine message from a forged one.
        let Ok(secret) = open_epoch(crypto, &self.group, root, message) else { return Ok(Rekeyed::Missed) };
        if !same(&link::<C>(&self.group, next, chain, &secret), &self.chain) {
            return Err(Discard::NotAuthentic);
        }
        self.epoch = next;
        self.chain = *chain;
        self.secret = secret;
        Ok(Rekeyed::Epoch)
    }
}
