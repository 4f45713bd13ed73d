//! Writes the responses of the cache for the clients of a proxy.

use tegmen::coap::{Code, MessageRef, OptionNumber, Response};

/// Writes a stored response. `max_age` is the number of seconds for which it remains fresh.
///
/// # Errors
/// 5.00 if the response does not fit.
pub fn write_stored(stored: &MessageRef<'_>, max_age: u32, response: &mut Response<'_, '_>) -> Result<(), Code> {
    response.set_code(stored.code());
    let mut has_max_age = false;
    for (number, value) in stored.options() {
        if number > OptionNumber::MAX_AGE && !has_max_age {
            has_max_age = true;
            response.uint(OptionNumber::MAX_AGE, max_age)?;
        }
        response.option(number, value)?;
    }
    if !has_max_age {
        response.uint(OptionNumber::MAX_AGE, max_age)?;
    }
    response.payload(stored.payload())
}

/// Writes a 2.03 response to a client that already has the stored response with this ETag (RFC 7252, section
/// 5.10.6.2).
///
/// # Errors
/// 5.00 if the response does not fit.
pub fn write_known(etag: &[u8], max_age: u32, response: &mut Response<'_, '_>) -> Result<(), Code> {
    response.set_code(Code::VALID);
    response.option(OptionNumber::ETAG, etag)?;
    response.uint(OptionNumber::MAX_AGE, max_age)
}
