//! The refusals of a directory.

use tegmen_coap::Code;

/// The reason why a directory refuses a request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The form of the request is not valid.
    #[error("{0}")]
    Malformed(String),
    /// Another identity has already registered an endpoint of this name.
    #[error("another identity registered an endpoint of this name: choose another name")]
    NameTaken,
    /// Another identity made the registration.
    #[error("another identity made this registration")]
    NotOwner,
    /// The base URI does not contain the address of the sender.
    #[error("an endpoint registers its own address: leave out base, or let a commissioning tool register it")]
    OtherBase,
    /// The directory has no registration at the requested path.
    #[error("there is no such registration: register again")]
    Unknown,
    /// The sender already has the maximum number of registrations.
    #[error("this sender has as many registrations as one may have")]
    TooMany,
    /// The directory is full.
    #[error("the directory is full: try again later")]
    Full,
    /// The links are too long, or have too many attributes. The value is the maximum number of bytes.
    #[error(
        "the links of an endpoint have at most {0} bytes, and not too many short attributes: leave out links or attributes"
    )]
    TooLong(usize),
}

impl DirectoryError {
    /// Returns the code of the response.
    pub const fn code(&self) -> Code {
        match self {
            Self::Malformed(_) => Code::BAD_REQUEST,
            Self::NameTaken | Self::NotOwner | Self::OtherBase => Code::FORBIDDEN,
            Self::Unknown => Code::NOT_FOUND,
            Self::TooMany => Code::TOO_MANY_REQUESTS,
            Self::Full => Code::SERVICE_UNAVAILABLE,
            Self::TooLong(_) => Code::REQUEST_ENTITY_TOO_LARGE,
        }
    }
}
