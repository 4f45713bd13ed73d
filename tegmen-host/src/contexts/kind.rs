//! Functions for both kinds of contexts: contexts between two endpoints, and contexts of group members.

use super::ContextError;
use super::file::ContextFile;
use super::keeper::{self, Terms, Used};
use super::member::{MemberFile, is_member};
use std::path::Path;

/// Reads the sequence numbers of a context without opening the context. The context may be a context between two
/// endpoints, or the context of a group member.
///
/// # Errors
/// [`ContextError::Numbers`] if the sequence numbers cannot be trusted, and the errors of reading the file of the
/// context.
pub fn used(dir: &Path) -> Result<Used, ContextError> {
    keeper::used(dir, &terms(dir)?)
}

/// Raises the next sequence number of a context above every number that may have been used, and returns the new number.
/// Use this for a context whose numbers cannot be trusted. A context may reserve only a limited number of sequence
/// numbers in each millisecond, so the age of the context shows which numbers it cannot have used. The context may be a
/// context between two endpoints, or the context of a group member.
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
