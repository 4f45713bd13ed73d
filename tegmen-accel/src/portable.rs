//! AES-128-CCM for any processor, with the block cipher of the crate `aes`.

use crate::KeySchedule;
use crate::block::{self, HEAD, Shape, short};
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use tegmen_base::crypto::{NotAuthentic, Unsupported};

/// Does the same as [`crate::seal`].
///
/// # Errors
/// The errors of [`crate::seal`].
pub fn seal(
    schedule: &KeySchedule,
    nonce: &[u8],
    aad: &[u8],
    body: &mut [u8],
    tag: &mut [u8],
) -> Result<(), Unsupported> {
    let shape = Shape::new(nonce, aad, body, tag)?;
    shape.cut(ccm(schedule, Direction::Seal, &shape, aad, body), tag);
    Ok(())
}

/// Does the same as [`crate::open`].
///
/// # Errors
/// The errors of [`crate::open`].
pub fn open(schedule: &KeySchedule, nonce: &[u8], aad: &[u8], body: &mut [u8], tag: &[u8]) -> Result<(), NotAuthentic> {
    let shape = Shape::new(nonce, aad, body, tag).map_err(|_| NotAuthentic)?;
    let made = ccm(schedule, Direction::Open, &shape, aad, body);
    shape.check(made, tag, body)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Seal,
    Open,
}

/// Encrypts or decrypts `body` with CCM in one pass. Returns the tag with all 16 bytes.
fn ccm(schedule: &KeySchedule, direction: Direction, shape: &Shape, aad: &[u8], body: &mut [u8]) -> u128 {
    let cipher = Aes128::new(schedule.key().into());
    let encrypt = |block: u128| {
        let mut bytes = block.to_le_bytes().into();
        cipher.encrypt_block(&mut bytes);
        u128::from_le_bytes(bytes.into())
    };
    let mut mac = encrypt(shape.first);
    if !aad.is_empty() {
        mac = encrypt(mac ^ block::head(aad));
        for chunk in aad.get(HEAD..).unwrap_or(&[]).chunks(16) {
            mac = encrypt(mac ^ short(chunk));
        }
    }
    for (index, chunk) in body.chunks_mut(16).enumerate() {
        let count = (index as u32).wrapping_add(1);
        let stream = encrypt(shape.counter ^ u128::from(count.swap_bytes()) << 96);
        let given = short(chunk);
        let made = (given ^ stream) & block::ones(chunk.len());
        block::put_short(chunk, made);
        mac = encrypt(mac ^ if direction == Direction::Seal { given } else { made });
    }
    mac ^ encrypt(shape.counter)
}
