//! The initiator of EDHOC. It is the client of OSCORE if its messages are CoAP requests.

use crate::agreed::Agreed;
use crate::connection_id::ConnectionId;
use crate::credential::{Credential, CredentialId, Identity};
use crate::failure::{Failure, SUITE};
use crate::message::Message;
use crate::provider::Provider;
use crate::responder::{check_data, failure};
use lakers::{EDHOCMethod, EdhocBuffer, InitiatorStart, WaitM2, WaitM4};
use tegmen_base::crypto::Crypto;
use tegmen_base::secret;

/// An initiator that waits for message_2. Its ephemeral key is wiped on drop.
pub struct Initiator {
    state: WaitM2,
    recipient_id: ConnectionId,
}

impl Initiator {
    /// Draws an ephemeral key, and writes message_1. `recipient_id` is C_I, with which the responder will identify the
    /// context.
    ///
    /// # Errors
    /// [`Failure::Unsupported`] if the crypto provider does not support P-256.
    pub fn begin<C: Crypto>(crypto: &mut C, recipient_id: ConnectionId) -> Result<(Self, Message), Failure> {
        Self::begin_after(crypto, recipient_id, &[])
    }

    /// Does the same as [`Self::begin`]. message_1 also contains the cipher suites that we prefer and that the
    /// responder has refused (RFC 9528, section 6.3).
    ///
    /// # Errors
    /// The errors of [`Self::begin`]; [`Failure::TooLong`] for more than 8 suites.
    pub fn begin_after<C: Crypto>(
        crypto: &mut C,
        recipient_id: ConnectionId,
        refused: &[u8],
    ) -> Result<(Self, Message), Failure> {
        let provider = &mut Provider::new(crypto);
        let mut suites_i = EdhocBuffer::new_from_slice(refused).map_err(|_| Failure::TooLong)?;
        suites_i.push(SUITE).map_err(|_| Failure::TooLong)?;
        let (x, g_x) = lakers::CryptoTrait::p256_generate_key_pair(provider);
        if provider.has_failed() {
            return Err(Failure::Unsupported);
        }
        let mut start = InitiatorStart { suites_i, method: EDHOCMethod::StatStat.into(), x, g_x };
        let written = lakers::i_prepare_message_1(&start, provider, recipient_id.0, &None);
        secret::wipe(&mut start.x);
        let (state, message) = written.map_err(failure)?;
        Ok((Self { state, recipient_id }, Message(message)))
    }

    /// Verifies message_2, and writes message_3. `find` returns the credentials that message_2 identifies: none, one,
    /// or several with the same kid. This function tries each of them (RFC 9528, section 3.5.3).
    ///
    /// When this function returns, the responder has proved its identity. The responder has not yet verified our
    /// identity.
    ///
    /// # Errors
    /// [`Failure`]. The session is then discontinued.
    pub fn finish<C: Crypto, I: IntoIterator<Item = Credential>>(
        self,
        crypto: &mut C,
        message_2: &[u8],
        identity: &Identity,
        find: impl FnOnce(&CredentialId<'_>) -> I,
    ) -> Result<(Agreed, Message, Message4), Failure> {
        let provider = &mut Provider::reading_message_2(crypto, message_2);
        let message = Message::read(message_2)?;
        let (state, c_r, id_cred_r, ead_2) =
            lakers::i_parse_message_2(&self.state, provider, &message).map_err(failure)?;
        if provider.has_failed() {
            return Err(Failure::PublicKey);
        }
        let sender_id = ConnectionId::of(c_r).ok_or(Failure::Malformed)?;
        if sender_id == self.recipient_id {
            return Err(Failure::ConnectionId);
        }
        check_data(ead_2.as_ref())?;
        let id = CredentialId::read(&id_cred_r).ok_or(Failure::Malformed)?;
        // A peer with our own credential is refused.
        let is_peer = |peer: &Credential| peer.is_meant_by(&id) && *peer != identity.credential;
        let mut verified = Err(Failure::UnknownCredential);
        for peer in find(&id).into_iter().filter(is_peer) {
            // If a public key is not a point on the curve, the failure of its provider is permanent. So each credential
            // gets its own provider.
            let provider = &mut Provider::new(crypto);
            let tried = lakers::i_verify_message_2(&state, provider, peer.0, identity.private.expose());
            verified = match provider.has_failed() {
                true => Err(Failure::PublicKey),
                false => tried.map(|tried| (tried, peer)).map_err(failure),
            };
            if verified.is_ok() {
                break;
            }
        }
        let (state, peer) = verified?;
        let provider = &mut Provider::new(crypto);
        let (own, transfer) = (identity.credential.0, identity.transfer.into());
        let (state, message_3, mut prk_out) =
            lakers::i_prepare_message_3(&state, provider, own, transfer, &None).map_err(failure)?;
        secret::wipe(&mut prk_out);
        let completed = lakers::i_complete_without_message_4(&state).map_err(failure)?;
        let agreed = Agreed::new(provider, completed, (sender_id, self.recipient_id), peer);
        match provider.has_failed() {
            true => Err(Failure::Unsupported),
            false => Ok((agreed, Message(message_3), Message4(state))),
        }
    }
}

impl Drop for Initiator {
    fn drop(&mut self) {
        secret::wipe(&mut self.state.x);
    }
}

/// The keys with which the initiator verifies message_4, if the responder sends this message. They are wiped on drop.
pub struct Message4(WaitM4);

impl Message4 {
    /// Verifies message_4, which shows that the responder has verified our identity. A response that OSCORE protects
    /// shows the same.
    ///
    /// # Errors
    /// [`Failure`]. After an error, do not use the agreed parameters.
    pub fn verify<C: Crypto>(mut self, crypto: &mut C, message_4: &[u8]) -> Result<(), Failure> {
        let message = Message::read_sealed(message_4)?;
        let provider = &mut Provider::new(crypto);
        let (_, ead_4) = lakers::i_process_message_4(&mut self.0, provider, &message).map_err(failure)?;
        check_data(ead_4.as_ref())
    }
}

impl Drop for Message4 {
    fn drop(&mut self) {
        secret::wipe(&mut self.0.prk_4e3m);
        secret::wipe(&mut self.0.prk_out);
        secret::wipe(&mut self.0.prk_exporter);
    }
}
