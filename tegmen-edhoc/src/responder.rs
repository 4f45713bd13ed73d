//! The responder of EDHOC. It is the server of OSCORE if the initiator's messages are CoAP requests.

use crate::agreed::Agreed;
use crate::connection_id::ConnectionId;
use crate::credential::{Credential, CredentialId, Identity};
use crate::failure::{Failure, SUITE};
use crate::message::Message;
use crate::provider::Provider;
use lakers::{EADItem, EDHOCError, EDHOCMethod, ProcessedM3, ResponderStart, WaitM3};
use tegmen_base::buf::Reader;
use tegmen_base::cbor;
use tegmen_base::crypto::Crypto;
use tegmen_base::secret;

/// A responder that waits for message_3. Its keys are wiped on drop.
pub struct Responder {
    state: WaitM3,
    sender_id: ConnectionId,
    recipient_id: ConnectionId,
}

impl Responder {
    /// Reads message_1, draws an ephemeral key, and writes message_2. `choose` takes C_I and returns C_R, a different
    /// identifier, with which the initiator identifies this session and the context. `choose` returns `None` if no
    /// identifier is free.
    ///
    /// The initiator has not yet proved its identity.
    ///
    /// # Errors
    /// [`Failure`]. Answer message_1 with the [error message](Failure::write) of the failure.
    pub fn begin<C: Crypto>(
        crypto: &mut C,
        message_1: &[u8],
        identity: &Identity,
        choose: impl FnOnce(&ConnectionId) -> Option<ConnectionId>,
    ) -> Result<(Self, Message), Failure> {
        let message = Message::read(message_1)?;
        // `lakers` does not refuse an empty array of suites, but treats it as one with a last element.
        let (method, suites, _, c_i, ead_1) = lakers::parse_message_1(&message).map_err(failure)?;
        if method != u8::from(EDHOCMethod::StatStat) {
            return Err(Failure::Method);
        }
        let suites = suites.content.get(..suites.len).unwrap_or(&[]);
        let selected = suites.last().ok_or(Failure::Malformed)?;
        // The first suite that we support must be the last of the array (RFC 9528, section 5.2.3).
        if *selected != SUITE || suites.iter().filter(|suite| **suite == SUITE).count() != 1 {
            return Err(Failure::CipherSuite);
        }
        check_data(ead_1.as_ref())?;
        let sender_id = ConnectionId::of(c_i).ok_or(Failure::Malformed)?;
        let recipient_id = choose(&sender_id).filter(|chosen| *chosen != sender_id).ok_or(Failure::ConnectionId)?;
        let provider = &mut Provider::new(crypto);
        let (y, g_y) = lakers::CryptoTrait::p256_generate_key_pair(provider);
        if provider.has_failed() {
            return Err(Failure::Unsupported);
        }
        let mut start = ResponderStart { method, y, g_y };
        let read = lakers::r_process_message_1(&start, provider, &message);
        secret::wipe(&mut start.y);
        let (mut state, ..) = read.map_err(failure)?;
        let (own, private, transfer) = (identity.credential.0, identity.private.expose(), identity.transfer.into());
        let written = lakers::r_prepare_message_2(&state, provider, own, private, recipient_id.0, transfer, &None);
        secret::wipe(&mut state.y);
        if provider.has_failed() {
            return Err(Failure::PublicKey);
        }
        let (state, message_2) = written.map_err(failure)?;
        Ok((Self { state, sender_id, recipient_id }, Message(message_2)))
    }

    /// Returns C_R, with which the initiator identifies this session.
    pub const fn recipient_id(&self) -> &ConnectionId {
        &self.recipient_id
    }

    /// Verifies message_3, and writes message_4, which need not be sent. `find` returns the credentials that
    /// message_3 identifies: none, one, or several with the same kid. This function tries each of them (RFC 9528,
    /// section 3.5.3).
    ///
    /// When this function returns, the initiator has proved its identity.
    ///
    /// # Errors
    /// [`Failure`]. Answer message_3 with the [error message](Failure::write) of the failure. The session is then
    /// discontinued.
    pub fn finish<C: Crypto, I: IntoIterator<Item = Credential>>(
        mut self,
        crypto: &mut C,
        message_3: &[u8],
        find: impl FnOnce(&CredentialId<'_>) -> I,
    ) -> Result<(Agreed, Message), Failure> {
        let message = Message::read_sealed(message_3)?;
        let (mut state, id_cred_i, ead_3) =
            lakers::r_parse_message_3(&mut self.state, &mut Provider::new(crypto), &message).map_err(failure)?;
        check_data(ead_3.as_ref())?;
        let id = CredentialId::read(&id_cred_i).ok_or(Failure::Malformed)?;
        let mut verified = Err(Failure::UnknownCredential);
        for peer in find(&id).into_iter().filter(|peer| peer.is_meant_by(&id)) {
            // A provider that met a key that is not a point on the curve does not recover.
            let provider = &mut Provider::new(crypto);
            let tried = lakers::r_verify_message_3(&mut state, provider, peer.0).map_err(failure);
            verified = if provider.has_failed() { Err(Failure::PublicKey) } else { tried.map(|tried| (tried, peer)) };
            if verified.is_ok() {
                break;
            }
        }
        secret::wipe(&mut state.y);
        secret::wipe(&mut state.prk_3e2m);
        let ((mut state, mut prk_out), peer) = verified?;
        let provider = &mut Provider::new(crypto);
        secret::wipe(&mut prk_out);
        let message_4 = lakers::r_prepare_message_4(&state, provider, &None).map_err(failure);
        wipe(&mut state);
        let (completed, message_4) = message_4?;
        let agreed = Agreed::new(provider, completed, (self.sender_id, self.recipient_id), peer);
        match provider.has_failed() {
            true => Err(Failure::Unsupported),
            false => Ok((agreed, Message(message_4))),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        secret::wipe(&mut self.state.y);
        secret::wipe(&mut self.state.prk_3e2m);
    }
}

fn wipe(state: &mut ProcessedM3) {
    secret::wipe(&mut state.prk_4e3m);
    secret::wipe(&mut state.prk_out);
    secret::wipe(&mut state.prk_exporter);
}

/// Checks the external authorization data (EAD) of a message. Refuses data that are critical, malformed or too long.
/// Ignores all other data, because this crate supports no EAD (RFC 9528, section 3.8). `lakers` returns all items after
/// the first label as the value of the first item.
pub(crate) fn check_data(item: Option<&EADItem>) -> Result<(), Failure> {
    let Some(item) = item else { return Ok(()) };
    if item.is_critical {
        return Err(Failure::CriticalData);
    }
    let Some(value) = &item.value else { return Ok(()) };
    let value = value.content.get(..value.len).unwrap_or(&[]);
    if value.len() > MAX_DATA {
        return Err(Failure::TooLong);
    }
    let mut reader = Reader::new(value);
    skip_value(&mut reader)?;
    while !reader.is_empty() {
        match cbor::read_head(&mut reader) {
            Some((cbor::UNSIGNED, _)) => skip_value(&mut reader)?,
            Some((cbor::NEGATIVE, _)) => return Err(Failure::CriticalData),
            _ => return Err(Failure::Malformed),
        }
    }
    Ok(())
}

/// Skips the value of an item, if the item has a value.
fn skip_value(reader: &mut Reader<'_>) -> Result<(), Failure> {
    match reader.rest() {
        [0x40..0x60, ..] => cbor::read_bytes(reader).map(|_| ()).ok_or(Failure::Malformed),
        _ => Ok(()),
    }
}

/// Converts an error of `lakers` into a failure.
pub(crate) fn failure(error: EDHOCError) -> Failure {
    match error {
        EDHOCError::MacVerificationFailed => Failure::NotAuthentic,
        EDHOCError::UnsupportedMethod => Failure::Method,
        EDHOCError::UnsupportedCipherSuite => Failure::CipherSuite,
        EDHOCError::MissingIdentity => Failure::NoKid,
        EDHOCError::EADUnprocessable => Failure::CriticalData,
        _ => Failure::Malformed,
    }
}

/// Maximum number of bytes of external authorization data after its first label.
const MAX_DATA: usize = 64;
