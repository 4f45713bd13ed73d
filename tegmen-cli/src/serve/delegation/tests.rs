//! Tests of the certificates of devices that the CA of the server issues.

use super::of_ca;
use crate::ca;
use crate::public_keys::servers_of;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tegmen_control::delegation::Certificates;

const LAMP: &str = "lamp.example";

/// Makes a CA in a new directory.
fn works(test: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("tegmen-ca-{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    ca::init(&dir, "Works", Duration::from_secs(365 * 86_400)).unwrap();
    dir
}

/// Returns the certificates of devices as a server that starts has them.
fn started(dir: &Path) -> Arc<dyn Certificates> {
    of_ca(dir, servers_of(&[], &[]).unwrap())
}

/// Returns the public key of the certificate of the device.
fn key(certificates: &dyn Certificates) -> Vec<u8> {
    certificates.of(LAMP).unwrap().key(0).unwrap().public_key().to_vec()
}

#[test]
fn a_replaced_certificate_has_another_key_at_once() {
    let dir = std::env::temp_dir().join(format!("tegmen-ca-replaced-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    ca::init(&dir, "Works", Duration::from_secs(365 * 86_400)).unwrap();
    let certificates = of_ca(&dir, servers_of(&[], &[]).unwrap());
    certificates.prepare("lamp.example").unwrap();
    certificates.prepare("door.example").unwrap();
    let key = |device: &str| certificates.of(device).unwrap().key(0).unwrap().public_key().to_vec();
    let (before, door) = (key("lamp.example"), key("door.example"));
    let replaced = certificates.replace("lamp.example").unwrap();
    assert_eq!(replaced.iter().map(|one| (one.issuer.as_str(), one.revoked)).collect::<Vec<_>>(), [("CN=Works", true)]);
    assert_ne!(before, key("lamp.example"));
    assert_eq!(door, key("door.example"), "another device keeps its certificate");
    // A second call also replaces the new certificate.
    assert_eq!(certificates.replace("lamp.example").unwrap().len(), 2);
    // If the CA cannot issue a certificate, the server also stops using the old key.
    std::fs::remove_file(dir.join("ca.key")).unwrap();
    assert!(certificates.replace("door.example").is_err());
    assert!(certificates.of("door.example").is_none() && certificates.problem("door.example").is_some());
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_replaced_key_is_not_used_again_after_the_ca_has_failed() {
    let dir = works("failed");
    let first = started(&dir);
    first.prepare(LAMP).unwrap();
    let before = key(&*first);
    let (ca_key, away) = (dir.join("ca.key"), dir.join("away"));
    std::fs::rename(&ca_key, &away).unwrap();
    assert!(first.replace(LAMP).is_err());
    let again = started(&dir);
    for certificates in [&first, &again] {
        assert!(certificates.prepare(LAMP).is_err());
        assert!(certificates.of(LAMP).is_none(), "no file has the key any more");
    }
    std::fs::rename(&away, &ca_key).unwrap();
    first.prepare(LAMP).unwrap();
    assert_ne!(key(&*first), before);
    assert_eq!(first.replace(LAMP).unwrap().len(), 2, "a repeated command revokes the old certificate");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_replaced_key_whose_files_cannot_be_removed_is_not_used_again() {
    let dir = works("unremoved");
    let certificates = started(&dir);
    certificates.prepare(LAMP).unwrap();
    let before = key(&*certificates);
    let (_, file) = ca::device_files(&dir, LAMP);
    let away = dir.join("away");
    std::fs::rename(&file, &away).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert!(certificates.replace(LAMP).is_err(), "a directory is not removed");
    assert!(certificates.prepare(LAMP).is_err() && certificates.of(LAMP).is_none());
    std::fs::remove_dir(&file).unwrap();
    std::fs::rename(&away, &file).unwrap();
    certificates.prepare(LAMP).unwrap();
    assert_ne!(key(&*certificates), before);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_replacement_that_was_cut_off_leaves_no_old_key() {
    for is_certificate_removed in [true, false] {
        let dir = works(&format!("cut-{is_certificate_removed}"));
        let certificates = started(&dir);
        certificates.prepare(LAMP).unwrap();
        let before = key(&*certificates);
        let (certificate, private) = ca::device_files(&dir, LAMP);
        let copy = std::fs::read(&private).unwrap();
        certificates.replace(LAMP).unwrap();
        if is_certificate_removed {
            std::fs::remove_file(&certificate).unwrap();
            std::fs::write(&private, copy).unwrap();
        } else {
            std::fs::remove_file(&private).unwrap();
        }
        let again = started(&dir);
        again.prepare(LAMP).unwrap();
        assert_ne!(key(&*again), before, "the certificate with this key is revoked");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

#[test]
fn a_certificate_that_is_prepared_during_its_replacement_has_the_new_key() {
    let dir = works("race");
    let certificates = started(&dir);
    certificates.prepare(LAMP).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = certificates.prepare(LAMP);
            }
        });
        let mut is_same = false;
        for _ in 0..12 {
            let before = key(&*certificates);
            certificates.replace(LAMP).unwrap();
            is_same |= key(&*certificates) == before;
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(!is_same);
    });
    std::fs::remove_dir_all(&dir).unwrap();
}
