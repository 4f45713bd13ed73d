//! A conversation with a device: the server opens a session with the device, and sends all waiting requests.

use super::device::copy_key;
use super::epochs::{NextEpoch, Opened};
use super::error::DelegationError;
use super::memory::Device;
use super::pace::Pace;
use super::server::Delegations;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tegmen::buf::Writer;
use tegmen_base::crypto::Crypto;
use tegmen_base::hex::to_hex;
use tegmen_base::secret::same;
use tegmen_coap::Code;
use tegmen_delegation::{DeviceKey, EXPORTER, Request, Resource, Status};
use tegmen_host::client::{ClientConfig, ClientError, Session};
use tegmen_host::uri::Scheme;
use tegmen_store::Store;

/// Maximum number of bytes of a ticket or a session id that the server sends to a device. The limit is high because a
/// ticket of another server can contain the device's certificate.
pub(super) const LONGEST_HANDLE: usize = 2048;
/// Maximum number of bytes of a request to a device.
const LONGEST_REQUEST: usize = 1 + tegmen_delegation::STATE_LEN + LONGEST_HANDLE;
/// Maximum number of epochs that the server begins before it asks a device for its status. One epoch may be due at the
/// beginning, and another one if the device's list of refused connections is full. The third one is a reserve.
const MOST_EPOCHS: usize = 3;

/// The reason why a conversation failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    /// The session could not be opened, or the device did not respond.
    #[error("{0}")]
    Silent(#[from] ClientError),
    /// The session has no exported keying material.
    #[error("the session exports no keying material: the device has no extended master secret (RFC 7627)")]
    NotExported,
    /// The device refuses a request.
    #[error("the device answers {code} to /{path}")]
    Refused {
        /// The path of the resource.
        path: &'static str,
        /// The code of the response.
        code: Code,
    },
    /// The response contains no status.
    #[error("the device answers /dlg/st with no status: does its version fit that of the server?")]
    NoStatus,
    /// The device and the server are in different epochs.
    #[error("the device is in the epoch {device} and the server in the epoch {server}: imprint the device again")]
    OtherEpoch {
        /// The epoch of the device.
        device: u16,
        /// The epoch of the server.
        server: u16,
    },
    /// The device reports fewer refused connections than it acknowledged earlier, even after the server sent the whole
    /// list of refused connections again.
    #[error(
        "the device refuses {refused} connections, and acknowledged {acknowledged}: its memory loses revocations. Repair it; \
         `tegmen delegation reset` ends all its sessions"
    )]
    Forgets {
        /// The number of connections that the device refuses.
        refused: u16,
        /// The number of revoked connections for which the device has acknowledged that it refuses them.
        acknowledged: usize,
    },
    /// The server itself failed.
    #[error(transparent)]
    Server(#[from] DelegationError),
}

/// The epoch in which the device is. An opened session proves this epoch, because each epoch has another device key.
enum Proved {
    Present,
    /// The pending epoch, which is the next one. The device key of the session proves only the number of this epoch.
    /// The device must still compare the check value of the epoch. The check value differs if the device has other keys
    /// for this epoch.
    Next(NextEpoch),
}

/// A session with a device.
pub(super) struct Conversation {
    device: Arc<Device>,
    session: Session,
    opened: Opened,
    /// The address of the device, to which the session was opened.
    address: SocketAddr,
    /// True if the device has received the time in this session.
    has_time: bool,
    /// True if an epoch began in this session. Each ticket key comes from a separate handshake, so the next epoch
    /// begins in another session.
    has_begun: bool,
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.session.close();
    }
}

/// Returns true if the device did not answer the ClientHello, so that no key was tried.
const fn is_unheard(error: &ClientError) -> bool {
    matches!(error, ClientError::Silence { .. } | ClientError::Refused { .. } | ClientError::Unreachable { .. })
}

/// Opens a session with a device, under the device key of one epoch.
async fn connect(address: SocketAddr, identity: String, key: &DeviceKey, pace: &Pace) -> Result<Session, ClientError> {
    let psk = key.psk::<tegmen_host::provider::HostCrypto>(identity.as_bytes());
    let config = ClientConfig::psk(identity, &psk.expose()[..]).with(|config| {
        config.export = Some(EXPORTER);
        config.recovery.reconnect = false;
        (config.dtls.handshake_timeout, config.coap.timeout) = (pace.patience, pace.patience);
    });
    Session::connect_to(address, Scheme::Coaps, config).await
}

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Opens a session with a device, under the device key of the present epoch. If the device does not accept this
    /// key, the server tries the key of the pending epoch, because the device may have begun this epoch, and its
    /// response may have been lost.
    pub(super) async fn meet(&self, device: &Arc<Device>, pace: &Pace) -> Result<Conversation, Failed> {
        let (address, present, next) = {
            let known = &device.state().known;
            let next = known.pending.as_ref().map(|next| {
                (NextEpoch { number: next.number, check: next.check::<C>() }, copy_key(&next.key), next.number)
            });
            (known.config.address, (copy_key(&known.present.key), known.present.number), next)
        };
        let met =
            async |key: &DeviceKey, epoch: u16| connect(address, self.identity(&device.name, epoch), key, pace).await;
        let (session, proved, opened) = match (met(&present.0, present.1).await, next) {
            (Ok(session), next) => {
                let pending = next.map(|(next, ..)| next.check);
                (session, Proved::Present, Opened { key: present.0, pending })
            }
            // Nothing was proved before the ClientHello was answered.
            (Err(error), Some((next, key, epoch))) if !is_unheard(&error) => {
                let session = met(&key, epoch).await.map_err(|_| error)?;
                (session, Proved::Next(next), Opened { key, pending: None })
            }
            (Err(error), _) => return Err(error.into()),
        };
        let (device, has_time, has_begun) = (Arc::clone(device), false, false);
        let mut conversation = Conversation { device, session, opened, address, has_time, has_begun };
        if let Proved::Next(next) = proved {
            self.confirm(&mut conversation, next).await?;
        }
        Ok(conversation)
    }

    /// Returns a new PSK identity for a session with a device: the name of the device, the epoch and random digits. No
    /// identity is used twice, so no two sessions have the same key.
    fn identity(&self, name: &str, epoch: u16) -> String {
        let mut random = [0; 8];
        self.crypto().random(&mut random);
        format!("{name};{epoch};{}", to_hex(&random))
    }

    /// Completes the pending epoch `next`. A session under the device key of this epoch has proved that the device
    /// began an epoch with the same number. Sends the check value in `next` to the device. If the device has another
    /// check value, the device began the epoch of an earlier request. Then the server requests another epoch at once.
    async fn confirm(&self, conversation: &mut Conversation, next: NextEpoch) -> Result<(), Failed> {
        let name = conversation.device.name.clone();
        let is_same = conversation.tell_epoch(next, self.seconds()).await?;
        self.epoch_begun(&name, next).await?;
        if !is_same {
            self.reset(&name, "the device has other keys in this epoch").await?;
        }
        Ok(())
    }

    /// Sends all waiting requests to the device, and returns the status of the device. If the device returned to an
    /// older copy of its state, it refuses fewer connections than it acknowledged. The server then sends all refused
    /// connections again, but only once in a conversation.
    pub(super) async fn bring(&self, conversation: &mut Conversation, pace: &Pace) -> Result<Status, Failed> {
        let device = Arc::clone(&conversation.device);
        let mut tells_again = false;
        loop {
            for _ in 0..MOST_EPOCHS {
                self.bring_epoch(conversation, pace).await?;
                if self.bring_refusals(conversation).await? {
                    break;
                }
            }
            self.bring_sessions(conversation).await?;
            let acknowledged = device.state().told();
            let status = conversation.ask_status().await?;
            let server = device.state().known.present.number;
            if status.epoch != server {
                return Err(Failed::OtherEpoch { device: status.epoch, server });
            }
            let refused = status.refused;
            if usize::from(refused) >= acknowledged {
                return Ok(status);
            }
            if tells_again {
                return Err(Failed::Forgets { refused, acknowledged });
            }
            self.note_forgotten(&device, refused, acknowledged).await?;
            tells_again = true;
        }
    }

    /// Records that a device lost refusals that it had acknowledged. All refused connections of the present epoch must
    /// be sent again.
    async fn note_forgotten(&self, device: &Device, refused: u16, acknowledged: usize) -> Result<(), DelegationError> {
        self.count(|counts| &mut counts.forgotten);
        let name = &device.name;
        tracing::warn!(
            "delegation: the device {name} refuses {refused} connections, and acknowledged {acknowledged}: its state is an earlier copy. It \
             gets all of them again"
        );
        let message = format!(
            "the device {name} forgot revocations: it refuses {refused} connections, and acknowledged {acknowledged}"
        );
        self.write_or_note(true, "", "revocations-forgotten", message).await?;
        device.state().is_forgotten();
        Ok(())
    }

    /// Begins the next epoch if an epoch is due. If an epoch already began in the present session, opens another
    /// session for the next epoch. If the device began the epoch of another server while this session was opened, opens
    /// another session and completes that epoch. If no epoch is due, sends the time to the device, but only once in a
    /// session.
    async fn bring_epoch(&self, conversation: &mut Conversation, pace: &Pace) -> Result<(), Failed> {
        let name = conversation.device.name.clone();
        let present = {
            let known = &conversation.device.state().known;
            let present = NextEpoch { number: known.present.number, check: known.present.check::<C>() };
            (!known.is_next_due()).then_some(present)
        };
        match present {
            Some(_) if conversation.has_time => return Ok(()),
            Some(present) if conversation.tell_epoch(present, self.seconds()).await? => return Ok(()),
            Some(_) => self.reset(&name, "the device has other keys in this epoch").await?,
            None => {}
        }
        if conversation.has_begun {
            conversation.session.close();
            *conversation = self.meet(&Arc::clone(&conversation.device), pace).await?;
        }
        // The key of the session proves the epoch at the time when the device looked for the key. Since then, the device may
        // have begun the pending epoch. From now on it does not begin that epoch, because it has exported other keying material
        // from this session.
        let number = conversation.device.state().known.present.number;
        if conversation.opened.pending.is_some() && conversation.ask_status().await?.epoch != number {
            conversation.session.close();
            *conversation = self.meet(&Arc::clone(&conversation.device), pace).await?;
            return Ok(());
        }
        let exported = conversation.session.exported().ok_or(Failed::NotExported)?;
        let next = self.begin_epoch_under(&name, &exported, Some(&conversation.opened)).await?;
        match conversation.tell_epoch(next, self.seconds()).await? {
            true => {
                let key = conversation.opened.key.next::<C>();
                (conversation.opened, conversation.has_begun) = (Opened { key, pending: None }, true);
                Ok(self.epoch_begun(&name, next).await?)
            }
            false => Err(Failed::Refused { path: Resource::Epoch.path(), code: Code::CONFLICT }),
        }
    }

    /// Sends the connections that the device must refuse. Returns false if the device's list of refused connections is
    /// full. The next epoch is then due.
    async fn bring_refusals(&self, conversation: &Conversation) -> Result<bool, Failed> {
        let name = conversation.device.name.clone();
        for id in self.to_refuse(&name)? {
            match conversation.post(&Request::Refuse(id.number)).await? {
                Code::CHANGED => self.refused_by_device(&name, id).await?,
                Code::SERVICE_UNAVAILABLE => {
                    self.reset(&name, "the list of the device is full").await?;
                    return Ok(false);
                }
                code => return Err(Failed::Refused { path: Resource::Refuse.path(), code }),
            }
        }
        Ok(true)
    }

    /// Sends the sessions that wait for this device. If the device has no space for a session, the session is dropped,
    /// and the peer of this session must authenticate itself again.
    async fn bring_sessions(&self, conversation: &Conversation) -> Result<(), Failed> {
        loop {
            let waiting = {
                let state = &mut *conversation.device.state();
                let (tag, now) = (state.tag, self.now());
                state.handovers.take(tag, now)
            };
            let Some(waiting) = waiting else { return Ok(()) };
            let kept = match conversation.post(&waiting.keep()).await {
                Ok(Code::CHANGED) => match waiting.go() {
                    Some(go) => conversation.post(&go).await,
                    None => Ok(Code::CHANGED),
                },
                kept => kept,
            };
            match kept {
                Ok(Code::CHANGED) => self.count(|counts| &mut counts.handed_over),
                Ok(code) => {
                    self.count(|counts| &mut counts.not_given);
                    let (name, number) = (&conversation.device.name, waiting.number);
                    tracing::warn!("delegation: the device {name} answers {code} to the session {number}");
                }
                Err(error) => {
                    conversation.device.state().handovers.put_back(waiting);
                    return Err(error);
                }
            }
        }
    }
}

impl Conversation {
    /// Returns true if the session still belongs to the present device key and address. Returns false if one of them
    /// has changed since the session was opened.
    pub(super) fn is_current(&self) -> bool {
        let known = &self.device.state().known;
        known.config.address == self.address && same(known.present.key.0.expose(), self.opened.key.0.expose())
    }

    /// Waits until there is more work for the device, but at most for `time`. Returns true if there is work.
    pub(super) async fn linger(&self, time: Duration) -> bool {
        let has_more = async {
            while !self.device.state().has_work() {
                self.device.wanted.notified().await;
            }
        };
        tokio::time::timeout(time, has_more).await.is_ok()
    }

    /// Sends to the device the number and the check value of an epoch, and the present time. Returns false if the
    /// device has other keys for this epoch.
    async fn tell_epoch(&mut self, epoch: NextEpoch, time: u32) -> Result<bool, Failed> {
        let NextEpoch { number, check } = epoch;
        match self.post(&Request::Epoch { number, time, check }).await? {
            Code::CHANGED => {
                self.has_time = true;
                Ok(true)
            }
            Code::CONFLICT => Ok(false),
            code => Err(Failed::Refused { path: Resource::Epoch.path(), code }),
        }
    }

    async fn post(&self, request: &Request<'_>) -> Result<Code, Failed> {
        let mut room = zeroize::Zeroizing::new(vec![0; LONGEST_REQUEST]);
        let mut payload = Writer::new(&mut room);
        // No longer handle is handed over.
        let written = request.write(&mut payload);
        debug_assert!(written.is_ok(), "the buffer is for the longest request");
        let response = self.session.post(request.resource().path(), payload.written()).await?;
        Ok(response.code)
    }

    async fn ask_status(&self) -> Result<Status, Failed> {
        let path = Resource::Status.path();
        let response = self.session.get(path).await?;
        match response.code {
            Code::CONTENT => Status::read(&response.payload).map_err(|_| Failed::NoStatus),
            code => Err(Failed::Refused { path, code }),
        }
    }
}
