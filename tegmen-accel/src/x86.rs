//! CCM with the instructions of AES-NI.
//!
//! ```text
//! MAC       first  head  P1  ...  Pn-1  Pn
//! stream           S1    S2  ...  Sn    S0
//! ```
//!
//! All blocks of a column are computed at once. A block of the body is encrypted or decrypted with the key stream of
//! the previous column. S0 encrypts the tag.

use crate::block::{self, HEAD, Shape, short};
use core::arch::x86_64::*;
use tegmen_base::crypto::{NotAuthentic, Unsupported};

/// Proof that this processor has AES-NI and SSE4.1.
#[derive(Clone, Copy)]
pub(crate) struct Aes(());

type Keys = [[u8; 16]; 11];

impl Aes {
    #[inline(always)]
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("aes") && is_x86_feature_detected!("sse4.1")).then_some(Self(()))
    }

    #[inline(always)]
    pub(crate) fn expand(self, key: &[u8; 16], keys: &mut Keys) {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { expand(key, keys) }
    }

    #[inline(always)]
    pub(crate) fn seal(
        self,
        keys: &Keys,
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { seal(keys, nonce, aad, body, tag) }
    }

    #[inline(always)]
    pub(crate) fn open(
        self,
        keys: &Keys,
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { open(keys, nonce, aad, body, tag) }
    }

    #[inline(always)]
    pub(crate) fn bare_record(self, keys: &Keys, block: [u8; 16]) -> [u8; 16] {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { bare_record(keys, block) }
    }
}

// The first blocks are made here and not by the caller: passed through memory in halves, they could be loaded whole only
// after all work on the previous record has retired, and records would no longer overlap.
//
// The lengths of a DTLS record (12 bytes of nonce, 13 of associated data, 8 of tag) are types, so that for them nothing
// is computed from lengths; all others take the same way as slices.
#[target_feature(enable = "aes,sse4.1")]
fn seal(keys: &Keys, nonce: &[u8], aad: &[u8], body: &mut [u8], tag: &mut [u8]) -> Result<(), Unsupported> {
    if let (Ok(nonce), Ok(aad), Ok(tag)) = (nonce.try_into(), aad.try_into(), <&mut [u8; 8]>::try_from(&mut *tag)) {
        return seal_shaped::<[u8; 12], [u8; 13], [u8; 8]>(keys, nonce, aad, body, tag);
    }
    seal_shaped(keys, nonce, aad, body, tag)
}

#[target_feature(enable = "aes,sse4.1")]
fn open(keys: &Keys, nonce: &[u8], aad: &[u8], body: &mut [u8], tag: &[u8]) -> Result<(), NotAuthentic> {
    if let (Ok(nonce), Ok(aad), Ok(tag)) = (nonce.try_into(), aad.try_into(), tag.try_into()) {
        return open_shaped::<[u8; 12], [u8; 13], [u8; 8]>(keys, nonce, aad, body, tag);
    }
    open_shaped(keys, nonce, aad, body, tag)
}

#[inline]
#[target_feature(enable = "aes,sse4.1")]
fn seal_shaped<N, A, T>(keys: &Keys, nonce: &N, aad: &A, body: &mut [u8], tag: &mut T) -> Result<(), Unsupported>
where
    N: AsRef<[u8]> + ?Sized,
    A: AsRef<[u8]> + ?Sized,
    T: AsMut<[u8]> + ?Sized,
{
    let tag = tag.as_mut();
    let shape = Shape::new(nonce.as_ref(), aad.as_ref(), body, tag)?;
    shape.cut(ccm::<false, A>(keys, &shape, aad, body), tag);
    Ok(())
}

#[inline]
#[target_feature(enable = "aes,sse4.1")]
fn open_shaped<N, A, T>(keys: &Keys, nonce: &N, aad: &A, body: &mut [u8], tag: &T) -> Result<(), NotAuthentic>
where
    N: AsRef<[u8]> + ?Sized,
    A: AsRef<[u8]> + ?Sized,
    T: AsRef<[u8]> + ?Sized,
{
    let shape = Shape::new(nonce.as_ref(), aad.as_ref(), body, tag.as_ref()).map_err(|_| NotAuthentic)?;
    shape.check(ccm::<true, A>(keys, &shape, aad, body), tag.as_ref(), body)
}

#[inline]
#[target_feature(enable = "aes,sse4.1")]
fn ccm<const OPEN: bool, A: AsRef<[u8]> + ?Sized>(keys: &Keys, shape: &Shape, aad: &A, body: &mut [u8]) -> u128 {
    let aad = aad.as_ref();
    let keys = &load_keys(keys);
    // The counter ends in the last four bytes: a checked length never carries further, nor into the nonce.
    let base = vector(shape.counter);
    let low = ((shape.counter >> 96) as u32).swap_bytes();
    let blocks = body.len().div_ceil(16) as u32;
    let mut count = 0;
    let mut next = || {
        count = if count == blocks { 0 } else { count + 1 };
        counter_block(base, low.wrapping_add(count))
    };

    let mut mac = vector(shape.first);
    let mut stream;
    if aad.is_empty() {
        (mac, stream) = encrypt2(keys, mac, next());
    } else {
        mac = encrypt(keys, mac);
        (mac, stream) = encrypt2(keys, _mm_xor_si128(mac, vector(block::head(aad))), next());
        for chunk in aad.get(HEAD..).unwrap_or(&[]).chunks(16) {
            mac = encrypt(keys, _mm_xor_si128(mac, vector(short(chunk))));
        }
    }
    let (whole, rest) = body.as_chunks_mut();
    for block in whole {
        let given = load(block);
        let made = _mm_xor_si128(given, stream);
        store(block, made);
        (mac, stream) = encrypt2(keys, _mm_xor_si128(mac, if OPEN { made } else { given }), next());
    }
    if !rest.is_empty() {
        let given = short(rest);
        let made = (given ^ integer(stream)) & block::ones(rest.len());
        block::put_short(rest, made);
        (mac, stream) = encrypt2(keys, _mm_xor_si128(mac, vector(if OPEN { made } else { given })), next());
    }
    integer(_mm_xor_si128(mac, stream))
}

#[inline]
#[target_feature(enable = "aes,sse4.1")]
fn counter_block(base: __m128i, low: u32) -> __m128i {
    _mm_insert_epi32(base, low.swap_bytes() as i32, 3)
}

/// Encrypts six blocks in a chain: the output of each block is the input of the next block, as in the MAC of a record.
/// At the same time encrypts five further blocks, which do not depend on each other, as in the key stream of a record.
#[target_feature(enable = "aes,sse4.1")]
fn bare_record(keys: &Keys, block: [u8; 16]) -> [u8; 16] {
    let keys = &load_keys(keys);
    let mut mac = load(&block);
    let mut all = mac;
    let mut stream = mac;
    for count in 0..5 {
        let counter = _mm_xor_si128(load(&block), _mm_set1_epi32(count));
        (mac, stream) = encrypt2(keys, mac, counter);
        all = _mm_xor_si128(all, stream);
    }
    mac = encrypt(keys, mac);
    let mut out = [0; 16];
    store(&mut out, _mm_xor_si128(_mm_xor_si128(mac, all), stream));
    out
}

/// Encrypts one block (FIPS 197, section 5.1).
#[inline]
#[target_feature(enable = "aes,sse4.1")]
fn encrypt(keys: &[__m128i; 11], block: __m128i) -> __m128i {
    let [first, middle @ .., last] = keys;
    let mut block = _mm_xor_si128(block, *first);
    for key in middle {
        block = _mm_aesenc_si128(block, *key);
    }
    _mm_aesenclast_si128(block, *last)
}

/// Encrypts two blocks at once: each round of AES is computed for both blocks before the next round.
#[inline]
#[target_feature(enable = "aes,sse4.1")]
fn encrypt2(keys: &[__m128i; 11], a: __m128i, b: __m128i) -> (__m128i, __m128i) {
    let [first, middle @ .., last] = keys;
    let mut a = _mm_xor_si128(a, *first);
    let mut b = _mm_xor_si128(b, *first);
    for key in middle {
        a = _mm_aesenc_si128(a, *key);
        b = _mm_aesenc_si128(b, *key);
    }
    (_mm_aesenclast_si128(a, *last), _mm_aesenclast_si128(b, *last))
}

/// Expands the key (FIPS 197, section 5.2) without the slow instruction `aeskeygenassist`. Uses `aesenclast`, the
/// instruction for the last round of AES, instead. If all four columns of its input are equal, the step ShiftRows
/// changes nothing. So `aesenclast` computes SubWord of each column, and combines the result with its second operand by
/// XOR. This operand is the round constant of the key expansion.
#[target_feature(enable = "aes,sse4.1")]
fn expand(key: &[u8; 16], keys: &mut Keys) {
    let rotated = _mm_set1_epi32(0x0c0f_0e0d);
    let mut words = load(key);
    let [first, others @ ..] = keys;
    *first = *key;
    for (round, constant) in others.iter_mut().zip([1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0x1b, 0x36]) {
        let substituted = _mm_aesenclast_si128(_mm_shuffle_epi8(words, rotated), _mm_set1_epi32(constant));
        words = _mm_xor_si128(words, _mm_slli_si128(words, 4));
        words = _mm_xor_si128(words, _mm_slli_si128(words, 8));
        words = _mm_xor_si128(words, substituted);
        store(round, words);
    }
}

#[inline]
#[target_feature(enable = "aes,sse4.1")]
fn load_keys(keys: &Keys) -> [__m128i; 11] {
    let mut loaded = [_mm_setzero_si128(); 11];
    for (to, from) in loaded.iter_mut().zip(keys) {
        *to = load(from);
    }
    loaded
}

#[inline(always)]
fn load(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the reference is valid for 16 bytes, and this load needs no alignment. SSE2 is part of x86_64.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline(always)]
fn store(bytes: &mut [u8; 16], block: __m128i) {
    // SAFETY: the reference is valid for 16 bytes, and this store needs no alignment. SSE2 is part of x86_64.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), block) }
}

#[inline(always)]
fn vector(block: u128) -> __m128i {
    // SAFETY: SSE2 is part of x86_64.
    unsafe { _mm_set_epi64x((block >> 64) as i64, block as i64) }
}

#[inline(always)]
fn integer(block: __m128i) -> u128 {
    let mut bytes = [0; 16];
    store(&mut bytes, block);
    u128::from_le_bytes(bytes)
}

/// Does the same as [`crate::prefetch`].
#[inline]
pub(crate) fn prefetch(place: *const i8) {
    // SAFETY: SSE belongs to x86_64, and a prefetch reads nothing: it is a hint that is ignored where it makes no sense.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(place) }
}
