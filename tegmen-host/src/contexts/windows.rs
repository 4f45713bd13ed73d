//! The replay windows of the other members of a group, as text. When a process closes the context, it writes this text
//! into the file of sequence numbers. Each known window has three values in hexadecimal: the ID of the member, the next
//! sequence number, and a bitmap of the numbers that were received.

use crate::hex::to_hex;
use tegmen::oscore::group::Recipient;
use tegmen::oscore::{Id, ReplayWindow};

/// Returns the text for the known replay windows of `recipients`.
pub(super) fn to_text(recipients: &[Recipient<Vec<u8>>]) -> String {
    let known = recipients.iter().filter(|recipient| recipient.window().mark().is_none());
    let text = known.map(|recipient| {
        let (next, seen) = recipient.window().parts();
        format!("{}:{next:x}:{seen:x}", to_hex(recipient.id().as_bytes()))
    });
    text.collect::<Vec<_>>().join(" ")
}

/// Returns the replay window of the member with this ID; `None` if the text does not contain this window.
pub(super) fn find(text: &str, id: &Id) -> Option<ReplayWindow> {
    let id = to_hex(id.as_bytes());
    let mut windows = text.split(' ').filter_map(|window| window.split_once(':'));
    let (next, seen) = windows.find(|(of, _)| *of == id)?.1.split_once(':')?;
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    Some(ReplayWindow::from_parts((number(next)?, number(seen)?)))
}

/// Returns the number of replay windows in the text.
pub(super) fn count(text: &str) -> usize {
    text.split(' ').filter(|window| !window.is_empty()).count()
}
