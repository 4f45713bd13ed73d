//! The address of a cluster, and the keys under which etcd stores the rows.

use std::fmt;
use std::str::FromStr;

/// The first characters of each address of a cluster.
const SCHEME: &str = "etcd://";
/// The name of the store, if the address contains no name.
const NAME: &str = "tegmen";

/// The members of a cluster of etcd and the name of a store in the cluster, written as
/// `etcd://HOST:PORT,HOST:PORT,HOST:PORT/NAME`. The name is `tegmen` if it is left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    pub(super) members: Vec<String>,
    pub(super) name: String,
}

impl Address {
    /// Returns true if a text is the address of a cluster, and false if it is the path of a database.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Returns the key in etcd for the row whose key in the store is `key`.
    pub(super) fn row(&self, key: &[u8]) -> Vec<u8> {
        [self.name.as_bytes(), ROWS, key].concat()
    }

    /// Returns the key in the store for the row whose key in etcd is `row`.
    pub(super) fn key(&self, row: &[u8]) -> Vec<u8> {
        row.get(self.name.len() + ROWS.len()..).unwrap_or_default().to_vec()
    }

    /// Returns the key in etcd of the sealed data key. The data key seals the secrets of the store.
    pub(super) fn data_key(&self) -> Vec<u8> {
        [self.name.as_bytes(), DATA_KEY].concat()
    }
}

/// The bytes between the name of a store and the key of a row.
const ROWS: &[u8] = b"/row/";
const DATA_KEY: &[u8] = b"/data-key";

/// Returns the first key after all keys that begin with `prefix`.
pub(super) fn end_of(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end)
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{text}: {why}: write it as {SCHEME}HOST:PORT,HOST:PORT,HOST:PORT/NAME");
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong("it is no address of etcd"))?;
        let (members, name) = rest.split_once('/').unwrap_or((rest, NAME));
        let members: Vec<String> = members.split(',').map(str::to_owned).collect();
        let has_port = |member: &String| {
            let port =
                member.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
            matches!(port, Some(Ok(1..)))
        };
        if !members.iter().all(has_port) {
            return Err(wrong("a member has no port"));
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || !name.bytes().all(is_plain) {
            return Err(wrong("the name has other characters than letters, digits, hyphens, dots and underscores"));
        }
        Ok(Self { members, name: name.to_owned() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.members.join(","), self.name)
    }
}
