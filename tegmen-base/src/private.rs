//! Files for secrets, which only their owner can read.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a file with `options`. After this, only the owner of the file can read it. This also holds for a file that
/// existed before.
pub fn open(options: &mut OpenOptions, file: &Path) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    let file = options.open(file)?;
    #[cfg(unix)]
    if file.metadata()?.is_file() {
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    }
    Ok(file)
}

/// Returns the permission bits of a file that other users may read or write, or `None` for a private file.
#[cfg(unix)]
pub fn exposed(file: &File) -> io::Result<Option<u32>> {
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata()?.permissions()) & 0o777;
    Ok(Some(mode).filter(|mode| mode & 0o077 != 0))
}

/// Always returns `None`, because this system has no permission bits.
#[cfg(not(unix))]
pub fn exposed(_: &File) -> io::Result<Option<u32>> {
    Ok(None)
}

#[cfg(all(test, unix))]
mod tests;
