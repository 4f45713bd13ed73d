//! The file with the keys of one member of a group, for a device that an operator provisions.
//!
//! The file is self-described CBOR (RFC 8949, section 3.4.6) with one map:
//!
//! ```text
//! 55799({ 0: 1  the version of this format
//!         1: "lamps"  the group    2: "hall"  the member
//!         3: "coaps://controller.example/ace-group/lamps"  where the member asks for an epoch that it missed
//!         4: h'...'  the response to a request to join, as `groupcomm` has it })
//! ```
//!
//! A reader skips unknown labels. If a later version changes the meaning of these labels, it has another version
//! number.

use super::groupcomm::GroupKeys;
use crate::cbor::{MAX_MESSAGE, Malformed, MapWriter, bytes, number, read_message, text};
use crate::private;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use zeroize::Zeroizing;

/// The tag of self-described CBOR.
const TAG: [u8; 3] = [0xd9, 0xd9, 0xf7];
/// The version of the format.
const NUMBER: u64 = 1;

const VERSION: i64 = 0;
const GROUP: i64 = 1;
const MEMBER: i64 = 2;
const CONTROLLER: i64 = 3;
const KEYS: i64 = 4;

/// The reason why bytes are not the file of a member. The text of each error proposes a remedy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAMemberFile {
    /// The bytes are not self-described CBOR.
    #[error("it is no file of a group member: let tegmen group add write one")]
    Other,
    /// A later version of Tegmen wrote the file.
    #[error("it has version {0} of the format, and this program reads version 1: update the program")]
    Version(u64),
    /// An entry of the map is missing or is not valid.
    #[error("it cannot be read ({0}): let tegmen group add write it again")]
    Malformed(#[from] Malformed),
}

/// The keys of a member, with the names of the group and the member, and the URI of the group. Secrets are wiped on
/// drop.
pub struct MemberFile {
    /// The name of the group.
    pub group: String,
    /// The name of the member.
    pub member: String,
    /// The URI of the group at its controller, from which the member gets the keys of a missed epoch.
    pub controller: Option<String>,
    /// The keys and parameters of the member.
    pub keys: GroupKeys,
}

impl MemberFile {
    /// Maximum length of a file that is read, in bytes.
    pub const MAX: usize = MAX_MESSAGE;

    /// Returns the content of the file, which is secret.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut map = MapWriter::default();
        map.entry(VERSION, |encoder| number(encoder, NUMBER));
        map.entry(GROUP, |encoder| text(encoder, &self.group));
        map.entry(MEMBER, |encoder| text(encoder, &self.member));
        map.optional(CONTROLLER, self.controller.as_deref(), text);
        let keys = self.keys.encode();
        map.entry(KEYS, |encoder| bytes(encoder, &keys));
        let map = map.finish();
        // It never outgrows this, so that no copy of the keys remains.
        let mut file = Zeroizing::new(Vec::with_capacity(TAG.len().saturating_add(map.len())));
        file.extend_from_slice(&TAG);
        file.extend_from_slice(&map);
        file
    }

    /// Reads the content of a file.
    ///
    /// # Errors
    /// [`NotAMemberFile`] if the content is not valid.
    pub fn parse(file: &[u8]) -> Result<Self, NotAMemberFile> {
        let map = file.strip_prefix(&TAG).ok_or(NotAMemberFile::Other)?;
        if file.len() > Self::MAX {
            return Err(Malformed::TooLong.into());
        }
        let (mut version, mut group, mut member, mut controller, mut keys) = (None, None, None, None, None);
        read_message(map, |label, decoder| {
            match label {
                VERSION => version = Some(decoder.u64()?),
                // Labels of another version may have other types.
                _ if version.is_some_and(|version| version != NUMBER) => return Ok(false),
                GROUP => group = Some(decoder.str()?.to_owned()),
                MEMBER => member = Some(decoder.str()?.to_owned()),
                CONTROLLER => controller = Some(decoder.str()?.to_owned()),
                KEYS => keys = Some(GroupKeys::parse(decoder.bytes()?)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if let Some(other) = version.filter(|version| *version != NUMBER) {
            return Err(NotAMemberFile::Version(other));
        }
        version.ok_or(Malformed::Missing(VERSION))?;
        Ok(Self {
            group: group.ok_or(Malformed::Missing(GROUP))?,
            member: member.ok_or(Malformed::Missing(MEMBER))?,
            controller,
            keys: keys.ok_or(Malformed::Missing(KEYS))?,
        })
    }
}

/// The reason why the file of a member cannot be used. The text of each error names the file, and proposes a remedy.
#[derive(Debug, thiserror::Error)]
pub enum MemberFileError {
    /// The file cannot be read.
    #[error("{0}: {1}: correct the path, or the permissions there")]
    System(String, std::io::Error),
    /// Users other than the owner can read or write the file.
    #[error("{file} has mode {mode:o}, and others can read or write it: chmod 600 {file}")]
    Exposed {
        /// The path of the file.
        file: String,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The content is not the file of a member.
    #[error("{0}: {1}")]
    Content(String, NotAMemberFile),
}

impl MemberFile {
    /// Reads the file of a member from disk. Refuses a file that users other than its owner can read or write.
    ///
    /// # Errors
    /// [`MemberFileError`].
    pub fn open(file: &Path) -> Result<Self, MemberFileError> {
        let name = || file.display().to_string();
        let system = |error| MemberFileError::System(name(), error);
        let handle = File::open(file).map_err(system)?;
        if let Some(mode) = private::exposed(&handle).map_err(system)? {
            return Err(MemberFileError::Exposed { file: name(), mode });
        }
        // With its whole capacity from the beginning, the vector leaves no copy of the keys behind.
        let most = Self::MAX.saturating_add(1);
        let mut bytes = Zeroizing::new(Vec::with_capacity(most.saturating_add(32)));
        handle.take(most as u64).read_to_end(&mut bytes).map_err(system)?;
        Self::parse(&bytes).map_err(|why| MemberFileError::Content(name(), why))
    }
}
