//! The PSK identities that clients sent in the most recent handshakes.

use std::collections::VecDeque;
use tegmen::identity::PeerId;

/// The PSK identities that clients sent in the most recent handshakes. If a handshake fails, the server reports the
/// identity to the operator.
#[derive(Default)]
pub(crate) struct Tried(VecDeque<(PeerId, String)>);

/// Maximum number of handshakes whose identity is stored.
const TRIED: usize = 256;

impl Tried {
    pub(crate) fn add(&mut self, peer: PeerId, identity: &[u8]) {
        if self.0.len() >= TRIED {
            self.0.pop_front();
        }
        self.0.push_back((peer, String::from_utf8_lossy(identity).into_owned()));
    }

    pub(crate) fn of(&self, peer: PeerId) -> Option<String> {
        self.0.iter().rev().find(|(known, _)| *known == peer).map(|(_, identity)| identity.clone())
    }
}
