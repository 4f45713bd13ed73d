//! Implements the methods of [`Store`](crate::Store) with requests to an etcd cluster.

use super::address::{Address, end_of};
use super::content;
use super::gateway::{Fault, Gateway};
use super::wire::{
    Base64, CompactionRequest, Done, Int, LeaseRequest, LeaseResponse, RangeRequest, RangeResponse, WatchCreate,
    WatchRequest, WatchResponse,
};
use crate::sealing::Sealer;
use crate::store::{Found, LeaseId, Page, Revision, Scan, StoreError};
use std::time::Duration;

/// Maximum number of rows in a page of a scan.
const MOST: usize = 1000;
/// Maximum time to wait for the next message of a stream that a member of the cluster sends.
const TOLD: Duration = Duration::from_secs(2);

/// The connections to a cluster, the address of a store in it, and the data key that seals the secrets of the store.
pub(super) struct Cluster {
    pub(super) address: Address,
    pub(super) gateway: Gateway,
    pub(super) sealer: Option<Sealer>,
}

impl Cluster {
    /// Implements [`Store::read`](crate::Store::read).
    pub(super) async fn read(&self, key: &[u8], at: Option<Revision>) -> Result<Found, StoreError> {
        let request = RangeRequest { key: Base64(self.address.row(key)), revision: wanted(at), ..Default::default() };
        let response = self.range(&request).await?;
        let at = at.unwrap_or(Revision(response.header.revision.0));
        let entry = response.kvs.into_iter().next();
        let entry = entry.map(|row| content::read(&row, &self.address, self.sealer.as_ref())).transpose()?;
        Ok(Found { entry, at })
    }

    /// Implements [`Store::scan`](crate::Store::scan).
    pub(super) async fn scan(&self, scan: &Scan) -> Result<Page, StoreError> {
        if scan.most == 0 {
            return Err(StoreError::Invalid { why: "a page has at least one row" });
        }
        let prefix = self.address.row(&scan.prefix);
        // The smallest key after another one has one byte more, a zero.
        let after = scan.after.as_ref().map(|after| self.address.row(&[after.as_slice(), &[0]].concat()));
        let request = RangeRequest {
            key: Base64(after.filter(|after| *after > prefix).unwrap_or_else(|| prefix.clone())),
            range_end: end_of(&prefix).map(Base64),
            revision: wanted(scan.at),
            limit: Int(scan.most.min(MOST) as u64),
        };
        let response = self.range(&request).await?;
        let at = scan.at.unwrap_or(Revision(response.header.revision.0));
        let entries = response.kvs.iter().map(|row| content::read(row, &self.address, self.sealer.as_ref()));
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        let next = entries.last().filter(|_| response.more).map(|last| last.key.clone());
        Ok(Page { entries, next, at })
    }

    pub(super) async fn range(&self, request: &RangeRequest) -> Result<RangeResponse, StoreError> {
        match self.gateway.call("/v3/kv/range", request, true).await {
            Ok(response) => Ok(response),
            Err(fault) => Err(self.error(fault).await),
        }
    }

    /// Returns the newest revision.
    pub(super) async fn newest(&self) -> Result<Revision, StoreError> {
        // The header of each response has the revision.
        let request = RangeRequest { key: Base64(self.address.data_key()), ..Default::default() };
        match self.gateway.call::<RangeResponse>("/v3/kv/range", &request, true).await {
            Ok(response) => Ok(Revision(response.header.revision.0)),
            Err(fault) => Err(unavailable(fault)),
        }
    }

    /// Implements [`Store::compact`](crate::Store::compact).
    pub(super) async fn compact(&self, through: Revision) -> Result<(), StoreError> {
        let request = CompactionRequest { revision: Int(through.0) };
        match self.gateway.call::<Done>("/v3/kv/compaction", &request, true).await {
            Ok(Done {}) => Ok(()),
            Err(fault) => match self.error(fault).await {
                // It is done already, perhaps by this call.
                StoreError::Compacted { oldest } if oldest == through => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Implements [`Store::grant`](crate::Store::grant).
    pub(super) async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        // A whole number of seconds, so that the lease does not end earlier.
        let ttl = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let request = LeaseRequest { id: Int(0), ttl: Int(ttl.max(1)) };
        // A repeated request can leave a second lease, which ends by itself.
        let granted = self.gateway.call::<LeaseResponse>("/v3/lease/grant", &request, true).await;
        granted.map(|lease| LeaseId(lease.id.0)).map_err(unavailable)
    }

    /// Implements [`Store::renew`](crate::Store::renew).
    pub(super) async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        let request = LeaseRequest { id: Int(lease.0), ttl: Int(0) };
        let mut last = None;
        for turn in 0..self.gateway.members() {
            let renewed = match self.gateway.stream(turn, "/v3/lease/keepalive", &request).await {
                Ok(mut stream) => stream.next::<LeaseResponse>(TOLD).await,
                Err(fault) => Err(fault),
            };
            match renewed {
                Ok(LeaseResponse { ttl: Int(0), .. }) => return Err(StoreError::LeaseEnded(lease)),
                Ok(_) => return Ok(()),
                Err(fault) => last = Some(fault),
            }
        }
        Err(last.map_or_else(StoreError::closed, unavailable))
    }

    /// Implements [`Store::revoke`](crate::Store::revoke).
    pub(super) async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        let request = LeaseRequest { id: Int(lease.0), ttl: Int(0) };
        match self.gateway.call::<Done>("/v3/lease/revoke", &request, false).await {
            Ok(Done {}) => Ok(()),
            Err(Fault::Refused(why)) if why.contains(NO_LEASE) => Err(StoreError::LeaseEnded(lease)),
            Err(fault) => Err(unavailable(fault)),
        }
    }

    /// Returns true if the lease has ended.
    pub(super) async fn has_ended(&self, lease: LeaseId) -> Result<bool, StoreError> {
        let request = LeaseRequest { id: Int(lease.0), ttl: Int(0) };
        let left = self.gateway.call::<LeaseResponse>("/v3/lease/timetolive", &request, true).await;
        Ok(left.map_err(unavailable)?.ttl.0 == 0)
    }

    /// Converts the fault of a request to the error that a method of the store returns. [`StoreError::Compacted`]
    /// contains the oldest revision, and [`StoreError::NotYet`] contains the newest revision. For each of these two
    /// errors, this function asks the cluster for the revision.
    pub(super) async fn error(&self, fault: Fault) -> StoreError {
        let known = match &fault {
            Fault::Refused(why) if why.contains(COMPACTED) => {
                self.oldest().await.map(|oldest| StoreError::Compacted { oldest })
            }
            Fault::Refused(why) if why.contains(FUTURE) => {
                self.newest().await.map(|newest| StoreError::NotYet { newest })
            }
            _ => Ok(unavailable(fault)),
        };
        known.unwrap_or_else(|error| error)
    }

    /// Returns the oldest revision that can be read. To find this revision, opens a watch from revision 1. If earlier
    /// history was deleted, the answer of the cluster contains the oldest revision. Otherwise the oldest revision is 1.
    async fn oldest(&self) -> Result<Revision, StoreError> {
        let request = watch(self.address.data_key(), None, 1);
        let mut stream = self.gateway.stream(0, WATCH, &request).await.map_err(unavailable)?;
        loop {
            let told = stream.next::<WatchResponse>(TOLD).await.map_err(unavailable)?;
            if told.compact_revision.0 != 0 {
                return Ok(Revision(told.compact_revision.0));
            }
            if !told.created {
                return Ok(Revision(1));
            }
        }
    }
}

/// Makes the request for all changes at the revision `from` and later. The changes concern the keys in etcd from `key`
/// up to `end`, without `end` itself. If `end` is `None`, they concern only the key `key`.
pub(super) fn watch(key: Vec<u8>, end: Option<Vec<u8>>, from: u64) -> WatchRequest {
    let create_request = WatchCreate { key: Base64(key), range_end: end.map(Base64), start_revision: Int(from) };
    WatchRequest { create_request }
}

pub(super) fn unavailable(fault: Fault) -> StoreError {
    let (Fault::NotDone(why) | Fault::Unknown(why) | Fault::Refused(why)) = fault;
    StoreError::Unavailable { why: format!("etcd: {why}") }
}

fn wanted(at: Option<Revision>) -> Int {
    Int(at.map_or(0, |at| at.0))
}

pub(super) const WATCH: &str = "/v3/watch";
pub(super) const NO_LEASE: &str = "lease not found";
const COMPACTED: &str = "required revision has been compacted";
const FUTURE: &str = "required revision is a future revision";
