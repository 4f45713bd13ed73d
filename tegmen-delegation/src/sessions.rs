//! The session store of a device's endpoint. The store finds sessions in a [`Device`].

use crate::device::{Device, Memory};
use crate::ticket::{Delegation, Ticket};
use core::cell::RefCell;
use tegmen::crypto::Crypto;
use tegmen::cx::Cx;
use tegmen::dtls::{CipherSuite, Found, Resumption, SessionState, Suites};
use tegmen::time::Instant;

/// The sessions of a device, for [`Resuming`](tegmen::dtls::Resuming). The owner of the device must borrow the device
/// only between the calls of its endpoint. If the device is borrowed during a call, the endpoint refuses the session.
#[derive(Debug)]
pub struct Sessions<'d, M, const REFUSED: usize, const SESSIONS: usize, const HANDLE: usize>(
    pub &'d RefCell<Device<M, REFUSED, SESSIONS, HANDLE>>,
);

impl<M: Memory, const REFUSED: usize, const SESSIONS: usize, const HANDLE: usize> Resumption
    for Sessions<'_, M, REFUSED, SESSIONS, HANDLE>
{
    const SUITES: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8]);

    fn open_ticket<C: Crypto>(&self, cx: &mut Cx<'_, C>, _: u32, ticket: &[u8]) -> Option<Found> {
        match self.0.try_borrow_mut().ok()?.open(cx.now, cx.crypto, Ticket(ticket)) {
            Ok(Delegation { session, .. }) => Some(Found { session, renew: false }),
            Err(_) => None,
        }
    }

    fn find(&self, now: Instant, _: u32, id: &[u8]) -> Option<SessionState> {
        self.0.try_borrow_mut().ok()?.find(now, id)
    }
}
