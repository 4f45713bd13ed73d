//! The bodies of requests and responses.

use crate::keys::Listed;
use crate::problem::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_control::access::policy::{OwnedParty, Policy};
use tegmen_control::state::{Credential, Device, Enrolment, NewDevice, StateError};
use zeroize::Zeroizing;

/// Maximum lifetime of a one-time key in seconds.
const LONGEST_ENROLMENT: u64 = 30 * 24 * 3600;
/// The kinds of credentials.
const KINDS: [&str; 7] = ["certificate", "public-key", "shared-key", "protokey", "protokey-paper", "oscore", "edhoc"];
/// Pattern for the hexadecimal digits of a SHA-256.
const DIGEST: &str = "^[0-9a-fA-F]{64}$";
/// Pattern for the hexadecimal digits of 16 to 64 bytes.
const SECRET: &str = "^([0-9a-fA-F]{2}){16,64}$";
/// Pattern for the hexadecimal digits of a token hash with SHA-256: an algorithm and its digest (RFC 9770, section 3).
const HASH: &str = "^[0-9a-fA-F]{66}$";

/// A device to be added.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewDevice")]
pub(crate) struct NamedProof {
    /// The name of the device.
    name: String,
    /// The tags with which rules of the policy name the device.
    #[serde(default)]
    tags: Vec<String>,
    /// The kind of the credential. The kinds `certificate` and `public-key` require the field `sha256`. Each other kind
    /// requires the field `secret`.
    #[schemars(extend("enum" = KINDS))]
    kind: String,
    /// The SHA-256 of the certificate or of the SubjectPublicKeyInfo.
    #[schemars(extend("pattern" = DIGEST))]
    sha256: Option<String>,
    /// The secret in hexadecimal digits. No response contains it.
    #[schemars(extend("pattern" = SECRET))]
    secret: Option<String>,
    /// The IP address and UDP port at which a publisher with a protokey takes tokens.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    address: Option<SocketAddr>,
}

/// The tags of a device, and the credential by which the server knows it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Proof {
    /// The name of the device, which cannot be changed.
    name: Option<String>,
    /// The tags with which rules of the policy name the device.
    #[serde(default)]
    tags: Vec<String>,
    /// The kind of the credential. The kinds `certificate` and `public-key` require the field `sha256`. Each other kind
    /// requires the field `secret`.
    #[schemars(extend("enum" = KINDS))]
    kind: String,
    /// The SHA-256 of the certificate or of the SubjectPublicKeyInfo.
    #[schemars(extend("pattern" = DIGEST))]
    sha256: Option<String>,
    /// The secret in hexadecimal digits. No response contains it.
    #[schemars(extend("pattern" = SECRET))]
    secret: Option<String>,
    /// The IP address and UDP port at which a publisher with a protokey takes tokens.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    address: Option<SocketAddr>,
}

impl NamedProof {
    pub(crate) fn device(self) -> Result<NewDevice, Problem> {
        let Self { name, tags, kind, sha256, secret, address } = self;
        Proof { name: None, tags, kind, sha256, secret, address }.device(&name)
    }
}

impl Proof {
    /// Returns the device with this credential. `name` is its name, unless the body contains a name.
    pub(crate) fn device(self, name: &str) -> Result<NewDevice, Problem> {
        let invalid = |why: String| Problem::new(Code::InvalidDevice, why);
        let secret = self.secret.map(Zeroizing::new);
        let digest = match &self.sha256 {
            None => None,
            Some(digits) => {
                let digest = from_hex(digits).and_then(|digest| digest.try_into().ok());
                Some(digest.ok_or_else(|| invalid("sha256 has 64 hexadecimal digits".to_owned()))?)
            }
        };
        let kinds = "kind is certificate or public-key with sha256, or shared-key, protokey, protokey-paper, oscore or edhoc with secret";
        let credential = Credential::of(&self.kind, digest).ok_or_else(|| invalid(kinds.to_owned()))?;
        let party = OwnedParty::new(self.name.as_deref().unwrap_or(name), self.tags).map_err(invalid)?;
        let device = match secret {
            None => NewDevice::public(party, credential).map_err(invalid)?,
            Some(digits) => {
                let secret = from_hex(&digits).map(Zeroizing::new);
                let secret = secret.ok_or_else(|| invalid("secret has hexadecimal digits".to_owned()))?;
                NewDevice::secret(party, credential, &secret).map_err(invalid)?
            }
        };
        match self.address {
            None => Ok(device),
            Some(address) => device.at(address).map_err(invalid),
        }
    }
}

/// A change of a device. If a field is missing in the JSON object, this property of the device does not change.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DeviceChanges")]
pub(crate) struct Changes {
    /// The new tags, which replace the old tags.
    pub(crate) tags: Option<Vec<String>>,
    /// True disables the device and revokes the keys of its sessions; false enables it.
    pub(crate) disabled: Option<bool>,
}

/// A device, without its secret.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Device")]
pub(crate) struct ShownDevice {
    name: String,
    tags: Vec<String>,
    #[schemars(extend("enum" = KINDS))]
    kind: &'static str,
    /// The SHA-256 of a certificate or a raw public key.
    sha256: Option<String>,
    disabled: bool,
    /// The address at which a publisher takes tokens.
    address: Option<String>,
}

impl From<&Device> for ShownDevice {
    fn from(device: &Device) -> Self {
        let party = device.party.party();
        Self {
            name: party.name.to_owned(),
            tags: party.tags.to_vec(),
            kind: device.credential.kind(),
            sha256: device.credential.digest().map(|digest| to_hex(&digest)),
            disabled: device.disabled,
            address: device.address.map(|address| address.to_string()),
        }
    }
}

/// A page of devices in the order of their names.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Devices")]
pub(crate) struct ShownDevices {
    pub(crate) devices: Vec<ShownDevice>,
    /// The cursor of the next page; null on the last page.
    pub(crate) next: Option<String>,
}

/// A device that may register itself with a one-time key.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewEnrolment")]
pub(crate) struct Expected {
    /// The name of the device.
    name: String,
    /// The tags with which rules of the policy name the device.
    #[serde(default)]
    tags: Vec<String>,
    /// The kind of the credential that the device registers.
    #[schemars(extend("enum" = KINDS))]
    kind: String,
    /// The time until which the key is valid, in seconds since 1970: at most 30 days from now.
    expires: u64,
}

impl Expected {
    pub(crate) fn enrolment(self) -> Result<Enrolment, Problem> {
        let Self { name, tags, kind, expires } = self;
        let now = tegmen_store::clock::now();
        if expires <= now || expires > now.saturating_add(LONGEST_ENROLMENT) {
            let why = "a one-time key ends in the future, and within 30 days: set expires in seconds since 1970";
            return Err(Problem::malformed(why));
        }
        Enrolment::new(&name, tags, &kind, expires).map_err(|why| Problem::new(Code::InvalidDevice, why))
    }
}

/// A device that may register itself with a one-time key.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Enrolment")]
pub(crate) struct ShownEnrolment {
    pub(crate) name: String,
    tags: Vec<String>,
    #[schemars(extend("enum" = KINDS))]
    kind: String,
    /// The time until which the key is valid, in seconds since 1970.
    expires: u64,
    /// The one-time key. Only the response to the request that created the key contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

impl From<&Enrolment> for ShownEnrolment {
    fn from(enrolment: &Enrolment) -> Self {
        let party = enrolment.party.party();
        let (name, tags) = (party.name.to_owned(), party.tags.to_vec());
        Self { name, tags, kind: enrolment.kind.clone(), expires: enrolment.expires, key: None }
    }
}

/// A page of the devices that have a one-time key, in the order of their names.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Enrolments")]
pub(crate) struct ShownEnrolments {
    pub(crate) enrolments: Vec<ShownEnrolment>,
    /// The cursor of the next page; null on the last page.
    pub(crate) next: Option<String>,
}

/// The text of a policy.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Policy")]
pub(crate) struct PolicyFile {
    /// The name of the policy's file, for messages.
    #[serde(default)]
    file: String,
    pub(crate) text: String,
}

impl PolicyFile {
    pub(crate) fn name(&self) -> &str {
        if self.file.is_empty() { "policy" } else { &self.file }
    }

    pub(crate) fn parse(&self) -> Result<Policy, Problem> {
        Ok(Policy::parse(self.name(), &self.text).map_err(StateError::from)?)
    }
}

/// The policy in force.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PolicyInForce")]
pub(crate) struct ShownPolicy {
    /// The name of the policy's file; null if no policy was applied.
    pub(crate) file: Option<String>,
    pub(crate) text: String,
}

/// The result of the tests in a policy.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Tested {
    /// The number of rules.
    pub(crate) rules: usize,
    /// The number of tests.
    pub(crate) tests: usize,
    /// The tests that fail, each with its cause.
    pub(crate) failed: Vec<String>,
}

/// The differences between the policy in force and another policy.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Difference")]
pub(crate) struct Compared {
    /// Rules that only the policy in force has.
    pub(crate) removed: Vec<String>,
    /// Rules that only the other policy has.
    pub(crate) added: Vec<String>,
    /// Requests on which the policies decide differently.
    pub(crate) changes: Vec<String>,
    /// True if all decisions were compared.
    pub(crate) complete: bool,
}

/// A question to the policy in force.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Question")]
pub(crate) struct Explain {
    /// The name of the party that makes the request, and `tag:TAG` for each of its tags.
    pub(crate) subject: Vec<String>,
    /// The name of the party that has the resource, and `tag:TAG` for each of its tags.
    pub(crate) publisher: Vec<String>,
    /// The method and the path, such as `GET /temp`.
    pub(crate) request: String,
}

/// A decision of the policy in force.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Explanation")]
pub(crate) struct Explained {
    /// `allowed`, or the code of the refusal.
    pub(crate) decision: String,
    /// The rule that decided.
    pub(crate) message: String,
    /// Rules that almost cover the request.
    pub(crate) near: Vec<String>,
}

/// A revocation of a session key or of a token.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Revocation")]
pub(crate) enum Revoked {
    /// A revocation of the key of a session.
    Session(RevokedSession),
    /// A revocation of a token.
    Token(RevokedToken),
}

/// The session whose key is revoked.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokedSession {
    /// The session identity that the server accepted. The audit log contains it.
    pub(crate) session: String,
}

/// The token that is revoked.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokedToken {
    /// The hash of the token (RFC 9770). The audit log contains it.
    #[schemars(extend("pattern" = HASH))]
    hash: String,
    /// The time at which the token expires, in seconds since 1970.
    pub(crate) expires: u64,
    /// The devices that are notified: the publisher and the client of the token.
    pub(crate) concerned: Vec<String>,
}

impl Revoked {
    /// Checks the hash of a token.
    pub(crate) fn check(self) -> Result<Self, Problem> {
        if let Self::Token(token) = &self {
            token.hash()?;
        }
        Ok(self)
    }
}

impl RevokedToken {
    pub(crate) fn hash(&self) -> Result<Vec<u8>, Problem> {
        let hash = from_hex(&self.hash).filter(|hash| hash.len() == 33);
        hash.ok_or_else(|| Problem::malformed("hash has the 66 hexadecimal digits of a token hash"))
    }
}

/// A page of the revocation list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Revocations")]
pub(crate) struct Listing {
    /// The hashes of the revoked tokens.
    pub(crate) hashes: Vec<String>,
    /// The cursor of the next page; null on the last page.
    pub(crate) next: Option<String>,
}

/// All API keys.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Keys")]
pub(crate) struct ListedKeys {
    pub(crate) keys: Vec<Listed>,
}

/// An API key that was created.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CreatedKey")]
pub(crate) struct ShownKey {
    pub(crate) id: String,
    /// The text of the new API key, which a client sends to authenticate itself. The response to a repeated request
    /// does not contain the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}
