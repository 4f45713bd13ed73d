use super::*;
use crate::group::config::Protocol;
use tegmen_base::crypto::SignatureScheme;

#[test]
fn the_sets_of_stale_sender_ids_are_limited() {
    let mut ids = SenderIds::default();
    for epoch in 1..=20 {
        ids = ids.after(1, epoch, vec![u32::from(epoch)]);
    }
    assert_eq!((ids.given, ids.stale.len(), ids.forgotten), (20, STALE_SETS, 12));
    assert_eq!(ids.stale_since(12), None, "a member that knows less forgets all others");
    assert_eq!(ids.stale_since(19), Some(vec![vec![19], vec![20]]));
    assert_eq!(ids.stale_since(21), Some(vec![]));
    assert_eq!(ids.after(0, 21, vec![]).stale, ids.stale);
}

#[test]
fn a_device_joins_only_with_a_key_that_may_sign() {
    let at = GroupConfig::at("[ff15::1]:5684".parse().unwrap());
    let config = GroupConfig { protocol: Protocol::Oscore, signature: Some(SignatureScheme::ED25519), ..at };
    let with = |limit: &[u8]| {
        let key = [&[0xa4, 0x01, 0x01][..], limit, &[0x20, 0x06, 0x21, 0x58, 0x20], &[5; 32]].concat();
        check_credential(&config, "lamp", &[&[0xa1, 0x08, 0xa1, 0x01][..], &key].concat()).is_ok()
    };
    // The key has alg EdDSA or key_ops with verify, then alg ES256 or key_ops with sign.
    assert!(with(&[0x03, 0x27]) && with(&[0x04, 0x81, 0x02]));
    assert!(!with(&[0x03, 0x26]) && !with(&[0x04, 0x81, 0x01]));
}
