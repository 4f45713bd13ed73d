//! Commands of the driver and replies of a stack's program, one in each line.

use crate::{Failure, KeyForm, PublicKeys};
use std::{fmt, path::PathBuf, str::FromStr};

/// Command to a stack's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// `version`: name the stack and its version.
    Version,
    /// `suites`: name all cipher suites.
    Suites,
    /// `handshakes N`: make and release that many sessions.
    Handshakes(u32),
    /// `resumptions N`: make a session, and N more, each of which resumes the previous one with a ticket.
    Resumptions(u32),
    /// `certified KEY N`: as `handshakes`, both ends with certificates.
    Certified(Certificates, u32),
    /// `held KEY N`: as `heap`, both ends with certificates.
    Held(Certificates, u32),
    /// `records N SIZE`: seal and open that many records of that many bytes.
    Records {
        /// Number of records.
        count: u32,
        /// Bytes of application data in each.
        size: usize,
    },
    /// `heap N`: hold N sessions and report the heap that one of them takes.
    Heap(u32),
    /// `wire`: report the bytes and datagrams of one handshake.
    Wire,
}

/// The certificates of both ends: a chain of two below a trust anchor, in the directory that the variable
/// [`DIRECTORY`](Certificates::DIRECTORY) names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Certificates {
    /// True for `rsa` (2048 bits), false for `ecdsa` (secp256r1).
    pub rsa: bool,
    /// `-remembered`: chains that were verified before are not verified again, where a stack can do that.
    pub remembered: bool,
}

impl Certificates {
    /// The variable of the environment that names the directory.
    pub const DIRECTORY: &str = "TEGMEN_BENCH_CERTIFICATES";

    /// `ecdsa` or `rsa`.
    pub const fn kind(self) -> &'static str {
        if self.rsa { "rsa" } else { "ecdsa" }
    }

    /// The suite and the files for a stack.
    ///
    /// # Errors
    /// The variable [`Self::DIRECTORY`] is not set.
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

/// Reply of a stack's program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// `version TEXT`
    Version(String),
    /// `suites NAME...`
    Suites(String),
    /// `nanoseconds N`: CPU time of the thread for all of the work together.
    Nanoseconds(u64),
    /// `heap CLIENT SERVER`: bytes for one established session at each end.
    Heap {
        /// Bytes at the client.
        client: u64,
        /// Bytes at the server.
        server: u64,
    },
    /// `wire BYTES DATAGRAMS`: UDP payload of one whole handshake.
    Wire {
        /// Bytes of UDP payload, both directions.
        bytes: usize,
        /// Datagrams, both directions.
        datagrams: usize,
    },
    /// `absent TEXT`: there is nothing to measure in this program yet.
    Absent(String),
    /// `failed TEXT`
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
