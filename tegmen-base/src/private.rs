//! Files for secrets, which only their owner can read.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a file with `options`, readable for its owner alone from then on, also if it existed.
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

/// The permission bits of a file that others than its owner may read or write.
#[cfg(unix)]
pub fn exposed(file: &File) -> io::Result<Option<u32>> {
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata()?.permissions()) & 0o777;
    Ok(Some(mode).filter(|mode| mode & 0o077 != 0))
}

/// Nothing is known of others here.
#[cfg(not(unix))]
pub fn exposed(_: &File) -> io::Result<Option<u32>> {
    Ok(None)
}

#[cfg(all(test, unix))]
mod tests;
