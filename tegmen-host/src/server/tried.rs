//! The identities of the last handshakes.

use std::collections::VecDeque;
use tegmen::identity::PeerId;

/// The pre-shared identities of the last handshakes: for the operator, where one turns out to be unknown.
#[derive(Default)]
pub(crate) struct Tried(VecDeque<(PeerId, String)>);

/// Handshakes whose identity is remembered.
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
