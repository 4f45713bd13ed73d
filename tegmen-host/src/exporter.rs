//! Keying material of sessions for other protocols (RFC 5705).

use tegmen::crypto::Crypto;
use tegmen::dtls::Roles;
use tegmen::endpoint::{Endpoint, Peers};
use tegmen::identity::PeerId;
use tegmen::secret::Secret;

/// Bytes of the keying material that a session exports.
pub const EXPORTED_LEN: usize = 32;

/// Keying material of a session. Both ends have the same bytes under the same label, and no other session has them.
pub type Exported = Secret<EXPORTED_LEN>;

/// Returns the keying material of a session that was established just now; `None` if it exports nothing.
pub(crate) fn export<C: Crypto, P: Peers, R: Roles>(
    endpoint: &mut Endpoint<P, R>,
    peer: PeerId,
    label: &[u8],
) -> Option<Exported> {
    let mut exported = Exported::zeroed();
    endpoint.export::<C>(peer, label, exported.expose_mut())?;
    Some(exported)
}
