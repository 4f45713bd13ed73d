//! The members of the group in the demonstration of `tegmen up` (the tour): lamps, and a switch.

use super::folder::Folder;
use super::parties::{AccessControl, Words};
use crate::output::{Failure, Output};
use crate::random;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tegmen::coap::Code;
use tegmen_host::client::{ClientConfig, Request, ask_members};
use tegmen_host::controller::{Controller, ControllerError, Joining};
use tegmen_host::group::{MemberSettings, Membership};
use tegmen_host::server::{Router, Server, ServerConfig};
use tokio::sync::Notify;
use zeroize::Zeroizing;

/// The name of the group at its controller.
pub(super) const GROUP: &str = "lights";
/// The path of the state of a lamp.
pub(super) const LIGHT: &str = "/light";
/// The port of the group.
const PORT: u16 = 20792;
/// Maximum random delay of the answer of a lamp.
const LEISURE: Duration = Duration::from_millis(100);
/// Maximum duration of each wait for a result.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The addresses of the group and of its members at the loopback interface. Each run of the program draws other
/// addresses.
#[derive(Clone, Copy)]
pub(super) struct Addresses([u8; 2]);

impl Addresses {
    /// Draws random addresses.
    pub(super) fn draw() -> Result<Self, Failure> {
        // 127.0.0.0/16 is left to other programs.
        Ok(Self(random::bytes()?.map(|byte| 1 + byte % 254)))
    }

    /// Returns the multicast address and the port of the group.
    pub(super) fn group(self) -> SocketAddr {
        let Self([high, low]) = self;
        ([239, 255, high, low], PORT).into()
    }

    /// Returns the loopback address whose last byte is `number`.
    pub(super) fn own(self, number: u8) -> IpAddr {
        let Self([high, low]) = self;
        [127, high, low, number].into()
    }
}

/// A device that shares a key with the access control server.
pub(super) struct Device {
    pub(super) name: &'static str,
    pub(super) key: Zeroizing<[u8; 32]>,
    pub(super) address: IpAddr,
    /// The directory in which the device stores its membership.
    pub(super) dir: PathBuf,
    controller: Controller,
}

impl Device {
    /// Registers a device with a new shared key at the access control server.
    pub(super) async fn enrol(
        words: &Words,
        address: IpAddr,
        access: &AccessControl,
        folder: &Folder,
    ) -> Result<Self, Failure> {
        let (name, key) = (words.name(), access.enrol(words).await?);
        let config = ClientConfig::psk(name, &key[..]);
        let controller = Controller::of_group(&format!("coaps://{}/ace-group/{GROUP}", access.address()?), config);
        Ok(Self { name, key, address, dir: folder.path(name), controller: controller.map_err(Failure::new)? })
    }

    /// Joins the group. If `sends` is true, the member may send requests.
    pub(super) async fn join(&self, sends: bool) -> Result<Membership, ControllerError> {
        let joining = Joining { address: Some(self.address), listens: true, sends };
        self.controller.join(&self.dir, joining, &MemberSettings::default()).await
    }

    /// Asks the controller for the keys of the current epoch. Returns true if the membership then has the keys of a
    /// later epoch than before.
    pub(super) async fn catch_up(&self, membership: &Membership) -> Result<bool, ControllerError> {
        self.controller.catch_up(membership).await
    }
}

/// The state of a lamp.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Light {
    pub(super) is: String,
    /// The number of requests that set the state.
    pub(super) switched: u32,
}

/// The numbers of records that a lamp has dropped, for each reason.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Dropped {
    /// Number of dropped records that the lamp had received before.
    pub(super) replayed: u32,
    /// Number of dropped records with a wrong tag.
    pub(super) forged: u32,
    /// Number of all other dropped records, such as records of an epoch whose keys the lamp does not have.
    pub(super) other: u32,
}

impl Dropped {
    /// Returns the sums of two counts of dropped records: for each reason to drop a record, the number in `self` plus
    /// the number in `more`.
    pub(super) const fn and(self, more: Self) -> Self {
        Self {
            replayed: self.replayed.saturating_add(more.replayed),
            forged: self.forged.saturating_add(more.forged),
            other: self.other.saturating_add(more.other),
        }
    }
}

/// A lamp, which is a member of the group.
pub(super) struct Lamp {
    pub(super) device: Device,
    pub(super) membership: Membership,
    light: Arc<Mutex<Light>>,
    server: Server,
}

impl Lamp {
    /// Starts the server of a lamp. `walked` becomes true after the last step of the demonstration. From then on, the
    /// server prints each request that sets the state of the lamp.
    pub(super) fn start(
        device: Device,
        membership: Membership,
        out: Output,
        walked: &Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let light = Arc::new(Mutex::new(Light { is: "off".to_owned(), switched: 0 }));
        let (set, walked, name) = (Arc::clone(&light), Arc::clone(walked), device.name);
        let router = Router::new().put(LIGHT, move |request, response| {
            let is = String::from_utf8(request.payload().to_vec()).map_err(|_| Code::BAD_REQUEST)?;
            if !matches!(is.as_str(), "on" | "off") {
                return Err(Code::BAD_REQUEST);
            }
            if walked.load(Ordering::Relaxed) {
                let shown = || json!({ "event": "lamp", "lamp": name, "light": is });
                out.line(|| format!("The lamp {name} is {is}."), shown);
            }
            response.set_code(Code::CHANGED);
            response.payload(format!("{name} is {is}").as_bytes())?;
            let mut light = set.lock().unwrap_or_else(PoisonError::into_inner);
            *light = Light { is, switched: light.switched.saturating_add(1) };
            Ok(())
        });
        let config = ServerConfig::default().with(|config| (config.shards, config.coap.leisure) = (1, LEISURE));
        let server = Server::with(config).member_of(membership.clone()).on_event(|_| {}).serve(router);
        Ok(Self { device, membership, light, server: server.map_err(Failure::new)? })
    }

    /// Returns the state of the lamp.
    pub(super) fn light(&self) -> Light {
        self.light.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the numbers of records that the lamp has dropped until now.
    pub(super) async fn dropped(&self) -> Dropped {
        let _ = tokio::time::timeout(PATIENCE, self.server.pulse().beats()).await;
        let counters = self.server.totals().counters;
        let other = [counters.malformed, counters.unknown_peer, counters.unexpected, counters.no_room];
        Dropped { replayed: counters.replayed, forged: counters.not_authentic, other: other.iter().sum() }
    }

    /// Stops the server of the lamp. Returns the number of handshake flights that this server retransmitted.
    pub(super) fn stop(self) -> u32 {
        self.server.stop().counters.retransmitted
    }
}

/// The answer of a member to a request to the group.
pub(super) struct Answer {
    pub(super) from: IpAddr,
    pub(super) text: String,
    pub(super) after: Duration,
}

/// Sends one request to the group. Waits until `expected` members have answered, or until [`PATIENCE`] is over. Returns
/// the answers.
///
/// # Errors
/// The cause, as a text.
pub(super) async fn switch(membership: &Membership, value: &str, expected: usize) -> Result<Vec<Answer>, String> {
    let (answers, all) = (Mutex::new(Vec::new()), Notify::new());
    let request = Request::new(Code::PUT, LIGHT).payload(value.as_bytes());
    let asking = ask_members(membership, &request, PATIENCE, |from, response| {
        let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&response.payload).into_owned();
        answers.push(Answer { from: from.ip(), text, after: response.round_trip });
        if answers.len() == expected {
            all.notify_one();
        }
    });
    tokio::select! {
        asked = asking => drop(asked.map_err(|error| error.to_string())?),
        () = all.notified() => {}
    }
    Ok(answers.into_inner().unwrap_or_else(PoisonError::into_inner))
}
