//! Tests of the certificate chains of an authority, and of replaced certificates.

use super::authority::Settings;
use super::{Device, Held, OfAcme, only_certificates, own_certificate};
use crate::public_keys::servers_of;
use rcgen::{CertificateParams, KeyPair};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tegmen_control::delegation::{Certificates as _, ReplacedCertificate};
use tegmen_host::hex::to_hex;

/// Makes a private key, and a certificate of the device for this key, in PEM.
fn issued() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["lamp.example".to_owned()]).unwrap().self_signed(&key).unwrap();
    (key.serialize_pem(), certificate.pem())
}

fn write(file: &Path, text: &str) {
    crate::files::write(file, text.as_bytes(), crate::files::Readers::Owner).unwrap();
}

/// Writes a certificate of the device, with its private key, to a file.
fn obtained(file: &Path) {
    let (key, certificate) = issued();
    write(file, &[key, certificate].concat());
}

/// Opens the certificates in a new directory.
fn open(test: &str) -> (PathBuf, OfAcme) {
    let dir = std::env::temp_dir().join(format!("tegmen-acme-{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let settings = Settings {
        directory: "https://acme.example/directory".parse().unwrap(),
        dir: dir.clone(),
        contact: None,
        trust: dir.join("trust.pem"),
        binding: None,
    };
    (dir, OfAcme::new(settings, servers_of(&[], &[]).unwrap()))
}

/// Returns the sorted names of the files in a directory.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_replaced_key_is_used_no_more_and_its_certificate_is_listed() {
    let (dir, acme) = open("replaced");
    let (file, draft) = (dir.join("lamp.example.pem"), dir.join("lamp.example.key"));
    obtained(&file);
    write(&draft, &issued().0);
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
fn a_certificate_for_a_key_that_was_replaced_during_the_request_is_listed() {
    let (dir, acme) = open("late");
    acme.prepare("lamp.example").unwrap();
    let key = acme.draft_key("lamp.example", 0).unwrap();
    let pair = KeyPair::from_pem(&key).unwrap();
    let chain = CertificateParams::new(vec!["lamp.example".to_owned()]).unwrap().self_signed(&pair).unwrap().pem();
    assert_eq!(acme.replace("lamp.example").unwrap(), [], "the server has no certificate");
    let kept = names(&dir);
    let [kept] = kept.as_slice() else { panic!("{kept:?}") };
    assert!(kept.starts_with("lamp.example.") && kept.ends_with(".key.replaced"), "a certificate may exist");
    assert!(acme.take("lamp.example", 0, &key, &chain).is_err());
    let replaced = acme.replace("lamp.example").unwrap();
    let [ReplacedCertificate { serial, .. }] = replaced.as_slice() else { panic!("{replaced:?}") };
    assert_eq!(names(&dir), [format!("lamp.example.{serial}.replaced")], "the file has the key and the certificate");
    assert!(acme.of("lamp.example").is_none());
    assert!(acme.draft_key("lamp.example", 0).is_err(), "an attempt before the replacement makes no key");
    // The next attempt has another key.
    let next = acme.draft_key("lamp.example", 2).unwrap();
    assert_ne!(next, key);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_replaced_key_whose_files_cannot_be_moved_is_not_used_again() {
    let (dir, acme) = open("stuck");
    let (file, draft) = (dir.join("lamp.example.pem"), dir.join("lamp.example.key"));
    obtained(&file);
    write(&draft, &issued().0);
    acme.prepare("lamp.example").unwrap();
    let serial = to_hex(&own_certificate(&file).unwrap().serial);
    // A directory has the name to which the file is moved.
    let stuck = dir.join(format!("lamp.example.{serial}.replaced"));
    std::fs::create_dir(&stuck).unwrap();
    assert!(acme.replace("lamp.example").is_err());
    assert!(acme.of("lamp.example").is_none());
    let replacements = acme.devices().get("lamp.example").map(|device| device.replacements).unwrap();
    assert!(acme.draft_key("lamp.example", replacements).is_err(), "an attempt would use the replaced key");
    assert!(file.exists() && draft.exists(), "an operator asks for the revocation of the certificate in the file");
    std::fs::remove_dir(&stuck).unwrap();
    let replaced = acme.replace("lamp.example").unwrap();
    assert_eq!(replaced.iter().map(|one| one.serial.as_str()).collect::<Vec<_>>(), [serial]);
    assert!(!file.exists() && !draft.exists());
    assert!(acme.draft_key("lamp.example", replacements + 1).is_ok());
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
