//! Keying material of sessions for other protocols (RFC 5705).

use tegmen::crypto::Crypto;
use tegmen::dtls::Roles;
use tegmen::endpoint::{Endpoint, Peers};
use tegmen::identity::PeerId;
use tegmen::secret::Secret;

/// Length of the keying material that a session exports, in bytes.
pub const EXPORTED_LEN: usize = 32;

/// The keying material of a session. Both ends have the same bytes under the same label, and no other session has these
/// bytes.
pub type Exported = Secret<EXPORTED_LEN>;

/// Returns the keying material of a session that has just been established; `None` if the session exports nothing.
pub(crate) fn export<C: Crypto, P: Peers, R: Roles>(
    endpoint: &mut Endpoint<P, R>,
    peer: PeerId,
    label: &[u8],
) -> Option<Exported> {
    let mut exported = Exported::zeroed();
    endpoint.export::<C>(peer, label, exported.expose_mut())?;
    Some(exported)
}
