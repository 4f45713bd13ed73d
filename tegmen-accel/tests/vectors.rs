//! Tests both implementations of AES-CCM with the same vectors as the providers of the core.

#[expect(dead_code, reason = "there are no hashes here")]
#[path = "../../tegmen/tests/vectors/checks.rs"]
mod checks;

use checks::{CAVP_CASES, Count, RFC_3610_CASES, WYCHEPROOF_CCM_CASES};
use tegmen_accel::{KeySchedule, open, portable, seal};
use tegmen_base::crypto::{Ccm, Compact, Crypto, NotAuthentic, Unsupported};

enum Path {
    Fast,
    Portable,
}

impl Crypto for Path {
    type Aead = Ccm;
    const AES_128_CCM: Ccm = Ccm;

    fn seal(
        &mut self,
        _: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        let key = key.try_into().map_err(|_| Unsupported)?;
        match self {
            Self::Fast => seal(&KeySchedule::expand(key), nonce, aad, body, tag),
            Self::Portable => portable::seal(&KeySchedule::unexpanded(key), nonce, aad, body, tag),
        }
    }

    fn open(
        &mut self,
        _: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        let key = key.try_into().map_err(|_| NotAuthentic)?;
        match self {
            Self::Fast => open(&KeySchedule::expand(key), nonce, aad, body, tag),
            Self::Portable => portable::open(&KeySchedule::unexpanded(key), nonce, aad, body, tag),
        }
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        Compact::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        out.fill(0);
    }
}

#[test]
fn both_paths_agree_with_every_ccm_vector() {
    let all = |nonce: usize, tag: usize| (7..=13).contains(&nonce) && (4..=16).contains(&tag) && tag.is_multiple_of(2);
    for mut path in [Path::Fast, Path::Portable] {
        let path = &mut path;
        assert_eq!(checks::cavp(path, all), Count { run: CAVP_CASES, refused: 0 });
        assert_eq!(checks::rfc_3610(path, all), Count { run: RFC_3610_CASES, refused: 0 });
        let wycheproof = checks::wycheproof_ccm(path, all);
        assert_eq!(wycheproof, Count { run: WYCHEPROOF_CCM_CASES - 22, refused: 22 });
        checks::ccm_lengths(path);
        checks::ccm_too_long(path);
    }
}
