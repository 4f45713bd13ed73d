//! Small ciphers for motes whose memory has no cache, such as a Cortex-M3: AES-128-CCM and SHA-256 in 4 KB.
//!
//! **This AES reads a table at an index that is a secret byte.** Such a read takes constant time only if every load
//! from memory takes the same time, as on a microcontroller without a data cache. On a processor with a data cache,
//! above all on a server, use [`rustcrypto`](super::rustcrypto) or `HostCrypto` of the crate `tegmen-trust`. SHA-256,
//! the comparison of tags, and all other operations take constant time on every processor.
//!
//! With the feature `small`, AES and SHA-256 take fewer bytes and more instructions.

#[cfg(any(test, not(feature = "small")))]
mod fast;
#[cfg(any(test, feature = "small"))]
mod small;

use chosen::Schedule;
#[cfg(not(feature = "small"))]
use fast as chosen;
#[cfg(feature = "small")]
use small as chosen;

use super::hash::{DIGEST_LEN, Sha256};
use super::{Ccm, Crypto, KEY_LEN, NotAuthentic, Unsupported};
#[cfg(feature = "p256")]
use super::{MAX_SHARE, MAX_SIGNATURE, NamedGroup, SCALAR_LEN, SignatureScheme, p256};
use crate::secret::{Secret, same};

/// A provider with AES-128-CCM, SHA-256 and a random generator in little memory.
///
/// CCM accepts nonces of 7 to 13 bytes, tags of an even number of bytes from 4 to 16, less than 65,280 bytes of
/// associated data, and a body of less than 65,536 bytes. Each call expands its key again. This costs less than the
/// encryption of one block, and needs no memory for expanded keys.
pub struct Compact {
    /// The key of the generator. It is replaced by its own hash whenever bytes are drawn, so that earlier bytes
    /// cannot be computed again.
    key: Secret<DIGEST_LEN>,
}

impl Compact {
    /// Makes a provider whose generator starts from `seed`: 32 bytes that are used once.
    ///
    /// The seed is hashed, so its unpredictable bits may be in any of its bytes.
    pub fn new(seed: [u8; 32]) -> Self {
        let mut made = Self { key: Secret::new(seed) };
        made.replace_key();
        made
    }

    fn replace_key(&mut self) {
        let mut next = Secret::zeroed();
        self.draw(0, next.expose_mut());
        self.key = next;
    }

    /// Writes the hash of the key and `index` to `out`.
    fn draw(&self, index: u8, out: &mut [u8]) {
        let mut hash = Sha256::new();
        hash.update::<Self>(self.key.expose());
        hash.update::<Self>(&[index]);
        hash.finish_into::<Self>(out);
    }
}

impl Crypto for Compact {
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
        let mut mac = Block([0; BLOCK_LEN]);
        ccm(Direction::Seal, key, nonce, aad, body, tag.len(), &mut mac)?;
        tag.iter_mut().zip(&mac.0).for_each(|(to, from)| *to = *from);
        Ok(())
    }

    // The function is inlined, because an image calls it only once. A separate function would take up to 44 bytes more.
    #[inline(always)]
    fn open(
        &mut self,
        _: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        let mut mac = Block([0; BLOCK_LEN]);
        ccm(Direction::Open, key, nonce, aad, body, tag.len(), &mut mac).map_err(|_| NotAuthentic)?;
        if mac.0.get(..tag.len()).is_some_and(|made| same(made, tag)) {
            return Ok(());
        }
        body.fill(0);
        Err(NotAuthentic)
    }

    #[cfg(feature = "p256")]
    const GROUPS: &'static [NamedGroup] = &[NamedGroup::SECP256R1];

    #[cfg(feature = "p256")]
    fn key_pair(
        &mut self,
        group: NamedGroup,
        private: &mut [u8; SCALAR_LEN],
        share: &mut [u8; MAX_SHARE],
    ) -> Result<usize, Unsupported> {
        if group != NamedGroup::SECP256R1 {
            return Err(Unsupported);
        }
        p256::key_pair(self, private, share);
        Ok(share.len())
    }

    #[cfg(feature = "p256")]
    fn agree(
        &mut self,
        group: NamedGroup,
        private: &[u8; SCALAR_LEN],
        share: &[u8],
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        if group != NamedGroup::SECP256R1 {
            return Err(NotAuthentic);
        }
        p256::agree(self, private, share, secret)
    }

    #[cfg(feature = "p256")]
    fn agree_by_x(
        &mut self,
        private: &[u8; SCALAR_LEN],
        x: &[u8; SCALAR_LEN],
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        p256::agree_by_x(self, private, x, secret)
    }

    #[cfg(feature = "p256")]
    fn verify(
        &mut self,
        scheme: SignatureScheme,
        public_key: &[u8],
        digest: &[u8; DIGEST_LEN],
        signature: &[u8],
    ) -> Result<(), NotAuthentic> {
        p256::verify(scheme, public_key, digest, signature)
    }

    #[cfg(feature = "p256")]
    fn sign(
        &mut self,
        private: &[u8; SCALAR_LEN],
        digest: &[u8; DIGEST_LEN],
        out: &mut [u8; MAX_SIGNATURE],
    ) -> Result<usize, Unsupported> {
        p256::sign(self, private, digest, out)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        for block in blocks {
            chosen::compress(state, block);
        }
    }

    /// Fills `out` with random bytes. The key is replaced after each digest, before the caller gets a byte of the
    /// digest.
    fn random(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(DIGEST_LEN) {
            self.draw(1, chunk);
            self.replace_key();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Seal,
    Open,
}

/// Encrypts or decrypts `body` in place with CCM (RFC 3610, section 2). Writes the tag to the first `tag_len` bytes of
/// `mac`.
fn ccm(
    direction: Direction,
    key: &[u8],
    nonce: &[u8],
    aad: &[u8],
    body: &mut [u8],
    tag_len: usize,
    mac: &mut Block,
) -> Result<(), Unsupported> {
    let (Ok(key), Ok(len)) = (key.try_into(), u16::try_from(body.len())) else { return Err(Unsupported) };
    // 0xff00 announces a longer length field for the associated data (RFC 3610, section 2.2).
    // After the rotation, an odd number is large.
    let even_tag = tag_len.wrapping_sub(4).rotate_right(1) <= 6;
    if !matches!(nonce.len(), 7..=13) || aad.len() >= 0xff00 || !even_tag {
        return Err(Unsupported);
    }

    let mut place = chosen::place();
    let schedule = Schedule::new(key, &mut place);
    let mut counter = Block([0; BLOCK_LEN]);
    let [flags, rest @ ..] = &mut counter.0;
    *flags = 14u8.wrapping_sub(nonce.len() as u8);
    add(rest, nonce);
    let mut tag_mask = counter;
    schedule.encrypt(&mut tag_mask);

    *mac = counter;
    mac.0[0] |= (tag_len as u8).wrapping_sub(2) << 2 | if aad.is_empty() { 0 } else { 0x40 };
    mac.add_to_end(len.into());
    schedule.encrypt(mac);
    if !aad.is_empty() {
        // Two bytes with the length of the associated data precede the associated data.
        let [high, low, rest @ ..] = &mut mac.0;
        *high ^= (aad.len() >> 8) as u8;
        *low ^= aad.len() as u8;
        let len = rest.len();
        add(rest, aad);
        schedule.encrypt(mac);
        schedule.authenticate(mac, aad.get(len..).unwrap_or(&[]));
    }
    if direction == Direction::Seal {
        schedule.authenticate(mac, body);
    }
    for chunk in body.chunks_mut(BLOCK_LEN) {
        // The counter is in the last bytes of the block. The body is so short that the counter does not overflow into
        // the nonce.
        counter.add_to_end(1);
        let mut stream = counter;
        schedule.encrypt(&mut stream);
        add(chunk, &stream.0);
    }
    if direction == Direction::Open {
        schedule.authenticate(mac, body);
    }
    mac.0 = store(add_key(load(&mac.0), load(&tag_mask.0)));
    Ok(())
}

/// Adds the bytes of `from` to the bytes of `to`, in the field of AES. The shorter slice limits the number of bytes.
#[inline(never)]
fn add(to: &mut [u8], from: &[u8]) {
    let len = to.len().min(from.len());
    let (to, to_rest) = to.get_mut(..len).unwrap_or(&mut []).as_chunks_mut::<4>();
    let (from, from_rest) = from.get(..len).unwrap_or(&[]).as_chunks::<4>();
    for (to, from) in to.iter_mut().zip(from) {
        *to = (u32::from_ne_bytes(*to) ^ u32::from_ne_bytes(*from)).to_ne_bytes();
    }
    to_rest.iter_mut().zip(from_rest).for_each(|(to, from)| *to ^= *from);
}

const BLOCK_LEN: usize = 16;

/// A block of AES, with the alignment of words, because a mote reads and writes words.
#[derive(Clone, Copy)]
#[repr(align(4))]
struct Block([u8; BLOCK_LEN]);

impl Block {
    /// Adds `value` to the number in the last four bytes.
    fn add_to_end(&mut self, value: u32) {
        if let Some(end) = self.0.last_chunk_mut() {
            *end = u32::from_be_bytes(*end).wrapping_add(value).to_be_bytes();
        }
    }
}

/// The state of AES during the rounds: one word for each column, with the first row in the lowest byte.
type State = [u32; 4];

#[inline(always)]
fn load(&[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]: &[u8; BLOCK_LEN]) -> State {
    [[a, b, c, d], [e, f, g, h], [i, j, k, l], [m, n, o, p]].map(u32::from_le_bytes)
}

#[inline(always)]
fn store(state: State) -> [u8; BLOCK_LEN] {
    let [[a, b, c, d], [e, f, g, h], [i, j, k, l], [m, n, o, p]] = state.map(u32::to_le_bytes);
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
}

#[inline(always)]
fn add_key([a, b, c, d]: State, [e, f, g, h]: State) -> State {
    [a ^ e, b ^ f, c ^ g, d ^ h]
}

impl Schedule<'_> {
    /// Adds bytes to a MAC, and then zeros up to a whole block (RFC 3610, section 2.2).
    #[inline(never)]
    fn authenticate(&self, mac: &mut Block, bytes: &[u8]) {
        for chunk in bytes.chunks(BLOCK_LEN) {
            add(&mut mac.0, chunk);
            self.encrypt(mac);
        }
    }
}

/// The S-box of AES, computed from its definition (FIPS 197, section 5.1.1).
#[expect(clippy::indexing_slicing, reason = "the compiler computes it, and refuses an index that is too large")]
static S_BOX: [u8; 256] = {
    let mut table = [0; 256];
    // `p` takes the value of each non-zero byte, as a power of 3. `q` is the inverse of `p`.
    let mut p: u32 = 1;
    let mut q: u32 = 1;
    let mut count = 0;
    while count < 255 {
        let bits = q as u8;
        table[p as usize] =
            bits ^ bits.rotate_left(1) ^ bits.rotate_left(2) ^ bits.rotate_left(3) ^ bits.rotate_left(4) ^ 0x63;
        p ^= double(p);
        // 0xf6 is the inverse of 3.
        q = multiply(q, 0xf6);
        count += 1;
    }
    table[0] = 0x63;
    table
};

/// Returns the double of `byte` in the field of AES (FIPS 197, section 4.2.1).
const fn double(byte: u32) -> u32 {
    (byte << 1) ^ ((byte >> 7).wrapping_mul(0x11b))
}

const fn multiply(mut a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    while b > 0 {
        product ^= a.wrapping_mul(b & 1);
        a = double(a);
        b >>= 1;
    }
    product
}

/// Returns the next word of the message schedule. The four arguments are the words that are 16, 15, 7 and 2 places
/// before it.
#[inline(always)]
fn later(w16: u32, w15: u32, w7: u32, w2: u32) -> u32 {
    let sigma0 = w15.rotate_right(7) ^ w15.rotate_right(18) ^ (w15 >> 3);
    let sigma1 = w2.rotate_right(17) ^ w2.rotate_right(19) ^ (w2 >> 10);
    w16.wrapping_add(sigma0).wrapping_add(w7).wrapping_add(sigma1)
}

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, section 4.2.2).
static CONSTANTS: [[u32; 16]; 4] = [
    [
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
        0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    ],
    [
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152,
        0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    ],
    [
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1,
        0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    ],
    [
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee,
        0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
    ],
];

#[cfg(test)]
mod tests;
