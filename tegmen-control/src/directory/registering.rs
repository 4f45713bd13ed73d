//! Registers a server at the resource directory of another host, and renews the registration (RFC 9176, section 5).

use super::LINK_FORMAT;
use super::links::{self, Attribute, Link, Value};
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber};
use tegmen_host::client::{ClientConfig, ClientError, Request, Response, Session};
use tegmen_host::resources::ListedPath;
use tegmen_host::uri::{Uri, encoded_path};

/// The pause after the first failed registration. Each further pause is twice as long as the previous one, up to
/// [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// An endpoint that registers itself at a directory.
#[derive(Debug)]
pub struct Registering {
    /// The URI of the directory. If it has no path, the endpoint asks the directory for the path (RFC 9176, section
    /// 4.3).
    pub directory: Uri,
    /// The key or the certificates for a session with the directory.
    pub config: ClientConfig,
    /// The name under which the endpoint is registered. With `None` the directory uses the identity that the endpoint
    /// proves in the session.
    pub name: Option<String>,
    /// The scheme and authority of the endpoint's server. With `None` the directory uses the address from which the
    /// endpoint sends the registration.
    pub base: Option<String>,
    /// Seconds for which a registration is valid. The registration is renewed after half of this time.
    pub lifetime: u32,
}

/// The reason why an endpoint is not registered.
#[derive(Debug, thiserror::Error)]
pub enum NotRegistered {
    /// The session could not be opened, or no response arrived.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The directory refuses the registration.
    #[error("the directory answers {code}: {text}")]
    Refused {
        /// The code of the response.
        code: Code,
        /// The text of the response.
        text: String,
    },
    /// The directory lists no path for registrations.
    #[error("the server lists no resource directory: give the path, as in coap://HOST/rd")]
    NoDirectory,
}

/// A change of a registration, for the log of the endpoint.
#[derive(Debug)]
pub enum RegistrationEvent<'e> {
    /// The endpoint is registered. The value is the path of the registration at the directory.
    Registered(&'e str),
    /// The endpoint is not registered, and tries again after this time.
    Failed(&'e NotRegistered, Duration),
}

impl Registering {
    /// Registers links to the paths that `listed` returns, and renews the registration. Registers again when the links
    /// change. Never returns.
    pub async fn run(&self, listed: impl Fn() -> Vec<ListedPath>, report: impl Fn(RegistrationEvent<'_>)) {
        let (mut registered, mut pause) = (None, MIN_PAUSE);
        loop {
            let outcome = self.once(&mut registered, &listed(), &report).await;
            let wait = match outcome {
                Ok(()) => {
                    pause = MIN_PAUSE;
                    Duration::from_secs(u64::from(self.lifetime) / 2)
                }
                Err(failed) => {
                    registered = None;
                    report(RegistrationEvent::Failed(&failed, pause));
                    let next = pause.saturating_mul(2).min(MAX_PAUSE);
                    std::mem::replace(&mut pause, next)
                }
            };
            tokio::time::sleep(wait.max(Duration::from_secs(1))).await;
        }
    }

    /// Registers the links to the paths in `listed`. If `registered` contains the same links, only renews their
    /// registration.
    async fn once(
        &self,
        registered: &mut Option<(String, Vec<String>)>,
        listed: &[ListedPath],
        report: &impl Fn(RegistrationEvent<'_>),
    ) -> Result<(), NotRegistered> {
        let links = link_format(listed);
        let session = Session::connect(&self.directory, self.config.clone()).await?;
        if let Some((_, location)) = registered.as_ref().filter(|(before, _)| *before == links) {
            let renewed = self.post(&session, location.clone(), Vec::new(), None).await?;
            match renewed.code {
                Code::CHANGED => return Ok(()),
                // The directory has restarted.
                Code::NOT_FOUND => {}
                _ => return Err(refused(&renewed)),
            }
        }
        let path = match self.directory.path.as_slice() {
            [] => find(&session).await?,
            path => path.to_vec(),
        };
        let arguments = [
            self.name.as_ref().map(|name| format!("ep={name}")),
            Some(format!("lt={}", self.lifetime)),
            self.base.as_ref().map(|base| format!("base={base}")),
        ];
        let arguments = arguments.into_iter().flatten().collect();
        let created = self.post(&session, path, arguments, Some(links.as_bytes())).await?;
        if created.code != Code::CREATED {
            return Err(refused(&created));
        }
        let segments = created.options().filter(|(number, _)| *number == OptionNumber::LOCATION_PATH);
        let location: Vec<String> =
            segments.map(|(_, segment)| String::from_utf8_lossy(segment).into_owned()).collect();
        report(RegistrationEvent::Registered(&format!("/{}", location.join("/"))));
        *registered = Some((links, location));
        Ok(())
    }

    async fn post(
        &self,
        session: &Session,
        path: Vec<String>,
        query: Vec<String>,
        links: Option<&[u8]>,
    ) -> Result<Response, ClientError> {
        let uri = Uri { path, query, ..self.directory.clone() };
        let request = Request::to(Code::POST, &uri).over(session);
        match links {
            Some(links) => request.content_format(LINK_FORMAT as u16).payload(links).await,
            None => request.await,
        }
    }
}

fn refused(response: &Response) -> NotRegistered {
    let text = String::from_utf8_lossy(&response.payload).escape_debug().take(200).collect();
    NotRegistered::Refused { code: response.code, text }
}

/// Asks the directory for the path of registrations. Returns the segments of the path.
async fn find(session: &Session) -> Result<Vec<String>, NotRegistered> {
    let response = session.get("/.well-known/core?rt=core.rd").await?;
    match response.code {
        Code::CONTENT => registrations_in(&response.payload).ok_or(NotRegistered::NoDirectory),
        code @ (Code::UNAUTHORIZED | Code::FORBIDDEN) => {
            let text = "GET /.well-known/core needs a right there; or give the path, as in coap://HOST/rd";
            Err(NotRegistered::Refused { code, text: text.to_owned() })
        }
        _ => Err(NotRegistered::NoDirectory),
    }
}

/// Returns the segments of the path of registrations in a list of links; `None` if the list has no such path.
fn registrations_in(links: &[u8]) -> Option<Vec<String>> {
    let links = links::parse(links).ok()?;
    let is_directory =
        |link: &&Link| link.attribute("rt").is_some_and(|types| types.split(' ').any(|one| one == "core.rd"));
    let target =
        links.iter().find(is_directory).map(|link| link.target.as_str()).filter(|target| target.starts_with('/'));
    // The target of a link is percent-encoded. Segments of a path are not (RFC 7252, section 6.4).
    Some(Uri::parse(&format!("coap://localhost{}", target?)).ok()?.path)
}

/// Returns links to the listed paths of the endpoint's server, in CoRE Link Format.
fn link_format(listed: &[ListedPath]) -> String {
    let link = |path: &ListedPath| {
        let number = |format: u16| Attribute { name: "ct".to_owned(), value: Some(Value::Token(format.to_string())) };
        let attributes = [
            (!path.resource_type.is_empty()).then(|| Attribute::quoted("rt", path.resource_type)),
            path.content_format.map(number),
            path.observable.then(|| Attribute { name: "obs".to_owned(), value: None }),
        ];
        let target = format!("/{}", encoded_path(&path.path));
        Link { target, attributes: attributes.into_iter().flatten().collect() }.to_string()
    };
    listed.iter().map(link).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
