//! Media types and Content-Formats (RFC 8075, section 6).

use crate::formats;

/// The media type of a payload whose Content-Format has no known media type (RFC 8075, section 6.2).
const PAYLOAD: &str = "application/coap-payload";
/// The Content-Format text/plain. This constant and the four constants below are the Content-Formats of the loose
/// mapping (RFC 8075, section 6.3), which applies to media types without a registered Content-Format.
const TEXT: u16 = 0;
const XML: u16 = 41;
const OCTETS: u16 = 42;
const JSON: u16 = 50;
const CBOR: u16 = 60;

/// Returns the media type of a Content-Format.
pub(super) fn media_type(format: u32) -> String {
    let known = u16::try_from(format).ok().and_then(formats::media_type);
    known.map_or_else(|| format!("{PAYLOAD};cf={format}"), str::to_owned)
}

/// Returns the Content-Format of a media type: the registered Content-Format, or the Content-Format of the loose mapping
/// (RFC 8075, section 6.3). Returns `None` for a charset other than UTF-8, and for any other parameter, because it would
/// be lost.
pub(super) fn content_format(text: &str) -> Option<u16> {
    let (essence, number) = parts(text)?;
    match essence == PAYLOAD {
        true => number,
        false => formats::parse(&essence).or_else(|| loose(&essence)),
    }
}

/// Returns the registered Content-Format of a media type.
pub(super) fn registered(text: &str) -> Option<u16> {
    let (essence, number) = parts(text)?;
    number.or_else(|| formats::parse(&essence))
}

/// Returns the type and subtype in lower case, and the number in the parameter `cf`.
fn parts(text: &str) -> Option<(String, Option<u16>)> {
    let mut parts = text.split(';');
    let essence = parts.next()?.trim().to_ascii_lowercase();
    let (kind, subtype) = essence.split_once('/')?;
    if kind.is_empty() || subtype.is_empty() {
        return None;
    }
    let mut number = None;
    for parameter in parts.map(str::trim).filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=')?;
        match name.to_ascii_lowercase().as_str() {
            "charset" if is_utf8(value) => {}
            "cf" if essence == PAYLOAD => number = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    Some((essence, number))
}

fn is_utf8(charset: &str) -> bool {
    let charset = charset.trim_matches('"');
    ["utf-8", "us-ascii"].iter().any(|name| charset.eq_ignore_ascii_case(name))
}

fn loose(essence: &str) -> Option<u16> {
    let (kind, subtype) = essence.split_once('/')?;
    let suffix = subtype.rsplit_once('+').map(|(_, suffix)| suffix);
    Some(match (kind, suffix) {
        ("application", Some("xml")) => XML,
        ("application", Some("json")) => JSON,
        ("application", Some("cbor")) => CBOR,
        ("text", _) if subtype == "xml" => XML,
        ("text", _) => TEXT,
        _ => OCTETS,
    })
}

/// Returns the Content-Format for the Accept option, from the values of Accept headers: the registered format with the
/// highest weight. Returns `None` without an Accept header, and for `*/*`. Also returns `None` if no media type has a
/// registered format, because the proxy then ignores the headers (RFC 8075, section 6.1).
pub(super) fn accepted<'a>(values: impl Iterator<Item = &'a str>) -> Option<u16> {
    let mut best: Option<(f32, u16)> = None;
    for (range, weight) in values.flat_map(|value| value.split(',')).filter_map(weighted) {
        if range.starts_with("*/*") {
            return None;
        }
        if let Some(format) = registered(&range)
            && best.is_none_or(|(before, _)| weight > before)
        {
            best = Some((weight, format));
        }
    }
    best.map(|(_, format)| format)
}

/// Returns a range of an Accept header without its weight, and the weight. Returns `None` if the weight is 0, or the
/// range is empty.
fn weighted(item: &str) -> Option<(String, f32)> {
    let (mut range, mut weight) = (Vec::new(), 1.0);
    for part in item.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        match part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")) {
            Some(value) => weight = value.parse().ok()?,
            None => range.push(part),
        }
    }
    let range = range.join(";");
    (!range.is_empty() && weight > 0.0).then_some((range, weight))
}

#[cfg(test)]
mod tests;
