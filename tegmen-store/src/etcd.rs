//! A store of rows with revisions in a cluster of etcd, which several servers share.
//!
//! ```text
//! NAME/row/KEY      a row of the store: a byte for its kind, and its content
//! NAME/data-key     the data key, sealed under the sealing key
//! ```
//!
//! The driver uses the JSON gateway of etcd over HTTP, which needs no generated code. A separate thread holds the
//! connections, so a caller needs no asynchronous runtime. The revisions and leases of the store are the revisions and
//! leases of etcd. If an operator restores a snapshot of etcd, etcd uses the revisions after the snapshot a second
//! time.
//!
//! If a majority of the members does not answer, a call fails with [`StoreError::Unavailable`] within about five
//! seconds. Only [`Store::changes`] waits until the cluster answers again, and then continues after the last change
//! that it returned.

mod address;
mod cluster;
mod committing;
mod content;
mod gateway;
mod watching;
mod wire;

pub use address::Address;

use crate::StateError;
use crate::sealing::{Keeper, Sealer};
use crate::store::answer::{Answer, promise};
use crate::store::{Changes, Found, LeaseId, Page, Revision, Scan, Store, StoreError, Transaction};
use cluster::{Cluster, unavailable};
use gateway::Gateway;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use watching::Watches;
use wire::{Base64, Compare, Operation, PutRequest, RangeRequest, RangeResponse, TxnRequest, TxnResponse};

/// A store in a cluster. Clones use the same store. The connections end when the last clone is dropped.
#[derive(Clone)]
pub struct Etcd(Arc<Shared>);

struct Shared {
    calls: Arc<Calls>,
    runtime: Handle,
    end: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Calls {
    cluster: Cluster,
    watches: Watches,
}

impl Etcd {
    /// Connects to a cluster. Reads the data key of the store, or makes a random data key. If `sealing` is `None`,
    /// secrets are neither written nor read.
    ///
    /// # Errors
    /// [`StateError::Unreachable`] if no majority of the members answers, [`StateError::Sealing`] if the store was made
    /// with another sealing key.
    pub fn open(address: &Address, sealing: Option<&dyn Keeper>) -> Result<Self, StateError> {
        let failed = |source| StateError::File { file: address.to_string(), source };
        let (end, ended) = oneshot::channel::<()>();
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name("tegmen-etcd".to_owned());
        let thread = thread.spawn(move || drop(runtime.block_on(ended))).map_err(failed)?;
        let cluster = Cluster { address: address.clone(), gateway: Gateway::new(address), sealer: None };
        let shared = |cluster| Shared {
            calls: Arc::new(Calls { cluster, watches: Watches::default() }),
            runtime: handle.clone(),
            end: Mutex::new(Some(end)),
            thread: Mutex::new(Some(thread)),
        };
        let Some(keeper) = sealing else { return Ok(Self(Arc::new(shared(cluster)))) };
        let (cluster, sealed) = run(&handle, async move {
            let sealed = cluster.data_key().await;
            (cluster, sealed)
        })
        .map_err(failed)?;
        let unreachable = |error: StoreError| {
            let why = error.to_string();
            StateError::Unreachable { address: address.to_string(), why }
        };
        let at = address.to_string();
        let (sealer, drawn) = Sealer::begin(keeper, sealed.map_err(unreachable)?.as_deref(), Path::new(&at))?;
        let Some(drawn) = drawn else { return Ok(Self(Arc::new(shared(Cluster { sealer: Some(sealer), ..cluster })))) };
        let (cluster, kept) = run(&handle, async move {
            let kept = cluster.keep_data_key(drawn).await;
            (cluster, kept)
        })
        .map_err(failed)?;
        // Another server may have drawn one at the same time.
        let (sealer, _) = Sealer::begin(keeper, Some(&kept.map_err(unreachable)?), Path::new(&at))?;
        Ok(Self(Arc::new(shared(Cluster { sealer: Some(sealer), ..cluster }))))
    }

    fn call<T: Send + 'static, F>(&self, call: impl FnOnce(Arc<Calls>) -> F) -> Answer<T>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (promise, answer) = promise();
        let call = call(Arc::clone(&self.0.calls));
        self.0.runtime.spawn(async move { promise.answer(call.await) });
        answer
    }
}

/// Runs a future on the runtime of another thread, and waits for its result.
fn run<T: Send + 'static>(runtime: &Handle, task: impl Future<Output = T> + Send + 'static) -> io::Result<T> {
    let (sender, receiver) = mpsc::channel();
    runtime.spawn(async move { sender.send(task.await) });
    receiver.recv().map_err(io::Error::other)
}

impl Cluster {
    /// Reads the sealed data key of the store; `None` if the store has none.
    async fn data_key(&self) -> Result<Option<Vec<u8>>, StoreError> {
        let request = RangeRequest { key: Base64(self.address.data_key()), ..Default::default() };
        let found: RangeResponse = self.gateway.call("/v3/kv/range", &request, true).await.map_err(unavailable)?;
        Ok(found.kvs.into_iter().next().map(|row| row.value.0))
    }

    /// Stores the sealed data key `sealed`, unless the store already has a data key. Returns the sealed data key that
    /// is in the store after this call.
    async fn keep_data_key(&self, sealed: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        let key = || Base64(self.address.data_key());
        let request = TxnRequest {
            compare: vec![Compare::changed(key(), 0)],
            success: vec![Operation::Put(PutRequest { key: key(), value: Base64(sealed), lease: wire::Int(0) })],
            failure: Vec::new(),
        };
        // The first data key stays, so the request can be sent again.
        let _: TxnResponse = self.gateway.call("/v3/kv/txn", &request, true).await.map_err(unavailable)?;
        self.data_key().await?.ok_or_else(StoreError::closed)
    }
}

impl Store for Etcd {
    fn read(&self, key: &[u8], at: Option<Revision>) -> Answer<Found> {
        let key = key.to_vec();
        self.call(|calls| async move { calls.cluster.read(&key, at).await })
    }

    fn scan(&self, scan: Scan) -> Answer<Page> {
        self.call(|calls| async move { calls.cluster.scan(&scan).await })
    }

    fn commit(&self, transaction: Transaction) -> Answer<Revision> {
        self.call(|calls| async move { calls.cluster.commit(&transaction).await })
    }

    fn changes(&self, prefix: &[u8], after: Revision, most: usize) -> Answer<Changes> {
        let (promise, answer) = promise();
        let (calls, wanted) = (Arc::clone(&self.0.calls), (prefix.to_vec(), after, most));
        self.0.runtime.spawn(async move { calls.cluster.changes(&calls.watches, wanted, promise).await });
        answer
    }

    fn compact(&self, through: Revision) -> Answer<()> {
        self.call(|calls| async move { calls.cluster.compact(through).await })
    }

    fn grant(&self, ttl: Duration) -> Answer<LeaseId> {
        self.call(|calls| async move { calls.cluster.grant(ttl).await })
    }

    fn renew(&self, lease: LeaseId) -> Answer<()> {
        self.call(|calls| async move { calls.cluster.renew(lease).await })
    }

    fn revoke(&self, lease: LeaseId) -> Answer<()> {
        self.call(|calls| async move { calls.cluster.revoke(lease).await })
    }

    fn is_shared(&self) -> bool {
        true
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        drop(self.end.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}
