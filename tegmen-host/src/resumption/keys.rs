//! The ticket keys: in memory, or in a file that several servers may share.
//!
//! The file has a line for each of up to four keys, in hexadecimal: the current key, the next key, and two earlier
//! keys. When the current key has been in use for half of the lifetime of tickets, the first server that notices this
//! makes the next key the current key. A server that shares the file reads it again after a change.

use crate::hex::{from_hex, to_hex};
use crate::private;
use crate::reading::{Reading, Stamp};
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tegmen::buf::Writer;
use tegmen::crypto::Crypto;
use tegmen::secret::Secret;
use tegmen_tickets::{TICKET_KEY_LEN, TicketKey, TicketKeys};
use zeroize::Zeroizing;

/// The reason why the file of ticket keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TicketKeyError {
    /// The file cannot be read or written.
    #[error("{file}: {source}: ticket keys are kept there; correct the path, or who may write there")]
    File {
        /// The path of the file.
        file: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Other users of this machine can read the keys.
    #[error("{file}: others may read it (mode {mode:03o}), and it holds keys: remove it, and new ones are drawn")]
    Exposed {
        /// The path of the file.
        file: String,
        /// The permission bits of the file.
        mode: u32,
    },
    /// A line of the file is not a ticket key.
    #[error(
        "{file}:{line}: no ticket key: {} hexadecimal digits are expected; remove the file, and new keys are drawn: clients \
         then go through one full handshake",
        2 * TICKET_KEY_LEN
    )]
    Damaged {
        /// The path of the file.
        file: String,
        /// The number of the line, from 1.
        line: usize,
    },
}

pub(super) struct Ring {
    keys: TicketKeys,
    /// The time from which the current key has encrypted tickets.
    since: SystemTime,
    /// The time for which one key encrypts tickets.
    period: Duration,
    file: Option<PathBuf>,
    /// The [`Stamp`] of the file when it was last read or written. A stamp changes when its file changes.
    pub(super) reading: Reading<Stamp>,
}

impl Ring {
    pub(super) fn new<C: Crypto>(
        crypto: &mut C,
        file: Option<PathBuf>,
        period: Duration,
    ) -> Result<Self, TicketKeyError> {
        let mut ring = Self {
            keys: TicketKeys::draw(crypto),
            since: SystemTime::now(),
            period,
            file,
            reading: Reading::default(),
        };
        ring.tick(crypto)?;
        Ok(ring)
    }

    pub(super) fn seal<C: Crypto>(&mut self, crypto: &mut C, state: &[u8], ticket: &mut Writer<'_>) -> Option<()> {
        if self.keys.is_worn() {
            self.rotate(crypto).ok()?;
        }
        self.keys.seal(crypto, state, ticket).ok()
    }

    /// Decrypts a ticket into `room`. Returns the state in the ticket, and true if the client needs a new ticket.
    pub(super) fn open<'r, C: Crypto>(
        &self,
        crypto: &mut C,
        ticket: &[u8],
        room: &'r mut [u8],
    ) -> Option<(&'r [u8], bool)> {
        self.keys.open(crypto, ticket, room).map(|opened| (opened.state, !opened.fresh))
    }

    /// Reads the file if it changed. Begins to use the next key if the current key has been used for `period`.
    pub(super) fn tick<C: Crypto>(&mut self, crypto: &mut C) -> Result<(), TicketKeyError> {
        if let Some(file) = self.file.clone() {
            match Stamp::at(&file) {
                Some(stamp) if self.reading.is_current(&stamp) => {}
                Some(_) => self.load(&file)?,
                None => self.save(&file, |_| {})?,
            }
        }
        match self.since.elapsed() {
            Ok(age) if age >= self.period => self.rotate(crypto),
            _ => Ok(()),
        }
    }

    fn rotate<C: Crypto>(&mut self, crypto: &mut C) -> Result<(), TicketKeyError> {
        let next = TicketKey::draw(crypto);
        match self.file.clone() {
            None => {
                self.keys.rotate(next);
                self.since = SystemTime::now();
                Ok(())
            }
            Some(file) => self.save(&file, |keys| keys.rotate(next)),
        }
    }

    fn load(&mut self, file: &Path) -> Result<(), TicketKeyError> {
        let failed = |source| TicketKeyError::File { file: file.display().to_string(), source };
        let mut handle = File::open(file).map_err(failed)?;
        if let Some(mode) = private::exposed(&handle).map_err(failed)? {
            return Err(TicketKeyError::Exposed { file: file.display().to_string(), mode });
        }
        handle.lock_shared().map_err(failed)?;
        self.read(&mut handle, file)
    }

    /// Reads the keys from the open file, in place of the keys in memory. If the file is empty, the keys in memory do
    /// not change.
    fn read(&mut self, handle: &mut File, file: &Path) -> Result<(), TicketKeyError> {
        let failed = |source| TicketKeyError::File { file: file.display().to_string(), source };
        let mut text = Zeroizing::new(String::new());
        handle.read_to_string(&mut text).map_err(failed)?;
        let meta = handle.metadata().map_err(failed)?;
        let mut keys = [const { None }; 4];
        for (number, (line, place)) in text.lines().filter(|line| !line.starts_with('#')).zip(&mut keys).enumerate() {
            let bytes = from_hex(line).map(Zeroizing::new);
            let bytes = bytes.and_then(|bytes| <[u8; TICKET_KEY_LEN]>::try_from(bytes.as_slice()).ok());
            let damaged = || TicketKeyError::Damaged { file: file.display().to_string(), line: number + 1 };
            *place = Some(TicketKey(Secret::new(bytes.ok_or_else(damaged)?)));
        }
        if keys[0].is_some() {
            self.keys = TicketKeys::of(keys, 0);
        }
        self.since = meta.modified().map_err(failed)?;
        self.reading.succeeded(Stamp::of(&meta));
        Ok(())
    }

    /// Changes the keys and writes them. If another server has changed the file since this server read it, uses the
    /// keys of the file instead.
    fn save(&mut self, file: &Path, change: impl FnOnce(&mut TicketKeys)) -> Result<(), TicketKeyError> {
        let failed = |source| TicketKeyError::File { file: file.display().to_string(), source };
        let mut options = File::options();
        let mut handle =
            private::open(options.read(true).write(true).create(true).truncate(false), file).map_err(failed)?;
        handle.lock().map_err(failed)?;
        let known = self.reading.clone();
        let len = handle.metadata().map_err(failed)?.len();
        if len > 0 {
            self.read(&mut handle, file)?;
            if !known.is_current(&Stamp::of(&handle.metadata().map_err(failed)?)) {
                return Ok(());
            }
        }
        change(&mut self.keys);
        // Reserves the whole capacity, so that the string never moves and leaves a copy of keys behind.
        let mut text = Zeroizing::new(String::with_capacity(4 * (2 * TICKET_KEY_LEN + 1)));
        for key in self.keys.keys().into_iter().flatten() {
            text.push_str(&Zeroizing::new(to_hex(key.0.expose())));
            text.push('\n');
        }
        handle.set_len(0).map_err(failed)?;
        handle.rewind().map_err(failed)?;
        handle.write_all(text.as_bytes()).map_err(failed)?;
        handle.sync_all().map_err(failed)?;
        let meta = handle.metadata().map_err(failed)?;
        self.since = meta.modified().map_err(failed)?;
        self.reading.succeeded(Stamp::of(&meta));
        Ok(())
    }
}
