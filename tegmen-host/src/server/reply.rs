//! The deferred response that an application writes.

use crate::informative::FORMAT;
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber, uint_bytes};
use zeroize::Zeroizing;

/// A deferred response: a code, options in any order, and a payload of any length. A payload that does not fit in one
/// message is sent in blocks (RFC 7959).
#[derive(Clone, Debug)]
pub struct Reply {
    pub(crate) code: Code,
    pub(crate) options: Vec<(OptionNumber, OptionValue)>,
    /// The payload. It is wiped on drop, because it may contain keys.
    pub(crate) payload: Zeroizing<Vec<u8>>,
    pub(super) cause: Option<String>,
}

/// Maximum length in bytes of an option value that needs no separate memory, which is enough for a number or an entity
/// tag.
const SHORT: usize = 8;

/// Maximum number of bytes of a block (RFC 7959, section 2.2).
const LONGEST_BLOCK: usize = 1024;

/// The value of an option.
#[derive(Clone, Debug)]
pub(crate) enum OptionValue {
    Short([u8; SHORT], usize),
    Long(Vec<u8>),
}

impl OptionValue {
    fn new(value: &[u8]) -> Self {
        let mut short = [0; SHORT];
        match short.get_mut(..value.len()) {
            None => Self::Long(value.to_vec()),
            Some(place) => {
                place.copy_from_slice(value);
                Self::Short(short, value.len())
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short(short, len) => short.get(..*len).unwrap_or(short),
            Self::Long(value) => value,
        }
    }
}

/// The options that only the server writes.
const OWN: [OptionNumber; 4] =
    [OptionNumber::OBSERVE, OptionNumber::OSCORE, OptionNumber::BLOCK1, OptionNumber::BLOCK2];

impl Reply {
    /// Returns a response without options and payload. If `code` is not a response code, the response has 5.00.
    pub fn new(code: Code) -> Self {
        let code = if code.is_response() { code } else { Code::INTERNAL_SERVER_ERROR };
        Self { code, options: Vec::new(), payload: Zeroizing::default(), cause: None }
    }

    /// Returns the length in bytes of the first message of this response, without its token. A client may request blocks
    /// that are shorter.
    pub(crate) fn first_message_len(&self) -> usize {
        let options: usize = self.options.iter().map(|(_, value)| 1 + value.as_bytes().len()).sum();
        4 + options + self.payload.len().min(LONGEST_BLOCK)
    }

    /// True if this is the response to a client that takes part in a group observation.
    pub(crate) fn is_informative(&self) -> bool {
        let mut format = [0; 4];
        let format = uint_bytes(FORMAT.into(), &mut format);
        let is_it = |(number, value): &(OptionNumber, OptionValue)| {
            *number == OptionNumber::CONTENT_FORMAT && value.as_bytes() == format
        };
        self.code == Code::SERVICE_UNAVAILABLE && self.options.iter().any(is_it)
    }

    /// Does the same as [`Self::new`], with memory for this number of options.
    pub(crate) fn with_room(code: Code, options: usize) -> Self {
        Self { options: Vec::with_capacity(options), ..Self::new(code) }
    }

    /// Returns a 2.05 response with a payload of this Content-Format.
    pub fn content(format: u16, payload: impl Into<Vec<u8>>) -> Self {
        Self::new(Code::CONTENT).uint(OptionNumber::CONTENT_FORMAT, format.into()).payload(payload)
    }

    /// Adds an option. Observe, OSCORE, Block1 and Block2 are ignored, because the server itself writes them.
    #[must_use]
    pub fn option(self, number: OptionNumber, value: &[u8]) -> Self {
        if OWN.contains(&number) { self } else { self.forwarded(number, value) }
    }

    /// Adds an option of a response that a proxy forwards. Observe, OSCORE, Block1 and Block2 are also added, because
    /// an origin may have protected the response with OSCORE.
    pub(crate) fn forwarded(mut self, number: OptionNumber, value: &[u8]) -> Self {
        let index = self.options.partition_point(|(earlier, _)| *earlier <= number);
        self.options.reserve_exact(1);
        self.options.insert(index, (number, OptionValue::new(value)));
        self
    }

    /// Adds an option of format `uint`.
    #[must_use]
    pub fn uint(self, number: OptionNumber, value: u32) -> Self {
        self.option(number, uint_bytes(value, &mut [0; 4]))
    }

    /// Adds the entity tag of the representation, 1 to 8 bytes (RFC 7252, section 5.10.6).
    #[must_use]
    pub fn etag(self, tag: &[u8]) -> Self {
        self.option(OptionNumber::ETAG, tag)
    }

    /// Adds the time for which the response may be cached, in whole seconds (RFC 7252, section 5.10.5).
    #[must_use]
    pub fn max_age(self, age: Duration) -> Self {
        self.uint(OptionNumber::MAX_AGE, u32::try_from(age.as_secs()).unwrap_or(u32::MAX))
    }

    /// Adds the path of a resource that was created, such as `/jobs/7` (RFC 7252, section 5.10.7).
    #[must_use]
    pub fn location(mut self, path: &str) -> Self {
        let path = path.strip_prefix('/').unwrap_or(path);
        let segments = path.split('/').filter(|_| !path.is_empty());
        // Most such responses also have a Content-Format.
        self.options.reserve_exact(segments.clone().count().saturating_add(1));
        segments.fold(self, |reply, segment| reply.option(OptionNumber::LOCATION_PATH, segment.as_bytes()))
    }

    /// Sets the payload, which is wiped on drop.
    #[must_use]
    pub fn payload(self, payload: impl Into<Vec<u8>>) -> Self {
        Self { payload: Zeroizing::new(payload.into()), ..self }
    }

    /// Sets the cause of a 5.xx response, for the operator. The client does not receive it.
    #[must_use]
    pub fn because(self, cause: impl Into<String>) -> Self {
        Self { cause: Some(cause.into()), ..self }
    }
}
