use super::*;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use std::sync::atomic::{AtomicUsize, Ordering};

/// An algorithm that accepts a signature that equals the key followed by the message. It counts its calls.
#[derive(Default, Debug)]
struct Counting(AtomicUsize);

impl SignatureVerificationAlgorithm for Counting {
    fn verify_signature(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        self.0.fetch_add(1, Ordering::Relaxed);
        ([public_key, message].concat() == signature).then_some(()).ok_or(InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P256
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_SHA256
    }
}

#[test]
fn a_signature_of_a_ca_is_verified_once_and_no_other_is_accepted_for_it() {
    let (algorithm, signatures) = (Counting::default(), Signatures::new(1024));
    let remembering = Remembering { algorithm: &algorithm, signatures: &signatures, end_entity: b"end" };
    let mut calls = 0;
    let mut verify = |key: &[u8], message: &[u8], signature: &[u8]| {
        let accepted = remembering.verify_signature(key, message, signature).is_ok();
        let before = std::mem::replace(&mut calls, algorithm.0.load(Ordering::Relaxed));
        (accepted, calls - before)
    };
    assert_eq!(verify(b"key", b"ca", b"keyca"), (true, 1));
    assert_eq!(verify(b"key", b"ca", b"keyca"), (true, 0));
    // The same bytes in other parts, and each part changed.
    assert_eq!(verify(b"keyc", b"a", b"keyca"), (true, 1));
    for (key, message, signature) in [("kex", "ca", "keyca"), ("key", "cb", "keyca"), ("key", "ca", "keycb")] {
        for _ in 0..2 {
            let verified = verify(key.as_bytes(), message.as_bytes(), signature.as_bytes());
            assert_eq!(verified, (false, 1), "a refusal is not remembered");
        }
    }
    for _ in 0..2 {
        assert_eq!(verify(b"key", b"end", b"keyend"), (true, 1), "that of the end entity is not remembered");
    }
}

#[test]
fn no_signature_is_remembered_without_a_cache() {
    let (algorithm, signatures) = (Counting::default(), Signatures::new(1));
    let remembering = Remembering { algorithm: &algorithm, signatures: &signatures, end_entity: b"end" };
    for _ in 0..2 {
        assert!(remembering.verify_signature(b"key", b"ca", b"keyca").is_ok());
    }
    assert_eq!(algorithm.0.load(Ordering::Relaxed), 2);
}

#[test]
fn a_parsed_key_accepts_the_signatures_of_its_ca_and_no_others() {
    let signatures = Signatures::new(1024);
    let algorithm = webpki::aws_lc_rs::ECDSA_P256_SHA256;
    let remembering = Remembering { algorithm, signatures: &signatures, end_entity: b"end" };
    let cas = [(); 2].map(|()| EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap());
    let sign = |ca: &EcdsaKeyPair, message: &[u8]| ca.sign(&SystemRandom::new(), message).unwrap();
    for turn in 0..4 {
        let (ca, other) = (&cas[turn / 2], &cas[1 - turn / 2]);
        let key = ca.public_key().as_ref();
        assert!(remembering.verify_signature(key, b"end", sign(ca, b"end").as_ref()).is_ok());
        assert_eq!(signatures.issuer.lock().unwrap().as_ref().map(|key| key.as_ref().as_ref()), Some(key));
        assert!(remembering.verify_signature(key, b"end", sign(other, b"end").as_ref()).is_err());
        assert!(remembering.verify_signature(key, b"end", sign(ca, b"enc").as_ref()).is_err());
    }
    // Not a point of the curve.
    let off = [&[UNCOMPRESSED][..], &[1; 64]].concat();
    assert!(remembering.verify_signature(&off, b"end", sign(&cas[0], b"end").as_ref()).is_err());
}
