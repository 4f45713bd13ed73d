//! CoRE Link Format (RFC 6690) for `/.well-known/core` (RFC 7252, section 7.2).

use super::Code;
use super::handler::{Authorized, Response};
use super::option::OptionNumber;

/// Path of the resource that lists the other resources.
pub const WELL_KNOWN_CORE: &str = ".well-known/core";
/// The number of the Content-Format application/link-format.
pub(crate) const CONTENT_FORMAT: u32 = 40;

/// One entry in the list of resources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link<'a> {
    /// Path of the resource, without the leading slash, and percent-encoded as in a URI (RFC 3986, section 3.3).
    pub path: &'a str,
    /// Resource types (`rt`), separated by spaces; empty if the resource has no type.
    pub resource_type: &'a str,
    /// Content-Format (`ct`) of the resource, if it always has the same one; otherwise `None`.
    pub content_format: Option<u16>,
    /// True if the resource can be observed (`obs`; RFC 7641, section 6).
    pub observable: bool,
}

impl Link<'_> {
    /// True if the link matches a query such as `rt=temperature` or `href=/sens*` (RFC 6690, section 4.1).
    pub(crate) fn matches(&self, query: &[u8]) -> bool {
        let Ok(query) = core::str::from_utf8(query) else { return false };
        let Some((name, wanted)) = query.split_once('=') else { return false };
        match name {
            "href" => fits(core::iter::once(b'/').chain(self.path.bytes()), wanted),
            "rt" => self.resource_type.split(' ').any(|one| !one.is_empty() && fits(one.bytes(), wanted)),
            "ct" => self.content_format.is_some_and(|format| fits(decimal(format), wanted)),
            _ => false,
        }
    }
}

/// Returns true if `value` is equal to `wanted`, or begins with the text before an asterisk at the end of `wanted`.
fn fits(mut value: impl Iterator<Item = u8>, wanted: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(prefix) => prefix.bytes().all(|byte| value.next() == Some(byte)),
        None => value.eq(wanted.bytes()),
    }
}

/// Responds to a GET of `/.well-known/core`. The response lists the links that match every query of the request.
///
/// # Errors
/// 4.05 for a method other than GET; 4.06 if the Accept option asks for another format.
pub fn respond<'l>(
    request: &Authorized<'_>,
    response: &mut Response<'_, '_>,
    links: impl Iterator<Item = Link<'l>>,
) -> Result<(), Code> {
    let message = request.message();
    if message.code() != Code::GET {
        return Err(Code::METHOD_NOT_ALLOWED);
    }
    if message.uint(OptionNumber::ACCEPT).is_some_and(|format| format != CONTENT_FORMAT) {
        return Err(Code::NOT_ACCEPTABLE);
    }
    response.uint(OptionNumber::CONTENT_FORMAT, CONTENT_FORMAT)?;
    let mut separator: &[u8] = b"<";
    let wanted = |link: &Link<'_>| message.values(OptionNumber::URI_QUERY).all(|query| link.matches(query));
    for link in links.filter(wanted) {
        response.payload(separator)?;
        response.payload(b"/")?;
        response.payload(link.path.as_bytes())?;
        response.payload(b">")?;
        if !link.resource_type.is_empty() {
            response.payload(b";rt=\"")?;
            response.payload(link.resource_type.as_bytes())?;
            response.payload(b"\"")?;
        }
        if let Some(format) = link.content_format {
            response.payload(b";ct=")?;
            write(response, decimal(format))?;
        }
        if link.observable {
            response.payload(b";obs")?;
        }
        separator = b",<";
    }
    Ok(())
}

fn write(response: &mut Response<'_, '_>, mut bytes: impl Iterator<Item = u8>) -> Result<(), Code> {
    bytes.try_for_each(|byte| response.payload(&[byte]))
}

/// Returns the decimal digits of a number. The function does not use `core::fmt`, because the code of `core::fmt` is
/// long for a mote.
fn decimal(number: u16) -> impl Iterator<Item = u8> {
    let divisors = [10_000_u16, 1000, 100, 10, 1].into_iter().skip_while(move |divisor| *divisor > number.max(1));
    divisors.map(move |divisor| b'0'.wrapping_add((number.checked_div(divisor).unwrap_or(0) % 10) as u8))
}

#[cfg(test)]
mod tests;
