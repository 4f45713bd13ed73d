//! The right to send a deferred response.

use super::command::Command;
use super::reply::Reply;
use tegmen::coap::Code;
use tokio::sync::mpsc;

/// The right to respond to one request, once, from any thread.
///
/// A request never remains without a response. If the responder is dropped, the client receives 5.00 at once. If the
/// responder sends nothing for [`ServerCoap::response_timeout`](super::ServerCoap::response_timeout), the client
/// receives 5.03.
pub struct Responder {
    number: u64,
    commands: Option<mpsc::UnboundedSender<Command>>,
}

impl Responder {
    pub(super) fn new(number: u64, commands: &mpsc::UnboundedSender<Command>) -> Self {
        Self { number, commands: Some(commands.clone()) }
    }

    /// Sends the response. The response is lost if the session or the server has ended, or if the time limit of the
    /// response has passed.
    pub fn send(mut self, reply: Reply) {
        self.respond(reply);
    }

    /// Returns the number of this responder, and the commands to its shard, for another thread that sends the response.
    pub(super) fn into_parts(mut self) -> Option<(u64, mpsc::UnboundedSender<Command>)> {
        self.commands.take().map(|commands| (self.number, commands))
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
