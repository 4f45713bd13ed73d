//! The server of `blink_server`. Its clients can also observe the number of PUTs, and it stores a text that is longer
//! than a block.
//!
//! `/blink` is the resource of [`blink_server`]. The observers are notified of each change of the count. `/text` has a
//! text of at most [`TEXT_LEN`] bytes: GET reads the text, PUT replaces it, and POST replaces it and answers with the
//! previous text.

use super::blink_server;
use super::mote::{Application, Memory, Mote};
use tegmen::coap::handler::{AnyAuthenticated, Policy};
use tegmen::coap::{Authorized, Code, Fixed, Handler, Response};
use tegmen::dtls::{Answer, Need, ServerOnly};
use tegmen::node::{self, BodyArray, ObserverArray, Parts};
use tegmen::oscore::OpenedRequest;
use tegmen::time::Instant;
use tegmen_lowpan::slip::Start;

/// The memory of the server's node: two observers, and space for three bodies or long responses.
pub struct Serving;

impl Memory for Serving {
    type Storage = Fixed<1, 64, 4, 64>;
    type Features = Parts<(), (), (), ObserverArray<2, 32>, Texts>;
}

/// Space for bodies of requests, and for responses with their options.
pub type Texts = BodyArray<3, 256, 0>;

/// The application of a server: it counts PUTs, notifies the observers of the count, and stores a text.
pub struct Server {
    counter: blink_server::Server,
    /// True if the count differs from the value that was last notified.
    changed: bool,
    text: Text,
}

#[derive(Clone, Copy)]
struct Text {
    len: usize,
    bytes: [u8; TEXT_LEN],
}

impl Text {
    fn read(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    /// Replaces the stored text by `text`. Fails with 4.13 if `text` is longer than [`TEXT_LEN`] bytes.
    fn replace(&mut self, text: &[u8]) -> Result<(), Code> {
        self.bytes.get_mut(..text.len()).ok_or(Code::REQUEST_ENTITY_TOO_LARGE)?.copy_from_slice(text);
        self.len = text.len();
        Ok(())
    }
}

impl<M: Memory> Application<M> for Server {
    type Roles = ServerOnly;

    fn start(start: &Start) -> Option<Self> {
        let counter = Application::<M>::start(start)?;
        Some(Self { counter, changed: false, text: Text { len: 0, bytes: [0; TEXT_LEN] } })
    }

    fn key<'a>(&'a self, need: Need<'_>) -> Answer<'a> {
        Application::<M>::key(&self.counter, need)
    }

    fn look(&mut self, mote: &mut Mote<ServerOnly, M>, _: Instant) {
        if self.changed {
            self.changed = false;
            mote.node.notify("blink");
        }
    }
}

impl<X: OpenedRequest> node::Application<X> for Server {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&AnyAuthenticated, self))
    }
}

impl Handler for Server {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let message = request.message();
        if message.path_is("text") {
            return self.handle_text(message.code(), message.payload(), response);
        }
        self.counter.handle(request, response)?;
        match message.code() {
            Code::GET => response.observable(),
            _ => self.changed = true,
        }
        Ok(())
    }
}

impl Server {
    fn handle_text(&mut self, method: Code, text: &[u8], response: &mut Response<'_, '_>) -> Result<(), Code> {
        if method == Code::GET {
            return response.payload(self.text.read());
        }
        let before = self.text;
        match method {
            Code::PUT | Code::POST => self.text.replace(text)?,
            _ => return Err(Code::METHOD_NOT_ALLOWED),
        }
        response.set_code(Code::CHANGED);
        if method == Code::POST { response.payload(before.read()) } else { Ok(()) }
    }
}

/// Maximum length of the text, in bytes.
pub const TEXT_LEN: usize = 96;
