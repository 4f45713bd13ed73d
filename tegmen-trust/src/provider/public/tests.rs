use super::*;

#[test]
fn the_keys_of_512_handshakes_in_progress_are_kept() {
    for group in [Group::Secp256r1, Group::X25519] {
        let mut pairs = KeyPairs::new(crate::provider::KEY_PAIRS);
        let mut public = [0; MAX_PUBLIC_LEN];
        let privates: Vec<_> = (0..512).map(|_| pairs.generate(group, &mut public).unwrap()).collect();
        for private in &privates {
            assert!(pairs.0.take(&sha256(private.expose())).is_some(), "{group:?}");
        }
    }
}
