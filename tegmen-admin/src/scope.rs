//! Scopes: the parts of the interface that a credential permits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A part of the interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Scope {
    /// Read devices.
    #[serde(rename = "devices:read")]
    DevicesRead,
    /// Add, change and remove devices.
    #[serde(rename = "devices:write")]
    DevicesWrite,
    /// Read, test, compare and explain policies.
    #[serde(rename = "policy:read")]
    PolicyRead,
    /// Apply a policy.
    #[serde(rename = "policy:write")]
    PolicyWrite,
    /// Revoke tokens.
    #[serde(rename = "revoke")]
    Revoke,
    /// Create, list and delete API keys.
    #[serde(rename = "keys:write")]
    KeysWrite,
    /// Read the list of revoked tokens, and follow the changes that the server reports as events.
    #[serde(rename = "audit:read")]
    AuditRead,
    /// Read groups and their members.
    #[serde(rename = "groups:read")]
    GroupsRead,
    /// Create, rekey and delete groups, and add and evict members.
    #[serde(rename = "groups:write")]
    GroupsWrite,
    /// Read delegated devices and their connections.
    #[serde(rename = "delegation:read")]
    DelegationRead,
    /// Imprint and change delegated devices, revoke connections, and begin epochs.
    #[serde(rename = "delegation:write")]
    DelegationWrite,
    /// Read users.
    #[serde(rename = "users:read")]
    UsersRead,
    /// Add, change and remove users.
    #[serde(rename = "users:write")]
    UsersWrite,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 13] = [
        Self::DevicesRead,
        Self::DevicesWrite,
        Self::PolicyRead,
        Self::PolicyWrite,
        Self::Revoke,
        Self::KeysWrite,
        Self::AuditRead,
        Self::GroupsRead,
        Self::GroupsWrite,
        Self::DelegationRead,
        Self::DelegationWrite,
        Self::UsersRead,
        Self::UsersWrite,
    ];

    /// Returns the name of the scope in requests and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DevicesRead => "devices:read",
            Self::DevicesWrite => "devices:write",
            Self::PolicyRead => "policy:read",
            Self::PolicyWrite => "policy:write",
            Self::Revoke => "revoke",
            Self::KeysWrite => "keys:write",
            Self::AuditRead => "audit:read",
            Self::GroupsRead => "groups:read",
            Self::GroupsWrite => "groups:write",
            Self::DelegationRead => "delegation:read",
            Self::DelegationWrite => "delegation:write",
            Self::UsersRead => "users:read",
            Self::UsersWrite => "users:write",
        }
    }
}

/// The scopes of a credential.
pub type Scopes = BTreeSet<Scope>;
