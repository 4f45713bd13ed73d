//! CBOR Web Tokens (RFC 8392) as COSE_Encrypt0 (RFC 9052, section 5.2) with AES-CCM-16-128-128.

use super::claims::Claims;
use minicbor::data::Tag;
use minicbor::{Decoder, Encoder};
use tegmen_base::crypto::{Crypto, KEY_LEN};
use tegmen_base::secret::Secret;
use tegmen_host::cbor::{MAX_MESSAGE, Malformed, Sink, Written};
use zeroize::Zeroizing;

/// The tag of COSE_Encrypt0.
const ENCRYPT0: u64 = 16;
/// The protected header: the algorithm is AES-CCM-16-128-128.
const PROTECTED: [u8; 4] = [0xa1, 0x01, 0x18, 30];
/// The label of the nonce in the unprotected header.
const IV: u8 = 5;
const NONCE: usize = 13;
const TAG: usize = 16;

/// The bytes are no token under this key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotOpened {
    /// They are no COSE_Encrypt0 of the algorithm, or its content is no claims set.
    #[error("no token of this form: {0}")]
    Malformed(#[from] Malformed),
    /// They were sealed under another key, or changed.
    #[error("the token is of another issuer or for another audience")]
    NotAuthentic,
}

impl From<minicbor::decode::Error> for NotOpened {
    fn from(_: minicbor::decode::Error) -> Self {
        Self::Malformed(Malformed::Syntax)
    }
}

/// Seals claims under a key that issuer and audience share.
pub fn seal<C: Crypto>(claims: &Claims, key: &Secret<KEY_LEN>, crypto: &mut C) -> Vec<u8> {
    let mut body = claims.encode();
    let (mut nonce, mut tag) = ([0; NONCE], [0; TAG]);
    crypto.random(&mut nonce);
    let sealed = crypto.seal(C::AES_128_CCM, key.expose(), &nonce, &structure(), &mut body, &mut tag);
    debug_assert!(sealed.is_ok(), "each provider has this nonce and this tag");
    body.extend_from_slice(&tag);
    let mut out = Vec::new();
    let mut encoder = Encoder::new(Sink::new(&mut out));
    let written: Written = (|| {
        encoder.tag(Tag::new(ENCRYPT0))?.array(3)?.bytes(&PROTECTED)?;
        encoder.map(1)?.u8(IV)?.bytes(&nonce)?.bytes(&body)?;
        Ok(())
    })();
    debug_assert!(written.is_ok(), "memory takes all bytes");
    out
}

/// Opens a token.
///
/// # Errors
/// [`NotOpened`].
pub fn open<C: Crypto>(token: &[u8], key: &Secret<KEY_LEN>, crypto: &mut C) -> Result<Claims, NotOpened> {
    if token.len() > MAX_MESSAGE {
        return Err(Malformed::TooLong.into());
    }
    let mut decoder = Decoder::new(token);
    let is_ours = decoder.tag()? == Tag::new(ENCRYPT0)
        && decoder.array()? == Some(3)
        && decoder.bytes()? == PROTECTED
        && decoder.map()? == Some(1)
        && decoder.u8()? == IV;
    let (nonce, sealed) = (decoder.bytes()?, decoder.bytes()?);
    let split = sealed.len().checked_sub(TAG).and_then(|at| sealed.split_at_checked(at));
    let Some((body, tag)) = split.filter(|_| is_ours && nonce.len() == NONCE && decoder.position() == token.len())
    else {
        return Err(Malformed::Syntax.into());
    };
    let mut body = Zeroizing::new(body.to_vec());
    crypto
        .open(C::AES_128_CCM, key.expose(), nonce, &structure(), &mut body, tag)
        .map_err(|_| NotOpened::NotAuthentic)?;
    Ok(Claims::parse(&body)?)
}

/// Enc_structure: the additional authenticated data (RFC 9052, section 5.3).
fn structure() -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(Sink::new(&mut out));
    let written: Written =
        encoder.array(3).and_then(|array| array.str("Encrypt0")?.bytes(&PROTECTED)?.bytes(&[])).map(|_| ());
    debug_assert!(written.is_ok(), "memory takes all bytes");
    out
}
