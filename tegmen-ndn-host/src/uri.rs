//! The URIs of faces: `udp://HOST:PORT`, `tcp://HOST:PORT` and `unix://PATH`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::str::FromStr;

/// The port of NDN over UDP and TCP.
pub const DEFAULT_PORT: u16 = 6363;

/// The other end of a face.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FaceUri {
    /// A UDP address.
    Udp(SocketAddr),
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for FaceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "udp://{address}"),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// The reason why a text is not the URI of a face.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoFaceUri(String);

impl fmt::Display for NoFaceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not the URI of a face: write udp://HOST:PORT, tcp://HOST:PORT or unix://PATH", self.0)
    }
}

impl std::error::Error for NoFaceUri {}

impl FromStr for FaceUri {
    type Err = NoFaceUri;

    /// Parses the URI of a face. Resolves a host name. If the URI has no port, the port is 6363.
    fn from_str(text: &str) -> Result<Self, NoFaceUri> {
        let refused = || NoFaceUri(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(refused)?;
        if scheme == "unix" && !rest.is_empty() {
            return Ok(Self::Unix(rest.into()));
        }
        let host = rest.trim_end_matches('/');
        let has_port = host.parse::<SocketAddr>().is_ok()
            || host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let with_port = if has_port { host.to_owned() } else { format!("{host}:{DEFAULT_PORT}") };
        let address = with_port.to_socket_addrs().ok().and_then(|mut all| all.next()).ok_or_else(refused)?;
        match scheme {
            "udp" | "udp4" | "udp6" => Ok(Self::Udp(address)),
            "tcp" | "tcp4" | "tcp6" => Ok(Self::Tcp(address)),
            _ => Err(refused()),
        }
    }
}
