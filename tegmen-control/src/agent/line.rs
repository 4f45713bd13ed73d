//! The lines of the agent's protocol.

use crate::access::protokey::{MAX_IDENTITY, MAX_PUBLISHER, NONCE_LEN, SessionIdentity};
use crate::subscriber::SessionKey;
use tegmen::dtls::MAX_PSK;
use tegmen_base::hex::from_hex;
use zeroize::Zeroizing;

/// Maximum number of bytes of a question, including the line feed.
pub const MAX_QUESTION: usize = MAX_IDENTITY + 16;
/// Maximum number of bytes of an answer, including the line feed.
pub const MAX_ANSWER: usize = 1024;

/// A question of a program to the agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// A program asks for the key of the session identity that a publisher shows in a handshake: `session IDENTITY`.
    Session(String),
    /// A program asks for a new session identity, and for the key of this identity, for a handshake with this
    /// publisher: `publisher NAME`.
    Publisher(String),
}

impl Question {
    /// Reads the question of a program from its line, without the line feed. Returns `None` if the line is not a valid
    /// question.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok().filter(|line| line.len() < MAX_QUESTION)?;
        match line.split_once(' ')? {
            ("session", identity) => {
                SessionIdentity::parse(identity.as_bytes()).map(|identity| Self::Session(identity.as_str().to_owned()))
            }
            // A name is right if an identity with it is.
            ("publisher", name) => SessionIdentity::write(name, &[0; NONCE_LEN], &mut [0; MAX_IDENTITY])
                .map(|identity| Self::Publisher(identity.publisher().to_owned())),
            _ => None,
        }
    }

    /// Returns the line of the question, with its line feed.
    pub fn line(&self) -> String {
        match self {
            Self::Session(identity) => format!("session {identity}\n"),
            Self::Publisher(name) => format!("publisher {name}\n"),
        }
    }
}

/// The answer of the agent.
#[derive(Debug)]
pub enum Answer {
    /// `key IDENTITY KEY SECONDS`: the key in hexadecimal, and the time in seconds for which the session may be used,
    /// where 0 means no limit.
    Key {
        /// The session identity.
        identity: String,
        /// The key of the session.
        key: SessionKey,
    },
    /// `error CODE TEXT`.
    Error {
        /// The code of the error, for programs. The code stays the same in later versions of the agent.
        code: String,
        /// The cause of the error, and what the user has to do next.
        text: String,
    },
}

impl Answer {
    /// Reads the answer of the agent from its line, without the line feed. Returns `None` if the line is not a valid
    /// answer.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok().filter(|line| line.len() < MAX_ANSWER)?;
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "key" => {
                let mut words = rest.split(' ');
                let (identity, key, seconds) = (words.next()?, words.next()?, words.next()?);
                let identity = SessionIdentity::parse(identity.as_bytes())?.as_str().to_owned();
                let key = Zeroizing::new(from_hex(key)?);
                let seconds: u64 = seconds.parse().ok()?;
                let is_right = words.next().is_none() && (1..=MAX_PSK).contains(&key.len());
                let key = SessionKey { key, expires_in: Some(seconds).filter(|seconds| *seconds > 0) };
                is_right.then_some(Self::Key { identity, key })
            }
            "error" => {
                let (code, text) = rest.split_once(' ')?;
                Some(Self::Error { code: code.to_owned(), text: text.to_owned() })
            }
            _ => None,
        }
    }

    /// Returns the line of the answer, with its line feed. The line may contain the key of a session. The buffer is
    /// large enough from the beginning. So the buffer is never copied, and no copy of the key remains in memory.
    pub fn line(&self) -> Zeroizing<String> {
        let mut line = Zeroizing::new(String::with_capacity(MAX_ANSWER));
        match self {
            Self::Key { identity, key } => {
                debug_assert!(identity.len() <= MAX_IDENTITY && key.key.len() <= MAX_PSK);
                line.push_str("key ");
                line.push_str(identity);
                line.push(' ');
                let digits = key.key.iter().flat_map(|byte| [byte >> 4, byte & 15]);
                line.extend(digits.filter_map(|digit| char::from_digit(digit.into(), 16)));
                line.push(' ');
                line.push_str(&key.expires_in.unwrap_or(0).to_string());
            }
            Self::Error { code, text } => {
                line.push_str("error ");
                line.push_str(code);
                line.push(' ');
                let text = text.chars().map(|c| if c.is_control() { ' ' } else { c });
                let longest = MAX_ANSWER.saturating_sub(line.len().saturating_add("\n".len()));
                let fits = |(at, c): &(usize, char)| at.saturating_add(c.len_utf8()) <= longest;
                let mut at = 0_usize;
                let placed = text.map(|c| {
                    let place = (at, c);
                    at = at.saturating_add(c.len_utf8());
                    place
                });
                line.extend(placed.take_while(fits).map(|(_, c)| c));
            }
        }
        line.push('\n');
        line
    }
}

const _: () = assert!("key ".len() + MAX_IDENTITY + 1 + 2 * MAX_PSK + 1 + 20 < MAX_ANSWER);
const _: () =
    assert!("publisher ".len() + MAX_PUBLISHER < MAX_QUESTION && "session ".len() + MAX_IDENTITY < MAX_QUESTION);
