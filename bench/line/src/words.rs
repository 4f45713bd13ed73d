//! The commands of the driver and the replies of a stack's program. Each command and each reply is one line of text.

use crate::{Failure, KeyForm, PublicKeys};
use std::{fmt, path::PathBuf, str::FromStr};

/// A command of the driver to the program of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// `version`: reports the name and the version of the stack.
    Version,
    /// `suites`: reports the names of all cipher suites.
    Suites,
    /// `handshakes N`: opens and closes N sessions.
    Handshakes(u32),
    /// `resumptions N`: opens a session, and then N more sessions. Each of these N sessions resumes the previous
    /// session with a ticket.
    Resumptions(u32),
    /// `certified KEY N`: does the same as `handshakes`, but both ends have certificates.
    Certified(Certificates, u32),
    /// `held KEY N`: does the same as `heap`, but both ends have certificates.
    Held(Certificates, u32),
    /// `records N SIZE`: seals and opens N records with SIZE bytes of content.
    Records {
        /// Number of records.
        count: u32,
        /// Length of the application data in each record, in bytes.
        size: usize,
    },
    /// `heap N`: opens N sessions, and reports the heap memory that one session needs.
    Heap(u32),
    /// `wire`: reports the bytes and the datagrams of one handshake.
    Wire,
}

/// The certificates of both ends. Each end has a chain of two certificates below a trust anchor. The files are in the
/// directory that the environment variable [`DIRECTORY`](Certificates::DIRECTORY) names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Certificates {
    /// True for `rsa` keys (2048 bits), false for `ecdsa` keys (secp256r1).
    pub rsa: bool,
    /// True for the suffix `-remembered`: a stack that can remember a verified chain does not verify the same chain
    /// again.
    pub remembered: bool,
}

impl Certificates {
    /// The name of the environment variable that contains the path of the directory.
    pub const DIRECTORY: &str = "TEGMEN_BENCH_CERTIFICATES";

    /// Returns the kind of the keys: `ecdsa` or `rsa`.
    pub const fn kind(self) -> &'static str {
        if self.rsa { "rsa" } else { "ecdsa" }
    }

    /// Returns the cipher suite and the files with which a stack uses these certificates.
    ///
    /// # Errors
    /// If the environment variable [`Self::DIRECTORY`] is not set.
    pub fn public_keys(self) -> Result<PublicKeys, Failure> {
        let directory = std::env::var_os(Self::DIRECTORY).map(PathBuf::from);
        let directory = directory.ok_or_else(|| Failure::new(format!("{} is not set", Self::DIRECTORY)))?;
        let file = |name: &str| directory.join(format!("{}-{name}", self.kind()));
        let signature = if self.rsa { "RSA" } else { "ECDSA" };
        Ok(PublicKeys {
            suite: format!("TLS_ECDHE_{signature}_WITH_AES_128_GCM_SHA256"),
            form: KeyForm::X509 { ca: file("ca.pem"), certificate: file("chain.pem"), key: file("key.pem") },
        })
    }
}

impl fmt::Display for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind(), if self.remembered { "-remembered" } else { "" })
    }
}

impl FromStr for Certificates {
    type Err = Failure;

    fn from_str(word: &str) -> Result<Self, Failure> {
        let (kind, remembered) = word.strip_suffix("-remembered").map_or((word, false), |kind| (kind, true));
        match kind {
            "ecdsa" | "rsa" => Ok(Self { rsa: kind == "rsa", remembered }),
            _ => Err(Failure::new(format!("no certificates of this kind: {word:?}"))),
        }
    }
}

/// A reply of a stack's program to a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// `version TEXT`: the name and the version of the stack.
    Version(String),
    /// `suites NAME...`: the names of all cipher suites of the stack.
    Suites(String),
    /// `nanoseconds N`: the CPU time of the thread for all handshakes or records of the command, in nanoseconds.
    Nanoseconds(u64),
    /// `heap CLIENT SERVER`: the heap memory in bytes that each end needs for one established session.
    Heap {
        /// Heap memory of the client, in bytes.
        client: u64,
        /// Heap memory of the server, in bytes.
        server: u64,
    },
    /// `wire BYTES DATAGRAMS`: the UDP payload and the number of datagrams of one whole handshake.
    Wire {
        /// Bytes of UDP payload in both directions together.
        bytes: usize,
        /// Number of datagrams in both directions together.
        datagrams: usize,
    },
    /// `absent TEXT`: this program does not support the measurement yet. The text is the reason.
    Absent(String),
    /// `failed TEXT`: the command failed. The text is the reason.
    Failed(String),
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => write!(f, "version"),
            Self::Suites => write!(f, "suites"),
            Self::Handshakes(count) => write!(f, "handshakes {count}"),
            Self::Resumptions(count) => write!(f, "resumptions {count}"),
            Self::Certified(certificates, count) => write!(f, "certified {certificates} {count}"),
            Self::Held(certificates, count) => write!(f, "held {certificates} {count}"),
            Self::Records { count, size } => write!(f, "records {count} {size}"),
            Self::Heap(sessions) => write!(f, "heap {sessions}"),
            Self::Wire => write!(f, "wire"),
        }
    }
}

impl FromStr for Command {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["version"] => Ok(Self::Version),
            ["suites"] => Ok(Self::Suites),
            ["handshakes", count] => Ok(Self::Handshakes(number(count)?)),
            ["resumptions", count] => Ok(Self::Resumptions(number(count)?)),
            ["certified", certificates, count] => Ok(Self::Certified(certificates.parse()?, number(count)?)),
            ["held", certificates, count] => Ok(Self::Held(certificates.parse()?, number(count)?)),
            ["records", count, size] => Ok(Self::Records { count: number(count)?, size: number(size)? }),
            ["heap", sessions] => Ok(Self::Heap(number(sessions)?)),
            ["wire"] => Ok(Self::Wire),
            _ => Err(Failure::new(format!("not a command: {line:?}"))),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(text) => write!(f, "version {text}"),
            Self::Suites(names) => write!(f, "suites {names}"),
            Self::Nanoseconds(nanoseconds) => write!(f, "nanoseconds {nanoseconds}"),
            Self::Heap { client, server } => write!(f, "heap {client} {server}"),
            Self::Wire { bytes, datagrams } => write!(f, "wire {bytes} {datagrams}"),
            Self::Absent(text) => write!(f, "absent {text}"),
            Self::Failed(text) => write!(f, "failed {text}"),
        }
    }
}

impl FromStr for Reply {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let fields: Vec<&str> = rest.split(' ').collect();
        match (word, &fields[..]) {
            ("version", _) => Ok(Self::Version(rest.to_owned())),
            ("suites", _) => Ok(Self::Suites(rest.to_owned())),
            ("nanoseconds", [nanoseconds]) => Ok(Self::Nanoseconds(number(nanoseconds)?)),
            ("heap", [client, server]) => Ok(Self::Heap { client: number(client)?, server: number(server)? }),
            ("wire", [bytes, datagrams]) => Ok(Self::Wire { bytes: number(bytes)?, datagrams: number(datagrams)? }),
            ("absent", _) => Ok(Self::Absent(rest.to_owned())),
            ("failed", _) => Ok(Self::Failed(rest.to_owned())),
            _ => Err(Failure::new(format!("not a reply: {line:?}"))),
        }
    }
}

fn number<N: FromStr>(word: &str) -> Result<N, Failure> {
    word.parse().map_err(|_| Failure::new(format!("not a number: {word:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_reads_back_as_it_was_written() {
        for command in [
            Command::Version,
            Command::Suites,
            Command::Handshakes(7),
            Command::Resumptions(7),
            Command::Certified(Certificates { rsa: false, remembered: true }, 7),
            Command::Held(Certificates { rsa: true, remembered: false }, 7),
            Command::Records { count: 9, size: 64 },
            Command::Heap(100),
            Command::Wire,
        ] {
            assert_eq!(command.to_string().parse(), Ok(command));
        }
    }

    #[test]
    fn every_reply_reads_back_as_it_was_written() {
        for reply in [
            Reply::Version("some stack 1.2".into()),
            Reply::Suites("TLS_PSK_WITH_AES_128_CCM_8 TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8".into()),
            Reply::Nanoseconds(u64::MAX),
            Reply::Heap { client: 1, server: 2 },
            Reply::Wire { bytes: 489, datagrams: 10 },
            Reply::Absent("not built".into()),
            Reply::Failed("stalled".into()),
        ] {
            assert_eq!(reply.to_string().parse(), Ok(reply));
        }
    }

    #[test]
    fn a_stray_word_is_refused() {
        assert!("handshakes".parse::<Command>().is_err());
        assert!("handshakes many".parse::<Command>().is_err());
        assert!("hello".parse::<Reply>().is_err());
    }
}
