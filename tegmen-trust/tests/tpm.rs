//! Tests keys in a TPM. Each test starts swtpm, a TPM in software.

mod swtpm;

use aws_lc_rs::rsa::{Pkcs1PublicEncryptingKey, PublicEncryptingKey};
use swtpm::Swtpm;
use tegmen::secret::Secret;
use tegmen_trust::provider::public::verify_digest;
use tegmen_trust::x509::signer::{PremasterDecrypter as _, SignatureScheme, Signer as _};
use tegmen_trust::x509::tpm::{Place, TpmError, TpmKey, TpmKeyKind, sealed};

const KINDS: [(TpmKeyKind, SignatureScheme); 2] = [
    (TpmKeyKind::P256, SignatureScheme::ECDSA_SECP256R1_SHA256),
    (TpmKeyKind::Rsa2048, SignatureScheme::RSA_PKCS1_SHA256),
];

fn signs(key: &TpmKey) {
    // Twenty times, since a number of an ECDSA signature has a zero before it in half of all cases.
    for turn in 0..20 {
        let digest = [turn; 32];
        let signature = key.sign_digest(&digest).unwrap();
        assert_eq!(verify_digest(key.scheme(), key.public_key(), &digest, &signature), Ok(()));
        assert!(verify_digest(key.scheme(), key.public_key(), &[99; 32], &signature).is_err());
    }
}

#[test]
fn a_key_in_a_file_is_of_use_with_its_tpm_alone_and_survives_its_restart() {
    let Some(mut tpm) = Swtpm::start("tpm-file") else { return };
    for (kind, scheme) in KINDS {
        let file = tpm.dir().join(format!("{kind:?}.pem"));
        let place = Place::File(file.clone());
        let public = {
            let key = TpmKey::create(&tpm.name, kind, &place).unwrap();
            assert_eq!(key.scheme(), scheme);
            signs(&key);
            key.public_key().to_vec()
        };
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("-----BEGIN TSS2 PRIVATE KEY-----\n"), "{text}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        tpm.restart();
        {
            let key = TpmKey::open(&tpm.name, &place).unwrap();
            assert_eq!(key.public_key(), public);
            signs(&key);
        }
        assert!(
            matches!(TpmKey::create(&tpm.name, kind, &place), Err(TpmError::Place { .. })),
            "nothing is written over"
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        // Neither another TPM nor a changed file.
        let other = Swtpm::start("tpm-other").unwrap();
        assert!(matches!(TpmKey::open(&other.name, &place), Err(TpmError::Refused { .. })));
        for at in (40..text.len() - 40).step_by(61) {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            std::fs::write(&file, &changed).unwrap();
            assert!(TpmKey::open(&tpm.name, &place).is_err(), "byte {at}");
        }
        std::fs::write(&file, &text).unwrap();
        assert!(TpmKey::open(&tpm.name, &place).is_ok(), "no memory of the TPM is lost");
    }
}

#[test]
fn a_key_at_a_handle_stays_until_it_is_removed() {
    let Some(mut tpm) = Swtpm::start("tpm-handle") else { return };
    for (handle, (kind, scheme)) in [0x8101_0001, 0x8101_0002].into_iter().zip(KINDS) {
        let place = Place::Persistent(handle);
        assert!(matches!(TpmKey::open(&tpm.name, &place), Err(TpmError::Place { .. })));
        let public = TpmKey::create(&tpm.name, kind, &place).unwrap().public_key().to_vec();
        assert!(matches!(TpmKey::create(&tpm.name, kind, &place), Err(TpmError::Place { .. })));
        tpm.restart();
        {
            let key = TpmKey::open(&tpm.name, &place).unwrap();
            assert_eq!((key.public_key(), key.scheme()), (&public[..], scheme));
            signs(&key);
        }
        TpmKey::remove(&tpm.name, handle).unwrap();
        assert!(TpmKey::open(&tpm.name, &place).is_err());
        assert!(TpmKey::remove(&tpm.name, handle).is_err());
    }
    assert!(matches!(TpmKey::open(&tpm.name, &Place::Persistent(0x8180_0000)), Err(TpmError::Place { .. })));
    let nowhere = TpmKey::open("swtpm:host=127.0.0.1,port=1", &Place::Persistent(0x8101_0001)).unwrap_err();
    assert!(nowhere.to_string().contains("group tss"), "{nowhere}");
}

/// An attacker cannot find out whether the padding of a ciphertext is valid. A valid ciphertext is decrypted. For every
/// other ciphertext the key returns the random bytes that the caller passed.
#[test]
fn an_rsa_key_decrypts_a_premaster_secret_and_tells_nothing_of_wrong_ones() {
    let Some(tpm) = Swtpm::start("tpm-decrypt") else { return };
    let key = TpmKey::create(&tpm.name, TpmKeyKind::Rsa2048, &Place::Persistent(0x8101_0003)).unwrap();
    let public = Pkcs1PublicEncryptingKey::new(PublicEncryptingKey::from_der(key.public_key()).unwrap()).unwrap();
    let encrypt = |message: &[u8]| {
        let mut room = [0; 256];
        public.encrypt(message, &mut room).unwrap();
        room
    };
    let version = [0xfe, 0xfd];
    let mut secret = [7; 48];
    secret[..2].copy_from_slice(&version);
    let random = Secret::new([0xaa; 48]);
    let right = encrypt(&secret);
    assert_eq!(*key.premaster_secret(&right, version, &random).expose(), secret);
    let mut flipped = right;
    flipped[255] ^= 1;
    secret[1] = 0xff;
    let other_version = encrypt(&secret);
    let (shorter, longer) = (encrypt(&[7; 47]), encrypt(&[7; 49]));
    for wrong in [&flipped[..], &other_version, &shorter, &longer, &right[1..], &[0; 256], &[255; 256], &[], &[1; 600]]
    {
        assert_eq!(*key.premaster_secret(wrong, version, &random).expose(), *random.expose());
    }
    let ecdsa = {
        drop(key);
        TpmKey::create(&tpm.name, TpmKeyKind::P256, &Place::Persistent(0x8101_0004)).unwrap()
    };
    assert_eq!(*ecdsa.premaster_secret(&right, version, &random).expose(), *random.expose());
}

#[test]
fn a_sealed_secret_opens_with_its_tpm_alone_and_survives_its_restart() {
    let Some(mut tpm) = Swtpm::start("tpm-sealed") else { return };
    let file = tpm.dir().join("sealed.tpm");
    let secret = Secret::new([0x5a; 32]);
    sealed::seal(&tpm.name, &file, &secret).unwrap();
    assert!(matches!(sealed::seal(&tpm.name, &file, &secret), Err(TpmError::Place { .. })), "nothing is written over");
    let text = std::fs::read_to_string(&file).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    tpm.restart();
    assert_eq!(sealed::unseal(&tpm.name, &file).unwrap().expose(), secret.expose());
    let other = Swtpm::start("tpm-sealed-other").unwrap();
    assert!(matches!(sealed::unseal(&other.name, &file), Err(TpmError::Refused { .. })));
    let nowhere = sealed::unseal("swtpm:host=127.0.0.1,port=1", &file).map(drop).unwrap_err();
    assert!(matches!(nowhere, TpmError::Unreachable { .. }));
    for at in (40..text.len() - 40).step_by(29) {
        let mut changed = text.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        std::fs::write(&file, &changed).unwrap();
        assert!(sealed::unseal(&tpm.name, &file).is_err(), "byte {at}");
    }
    std::fs::write(&file, &text).unwrap();
    for _ in 0..20 {
        sealed::unseal(&tpm.name, &file).expect("no memory of the TPM is lost");
    }
    // Each kind of file serves its own purpose alone.
    assert!(matches!(TpmKey::open(&tpm.name, &Place::File(file)), Err(TpmError::Place { .. })));
    let key = tpm.dir().join("key.tpm");
    TpmKey::create(&tpm.name, TpmKeyKind::P256, &Place::File(key.clone())).unwrap();
    assert!(matches!(sealed::unseal(&tpm.name, &key), Err(TpmError::Place { .. })));
}
