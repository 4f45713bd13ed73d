//! The file of a membership. It contains all data that the member must not lose: its secrets, and the URI of the
//! controller that gives it newer secrets.

use super::MembershipError;
use super::groupcomm::GroupKeys;
use crate::hex::{from_hex, to_hex};
use crate::private;
use crate::x509::signer::{SignError, SoftwareKey};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use tegmen::crypto::SignatureScheme;
use tegmen_store::files::{beside, rename};
use zeroize::{Zeroize as _, Zeroizing};

/// The name of the file of a membership.
pub(super) const MEMBER: &str = "member.toml";
/// The temporary name of a new file of a membership, until it replaces the file [`MEMBER`].
pub(super) const DRAFT: &str = "member.toml.new";

/// The configuration of a member. The controller does not send these settings.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberSettings {
    /// The name of the group at its controller.
    pub group: String,
    /// The URI of the controller, `coaps://host[:port]`; `None` for a member that never contacts a controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// The network interface of the group. With `None`, a listening member of an IPv4 group uses the interface that has
    /// the address of the member. Any other member uses the interface that the system selects by its routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The rules for the requests that this member accepts from the members of the group, as in a credentials file;
    /// `None` allows everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
}

/// The content of the file of a membership.
#[derive(Clone)]
pub(super) struct MemberFile {
    pub(super) settings: MemberSettings,
    /// True if the controller has evicted the member.
    pub(super) is_evicted: bool,
    /// The private key of the member, in a group with signatures.
    pub(super) key: Option<PrivateKey>,
}

/// The private key with which a member signs its records.
#[derive(Clone)]
pub(crate) struct PrivateKey {
    pub(crate) key: Arc<SoftwareKey>,
    /// The private key in DER (PKCS#8).
    der: Zeroizing<Vec<u8>>,
}

impl PrivateKey {
    /// Makes a new private key.
    ///
    /// # Errors
    /// [`SignError`] if no key can be made.
    pub(crate) fn draw(scheme: SignatureScheme) -> Result<Self, SignError> {
        let (key, der) = SoftwareKey::draw(scheme)?;
        Ok(Self { key: Arc::new(key), der })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    settings: MemberSettings,
    #[serde(default)]
    evicted: bool,
    /// The payload of the controller's response in hexadecimal, updated with the secrets of the newest epoch.
    keys: String,
    /// The private key in DER (PKCS#8), in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    private_key: Option<String>,
}

const HEAD: &str = "# A member of a group (Axiom). A reader of this file can read and forge messages of the group.\n";

impl MemberFile {
    /// Reads the file in a directory.
    ///
    /// # Errors
    /// [`MembershipError`].
    pub(super) fn read(dir: &Path) -> Result<(Self, GroupKeys), MembershipError> {
        let path = dir.join(MEMBER);
        let handle = File::open(&path).map_err(file_error(&path))?;
        if let Some(mode) = private::exposed(&handle).map_err(file_error(&path))? {
            return Err(MembershipError::Exposed { file: path.display().to_string(), mode });
        }
        let text = Zeroizing::new(io::read_to_string(handle).map_err(file_error(&path))?);
        let parsed: Text =
            toml::from_str(&text).map_err(|error| MembershipError::syntax(&path, error.message().to_owned()))?;
        let bytes = from_hex(&Zeroizing::new(parsed.keys)).map(Zeroizing::new);
        let bytes =
            bytes.ok_or_else(|| MembershipError::syntax(&path, "keys: an even number of hexadecimal digits"))?;
        let keys = GroupKeys::parse(&bytes).map_err(|error| MembershipError::keys(&path, error))?;
        let key = match (keys.signature, parsed.private_key.map(Zeroizing::new)) {
            (Some(scheme), Some(text)) => {
                let der = from_hex(&text).map(Zeroizing::new).unwrap_or_default();
                let key = SoftwareKey::from_pkcs8(scheme, &der);
                let key = key.map_err(|why| MembershipError::syntax(&path, format!("private_key: {why}")))?;
                Some(PrivateKey { key: Arc::new(key), der })
            }
            (Some(_), None) => return Err(MembershipError::syntax(&path, "private_key is missing")),
            (None, _) => None,
        };
        Ok((Self { settings: parsed.settings, is_evicted: parsed.evicted, key }, keys))
    }

    /// Writes the whole file, or nothing. When this method returns, the file survives a power cut.
    ///
    /// # Errors
    /// [`MembershipError::File`]. The file then keeps its previous content.
    pub(super) fn keep(&self, dir: &Path, keys: &GroupKeys) -> Result<(), MembershipError> {
        let path = dir.join(MEMBER);
        let private_key = self.key.as_ref().map(|key| to_hex(&key.der));
        let (settings, evicted) = (self.settings.clone(), self.is_evicted);
        let mut text = Text { settings, evicted, keys: to_hex(&keys.encode()), private_key };
        let encoded = toml::to_string(&text).map_err(io::Error::other).map(Zeroizing::new);
        text.keys.zeroize();
        text.private_key.zeroize();
        let written = encoded.and_then(|text| replace(&path, &[HEAD.as_bytes(), text.as_bytes()]));
        written.map_err(file_error(&path))
    }
}

/// Replaces a file that only its owner can read. The new content is on disk when this function returns.
pub(super) fn replace(file: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let draft = beside(file, "new");
    // Nobody else may have it open.
    let _ = std::fs::remove_file(&draft);
    let mut handle = private::open(File::options().write(true).create_new(true), &draft)?;
    parts.iter().try_for_each(|part| handle.write_all(part))?;
    handle.sync_all()?;
    rename(&draft, file)
}

/// Returns a function that converts an error of the system for `file` into a [`MembershipError`].
pub(super) fn file_error(file: &Path) -> impl FnOnce(io::Error) -> MembershipError + use<> {
    let file = file.display().to_string();
    |source| MembershipError::File { file, source }
}
