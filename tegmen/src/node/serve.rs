//! Answers requests.

use super::Application;
use crate::buf::Frame;
use crate::coap::exchange::MessageLayer;
use crate::coap::handler::{Request, serve};
use crate::coap::message::empty;
use crate::coap::{MessageRef, MessageType};
use crate::identity::Identity;
use crate::time::Instant;

/// Writes the response to `message` into `frame`, and keeps it for a repetition of the request.
#[inline]
pub(super) fn answer<A: Application>(
    now: Instant,
    exchanges: &mut impl MessageLayer,
    message: MessageRef<'_>,
    identity: Identity,
    application: &mut A,
    frame: &mut Frame<'_>,
) {
    let Some((policy, handler)) = application.server() else {
        if message.message_type() == MessageType::Confirmable {
            let _ = frame.append(&empty(MessageType::Reset, message.message_id()));
        }
        return;
    };
    let own_id = exchanges.message_id();
    serve(Request::new(message, identity), policy, handler, own_id, frame);
    exchanges.keep_reply(now, message.message_id(), frame.bytes());
}
