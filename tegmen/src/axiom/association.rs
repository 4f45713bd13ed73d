//! Group security associations (Axiom paper, section 5.3), and the keys that are derived from them (Axiom paper,
//! section 5.5).

use super::suite::Suite;
use crate::address::Address;
use crate::buf::Reader;
use crate::crypto::Crypto;
use crate::crypto::hash::HmacKey;
use crate::secret::Secret;

/// The security association of one epoch of a group (Axiom paper, section 5.3). It consists of the parameters that a
/// member gets from the controller of its group.
#[derive(Clone, Copy)]
pub struct Association<'a> {
    /// The GroupID: the byte that identifies the group in the header of a response.
    pub group_id: u8,
    /// The multicast address and the port of the group, to which requests are sent. Members send responses from this
    /// port. A response from another port is dropped, and so is a response from a link-local address of another scope.
    pub group: Address,
    /// The cipher suite that protects the records.
    pub suite: Suite,
    /// The epoch, from 1 to 65535. After epoch 65535, the controller must create a new group.
    pub epoch: u16,
    /// Maximum number of SenderIDs that the controller assigns in this epoch; 0 counts as 256. All senders seal with
    /// one key, which may seal 2^23 records. Each sender may seal an equal share of these records.
    pub senders: u16,
    /// Our SenderID; `None` if we send no requests. The controller never assigns the same SenderID to two members in
    /// one epoch.
    pub sender_id: Option<u8>,
    /// The source address of our responses: 16 bytes of an IPv6 address, or of an IPv4 address in the IPv4-mapped form.
    /// Our keys are derived from this address. The controller never accepts two members with the same address in one
    /// epoch.
    pub address: [u8; 16],
    /// The secret of the epoch. No other epoch and no other group has the same secret.
    pub master_secret: &'a [u8; 48],
    /// Random bytes that the controller drew. They replace the client random of a handshake.
    pub client_random: &'a [u8; 32],
    /// Random bytes that the controller drew. They replace the server random of a handshake.
    pub server_random: &'a [u8; 32],
}

/// The reason why an association cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadAssociation {
    /// The crypto provider does not support the suite, or the keys of the suite do not have the length that the
    /// member's type requires. For an [`Admission`](super::Admission): the path has a wrong number of secrets.
    Suite,
    /// The epoch is 0, earlier than the epoch in the member's durable values, or not the next epoch. Or the parameters
    /// belong to another group.
    Epoch,
    /// The keys belong to another admission of the member. So another device uses the same keys and the same nonces.
    Admission,
}

/// Maximum number of bytes of a key block: two keys of HMAC-SHA-256.
const KEY_BLOCK_LEN: usize = 64;
/// Number of bytes of the implicit part of a nonce.
pub(super) const IV_LEN: usize = 4;

/// The keys of a group in one epoch, which all members have.
pub(super) struct GroupKeys<const KEY: usize> {
    /// The key `server_write` of the key block. All requests are sealed with this key.
    pub(super) request: Secret<KEY>,
    pub(super) request_iv: [u8; IV_LEN],
    /// The key `client_write` of the key block. No record is sealed with this key: the individual keys of the listeners
    /// are derived from it.
    response: Secret<KEY>,
    pub(super) response_iv: [u8; IV_LEN],
}

impl<const KEY: usize> GroupKeys<KEY> {
    pub(super) const fn none() -> Self {
        Self {
            request: Secret::zeroed(),
            request_iv: [0; IV_LEN],
            response: Secret::zeroed(),
            response_iv: [0; IV_LEN],
        }
    }

    /// Derives the keys from the key block (RFC 5246, section 6.3). The key block has the client key and the server
    /// key. If the suite has a cipher, the client IV and the server IV follow.
    ///
    /// # Errors
    /// [`BadAssociation::Suite`] if the provider does not support the suite, or its keys do not have `KEY` bytes.
    pub(super) fn derive<C: Crypto>(association: &Association<'_>) -> Result<Self, BadAssociation> {
        let Association { suite, master_secret, client_random, server_random, .. } = association;
        if suite.key_len() != KEY || !suite.is_in::<C>() {
            return Err(BadAssociation::Suite);
        }
        let mut block = Secret::<KEY_BLOCK_LEN>::zeroed();
        let seed: [&[u8]; 3] = [b"key expansion", *server_random, *client_random];
        HmacKey::new::<C>(&[*master_secret]).prf::<C>(&seed, block.expose_mut());
        let reader = &mut Reader::new(block.expose());
        let mut made = Self::none();
        *made.response.expose_mut() = reader.array().map_err(|_| BadAssociation::Suite)?;
        *made.request.expose_mut() = reader.array().map_err(|_| BadAssociation::Suite)?;
        if suite.encrypts() {
            made.response_iv = reader.array().map_err(|_| BadAssociation::Suite)?;
            made.request_iv = reader.array().map_err(|_| BadAssociation::Suite)?;
        }
        Ok(made)
    }

    /// Derives the key with which the listener at the address `listener` seals its responses to a sender (Axiom paper,
    /// section 5.5). For a suite without a cipher, the Axiom paper defines no secret for this derivation. This function
    /// then uses the keys of the HMAC as the secret.
    pub(super) fn individual<C: Crypto>(&self, listener: &[u8; 16], sender: u8) -> Secret<KEY> {
        let mut key = Secret::zeroed();
        let seed: [&[u8]; 3] = [b"key derivation", listener, &[sender]];
        HmacKey::new::<C>(&[self.response.expose(), self.request.expose()]).prf::<C>(&seed, key.expose_mut());
        key
    }
}
