//! Targets for the messages of EDHOC, and for the plaintexts in them, which a peer chooses before it is authenticated.

use tegmen::crypto::hash::{digest, hmac};
use tegmen::crypto::{Crypto, MAX_SHARE, NamedGroup, NotAuthentic, RustCrypto, SCALAR_LEN, Unsupported};
use tegmen::secret::Secret;
use tegmen_edhoc::transfer::Body;
use tegmen_edhoc::{
    ConnectionId, Credential, Identity, Initiator, MAX_CREDENTIAL, PeerError, Responder, Transfer, combined,
};

/// Runs one of five cases, which the first byte selects, with the other bytes as its input:
///
/// * 0: the input is message_1.
/// * 1: the input is the plaintext of message_2, which the case encrypts.
/// * 2: the input is the plaintext of message_3. The provider does not decrypt it, and accepts any tag.
/// * 3: the input is the whole message_2, and also the whole message_3.
/// * 4: the input is read as a credential, as an error message, as a message in the body of a CoAP request, and as a
///   combined request.
///
/// The sender has no private key of a known credential, so no session may end with success.
pub fn edhoc(data: &[u8]) {
    let Some((&form, bytes)) = data.split_first() else { return };
    let mut crypto = Gullible(RustCrypto::new([5; 32]));
    let (own, other) = (identity(&mut crypto, 1), identity(&mut crypto, 2));
    let known = *other.credential();
    match form % 5 {
        0 => {
            if let Ok((responder, message_2)) = Responder::begin(&mut crypto, bytes, &own, |_| ConnectionId::new(&[7]))
            {
                assert!(message_2.as_bytes().len() > 32 && responder.recipient_id().as_bytes() == [7]);
            }
        }
        1 => {
            let (initiator, message_1) = Initiator::begin(&mut crypto, id(&[1])).expect("P-256");
            let message_2 = sealed_2(&mut crypto, message_1.as_bytes(), bytes);
            assert!(initiator.finish(&mut crypto, &message_2, &own, |_| Some(known)).is_err());
        }
        2 => {
            let (_, message_1) = Initiator::begin(&mut crypto, id(&[1])).expect("P-256");
            let begun = Responder::begin(&mut crypto, message_1.as_bytes(), &own, |_| Some(id(&[2])));
            let (responder, _) = begun.expect("a message of ours");
            // The provider accepts any tag.
            let message_3 = string(&[bytes, &[0; 8]].concat());
            assert!(responder.finish(&mut crypto, &message_3, |_| Some(known)).is_err());
        }
        3 => {
            let (initiator, message_1) = Initiator::begin(&mut crypto, id(&[1])).expect("P-256");
            assert!(initiator.finish(&mut crypto, bytes, &own, |_| Some(known)).is_err());
            let begun = Responder::begin(&mut crypto, message_1.as_bytes(), &own, |_| Some(id(&[2])));
            assert!(begun.expect("a message of ours").0.finish(&mut crypto, bytes, |_| Some(known)).is_err());
        }
        _ => {
            if let Ok(credential) = Credential::parse(bytes) {
                assert_eq!(credential.as_bytes(), bytes);
            }
            let _ = PeerError::parse(bytes);
            if let Some(body) = Body::parse(bytes) {
                let mut again = vec![0; bytes.len() + 8];
                assert_eq!(body.write(&mut again), Ok(bytes));
            }
            if let Some((message_3, ciphertext)) = combined::split(bytes) {
                assert_eq!([message_3, ciphertext].concat(), bytes);
            }
        }
    }
}

fn id(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).expect("short")
}

fn identity(crypto: &mut Gullible, kid: u8) -> Identity {
    let (mut private, mut share) = ([0; 32], [0; MAX_SHARE]);
    crypto.key_pair(NamedGroup::SECP256R1, &mut private, &mut share).expect("P-256");
    let mut bytes = [0; MAX_CREDENTIAL];
    let bytes = Credential::write(Some("end"), &[kid], &share, &mut bytes).expect("short");
    Identity::new(Secret::new(private), Credential::parse(bytes).expect("our own"), Transfer::ByReference)
}

/// Encodes a byte string in CBOR.
fn string(content: &[u8]) -> Vec<u8> {
    let head = match content.len() {
        len @ 0..24 => vec![0x40 | len as u8],
        len @ 24..256 => vec![0x58, len as u8],
        len => [&[0x59][..], &(len as u16).to_be_bytes()].concat(),
    };
    [&head, content].concat()
}

/// Makes message_2 with this plaintext (RFC 9528, sections 4 and 5.3.2), by a sender that has only an ephemeral key.
fn sealed_2(crypto: &mut Gullible, message_1: &[u8], plaintext: &[u8]) -> Vec<u8> {
    let (mut private, mut share) = ([0; 32], [0; MAX_SHARE]);
    crypto.key_pair(NamedGroup::SECP256R1, &mut private, &mut share).expect("P-256");
    let g_y = &share[1..33];
    let g_x: [u8; 32] = message_1[4..36].try_into().expect("32 bytes");
    let mut secret = [0; 32];
    crypto.agree_by_x(&private, &g_x, &mut secret).expect("a point of ours");
    let h = digest::<Gullible, 32>(&[message_1]);
    let th_2 = digest::<Gullible, 32>(&[&string(g_y), &string(&h)]);
    let prk_2e = hmac::<Gullible, 32>(&[&th_2], &[&secret]);
    // EDHOC-KDF with label 0 and the length of the plaintext.
    let length = match plaintext.len() {
        len @ 0..24 => vec![len as u8],
        len @ 24..256 => vec![0x18, len as u8],
        len => [&[0x19][..], &(len as u16).to_be_bytes()].concat(),
    };
    let info = [&[0][..], &string(&th_2), &length].concat();
    let (mut stream, mut block, mut count) = (Vec::new(), Vec::new(), 0u8);
    while stream.len() < plaintext.len() {
        count = count.wrapping_add(1);
        block = hmac::<Gullible, 32>(&[&prk_2e], &[&block, &info, &[count]]).to_vec();
        stream.extend_from_slice(&block);
    }
    let ciphertext: Vec<u8> = plaintext.iter().zip(stream).map(|(byte, key)| byte ^ key).collect();
    string(&[g_y, &ciphertext].concat())
}

/// A cryptographic provider that accepts any tag, and returns the ciphertext unchanged in place of the plaintext.
struct Gullible(RustCrypto);

impl Crypto for Gullible {
    type Aead = <RustCrypto as Crypto>::Aead;
    const AES_128_CCM: Self::Aead = RustCrypto::AES_128_CCM;

    fn seal(
        &mut self,
        aead: Self::Aead,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        self.0.seal(aead, key, nonce, aad, body, tag)
    }

    fn open(
        &mut self,
        _: Self::Aead,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        _: &mut [u8],
        _: &[u8],
    ) -> Result<(), NotAuthentic> {
        Ok(())
    }

    fn key_pair(
        &mut self,
        group: NamedGroup,
        private: &mut [u8; SCALAR_LEN],
        share: &mut [u8; MAX_SHARE],
    ) -> Result<usize, Unsupported> {
        self.0.key_pair(group, private, share)
    }

    fn agree_by_x(
        &mut self,
        private: &[u8; SCALAR_LEN],
        x: &[u8; SCALAR_LEN],
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        self.0.agree_by_x(private, x, secret)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        RustCrypto::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.0.random(out);
    }
}
