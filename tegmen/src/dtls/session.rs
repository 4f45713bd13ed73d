//! A session that is stored outside of its endpoint. It can survive sleep or a restart, or move to another endpoint.

use super::connection_id::ConnectionIds;
use super::record::{
    Channel, Cipher, HAS_LONG_KEYS, Keys, LONG_KEY_LEN, LongKey, LongKeys, MAX_SEALED, SALT_LEN, TrafficKey,
};
use super::record_size::RecordSize;
use crate::buf::{Full, Reader, Truncated, Writer};
use crate::crypto::{Crypto, KEY_LEN, NotAuthentic};
use crate::secret::Secret;
use tegmen_base::replay::ReplayWindow;

/// Number of bytes of a session before it is encrypted, without its keys. The next two constants are the number of
/// bytes with keys of AES-128, and with longer keys.
const REST_LEN: usize = 1 + 2 + 4 + 16 + ConnectionIds::PACKED_LEN;
const PLAIN_LEN: usize = REST_LEN + 2 * (KEY_LEN + SALT_LEN);
const LONG_PLAIN_LEN: usize = REST_LEN + 2 * LONG_KEY_LEN;
const MAX_PLAIN_LEN: usize = if HAS_LONG_KEYS { LONG_PLAIN_LEN } else { PLAIN_LEN };
const NONCE_LEN: usize = 13;
const TAG_LEN: usize = 16;
/// The first byte of a sealed session whose cipher has keys of AES-128. If the format changes, this byte changes too.
const VERSION: u8 = 2;
/// The first byte of a sealed session whose cipher has keys that are longer than those of AES-128.
const LONG_VERSION: u8 = 3;
/// Maximum number of bytes of a sealed session. A session whose cipher has keys that are longer than those of AES-128
/// needs 56 bytes more than other sessions.
pub const SEALED_SESSION_LEN: usize = 1 + NONCE_LEN + MAX_PLAIN_LEN + TAG_LEN;

/// A session that is stored outside of its endpoint: its keys, record numbers, replay window and connection ids. It can
/// survive sleep or a restart, or move to another endpoint.
///
/// The keys alone are not enough to continue a session. If a record number is used twice, the cipher is broken. So the
/// endpoint takes record numbers from a reserved range (a lease), whose end is stored durably before the first number
/// of the range is used. If the replay window is lost, old records are accepted again. So if the endpoint ended, for
/// example by a power cut, before it could store the last replay window, mark the window as lost. Then do not act on
/// records until the peer has proved that they are fresh, for example by an Echo option (RFC 9175, section 2.3).
#[derive(Debug)]
pub struct Session {
    pub(crate) keys: Keys,
    pub(crate) cipher: Cipher,
    pub(crate) record_size: RecordSize,
    /// The lowest record number that is certainly unused. All lower numbers may have been used.
    pub(crate) next: u32,
    pub(crate) window: ReplayWindow,
    pub(crate) ids: Option<ConnectionIds>,
}

impl Session {
    pub(crate) fn of(channel: &Channel, record_size: RecordSize, ids: Option<ConnectionIds>) -> Self {
        Self {
            keys: channel.keys().copy(),
            cipher: channel.cipher(),
            record_size,
            next: channel.sealed(),
            window: channel.window().clone(),
            ids,
        }
    }

    /// Copies the keys, record numbers and replay window of the session into a free channel.
    pub(crate) fn restore(&self, channel: &mut Channel) {
        channel.restore(&self.keys, self.cipher, self.next, &self.window);
    }

    /// Returns the state that changes with each record. The first value is the next record number. The second value has
    /// the [parts](ReplayWindow::parts) of the replay window; it is `None` if the window was lost. Store this state
    /// beside the sealed session, which is sealed only once. After a restart, pass the state to [`Self::go_on`].
    pub const fn position(&self) -> (u32, Option<(u64, u64)>) {
        (self.next, if self.window.mark().is_some() { None } else { Some(self.window.parts()) })
    }

    /// True if our records carry a connection id. The peer then finds the session by this id, even if our source
    /// address has changed.
    pub fn names_itself(&self) -> bool {
        self.ids.as_ref().is_some_and(|ids| ids.sent().is_some())
    }

    /// Sets the state that [`Self::position`] returned. If `window` is `None`, the record numbers that the peer has
    /// used are not known.
    pub const fn go_on(&mut self, next: u32, window: Option<(u64, u64)>) {
        self.next = next;
        self.window = match window {
            Some(parts) => ReplayWindow::from_parts(parts),
            None => ReplayWindow::lost(0),
        };
    }

    /// Marks the replay window as lost. The caller does this with a copy of a session, because the session itself
    /// continues, and receives records that the window of the copy does not contain.
    pub(crate) const fn lose_window(&mut self) {
        self.window = ReplayWindow::lost(0);
    }

    /// True if the key has unused record numbers.
    pub(crate) const fn is_usable(&self) -> bool {
        self.next < MAX_SEALED
    }

    /// Encrypts the session under `key`, and writes at most [`SEALED_SESSION_LEN`] bytes into `out`. [`Self::open`]
    /// succeeds only with the same `purpose`, for example the name of the peer.
    ///
    /// # Errors
    /// [`Full`] if `out` is too short, or if the crypto provider does not support AES-128-CCM with a nonce of 13 bytes
    /// and a tag of 16 bytes.
    pub fn seal<C: Crypto>(
        &self,
        crypto: &mut C,
        key: &[u8; KEY_LEN],
        purpose: &[u8],
        out: &mut Writer<'_>,
    ) -> Result<(), Full> {
        let mut nonce = [0; NONCE_LEN];
        crypto.random(&mut nonce);
        let mut plain = Secret::<MAX_PLAIN_LEN>::zeroed();
        let mut writer = Writer::new(plain.expose_mut());
        writer.u8(self.cipher as u8)?;
        writer.u16(self.record_size.to_bits())?;
        match self.keys.long.get() {
            Some(keys) => keys.iter().try_for_each(|key| writer.put(key.bytes()))?,
            None => [&self.keys.write, &self.keys.read].into_iter().try_for_each(|key| key.write(&mut writer))?,
        }
        writer.u32(self.next)?;
        let (next, seen) = self.window.parts();
        writer.put(&next.to_be_bytes())?;
        writer.put(&seen.to_be_bytes())?;
        writer.put(&self.ids.as_ref().map_or([0; _], ConnectionIds::pack))?;
        let mut tag = [0; TAG_LEN];
        let plain = writer.finish();
        crypto.seal(C::AES_128_CCM, key, &nonce, purpose, plain, &mut tag).map_err(|_| Full)?;
        out.u8(if self.cipher.is_long() { LONG_VERSION } else { VERSION })?;
        out.put(&nonce)?;
        out.put(plain)?;
        out.put(&tag)
    }

    /// Decrypts the bytes that [`Self::seal`] wrote.
    ///
    /// # Errors
    /// [`NotAuthentic`] if the bytes were changed, if their length or version is wrong, or if they were sealed under
    /// another key or for another purpose.
    pub fn open<C: Crypto>(
        crypto: &mut C,
        key: &[u8; KEY_LEN],
        purpose: &[u8],
        sealed: &[u8],
    ) -> Result<Self, NotAuthentic> {
        Self::read(crypto, key, purpose, &mut Reader::new(sealed)).ok_or(NotAuthentic)
    }

    fn read<C: Crypto>(crypto: &mut C, key: &[u8; KEY_LEN], purpose: &[u8], reader: &mut Reader<'_>) -> Option<Self> {
        let (long, len) = match reader.u8().ok()? {
            VERSION => (false, PLAIN_LEN),
            LONG_VERSION if HAS_LONG_KEYS => (true, LONG_PLAIN_LEN),
            _ => return None,
        };
        let nonce = reader.array::<NONCE_LEN>().ok()?;
        let mut plain = Secret::<MAX_PLAIN_LEN>::zeroed();
        let mut writer = Writer::new(plain.expose_mut());
        writer.put(reader.take(len).ok()?).ok()?;
        let plain = writer.finish();
        let tag = reader.array::<TAG_LEN>().ok()?;
        if !reader.is_empty() {
            return None;
        }
        crypto.open(C::AES_128_CCM, key, &nonce, purpose, plain, &tag).ok()?;
        let mut reader = Reader::new(plain);
        Self::parse(&mut reader, long).ok().flatten()
    }

    /// Reads the decrypted bytes of a session. Returns `Ok(None)` if the cipher is unknown.
    fn parse(reader: &mut Reader<'_>, long: bool) -> Result<Option<Self>, Truncated> {
        let cipher = Cipher::from_byte(reader.u8()?).filter(|cipher| cipher.is_long() == long);
        let Some(cipher) = cipher else { return Ok(None) };
        let record_size = RecordSize::from_bits(reader.u16()?);
        let mut keys = Keys::none();
        if long {
            keys.long = LongKeys::new(LongKey::of_bytes(reader.array_ref()?), LongKey::of_bytes(reader.array_ref()?));
        } else {
            (keys.write, keys.read) = (TrafficKey::read(reader)?, TrafficKey::read(reader)?);
        }
        let next = reader.u32()?;
        let window = (u64::from_be_bytes(reader.array()?), u64::from_be_bytes(reader.array()?));
        let ids = ConnectionIds::unpack(reader.array_ref()?);
        let window = ReplayWindow::from_parts(window);
        Ok(Some(Self { keys, cipher, record_size, next, window, ids }))
    }
}

#[cfg(test)]
mod tests;
