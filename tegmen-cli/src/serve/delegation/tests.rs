//! Tests of the certificates of devices that the CA of the server issues.

use super::of_ca;
use crate::ca;
use crate::public_keys::servers_of;
use std::time::Duration;

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
