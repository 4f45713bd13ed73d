//! Signed heads of an audit log.

use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_store::files::{beside, rename};
use tegmen_trust::digest::{Digest, sha256, sha256_of};
use tegmen_trust::provider::public::verify_digest;
use tegmen_trust::x509::signer::{SignError, SignatureScheme, Signer};

/// The prefix of the signed bytes, which names the purpose of the signature.
const PURPOSE: &[u8] = b"tegmen audit head\0";

/// The number and the hash of the last line of a log, signed by the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// The number of lines of the log.
    pub lines: u64,
    /// SHA-256 of the last line, without its line feed.
    pub hash: Digest,
    /// The time of the signature, in seconds since 1970.
    pub at: u64,
    key: Vec<u8>,
    scheme: SignatureScheme,
    signature: Vec<u8>,
}

/// The reason why a file contains no valid head of an audit log: the number and the hash of the last line, signed by
/// the server.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeadError {
    /// The file has another format.
    #[error("it is no head of an audit log: give the file with the extension .head, or a copy of it")]
    Malformed,
    /// The signature is wrong.
    #[error("the signature of the head is wrong: it was changed; take a copy from another machine")]
    Signature,
}

/// The JSON content of the file that stores the head of an audit log. The head is the number and the hash of the last
/// line, signed by the server.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    lines: u64,
    hash: String,
    at: u64,
    key: String,
    scheme: u16,
    signature: String,
}

impl Head {
    /// Signs a head: the number `lines` and the hash of the last line of an audit log.
    ///
    /// # Errors
    /// [`SignError`] of the signer.
    pub fn sign(lines: u64, hash: Digest, at: u64, signer: &dyn Signer) -> Result<Self, SignError> {
        let signature = signer.sign_digest(&signed(lines, &hash, at))?;
        Ok(Self { lines, hash, at, key: signer.public_key().to_vec(), scheme: signer.scheme(), signature })
    }

    /// Reads a head, and verifies its signature with the public key in the head. The caller must compare [`Self::key`]
    /// with the key that it trusts.
    ///
    /// # Errors
    /// [`HeadError`].
    pub fn parse(text: &[u8]) -> Result<Self, HeadError> {
        let Text { lines, hash, at, key, scheme, signature } =
            serde_json::from_slice(text).map_err(|_| HeadError::Malformed)?;
        let bytes = |digits: &str| from_hex(digits).ok_or(HeadError::Malformed);
        let hash = bytes(&hash)?.try_into().map_err(|_| HeadError::Malformed)?;
        let (key, signature, scheme) = (bytes(&key)?, bytes(&signature)?, SignatureScheme(scheme));
        verify_digest(scheme, &key, &signed(lines, &hash, at), &signature).map_err(|_| HeadError::Signature)?;
        Ok(Self { lines, hash, at, key, scheme, signature })
    }

    /// Returns the SHA-256 of the public key that signed the head, as `tegmen keys show` shows it.
    pub fn key(&self) -> Digest {
        sha256(&self.key)
    }

    /// Returns the JSON text of the file that stores this head.
    pub fn text(&self) -> String {
        let text = Text {
            lines: self.lines,
            hash: to_hex(&self.hash),
            at: self.at,
            key: to_hex(&self.key),
            scheme: self.scheme.0,
            signature: to_hex(&self.signature),
        };
        // The head has neither maps nor other content that JSON cannot have.
        serde_json::to_string(&text).unwrap_or_default() + "\n"
    }

    /// Writes this head into `file`, in place of an earlier head.
    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        let new = beside(file, "new");
        let mut handle = OpenOptions::new().write(true).create(true).truncate(true).open(&new)?;
        handle.write_all(self.text().as_bytes())?;
        handle.sync_all()?;
        rename(&new, file)
    }
}

fn signed(lines: u64, hash: &Digest, at: u64) -> Digest {
    sha256_of(&[PURPOSE, &lines.to_be_bytes(), &at.to_be_bytes(), hash])
}
