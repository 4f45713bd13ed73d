//! Messages of ACE (RFC 9200): tokens, introspection, errors, scopes and revocation lists, as CBOR maps.
//!
//! Each type is a message or a part of a message. `parse` takes any bytes and returns the message or [`Malformed`]. It
//! skips unknown labels (RFC 6749, section 3.2), and refuses a repeated label. `encode` writes the labels in ascending
//! order. The output of [`encode`](IntrospectionResponse::encode) is wiped on drop if it can contain a key.
//!
//! The labels are from the IANA registry "ACE" for RFC 9200, 9201, 9203 and 9770, and from the registry of CWT claims
//! (RFC 8392, RFC 8747).

mod authz_info;
mod claims;
pub mod cwt;
mod error;
mod hints;
mod introspection;
mod key;
pub mod oscore;
mod scope;
mod token;
pub mod trl;
mod upload;

pub use authz_info::{Offer, PostedToken};
pub use claims::Claims;
pub use error::{ErrorCode, ErrorResponse};
pub use hints::CreationHints;
pub use introspection::{Hint, IntrospectionRequest, IntrospectionResponse};
pub use key::{Confirmation, CoseKey, Material};
pub use scope::{Aif, MAX_RIGHTS, Right, Scope};
pub use tegmen_host::cbor::{MAX_MESSAGE, Malformed};
pub use token::{GrantType, Profile, Returned, TokenRequest, TokenResponse, TokenType};
pub use upload::{ConnectionRequest, TokenUpload};

/// CoAP Content-Format of `application/ace+cbor` (RFC 9200, section 8.16).
pub const ACE_CBOR: u16 = 19;
/// CoAP Content-Format of `application/ace-trl+cbor` (RFC 9770).
pub const ACE_TRL_CBOR: u16 = 262;

#[cfg(test)]
mod tests;
