//! A disk in memory that loses data which was not synchronized.
//!
//! A write changes the content that programs see. A synchronization of a file makes its content, its size and its
//! identity durable. A synchronization of the directory makes names durable. At a power cut, the disk decides at random
//! about changes that are not durable:
//!
//! * Each sector of 512 bytes of a file survives or not. The choice is separate for each sector, or only the sectors on
//!   one side of a random border survive.
//! * The size of a file is the old size, the new size, or a size between them. Lost sectors beyond the old size are
//!   zero.
//! * Each change of a name survives or not. A change is lost if it depends on a lost change. A renaming survives
//!   completely or not at all.
//! * A file that was never synchronized may have another identity.
//!
//! As on real disks, the bytes of a sector that no write touched never change (SQLite calls this a power-safe
//! overwrite).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tegmen_store::files::Files;

/// Number of bytes that a disk writes completely or not at all.
const SECTOR: usize = 512;

/// A generator of random numbers from a seed (SplitMix64).
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns a random probability with which a change survives, in percent.
    fn percent(&mut self) -> u64 {
        [0, 10, 50, 90, 100][self.below(5) as usize]
    }

    /// Returns true in `percent` of 100 cases.
    pub(crate) fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The kind of a file. The name of a file shows its kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Database,
    Log,
    Journal,
    Place,
}

impl Kind {
    fn of(name: &str) -> Self {
        match name {
            name if name.ends_with("-wal") => Self::Log,
            name if name.ends_with("-journal") => Self::Journal,
            name if name.ends_with(".place") || name.ends_with(".place.new") => Self::Place,
            _ => Self::Database,
        }
    }
}

/// A place in the code of SQLite or of the database that synchronizes a file or the directory. Each variant names the
/// file, and the event before the synchronization.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Site {
    /// The log, after a commit wrote its frames.
    Commit,
    /// The log, after a new header was written, because the log begins again.
    LogHeader,
    /// The log, at the beginning of a checkpoint. SQLite wrote nothing to the log since the last synchronization of the
    /// log.
    LogAgain,
    /// The database, after a checkpoint wrote pages of the log.
    Checkpoint,
    /// The database, after its first page was written without a log.
    FirstPage,
    /// The database, after it was made shorter. A start does this to undo a first page that was only partly written.
    RolledBack,
    /// The rollback journal, which protects the first page of the database.
    Journal,
    /// The directory, after a log was created.
    NewLog,
    /// The directory, after a rollback journal was created.
    NewJournal,
    /// The directory, after SQLite removed a file.
    Removed,
    /// The draft of a `.place` file.
    Draft,
    /// The directory, after the draft of a `.place` file was created.
    NewDraft,
    /// The directory, after the draft was renamed to the `.place` file.
    NewPlace,
}

/// Numbers of synchronizations at one place in the code.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Calls {
    pub(crate) all: u64,
    /// Number of synchronizations that made at least one change durable.
    pub(crate) useful: u64,
}

/// A file on the disk.
#[derive(Clone)]
struct Node {
    kind: Kind,
    content: Vec<u8>,
    durable: Vec<u8>,
    identity: u64,
    is_identity_durable: bool,
    /// Number of bytes of the longest write since the last synchronization.
    longest_write: usize,
    /// True if all writes since the last synchronization were at the position 0.
    only_header: bool,
}

impl Node {
    fn is_durable(&self) -> bool {
        self.is_identity_durable && self.content == self.durable
    }

    /// Changes the file to its state after a power cut: random parts have the new content, which was not durable yet,
    /// and all other parts have the old durable content.
    fn survive(&mut self, random: &mut Random) {
        let (old, new) = (self.durable.len(), self.content.len());
        let (percent, border) = (random.percent(), random.below((old.max(new) / SECTOR) as u64 + 1) as usize);
        let order = random.below(4);
        let size = match random.below(3) {
            0 => old,
            1 => new,
            _ => old.min(new) + random.below(old.abs_diff(new) as u64 + 1) as usize / SECTOR * SECTOR,
        };
        let mut left = vec![0; size];
        for (number, sector) in left.chunks_mut(SECTOR).enumerate() {
            let survives = match order {
                0 => number < border,
                1 => number >= border,
                _ => random.is(percent),
            };
            let from = if survives { &self.content } else { &self.durable };
            let from = from.get(number * SECTOR..).unwrap_or_default();
            let len = from.len().min(sector.len());
            sector[..len].copy_from_slice(&from[..len]);
        }
        if !self.is_identity_durable && random.is(50) {
            self.identity = random.next();
        }
        (self.content, self.durable) = (left.clone(), left);
        self.is_identity_durable = true;
        (self.longest_write, self.only_header) = (0, true);
    }
}

/// A change of a file name that is not durable yet.
#[derive(Clone)]
enum Naming {
    Make(String, usize),
    Rename(String, String),
    Remove(String),
}

impl Naming {
    fn names(&self) -> Vec<&String> {
        match self {
            Self::Make(name, _) | Self::Remove(name) => vec![name],
            Self::Rename(from, to) => vec![from, to],
        }
    }

    fn make(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Make(name, node) => {
                names.insert(name.clone(), *node);
            }
            Self::Rename(from, to) => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
                }
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

/// The content of a disk, and the time of its power cut.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) random: Random,
    /// Number of operations until the power is cut; `None` if no cut is planned.
    until: Option<u64>,
    has_power: bool,
    nodes: Vec<Node>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    namings: Vec<Naming>,
    /// The place in the code whose synchronizations do nothing in this test; `None` if all synchronizations work.
    left_out: Option<Site>,
    pub(crate) calls: BTreeMap<Site, Calls>,
}

/// A disk. Clones share its state.
#[derive(Clone)]
pub(crate) struct Disk {
    state: Arc<Mutex<State>>,
    vfs: Arc<str>,
}

fn no_power() -> io::Error {
    io::Error::other("the power is cut")
}

impl State {
    fn new(seed: u64, left_out: Option<Site>) -> Self {
        Self {
            random: Random(seed),
            until: None,
            has_power: true,
            nodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            namings: Vec::new(),
            left_out,
            calls: BTreeMap::new(),
        }
    }

    /// Counts an operation. Cuts the power before the operation if the time of the cut has come.
    fn operation(&mut self) -> io::Result<()> {
        match self.until {
            Some(0) => self.cut(),
            Some(left) => self.until = Some(left - 1),
            None => {}
        }
        if self.has_power { Ok(()) } else { Err(no_power()) }
    }

    fn cut(&mut self) {
        (self.has_power, self.until) = (false, None);
        let mut lost: Vec<String> = Vec::new();
        let of_names = self.random.percent();
        for naming in std::mem::take(&mut self.namings) {
            let depends = naming.names().into_iter().any(|name| lost.contains(name));
            if !depends && self.random.is(of_names) {
                naming.make(&mut self.durable_names);
            } else {
                lost.extend(naming.names().into_iter().cloned());
            }
        }
        self.names = self.durable_names.clone();
        for node in &mut self.nodes {
            node.survive(&mut self.random);
        }
    }

    /// Counts a synchronization at `site`. Returns false if this test leaves out the synchronizations of this site.
    fn is_done(&mut self, site: Site, is_useful: bool) -> bool {
        let calls = self.calls.entry(site).or_default();
        calls.all += 1;
        calls.useful += u64::from(is_useful);
        self.left_out != Some(site)
    }

    /// Returns the index of the file with this name; `None` if there is none. With `make`, creates the file if it does
    /// not exist. A file without a name is always created.
    pub(crate) fn open(&mut self, name: Option<&str>, make: bool) -> io::Result<Option<usize>> {
        self.operation()?;
        if let Some(node) = name.and_then(|name| self.names.get(name)) {
            return Ok(Some(*node));
        }
        if !make {
            return Ok(None);
        }
        let identity = self.random.next();
        self.nodes.push(Node {
            kind: Kind::of(name.unwrap_or_default()),
            content: Vec::new(),
            durable: Vec::new(),
            identity,
            is_identity_durable: false,
            longest_write: 0,
            only_header: true,
        });
        let node = self.nodes.len() - 1;
        if let Some(name) = name {
            self.name(Naming::Make(name.to_owned(), node));
        }
        Ok(Some(node))
    }

    fn name(&mut self, naming: Naming) {
        naming.make(&mut self.names);
        self.namings.push(naming);
    }

    pub(crate) fn read(&mut self, node: usize, at: usize, out: &mut [u8]) -> io::Result<usize> {
        if !self.has_power {
            return Err(no_power());
        }
        let from = self.nodes[node].content.get(at..).unwrap_or_default();
        let len = from.len().min(out.len());
        out[..len].copy_from_slice(&from[..len]);
        out[len..].fill(0);
        Ok(len)
    }

    pub(crate) fn write(&mut self, node: usize, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.operation()?;
        let node = &mut self.nodes[node];
        let end = at + bytes.len();
        if node.content.len() < end {
            node.content.resize(end, 0);
        }
        node.content[at..end].copy_from_slice(bytes);
        node.longest_write = node.longest_write.max(bytes.len());
        node.only_header &= at == 0;
        Ok(())
    }

    pub(crate) fn truncate(&mut self, node: usize, size: usize) -> io::Result<()> {
        self.operation()?;
        self.nodes[node].content.resize(size, 0);
        Ok(())
    }

    pub(crate) fn len(&self, node: usize) -> io::Result<usize> {
        if self.has_power { Ok(self.nodes[node].content.len()) } else { Err(no_power()) }
    }

    /// Performs a synchronization that SQLite requests for a file. If the file is new, also synchronizes the directory.
    pub(crate) fn sync(&mut self, node: usize, is_new: bool) -> io::Result<()> {
        self.operation()?;
        let has_log = self.names.values().any(|node| {
            let node = &self.nodes[*node];
            node.kind == Kind::Log && !node.content.is_empty()
        });
        let Node { kind, longest_write, only_header, .. } = self.nodes[node];
        let site = match kind {
            Kind::Log if longest_write == 0 => Site::LogAgain,
            Kind::Log if only_header => Site::LogHeader,
            Kind::Log => Site::Commit,
            Kind::Database if longest_write == 0 => Site::RolledBack,
            Kind::Database if has_log => Site::Checkpoint,
            Kind::Database => Site::FirstPage,
            Kind::Journal => Site::Journal,
            Kind::Place => Site::Draft,
        };
        self.sync_node(node, site);
        let site = match kind {
            Kind::Log => Site::NewLog,
            _ => Site::NewJournal,
        };
        if is_new { self.sync_names(site) } else { Ok(()) }
    }

    fn sync_node(&mut self, node: usize, site: Site) {
        let is_durable = self.nodes[node].is_durable();
        let is_done = self.is_done(site, !is_durable);
        let node = &mut self.nodes[node];
        (node.longest_write, node.only_header) = (0, true);
        if is_done {
            node.durable = node.content.clone();
            node.is_identity_durable = true;
        }
    }

    pub(crate) fn sync_names(&mut self, site: Site) -> io::Result<()> {
        self.operation()?;
        let is_useful = !self.namings.is_empty();
        if self.is_done(site, is_useful) {
            self.durable_names = self.names.clone();
            self.namings.clear();
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &str) -> io::Result<bool> {
        self.operation()?;
        let is_there = self.names.contains_key(name);
        if is_there {
            self.name(Naming::Remove(name.to_owned()));
        }
        Ok(is_there)
    }

    /// Returns true if a file with this name exists and is not empty. SQLite tests a file in this way.
    pub(crate) fn is_there(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|node| !self.nodes[*node].content.is_empty())
    }

    /// Returns the content of the file with this name; empty if there is none.
    pub(crate) fn content(&self, name: &str) -> Vec<u8> {
        self.names.get(name).map(|node| self.nodes[*node].content.clone()).unwrap_or_default()
    }

    /// Replaces the content of a file durably, as the restore of a backup does.
    pub(crate) fn replace(&mut self, name: &str, content: Vec<u8>) {
        if let Some(node) = self.names.get(name) {
            let node = &mut self.nodes[*node];
            (node.content, node.durable) = (content.clone(), content);
        }
    }

    /// Removes a file durably.
    pub(crate) fn forget(&mut self, name: &str) {
        self.names.remove(name);
        self.durable_names.remove(name);
    }

    pub(crate) fn cut_after(&mut self, operations: u64) {
        self.until = Some(operations);
    }

    pub(crate) fn has_power(&self) -> bool {
        self.has_power
    }

    /// Turns the power on. If it is on already, cuts it first.
    pub(crate) fn restart(&mut self) {
        if self.has_power {
            self.cut();
        }
        self.has_power = true;
    }
}

impl Disk {
    pub(crate) fn new(seed: u64, left_out: Option<Site>, vfs: &str) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(seed, left_out))), vfs: vfs.into() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(file: &Path) -> &str {
    file.to_str().expect("a name in UTF-8")
}

impl Files for Disk {
    fn make(&self, file: &Path) -> io::Result<()> {
        self.lock().open(Some(name(file)), true).map(drop)
    }

    fn sync(&self, file: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let node = state.names.get(name(file)).copied().ok_or(io::ErrorKind::NotFound)?;
        state.operation()?;
        state.sync_node(node, Site::Draft);
        Ok(())
    }

    fn sync_directory(&self, file: &Path) -> io::Result<()> {
        let site = if name(file).ends_with(".new") { Site::NewDraft } else { Site::NewPlace };
        self.lock().sync_names(site)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.operation()?;
        state.name(Naming::Rename(name(from).to_owned(), name(to).to_owned()));
        Ok(())
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        self.lock().remove(name(file)).map(drop)
    }

    fn identity(&self, file: &Path) -> Option<String> {
        let state = self.lock();
        let node = state.names.get(name(file))?;
        Some(state.nodes[*node].identity.to_string())
    }

    fn vfs(&self) -> Option<&str> {
        Some(&self.vfs)
    }
}
