//! The requests that a proxy forwards.

use super::Route;
use std::borrow::Cow;
use std::net::IpAddr;
use tegmen::coap::cache::{self, Treatment};
use tegmen::coap::{Code, MessageRef, OptionNumber};

/// A request as the proxy sends it to the origin.
pub(super) struct Upstream {
    pub(super) method: Code,
    options: Vec<(OptionNumber, Vec<u8>)>,
    pub(super) payload: Vec<u8>,
    /// The entity tag of the stored response that is no longer fresh. The request asks the origin whether this response
    /// is still valid. `None` if no such response is stored.
    pub(super) etag: Option<Vec<u8>>,
}

impl Upstream {
    /// Returns the request that the proxy sends to the origin of this route. If the URI of the origin contains an IP
    /// address, the Uri-Host option has the name of the virtual host that the client requested, if there is one.
    pub(super) fn new(message: &MessageRef<'_>, route: &Route<'_>, hops: u8, etag: Option<Vec<u8>>) -> Self {
        let mut left = route.skipped;
        let is_forwarded = |(number, _): &(OptionNumber, &[u8])| {
            let is_skipped = *number == OptionNumber::URI_PATH && left > 0;
            left -= usize::from(is_skipped);
            !is_skipped && matches!(cache::in_request(*number), Treatment::Key | Treatment::Passed)
        };
        let options = message.options().filter(is_forwarded);
        let mut options: Vec<_> = options.map(|(number, value)| (number, value.to_vec())).collect();
        options.push((OptionNumber::HOP_LIMIT, vec![hops]));
        let own = Some(route.host).filter(|host| host.parse::<IpAddr>().is_err());
        options.extend(own.or(route.name).map(|name| (OptionNumber::URI_HOST, name.as_bytes().to_vec())));
        Self { method: message.code(), options, payload: message.payload().to_vec(), etag }
    }

    /// Returns the options of the request, with the entity tag.
    pub(super) fn options(&self) -> Cow<'_, [(OptionNumber, Vec<u8>)]> {
        match &self.etag {
            Some(etag) => [&self.options[..], &[(OptionNumber::ETAG, etag.clone())]].concat().into(),
            None => self.options.as_slice().into(),
        }
    }
}
