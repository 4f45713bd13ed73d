//! Group security associations (paper, section 5.3), and the keys that are derived from them (section 5.5).

use super::suite::Suite;
use crate::address::Address;
use crate::buf::Reader;
use crate::crypto::Crypto;
use crate::crypto::hash::HmacKey;
use crate::secret::Secret;

/// The parameters that a member gets from the controller of its group: the security association of one epoch (paper, section
/// 5.3).
#[derive(Clone, Copy)]
pub struct Association<'a> {
    /// The number of the group in the header of a response.
    pub group_id: u8,
    /// The multicast address and the port to which requests go. Members send responses from this port. A response
    /// from another port is dropped. A response from a link-local address of another scope is dropped too.
    pub group: Address,
    /// The cipher suite that protects the records.
    pub suite: Suite,
    /// The epoch, from 1 to 65535. After epoch 65535, the controller must create a new group.
    pub epoch: u16,
    /// Maximum number of SenderIDs that the controller assigns in this epoch; 0 counts as 256. One key may seal 2^23
    /// records, and each of these senders may seal an equal share of them.
    pub senders: u16,
    /// Our SenderID, if we send requests. The controller gives a SenderID to one member only, and never gives it to another
    /// member in the same epoch.
    pub sender_id: Option<u8>,
    /// The source address of our responses: 16 bytes of IPv6, or IPv4 mapped into IPv6. Our keys are derived from
    /// this address. The controller never gives the address to another member in the same epoch.
    pub address: [u8; 16],
    /// The secret of the epoch. No other epoch and no other group has the same secret.
    pub master_secret: &'a [u8; 48],
    /// Random bytes that the controller drew, in place of the client random of a handshake.
    pub client_random: &'a [u8; 32],
    /// Random bytes that the controller drew, in place of the server random of a handshake.
    pub server_random: &'a [u8; 32],
}

/// The reason why no member can be made from an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadAssociation {
    /// The crypto provider does not support the suite, or the keys of the suite have another length than those of the
    /// member.
    Suite,
    /// The epoch is 0, or older than the epoch in which the member had its TSNs, or not the next one.
    Epoch,
    /// The keys belong to another admission of the member. So another device uses the same keys and nonces.
    Admission,
}

/// Bytes of the longest key block: two keys of HMAC-SHA-256.
const KEY_BLOCK_LEN: usize = 64;
/// Bytes of the implicit part of a nonce.
pub(super) const IV_LEN: usize = 4;

/// The keys that all members have.
pub(super) struct GroupKeys<const KEY: usize> {
    /// `server_write`: the key of requests.
    pub(super) request: Secret<KEY>,
    pub(super) request_iv: [u8; IV_LEN],
    /// `client_write`: no record is sealed with this key. The individual keys of the listeners are derived from it.
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

    /// Derives the key block (RFC 5246, section 6.3): client key, server key and, with a cipher, client IV, server IV.
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

    /// Derives the key of the listener at `listener` towards a sender (section 5.5). For a suite without a cipher,
    /// the paper leaves the secret of this derivation empty. This function then uses the keys of the HMAC as the
    /// secret.
    pub(super) fn individual<C: Crypto>(&self, listener: &[u8; 16], sender: u8) -> Secret<KEY> {
        let mut key = Secret::zeroed();
        let seed: [&[u8]; 3] = [b"key derivation", listener, &[sender]];
        HmacKey::new::<C>(&[self.response.expose(), self.request.expose()]).prf::<C>(&seed, key.expose_mut());
        key
    }
}
