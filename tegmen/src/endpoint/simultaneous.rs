//! Two ends that connect to each other at the same time over the same pair of addresses.
//!
//! Both send a ClientHello, so both answer one without state, and both send a second one with the cookie. Then a rule decides, which
//! needs no further message: the end whose ClientHello has the larger random number stays client, and drops the other
//! ClientHello. The end with the smaller one ends its own handshake and answers as server, in the same entry of the table.
//! A client that already has a ServerHello follows another rule: the peer that sent it has given up serving if it connects
//! afterwards, and so the client becomes the server, whichever random number is larger.
//!
//! The cookie that the rule demands is bound to our handshake: to the random number of our ClientHello, later to that of the
//! peer's ServerHello ([`Cookies::bind`](crate::dtls::cookie::Cookies::bind)). So it proves that the sender receives at
//! the peer's address since our handshake began, or since it got that ServerHello:
//!
//! * A ClientHello with a spoofed address, without a cookie or with one for another address, gets a HelloVerifyRequest, sent
//!   to the spoofed address. It changes nothing here.
//! * A recorded ClientHello has the cookie of another handshake, and is such a one. So is one that was delayed by the network
//!   until after we got a ServerHello.
//! * Anyone who reads what is sent to the peer and can send from its address can use the rule, and by that end our handshake.
//!   The same attacker can end it with an alert, which is not protected either.
//!
//! The rule protects no handshake from a HelloVerifyRequest that a spoofed ClientHello caused. A client of DTLS 1.2 takes it
//! for the answer to its own ClientHello, so anyone who can spoof its address can disturb its handshake with any server.
//! Once we are server, the handshake is protected as that of any server: a recorded ClientHello whose cookie is not too old
//! begins it again.

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
    /// Binds a cookie for the other end of `path` to our handshake with it, if one runs.
    #[inline(always)]
    pub(super) fn bind_cookie<C: Crypto>(&mut self, path: &Path, cookie: &mut [u8; COOKIE_LEN]) {
        if R::SIMULTANEOUS
            && let Some(bound) = self.binding(path)
        {
            *cookie = self.cookies.bind::<C>(cookie, &bound);
        }
    }

    /// Returns the random number to which cookies for the other end of `path` are bound; `None` if they are not.
    fn binding(&mut self, path: &Path) -> Option<Random> {
        let id = self.peers.find(path, Phase::Handshaking)?;
        self.peers.handshake(id)?.binding()
    }

    /// Begins to reassemble the ClientHello of a peer that becomes the client, in the entry of our own handshake.
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

    /// Returns the entry of our handshake with the other end of `path`, which our handshake as its server takes over;
    /// `None` if that takes a new entry.
    #[inline(always)]
    pub(super) fn replaced(&self, path: &Path) -> Option<PeerId> {
        if R::SIMULTANEOUS { self.peers.find(path, Phase::Handshaking) } else { None }
    }

    /// Ends our handshake with a peer, which becomes the client of another handshake in the same entry.
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

/// In the place of a random number: the cookie of the ClientHello that is reassembled is not bound.
const UNBOUND: Random = [0; 32];

impl Handshake<'_> {
    /// Returns the random number to which a cookie for the peer is bound while we are client, and while we reassemble
    /// the ClientHello that ends this role.
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

    /// True if the peer's ClientHello with this random number, whose cookie is valid, ends our handshake as client.
    pub(super) fn yields_to(&self, theirs: &Random) -> bool {
        match self.state.step {
            Step::AwaitHelloVerifyRequest | Step::AwaitServerHello => self.state.client_random < *theirs,
            // The owner's answer would count as the answer to another question. The peer sends the ClientHello again.
            step => !step.awaits_owner(),
        }
    }

    /// True for a late copy of a ClientHello that precedes the one with which this handshake as server began. Its cookie is
    /// valid again, because it was made before our own handshake as client.
    pub(super) fn is_late(&self, random: &Random, message_seq: u16) -> bool {
        let next = message_seq.wrapping_add(1);
        self.state.client_random == *random && next.wrapping_sub(self.state.answered_seq).cast_signed() < 0
    }

    /// True if we are server of a peer with which we opened a handshake as client before.
    pub(super) fn is_replaced(&self) -> bool {
        self.association.rank == Rank::OursAsServer
    }
}

impl HandshakeState {
    /// Ends the handshake at the next alarm, as if its time were over.
    pub(super) fn give_up_now(&mut self, now: Instant) {
        self.end();
        self.step = Step::AwaitClientHello;
        (self.deadline, self.give_up) = (now, now);
    }
}
