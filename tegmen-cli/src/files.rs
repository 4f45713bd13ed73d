//! Writes files whole or not at all, so that they survive a power cut.

use crate::output::Failure;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// The read permission of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Only the owner.
    Owner,
    /// Everyone, within the defaults of the system.
    All,
}

/// Writes a file whole and durably, and replaces an existing one.
pub(crate) fn write(file: &Path, bytes: &[u8], readers: Readers) -> Result<(), Failure> {
    let wrong = |error| {
        let file = file.display();
        Failure::usage(format!("{file} cannot be written: {error}; correct the path, or the permissions there"))
    };
    let mut draft = file.as_os_str().to_owned();
    draft.push(".new");
    let _ = std::fs::remove_file(&draft);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if readers == Readers::Owner {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    let mut handle = options.open(&draft).map_err(wrong)?;
    handle.write_all(bytes).and_then(|()| handle.sync_all()).map_err(wrong)?;
    std::fs::rename(&draft, file).map_err(wrong)?;
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(wrong)
}
