//! A member that its operator provisions: the file with its keys on its disk.

use crate::access::ace::member_file::{MemberFile, NotAMemberFile};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use tegmen_base::private;
use zeroize::Zeroizing;

/// The reason why the file of a member cannot be used. Each message names the file and the next step.
#[derive(Debug, thiserror::Error)]
pub enum MemberFileError {
    /// The file cannot be read.
    #[error("{0}: {1}: correct the path, or the permissions there")]
    System(String, std::io::Error),
    /// Others than its owner can read or write it.
    #[error("{file} has mode {mode:o}, and others can read or write it: chmod 600 {file}")]
    Exposed {
        /// The file.
        file: String,
        /// Its permission bits.
        mode: u32,
    },
    /// It is no file of a member.
    #[error("{0}: {1}")]
    Content(String, NotAMemberFile),
}

/// Reads the file of a member, which nobody but its owner may read.
///
/// # Errors
/// [`MemberFileError`].
pub fn read_member_file(file: &Path) -> Result<MemberFile, MemberFileError> {
    let name = || file.display().to_string();
    let system = |error| MemberFileError::System(name(), error);
    let handle = File::open(file).map_err(system)?;
    if let Some(mode) = private::exposed(&handle).map_err(system)? {
        return Err(MemberFileError::Exposed { file: name(), mode });
    }
    // With its whole capacity from the beginning, the vector leaves no copy of the keys behind.
    let most = MemberFile::MAX.saturating_add(1);
    let mut bytes = Zeroizing::new(Vec::with_capacity(most.saturating_add(32)));
    handle.take(most as u64).read_to_end(&mut bytes).map_err(system)?;
    MemberFile::parse(&bytes).map_err(|why| MemberFileError::Content(name(), why))
}
