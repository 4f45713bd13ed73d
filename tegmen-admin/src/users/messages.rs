//! The bodies of requests and responses about users.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A user to be added.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewUser {
    /// The name, which is the common name of the user's certificates: lower-case letters, digits and . - _ @. The first
    /// character is a letter or a digit.
    #[schemars(extend("pattern" = "^[a-z0-9][a-z0-9._@-]{0,63}$"))]
    pub(crate) name: String,
    /// The password. No response contains it.
    #[schemars(length(min = 12, max = 128))]
    pub(crate) password: String,
    /// The duration of a login in seconds; the default is 8 hours.
    #[schemars(range(min = 60, max = 2_592_000))]
    pub(crate) lifetime: Option<u32>,
}

/// A change of a user. If a field is missing in the JSON object, this property of the user does not change.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "UserChanges")]
pub(crate) struct Changed {
    /// The new password. It ends all earlier logins.
    #[schemars(length(min = 12, max = 128))]
    pub(crate) password: Option<String>,
    /// True disables the user, and ends the user's certificates and connections.
    pub(crate) disabled: Option<bool>,
    /// The duration, in seconds, of each login that begins after this change.
    #[schemars(range(min = 60, max = 2_592_000))]
    pub(crate) lifetime: Option<u32>,
}

/// A user, without the password.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "User")]
pub(crate) struct ShownUser {
    pub(crate) name: String,
    pub(crate) disabled: bool,
    /// The duration of a login in seconds.
    pub(crate) lifetime: u32,
}

/// A page of users in the order of their names.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Users")]
pub(crate) struct ShownUsers {
    pub(crate) users: Vec<ShownUser>,
    /// The cursor of the next page; null on the last page.
    pub(crate) next: Option<String>,
}

/// The certificates and the connections that ended with a change of a user.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "EndedLogins")]
pub(crate) struct ShownEnded {
    /// The number of certificates that were revoked.
    pub(crate) certificates: usize,
    /// The connections that were revoked: the name of a delegated device, a space, and EPOCH-NUMBER.
    pub(crate) connections: Vec<String>,
}
