//! The initiator and the responder of the EDHOC session in the image `edhoc`: their credentials, and the seeds of their
//! cryptographic providers.

use super::points;
use tegmen_base::secret::Secret;
use tegmen_edhoc::{ConnectionId, Credential, Identity, MAX_CREDENTIAL, Transfer};

/// The initiator or the responder of the EDHOC session.
pub struct End {
    /// The seed of the cryptographic provider that this initiator or responder uses.
    pub seed: u8,
    /// The `kid` of the credential. It is also the connection identifier that this initiator or responder chooses.
    name: u8,
    private: u8,
    point: ([u8; 32], [u8; 32]),
}

/// The initiator of the EDHOC session: the mote.
pub const INITIATOR: End = End { seed: 1, name: 1, private: 2, point: points::OF_2 };
/// The responder of the EDHOC session: the peer of the mote.
pub const RESPONDER: End = End { seed: 2, name: 2, private: 3, point: points::OF_3 };

impl End {
    /// Returns the credential, which messages identify by its `kid`.
    pub fn credential(&self) -> Option<Credential> {
        let (x, y) = &self.point;
        let mut share = [4; 65];
        let coordinates = x.iter().chain(y);
        share.iter_mut().skip(1).zip(coordinates).for_each(|(to, from)| *to = *from);
        let mut bytes = [0; MAX_CREDENTIAL];
        Credential::parse(Credential::write(None, &[self.name], &share, &mut bytes).ok()?).ok()
    }

    /// Returns the credential with the private key.
    pub fn identity(&self) -> Option<Identity> {
        Some(Identity::new(Secret::new([self.private; 32]), self.credential()?, Transfer::ByReference))
    }

    /// Returns the connection identifier that this initiator or responder chooses.
    pub fn connection_id(&self) -> Option<ConnectionId> {
        ConnectionId::new(&[self.name])
    }
}
