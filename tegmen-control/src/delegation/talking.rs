//! The task that contacts devices.

use super::conversation::Failed;
use super::memory::Device;
use super::pace::Pace;
use super::server::Delegations;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tegmen_base::crypto::Crypto;
use tegmen_delegation::Status;
use tegmen_store::Store;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// If the last successful contact with a device is at least this number of seconds ago, the server contacts the device
/// when a peer of the device authenticates itself. The reason is that the device may have restarted. A restarted device
/// refuses its peers until the server sends it the time, so the peers authenticate themselves again.
const UNHEARD: u64 = 60;
/// The time that a server leaves to another server of the store, which contacts a device because an epoch is due.
const LATER: Duration = Duration::from_secs(60);

impl<S: Store, C: Crypto + Send + 'static> Delegations<S, C> {
    /// Does the work of the server: makes the results of handshakes durable, reserves connection numbers for the next
    /// handshakes, and contacts devices. If several servers share the store, also follows the changes that the other
    /// servers make. The future never returns. To stop the work, the owner drops the future, which
    /// ends all conversations.
    pub async fn run(self: &Arc<Self>, pace: Pace) {
        tokio::join!(self.settle_always(), self.talk(pace), self.follow());
    }

    async fn talk(self: &Arc<Self>, pace: Pace) {
        let mut talks = JoinSet::new();
        self.agenda().resume(Instant::now());
        let places = Arc::new(Semaphore::new(pace.at_once.max(1)));
        loop {
            while talks.try_join_next().is_some() {}
            // Its semaphore is never closed.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let next = {
                let mut agenda = self.agenda();
                agenda.take(Instant::now()).ok_or_else(|| agenda.next())
            };
            match next {
                Ok(id) => {
                    if let Some(device) = self.registry(|registry| registry.numbered(id)) {
                        let (server, places) = (Arc::clone(self), Arc::clone(&places));
                        talks.spawn(async move {
                            server.speak_and_report(&device, &pace, &places).await;
                            drop(place);
                        });
                    }
                }
                Err(at) => {
                    drop(place);
                    let due = async {
                        match at {
                            Some(at) => tokio::time::sleep_until(at.into()).await,
                            None => pending().await,
                        }
                    };
                    tokio::select! {
                        () = due => {}
                        () = self.speak.notified() => {}
                    }
                }
            }
        }
    }

    /// Has one conversation with a device, and plans the next conversation with it.
    async fn speak_and_report(&self, device: &Arc<Device>, pace: &Pace, places: &Semaphore) {
        let spoken = self.speak_with(device, pace, places).await;
        let now = Instant::now();
        match spoken {
            Ok(()) => self.agenda().spoke(device.id, now, pace.every),
            Err(error) => {
                let part = self.part();
                self.agenda().failed(device.id, now, (pace.first_pause, pace.longest_pause), part);
                self.missed(device, &error);
            }
        }
        self.speak.notify_one();
        if device.state().has_work() {
            self.want(device);
        }
    }

    async fn speak_with(&self, device: &Arc<Device>, pace: &Pace, places: &Semaphore) -> Result<(), Failed> {
        if device.state().known.disabled && !device.state().has_work() {
            return Ok(());
        }
        let mut conversation = self.meet(device, pace).await?;
        loop {
            let status = self.bring(&mut conversation, pace).await?;
            self.heard(device, status);
            // Others wait for a place.
            let has_more = places.available_permits() > 0 && conversation.linger(pace.linger).await;
            if !has_more || !conversation.is_current() {
                return Ok(());
            }
        }
    }

    fn heard(&self, device: &Device, status: Status) {
        if device.state().contact.heard(self.now(), status) {
            tracing::info!("delegation: the device {} is reached again", device.name);
        }
        self.count(|counts| &mut counts.conversations);
    }

    fn missed(&self, device: &Device, error: &Failed) {
        let address = device.state().known.config.address;
        if device.state().contact.missed(self.now(), error.to_string()) {
            tracing::warn!("delegation: the device {} at {address} is not reached: {error}", device.name);
        }
        self.count(|counts| &mut counts.failed_conversations);
    }
}

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Returns a random number from 0 to 1.
    fn part(&self) -> f64 {
        let mut random = [0; 4];
        self.crypto().random(&mut random);
        f64::from(u32::from_ne_bytes(random)) / f64::from(u32::MAX)
    }

    /// Plans a conversation with a device, and wakes the task that contacts devices.
    pub(super) fn want(&self, device: &Device) {
        self.agenda().want(device.id, Instant::now());
        device.wanted.notify_one();
        self.speak.notify_one();
    }

    /// Plans a conversation after a time from [`LATER`] to twice this time. Another server of the store contacts the
    /// device now. This conversation is for the case that the other server cannot complete the work.
    pub(super) fn want_later(&self, device: &Device) {
        let pause = LATER.saturating_add(LATER.mul_f64(self.part()));
        let now = Instant::now();
        self.agenda().want(device.id, now.checked_add(pause).unwrap_or(now));
        self.speak.notify_one();
    }

    /// Plans a conversation at once, even during the pause after a failure. The caller calls this function after the
    /// key or the address of the device has changed.
    pub(super) fn want_at_once(&self, device: &Device) {
        self.agenda().end_pause(device.id);
        self.want(device);
    }

    /// Plans a session with the device if the last successful contact was [`UNHEARD`] seconds ago or earlier. The
    /// caller calls this function after a peer of the device has authenticated itself at the server.
    pub(super) fn want_if_unheard(&self, device: &Device) {
        let heard = device.state().contact.heard;
        if heard.is_none_or(|heard| heard.saturating_add(UNHEARD) <= self.now()) {
            self.want(device);
        }
    }
}
