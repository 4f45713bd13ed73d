//! Writes files completely or not at all, so that they survive a power cut. Reads secrets from files that only their
//! owner can read.

use crate::output::Failure;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use tegmen_base::private;
pub(crate) use tegmen_store::files::Readers;
use tegmen_store::files::{replace, sync_directory};
use zeroize::Zeroizing;

/// Writes a file completely and durably, and replaces an existing file.
pub(crate) fn write(file: &Path, bytes: &[u8], readers: Readers) -> Result<(), Failure> {
    let wrong = |error| {
        let file = file.display();
        Failure::usage(format!("{file} cannot be written: {error}; correct the path, or the permissions there"))
    };
    replace(file, bytes, readers).map_err(wrong)
}

/// Removes a file durably. Does nothing if there is no such file.
pub(crate) fn remove(file: &Path) -> Result<(), Failure> {
    let removed = match std::fs::remove_file(file) {
        Ok(()) => sync_directory(file),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.map_err(|error| Failure::new(format!("{} cannot be removed: {error}", file.display())))
}

/// Returns the text of a file that only its owner can read, without surrounding spaces. The error is the reason why
/// there is no text.
pub(crate) fn read_secret(file: &Path) -> Result<Zeroizing<String>, String> {
    let name = file.display();
    let wrong = |error| format!("{name}: {error}; correct the path, or the permissions there");
    let mut handle = File::open(file).map_err(wrong)?;
    if let Some(mode) = private::exposed(&handle).map_err(wrong)? {
        return Err(format!("{name} has mode {mode:o}, and others can read or write it: chmod 600 {name}"));
    }
    let mut text = Zeroizing::new(String::new());
    handle.read_to_string(&mut text).map_err(wrong)?;
    Ok(Zeroizing::new(text.trim().to_owned()))
}
