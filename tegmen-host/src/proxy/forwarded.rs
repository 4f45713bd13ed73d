//! Requests as a proxy forwards them.

use super::pool::Origin;
use std::net::IpAddr;
use tegmen::coap::cache::{self, Treatment};
use tegmen::coap::{Code, MessageRef, OptionNumber};

/// A request as it goes to its origin.
pub(super) struct Upstream {
    pub(super) method: Code,
    options: Vec<(OptionNumber, Vec<u8>)>,
    pub(super) payload: Vec<u8>,
    /// Of the stored response that may still be valid.
    pub(super) etag: Option<Vec<u8>>,
}

impl Upstream {
    /// The request without the first `skipped` segments of its path.
    pub(super) fn new(message: &MessageRef<'_>, skipped: usize, hops: u8, etag: Option<Vec<u8>>) -> Self {
        let mut left = skipped;
        let is_forwarded = |(number, _): &(OptionNumber, &[u8])| {
            let is_skipped = *number == OptionNumber::URI_PATH && left > 0;
            left -= usize::from(is_skipped);
            !is_skipped && matches!(cache::in_request(*number), Treatment::Key | Treatment::Passed)
        };
        let options = message.options().filter(is_forwarded);
        let mut options: Vec<_> = options.map(|(number, value)| (number, value.to_vec())).collect();
        options.push((OptionNumber::HOP_LIMIT, vec![hops]));
        Self { method: message.code(), options, payload: message.payload().to_vec(), etag }
    }

    /// The options for this origin.
    pub(super) fn options(&self, origin: &Origin) -> Vec<(OptionNumber, Vec<u8>)> {
        let mut options = self.options.clone();
        options.extend(self.etag.iter().map(|etag| (OptionNumber::ETAG, etag.clone())));
        if origin.host.parse::<IpAddr>().is_err() {
            options.push((OptionNumber::URI_HOST, origin.host.clone().into_bytes()));
        }
        options
    }
}
