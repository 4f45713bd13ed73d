//! The folder for the files of one run.

use crate::files::{self, Readers};
use crate::output::Failure;
use crate::random;
use std::path::PathBuf;
use tegmen_host::hex::to_hex;

/// A folder that only its owner can read, with the keys and logs of this run. It is removed when this value is
/// dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes a new folder.
    pub(super) fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("tegmen-up-{}", to_hex(&random::bytes::<8>()?)));
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).map_err(|error| {
            Failure::usage(format!("{}: {error}; set TMPDIR to a folder where you may write", path.display()))
        })?;
        Ok(Self(path))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file that only its owner can read, and returns its path.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.path(name);
        files::write(&path, text.as_bytes(), Readers::Owner)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("tegmen: {} is not removed: {error}; it has keys of this run: remove it", self.0.display());
        }
    }
}
