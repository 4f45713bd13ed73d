//! The work of a device after its requests: it ends sessions, and opens others.

use super::device::DelegatedDevice;
use std::time::Duration;
use tegmen_host::clock;
use tegmen_host::server::{Application, Router, SessionList};
use tokio::task::JoinSet;

/// Interval at which connections whose time is over are ended.
const INTERVAL: Duration = Duration::from_secs(1);

impl DelegatedDevice {
    /// Does the work of the device: closes the sessions of connections that ended and earlier sessions with the server of the device, and
    /// resumes sessions at servers elsewhere, where `application` answers requests of the peer. `sessions` are those of the server that
    /// [has](Self::configure) the device. It never returns; its owner drops it, which ends the sessions that the device opened.
    pub async fn run(&self, sessions: SessionList, application: impl Application + Sync) {
        let router = Router::of(application);
        let mut opened = JoinSet::new();
        loop {
            // A timeout is for connections whose time is over.
            let _ = tokio::time::timeout(INTERVAL, self.0.work.notified()).await;
            while opened.try_join_next().is_some() {}
            let (is_due, to_open) = {
                let state = &mut *self.state();
                if let Some(time) = state.device.get_mut().time(clock::now()) {
                    state.admitted.end_expired(time);
                }
                let has_ended = std::mem::replace(&mut state.has_ended, false) | state.admitted.take_ended();
                (has_ended, std::mem::take(&mut state.to_open))
            };
            if is_due {
                let (device, sessions) = (self.clone(), sessions.clone());
                // It fails if the runtime ends.
                let _ = tokio::task::spawn_blocking(move || device.close_ended(&sessions)).await;
            }
            for (go, server_name) in to_open {
                opened.spawn(self.clone().resume_at(go, server_name, router.clone()));
            }
        }
    }

    fn close_ended(&self, sessions: &SessionList) {
        for session in sessions.sessions() {
            let has_ended = match self.connection_of(session.principal) {
                Some(id) => self.state().admitted.get(id).is_none(),
                None => self.is_earlier(&session),
            };
            if has_ended {
                sessions.close(session.id);
            }
        }
    }

    /// True for a session with the server of the device that is not its last one.
    fn is_earlier(&self, session: &tegmen_host::server::Session) -> bool {
        let last = self.state().server.as_ref().map(|(id, _)| *id);
        self.is_server_principal(session.principal) && last.is_some_and(|last| last != session.id)
    }
}
