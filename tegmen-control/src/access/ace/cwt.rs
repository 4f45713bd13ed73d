//! CBOR Web Tokens (RFC 8392) as COSE_Encrypt0 (RFC 9052, section 5.2) with AES-CCM-16-128-128 or AES-CCM-16-128-256.

use super::claims::Claims;
use aes::Aes256;
use ccm::Ccm;
use ccm::aead::inout::InOutBuf;
use ccm::aead::{AeadInOut as _, KeyInit as _};
use ccm::consts::{U13, U16};
use minicbor::data::Tag;
use minicbor::{Decoder, Encoder};
use tegmen_base::crypto::{Crypto, KEY_LEN};
use tegmen_base::secret::Secret;
use tegmen_host::cbor::{MAX_MESSAGE, Malformed, Sink, Written};
use zeroize::Zeroizing;

/// The tag of COSE_Encrypt0.
const ENCRYPT0: u64 = 16;
/// Length of a key of AES-CCM-16-128-256 in bytes.
pub const LONG_KEY_LEN: usize = 32;
/// The label of the nonce in the unprotected header.
const IV: u8 = 5;
const NONCE: usize = 13;
const TAG: usize = 16;

/// The key of a token, which the issuer and the audience of the token share.
#[derive(Clone, Copy, Debug)]
pub enum TokenKey<'k> {
    /// A key of AES-CCM-16-128-128.
    Short(&'k Secret<KEY_LEN>),
    /// A key of AES-CCM-16-128-256.
    Long(&'k Secret<LONG_KEY_LEN>),
}

impl<'k> From<&'k Secret<KEY_LEN>> for TokenKey<'k> {
    fn from(key: &'k Secret<KEY_LEN>) -> Self {
        Self::Short(key)
    }
}

impl<'k> From<&'k Secret<LONG_KEY_LEN>> for TokenKey<'k> {
    fn from(key: &'k Secret<LONG_KEY_LEN>) -> Self {
        Self::Long(key)
    }
}

/// AES-CCM-16-128-256. Tegmen uses this algorithm only for tokens, and not for DTLS or OSCORE.
type LongCcm = Ccm<Aes256, U16, U13>;

impl TokenKey<'_> {
    /// Returns the protected header, which contains the number of the algorithm in the COSE registry.
    const fn protected(&self) -> [u8; 4] {
        [0xa1, 0x01, 0x18, if matches!(self, Self::Short(_)) { 30 } else { 31 }]
    }

    fn seal<C: Crypto>(&self, crypto: &mut C, nonce: &[u8; NONCE], body: &mut [u8], tag: &mut [u8; TAG]) {
        let aad = structure(&self.protected());
        let sealed = match self {
            Self::Short(key) => crypto.seal(C::AES_128_CCM, key.expose(), nonce, &aad, body, tag).is_ok(),
            Self::Long(key) => LongCcm::new(key.expose().into())
                .encrypt_inout_detached(nonce.into(), &aad, InOutBuf::from(body))
                .map(|made| tag.copy_from_slice(&made))
                .is_ok(),
        };
        debug_assert!(sealed, "each provider has this nonce and this tag");
    }

    fn open<C: Crypto>(
        &self,
        crypto: &mut C,
        nonce: &[u8; NONCE],
        body: &mut [u8],
        tag: &[u8; TAG],
    ) -> Result<(), NotOpened> {
        let aad = structure(&self.protected());
        let opened = match self {
            Self::Short(key) => crypto.open(C::AES_128_CCM, key.expose(), nonce, &aad, body, tag).is_ok(),
            Self::Long(key) => LongCcm::new(key.expose().into())
                .decrypt_inout_detached(nonce.into(), &aad, InOutBuf::from(body), tag.into())
                .is_ok(),
        };
        if opened { Ok(()) } else { Err(NotOpened::NotAuthentic) }
    }
}

/// The reason why bytes are no valid token under this key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotOpened {
    /// The bytes are no COSE_Encrypt0 with the algorithm of the key, or their content is no claims set.
    #[error("no token of this form: {0}")]
    Malformed(#[from] Malformed),
    /// The bytes were sealed under another key, or were changed.
    #[error("the token is of another issuer or for another audience")]
    NotAuthentic,
}

impl From<minicbor::decode::Error> for NotOpened {
    fn from(_: minicbor::decode::Error) -> Self {
        Self::Malformed(Malformed::Syntax)
    }
}

/// Seals claims under a key that the issuer and the audience share.
pub fn seal<'k, C: Crypto>(claims: &Claims, key: impl Into<TokenKey<'k>>, crypto: &mut C) -> Vec<u8> {
    let key = key.into();
    let mut body = claims.encode();
    let (mut nonce, mut tag) = ([0; NONCE], [0; TAG]);
    crypto.random(&mut nonce);
    key.seal(crypto, &nonce, &mut body, &mut tag);
    body.extend_from_slice(&tag);
    encode(&key.protected(), &nonce, &body)
}

/// Returns the encoding of a token: a tagged COSE_Encrypt0 in which each length has its shortest form.
fn encode(protected: &[u8], nonce: &[u8; NONCE], sealed: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(Sink::new(&mut out));
    let written: Written = (|| {
        encoder.tag(Tag::new(ENCRYPT0))?.array(3)?.bytes(protected)?;
        encoder.map(1)?.u8(IV)?.bytes(nonce)?.bytes(sealed)?;
        Ok(())
    })();
    debug_assert!(written.is_ok(), "a write to memory does not fail");
    out
}

/// Opens a token. A token has only one valid encoding, that of [`seal`]. Another encoding of the same token would have
/// another hash, which is not on the list of revoked tokens (RFC 9770).
///
/// # Errors
/// [`NotOpened`].
pub fn open<'k, C: Crypto>(token: &[u8], key: impl Into<TokenKey<'k>>, crypto: &mut C) -> Result<Claims, NotOpened> {
    let key = key.into();
    if token.len() > MAX_MESSAGE {
        return Err(Malformed::TooLong.into());
    }
    let mut decoder = Decoder::new(token);
    let is_ours = decoder.tag()? == Tag::new(ENCRYPT0)
        && decoder.array()? == Some(3)
        && decoder.bytes()? == key.protected()
        && decoder.map()? == Some(1)
        && decoder.u8()? == IV;
    let (nonce, sealed) = (decoder.bytes()?, decoder.bytes()?);
    let (nonce, split) = (nonce.try_into().ok(), sealed.split_last_chunk::<TAG>());
    let (Some(nonce), Some((body, tag))) = (nonce, split.filter(|_| is_ours && decoder.position() == token.len()))
    else {
        return Err(Malformed::Syntax.into());
    };
    if encode(&key.protected(), nonce, sealed) != token {
        return Err(Malformed::Syntax.into());
    }
    let mut body = Zeroizing::new(body.to_vec());
    key.open(crypto, nonce, &mut body, tag)?;
    Ok(Claims::parse(&body)?)
}

/// Returns Enc_structure, the additional authenticated data (RFC 9052, section 5.3).
fn structure(protected: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(Sink::new(&mut out));
    let written: Written =
        encoder.array(3).and_then(|array| array.str("Encrypt0")?.bytes(protected)?.bytes(&[])).map(|_| ());
    debug_assert!(written.is_ok(), "a write to memory does not fail");
    out
}
