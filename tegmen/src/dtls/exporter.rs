//! Keying material exporters (RFC 5705).

use super::state::Handshake;
use crate::crypto::Crypto;

impl Handshake<'_> {
    /// Fills `out` with keying material, which is derived for `label` without a context value. Returns true. If the
    /// session has no extended master secret, writes nothing and returns false (RFC 7627, section 5.4).
    pub(crate) fn export<C: Crypto>(&self, label: &[u8], out: &mut [u8]) -> bool {
        let state = &*self.state;
        if state.extended_master_secret {
            state.master.prf::<C>(&[label, &state.client_random, &state.server_random], out);
        }
        state.extended_master_secret
    }
}
