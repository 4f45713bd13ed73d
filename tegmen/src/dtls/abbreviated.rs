//! The abbreviated handshake, which resumes a session (RFC 5246, section 7.3; RFC 5077).
//!
//! The messages of the three flights:
//!
//! * Client: ClientHello with a ticket or a session id.
//! * Server: ServerHello with the same session id, NewSessionTicket (optional), ChangeCipherSpec, Finished.
//! * Client: ChangeCipherSpec, Finished.

use super::context::HandshakeContext;
use super::element::Element;
use super::handshake::client_hello::ClientHello;
use super::handshake::extension::ExtensionType;
use super::handshake::new_session_ticket;
use super::handshake::server_hello::ServerHello;
use super::outcome::Outcome;
use super::resumption::{Found, Handle, ID_LEN, MASTER_LEN, MAX_TICKET, Resumable, Resumption as _, SessionState};
use super::roles::Roles;
use super::scratch::{self, Item};
use super::state::{Flags, Handshake, MAX_TEXT, Step};
use super::suite::CipherSuite;
use super::{Fatal, Profile, VERSION};
use crate::buf::{Writer, copy};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::secret::Secret;

/// Maximum number of bytes of a ClientHello and its headers, if the ticket is not counted.
const REST_OF_HELLO: usize = 250;
/// Number of bytes of the outgoing buffer that the handshake needs for the server's public key and the key shares, with
/// RSA keys of 4096 bits.
const ROOM_FOR_KEYS: usize = 700;

impl<R: Roles> HandshakeContext<'_, R> {
    /// Client: returns the ticket for our ClientHello. The ticket is empty if the client accepts tickets, but has no
    /// ticket to send. Returns `None` if the client accepts no tickets.
    pub(crate) fn ticket_to_show<'r>(&self, room: &'r [u8]) -> Option<&'r [u8]> {
        let ticket = scratch::get(room, Item::Ticket);
        Some(ticket).filter(|_| self.roles.resumption().takes_tickets())
    }

    /// Client: returns the cipher suite of the session that we offer to resume, if we cannot open a new session with
    /// this suite. Our ClientHello then offers only this suite. Returns `None` in all other cases.
    pub(crate) fn suite_to_resume<C: Crypto>(&self, room: &[u8]) -> Option<CipherSuite> {
        if R::RESUMED.0.is_empty() {
            return None;
        }
        let (suite, _) = scratch::get(room, Item::Session).split_first_chunk()?;
        Some(CipherSuite(u16::from_be_bytes(*suite))).filter(|suite| !self.offers::<C>(*suite))
    }

    /// Server: returns the session that the client asks to resume with its ClientHello. `server` is the number of the
    /// [named server](Self::server_of) that the client requests. The server searches for a session id only if
    /// `reachable` is true, which means that the client has proved its address.
    pub(crate) fn find_session<C: Crypto>(
        &self,
        cx: &mut Cx<'_, C>,
        hello: &ClientHello<'_>,
        server: u32,
        reachable: bool,
    ) -> Option<Found> {
        let [major, minor] = hello.version;
        if major != VERSION[0] || minor > VERSION[1] || self.settings.profile == Profile::Minimal {
            return None;
        }
        let resumption = self.roles.resumption();
        match hello.extension(ExtensionType::SESSION_TICKET) {
            Some(ticket) if !ticket.is_empty() => resumption.open_ticket(cx, server, ticket),
            _ if reachable && !hello.session_id().is_empty() => {
                let session = resumption.find(cx.now, server, hello.session_id());
                session.map(|session| Found { session, renew: false })
            }
            _ => None,
        }
    }

    /// Server: true if the server can resume this session with the client that sent this ClientHello.
    pub(crate) fn can_resume<C: Crypto>(&self, hello: &ClientHello<'_>, session: &SessionState) -> bool {
        let suite = session.cipher_suite;
        hello.offers(suite) && self.resumes::<C>(suite) && hello.offers_null_compression()
    }
}

impl Handshake<'_> {
    fn put_item(&mut self, item: Item, parts: &[&[u8]]) -> Result<(), Fatal> {
        // Smaller buffers are not wiped, so they hold no secrets.
        if self.buffers.outgoing.len() <= MAX_TEXT {
            return Err(Fatal::TooLarge);
        }
        scratch::put_parts(self.buffers.outgoing, self.state.outgoing_len.into(), item, parts)
    }

    /// Client: offers to resume a session. Fails if the session does not fit the buffer. Also fails if the ClientHello
    /// with the ticket does not fit one datagram, because servers do not reassemble a ClientHello before the client has
    /// proved its address.
    pub(crate) fn offer_session<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        mtu: u16,
        session: &SessionState,
        handle: Handle<'_>,
    ) -> Result<(), Fatal> {
        let mut drawn = [0; ID_LEN];
        let id = match handle {
            Handle::Id(id) => id,
            Handle::Ticket(ticket) if ticket.len().saturating_add(REST_OF_HELLO) > usize::from(mtu) => {
                return Err(Fatal::TooLarge);
            }
            Handle::Ticket(_) => {
                cx.crypto.random(&mut drawn);
                &drawn
            }
        };
        self.keep_session(session.cipher_suite, &session.master)?;
        if let Handle::Ticket(ticket) = handle {
            self.put_item(Item::Ticket, &[ticket])?;
        }
        // The session id is stored last, because it completes the offer.
        self.put_item(Item::SessionId, &[id])?;
        self.association.principal = session.principal;
        Ok(())
    }

    /// Stores the cipher suite and the master secret of the session. [`Self::session`] returns them.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn keep_session(&mut self, suite: CipherSuite, master: &Secret<MASTER_LEN>) -> Result<(), Fatal> {
        self.put_item(Item::Session, &[&suite.0.to_be_bytes(), master.expose()])
    }

    /// Returns the session of this handshake; `None` if its master secret is not known yet.
    fn session(&self) -> Option<SessionState> {
        let (suite, master) = scratch::get(self.buffers.outgoing, Item::Session).split_first_chunk()?;
        let cipher_suite = CipherSuite(u16::from_be_bytes(*suite));
        let master = Secret::new(*master.first_chunk()?);
        Some(SessionState { cipher_suite, master, principal: self.association.principal, since: None })
    }

    /// Client: true if the session id in the ServerHello is the session id of our ClientHello.
    pub(crate) fn echoes(&self, session_id: &[u8]) -> bool {
        !session_id.is_empty() && scratch::get(self.buffers.outgoing, Item::SessionId) == session_id
    }

    /// Client: returns true if the server resumes a session with a suite that we offer only for this resumption.
    ///
    /// # Errors
    /// [`Fatal::NoCredentials`] if the server chose this suite for a full handshake.
    pub(crate) fn resumes_only<C: Crypto, R: Roles>(
        &self,
        context: HandshakeContext<'_, R>,
        hello: &ServerHello<'_>,
    ) -> Result<bool, Fatal> {
        match context.suite_to_resume::<C>(self.buffers.outgoing) {
            Some(only) if only != hello.cipher_suite => Ok(false),
            Some(_) if !self.echoes(hello.session_id) => Err(Fatal::NoCredentials),
            only => Ok(only.is_some() && hello.compression_method == 0),
        }
    }

    /// Client: returns true if the server resumes the session that we offered. This function then sets the keys of the
    /// session, and the client waits for the ChangeCipherSpec of the server.
    pub(crate) fn is_resumed<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, hello: &ServerHello<'_>) -> Result<bool, Fatal> {
        if !self.state.flags.has(Flags::RESUMED) {
            // The session id is not stored if it does not fit the buffer.
            if !hello.session_id.is_empty() && self.state.extended_master_secret {
                let _ = self.put_item(Item::NewSessionId, &[hello.session_id]);
            }
            // The offer is part of our ClientHello, which may have to be sent again. If the keys need its space, the
            // offer is forgotten, and the ClientHello is not sent again.
            let offered = !scratch::get(self.buffers.outgoing, Item::Session).is_empty();
            let room = scratch::front(self.buffers.outgoing).saturating_sub(self.state.outgoing_len.into());
            if offered && room < ROOM_FOR_KEYS {
                self.forget_offer();
                self.state.timeout_ms = u32::MAX;
            }
            return Ok(false);
        }
        let mut session = self.session().ok_or(Fatal::IllegalParameter)?;
        if session.cipher_suite != hello.cipher_suite {
            return Err(Fatal::IllegalParameter);
        }
        if !self.state.extended_master_secret {
            return Err(Fatal::NoExtendedMasterSecret);
        }
        self.set_master(cx, &mut session.master, true);
        self.state.step = Step::AwaitServerChangeCipherSpec;
        Ok(true)
    }

    /// Client: removes from the outgoing buffer the session that the client offered to resume.
    fn forget_offer(&mut self) {
        for item in [Item::Session, Item::Ticket, Item::SessionId] {
            scratch::forget(self.buffers.outgoing, item);
        }
    }

    /// Client: called at the end of the server's flight. After that, our ClientHello is not sent again, so this
    /// function removes the offered session. If the server sent a session id, this id replaces the offered session.
    pub(crate) fn settle_session_id(&mut self) {
        self.forget_offer();
        let mut id = [0; ID_LEN];
        let given = scratch::get(self.buffers.outgoing, Item::NewSessionId);
        let len = given.len();
        if len > 0 && copy(&mut id, given).is_ok() {
            scratch::forget(self.buffers.outgoing, Item::NewSessionId);
            let _ = self.put_item(Item::SessionId, &[id.get(..len).unwrap_or(&[])]); // the removed item left the space
        }
    }

    /// Client: reads a NewSessionTicket, and stores its ticket.
    pub(crate) fn on_new_session_ticket(&mut self, body: &[u8]) -> Result<(), Fatal> {
        let (lifetime, ticket) = new_session_ticket::read(body).map_err(|_| Fatal::Decode)?;
        // The promised ticket has arrived, and no other one is due.
        self.state.flags.set(Flags::TICKET, false);
        let lifetime = lifetime.to_be_bytes();
        // The ticket is not stored if it does not fit the buffer.
        let kept = !ticket.is_empty() && self.put_item(Item::NewTicket, &[&lifetime, ticket]).is_ok();
        self.state.flags.set(Flags::NEW_TICKET, kept);
        if self.state.change_cipher_spec {
            self.state.step = Step::AwaitServerFinished;
        }
        Ok(())
    }

    /// Server: resumes the session that was found for a ClientHello. The server then waits for the ChangeCipherSpec of
    /// the client.
    #[inline(always)]
    pub(crate) fn accept_session<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        hello: &ClientHello<'_>,
        found: &Found,
        reachable: bool,
    ) -> Result<(), Fatal> {
        self.put_item(Item::SessionId, &[hello.session_id()])?;
        self.association.principal = found.session.principal;
        self.state.flags.set(Flags::UNREACHED, !reachable);
        if found.renew {
            let renewed = self.put_ticket(cx, context, &found.session);
            self.state.flags.set(Flags::TICKET, renewed);
        }
        let mut master = Secret::new(*found.session.master.expose());
        self.set_master(cx, &mut master, false);
        self.state.step = Step::AwaitClientChangeCipherSpec;
        Ok(())
    }

    /// Server: prepares a full handshake so that the client can resume its session later. The ServerHello then promises
    /// a ticket, or contains a new random session id.
    pub(crate) fn promise<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        hello: &ClientHello<'_>,
    ) {
        if !self.state.extended_master_secret || context.settings.profile == Profile::Minimal {
            return;
        }
        let resumption = context.roles.resumption();
        if resumption.gives_tickets(self.server::<R>()) && hello.extension(ExtensionType::SESSION_TICKET).is_some() {
            self.state.flags.set(Flags::TICKET, true);
        } else if resumption.gives_ids(self.server::<R>()) {
            let mut id = [0; ID_LEN];
            cx.crypto.random(&mut id);
            let _ = self.put_item(Item::SessionId, &[&id]); // if it does not fit, there is no id
        }
    }

    /// Server: called after the client has proved its key in a full handshake. Writes the ticket that the server has
    /// promised, or stores the session under its session id. Returns the first element of the last flight.
    pub(crate) fn keep_promise<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
    ) -> Element {
        let session = self.session();
        scratch::forget(self.buffers.outgoing, Item::Session);
        if self.state.flags.has(Flags::TICKET) {
            // The ticket is empty if the server has none after all (RFC 5077, section 3.3).
            let _ = session.is_some_and(|session| self.put_ticket(cx, context, &session));
            return Element::NewSessionTicket;
        }
        let id = scratch::get(self.buffers.outgoing, Item::SessionId);
        if let Some(session) = session
            && !id.is_empty()
        {
            context.roles.resumption().remember(cx.now, self.server::<R>(), id, &session);
        }
        Element::ChangeCipherSpec
    }

    fn put_ticket<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        session: &SessionState,
    ) -> bool {
        let mut room = [0; MAX_TICKET];
        let mut ticket = Writer::new(&mut room);
        let sealed = context.roles.resumption().seal_ticket(cx, self.server::<R>(), session, &mut ticket);
        let Some(lifetime) = sealed else { return false };
        self.put_item(Item::NewTicket, &[&lifetime.to_be_bytes(), ticket.written()]).is_ok()
    }
}

impl<'b> Handshake<'b> {
    /// Client: returns the data with which the session of a completed handshake can be resumed; `None` if it cannot be
    /// resumed. Returns `None` for a server.
    pub(crate) fn resumable(self) -> Option<Resumable<'b>> {
        let flags = self.state.flags;
        let session = self.session();
        let room: &'b [u8] = self.buffers.outgoing;
        if flags.has(Flags::NEW_TICKET) {
            let (lifetime, ticket) = scratch::get(room, Item::NewTicket).split_first_chunk()?;
            let (handle, lifetime) = (Handle::Ticket(ticket), u32::from_be_bytes(*lifetime));
            return Some(Resumable::With { session: session?, handle, lifetime });
        }
        if flags.has(Flags::RESUMED) {
            return Some(Resumable::Again);
        }
        let id = scratch::get(room, Item::SessionId);
        let resumable = Resumable::With { session: session?, handle: Handle::Id(id), lifetime: 0 };
        Some(resumable).filter(|_| !id.is_empty())
    }

    /// True if the keys of this handshake come from an earlier session.
    pub(crate) fn was_resumed(&self) -> bool {
        self.state.flags.has(Flags::RESUMED)
    }
}

/// The end of a client's handshake, in a role that supports resumption.
impl Handshake<'_> {
    /// Client: called after a correct Finished of the server. In an abbreviated handshake, our ChangeCipherSpec and
    /// Finished are the last flight, and this function begins it.
    pub(crate) fn on_last_but_one<R: Roles>(&mut self) -> Result<(), Outcome> {
        if self.state.flags.has(Flags::RESUMED) {
            self.state.start_flight::<R>(Element::ChangeCipherSpec);
            self.state.step = Step::Lingering;
            self.state.inbox.clear();
        }
        Err(Outcome::Established)
    }
}
