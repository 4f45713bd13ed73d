//! A listener of a group of lamps: its resource, the response to a request, and the delay of the response. The images
//! of all five schemes (ways to protect the requests and responses, see README.md) share this code.

use tegmen::address::Address;
use tegmen::buf::Frame;
use tegmen::coap::handler::{Policy, Served, serve};
use tegmen::coap::{Authorized, Code, Handler, MessageRef, MessageType, Request, Response};
use tegmen::time::Instant;

/// The resource `/light` of a listener: a lamp that requests switch on and off.
pub struct Lamp {
    /// True if the lamp is on.
    pub is_on: bool,
}

impl Lamp {
    /// Writes the response to a request into `frame`. Returns the code of the response, or `None` if there is no
    /// response.
    pub fn respond(
        &mut self,
        request: Request<'_>,
        policy: &impl Policy,
        message_id: u16,
        frame: &mut Frame<'_>,
    ) -> Option<Code> {
        match serve(request, policy, self, message_id, frame) {
            Served::Responded { code, .. } if !frame.is_empty() => Some(code),
            _ => None,
        }
    }
}

impl Handler for Lamp {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let message = request.message();
        if !message.path_is("light") {
            return Err(Code::NOT_FOUND);
        }
        match (message.code(), message.payload()) {
            (Code::GET, _) => {}
            (Code::PUT, [state @ (b'0' | b'1')]) => {
                self.is_on = *state == b'1';
                response.set_code(Code::CHANGED);
            }
            (Code::PUT, _) => return Err(Code::BAD_REQUEST),
            _ => return Err(Code::METHOD_NOT_ALLOWED),
        }
        response.payload(&[b'0' + u8::from(self.is_on)])
    }
}

/// Returns true if a message is a request that a listener answers, which means a non-confirmable request.
#[inline(always)]
pub fn is_request(message: &MessageRef<'_>) -> bool {
    message.message_type() == MessageType::NonConfirmable && message.code().is_request()
}

/// The response to a request to the group. It waits for a time within the leisure (RFC 7252, section 8.2).
pub struct Waiting {
    /// A response with its protection.
    pub response: [u8; RESPONSE_LEN],
    waits: Option<Waits>,
}

struct Waits {
    until: Instant,
    to: Address,
    /// The position of the response in the buffer: the offset of its first byte, and the offset after its last byte.
    place: (usize, usize),
}

impl Waiting {
    /// The state in which no response waits.
    pub const NONE: Self = Self { response: [0; RESPONSE_LEN], waits: None };

    /// Returns true if no response waits.
    pub const fn is_free(&self) -> bool {
        self.waits.is_none()
    }

    /// Stores the position of a response in the buffer, the receiver of the response, and the time until which it
    /// waits.
    #[inline(always)]
    pub const fn put(&mut self, until: Instant, to: &Address, place: (usize, usize)) {
        self.waits = Some(Waits { until, to: *to, place });
    }

    /// Returns the response and the address of its receiver, if the waiting time of the response has ended.
    pub fn poll(&mut self, now: Instant) -> Option<(Address, &[u8])> {
        let Waits { to, place: (start, end), .. } = self.waits.take_if(|waits| waits.until <= now)?;
        Some((to, self.response.get(start..end)?))
    }
}

/// Number of senders whose record numbers a listener stores.
pub const SENDERS: usize = 4;
/// Maximum length of a response with its protection, in bytes.
pub const RESPONSE_LEN: usize = 64;
