//! The outcome of EDHOC: the parameters of an OSCORE context (RFC 9528, appendix A.1).

use crate::connection_id::ConnectionId;
use crate::credential::Credential;
use crate::provider::Provider;
use lakers::{Completed, MAX_KDF_CONTEXT_LEN};
use tegmen_base::crypto::Crypto;
use tegmen_base::secret::{self, Secret};

/// The parameters on which both peers agree, for an OSCORE context with AES-CCM-16-64-128 and HKDF with SHA-256.
/// Derive exactly one context from them: a second context would repeat nonces.
pub struct Agreed {
    /// The OSCORE Master Secret.
    pub master_secret: Secret<16>,
    /// The OSCORE Master Salt.
    pub master_salt: Secret<8>,
    /// The connection identifier that the peer chose. It is our Sender ID.
    pub sender_id: ConnectionId,
    /// The connection identifier that we chose. It is our Recipient ID.
    pub recipient_id: ConnectionId,
    /// The credential of the peer. The peer has proved that it has the private key.
    pub peer: Credential,
}

impl Agreed {
    pub(crate) fn new<C: Crypto>(
        provider: &mut Provider<'_, C>,
        mut state: Completed,
        (sender_id, recipient_id): (ConnectionId, ConnectionId),
        peer: Credential,
    ) -> Self {
        let mut agreed =
            Self { master_secret: Secret::zeroed(), master_salt: Secret::zeroed(), sender_id, recipient_id, peer };
        export(provider, &state, MASTER_SECRET, agreed.master_secret.expose_mut());
        export(provider, &state, MASTER_SALT, agreed.master_salt.expose_mut());
        secret::wipe(&mut state.prk_out);
        secret::wipe(&mut state.prk_exporter);
        agreed
    }
}

/// Computes EDHOC_Exporter with an empty context (RFC 9528, section 4.2.1).
fn export<C: Crypto>(provider: &mut Provider<'_, C>, state: &Completed, label: u8, out: &mut [u8]) {
    let mut bytes = lakers::edhoc_exporter(state, provider, label, &[0; MAX_KDF_CONTEXT_LEN], 0, out.len());
    out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    secret::wipe(&mut bytes);
}

/// The label with which the exporter gives the OSCORE Master Secret (RFC 9528, section 10.1). `MASTER_SALT` is the
/// label for the OSCORE Master Salt.
const MASTER_SECRET: u8 = 0;
const MASTER_SALT: u8 = 1;
