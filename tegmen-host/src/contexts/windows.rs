//! The replay windows of the other members of a group, as text. When a process closes the context, it writes this text
//! into the file of sequence numbers. Each known window has three values in hexadecimal: the ID of the member, the next
//! sequence number, and a bitmap of the numbers that were received.

use crate::hex::to_hex;
use tegmen::oscore::group::Recipient;
use tegmen::oscore::{Id, ReplayWindow};

/// Returns the text of the known windows.
pub(super) fn to_text(recipients: &[Recipient<Vec<u8>>]) -> String {
    let known = recipients.iter().filter(|recipient| recipient.window().mark().is_none());
    let text = known.map(|recipient| {
        let (next, seen) = recipient.window().parts();
        format!("{}:{next:x}:{seen:x}", to_hex(recipient.id().as_bytes()))
    });
    text.collect::<Vec<_>>().join(" ")
}

/// Returns the window of a member; `None` if it is not known.
pub(super) fn find(text: &str, id: &Id) -> Option<ReplayWindow> {
    let id = to_hex(id.as_bytes());
    let mut windows = text.split(' ').filter_map(|window| window.split_once(':'));
    let (next, seen) = windows.find(|(of, _)| *of == id)?.1.split_once(':')?;
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    Some(ReplayWindow::from_parts((number(next)?, number(seen)?)))
}

/// Returns the number of known windows.
pub(super) fn count(text: &str) -> usize {
    text.split(' ').filter(|window| !window.is_empty()).count()
}
