//! The responses of origins, in the forms for the cache and for clients.

use crate::client;
use crate::server::Reply;
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::cache::{self, Treatment};
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber};

/// Bytes of a message without token, options and payload, including the marker before the payload.
const FIXED: usize = 5;
/// Maximum number of bytes of the header of an option.
const OPTION_HEAD: usize = 5;

/// The cause of a 5.xx response that an origin sent.
pub(super) const OF_ORIGIN: &str = "the origin sent this code";

/// The complete response of an origin.
pub(super) struct Answer {
    /// A CoAP message with the code and all options of the response, without payload.
    head: Vec<u8>,
    /// The response in the format in which the cache stores it.
    stored: Vec<u8>,
}

/// The reason why a response of an origin cannot be used. The client then receives 5.02.
pub(super) struct Unusable(pub(super) &'static str);

impl Answer {
    /// Converts a response. For 5.08, puts `name`, the name of this proxy, in front of the diagnostic payload. If the
    /// payload already has this name, makes a new 5.08 of this proxy, and drops the response (RFC 8768, section 4).
    pub(super) fn new(mut response: client::Response, name: &str) -> Result<Self, Unusable> {
        let payload = std::mem::take(&mut response.payload);
        Self::of(response.code, || response.options(), payload, name)
    }

    /// Converts the parts of a response. The options must be in the order of their numbers.
    pub(super) fn of<'a, O: Iterator<Item = (OptionNumber, &'a [u8])>>(
        code: Code,
        options: impl Fn() -> O,
        mut payload: Vec<u8>,
        name: &str,
    ) -> Result<Self, Unusable> {
        if !code.is_response() {
            return Err(Unusable("the code is not that of a response"));
        }
        if options().any(|(number, _)| cache::in_response(number) == Treatment::Refused) {
            return Err(Unusable("it has an option that is unknown here and unsafe to forward"));
        }
        if code == Code::HOP_LIMIT_REACHED {
            let names: Vec<_> = payload.split(|byte| *byte == b' ').filter(|name| !name.is_empty()).collect();
            if names.contains(&name.as_bytes()) {
                return Self::of(code, std::iter::empty::<(OptionNumber, &[u8])>, Vec::new(), name);
            }
            let separator: &[u8] = if names.is_empty() { b"" } else { b" " };
            payload.splice(0..0, [name.as_bytes(), separator].concat());
        }
        let length: usize = options().map(|(_, value)| value.len() + OPTION_HEAD).sum();
        let head = written(FIXED + length, |frame| {
            let mut builder = Builder::new(frame, MessageType::Acknowledgement, code, 0, &[])?;
            options().try_for_each(|(number, value)| builder.option(number, value))
        });
        let stored =
            written(FIXED + length + payload.len(), |frame| cache::write_stored(code, options(), &payload, frame));
        head.zip(stored).map(|(head, stored)| Self { head, stored }).ok_or(Unusable("its options are not in order"))
    }

    fn head(&self) -> Option<MessageRef<'_>> {
        MessageRef::parse(&self.head).ok()
    }

    /// Returns the code of the response.
    pub(super) fn code(&self) -> Code {
        self.head().map_or(Code::BAD_GATEWAY, |head| head.code())
    }

    /// Returns the time for which the response is fresh.
    pub(super) fn max_age(&self) -> Duration {
        self.head().map_or(Duration::ZERO, |head| cache::max_age(&head))
    }

    /// Calls `store` with two forms of the response: as a message without its payload, and as the bytes that the cache
    /// stores.
    pub(super) fn store(&self, store: impl FnOnce(&MessageRef<'_>, &[u8]) -> bool) {
        if let Some(head) = self.head() {
            store(&head, &self.stored);
        }
    }

    /// Calls `revalidate` with this response, which is a 2.03 response and is passed without its payload, and with a
    /// buffer. The 2.03 response means that a stored response is valid again, and `revalidate` writes this stored
    /// response into the buffer. Returns the stored response with the Max-Age of the 2.03 response. Returns `None` if
    /// `revalidate` returns false.
    pub(super) fn revalidate(
        &self,
        longest: usize,
        revalidate: impl FnOnce(&MessageRef<'_>, &mut Frame<'_>) -> bool,
    ) -> Option<Self> {
        let head = self.head()?;
        let mut is_valid = false;
        let stored = written(longest.saturating_add(self.head.len()), |frame| {
            is_valid = revalidate(&head, frame);
            Ok::<(), ()>(())
        });
        let stored = stored.filter(|_| is_valid)?;
        Some(Self { head: self.head.clone(), stored })
    }

    /// Returns the response for a client that already has the representations with these ETags. `prefix` is added
    /// before the path of a created resource.
    pub(super) fn reply(&self, known: &[Vec<u8>], prefix: &str) -> Reply {
        let (Some(head), Ok(stored)) = (self.head(), MessageRef::parse(&self.stored)) else {
            return Reply::new(Code::BAD_GATEWAY).because("the response of the origin is not readable any more");
        };
        let etag = stored.option(OptionNumber::ETAG).filter(|_| stored.code() == Code::CONTENT);
        let max_age = |reply: Reply| match head.option(OptionNumber::MAX_AGE) {
            Some(age) => reply.option(OptionNumber::MAX_AGE, age),
            None => reply,
        };
        if let Some(etag) = etag.filter(|etag| known.iter().any(|known| known == etag)) {
            return max_age(Reply::new(Code::VALID).etag(etag));
        }
        // Max-Age is not among the stored options.
        let mut reply = Reply::with_room(stored.code(), stored.options().count() + 1);
        if stored.code().class() == 5 {
            reply = reply.because(OF_ORIGIN);
        }
        if stored.option(OptionNumber::LOCATION_PATH).is_some() && !prefix.is_empty() {
            reply = reply.location(prefix);
        }
        let reply = stored.options().fold(reply, |reply, (number, value)| reply.forwarded(number, value));
        max_age(reply).payload(stored.payload())
    }
}

/// Returns the bytes that `write` writes into a frame of at most `len` bytes.
fn written<E>(len: usize, write: impl FnOnce(&mut Frame<'_>) -> Result<(), E>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut frame = Frame::new(&mut bytes, 0);
    write(&mut frame).ok()?;
    let len = frame.len();
    bytes.truncate(len);
    Some(bytes)
}
