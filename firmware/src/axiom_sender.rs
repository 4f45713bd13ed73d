//! A sender in a protected group (Axiom). It is provisioned with its keys. It switches the lamps of all listeners with
//! one request to the group, and receives the response of each listener. It has no [`Node`](tegmen::node::Node).

use super::Provider;
use super::asking::{Challenge, Heard, REQUEST_LEN, answers, write};
use super::axiom_provisioned::{Provisioned, is_rekey_message};
use tegmen::address::Address;
use tegmen::axiom::{Opened, Proof, Rekeyed};
use tegmen::coap::MessageRef;
use tegmen::cx::Discard;
use tegmen::dtls::Records;
use tegmen_flash::Flash;

/// A sender that sends each request once to all listeners of the group. It has space for the states of `LISTENERS`
/// listeners.
pub struct Sender<F, const LISTENERS: usize> {
    group: Provisioned<F, 0, LISTENERS>,
    /// The record number of the last request. `None` if there is no request, or if the request belongs to an earlier
    /// epoch. The token of the request is made from the record number.
    asked: Option<u64>,
    /// The Echo value that the next request must repeat.
    challenge: Option<Challenge>,
}

impl<F: Flash, const LISTENERS: usize> Sender<F, LISTENERS> {
    /// Creates a sender that has sent nothing.
    pub const fn new(group: Provisioned<F, 0, LISTENERS>) -> Self {
        Self { group, asked: None, challenge: None }
    }

    /// Writes the request that switches all lamps. Send it once, to the address of the group. Returns `None` if no
    /// record number is left in this epoch, if the flash memory does not work, or if the request does not fit `out`.
    pub fn request<'o>(&mut self, is_on: bool, out: &'o mut [u8; REQUEST_LEN]) -> Option<&'o [u8]> {
        let Self { group, challenge, .. } = self;
        let (asked, request) =
            group.request(out, |number, frame| write(number, is_on, challenge.take(), frame).ok())?;
        self.asked = Some(asked);
        Some(request)
    }

    /// Processes a datagram: a rekey message, or a response. Returns the response if it belongs to the last request.
    pub fn take(&mut self, from: &Address, datagram: &mut [u8]) -> Option<Heard> {
        if !is_rekey_message(datagram) {
            return self.hear(from, datagram);
        }
        if self.group.rekey(datagram) == Some(Rekeyed::Epoch) {
            (self.asked, self.challenge) = (None, None);
        }
        // If no record numbers can be reserved, only the next request fails.
        let _ = self.group.reserve();
        None
    }

    fn hear(&mut self, from: &Address, datagram: &mut [u8]) -> Option<Heard> {
        let mut records = Records::new(datagram);
        let record = records.next_record()?.ok()?;
        let (content, unverified) = match self.group.member.open_response(&mut self.group.crypto, from, record).ok()? {
            Opened::Fresh(content) => (content, None),
            Opened::Unverified(content, unverified) => (content, Some(unverified)),
            // Only the controller can end a clash, and it receives the records of the same two members.
            Opened::Clash => return None,
        };
        let message = MessageRef::parse(content).ok()?;
        let asked = self.asked?;
        if !answers(&message, asked) {
            return None;
        }
        if let Some(unverified) = unverified {
            let accepted = self.group.member.accept::<Provider>(unverified, Proof::AnswerTo(asked));
            if accepted == Err(Discard::NoRoom) {
                // `forget_idle` frees the states of listeners that have been silent since its last call.
                self.group.member.forget_idle(&mut self.group.crypto);
            }
            accepted.ok()?;
        }
        Some(Heard::of(&message, &mut self.challenge))
    }
}
