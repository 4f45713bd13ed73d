//! Locks of files.

use std::fs::{File, TryLockError};
use std::ops::{Deref, DerefMut};

/// A locked file. Dropping this value ends the lock, even if another thread starts a program at this moment and the
/// program inherits a copy of the file descriptor.
pub struct Locked(File);

impl Locked {
    /// Locks a file.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another process or another descriptor has locked the file.
    pub fn new(file: File) -> Result<Self, TryLockError> {
        file.try_lock()?;
        Ok(Self(file))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // If this fails, the lock ends with the last copy of the descriptor.
        let _ = self.0.unlock();
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

#[cfg(test)]
mod tests;
