//! The stores of sessions on a host, and the faults that can happen to them: the database of a server, and the file of
//! a client.

use crate::sessions::{Counts, Store};
use crate::world::Node;
use std::path::{Path as File, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tegmen::address::Path;
use tegmen::cx::Cx;
use tegmen::dtls::Session;
use tegmen::dtls::record::{CHUNK, MAX_SEALED};
use tegmen::endpoint::{Peers as _, Phase};
use tegmen::identity::{PeerId, Principal};
use tegmen::time::Instant;
use tegmen_host::state::{self, Database, SessionFile, SessionName, Sessions, StateError, With};

/// Skips nearly all reserved record numbers of a session, so that the session soon has to reserve the next numbers. A
/// sender may skip numbers.
fn hurry(node: &mut Node, peer: PeerId, end: u32) {
    let known = node.endpoint.peers.peer(peer).unwrap();
    let path = *known.path();
    let used = known.channel().sealed();
    let is_taken = node.endpoint.peers.find(&path, Phase::Handshaking).is_some();
    if used + 4 >= end || end > MAX_SEALED / 2 || is_taken {
        return;
    }
    let mut session = node.endpoint.take_session(peer).unwrap();
    let (_, window) = session.position();
    session.go_on(end - 4, window);
    let now = Instant::AT_ONCE;
    let mut cx = Cx { now, crypto: &mut node.crypto, counters: &mut node.counters };
    let peer = node.endpoint.restore_session(&mut cx, &path, Principal(7), &session).unwrap();
    node.endpoint.lease_session(peer, end);
    node.peer = Some(peer);
}

/// The database of a server.
pub(crate) struct Server {
    dir: PathBuf,
    open: Option<(Database, Sessions)>,
    session: Option<(SessionName, u32)>,
    /// The end of the reserved record numbers (the lease) that is durable. The writing thread of the database sets this
    /// value.
    durable: Arc<AtomicU32>,
    asked: u32,
    backup: Option<Vec<(PathBuf, Vec<u8>)>>,
}

impl Server {
    pub(crate) fn new(dir: PathBuf) -> Self {
        std::fs::create_dir_all(&dir).unwrap();
        let mut server = Self { dir, open: None, session: None, durable: Arc::default(), asked: 0, backup: None };
        server.start().unwrap();
        server
    }

    fn file(&self) -> PathBuf {
        self.dir.join("state.db")
    }

    fn start(&mut self) -> Result<(), StateError> {
        let database = Database::open(&self.file())?;
        let sessions = Sessions::open(database.clone(), 10)?;
        self.open = Some((database, sessions));
        Ok(())
    }

    fn sessions(&self) -> &Sessions {
        &self.open.as_ref().unwrap().1
    }

    fn power_cut(&mut self) {
        if let Some((database, sessions)) = self.open.take() {
            database.abandon();
            drop((sessions, database));
        }
    }

    fn refused_and_recovered(&mut self) {
        let refused = Database::open(&self.file()).err().expect("refused");
        assert!(matches!(refused, StateError::Untrusted { .. }), "{refused}");
        state::recover(&self.file()).unwrap();
        self.backup = None;
        self.start().unwrap();
        assert_eq!(self.sessions().waiting(), 0);
    }
}

impl Store for Server {
    fn keep(&mut self, node: &mut Node, path: &Path) {
        let peer = node.peer.unwrap();
        node.endpoint.lease_session(peer, CHUNK);
        let session = node.endpoint.copy_session(peer).unwrap();
        let (local, remote, identity) = (path.local.into(), path.remote.into(), "peer".to_owned());
        let (key, certified, connection_id) = (None, None, String::new());
        let with = With { local, remote, identity, listed: true, key, certified, connection_id };
        if let Some((name, _)) = self.session.take() {
            self.sessions().remove(name);
        }
        let name = self.sessions().keep(&mut node.crypto, &session, &with);
        self.open.as_ref().unwrap().0.flush().unwrap();
        self.session = Some((name, CHUNK));
        (self.asked, self.durable) = (CHUNK, Arc::new(AtomicU32::new(CHUNK)));
    }

    fn lease(&mut self, node: &mut Node) {
        let (name, end) = self.session.unwrap();
        let peer = node.peer.unwrap();
        let used = node.endpoint.peers.peer(peer).unwrap().channel().sealed();
        // The lease may have become durable since the last call.
        let durable = self.durable.load(Ordering::SeqCst);
        if durable > end {
            self.session = Some((name, durable));
            node.endpoint.lease_session(peer, durable);
            return hurry(node, peer, durable);
        }
        if used + 3 >= end && self.asked == end {
            self.asked = end + CHUNK;
            let told = self.durable.clone();
            let told = move |kept: Result<(), String>| {
                if kept.is_ok() {
                    told.store(end + CHUNK, Ordering::SeqCst);
                }
            };
            self.sessions().extend(name, end + CHUNK, told);
        }
        if used >= end {
            self.open.as_ref().unwrap().0.flush().unwrap();
            return self.lease(node);
        }
        hurry(node, peer, end);
    }

    fn park(&mut self, node: &mut Node) {
        let (name, _) = self.session.unwrap();
        let session = node.endpoint.take_session(node.peer.unwrap()).unwrap();
        self.sessions().park(name, &session);
        self.sessions().close().unwrap();
        self.open = None;
    }

    fn cut(&mut self, draw: u64) {
        if draw.is_multiple_of(3) {
            // An order to the database was under way.
            let (name, end) = self.session.unwrap();
            self.sessions().extend(name, end + CHUNK, drop);
        }
        self.power_cut();
    }

    fn open(&mut self, node: &mut Node, path: &Path) -> Option<(Session, u32)> {
        if self.open.is_none() {
            self.start().unwrap();
        }
        let restored = self.sessions().take(&mut node.crypto, path, &[23])?;
        assert!(self.sessions().take(&mut node.crypto, path, &[23]).is_none(), "once");
        self.session = Some((restored.name, restored.lease_end));
        (self.asked, self.durable) = (restored.lease_end, Arc::new(AtomicU32::new(restored.lease_end)));
        Some((restored.session, restored.lease_end))
    }

    fn opened(&mut self, _: &mut Node, _: PeerId) {}

    fn suffer(&mut self, draw: u64, counts: &mut Counts) -> bool {
        let all = ["state.db", "state.db-wal", "state.db.key", "state.db.place"].map(|name| self.dir.join(name));
        let read = |file: &PathBuf| Some((file.clone(), std::fs::read(file).ok()?));
        match draw % 6 {
            0 | 1 => {
                self.backup = Some(all.iter().filter_map(read).collect());
                false
            }
            2 => {
                let Some(backup) = self.backup.clone() else { return false };
                counts.events += 1;
                counts.restored_backups += 1;
                self.power_cut();
                // Restores all files, the database with its log, or the database without its log.
                for (file, bytes) in backup.iter().take([4, 2, 1][draw as usize / 6 % 3]) {
                    std::fs::write(file, bytes).unwrap();
                }
                if (draw / 18).is_multiple_of(2) && !backup.iter().any(|(file, _)| file.ends_with("state.db-wal")) {
                    let _ = std::fs::remove_file(&all[1]);
                }
                match self.start() {
                    // The backup had the latest state, or the whole log was still present.
                    Ok(()) => false,
                    Err(StateError::Untrusted { .. }) => {
                        self.refused_and_recovered();
                        self.session = None;
                        true
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            3 => {
                counts.events += 1;
                counts.copies += 1;
                let copy = self.dir.join("copy");
                let _ = std::fs::remove_dir_all(&copy);
                std::fs::create_dir_all(&copy).unwrap();
                for file in all.iter().filter(|file| file.exists()) {
                    std::fs::copy(file, copy.join(file.file_name().unwrap())).unwrap();
                }
                assert!(Database::open(&copy.join("state.db")).is_err(), "a copy was opened");
                self.power_cut();
                false
            }
            4 => {
                counts.events += 1;
                counts.double_starts += 1;
                assert!(matches!(Database::open(&self.file()), Err(StateError::InUse { .. })));
                self.power_cut();
                false
            }
            _ => {
                counts.events += 1;
                counts.torn_files += 1;
                self.power_cut();
                // Merges the log into the file, so that the state is in the file alone.
                self.start().unwrap();
                self.open = None;
                let whole = std::fs::read(self.file()).unwrap();
                let cut = draw as usize % (whole.len() - 4096);
                std::fs::write(self.file(), &whole[..cut]).unwrap();
                self.refused_and_recovered();
                self.session = None;
                true
            }
        }
    }
}

/// The file of a client.
pub(crate) struct Client {
    path: PathBuf,
    open: Option<SessionFile>,
    end: u32,
    backup: Option<Vec<u8>>,
}

const WITH: &str = "server 1 client";

impl Client {
    pub(crate) fn new(dir: &File) -> Self {
        std::fs::create_dir_all(dir).unwrap();
        let path = dir.join("session");
        Self { open: Some(SessionFile::open(&path).unwrap()), path, end: 0, backup: None }
    }

    fn file(&mut self) -> &mut SessionFile {
        self.open.get_or_insert_with(|| SessionFile::open(&self.path).unwrap())
    }

    fn refused_and_deleted(&mut self) {
        assert!(matches!(SessionFile::open(&self.path), Err(StateError::Untrusted { .. })));
        std::fs::remove_file(&self.path).unwrap();
        self.backup = None;
    }
}

impl Store for Client {
    fn keep(&mut self, node: &mut Node, _: &Path) {
        let peer = node.peer.unwrap();
        node.endpoint.lease_session(peer, CHUNK);
        let session = node.endpoint.copy_session(peer).unwrap();
        self.file().keep(&mut node.crypto, &session, WITH).unwrap();
        self.end = CHUNK;
    }

    fn lease(&mut self, node: &mut Node) {
        let peer = node.peer.unwrap();
        let used = node.endpoint.peers.peer(peer).unwrap().channel().sealed();
        if used + 2 >= self.end {
            let end = self.end + CHUNK;
            self.file().extend(end).unwrap();
            self.end = end;
            node.endpoint.lease_session(peer, end);
        }
        hurry(node, peer, self.end);
    }

    fn park(&mut self, node: &mut Node) {
        let session = node.endpoint.take_session(node.peer.unwrap()).unwrap();
        self.file().park(&session).unwrap();
        self.open = None;
    }

    fn cut(&mut self, _: u64) {
        self.open = None;
    }

    fn open(&mut self, node: &mut Node, _: &Path) -> Option<(Session, u32)> {
        let (session, end) = self.file().take(&mut node.crypto, WITH).unwrap()?;
        assert!(self.file().take(&mut node.crypto, "another").unwrap().is_none());
        self.open = None;
        self.file();
        self.end = end;
        Some((session, end))
    }

    fn opened(&mut self, _: &mut Node, _: PeerId) {}

    fn suffer(&mut self, draw: u64, counts: &mut Counts) -> bool {
        match draw % 5 {
            0 | 1 => {
                self.backup = std::fs::read(&self.path).ok();
                false
            }
            2 => {
                let Some(backup) = self.backup.take() else { return false };
                counts.events += 1;
                counts.restored_backups += 1;
                self.open = None;
                if std::fs::read(&self.path).is_ok_and(|now| now == backup) {
                    return false;
                }
                std::fs::write(&self.path, backup).unwrap();
                self.refused_and_deleted();
                true
            }
            3 => {
                counts.events += 1;
                counts.double_starts += 1;
                self.file();
                assert!(matches!(SessionFile::open(&self.path), Err(StateError::InUse { .. })));
                self.open = None;
                false
            }
            _ => {
                counts.events += 1;
                counts.torn_files += 1;
                self.open = None;
                let whole = std::fs::read(&self.path).unwrap();
                std::fs::write(&self.path, &whole[..draw as usize % (whole.len() - 1)]).unwrap();
                self.refused_and_deleted();
                true
            }
        }
    }
}
