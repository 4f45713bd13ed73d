//! Sessions that survive a restart of the server: see [`crate::state::Sessions`].

use super::Shard;
use crate::clock;
use crate::credentials::{Credentials, KeyTicket, StoredKey};
use crate::hex::{from_hex, to_hex};
use crate::server::command::Command;
use crate::server::{Application, Event};
use crate::state::{Restored, SessionName, Sessions, With};
use std::collections::HashMap;
use std::sync::Arc;
use tegmen::address::Path;
use tegmen::dtls::record::{CHUNK, MAX_SEALED};
use tegmen::dtls::{CertificateType, ContentType};
use tegmen::endpoint::{Peers as _, Phase};
use tegmen::identity::{PeerId, Principal, Protection};
use tegmen::time::{Duration, Instant};

/// The sessions of a shard, if they are stored in the database.
pub(super) struct Persistence {
    pub(super) sessions: Arc<Sessions>,
    by_peer: HashMap<PeerId, Entry>,
    /// The sessions whose keys the key store looks for, at most [`MAX_ASKED`].
    asked: HashMap<SessionName, Asked>,
    /// The last reported reason why record numbers could not be reserved; `None` if the last attempt succeeded.
    said: Option<String>,
    /// The time at which the server removes the stored sessions whose peers have sent nothing since the start of the
    /// server. At this time, the maximum idle time has passed since that start.
    give_up: Instant,
}

struct Entry {
    name: SessionName,
    lease_end: u32,
    /// True while the database is asked to reserve further record numbers.
    asked: bool,
}

/// A stored session that the server restores if the key store still has the key of its peer.
struct Asked {
    restored: Restored,
    /// The first record of the peer after the start of the server, and the path on which it arrived. The server handles
    /// this record after it has restored the session.
    path: Path,
    datagram: Vec<u8>,
    at: Instant,
}

/// Maximum number of sessions of a shard whose keys the key store looks for at the same time. The records of further
/// sessions are dropped until the key store has answered. Their peers send them again.
const MAX_ASKED: usize = 256;
/// Time after which the server removes a session if the key store has not answered.
const PATIENCE: Duration = Duration::from_secs(60);
/// The server reserves further record numbers when a session has this many reserved numbers left.
const AHEAD: u32 = CHUNK / 2;
/// A session that cannot reserve further record numbers is closed when it has this many numbers left. The close_notify
/// alert still needs one of these numbers.
const LAST: u32 = 64;

impl Persistence {
    pub(super) fn new(sessions: Arc<Sessions>, give_up: Instant) -> Self {
        Self { sessions, by_peer: HashMap::new(), asked: HashMap::new(), said: None, give_up }
    }
}

impl<A: Application> Shard<A> {
    /// Restores the session of a peer when the first record of this peer arrives after the start of the server. Returns
    /// true if the record waits, because the key store looks for the key of the peer.
    pub(super) fn restore(&mut self, now: Instant, path: &Path, datagram: &[u8]) -> bool {
        let Some(persistence) = self.persistence.as_mut().filter(|persistence| persistence.sessions.waiting() > 0)
        else {
            return false;
        };
        // A ClientHello may begin a new session, or be from anybody.
        let content_type = datagram.first().map(|byte| ContentType(*byte));
        let is_meant = match content_type {
            Some(ContentType::TLS12_CID) => true,
            Some(ContentType::APPLICATION_DATA | ContentType::ALERT) => {
                self.node.endpoint.peers.find(path, Phase::Established).is_none()
            }
            _ => false,
        };
        if !is_meant || datagram.get(3..5) != Some(&[0, 1]) {
            return false;
        }
        if persistence.asked.len() >= MAX_ASKED
            && self.store.is_some()
            && persistence.sessions.peer(path, datagram).is_some_and(|with| with.needs_key_store())
        {
            return false;
        }
        let Some(restored) = persistence.sessions.take(&mut self.environment.crypto, path, datagram) else {
            return false;
        };
        let with = &restored.with;
        let (credentials, keys) = (&self.coap_server.credentials, &self.node.endpoint.roles.keys.own);
        let principal = match &with.certified {
            // A peer whose certificate or raw key is not known as trusted now has to present it again.
            Some((kind, digest)) => {
                let (kind, digest) = (CertificateType(*kind), from_hex(digest).unwrap_or_default());
                let known = keys.recall(kind, &digest);
                known.map(|(name, digest)| credentials.certified_as(&name, kind, digest))
            }
            // An identity that was removed from the file meanwhile, or got another key, has no session.
            None if with.listed => {
                let listed = credentials.keys_of(with.identity.as_bytes());
                let key =
                    |principal| credentials.fingerprint(principal).map(|key| persistence.sessions.fingerprint(&key));
                let is_same = |listed: &Principal| with.key.is_some() && key(*listed) == with.key;
                listed.and_then(|keys| keys.iter().map(|key| key.principal).find(is_same))
            }
            None => match &self.store {
                // A peer whose key is not known has to prove it again.
                Some(store) if with.needs_key_store() => {
                    let (commands, name) = (self.coap_server.resources.commands.clone(), restored.name);
                    let identity = with.identity.clone();
                    let asked = Asked { restored, path: *path, datagram: datagram.to_vec(), at: now };
                    persistence.asked.insert(name, asked);
                    // The send fails only if the server ended meanwhile, and then no shard needs the key.
                    let answer = move |found| drop(commands.send(Command::StillHas { name, found }));
                    store.find(&identity, KeyTicket::new(answer));
                    return true;
                }
                _ => None,
            },
        };
        self.go_on(now, restored, principal);
        false
    }

    /// Restores a stored session after the key store has looked for the key of its peer: if the key of the session is
    /// still the key or the previous key of the peer. The peer then has the rights that the key store returned. If the
    /// credentials file now has the identity, the file takes precedence, and the session ends.
    pub(super) fn on_still_has(&mut self, name: SessionName, found: Option<StoredKey>) {
        let (now, Some(persistence)) = (clock::now(), &mut self.persistence) else { return };
        let Some(Asked { restored, path, mut datagram, .. }) = persistence.asked.remove(&name) else { return };
        let credentials = &self.coap_server.credentials;
        // The owner of a session whose key is known has the PSK identity as its name.
        let identity = &restored.with.identity;
        let is_listed = credentials.keys_of(identity.as_bytes()).is_some();
        let principal = found.filter(|found| found.name.is_none() && !is_listed).and_then(|found| {
            let is_of_session = |key: &[u8]| {
                let key = persistence.sessions.fingerprint(&Credentials::digest_of_key(key));
                restored.with.key.as_ref() == Some(&key)
            };
            // A session with the previous key counts as a session with the current key, as after a handshake.
            let previous = found.previous.as_ref();
            let is_same = is_of_session(&found.key) || previous.is_some_and(|key| is_of_session(key));
            is_same.then(|| credentials.learn_stored(identity, Some(&found.key), found.allow.as_deref()))
        });
        if self.go_on(now, restored, principal) {
            self.on_datagram(now, &path, &mut datagram, true);
        }
    }

    /// Continues a stored session of the peer `principal`. Removes the stored session if `principal` is `None`, or if
    /// the session cannot continue. Returns true if the session continues.
    fn go_on(&mut self, now: Instant, restored: Restored, principal: Option<Principal>) -> bool {
        let Some(persistence) = &mut self.persistence else { return false };
        let Restored { name, with, session, lease_end } = restored;
        let path = Path { local: with.local.into(), remote: with.remote.into() };
        let cx = &mut self.environment.at(now);
        let peer = principal.and_then(|principal| self.node.endpoint.restore_session(cx, &path, principal, &session));
        let Some(peer) = peer else {
            persistence.sessions.remove(name);
            return false;
        };
        self.node.endpoint.lease_session(peer, lease_end);
        persistence.by_peer.insert(peer, Entry { name, lease_end, asked: false });
        self.hold_number(peer);
        (self.coap_server.events)(Event::Restored { remote: with.remote, identity: with.identity });
        true
    }

    /// Stores a session that was just established, or updates the stored session of a peer that has a new address.
    pub(super) fn keep(&mut self, peer: PeerId) {
        let Some(persistence) = &mut self.persistence else { return };
        let Some(entry) = self.node.endpoint.peers.peer(peer) else { return };
        let (path, principal) = (*entry.path(), entry.principal());
        let standing = self.coap_server.credentials.standing(principal);
        let Some((identity, listed)) = standing else { return };
        let known = persistence.by_peer.get(&peer);
        if known.is_none() {
            persistence.sessions.forget(&path);
            self.node.endpoint.lease_session(peer, CHUNK);
        }
        let Some(mut session) = self.node.endpoint.copy_session(peer) else { return };
        if let Some(known) = known.filter(|known| known.asked) {
            // What is on its way is not taken back by this.
            session.go_on(known.lease_end + CHUNK, None);
        }
        let ids = self.node.endpoint.peers.connection_ids(peer);
        let connection_id = ids.map_or(String::new(), |ids| to_hex(ids.ours()));
        let (local, remote) = (path.local.into(), path.remote.into());
        let certified = self.coap_server.credentials.certified(principal);
        let certified = certified.map(|(kind, digest)| (kind.0, to_hex(&digest)));
        let key = self.coap_server.credentials.fingerprint(principal).map(|key| persistence.sessions.fingerprint(&key));
        let with = With { local, remote, identity, listed, key, certified, connection_id };
        match known {
            Some(known) => persistence.sessions.keep_as(known.name, &mut self.environment.crypto, &session, &with),
            None => {
                let name = persistence.sessions.keep(&mut self.environment.crypto, &session, &with);
                persistence.by_peer.insert(peer, Entry { name, lease_end: CHUNK, asked: false });
            }
        }
    }

    /// Removes a session that has ended.
    pub(super) fn forget(&mut self, peer: PeerId) {
        if let Some(persistence) = &mut self.persistence
            && let Some(entry) = persistence.by_peer.remove(&peer)
        {
            persistence.sessions.remove(entry.name);
        }
    }

    /// Reserves further record numbers for a session if only a few reserved numbers are left.
    pub(super) fn lease_ahead(&mut self, peer: PeerId) {
        let Some(channel) = self.node.endpoint.peers.peer(peer).map(|known| known.channel()) else { return };
        // This check is for every record, so it precedes the lookups.
        if channel.sealed() < channel.lease_end().saturating_sub(AHEAD) {
            return;
        }
        let Some(entry) = self.persistence.as_mut().and_then(|persistence| persistence.by_peer.get_mut(&peer)) else {
            return;
        };
        if entry.asked || entry.lease_end >= MAX_SEALED {
            return;
        }
        entry.asked = true;
        let (name, end, commands) = (entry.name, entry.lease_end + CHUNK, self.coap_server.resources.commands.clone());
        // The send fails only if the server ended meanwhile, and then no shard needs the result.
        let then = move |result| drop(commands.send(Command::Leased { peer, end, result }));
        if let Some(persistence) = &self.persistence {
            persistence.sessions.extend(name, end, then);
        }
    }

    /// Handles the result of an attempt to reserve record numbers. If `result` is `Ok`, the database has stored the new
    /// end of the reserved numbers. If the write failed, the next record starts another attempt. But if [`LAST`] or
    /// fewer numbers are left, the session is closed.
    pub(super) fn on_leased(&mut self, peer: PeerId, end: u32, result: Result<(), String>) {
        let Some(persistence) = &mut self.persistence else { return };
        let Some(entry) = persistence.by_peer.get_mut(&peer) else { return };
        entry.asked = false;
        let Err(problem) = result else {
            entry.lease_end = end;
            persistence.said = None;
            self.node.endpoint.lease_session(peer, end);
            return;
        };
        if persistence.said.as_ref() != Some(&problem) {
            persistence.said = Some(problem.clone());
            (self.coap_server.events)(Event::NotKept { problem });
        }
        let channel = self.node.endpoint.peers.peer(peer).map(|known| known.channel());
        if channel.is_some_and(|channel| channel.sealed() + LAST >= channel.lease_end()) {
            self.forget(peer);
            self.node.endpoint.close(peer);
        }
    }

    /// Removes the stored session of each peer that has no established session any more. After the time `give_up`, also
    /// removes the stored sessions whose peers have not returned.
    pub(super) fn sweep_persisted(&mut self, now: Instant) {
        let Some(persistence) = &mut self.persistence else { return };
        let sessions = &persistence.sessions;
        persistence.by_peer.retain(|peer, entry| {
            let lives = self.node.endpoint.peers.peer(*peer).is_some_and(|peer| peer.phase() == Phase::Established);
            if !lives {
                sessions.remove(entry.name);
            }
            lives
        });
        persistence.asked.retain(|name, asked| {
            let waits = now.since(asked.at) < PATIENCE;
            if !waits {
                sessions.remove(*name);
            }
            waits
        });
        if now >= persistence.give_up {
            persistence.sessions.forget_all();
        }
    }

    /// Stores the current state of every session for the next process. The peers receive no message.
    pub(super) fn park(&mut self) {
        let Some(persistence) = &mut self.persistence else { return };
        // In the order of the rows, so that neighbouring rows are written together.
        let mut all: Vec<(PeerId, Entry)> = persistence.by_peer.drain().collect();
        all.sort_unstable_by_key(|(_, entry)| entry.name);
        for (peer, entry) in all {
            let dtls = |known: &&mut tegmen::endpoint::Peer| known.protection() == Protection::Dtls;
            if self.node.endpoint.peers.peer(peer).filter(dtls).is_some()
                && let Some(session) = self.node.endpoint.take_session(peer)
            {
                persistence.sessions.park(entry.name, &session);
            }
        }
        for (name, asked) in persistence.asked.drain() {
            persistence.sessions.park(name, &asked.restored.session);
        }
    }
}
