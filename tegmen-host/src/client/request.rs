//! Requests of a client, and their encoding in messages.

use super::{ClientError, Progress, Response, Session};
use crate::informative::FEEDBACK_DIVIDER;
use crate::uri::{Uri, percent_decode};
use std::borrow::Cow;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use tegmen::coap::{BuildError, Builder, Code, NoResponse, OptionNumber, uint_bytes};
use tegmen::node::Transfer;

/// Maximum length of a path segment or query argument, in bytes (RFC 7252, section 5.10).
const MAX_SEGMENT: usize = 255;

/// A request. A request that has a session, for example from [`Session::get`], is sent when it is awaited.
/// [`Request::new`] makes a request without a session. [`Request::over`] then adds a session to it.
#[derive(Clone, Copy)]
#[must_use = "a request is sent when it is awaited"]
pub struct Request<'a, S = ()> {
    pub(super) session: S,
    pub(super) method: Code,
    target: Target<'a>,
    content_format: Option<u16>,
    accept: Option<u16>,
    pub(super) payload: &'a [u8],
    options: &'a [(OptionNumber, Vec<u8>)],
    progress: Option<&'a (dyn Fn(Progress) + Sync)>,
}

/// The path and the query of a request.
#[derive(Clone, Copy)]
enum Target<'a> {
    /// Path and query in the form of a URI: segments between slashes, and arguments after a question mark, all
    /// percent-encoded.
    Text(&'a str),
    /// Decoded segments and arguments.
    Parts { path: &'a [String], query: &'a [String] },
}

impl<'a> Request<'a> {
    /// Returns a request without a session. `path` has the form of a URI path, with the query after a question mark:
    /// `/temp?unit=C`.
    pub const fn new(method: Code, path: &'a str) -> Self {
        Self::with(method, Target::Text(path))
    }

    /// Returns a request for the path and the query of `uri`.
    pub fn to(method: Code, uri: &'a Uri) -> Self {
        Self::with(method, Target::Parts { path: &uri.path, query: &uri.query })
    }

    const fn with(method: Code, target: Target<'a>) -> Self {
        Self {
            session: (),
            method,
            target,
            content_format: None,
            accept: None,
            payload: &[],
            options: &[],
            progress: None,
        }
    }

    /// Adds a session to the request. To send the request over this session, await it.
    pub fn over(self, session: &'a Session) -> Request<'a, &'a Session> {
        let Self { session: (), method, target, content_format, accept, payload, options, progress } = self;
        Request { session, method, target, content_format, accept, payload, options, progress }
    }
}

impl<'a, S> Request<'a, S> {
    /// Asks for this Content-Format (the Accept option).
    pub const fn accept(mut self, format: u16) -> Self {
        self.accept = Some(format);
        self
    }

    /// Sets the Content-Format of the payload.
    pub const fn content_format(mut self, format: u16) -> Self {
        self.content_format = Some(format);
        self
    }

    /// Sets the payload. A payload that does not fit in one message is sent in blocks (RFC 7959).
    pub const fn payload(mut self, payload: &'a [u8]) -> Self {
        self.payload = payload;
        self
    }

    /// Adds further options, in any order.
    pub const fn options(mut self, options: &'a [(OptionNumber, Vec<u8>)]) -> Self {
        self.options = options;
        self
    }

    /// Calls `progress` after each block of a block-wise transfer.
    pub const fn progress(mut self, progress: &'a (dyn Fn(Progress) + Sync)) -> Self {
        self.progress = Some(progress);
        self
    }

    pub(super) fn without_session(&self) -> Request<'a> {
        let Self { session: _, method, target, content_format, accept, payload, options, progress } = *self;
        Request { session: (), method, target, content_format, accept, payload, options, progress }
    }

    pub(super) fn report(&self, progress: Progress) {
        if let Some(report) = self.progress {
            report(progress);
        }
    }

    /// True if another client protected the request with OSCORE.
    pub(super) fn is_protected(&self) -> bool {
        self.options.iter().any(|(number, _)| *number == OptionNumber::OSCORE)
    }

    /// Calls `each` with the number and the value of each option for path and query.
    fn each_of_target<E>(
        &self,
        mut each: impl FnMut(OptionNumber, Cow<'a, str>) -> Result<(), E>,
        malformed: impl Fn() -> E,
    ) -> Result<(), E> {
        match self.target {
            Target::Parts { path, query } => {
                path.iter().try_for_each(|segment| each(OptionNumber::URI_PATH, segment.into()))?;
                query.iter().try_for_each(|argument| each(OptionNumber::URI_QUERY, argument.into()))
            }
            Target::Text(text) => {
                let (path, query) = text.split_once('?').unwrap_or((text, ""));
                let path = path.strip_prefix('/').unwrap_or(path);
                let parts = [(path, '/', OptionNumber::URI_PATH), (query, '&', OptionNumber::URI_QUERY)];
                for (part, separator, number) in parts.into_iter().filter(|(part, ..)| !part.is_empty()) {
                    for value in part.split(separator) {
                        each(number, percent_decode(value).ok_or_else(&malformed)?)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Returns an error for a path or query that cannot be sent.
    pub(super) fn check(&self) -> Result<(), ClientError> {
        let Target::Text(path) = self.target else { return Ok(()) };
        let wrong = |problem| ClientError::Path { path: path.to_owned(), problem };
        let fits = |_, value: Cow<'_, str>| match value.len() {
            ..=MAX_SEGMENT => Ok(()),
            _ => Err(wrong("a segment or argument has more than 255 bytes")),
        };
        self.each_of_target(fits, || wrong("a % is not followed by two hexadecimal digits"))
    }

    /// Returns the maximum number of bytes that path, query and other options take in a message.
    pub(super) fn options_len(&self) -> usize {
        let mut texts = 0;
        let add = |_, value: Cow<'_, str>| {
            texts += value.len() + 3;
            Ok::<(), ()>(())
        };
        let _ = self.each_of_target(add, || ());
        texts + self.options.iter().map(|(_, value)| value.len() + 5).sum::<usize>()
    }

    /// Writes the options and the payload of one message.
    pub(super) fn write(&self, builder: &mut Builder<'_, '_>, part: Part<'_>) -> Result<(), BuildError> {
        // Whatever their length; a builder inserts short options alone.
        let mut others: Vec<_> = self.options.iter().collect();
        others.sort_by_key(|(number, _)| *number);
        let mut others = others.into_iter().peekable();
        let put_before = |number: OptionNumber, value: Cow<'_, str>| {
            while let Some((other, value)) = others.next_if(|(other, _)| *other < number) {
                builder.option(*other, value)?;
            }
            builder.option(number, value.as_bytes())
        };
        self.each_of_target(put_before, || BuildError::Order)?;
        others.try_for_each(|(number, value)| builder.option(*number, value))?;
        let numbers = [
            (OptionNumber::CONTENT_FORMAT, self.content_format.map(u32::from)),
            (OptionNumber::ACCEPT, self.accept.map(u32::from)),
            (OptionNumber::OBSERVE, part.observe),
        ];
        for (number, value) in numbers {
            let mut bytes = [0; 4];
            if let Some(value) = value {
                builder.insert(number, uint_bytes(value, &mut bytes))?;
            }
        }
        if let Some(transfer) = part.transfer {
            transfer.write_options(builder)?;
        }
        if let Some(echo) = part.echo {
            builder.insert(OptionNumber::ECHO, echo)?;
        }
        if part.confirms {
            builder.insert(FEEDBACK_DIVIDER, &[])?;
        }
        if part.wants_nothing {
            builder.insert(OptionNumber::NO_RESPONSE, uint_bytes(NoResponse::ALL.value(), &mut [0; 4]))?;
        }
        builder.payload(part.transfer.map_or(self.payload, |transfer| transfer.payload(self.payload)))
    }
}

impl<'a> IntoFuture for Request<'a, &'a Session> {
    type Output = Result<Response, ClientError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    /// Sends the request and waits for its response. Bodies that do not fit in one message are sent and received in
    /// blocks (RFC 7959). If the server demands an Echo option (RFC 9175), the request is sent again with this option.
    /// If the session has ended, or the server no longer answers in it, the client opens a new session (see
    /// [`ClientRecovery::reconnect`](super::ClientRecovery::reconnect)). If the future is dropped, the client gives up
    /// the request.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.sent())
    }
}

impl Request<'_, &Session> {
    /// Does the same as the future of [`Self::into_future`], without a separate memory allocation for the future.
    pub(crate) async fn sent(self) -> Result<Response, ClientError> {
        self.check()?;
        self.session.request_again(&self.without_session()).await
    }
}

/// The values of a message that are not in its [`Request`].
#[derive(Clone, Copy, Default)]
pub(super) struct Part<'a> {
    /// The block-wise transfer that the message belongs to. With `None` the message contains the whole payload.
    pub(super) transfer: Option<&'a Transfer>,
    pub(super) observe: Option<u32>,
    /// The token of an earlier request, if the message has to use this token again; `None` if the message has a new
    /// token.
    pub(super) token: Option<&'a [u8]>,
    /// The value of an Echo option (RFC 9175), if a member of a group demanded this option.
    pub(super) echo: Option<&'a [u8]>,
    /// True if the request asks all servers to send no response (the No-Response option; RFC 7967).
    pub(super) wants_nothing: bool,
    /// True if the request confirms that the client takes part in a group observation
    /// (draft-ietf-core-observe-multicast-notifications-14, section 7.2).
    pub(super) confirms: bool,
}

/// A copy of a request, which an observation owns and can send again.
pub(super) struct OwnedRequest {
    method: Code,
    path: Vec<String>,
    query: Vec<String>,
    content_format: Option<u16>,
    accept: Option<u16>,
    payload: Vec<u8>,
    options: Vec<(OptionNumber, Vec<u8>)>,
}

impl OwnedRequest {
    pub(super) fn of(request: &Request<'_>) -> Self {
        let (mut path, mut query) = (Vec::new(), Vec::new());
        let add = |number, value: Cow<'_, str>| {
            let list = if number == OptionNumber::URI_PATH { &mut path } else { &mut query };
            list.push(value.into_owned());
            Ok::<(), ()>(())
        };
        let _ = request.each_of_target(add, || ());
        let Request { method, content_format, accept, payload, options, .. } = *request;
        Self { method, path, query, content_format, accept, payload: payload.to_vec(), options: options.to_vec() }
    }

    pub(super) fn request(&self) -> Request<'_> {
        Request {
            content_format: self.content_format,
            accept: self.accept,
            payload: &self.payload,
            options: &self.options,
            ..Request::with(self.method, Target::Parts { path: &self.path, query: &self.query })
        }
    }
}
