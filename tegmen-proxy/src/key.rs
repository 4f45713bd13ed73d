//! The target of a request, and the key of its response in the cache.

use tegmen::buf::Writer;
use tegmen::coap::cache;
use tegmen::coap::{self, Code, MessageRef, OptionNumber};

/// The target of a request: its host and its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target<'m> {
    /// The value of Uri-Host: a name, or an address as text. The case of letters in a name has no meaning (RFC 7252,
    /// section 6.1), so the application that owns the proxy must compare names without regard to case.
    pub host: &'m [u8],
    /// The value of Uri-Port; 5683 without the option.
    pub port: u16,
}

impl<'m> Target<'m> {
    /// Reads the target of a request from its options Proxy-Scheme, Uri-Host and Uri-Port (RFC 7252, section 5.7.2).
    ///
    /// # Errors
    /// 5.05 for a request with Proxy-Uri, which this proxy does not parse, and for a scheme other than `coap`
    /// (section 5.10.2). 4.00 without Uri-Host, and for an invalid port.
    pub fn of(message: &MessageRef<'m>) -> Result<Self, Code> {
        if message.option(OptionNumber::PROXY_URI).is_some() {
            return Err(Code::PROXYING_NOT_SUPPORTED);
        }
        if message.option(OptionNumber::PROXY_SCHEME).is_some_and(|scheme| scheme != b"coap") {
            return Err(Code::PROXYING_NOT_SUPPORTED);
        }
        let host = message.option(OptionNumber::URI_HOST).filter(|host| !host.is_empty()).ok_or(Code::BAD_REQUEST)?;
        let port = match message.option(OptionNumber::URI_PORT) {
            None => DEFAULT_PORT,
            Some(value) => {
                let port = coap::uint(value).and_then(|port| u16::try_from(port).ok());
                port.filter(|port| *port > 0).ok_or(Code::BAD_REQUEST)?
            }
        };
        Ok(Self { host, port })
    }
}

/// The key of a response in the cache.
pub(crate) struct Key<const LEN: usize> {
    bytes: [u8; LEN],
    len: usize,
    resource: usize,
    /// True if the response to the request may be stored.
    is_cacheable: bool,
}

impl<const LEN: usize> Key<LEN> {
    /// Returns the key of a request; `None` if the key is longer than `LEN` bytes.
    pub(crate) fn of(target: &Target<'_>, message: &MessageRef<'_>) -> Option<Self> {
        let mut key = Self { bytes: [0; LEN], len: 0, resource: 0, is_cacheable: is_cacheable(message) };
        let mut out = Writer::new(&mut key.bytes);
        // The length of the host separates the host from the path after it.
        out.u16(target.port).and_then(|()| out.u8(u8::try_from(target.host.len()).unwrap_or(u8::MAX))).ok()?;
        let mut is_whole = true;
        cache::write_resource(target.host, message, 0, |part| is_whole &= out.put(part).is_ok());
        key.resource = out.len();
        if key.is_cacheable {
            cache::write_variant(message, |part| is_whole &= out.put(part).is_ok());
        }
        key.len = out.len();
        is_whole.then_some(key)
    }

    /// Returns the bytes of the key; `None` if the response must not be stored.
    pub(crate) fn cacheable(&self) -> Option<&[u8]> {
        if self.is_cacheable { self.bytes.get(..self.len) } else { None }
    }

    /// Forbids that the response is stored.
    pub(crate) const fn forbid(&mut self) {
        self.is_cacheable = false;
    }

    pub(crate) const fn resource_len(&self) -> usize {
        self.resource
    }

    pub(crate) fn resource(&self) -> &[u8] {
        self.bytes.get(..self.resource).unwrap_or(&[])
    }
}

/// True if the response to the request may be stored. The response to a request for one block is not stored.
fn is_cacheable(message: &MessageRef<'_>) -> bool {
    let mut blocks = [OptionNumber::BLOCK1, OptionNumber::BLOCK2].into_iter();
    cache::is_cacheable(message) && !blocks.any(|number| message.option(number).is_some())
}

/// The default port of the scheme `coap`.
const DEFAULT_PORT: u16 = 5683;
