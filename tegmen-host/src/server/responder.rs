//! The right to respond later.

use super::command::Command;
use super::reply::Reply;
use tegmen::coap::Code;
use tokio::sync::mpsc;

/// The right to respond to one request, once, from any thread.
///
/// A request never remains without a response: the client receives 5.00 at once if the responder is dropped, and 5.03 if
/// nothing was sent for [`ServerCoap::response_timeout`](super::ServerCoap::response_timeout).
pub struct Responder {
    number: u64,
    commands: Option<mpsc::UnboundedSender<Command>>,
}

impl Responder {
    pub(super) fn new(number: u64, commands: &mpsc::UnboundedSender<Command>) -> Self {
        Self { number, commands: Some(commands.clone()) }
    }

    /// Sends the response. It is lost if the session, the time for a response, or the server has ended.
    pub fn send(mut self, reply: Reply) {
        self.respond(reply);
    }

    fn respond(&mut self, reply: Reply) {
        if let Some(commands) = self.commands.take() {
            // If the server has ended there is nobody to respond to.
            let _ = commands.send(Command::Respond(self.number, reply));
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.respond(Reply::new(Code::INTERNAL_SERVER_ERROR).because("the application dropped its responder"));
    }
}
