//! The store of access control: a file of one server, or a cluster that several servers share.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tegmen_store::etcd::Address;
use tegmen_store::store::{Changes, Found, LeaseId, Page, Scan};
use tegmen_store::{Answer, Database, Etcd, Options, Revision, SealingKey, StateError, Store, Transaction};

/// The path or the address of a store, as the operator writes it.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    File(PathBuf),
    Cluster(Address),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Address::is_meant(text) {
            true => text.parse().map(Self::Cluster),
            false => Ok(Self::File(text.into())),
        }
    }
}

impl Place {
    /// Returns the path of the file; `None` if the store is a cluster.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file),
            Self::Cluster(_) => None,
        }
    }

    /// Returns true if the store is a file that does not exist.
    pub(crate) fn is_absent(&self) -> bool {
        self.file().is_some_and(|file| !file.exists())
    }

    /// Opens the store. `key` seals the secrets in it.
    ///
    /// # Errors
    /// [`StateError`].
    pub(crate) fn open(&self, key: SealingKey) -> Result<Rows, StateError> {
        match self {
            Self::File(file) => {
                let options = Options { sealing: Some(Arc::new(key)), ..Options::default() };
                Database::open_with(file, options).map(Rows::File)
            }
            Self::Cluster(address) => Etcd::open(address, Some(&key)).map(Rows::Cluster),
        }
    }
}

/// An open store of rows.
#[derive(Clone)]
pub(crate) enum Rows {
    File(Database),
    Cluster(Etcd),
}

impl Store for Rows {
    fn read(&self, key: &[u8], at: Option<Revision>) -> Answer<Found> {
        match self {
            Self::File(database) => database.read(key, at),
            Self::Cluster(etcd) => etcd.read(key, at),
        }
    }

    fn scan(&self, scan: Scan) -> Answer<Page> {
        match self {
            Self::File(database) => database.scan(scan),
            Self::Cluster(etcd) => etcd.scan(scan),
        }
    }

    fn commit(&self, transaction: Transaction) -> Answer<Revision> {
        match self {
            Self::File(database) => database.commit(transaction),
            Self::Cluster(etcd) => etcd.commit(transaction),
        }
    }

    fn changes(&self, prefix: &[u8], after: Revision, most: usize) -> Answer<Changes> {
        match self {
            Self::File(database) => database.changes(prefix, after, most),
            Self::Cluster(etcd) => etcd.changes(prefix, after, most),
        }
    }

    fn compact(&self, through: Revision) -> Answer<()> {
        match self {
            Self::File(database) => database.compact(through),
            Self::Cluster(etcd) => etcd.compact(through),
        }
    }

    fn grant(&self, ttl: Duration) -> Answer<LeaseId> {
        match self {
            Self::File(database) => database.grant(ttl),
            Self::Cluster(etcd) => etcd.grant(ttl),
        }
    }

    fn renew(&self, lease: LeaseId) -> Answer<()> {
        match self {
            Self::File(database) => database.renew(lease),
            Self::Cluster(etcd) => etcd.renew(lease),
        }
    }

    fn revoke(&self, lease: LeaseId) -> Answer<()> {
        match self {
            Self::File(database) => database.revoke(lease),
            Self::Cluster(etcd) => etcd.revoke(lease),
        }
    }

    fn is_shared(&self) -> bool {
        match self {
            Self::File(database) => database.is_shared(),
            Self::Cluster(etcd) => etcd.is_shared(),
        }
    }
}
