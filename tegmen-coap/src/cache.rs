//! The rules of a response cache (RFC 7252, section 5.6) and of a caching proxy (RFC 7252, section 5.7).
//!
//! [`in_request`] and [`in_response`] return the treatment of an option by a proxy (RFC 7252, sections 5.4.2 and
//! 5.7.1). [`write_resource`] and [`write_variant`] write the cache key of a request (RFC 7252, section 5.4.6).
//! [`lifetime`] returns the time for which a response is fresh (RFC 7252, sections 5.6.1, 5.9 and 5.10.5). [`changes`]
//! is true for a request that makes stored responses invalid (RFC 7252, section 5.9.1). [`merge`] updates a stored
//! response (RFC 7252, section 5.6.2). [`Cache`] applies these rules to stored responses. The owner of the [`Cache`]
//! supplies the memory for stored responses as a [`CacheStorage`]. [`FixedCache`] is such a memory for devices: an
//! array of a fixed size.

mod fixed;

pub use fixed::FixedCache;

use crate::code::Code;
use crate::message::{BuildError, Builder, MessageRef, MessageType};
use crate::option::OptionNumber;
use core::time::Duration;
use tegmen_base::buf::Frame;
use tegmen_base::time::Instant;

/// The seconds for which a response without Max-Age is fresh (RFC 7252, section 5.10.5).
pub const DEFAULT_MAX_AGE: u32 = 60;

/// The treatment of an option by a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Treatment {
    /// The option names the target. The proxy uses it to find the origin server.
    Target,
    /// The proxy processes the option itself. The option is not forwarded, and is not part of the cache key.
    Taken,
    /// The option is forwarded unchanged, and is part of the cache key.
    Key,
    /// The option is forwarded unchanged, and is not part of the cache key.
    Passed,
    /// The proxy does not know the option, which is unsafe to forward. A request is refused with 4.02, and a response
    /// is replaced by 5.02.
    Refused,
}

/// Returns the treatment of an option of a request (RFC 7252, sections 5.4.2 and 5.7.1).
///
/// Some options concern only a proxy and its direct neighbour, so the proxy processes them itself: ETag, Observe, the
/// Block options and their size options (RFC 7959, section 4), No-Response, Echo and Request-Tag. The same holds for
/// Hop-Limit (RFC 8768), because its value counts proxies and has no influence on the choice of the response.
pub const fn in_request(number: OptionNumber) -> Treatment {
    match number {
        OptionNumber::URI_HOST | OptionNumber::URI_PORT | OptionNumber::PROXY_URI | OptionNumber::PROXY_SCHEME => {
            Treatment::Target
        }
        OptionNumber::ETAG
        | OptionNumber::OBSERVE
        | OptionNumber::MAX_AGE
        | OptionNumber::HOP_LIMIT
        | OptionNumber::BLOCK1
        | OptionNumber::BLOCK2
        | OptionNumber::SIZE1
        | OptionNumber::SIZE2
        | OptionNumber::ECHO
        | OptionNumber::NO_RESPONSE
        | OptionNumber::REQUEST_TAG => Treatment::Taken,
        OptionNumber::URI_PATH | OptionNumber::URI_QUERY => Treatment::Key,
        _ if number.is_unsafe() => Treatment::Refused,
        _ if number.is_cache_key() => Treatment::Key,
        _ => Treatment::Passed,
    }
}

/// Returns the treatment of an option of a response (RFC 7252, section 5.7.1): [`Treatment::Taken`],
/// [`Treatment::Passed`] or [`Treatment::Refused`].
pub const fn in_response(number: OptionNumber) -> Treatment {
    match number {
        OptionNumber::OBSERVE
        | OptionNumber::MAX_AGE
        | OptionNumber::HOP_LIMIT
        | OptionNumber::BLOCK1
        | OptionNumber::BLOCK2
        | OptionNumber::SIZE2
        | OptionNumber::ECHO => Treatment::Taken,
        _ if number.is_unsafe() => Treatment::Refused,
        _ => Treatment::Passed,
    }
}

/// Returns true if a stored response may answer the request, and if the response to the request may be stored. This
/// holds for GET. It also holds for FETCH, because the cache key of a FETCH contains the payload (RFC 8132, section 2).
/// It does not hold for a request with OSCORE: each protected request has another sequence number, so no second request
/// is equal to it. The exception is a deterministic request: FETCH with Request-Hash and without Observe
/// (draft-ietf-core-cacheable-oscore-02, section 3.4.2).
pub fn is_cacheable(request: &MessageRef<'_>) -> bool {
    let has = |number| request.option(number).is_some();
    let is_deterministic =
        request.code() == Code::FETCH && has(OptionNumber::REQUEST_HASH) && !has(OptionNumber::OBSERVE);
    request.code().is_safe() && (is_deterministic || !has(OptionNumber::OSCORE))
}

/// Writes the identity of the resource that a request names: `authority`, and the path of the request without its first
/// `skipped` segments. If two resources have the same authority, the written bytes of one resource are never a prefix
/// of the written bytes of the other resource.
pub fn write_resource(authority: &[u8], request: &MessageRef<'_>, skipped: usize, mut put: impl FnMut(&[u8])) {
    put(authority);
    for segment in request.values(OptionNumber::URI_PATH).skip(skipped) {
        write_value(OptionNumber::URI_PATH, segment, &mut put);
    }
    put(&[0; 4]);
}

/// Writes the part of the cache key after [`write_resource`]: the method, the options that choose a response, and the
/// payload of a FETCH (RFC 7252, sections 5.4.2 and 5.6; RFC 8132, section 2).
pub fn write_variant(request: &MessageRef<'_>, mut put: impl FnMut(&[u8])) {
    put(&[request.code().0]);
    for (number, value) in request.options() {
        if number != OptionNumber::URI_PATH && in_request(number) == Treatment::Key {
            write_value(number, value, &mut put);
        }
    }
    if request.code() == Code::FETCH {
        put(&[0; 4]);
        put(request.payload());
    }
}

fn write_value(number: OptionNumber, value: &[u8], put: &mut impl FnMut(&[u8])) {
    // The length has 16 bits. An option can have up to 65,804 bytes, but in a datagram it has at most 65,535 bytes.
    let ([n0, n1], [l0, l1]) = (number.0.to_be_bytes(), (value.len() as u16).to_be_bytes());
    put(&[n0, n1, l0, l1]);
    put(value);
}

/// Returns the time for which a response may answer equal requests, or `None` if it must not be stored (RFC 7252,
/// sections 5.6.1, 5.9 and 5.10.5). The request must be [cacheable](is_cacheable).
///
/// A response that concerns only one client is not stored: 4.01, which may contain a challenge (RFC 9175, section 2.3),
/// 4.29 (RFC 8516), and 5.08, which depends on the Hop-Limit of the request (RFC 8768). A response about the blocks of
/// one block-wise transfer is not stored either.
pub fn lifetime(response: &MessageRef<'_>) -> Option<Duration> {
    let of_one_client = matches!(
        response.code(),
        Code::UNAUTHORIZED
            | Code::REQUEST_ENTITY_INCOMPLETE
            | Code::REQUEST_ENTITY_TOO_LARGE
            | Code::TOO_MANY_REQUESTS
            | Code::HOP_LIMIT_REACHED
    );
    let may_be = response.code() == Code::CONTENT || matches!(response.code().class(), 4 | 5);
    let is_challenge = response.option(OptionNumber::ECHO).is_some();
    (may_be && !of_one_client && !is_challenge).then(|| max_age(response)).filter(|age| !age.is_zero())
}

/// Returns the Max-Age of a response. If the value of the option has more than four bytes, returns 0, so that the
/// response is not fresh.
pub fn max_age(response: &MessageRef<'_>) -> Duration {
    let seconds = match response.option(OptionNumber::MAX_AGE) {
        None => DEFAULT_MAX_AGE,
        Some(value) => crate::option::uint(value).unwrap_or(0),
    };
    Duration::from_secs(seconds.into())
}

/// Returns the Hop-Limit with which a proxy forwards a request, or `default` if the request has none. Returns `None`
/// if the request must not pass a further proxy (RFC 8768, section 3).
///
/// # Errors
/// 4.00 if the value is not valid.
pub fn hops(request: &MessageRef<'_>, default: u8) -> Result<Option<u8>, Code> {
    match request.option(OptionNumber::HOP_LIMIT) {
        None => Ok(Some(default)),
        Some([0] | []) => Err(Code::BAD_REQUEST),
        Some([hops]) => Ok(hops.checked_sub(1).filter(|hops| *hops > 0)),
        Some(_) => Err(Code::BAD_REQUEST),
    }
}

/// Returns true if stored responses for the resource of a request are no longer fresh after a response with this code,
/// because the resource was created, changed or deleted (RFC 7252, section 5.9.1). For a method that is not safe, this
/// holds after 2.xx and after 5.xx: a server may fail after it has made a part of the change. It does not hold after
/// 4.xx, because the server then refused the request.
pub const fn changes(method: Code, response: Code) -> bool {
    !method.is_safe() && response.class() != 4
}

/// Writes a response in the form that a cache stores: a message without token, with the payload and only the options
/// that a proxy forwards.
///
/// # Errors
/// [`BuildError::Full`].
pub fn write_stored<'a>(
    code: Code,
    options: impl Iterator<Item = (OptionNumber, &'a [u8])>,
    payload: &[u8],
    frame: &mut Frame<'_>,
) -> Result<(), BuildError> {
    let mut builder = Builder::new(frame, MessageType::Acknowledgement, code, 0, &[])?;
    for (number, value) in options.filter(|(number, _)| in_response(*number) == Treatment::Passed) {
        builder.option(number, value)?;
    }
    builder.payload(payload)
}

/// Updates a stored response with the options of `valid`, the 2.03 response that confirmed it. Each option of `valid`
/// that a proxy forwards to its client replaces the stored options with the same number (RFC 7252, section 5.6.2).
///
/// # Errors
/// [`BuildError::Full`].
pub fn merge(stored: &MessageRef<'_>, valid: &MessageRef<'_>, frame: &mut Frame<'_>) -> Result<(), BuildError> {
    let mut builder = Builder::new(frame, MessageType::Acknowledgement, stored.code(), 0, &[])?;
    // Returns the stored options with numbers from `from` to `to` that `valid` does not replace.
    let between = |from, to| {
        let is_kept = move |(number, _): &(OptionNumber, &[u8])| {
            (from..=to).contains(&number.0) && valid.option(*number).is_none()
        };
        stored.options().filter(is_kept)
    };
    let mut from = 0;
    for (number, value) in valid.options().filter(|(number, _)| in_response(*number) == Treatment::Passed) {
        for (number, value) in between(from, number.0) {
            builder.option(number, value)?;
        }
        builder.option(number, value)?;
        from = number.0;
    }
    for (number, value) in between(from, u16::MAX) {
        builder.option(number, value)?;
    }
    builder.payload(stored.payload())
}

/// A stored response.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// The response in the form of [`write_stored`].
    pub response: &'a [u8],
    /// The time until which the response is fresh.
    pub until: Instant,
}

/// The memory of a cache: responses with their keys. If there is no space, the storage decides which response it
/// removes.
pub trait CacheStorage {
    /// The client whose request caused a response to be stored.
    type Owner: Copy;

    /// Returns the response with this key, and marks it as used.
    fn find(&mut self, key: &[u8]) -> Option<Stored<'_>>;

    /// Stores a response, and replaces an earlier response with the same key. The first `resource` bytes of the key are
    /// the bytes that [`write_resource`] wrote. Returns false if there is no space. The earlier response is removed in
    /// this case also.
    fn put(&mut self, key: &[u8], resource: usize, owner: Self::Owner, stored: Stored<'_>) -> bool;

    /// Removes the response with this key.
    fn remove(&mut self, key: &[u8]);

    /// Removes all responses for a resource. `resource` contains the bytes that [`write_resource`] writes.
    fn remove_resource(&mut self, resource: &[u8]);
}

/// The result of [`Cache::look_up`].
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// A fresh response.
    Fresh {
        /// The response, with the options that are forwarded.
        response: MessageRef<'a>,
        /// The value of the Max-Age option: the seconds for which the response remains fresh.
        max_age: u32,
    },
    /// A fresh response that the client already has. The answer is 2.03 (RFC 7252, section 5.10.6.2).
    Known {
        /// The ETag.
        etag: &'a [u8],
        /// The value of the Max-Age option.
        max_age: u32,
    },
    /// A response that is not fresh. A request with this ETag lets the server confirm with 2.03 that the response is
    /// valid.
    Stale {
        /// The ETag.
        etag: &'a [u8],
    },
    /// There is no usable response.
    Nothing,
}

/// A cache that stores responses in the memory `S`.
#[derive(Debug, Default)]
pub struct Cache<S> {
    /// The memory that stores the responses.
    pub storage: S,
}

/// The result of [`Cache::take`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The response is stored.
    Stored,
    /// The response is not stored, because it must not be stored, or because there is no space.
    NotStored,
}

impl<S: CacheStorage> Cache<S> {
    /// Finds the stored response with this key, and decides whether it can answer the request at the time `now`.
    #[inline]
    pub fn look_up(&mut self, now: Instant, key: &[u8], request: &MessageRef<'_>) -> Found<'_> {
        let Some(Stored { response, until }) = self.storage.find(key) else { return Found::Nothing };
        let Ok(response) = MessageRef::parse(response) else { return Found::Nothing };
        let etag = response.option(OptionNumber::ETAG).filter(|_| response.code() == Code::CONTENT);
        if now >= until {
            return etag.map_or(Found::Nothing, |etag| Found::Stale { etag });
        }
        // The time is rounded down, so that no client uses a response that is no longer fresh.
        let max_age = u32::try_from(until.since(now).as_secs()).unwrap_or(u32::MAX);
        match etag {
            Some(etag) if request.values(OptionNumber::ETAG).any(|known| known == etag) => {
                Found::Known { etag, max_age }
            }
            _ => Found::Fresh { response, max_age },
        }
    }

    /// Stores the response to a [cacheable](is_cacheable) request, if the response may be stored. The first `resource`
    /// bytes of `key` are the bytes that [`write_resource`] wrote. `response` has all options, and `stored` is the same
    /// response in the form of [`write_stored`]. If the response must not be stored, the earlier response with this key
    /// is removed.
    pub fn take(
        &mut self,
        now: Instant,
        (key, resource): (&[u8], usize),
        owner: S::Owner,
        (response, stored): (&MessageRef<'_>, &[u8]),
    ) -> Taken {
        let Some(lifetime) = lifetime(response) else {
            self.storage.remove(key);
            return Taken::NotStored;
        };
        let stored = Stored { response: stored, until: now.after(lifetime) };
        if self.storage.put(key, resource, owner, stored) { Taken::Stored } else { Taken::NotStored }
    }

    /// Handles a 2.03 (Valid) to a request with this key and ETag. Updates the stored response with the options of the
    /// 2.03. The updated response is written into `frame`, and then stored. Returns false if there is no stored
    /// response with the ETag, or if the 2.03 has another ETag. The 2.03 then has no effect. The first `resource` bytes
    /// of `key` are the bytes that [`write_resource`] wrote.
    pub fn revalidate(
        &mut self,
        now: Instant,
        (key, resource): (&[u8], usize),
        owner: S::Owner,
        (etag, valid): (&[u8], &MessageRef<'_>),
        frame: &mut Frame<'_>,
    ) -> bool {
        let Some(stored) = self.storage.find(key) else { return false };
        let Ok(response) = MessageRef::parse(stored.response) else { return false };
        let theirs = valid.option(OptionNumber::ETAG);
        let is_same = response.option(OptionNumber::ETAG) == Some(etag) && theirs.is_none_or(|theirs| theirs == etag);
        if valid.code() != Code::VALID || !is_same || merge(&response, valid, frame).is_err() {
            return false;
        }
        let until = now.after(max_age(valid));
        self.storage.put(key, resource, owner, Stored { response: frame.bytes(), until })
    }
}

#[cfg(test)]
mod tests;
