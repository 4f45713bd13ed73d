//! Method and response codes (RFC 7252, section 12.1).

use core::fmt;

/// A code: three bits for the class, and five bits for the detail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Code(pub u8);

impl Code {
    /// 0.00: neither request nor response.
    pub const EMPTY: Self = Self::new(0, 0);
    /// 0.01: read.
    pub const GET: Self = Self::new(0, 1);
    /// 0.02: process; not idempotent.
    pub const POST: Self = Self::new(0, 2);
    /// 0.03: write.
    pub const PUT: Self = Self::new(0, 3);
    /// 0.04: remove.
    pub const DELETE: Self = Self::new(0, 4);
    /// 0.05: read, with a payload that selects parts of the representation (RFC 8132).
    pub const FETCH: Self = Self::new(0, 5);
    /// 0.06: change a part of the resource (RFC 8132).
    pub const PATCH: Self = Self::new(0, 6);
    /// 0.07: change a part of the resource; idempotent (RFC 8132).
    pub const IPATCH: Self = Self::new(0, 7);
    /// 2.01.
    pub const CREATED: Self = Self::new(2, 1);
    /// 2.02.
    pub const DELETED: Self = Self::new(2, 2);
    /// 2.03: the representation with the ETag of the request is still valid.
    pub const VALID: Self = Self::new(2, 3);
    /// 2.04.
    pub const CHANGED: Self = Self::new(2, 4);
    /// 2.05: a representation.
    pub const CONTENT: Self = Self::new(2, 5);
    /// 2.31: the client must send the next block (RFC 7959).
    pub const CONTINUE: Self = Self::new(2, 31);
    /// 4.00.
    pub const BAD_REQUEST: Self = Self::new(4, 0);
    /// 4.01: the client has not proved its identity.
    pub const UNAUTHORIZED: Self = Self::new(4, 1);
    /// 4.02: a critical option is not understood.
    pub const BAD_OPTION: Self = Self::new(4, 2);
    /// 4.03: the client does not have the right.
    pub const FORBIDDEN: Self = Self::new(4, 3);
    /// 4.04.
    pub const NOT_FOUND: Self = Self::new(4, 4);
    /// 4.05.
    pub const METHOD_NOT_ALLOWED: Self = Self::new(4, 5);
    /// 4.06: the representation does not exist in the format that Accept names.
    pub const NOT_ACCEPTABLE: Self = Self::new(4, 6);
    /// 4.08: a block is missing (RFC 7959).
    pub const REQUEST_ENTITY_INCOMPLETE: Self = Self::new(4, 8);
    /// 4.09: the change does not fit the state of the resource (RFC 8132).
    pub const CONFLICT: Self = Self::new(4, 9);
    /// 4.12: a condition of If-Match or If-None-Match is not fulfilled.
    pub const PRECONDITION_FAILED: Self = Self::new(4, 12);
    /// 4.13.
    pub const REQUEST_ENTITY_TOO_LARGE: Self = Self::new(4, 13);
    /// 4.15: the Content-Format of the request is not supported.
    pub const UNSUPPORTED_CONTENT_FORMAT: Self = Self::new(4, 15);
    /// 4.22: the server understands the change, but cannot perform it (RFC 8132).
    pub const UNPROCESSABLE_ENTITY: Self = Self::new(4, 22);
    /// 4.29: the client must wait for the time in Max-Age (RFC 8516).
    pub const TOO_MANY_REQUESTS: Self = Self::new(4, 29);
    /// 5.00.
    pub const INTERNAL_SERVER_ERROR: Self = Self::new(5, 0);
    /// 5.01.
    pub const NOT_IMPLEMENTED: Self = Self::new(5, 1);
    /// 5.02: the server to which a proxy forwarded the request failed.
    pub const BAD_GATEWAY: Self = Self::new(5, 2);
    /// 5.03: the client may repeat the request after Max-Age.
    pub const SERVICE_UNAVAILABLE: Self = Self::new(5, 3);
    /// 5.04: the server to which a proxy forwarded the request did not answer.
    pub const GATEWAY_TIMEOUT: Self = Self::new(5, 4);
    /// 5.05: the server is not a proxy.
    pub const PROXYING_NOT_SUPPORTED: Self = Self::new(5, 5);

    /// 5.08: the Hop-Limit of the message was exhausted, for example in a loop (RFC 8768).
    pub const HOP_LIMIT_REACHED: Self = Self::new(5, 8);

    /// Makes the code `class.detail`. Only the low three bits of `class` and the low five bits of `detail` count.
    pub const fn new(class: u8, detail: u8) -> Self {
        Self(class << 5 | detail & 31)
    }

    /// Returns the class, which is the digit before the point.
    pub const fn class(self) -> u8 {
        self.0 >> 5
    }

    /// Returns the detail, which is the two digits after the point.
    pub const fn detail(self) -> u8 {
        self.0 & 31
    }

    /// Returns true if the code is a method.
    pub const fn is_request(self) -> bool {
        self.class() == 0 && self.0 != 0
    }

    /// Returns true if the code is a method that does not change a resource, so that a request can be repeated.
    pub const fn is_safe(self) -> bool {
        matches!(self, Self::GET | Self::FETCH)
    }

    /// Returns true if the code is 2.xx, 4.xx or 5.xx.
    pub const fn is_response(self) -> bool {
        matches!(self.class(), 2 | 4 | 5)
    }

    /// Returns true if the code is 2.xx.
    pub const fn is_success(self) -> bool {
        self.class() == 2
    }

    /// Returns the name of the code in the IANA registry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EMPTY => "Empty",
            Self::GET => "GET",
            Self::POST => "POST",
            Self::PUT => "PUT",
            Self::DELETE => "DELETE",
            Self::FETCH => "FETCH",
            Self::PATCH => "PATCH",
            Self::IPATCH => "iPATCH",
            Self::CREATED => "Created",
            Self::DELETED => "Deleted",
            Self::VALID => "Valid",
            Self::CHANGED => "Changed",
            Self::CONTENT => "Content",
            Self::CONTINUE => "Continue",
            Self::BAD_REQUEST => "Bad Request",
            Self::UNAUTHORIZED => "Unauthorized",
            Self::BAD_OPTION => "Bad Option",
            Self::FORBIDDEN => "Forbidden",
            Self::NOT_FOUND => "Not Found",
            Self::METHOD_NOT_ALLOWED => "Method Not Allowed",
            Self::NOT_ACCEPTABLE => "Not Acceptable",
            Self::REQUEST_ENTITY_INCOMPLETE => "Request Entity Incomplete",
            Self::CONFLICT => "Conflict",
            Self::PRECONDITION_FAILED => "Precondition Failed",
            Self::REQUEST_ENTITY_TOO_LARGE => "Request Entity Too Large",
            Self::UNSUPPORTED_CONTENT_FORMAT => "Unsupported Content-Format",
            Self::UNPROCESSABLE_ENTITY => "Unprocessable Entity",
            Self::TOO_MANY_REQUESTS => "Too Many Requests",
            Self::INTERNAL_SERVER_ERROR => "Internal Server Error",
            Self::NOT_IMPLEMENTED => "Not Implemented",
            Self::BAD_GATEWAY => "Bad Gateway",
            Self::SERVICE_UNAVAILABLE => "Service Unavailable",
            Self::GATEWAY_TIMEOUT => "Gateway Timeout",
            Self::PROXYING_NOT_SUPPORTED => "Proxying Not Supported",
            Self::HOP_LIMIT_REACHED => "Hop Limit Reached",
            _ => "Unassigned",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.class(), self.detail())
    }
}
