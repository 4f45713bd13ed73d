//! The background work of a device: it closes the sessions of connections that ended, and resumes the sessions that its
//! server sent to it.

use super::device::DelegatedDevice;
use std::time::Duration;
use tegmen_host::clock;
use tegmen_host::server::{Application, Router, SessionList};
use tokio::task::JoinSet;

/// The interval at which expired connections are ended.
const INTERVAL: Duration = Duration::from_secs(1);

impl DelegatedDevice {
    /// Does the work of the device. It closes the sessions of connections that ended, and earlier sessions with the
    /// device's server. It resumes sessions at remote servers. In these sessions `application` answers the requests of
    /// the peer. `sessions` are the sessions of the DTLS server that is the [endpoint](Self::configure) of the device.
    /// The future never returns. To stop the work, the owner drops the future, which ends the sessions that the device
    /// opened.
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

    /// Returns true if `session` is a session with the device's server, and the server has opened a later session.
    fn is_earlier(&self, session: &tegmen_host::server::Session) -> bool {
        let last = self.state().server.as_ref().map(|(id, _)| *id);
        self.is_server_principal(session.principal) && last.is_some_and(|last| last != session.id)
    }
}
