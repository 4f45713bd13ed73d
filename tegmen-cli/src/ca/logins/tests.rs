use super::*;
use crate::ca::authority::KeyType;
use crate::ca::{draw_key, init, issue_for_device};
use tegmen_host::x509::signer::{Signer as _, SoftwareKey};

const HOUR: Duration = Duration::from_secs(3600);

/// A CA in a directory of the test, and the key of a user.
fn scene(name: &str) -> (PathBuf, Logins, Vec<u8>) {
    let dir = std::env::temp_dir().join(format!("tegmen-logins-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    init(&dir, "Works", 1000 * HOUR).unwrap();
    let key = SoftwareKey::from_pem(draw_key(KeyType::P256).unwrap().as_bytes()).unwrap();
    let logins = Logins::open(&dir).unwrap();
    (dir, logins, key.public_key().to_vec())
}

fn list(dir: &Path) -> String {
    std::fs::read_to_string(revoked_logins(dir)).unwrap()
}

#[test]
fn a_user_has_at_most_64_certificates_and_those_that_ended_are_forgotten() {
    let (dir, logins, key) = scene("most");
    let certify = |name: &str| LoginAuthority::certify(&logins, name, &key, HOUR);
    for _ in 0..MOST {
        certify("alice").unwrap();
    }
    assert_eq!(certify("alice"), Err(NotCertified::TooMany(MOST)));
    let end = certify("bob").unwrap().expires;
    assert_eq!(list(&dir), "");
    assert_eq!(LoginAuthority::revoke(&logins, "alice").unwrap().len(), MOST);
    assert_eq!(list(&dir).lines().count(), MOST);
    certify("alice").unwrap();
    let mut authority = Authority::open(&dir).unwrap();
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    authority.forget_ended_logins(at(end - 1800));
    assert_eq!(authority.issued().len(), MOST + 2);
    authority.forget_ended_logins(at(end + 1800));
    assert_eq!(authority.issued().len(), MOST, "those that were revoked stay for the next CRL");
    drop(authority);
    // A certificate does not outlive the authority.
    let longest = LoginAuthority::certify(&logins, "carol", &key, 2000 * HOUR).unwrap();
    assert_eq!(at(longest.expires), Authority::open(&dir).unwrap().certificate().not_after);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_revoked_certificate_is_on_one_crl_after_its_expiry() {
    use rustls_pki_types::{CertificateRevocationListDer, pem::PemObject as _};
    let (dir, logins, key) = scene("crl");
    let end = LoginAuthority::certify(&logins, "alice", &key, HOUR).unwrap().expires;
    LoginAuthority::revoke(&logins, "alice").unwrap();
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let serial = Authority::open(&dir).unwrap().issued()[0].serial.clone();
    let serial = tegmen_host::hex::from_hex(&serial).unwrap();
    // The test opens the CA again for each CRL, as another process does.
    let is_listed = |now| {
        let mut authority = Authority::open(&dir).unwrap();
        authority.forget_ended_logins(now);
        authority.write_crl(now, HOUR).unwrap();
        let crl = CertificateRevocationListDer::from_pem_file(dir.join("crl.pem")).unwrap();
        crl.windows(serial.len()).any(|bytes| bytes == serial)
    };
    // The thisUpdate of each CRL is one hour before the given time. So the thisUpdate of the third CRL is before the
    // expiry.
    let times = [end - 1800, end + 1, end + 3599, end + 3601, end + 3602];
    assert_eq!(times.map(|now| is_listed(at(now))), [true, true, true, true, false]);
    assert_eq!(Authority::open(&dir).unwrap().issued().len(), 0);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_name_is_taken_by_the_authority_and_by_certificates_that_no_login_gave() {
    let (dir, logins, key) = scene("taken");
    issue_for_device(&dir, "lamp.example", HOUR).unwrap();
    LoginAuthority::certify(&logins, "alice", &key, HOUR).unwrap();
    let taken = |name| LoginAuthority::is_taken(&logins, name).unwrap();
    assert_eq!(["lamp.example", "Works", "alice", "bob"].map(taken), [true, true, false, false]);
    // A revocation of a user revokes no other certificate of the name.
    assert_eq!(LoginAuthority::revoke(&logins, "lamp.example"), Ok(vec![]));
    assert_eq!(list(&dir), "");
    std::fs::remove_dir_all(&dir).unwrap();
}
