//! The return routability check (RFC 9853). An endpoint sends a challenge to the new address of a peer, and only a peer
//! that receives the challenge can send the correct response.
//!
//! This is the basic check (RFC 9853, section 5.1). Its state consists of a nonce and a time. The cookie in the
//! challenge is computed from the nonce and the path. So a response is valid only if it comes from the address to which
//! the challenge was sent.

use crate::address::{Address, Path};
use crate::crypto::Crypto;
use crate::crypto::hash::HmacKey;

/// The type of a return_routability_check message (RFC 9853, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MessageType(pub(crate) u8);

impl MessageType {
    /// Asks the peer to prove that it receives records at this address.
    pub(crate) const PATH_CHALLENGE: Self = Self(0);
    /// Proves that the sender receives records at this address.
    pub(crate) const PATH_RESPONSE: Self = Self(1);
    /// Proves that the sender receives records at this address. Also reports that the sender prefers another address.
    pub(crate) const PATH_DROP: Self = Self(2);
}

/// The cookie in a return_routability_check message.
pub(crate) type Cookie = [u8; 8];
/// Number of bytes of a return_routability_check message.
pub(crate) const MESSAGE_LEN: usize = 1 + 8;

/// Reads a return_routability_check message. Returns its type and its cookie; `None` if its length is wrong. The caller
/// must ignore a message of an unknown type.
pub(crate) fn read(content: &[u8]) -> Option<(MessageType, Cookie)> {
    let [kind, cookie @ ..] = *content.as_array::<MESSAGE_LEN>()?;
    Some((MessageType(kind), cookie))
}

/// Returns the bytes of a return_routability_check message.
pub(crate) fn message(kind: MessageType, cookie: Cookie) -> [u8; MESSAGE_LEN] {
    let mut message = [kind.0; MESSAGE_LEN];
    let [_, place @ ..] = &mut message;
    *place = cookie;
    message
}

/// Computes the cookie for `path` from `nonce`. The caller draws another nonce for each challenge.
pub(crate) fn cookie<C: Crypto>(nonce: &[u8; 8], path: &Path) -> Cookie {
    let mut key = HmacKey::none();
    key.set::<C>(&[nonce]);
    let mut cookie = [0; 8];
    let Path { local, remote } = path;
    let numbers = |address: &Address| {
        let ([a, b], [c, d, e, f]) = (address.port.to_be_bytes(), address.scope.to_be_bytes());
        [a, b, c, d, e, f]
    };
    key.mac_into::<C>(&[&local.ip, &numbers(local), &remote.ip, &numbers(remote)], &mut cookie);
    cookie
}
