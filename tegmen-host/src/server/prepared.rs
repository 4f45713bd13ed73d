//! Responses that an application prepares, and that the server sends together later.

use super::command::{Command, Release};
use super::reply::Reply;
use std::collections::VecDeque;
use std::iter;
use std::ops::Range;
use tegmen::coap::Code;
use tokio::sync::mpsc;

/// Prepared responses, which [`Request::prepare`](super::Request::prepare) adds. The server keeps each response
/// together with its request. This value can be on another thread, which sends all responses together, for example when
/// one commit of a database has made all their changes durable.
///
/// A request never remains without a response. If this value is dropped, the clients receive 5.00 at once. If the
/// responses are not sent within [`ServerCoap::response_timeout`](super::ServerCoap::response_timeout), the clients
/// receive 5.03.
#[derive(Default)]
pub struct Prepared {
    /// The numbers of the requests of each shard. Successive requests have successive numbers, so a few ranges contain
    /// many numbers.
    shards: Vec<(mpsc::UnboundedSender<Command>, VecDeque<Range<u64>>)>,
}

impl Prepared {
    /// Adds the response to the request with this number, which the shard that receives `commands` keeps.
    pub(super) fn add(&mut self, number: u64, commands: &mpsc::UnboundedSender<Command>) {
        match self.shards.iter_mut().find(|(shard, _)| shard.same_channel(commands)) {
            Some((_, numbers)) => match numbers.back_mut() {
                Some(last) if last.end == number => last.end = number + 1,
                _ => numbers.push_back(number..number + 1),
            },
            None => self.shards.push((commands.clone(), iter::once(number..number + 1).collect())),
        }
    }

    /// Moves all responses of `others` to `self`.
    pub fn append(&mut self, others: &mut Self) {
        for (commands, mut numbers) in others.shards.drain(..) {
            match self.shards.iter_mut().find(|(shard, _)| shard.same_channel(&commands)) {
                Some((_, before)) => before.append(&mut numbers),
                None => self.shards.push((commands, numbers)),
            }
        }
    }

    /// Sends all responses, and removes them. A response is lost if its session or its server has ended, or if the time
    /// limit of the response has passed.
    pub fn send(&mut self) {
        self.release(None);
    }

    /// Sends `reply` instead of each response, and removes all responses.
    pub fn send_instead(&mut self, reply: &Reply) {
        self.release(Some(reply));
    }

    fn release(&mut self, instead: Option<&Reply>) {
        for (commands, numbers) in self.shards.drain(..) {
            // If the server has ended there is nobody to respond to.
            let _ = commands.send(Command::Release(Release { numbers, instead: instead.cloned() }));
        }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if !self.shards.is_empty() {
            let cause = "the application dropped its prepared responses";
            self.send_instead(&Reply::new(Code::INTERNAL_SERVER_ERROR).because(cause));
        }
    }
}
