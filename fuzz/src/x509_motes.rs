//! What motes read of certificates.

use crate::x509::CA;
use tegmen::crypto::{Ccm, Compact, Crypto, DIGEST_LEN, NotAuthentic, SignatureScheme, Unsupported};
use tegmen_x509::{Anchor, KeyPurpose, MAX_CERTIFICATES, Name, PublicKey, Rules, UnixTime};

/// The first byte says what is asked, the rest is a list of certificates. Whoever signs nothing is believed by nobody; and
/// where all signatures are believed, so that readers come to the end of a path, no more of them are looked at than a path
/// may have, and the key that is told is one of the list.
pub fn x509_motes(data: &[u8]) {
    let Some((&form, list)) = data.split_first() else { return };
    // The subject and the key of the CA, where they lie in its certificate.
    let find = |start: &[u8]| CA.windows(start.len()).rposition(|bytes| bytes == start).expect("our own");
    let (name, key) = (find(&[0x30, 0x12, 0x31, 0x10]), find(&[0x30, 0x59, 0x30, 0x13]));
    let public_key: &PublicKey = CA[key..].first_chunk().expect("our own");
    let anchors = [Anchor { name: &CA[name..name + 0x14], public_key }];
    let rules = Rules {
        anchors: &anchors,
        purpose: if form & 1 == 0 { KeyPurpose::Server } else { KeyPurpose::Client },
        name: match form & 6 {
            0 => Name::Any,
            2 => Name::Eui64([1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]),
            _ => Name::Dns(b"device.example"),
        },
        now: (form & 8 != 0).then_some(UnixTime(1_900_000_000)),
    };
    let mut careful = Believer { crypto: Compact::new([0; 32]), believes: false, asked: 0 };
    assert!(rules.verify(&mut careful, list).is_err());
    let mut gullible = Believer { believes: true, asked: 0, ..careful };
    if let Ok(end_entity) = rules.verify(&mut gullible, list) {
        assert!(list.windows(end_entity.public_key.len()).any(|bytes| bytes == end_entity.public_key));
        assert!((1..=MAX_CERTIFICATES).contains(&gullible.asked), "{}", gullible.asked);
    }
}

/// Believes all signatures, or none.
struct Believer {
    crypto: Compact,
    believes: bool,
    asked: u8,
}

impl Crypto for Believer {
    type Aead = Ccm;
    const AES_128_CCM: Ccm = Ccm;

    fn seal(
        &mut self,
        aead: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        self.crypto.seal(aead, key, nonce, aad, body, tag)
    }

    fn open(
        &mut self,
        aead: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        self.crypto.open(aead, key, nonce, aad, body, tag)
    }

    fn verify(&mut self, _: SignatureScheme, _: &[u8], _: &[u8; DIGEST_LEN], _: &[u8]) -> Result<(), NotAuthentic> {
        self.asked += 1;
        if self.believes { Ok(()) } else { Err(NotAuthentic) }
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        Compact::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.crypto.random(out);
    }
}
