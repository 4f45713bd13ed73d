//! Two endpoints that connect to each other at the same time, over the same pair of addresses.
//!
//! Both endpoints send a ClientHello. Each answers the other's ClientHello with a HelloVerifyRequest, without state,
//! and each sends a second ClientHello with the cookie. Then a rule decides, and no further message is needed. The
//! endpoint whose ClientHello has the larger random remains client, and drops the other's ClientHello. The endpoint
//! with the smaller random ends its own handshake as client, and answers as server in the same entry of the peer table.
//!
//! Another rule applies to an endpoint that, as client, has already received a ServerHello. If the peer now sends a
//! ClientHello with a cookie, the peer has become a client and no longer acts as server. So our endpoint becomes the
//! server, regardless of the two randoms.
//!
//! While our own handshake as client is in progress, the cookie that we require from the peer is bound to this
//! handshake: first to the random of our ClientHello, later to the random of the peer's ServerHello
//! ([`Cookies::bind`](crate::dtls::cookie::Cookies::bind)). Such a cookie proves that its sender receives datagrams at
//! the peer's address. It also proves that the sender received the cookie after our handshake began, or after the peer
//! sent that ServerHello. Attacks of three kinds have these results:
//!
//! * An attacker sends a ClientHello from a spoofed address, with no cookie or with a cookie for another address.
//!   This ClientHello gets a HelloVerifyRequest, which is sent to the spoofed address. Our handshake does not change.
//! * An attacker sends a recorded ClientHello. Its cookie belongs to another handshake, so this ClientHello also gets
//!   only a HelloVerifyRequest. A delayed ClientHello of the peer also gets only a HelloVerifyRequest, if it arrives
//!   after a ServerHello of the peer.
//! * An attacker can read datagrams to the peer, and can send from the peer's address. This attacker can use the rule
//!   to end our handshake. But it can also end the handshake with an alert, because alerts of a handshake are not
//!   protected.
//!
//! The rule does not protect a handshake against one more attack. A spoofed ClientHello in the client's name causes a
//! HelloVerifyRequest of the server, and a client of DTLS 1.2 treats this HelloVerifyRequest as the answer to its own
//! ClientHello. So anyone who can spoof the client's address can disturb its handshake with any server. After our
//! endpoint has become the server, its handshake is not better protected than that of any other server: an attacker can
//! send a recorded ClientHello whose cookie is still valid. This ClientHello begins the handshake again.

use super::{Endpoint, Peers, Phase};
use crate::address::Path;
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::Handshake;
use crate::dtls::association::Rank;
use crate::dtls::cookie::COOKIE_LEN;
use crate::dtls::handshake::Random;
use crate::dtls::roles::Roles;
use crate::dtls::state::{HandshakeState, Step};
use crate::identity::{PeerId, Principal};
use crate::time::Instant;

impl<P: Peers, R: Roles> Endpoint<P, R> {
    /// If we have a handshake with the peer on `path`, binds the cookie for this peer to that handshake.
    #[inline(always)]
    pub(super) fn bind_cookie<C: Crypto>(&mut self, path: &Path, cookie: &mut [u8; COOKIE_LEN]) {
        if R::SIMULTANEOUS
            && let Some(bound) = self.binding(path)
        {
            *cookie = self.cookies.bind::<C>(cookie, &bound);
        }
    }

    /// Returns the random to which cookies for the peer on `path` are bound; `None` if these cookies are not bound.
    fn binding(&mut self, path: &Path) -> Option<Random> {
        let id = self.peers.find(path, Phase::Handshaking)?;
        self.peers.handshake(id)?.binding()
    }

    /// Begins to reassemble the ClientHello of a peer. The peer becomes the client, and we become the server. The new
    /// handshake uses the table entry of our own handshake as client.
    pub(super) fn replace_with_fragments<C>(
        &mut self,
        cx: &mut Cx<'_, C>,
        id: PeerId,
        message_seq: u16,
        random: &Random,
    ) {
        let binding = self.peers.handshake(id).and_then(|handshake| handshake.binding());
        self.become_server(cx, id);
        if let Some(handshake) = &mut self.peers.handshake(id) {
            handshake.state.accept_fragments(cx.now, &self.settings, message_seq, random);
            handshake.state.server_random = binding.unwrap_or(UNBOUND);
        }
    }

    /// Returns the table entry of our handshake with the peer on `path`. If the peer's ClientHello makes us the server,
    /// the new handshake uses the same entry. Returns `None` if a new entry is necessary.
    #[inline(always)]
    pub(super) fn replaced(&self, path: &Path) -> Option<PeerId> {
        if R::SIMULTANEOUS { self.peers.find(path, Phase::Handshaking) } else { None }
    }

    /// Ends our handshake as client with a peer. The peer becomes the client of another handshake in the same table
    /// entry.
    pub(super) fn become_server<C>(&mut self, cx: &mut Cx<'_, C>, id: PeerId) {
        if R::CONNECTION_ID {
            self.peers.set_connection_ids(id, None);
        }
        if let Some(peer) = self.peers.peer(id) {
            peer.last_heard = cx.now.coarse();
            peer.association.rank = Rank::OursAsServer;
            peer.association.principal = Principal::NOBODY;
            peer.association.channel.wipe();
        }
        self.peers.schedule(id, Instant::AT_ONCE);
    }
}

/// The value of `server_random` during the reassembly of a ClientHello whose cookie is not bound to a random.
const UNBOUND: Random = [0; 32];

impl Handshake<'_> {
    /// Returns the random to which a cookie for the peer is bound. A cookie is bound in two situations: while we are
    /// client, and while we reassemble the ClientHello that makes us the server. Returns `None` in all other
    /// situations.
    fn binding(&self) -> Option<Random> {
        let state = &*self.state;
        match state.step {
            _ if !self.association.is_client() => {
                let assembles = self.is_replaced() && state.step == Step::AwaitClientHello;
                assembles.then_some(state.server_random).filter(|random| *random != UNBOUND)
            }
            Step::AwaitHelloVerifyRequest | Step::AwaitServerHello => Some(state.client_random),
            _ => Some(state.server_random),
        }
    }

    /// True if our handshake as client must end, because the peer sent a ClientHello with this random and a valid
    /// cookie.
    pub(super) fn yields_to(&self, theirs: &Random) -> bool {
        match self.state.step {
            Step::AwaitHelloVerifyRequest | Step::AwaitServerHello => self.state.client_random < *theirs,
            // A handshake that waits for an answer of the endpoint's owner does not end now, because the answer would
            // count as the answer to another question. The peer sends the ClientHello again.
            step => !step.awaits_owner(),
        }
    }

    /// True if the peer sent a ClientHello with this random and this message_seq before the ClientHello that began the
    /// current handshake. In the current handshake we are the server. The cookie in the older ClientHello can be valid
    /// again: it was made before our earlier handshake as client, during which only cookies that were bound to that
    /// handshake were valid.
    pub(super) fn is_late(&self, random: &Random, message_seq: u16) -> bool {
        let next = message_seq.wrapping_add(1);
        self.state.client_random == *random && next.wrapping_sub(self.state.answered_seq).cast_signed() < 0
    }

    /// True if we are the server for a peer to which we had connected as client before.
    pub(super) fn is_replaced(&self) -> bool {
        self.association.rank == Rank::OursAsServer
    }
}

impl HandshakeState {
    /// Ends the handshake at the next alarm, as if its time limit were reached.
    pub(super) fn give_up_now(&mut self, now: Instant) {
        self.end();
        self.step = Step::AwaitClientHello;
        (self.deadline, self.give_up) = (now, now);
    }
}
