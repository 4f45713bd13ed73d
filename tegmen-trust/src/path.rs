//! The path of a request, as a policy and resources both see it.

use tegmen::coap::{MessageRef, OptionNumber};

/// Returns the path of a request without a slash in front.
///
/// `None` if a segment is not UTF-8, contains a slash, or is empty and not the last (RFC 7252, section 6.4): two readers
/// might not agree on the path of such a request.
pub fn path_of(message: &MessageRef<'_>) -> Option<String> {
    let (mut path, mut was_empty) = (String::new(), false);
    for (number, segment) in message.values(OptionNumber::URI_PATH).enumerate() {
        if was_empty || segment.contains(&b'/') {
            return None;
        }
        if number > 0 {
            path.push('/');
        }
        path.push_str(std::str::from_utf8(segment).ok()?);
        was_empty = segment.is_empty();
    }
    Some(path)
}
