//! Measures how soon observers are notified after their server was killed and started again, with and without
//! `--state`.

use super::{await_handshake, listens, words};
use crate::{failure::failure, server::Process};
use std::{
    cell::Cell,
    net::SocketAddr,
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};
use tegmen_bench_line::{Failure, IDENTITY};
use tegmen_host::client::{ClientConfig, ClientError, ClientKey, Session};
use tegmen_host::uri::Scheme;
use tokio::{
    task::{JoinSet, LocalSet},
    time::{sleep, timeout},
};

/// Number of observers. Each observer has its own socket.
pub(super) const COUNT: u32 = 3_000;
/// Maximum time for which the benchmark waits until all observers are registered, and then until all are notified.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum time without a message from the server. After this time an observer sends its request again.
const ALIVE: Duration = Duration::from_secs(4);
/// Time from the registration of the last observer until the server is killed. The server writes its state in this
/// time.
const BEFORE: Duration = Duration::from_secs(5);
/// Time from the moment at which the server is killed until it is started again.
const WITHOUT: Duration = Duration::from_secs(1);

/// The state of the observers after a restart.
pub(super) struct Notified {
    /// Number of observers that registered before the server was killed.
    pub(super) registered: u32,
    /// For each observer that received a response or notification after the second start of the server, the time from
    /// this start in seconds.
    pub(super) seconds: Vec<f64>,
    /// The error with which one of the other observers ended; `None` if there was no error.
    pub(super) ended: Option<String>,
}

/// Kills the server `name` while clients observe its resource `/time`, and starts the server again.
pub(super) fn restart(name: &str, directory: &Path, state: Option<&Path>) -> Result<Notified, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
    LocalSet::new().block_on(&runtime, observe(name, directory, state))
}

async fn observe(name: &str, directory: &Path, state: Option<&Path>) -> Result<Notified, Failure> {
    let first = Process::start(|port| words(name, port, directory, state).ok())?;
    let (given, address) = (first.address, listens(name, first.address));
    await_handshake(address)?;
    let (registered, back) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
    let mut observers = JoinSet::new();
    for _ in 0..COUNT {
        observers.spawn_local(observer(SocketAddr::from(address), Rc::clone(&registered), Rc::clone(&back)));
    }
    let begin = Instant::now();
    while registered.get() < COUNT && begin.elapsed() < PATIENCE {
        sleep(Duration::from_millis(100)).await;
    }
    sleep(BEFORE).await;
    // Kills it with SIGKILL, and waits for its end.
    drop(first);
    sleep(WITHOUT).await;
    let began = Instant::now();
    back.set(Some(began));
    let _second = Process::start(|_| words(name, given.port(), directory, state).ok())?;
    let mut notified = Notified { registered: registered.get(), seconds: Vec::new(), ended: None };
    let all = async {
        while let Some(outcome) = observers.join_next().await {
            match outcome {
                Ok(Ok(at)) => notified.seconds.push(at.duration_since(began).as_secs_f64()),
                Ok(Err(error)) => notified.ended = Some(error.to_string()),
                Err(error) => notified.ended = Some(error.to_string()),
            }
        }
    };
    // Observers without a value by then are missing.
    let _ = timeout(PATIENCE, all).await;
    Ok(notified)
}

/// Observes the resource `/time` of the server at `address`. Ends with the first successful response or notification
/// that arrives after the second start of the server, and returns the time when it arrived. `back` contains the time of
/// the second start, or `None` if the server has not been started again yet.
async fn observer(
    address: SocketAddr,
    registered: Rc<Cell<u32>>,
    back: Rc<Cell<Option<Instant>>>,
) -> Result<Instant, ClientError> {
    let key = ClientKey { identity: IDENTITY.to_owned(), key: crate::fleet::SECRET.as_bytes().to_vec().into() };
    let mut config = ClientConfig::default();
    config.trust.key = Some(key);
    config.recovery.alive = Some(ALIVE);
    let client = Session::connect_to(address, Scheme::Coaps, config).await?;
    let mut observation = client.observe("/time").await?;
    if observation.is_registered() {
        registered.set(registered.get() + 1);
    }
    while let Some(reply) = observation.next().await? {
        if reply.code.is_success() && back.get().is_some() {
            break;
        }
    }
    Ok(Instant::now())
}
