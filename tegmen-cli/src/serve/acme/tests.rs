//! Tests of the certificate chains of an authority, and of replaced certificates.

use super::authority::Settings;
use super::{Device, Held, OfAcme, only_certificates};
use crate::public_keys::servers_of;
use rcgen::{CertificateParams, KeyPair};
use std::path::Path;
use std::time::SystemTime;
use tegmen_control::delegation::{Certificates as _, ReplacedCertificate};

/// Writes a certificate of the device, with its private key, to a file.
fn obtained(file: &Path) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["lamp.example".to_owned()]).unwrap().self_signed(&key).unwrap();
    crate::files::write(
        file,
        [key.serialize_pem(), certificate.pem()].concat().as_bytes(),
        crate::files::Readers::Owner,
    )
    .unwrap();
}

#[test]
fn a_replaced_key_is_used_no_more_and_its_certificate_is_listed() {
    let dir = std::env::temp_dir().join(format!("tegmen-acme-replaced-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let settings = Settings {
        directory: "https://acme.example/directory".parse().unwrap(),
        dir: dir.clone(),
        contact: None,
        trust: dir.join("trust.pem"),
        binding: None,
    };
    let acme = OfAcme::new(settings, servers_of(&[], &[]).unwrap());
    let (file, draft) = (dir.join("lamp.example.pem"), dir.join("lamp.example.key"));
    obtained(&file);
    std::fs::write(&draft, "a key that an intruder has, too").unwrap();
    acme.prepare("lamp.example").unwrap();
    assert!(acme.of("lamp.example").is_some());
    // An attempt to renew the certificate has begun.
    let late = acme.load(&file, "lamp.example").unwrap();
    let replaced = acme.replace("lamp.example").unwrap();
    let [ReplacedCertificate { serial, revoked: false, .. }] = replaced.as_slice() else { panic!("{replaced:?}") };
    assert!(acme.of("lamp.example").is_none() && !file.exists() && !draft.exists());
    assert!(
        dir.join(format!("lamp.example.{serial}.replaced")).exists(),
        "with it, an operator asks for the revocation"
    );
    assert_eq!(acme.replace("lamp.example").unwrap(), replaced, "a repeated command lists it again");
    acme.note("lamp.example", 0, Ok(late));
    assert!(acme.of("lamp.example").is_none(), "the attempt used the key that was replaced");
    // The next attempt is due at once.
    let due = acme.devices().get("lamp.example").map(|device: &Device| device.due);
    assert_eq!(due, Some(SystemTime::UNIX_EPOCH));
    obtained(&file);
    let Held { keys, .. } = acme.load(&file, "lamp.example").unwrap();
    acme.note("lamp.example", 2, Ok(Held { keys, due: SystemTime::now() + super::LOOK }));
    assert!(acme.of("lamp.example").is_some() && acme.problem("lamp.example").is_none());
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_chain_with_anything_else_than_certificates_is_refused() {
    let part = |label: &str| format!("-----BEGIN{label}-----\nAAAA\n-----END{label}-----\n");
    let certificate = part(" CERTIFICATE");
    assert_eq!(only_certificates(&format!("{certificate}\n{certificate}")), Ok(()));
    for other in [" PRIVATE KEY", " EC PRIVATE KEY", " CERTIFICATE REQUEST", " X", "CERTIFICATE"] {
        for chain in [[part(other), certificate.clone()], [certificate.clone(), part(other)]] {
            let error = only_certificates(&chain.concat()).unwrap_err();
            assert!(error.contains(&format!("{:?}", other.trim())), "{error}");
        }
    }
    assert!(only_certificates(&format!("{certificate}-----BEGIN")).is_err());
    let long = only_certificates(&part(&format!(" \u{1b}[31m{}", "A".repeat(9000)))).unwrap_err();
    assert!(long.len() < 120 && !long.contains('\u{1b}'), "{long}");
}
