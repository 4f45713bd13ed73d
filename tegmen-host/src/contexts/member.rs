//! The stored security context of one member of a group (RFC 10021), in a directory.
//!
//! ```text
//! lights/hall/context.toml    the group, this member's ID and keys, the other members and their rights: written once
//! lights/hall/numbers.toml    the next sequence number for both modes: every lower one may have been used; written in
//!                             advance. If the program closed the context: also the replay windows of the other members
//! ```
//!
//! The rules for the sequence numbers are the same as for a context between two endpoints: see
//! [`StoredContext`](crate::contexts::StoredContext).

mod file;
pub mod keys;
mod managed;
mod new_group;

pub use file::{Manager, MemberFile, OtherMember, OwnKeys, is_member};
pub use managed::ManagedKeys;
pub use new_group::create_group;

use super::keeper::{self, Keeper};
use super::{ContextError, windows};
use crate::provider::HostCrypto;
use std::path::Path;
use tegmen::oscore::group::{GroupContext, Recipient};
use tegmen::oscore::{Id, ProtectError, ReplayWindow};
use tegmen_store::{Database, Numbers};

/// Bytes on the stack for the additional authenticated data of a message. 136 bytes are for the fixed part, and 888
/// bytes remain for two credentials: that of the sender and that of the Group Manager. [`create_group`] allows names of
/// up to 64 bytes, and a credential with such a name has less than 160 bytes.
pub const AAD: usize = 1024;

/// The security context of a group member on a host.
pub type MemberContext = GroupContext<Vec<u8>, AAD>;

/// The open security context of one member of a group. No other process can open the context at the same time.
pub struct StoredMember {
    /// The context. [`Self::renew`] reserves further sequence numbers for it.
    pub context: MemberContext,
    /// The other members, in the order of the file.
    pub recipients: Vec<Recipient<Vec<u8>>>,
    group: String,
    name: String,
    others: Vec<OtherMember>,
    keeper: Keeper,
    /// True for a monitor: the context protects no message.
    is_monitor: bool,
}

impl StoredMember {
    /// Opens the context in a directory. If the last use ended with [`Self::close`], the context continues at its next
    /// sequence number, with the replay windows of the other members. If the last use ended in another way, such as a
    /// power cut, the context skips all sequence numbers that were reserved on disk, and all windows are lost: the next
    /// request of each other member is answered with a challenge.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn open(dir: &Path) -> Result<Self, ContextError> {
        Self::open_in(dir, None)
    }

    /// Does the same as [`Self::open`]. If there is a `database`, which several contexts can share, the sequence
    /// numbers are stored in the database. The file of sequence numbers then records that the database has the valid
    /// ones, and the context can no longer be opened without the database.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn open_in(dir: &Path, database: Option<&Database>) -> Result<Self, ContextError> {
        let file = MemberFile::read(dir)?;
        let (keeper, numbers) = Keeper::open(dir, file.terms(), database)?;
        let numbers = numbers?;
        let context = file.context(numbers.next)?;
        let mut recipients = Vec::with_capacity(file.others.len());
        // Keys are validated without random numbers.
        let mut crypto = HostCrypto::new([0; 32], 1);
        for other in &file.others {
            // Numbers with a window are those of a context that nobody has used.
            let known = || windows::find(&numbers.sealed, &other.id);
            let window = if numbers.window.is_some() { Some(ReplayWindow::new()) } else { known() };
            recipients.push(file.recipient(&context, &mut crypto, other, window)?);
        }
        let MemberFile { group, name, others, own, .. } = file;
        let mut stored = Self { context, recipients, group, name, others, keeper, is_monitor: false };
        stored.check_expiry()?;
        // After a power cut the next process must see that this was in use, whatever it sends.
        stored.renew()?;
        stored.keeper.finish_move(numbers.next)?;
        stored.keeper.leave_mark()?;
        if own.is_none() {
            stored.is_monitor = true;
            stored.context.lease_mut().stop();
        }
        Ok(stored)
    }

    /// True if the member is a monitor (draft-ietf-ace-key-groupcomm-oscore, section 1.1). A monitor opens the requests of
    /// other members. It has no Sender ID, so it must send no requests and no responses.
    pub(crate) const fn is_monitor(&self) -> bool {
        self.is_monitor
    }

    /// True if the replay window of another member is lost. A monitor then processes no request of this member, because
    /// it cannot send a challenge (RFC 10021, section 2.6.1.1).
    pub(crate) fn has_lost_window(&self) -> bool {
        self.recipients.iter().any(|recipient| recipient.window().mark().is_some())
    }

    /// Returns the directory of the context.
    pub fn dir(&self) -> &Path {
        self.keeper.dir()
    }

    /// Returns the name of the group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the name of this member.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the ID and the name of each other member, and the rights of that member at this member. `None` allows
    /// everything.
    pub fn others(&self) -> impl Iterator<Item = (&Id, &str, Option<&[String]>)> {
        self.others.iter().map(|other| (&other.id, other.name.as_str(), other.allow.as_deref()))
    }

    /// Returns the ID of another member.
    pub fn id_of(&self, name: &str) -> Option<Id> {
        self.others.iter().find(|other| other.name == name).map(|other| other.id)
    }

    /// Returns an error if the context has expired.
    ///
    /// # Errors
    /// [`ContextError::Expired`].
    pub fn check_expiry(&self) -> Result<(), ContextError> {
        self.keeper.check_expiry()
    }

    /// Reserves further sequence numbers. The context uses these numbers only after the end of their range is on disk.
    ///
    /// # Errors
    /// [`ContextError`]. The range of reserved numbers then does not change.
    pub fn renew(&mut self) -> Result<(), ContextError> {
        if self.is_monitor {
            return Err(ContextError::Monitor { dir: self.dir().display().to_string() });
        }
        if self.keeper.is_over() {
            return Err(self.keeper.untrusted("its use in this process is over".to_owned()));
        }
        let end = self.keeper.next_end(self.context.lease())?;
        self.keeper.keep(&Numbers::from(end, None))?;
        self.context.lease_mut().extend(end);
        Ok(())
    }

    /// Checks that the context has not expired. Reserves sequence numbers if there is none left for the next message.
    ///
    /// # Errors
    /// [`ContextError`].
    pub(crate) fn prepare(&mut self) -> Result<(), ContextError> {
        self.check_expiry()?;
        if self.context.lease().left() > 0 { Ok(()) } else { self.renew() }
    }

    /// Reserves sequence numbers on disk if there is none left for the next message.
    ///
    /// # Errors
    /// [`ProtectError::LeaseSpent`] if no sequence numbers can be reserved, for example because their file cannot be
    /// written; [`ProtectError::Exhausted`] if all sequence numbers are used.
    pub fn lease_one(&mut self) -> Result<(), ProtectError> {
        if self.context.lease().left() > 0 {
            return Ok(());
        }
        self.renew().map_err(keeper::without_number)
    }

    /// Ends the use of the sequence numbers on disk, because the directory gets the keys of another epoch. The context
    /// can still protect responses with the nonces of their requests, and no other messages.
    pub(super) fn retire(&mut self) {
        self.keeper.end();
        self.context.lease_mut().stop();
    }

    /// Ends the use of the context in the same way as a power cut, without a write to disk. The next start skips all
    /// sequence numbers that are reserved on disk.
    pub fn abandon(mut self) {
        self.keeper.end();
    }

    /// Ends the use of the context: stores the next sequence number and the replay windows. Afterwards the context
    /// protects and opens no message.
    ///
    /// # Errors
    /// [`ContextError::File`]. The next start then continues as after a power cut.
    pub fn close(&mut self) -> Result<(), ContextError> {
        if !self.keeper.end() {
            return Ok(());
        }
        let sealed = windows::to_text(&self.recipients);
        let numbers = Numbers { sealed, ..Numbers::from(self.context.lease().next(), None) };
        self.context.lease_mut().stop();
        // A window that changes from now on would be lost.
        self.recipients.clear();
        self.keeper.keep(&numbers)
    }
}

impl Drop for StoredMember {
    fn drop(&mut self) {
        // If it cannot be written, the next start continues after the lease, as after a power cut.
        let _ = self.close();
    }
}

#[cfg(test)]
mod tests;
