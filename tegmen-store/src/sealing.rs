//! Encryption of stored secrets. Each secret is sealed separately under a data key. The data key is sealed under a
//! sealing key, which is kept outside of the database.
//!
//! The cipher is XChaCha20-Poly1305. Its nonces have 192 bits and are random, so they need no counter. A counter would
//! repeat numbers in a copy of the database, or in two copies of a virtual machine that run at the same time. After
//! 2^64 rows under one data key the probability that two rows have the same nonce is below 2^-64.
//!
//! The authentication tag of a secret also covers the key and the revision of the row. So decryption fails for a value
//! that was moved to another row, or replaced by an earlier value.

use crate::StateError;
use chacha20poly1305::aead::{AeadInOut as _, KeyInit as _};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use tegmen_base::hex::from_hex;
use tegmen_base::private;
use tegmen_base::secret::Secret;
use zeroize::Zeroizing;

/// Length of a sealing key and of a data key in bytes.
pub const SEALING_KEY_LEN: usize = 32;
/// Length of a nonce in bytes.
const NONCE_LEN: usize = 24;

/// Seals and opens the data key of a database, with a sealing key from a file or in a TPM.
pub trait Keeper: Send + Sync {
    /// Seals the data key.
    ///
    /// # Errors
    /// The reason of the failure, as a text for people.
    fn seal(&self, data_key: &Secret<SEALING_KEY_LEN>) -> Result<Vec<u8>, String>;

    /// Opens the data key. Returns `None` if the data key was sealed under another sealing key.
    ///
    /// # Errors
    /// The reason of the failure, as a text for people.
    fn open(&self, sealed: &[u8]) -> Result<Option<Secret<SEALING_KEY_LEN>>, String>;

    /// Returns the origin of the sealing key, such as the path of its file, for error messages.
    fn origin(&self) -> String;
}

/// A sealing key of 32 bytes. It is read from a file with 64 hexadecimal digits, or the caller passes it to
/// [`Self::new`].
pub struct SealingKey {
    key: Secret<SEALING_KEY_LEN>,
    origin: String,
}

impl SealingKey {
    /// Takes a key that the caller has, for example from a TPM. Error messages name the key by `origin`.
    pub const fn new(key: Secret<SEALING_KEY_LEN>, origin: String) -> Self {
        Self { key, origin }
    }

    /// Returns the 32 bytes of the sealing key.
    pub const fn key(&self) -> &Secret<SEALING_KEY_LEN> {
        &self.key
    }

    /// Reads the key from a file. Uses [`Self::from_credential`] for a file in the directory of systemd's credentials,
    /// and [`Self::from_file`] for any other file.
    ///
    /// # Errors
    /// The errors of [`Self::from_credential`] and [`Self::from_file`].
    pub fn open(file: &Path) -> Result<Self, StateError> {
        match (credentials_directory(), file.parent(), file.file_name().and_then(|name| name.to_str())) {
            (Some(directory), Some(parent), Some(name)) if directory == parent => {
                Self::from_credential(&directory, name)
            }
            _ => Self::from_file(file),
        }
    }

    /// Reads the key from a file that only its owner may read.
    ///
    /// # Errors
    /// [`StateError::Exposed`] if other users may read the file, [`StateError::Sealing`] if the file contains no key.
    pub fn from_file(file: &Path) -> Result<Self, StateError> {
        let handle = File::open(file).map_err(|error| unreadable(file, &error))?;
        if let Some(mode) = private::exposed(&handle).map_err(|error| unreadable(file, &error))? {
            return Err(StateError::Exposed { file: file.display().to_string(), mode });
        }
        Self::read(handle, file)
    }

    /// Reads the key from a credential of systemd (`LoadCredential=` or `LoadCredentialEncrypted=` of the unit): the
    /// file `name` in `directory`, which is the value of `$CREDENTIALS_DIRECTORY`.
    ///
    /// # Errors
    /// [`StateError::Sealing`] if the file contains no key.
    pub fn from_credential(directory: &Path, name: &str) -> Result<Self, StateError> {
        // systemd gives the service access to it by an access control list, which shows as bits of the group.
        let file = directory.join(name);
        Self::read(File::open(&file).map_err(|error| unreadable(&file, &error))?, &file)
    }

    fn read(handle: File, file: &Path) -> Result<Self, StateError> {
        let mut text = Zeroizing::new(String::new());
        handle.take(LONGEST_FILE).read_to_string(&mut text).map_err(|error| unreadable(file, &error))?;
        let bytes = Zeroizing::new(from_hex(text.trim()).unwrap_or_default());
        let mut key = Secret::zeroed();
        if bytes.len() != SEALING_KEY_LEN {
            return Err(StateError::Sealing {
                file: file.display().to_string(),
                why: "it is no key of 64 hexadecimal digits".to_owned(),
                way_out: "Make one: (umask 077; openssl rand -hex 32 >FILE)".to_owned(),
            });
        }
        key.expose_mut().copy_from_slice(&bytes);
        Ok(Self { key, origin: file.display().to_string() })
    }
}

impl Keeper for SealingKey {
    fn seal(&self, data_key: &Secret<SEALING_KEY_LEN>) -> Result<Vec<u8>, String> {
        seal(&self.key, DATA_KEY, data_key.expose())
    }

    fn open(&self, sealed: &[u8]) -> Result<Option<Secret<SEALING_KEY_LEN>>, String> {
        let Some(opened) = open(&self.key, DATA_KEY, sealed) else { return Ok(None) };
        let mut data_key = Secret::zeroed();
        if opened.len() != SEALING_KEY_LEN {
            return Err("the data key has another length".to_owned());
        }
        data_key.expose_mut().copy_from_slice(&opened);
        Ok(Some(data_key))
    }

    fn origin(&self) -> String {
        self.origin.clone()
    }
}

/// Returns the directory of systemd's credentials, if the process has one.
pub fn credentials_directory() -> Option<PathBuf> {
    std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from)
}

/// Seals and opens the secrets of rows.
pub(crate) struct Sealer(Secret<SEALING_KEY_LEN>);

impl Sealer {
    /// Opens the sealed data key of a database with the keeper. Without a sealed data key, makes a random data key.
    /// Returns the sealer, and the sealed data key if it is new.
    pub(crate) fn begin(
        keeper: &dyn Keeper,
        sealed: Option<&[u8]>,
        database: &Path,
    ) -> Result<(Self, Option<Vec<u8>>), StateError> {
        let failed = |why: String| StateError::Sealing {
            file: keeper.origin(),
            why,
            way_out: format!("Give the sealing key that {} was made with", database.display()),
        };
        match sealed {
            Some(sealed) => match keeper.open(sealed).map_err(failed)? {
                Some(data_key) => Ok((Self(data_key), None)),
                None => Err(failed(format!("this key does not open the secrets of {}", database.display()))),
            },
            None => {
                let mut data_key = Secret::zeroed();
                getrandom::fill(data_key.expose_mut()).map_err(|error| failed(error.to_string()))?;
                let sealed = keeper.seal(&data_key).map_err(failed)?;
                Ok((Self(data_key), Some(sealed)))
            }
        }
    }

    /// Seals `secret` for the row `key`. The transaction with the number `revision` writes this row.
    ///
    /// # Errors
    /// A text for people, if the system has no randomness.
    pub(crate) fn seal(&self, key: &[u8], revision: u64, secret: &[u8]) -> Result<Vec<u8>, String> {
        seal(&self.0, &purpose(key, revision), secret)
    }

    /// Opens a secret that [`Self::seal`] sealed. Returns `None` if it was sealed for another row or revision, or under
    /// another data key.
    pub(crate) fn open(&self, key: &[u8], revision: u64, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        open(&self.0, &purpose(key, revision), sealed)
    }
}

impl Sealer {
    /// Seals the digest of a backup.
    ///
    /// # Errors
    /// A text for people, if the system has no randomness.
    pub(crate) fn seal_digest(&self, digest: &[u8; 32]) -> Result<Vec<u8>, String> {
        seal(&self.0, BACKUP, digest)
    }

    /// Opens a digest that [`Self::seal_digest`] sealed. Returns `None` if it was sealed under another data key.
    pub(crate) fn open_digest(&self, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        open(&self.0, BACKUP, sealed)
    }
}

/// Returns the associated data for the secret of a row. The revision has a fixed length, so that two different pairs of
/// key and revision never give the same bytes.
fn purpose(key: &[u8], revision: u64) -> Vec<u8> {
    [b"tegmen row".as_slice(), &revision.to_be_bytes(), key].concat()
}

fn seal(key: &Secret<SEALING_KEY_LEN>, purpose: &[u8], secret: &[u8]) -> Result<Vec<u8>, String> {
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).map_err(|error| error.to_string())?;
    let mut text = Zeroizing::new(Vec::with_capacity(secret.len() + TAG_LEN));
    text.extend_from_slice(secret);
    XChaCha20Poly1305::new(key.expose().into())
        .encrypt_in_place(&XNonce::from(nonce), purpose, &mut *text)
        .map_err(|error| error.to_string())?;
    Ok([nonce.as_slice(), &text].concat())
}

fn open(key: &Secret<SEALING_KEY_LEN>, purpose: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>()?;
    let mut text = Zeroizing::new(text.to_vec());
    let cipher = XChaCha20Poly1305::new(key.expose().into());
    cipher.decrypt_in_place(&XNonce::from(*nonce), purpose, &mut *text).ok()?;
    Some(text)
}

fn unreadable(file: &Path, error: &io::Error) -> StateError {
    StateError::Sealing {
        file: file.display().to_string(),
        why: error.to_string(),
        way_out: "Correct the path of the sealing key, or the permissions there".to_owned(),
    }
}

/// The associated data for sealing a data key.
const DATA_KEY: &[u8] = b"tegmen data key";
/// The associated data for sealing the digest of a backup.
const BACKUP: &[u8] = b"tegmen backup";
/// Length of an authentication tag in bytes.
const TAG_LEN: usize = 16;
/// Maximum number of bytes of a file that contains a sealing key.
const LONGEST_FILE: u64 = 256;
