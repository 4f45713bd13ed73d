//! Keeps trusted certificates of clients, so that the server can verify them again when a client resumes a session.

use crate::digest::Digest;
use crate::hex::{from_hex, to_hex};
use crate::private;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The certificate lists that clients sent. Each list is stored under the digest of its first certificate. A stored
/// list may no longer be trusted, so it is verified at each use.
#[derive(Default)]
pub(super) struct Clients {
    chains: HashMap<Digest, Arc<[u8]>>,
    most: usize,
    /// The file that stores the certificate lists of clients: one line of hexadecimal digits for each list.
    file: Option<PathBuf>,
}

impl Clients {
    pub(super) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Reads certificate lists of clients from `file`: one list from each line of hexadecimal digits. Skips a damaged
    /// line. From now on, each new list is also written to this file.
    pub(super) fn keep_in(&mut self, file: &Path) -> io::Result<()> {
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other?,
        };
        // The newest lists are at the end of the file.
        for chain in text.lines().rev().take(self.most).filter_map(from_hex) {
            if let Some(digest) = digest_of(&chain) {
                self.chains.entry(digest).or_insert_with(|| chain.into());
            }
        }
        self.file = Some(file.to_owned());
        self.write()
    }

    pub(super) fn get(&self, digest: &Digest) -> Option<Arc<[u8]>> {
        self.chains.get(digest).cloned()
    }

    pub(super) fn insert(&mut self, digest: Digest, chain: &[u8]) {
        if self.chains.contains_key(&digest) || self.most == 0 {
            return;
        }
        let full = self.chains.len() >= self.most;
        if full {
            self.chains.clear();
        }
        self.chains.insert(digest, chain.into());
        // A client whose list cannot be kept makes a full handshake after a restart.
        let _ = if full { self.write() } else { self.append(chain) };
    }

    fn append(&self, chain: &[u8]) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut handle = private::open(File::options().append(true).create(true), file)?;
        handle.write_all(format!("{}\n", to_hex(chain)).as_bytes())
    }

    /// Writes the whole file again.
    fn write(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let draft = file.with_extension(format!("{}.new", std::process::id()));
        let mut handle = private::open(File::options().write(true).create(true).truncate(true), &draft)?;
        for chain in self.chains.values() {
            writeln!(handle, "{}", to_hex(chain))?;
        }
        std::fs::rename(&draft, file)
    }
}

/// Returns the digest of the first certificate of a list (RFC 5246, section 7.4.2).
fn digest_of(chain: &[u8]) -> Option<Digest> {
    let (len, rest) = chain.split_first_chunk::<3>()?;
    let len = usize::from(len[0]) << 16 | usize::from(len[1]) << 8 | usize::from(len[2]);
    rest.get(..len).map(crate::digest::sha256)
}
