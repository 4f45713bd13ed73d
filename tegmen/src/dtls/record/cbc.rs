//! AES-128-CBC with HMAC-SHA-256 or HMAC-SHA-1 (RFC 5246, section 6.2.3.2). The MAC is computed either after or before
//! the encryption.
//!
//! If both endpoints support encrypt-then-MAC (RFC 7366), they use this order. The receiver then does not decrypt a
//! record with a wrong MAC. In all other sessions, the order is MAC-then-encrypt. The receiver then knows the length of
//! the padding only after the decryption, and must not reveal this length (see the Lucky Thirteen attack). So the
//! executed instructions and the accessed addresses depend only on the length of the record, and wrong padding has the
//! same result as a wrong MAC. `./ci.sh timing` checks the instructions and the addresses.

use super::cipher::{BLOCK_LEN, MAX_MAC_LEN, Order};
use super::keys::LongKey;
use crate::buf::copy;
use crate::crypto::hash::{self, Hmac};
use crate::crypto::{Crypto, KEY_LEN};
use crate::secret::same;
use core::hint::black_box;

/// Seals a content with a MAC of `MAC_LEN` bytes, in place. The content is the first `content` bytes of `body`. After
/// it, `body` needs [`Mode::tail_len`](super::cipher::Mode::tail_len) free bytes. Returns `None` if `body` is too
/// short.
pub(super) fn seal<C: Crypto, const MAC_LEN: usize>(
    order: Order,
    crypto: &mut C,
    key: &LongKey,
    aad: &[u8],
    iv: &[u8; BLOCK_LEN],
    content: usize,
    body: &mut [u8],
) -> Option<()> {
    let (key, hmac) = keys::<C, MAC_LEN>(key)?;
    match order {
        Order::MacThenEncrypt => {
            let (text, tail) = body.split_at_mut_checked(content)?;
            let (code, padding) = tail.split_first_chunk_mut()?;
            *code = hmac.mac::<C>(&[aad, text]);
            pad(padding)?;
            crypto.cbc_encrypt(key, iv, body).ok()
        }
        Order::EncryptThenMac => {
            let (encrypted, code) = body.split_last_chunk_mut()?;
            pad(encrypted.get_mut(content..)?)?;
            crypto.cbc_encrypt(key, iv, encrypted).ok()?;
            *code = hmac.mac::<C>(&[aad, iv, encrypted]);
            Some(())
        }
    }
}

/// Opens the part of a record after its header, in place. Returns the length of the content, which follows the
/// initialization vector. Returns `None` if the record is not authentic, and does not reveal whether the MAC or the
/// padding was wrong.
pub(super) fn open<C: Crypto, A: AsRef<[u8]>, const MAC_LEN: usize>(
    order: Order,
    crypto: &mut C,
    key: &LongKey,
    associated_data: impl FnOnce(u16) -> A,
    body: &mut [u8],
) -> Option<usize> {
    let (key, hmac) = keys::<C, MAC_LEN>(key)?;
    let (iv, text) = body.split_first_chunk_mut()?;
    match order {
        Order::MacThenEncrypt => {
            crypto.cbc_decrypt(key, iv, text).ok()?;
            open_text::<C, A, MAC_LEN>(&hmac, associated_data, text)
        }
        Order::EncryptThenMac => {
            let (text, code) = text.split_last_chunk_mut::<MAC_LEN>()?;
            let aad = associated_data(BLOCK_LEN.wrapping_add(text.len()) as u16);
            if !same(&hmac.mac::<C>(&[aad.as_ref(), iv, text]), code) {
                return None;
            }
            crypto.cbc_decrypt(key, iv, text).ok()?;
            let padding = *text.last()?;
            let content = text.len().checked_sub(usize::from(padding).wrapping_add(1))?;
            text.get(content..)?.iter().all(|byte| *byte == padding).then_some(content)
        }
    }
}

fn keys<C: Crypto, const MAC_LEN: usize>(key: &LongKey) -> Option<(&[u8; KEY_LEN], Hmac<MAC_LEN>)> {
    let (mac_key, key) = key.cbc::<MAC_LEN>()?;
    Some((key, Hmac::new::<C>(&[mac_key])))
}

/// Fills in the padding. Each byte has the same value: the number of padding bytes minus one. Returns `None` if the
/// padding is empty.
fn pad(padding: &mut [u8]) -> Option<()> {
    let last = padding.len().checked_sub(1)?;
    padding.fill(last as u8);
    Some(())
}

/// Returns the length of the content in a decrypted text. The MAC and the padding follow the content. The caller must
/// learn only whether the record is authentic, and not the reason why it is not.
fn open_text<C: Crypto, A: AsRef<[u8]>, const MAC_LEN: usize>(
    hmac: &Hmac<MAC_LEN>,
    associated_data: impl FnOnce(u16) -> A,
    text: &[u8],
) -> Option<usize> {
    // The lengths of the longest content and of the longest padding are public.
    let most = text.len().checked_sub(MAC_LEN.wrapping_add(1))?;
    let padding = u32::from(*text.last()?);
    let mut good = !below(most as u32, padding);
    for (place, byte) in (0..).zip(text.iter().rev().take(MAX_PADDING_LEN)) {
        good &= below(padding, place) | equal(u32::from(*byte), padding);
    }
    // Wrong padding is treated as empty, so that a MAC is computed in any case (RFC 5246, section 6.2.3.2).
    let len = (most as u32).wrapping_sub(padding & good);
    let aad = associated_data(len as u16);
    let code = code_of_first::<C, MAC_LEN>(hmac, aad.as_ref(), text.get(..most)?, len);
    let found = code_behind::<MAC_LEN>(text, most, len)?;
    let authentic = black_box(good) != 0;
    (authentic & same(&code, &found)).then_some(len as usize)
}

/// Returns the MAC of the associated data and of the first `len` bytes of `text`. The number of calls of the
/// compression function does not depend on `len`: it is always the number for the whole `text`.
fn code_of_first<C: Crypto, const MAC_LEN: usize>(
    hmac: &Hmac<MAC_LEN>,
    aad: &[u8],
    text: &[u8],
    len: u32,
) -> [u8; MAC_LEN] {
    let mut message = aad.iter().chain(text).copied();
    let end = (aad.len() as u32).wrapping_add(len);
    let most = (aad.len() as u32).wrapping_add(text.len() as u32);
    // The last block has the end of the padding of the hash: a byte 0x80, and the length in bits in eight bytes.
    let last = end.wrapping_add(8) / 64;
    let bits = u64::from(end.wrapping_add(64)).wrapping_mul(8).to_be_bytes();
    let (mut state, mut ended) = (hmac.begun(), [0; 8]);
    for number in 0..=most.wrapping_add(8) / 64 {
        let is_last = equal(number, last);
        let mut block = [0; 64];
        for (place, byte) in (number.wrapping_mul(64)..).zip(&mut block) {
            let next = u32::from(message.next().unwrap_or(0));
            *byte = (next & below(place, end) | 0x80 & equal(place, end)) as u8;
        }
        for (byte, bits) in block.iter_mut().skip(56).zip(bits) {
            *byte |= bits & is_last as u8;
        }
        hash::compress::<C, MAC_LEN>(&mut state, core::slice::from_ref(&block));
        for (kept, word) in ended.iter_mut().zip(state) {
            *kept |= word & is_last;
        }
    }
    hmac.end::<C>(ended)
}

/// Returns the MAC that follows the first `len` bytes of `text`. No accessed address may depend on `len`. So this
/// function shifts the end of `text` to the left in eight steps. For each power of two from 1 to 128, it shifts by this
/// power or by nothing.
fn code_behind<const MAC_LEN: usize>(text: &[u8], most: usize, len: u32) -> Option<[u8; MAC_LEN]> {
    let start = most.saturating_sub(MAX_PADDING_LEN.wrapping_sub(1));
    let mut end = [0; MAX_PADDING_LEN + MAX_MAC_LEN];
    copy(&mut end, text.get(start..most.wrapping_add(MAC_LEN))?).ok()?;
    let by = len.wrapping_sub(start as u32);
    for power in 0..8 {
        let shifts = equal(by >> power & 1, 1) as u8;
        let distance = 1usize << power;
        for to in 0..end.len().wrapping_sub(distance) {
            let from = *end.get(to.wrapping_add(distance))?;
            let byte = end.get_mut(to)?;
            *byte ^= (*byte ^ from) & shifts;
        }
    }
    end.first_chunk().copied()
}

/// Maximum number of bytes of the padding, including the byte that contains its length.
const MAX_PADDING_LEN: usize = 256;

/// Returns all ones if `a` is below `b`, otherwise 0. Both numbers must be below 2^31. The result is hidden from the
/// optimizer, so that the compiler makes no branch of it.
fn below(a: u32, b: u32) -> u32 {
    black_box((a.wrapping_sub(b) as i32 >> 31) as u32)
}

/// Returns all ones if `a` and `b` are equal, otherwise 0.
fn equal(a: u32, b: u32) -> u32 {
    let differs = a ^ b;
    black_box(!((differs | differs.wrapping_neg()) as i32 >> 31) as u32)
}
