//! The handshake of a client: gives the DTLS endpoint the keys, signatures and verifications that it needs, and
//! explains failures.

use super::connection::Connection;
use super::places::Arrived;
use super::{ClientError, Session};
use crate::clock;
use crate::digest::Digest;
use crate::provider::public::draw_premaster;
use crate::x509::{CertificateInfo, Purpose};
use std::time::Duration;
use tegmen::dtls::{AlertDescription, Answer, CertificateType, CipherSuite, Fatal, Need, certificates};
use tegmen::endpoint::{Event, Peers as _};
use tegmen::identity::Principal;

/// The time for which the client waits for the server's Finished, as a multiple of the first retransmission timeout. In
/// this time the client sends its own Finished three times. Then the client sends a new ClientHello, and waits twice
/// this time in the next handshake.
const PATIENCE: u32 = 5;

impl Session {
    /// Waits until the session is established.
    pub(super) async fn handshake(&self, timeout: Duration) -> Result<(), ClientError> {
        let place = self.place();
        self.with(|connection| {
            if let Some(place) = connection.entry.places.get(place.at()) {
                place.listens = true;
            }
        });
        let start = clock::now();
        let deadline = start.after(timeout).after_millis(1000);
        // A server that has forgotten a handshake answers nothing of it, but it answers a new ClientHello.
        let tick = self.config().dtls.retransmit_first;
        let (mut waited, mut patience, mut after_finished) = (0, PATIENCE, false);
        loop {
            let until = deadline.min(clock::now().after(tick));
            match self.wait(&place, until, |connection, at| connection.handshake_result(at)).await {
                Some(Ok(())) => {
                    self.with(|connection| connection.entry.handshake_time = clock::now().since(start));
                    return Ok(());
                }
                Some(Err(error)) => return Err(error),
                None if clock::now() < deadline => {
                    if !self.with(|connection| connection.awaits_server_finished()) {
                        continue;
                    }
                    after_finished = true;
                    waited += 1;
                    if waited >= patience {
                        (waited, patience) = (0, patience.saturating_mul(2));
                        self.with(|connection| connection.send_hello(None))?;
                    }
                }
                None => return Err(self.with(|connection| connection.explain(Fatal::TimedOut { after_finished }))),
            }
        }
    }
}

impl Connection<'_> {
    /// Returns the result of a handshake, or `None` while the handshake continues.
    fn handshake_result(&mut self, at: usize) -> Option<Result<(), ClientError>> {
        if let Some(Arrived::Refused(error)) = self.entry.places.get(at).and_then(|place| place.arrived.pop_front()) {
            return Some(Err(error));
        }
        if let Some(error) = self.entry.failure.take() {
            return Some(Err(error));
        }
        if let Some(reason) = self.entry.closed {
            return Some(Err(self.explain(reason)));
        }
        if let Some(error) = self.end() {
            return Some(Err(error));
        }
        self.entry.established.then_some(Ok(()))
    }

    fn awaits_server_finished(&mut self) -> bool {
        let handshake = self.io.node.endpoint.peers.handshake(self.entry.peer);
        handshake.is_some_and(|handshake| handshake.state.awaits_server_finished())
    }

    fn explain(&self, reason: Fatal) -> ClientError {
        let remote = self.entry.remote;
        let identity = self.entry.config.trust.key.as_ref().map(|key| key.identity.clone()).unwrap_or_default();
        let handshake = |detail: &str| ClientError::Handshake { remote, detail: detail.to_owned() };
        match reason {
            Fatal::TimedOut { after_finished: false } => {
                ClientError::Silence { remote, seconds: self.entry.config.dtls.handshake_timeout.as_secs() }
            }
            Fatal::TimedOut { after_finished: true } => {
                ClientError::Unfinished { remote, seconds: self.entry.config.dtls.handshake_timeout.as_secs() }
            }
            // decrypt_error, or instead of it bad_record_mac or unknown_psk_identity, which some servers send.
            Fatal::Alert(alert) if matches!(alert.0, 51 | 20 | 115) && self.entry.config.trust.key.is_some() => {
                ClientError::IdentityOrKey { remote, identity, detail: alert.name() }
            }
            Fatal::Alert(alert) if alert.0 == 40 => ClientError::Handshake {
                remote,
                detail:
                    "the server sent handshake_failure: it has no cipher suite of ours (--suites), wants a certificate of ours \
                         (--cert), or knows no identity of this name"
                        .to_owned(),
            },
            Fatal::Alert(alert) => ClientError::Handshake {
                remote,
                detail: format!("the server sent {alert}{}", next_step(alert)),
            },
            Fatal::Refused(_) if let Some(refusal) = &self.entry.refusal => {
                ClientError::Handshake { remote, detail: format!("the server is not trusted: {refusal}") }
            }
            Fatal::BadSignature => handshake("the server does not have the private key of what it showed: somebody else answered"),
            Fatal::Version => handshake("the server speaks no DTLS 1.2"),
            Fatal::IllegalParameter | Fatal::UnsupportedExtension => handshake("the server chose what was not offered"),
            Fatal::BadFinished => handshake("the server's Finished is wrong: somebody changed the handshake"),
            Fatal::UnexpectedMessage(kind) => ClientError::Handshake {
                remote,
                detail: format!("handshake message {} came out of turn: does the server want certificates?", kind.0),
            },
            Fatal::Decode => handshake("a message of the server does not parse"),
            other => ClientError::Handshake { remote, detail: format!("{other:?}") },
        }
    }

    /// Gives the handshake the key, the signature or the verification that it needs now.
    pub(super) fn on_need(&mut self) -> Option<Event> {
        match self.io.node.endpoint.need(self.entry.peer) {
            Some(Need::PskForServer { hint }) => self.entry.hint = hint.to_vec(),
            Some(Need::VerifyPeer { certificate_type, content }) => {
                let content = content.to_vec();
                if certificate_type == CertificateType::X509 {
                    self.entry.chain = certificates(&content).filter_map(CertificateInfo::parse).collect();
                }
                let encrypts =
                    self.io.node.endpoint.cipher_suite(self.entry.peer).is_some_and(CipherSuite::encrypts_to_server);
                let purpose = if encrypts { Purpose::EncryptedServer } else { Purpose::Server };
                let keys = self.entry.config.trust.public_keys.clone().unwrap_or_default();
                let verified = keys.verify(certificate_type, &content, purpose);
                let answer = match &verified {
                    Ok(verified) => {
                        let principal = self.principal_of(&verified.name, certificate_type, verified.digest);
                        Answer::Peer { public_key: verified.spki, principal }
                    }
                    Err(refusal) => Answer::Refused(refusal.alert()),
                };
                let event = self.answer(answer);
                match verified {
                    Ok(verified) => {
                        (self.entry.server, self.entry.believed_until) = (Some(verified.name), verified.until)
                    }
                    Err(refusal) => self.entry.refusal = Some(refusal),
                }
                return event;
            }
            Some(Need::Sign { credential, digest, .. }) => {
                let signature = self.io.node.endpoint.roles.keys.sign(credential, &digest);
                return self.answer(signature.as_deref().map_or(Answer::Unknown, Answer::Signature));
            }
            Some(Need::Encrypt { public_key, version }) => {
                let drawn = draw_premaster(&mut self.io.environment.crypto, public_key, version);
                return self.answer(match &drawn {
                    Some((premaster, encrypted)) => Answer::Encrypted { premaster, encrypted },
                    None => Answer::Unknown,
                });
            }
            Some(Need::PskOfClient { .. } | Need::Decrypt { .. } | Need::VerifyCertificate { .. }) | None => {}
        }
        let answer = match &self.entry.config.trust.key {
            Some(key) => {
                Answer::Psk { identity: key.identity.as_bytes(), key: &key.key, principal: self.entry.principal }
            }
            None => Answer::Unknown,
        };
        // As [`Self::answer`], while the key is borrowed.
        let mut cx = self.io.environment.at(clock::now());
        self.io.node.endpoint.resume(&mut cx, self.entry.peer, answer)
    }

    /// Returns the principal of a server that proved this name. If the server sends requests to this client, the
    /// requests have this principal.
    fn principal_of(&self, name: &str, kind: CertificateType, digest: Digest) -> Principal {
        let serving = self.io.arrivals.serving.as_ref();
        serving.map_or(self.entry.principal, |serving| serving.credentials().certified_as(name, kind, digest))
    }

    fn answer(&mut self, answer: Answer<'_>) -> Option<Event> {
        let mut cx = self.io.environment.at(clock::now());
        self.io.node.endpoint.resume(&mut cx, self.entry.peer, answer)
    }
}

/// Returns a text for the user: the next step after an alert of the server. The error message contains this text after
/// the name of the alert.
const fn next_step(alert: AlertDescription) -> &'static str {
    match alert.0 {
        20 | 51 => {
            ": our Finished or our signature did not arrive as it was made; try again, and capture it with --pcap"
        }
        41 | 116 => ": it wants a certificate of ours (--cert FILE --cert-key FILE)",
        42 | 43 => ": it cannot use our certificate; compare --cert and its key with what the server takes",
        44 => ": our certificate is revoked; get another one",
        45 => ": our certificate is expired, or the server's clock is wrong",
        46 | 48 => {
            ": it does not trust our certificate; its log has the reason (another authority, expired, revoked, for another use)"
        }
        49 => ": it trusts our certificate, and refuses access",
        70 => ": it speaks no DTLS 1.2",
        71 => ": it wants stronger cipher suites (--suites)",
        80 => ": its log has the cause",
        115 => ": it knows no such identity",
        _ => "",
    }
}
