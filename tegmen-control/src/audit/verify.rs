//! Verification of an audit log.

use super::head::Head;
use super::line::{GENESIS, Link, MAX_LINE, hash};
use std::io::{self, BufRead, Read as _};
use tegmen_base::hex::to_hex;

/// The result for a log without a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verified {
    /// The number of lines of the log.
    pub lines: u64,
    /// The number of lines that the signed head of the log states; 0 if no head was given. The head also states the
    /// hash of the last of these lines. If further lines follow, a change of the last line of the log cannot be
    /// detected, because no head and no later line contains the hash of this line.
    pub signed: u64,
}

/// The first fault of a log.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// A line differs from the line that the server wrote.
    #[error("line {line} {why}")]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// The fault.
        why: &'static str,
    },
    /// The log cannot be read.
    #[error("the log cannot be read: {0}")]
    Unreadable(#[from] io::Error),
}

/// Verifies a complete log, and compares it with a signed head if one is given.
///
/// # Errors
/// The first line that was changed, that is missing, or that is in another position.
pub fn verify(log: impl BufRead, head: Option<&Head>) -> Result<Verified, Broken> {
    let mut lines = Lines { log, number: 0 };
    let mut before = GENESIS;
    let mut next = lines.next()?;
    while let Some(line) = next {
        let number = lines.number;
        let broken = |line, why| Err(Broken::Line { line, why });
        let Some(text) = line.strip_suffix(b"\n") else { return broken(number, "is cut") };
        let Some(link) = Link::read(text) else { return broken(number, "is no line of an audit log") };
        if link.n != number {
            return broken(number, "is missing, or another line is in its place");
        }
        let this = hash(text);
        let signed_here = head.filter(|head| head.lines == number);
        next = lines.next()?;
        if link.prev != to_hex(&before) {
            // One of the two lines was changed: the later one is right if the line after it, or the head, has its hash.
            let after = next.as_deref().and_then(|next| Link::read(next.strip_suffix(b"\n")?));
            let is_right = after.is_some_and(|after| after.prev == to_hex(&this))
                || signed_here.is_some_and(|head| head.hash == this);
            return match number.checked_sub(1).filter(|before| is_right && *before > 0) {
                Some(earlier) => broken(earlier, "was changed"),
                None => broken(number, "was changed"),
            };
        }
        if signed_here.is_some_and(|head| head.hash != this) {
            return broken(number, "was changed: the head signs another one");
        }
        before = this;
    }
    let (lines, signed) = (lines.number, head.map_or(0, |head| head.lines));
    if lines < signed {
        return Err(Broken::Line { line: lines.saturating_add(1), why: "is missing: the head signs it" });
    }
    Ok(Verified { lines, signed })
}

struct Lines<L> {
    log: L,
    /// The number of the line that was read last.
    number: u64,
}

impl<L: BufRead> Lines<L> {
    /// Returns the next line with its line feed; `None` at the end of the log. If a line is too long, only its
    /// beginning is returned.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        self.log.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        self.number = self.number.saturating_add(1);
        Ok(Some(line))
    }
}
