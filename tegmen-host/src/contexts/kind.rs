//! Functions for both kinds of contexts: contexts of two ends, and contexts of group members.

use super::ContextError;
use super::file::ContextFile;
use super::keeper::{self, Terms, Used};
use super::member::{MemberFile, is_member};
use std::path::Path;

/// Reads the numbers of a context without opening the context. The context is one of two ends, or of a group member.
///
/// # Errors
/// [`ContextError::Numbers`] as for [`StoredContext::open`](super::StoredContext::open).
pub fn used(dir: &Path) -> Result<Used, ContextError> {
    keeper::used(dir, &terms(dir)?)
}

/// Raises the next number of a context whose numbers cannot be trusted past every number that may have been used. The
/// limit is the number of leases that the time since the creation of the context allows. The context is one of two
/// ends, or of a group member.
///
/// # Errors
/// [`ContextError`]; [`ContextError::InUse`] while another process has the context open.
pub fn recover(dir: &Path) -> Result<u64, ContextError> {
    keeper::recover(dir, &terms(dir)?)
}

fn terms(dir: &Path) -> Result<Terms, ContextError> {
    match is_member(dir) {
        true => Ok(MemberFile::read(dir)?.terms()),
        false => Ok(ContextFile::read(dir)?.terms()),
    }
}
