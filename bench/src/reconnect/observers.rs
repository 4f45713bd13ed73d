//! Observers whose server is killed and started again, with and without `--state`.

use super::serve;
use crate::{coap::Process, ours::failure};
use std::{
    cell::Cell,
    net::SocketAddr,
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};
use tegmen::coap::Code;
use tegmen_bench_line::{Failure, IDENTITY};
use tegmen_host::client::{Ask, Client, ClientConfig, ClientError, ClientKey};
use tokio::{
    task::{JoinSet, LocalSet},
    time::{sleep, timeout},
};

/// Observers, each with a socket of its own.
pub(super) const COUNT: u32 = 3_000;
/// Time after which observers that are not registered or not notified are given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Longest silence of the server after which an observer asks it again.
const ALIVE: Duration = Duration::from_secs(4);
/// Time in which the server writes its state before it is killed, and time without a server.
const BEFORE: Duration = Duration::from_secs(5);
const WITHOUT: Duration = Duration::from_secs(1);

/// Seconds from the start of the second server until each observer has its value, for those that have it.
pub(super) fn restart(directory: &Path, state: Option<&Path>) -> Result<Vec<f64>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
    LocalSet::new().block_on(&runtime, observe(directory, state))
}

async fn observe(directory: &Path, state: Option<&Path>) -> Result<Vec<f64>, Failure> {
    let first = Process::start(|port| serve(port, directory, "first", state).ok())?;
    let address = SocketAddr::from(first.address);
    let registered = Rc::new(Cell::new(0));
    let mut observers = JoinSet::new();
    for _ in 0..COUNT {
        observers.spawn_local(observer(address, Rc::clone(&registered)));
    }
    let begin = Instant::now();
    while registered.get() < COUNT {
        if begin.elapsed() > PATIENCE {
            return Err(Failure::new(format!("{} of {COUNT} observers are registered", registered.get())));
        }
        sleep(Duration::from_millis(100)).await;
    }
    sleep(BEFORE).await;
    // Kills it with SIGKILL, and waits for its end.
    drop(first);
    sleep(WITHOUT).await;
    let back = Instant::now();
    let _second = Process::start(|_| serve(address.port(), directory, "second", state).ok())?;
    let (mut seconds, mut ended) = (Vec::new(), None);
    let all = async {
        while let Some(outcome) = observers.join_next().await {
            match outcome {
                Ok(Ok(at)) => seconds.push(at.duration_since(back).as_secs_f64()),
                Ok(Err(error)) => ended = Some(error.to_string()),
                Err(error) => ended = Some(error.to_string()),
            }
        }
    };
    // Observers without the second value by then are missing in what is returned.
    let _ = timeout(PATIENCE, all).await;
    match ended {
        Some(reason) => Err(Failure::new(format!("{} of {COUNT} are notified again: {reason}", seconds.len()))),
        None => Ok(seconds),
    }
}

/// Observes until the value of the second server comes; when that was.
async fn observer(address: SocketAddr, registered: Rc<Cell<u32>>) -> Result<Instant, ClientError> {
    let key = ClientKey { identity: IDENTITY.to_owned(), key: crate::fleet::SECRET.as_bytes().to_vec().into() };
    let config = ClientConfig { key: Some(key), alive: Some(ALIVE), ..ClientConfig::default() };
    let mut client = Client::connect_to(address, true, config).await?;
    let path = ["time".to_owned()];
    let ask = Ask {
        method: Code::GET,
        path: &path,
        query: &[],
        content_format: None,
        accept: None,
        payload: &[],
        options: &[],
    };
    let mut observation = client.observe(&ask).await?;
    if observation.is_registered() {
        registered.set(registered.get() + 1);
    }
    while let Some(reply) = observation.next().await? {
        if reply.payload == b"second" {
            break;
        }
    }
    Ok(Instant::now())
}
