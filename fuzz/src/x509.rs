//! Targets for public-key formats that hosts read: lists of certificates, certificates, requests, keys, revocation
//! lists.

use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};
use tegmen_host::x509::{
    CertificateInfo, PeerVerifier as _, PublicKey, Purpose, RawKeys, Request, Settings, Trust, Verifier,
};

/// The certificate of a CA, which also issued the certificate of the device. Both certificates are made only for this
/// target, and are valid for a hundred years.
pub const CA: &[u8] = include_bytes!("../x509/ca.der");
/// The certificate of the device, which [`CA`] issued.
pub const DEVICE: &[u8] = include_bytes!("../x509/device.der");
/// The revocation list of [`CA`].
pub const CRL: &[u8] = include_bytes!("../x509/crl.der");
/// A request for a certificate.
pub const REQUEST: &[u8] = include_bytes!("../x509/request.der");

static VERIFIER: LazyLock<Verifier> = LazyLock::new(|| {
    let mut trust = Trust::default();
    trust.add_anchors(CA).expect("our own");
    Verifier::new(trust, Settings::default())
});

/// Reads a byte that selects the format, and then the input in this format. Only the certificate of the device may be
/// accepted.
pub fn x509(data: &[u8]) {
    let Some((&form, bytes)) = data.split_first() else { return };
    let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    match form % 6 {
        0 => {
            for purpose in [Purpose::Client, Purpose::Server] {
                if let Ok(verified) = VERIFIER.verify(bytes, purpose, None, now) {
                    assert_eq!(CertificateInfo::parse(DEVICE).expect("our own").digest, verified.digest);
                }
            }
        }
        1 => drop(CertificateInfo::parse(bytes)),
        2 => {
            if let Ok(request) = Request::verify(bytes) {
                assert_eq!(request, Request::verify(REQUEST).expect("our own"));
            }
        }
        3 => {
            let _ = PublicKey::parse(bytes);
            assert!(RawKeys::default().verify_raw(bytes).is_err());
        }
        4 => {
            let _ = Trust::default().add_anchors(bytes);
            let mut trust = Trust::default();
            if trust.add_crls(bytes).is_ok() {
                trust.add_anchors(CA).expect("our own");
                let list = [&(DEVICE.len() as u32).to_be_bytes()[1..], DEVICE].concat();
                let verifier = Verifier::new(trust, Settings { cache_entries: 0, ..Settings::default() });
                // Without a revocation list that the CA signed, no certificate is accepted.
                assert!(bytes == CRL || verifier.verify(&list, Purpose::Client, None, now).is_err());
            }
        }
        _ => {
            if let Ok(text) = std::str::from_utf8(bytes) {
                let _ = Trust::default().add_revoked(text);
            }
        }
    }
}
