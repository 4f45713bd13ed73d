//! Both kinds of contexts: one of two ends, and one of a member of a group.

use super::ContextError;
use super::file::ContextFile;
use super::keeper::{self, Terms, Used};
use super::member::{MemberFile, is_member};
use std::path::Path;

/// Looks at the numbers of a context, of two ends or of a member, without opening it.
///
/// # Errors
/// [`ContextError::Numbers`] as [`StoredContext::open`](super::StoredContext::open).
pub fn used(dir: &Path) -> Result<Used, ContextError> {
    keeper::used(dir, &terms(dir)?)
}

/// Moves a context whose numbers cannot be trusted, of two ends or of a member, past everything that may have been used: what a clock
/// that never goes back allowed it to lease until now.
///
/// # Errors
/// [`ContextError`]; [`ContextError::InUse`] while another process has it.
pub fn recover(dir: &Path) -> Result<u64, ContextError> {
    keeper::recover(dir, &terms(dir)?)
}

fn terms(dir: &Path) -> Result<Terms, ContextError> {
    match is_member(dir) {
        true => Ok(MemberFile::read(dir)?.terms()),
        false => Ok(ContextFile::read(dir)?.terms()),
    }
}
