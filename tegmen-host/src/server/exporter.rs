//! The receiver of the keying material of a server's sessions (RFC 5705).

use super::Session;
use crate::exporter::Exported;
use std::sync::Arc;

/// The receiver of keying material of each server session that begins with a handshake.
///
/// A session without extended master secret exports nothing (RFC 7627, section 5.4). A session that the server
/// [restored](super::ServerConfig::state) also exports nothing.
#[derive(Clone)]
pub struct Exporter {
    /// The label, which begins with `EXPORTER`.
    pub label: &'static [u8],
    /// The function that receives the keying material. A shard calls this function before the shard answers the first
    /// request of the session. The function must return quickly, because the thread of the shard waits for it.
    pub take: Arc<Take>,
}

/// A function that receives keying material of a session.
pub type Take = dyn Fn(&Session, Exported) + Send + Sync;
