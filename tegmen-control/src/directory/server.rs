//! A resource directory over CoAP.

use super::registrations::Parameters;
use super::{Directory, DirectoryBounds, DirectoryError, Registrant};
use super::{LINK_FORMAT, LOOKUP_ENDPOINTS, LOOKUP_RESOURCES, REGISTRATIONS, SIMPLE};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber, Response};
use tegmen::identity::Protection;
use tegmen_host::client::{ClientConfig, ClientError, Session};
use tegmen_host::clock;
use tegmen_host::credentials::Credentials;
use tegmen_host::resources::ListedPath;
use tegmen_host::server::{Application, Notifier, Request};
use tegmen_host::uri::Scheme;
use tokio::sync::Semaphore;

/// Maximum number of endpoints from which the directory fetches links at the same time, for simple registrations.
const SIMPLE_AT_ONCE: usize = 16;
/// Maximum time for which the directory waits for the links of an endpoint.
const SIMPLE_TIME: Duration = Duration::from_secs(10);
/// Seconds after which a sender may repeat a request that was answered with 5.03.
const RETRY_AFTER: u32 = 60;

/// The settings of a [`DirectoryServer`].
#[derive(Clone, Default, Debug)]
pub struct DirectorySettings {
    /// The limits of the directory.
    pub bounds: DirectoryBounds,
    /// Identities of commissioning tools, which may register other endpoints with any base URI.
    pub tools: Vec<String>,
}

/// The directory server, as an [`Application`]. Its clones use the same directory.
#[derive(Clone)]
pub struct DirectoryServer(Arc<Shared>);

struct Shared {
    directory: Mutex<Directory>,
    credentials: Credentials,
    tools: Vec<String>,
    bounds: DirectoryBounds,
    simple: Semaphore,
    /// A random number for this process. It is part of each entity tag, so that a tag is valid only in this process.
    process: u32,
    /// The version of the directory about which observers were last notified.
    notified: AtomicU64,
}

/// A copy of the data about the sender of a request, which remains valid after the request has ended.
struct Sender {
    name: Option<String>,
    address: SocketAddr,
    is_secure: bool,
    is_tool: bool,
}

impl Sender {
    fn registrant(&self) -> Registrant<'_> {
        let Self { name, address, is_secure, is_tool } = self;
        Registrant { name: name.as_deref(), address: *address, is_secure: *is_secure, is_tool: *is_tool }
    }
}

impl DirectoryServer {
    /// Makes the server of an empty directory. `credentials` are the credentials of the CoAP server that calls this
    /// application.
    ///
    /// # Errors
    /// The error of the system if it has no randomness.
    pub fn new(settings: DirectorySettings, credentials: Credentials) -> std::io::Result<Self> {
        let DirectorySettings { bounds, tools } = settings;
        Ok(Self(Arc::new(Shared {
            directory: Mutex::new(Directory::new(bounds)),
            credentials,
            tools,
            bounds,
            simple: Semaphore::new(SIMPLE_AT_ONCE),
            process: getrandom::u32().map_err(|error| std::io::Error::other(error.to_string()))?,
            notified: AtomicU64::new(0),
        })))
    }

    /// Returns the paths that `/.well-known/core` lists, so that endpoints and clients can find the directory (RFC
    /// 9176, section 4.3).
    pub fn paths() -> Vec<ListedPath> {
        let path = |path: &str, resource_type, observable| ListedPath {
            path: path.to_owned(),
            resource_type,
            content_format: Some(LINK_FORMAT as u16),
            observable,
        };
        vec![
            path(REGISTRATIONS, "core.rd", false),
            path(LOOKUP_RESOURCES, "core.rd-lookup-res", true),
            path(LOOKUP_ENDPOINTS, "core.rd-lookup-ep", true),
        ]
    }

    /// Returns true if the directory has this path. The path begins without a slash.
    pub fn has(&self, path: &str) -> bool {
        let is_registration = || path.strip_prefix(REGISTRATIONS).is_some_and(|rest| rest.starts_with('/'));
        matches!(path, REGISTRATIONS | SIMPLE | LOOKUP_RESOURCES | LOOKUP_ENDPOINTS) || is_registration()
    }

    /// Returns the number of registrations.
    pub fn registrations(&self) -> usize {
        self.0.directory().len()
    }
}

impl Shared {
    fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the sender of a request.
    fn sender(&self, request: &Request<'_>) -> Result<Sender, Code> {
        let identity = request.identity();
        let address = request.remote().ok_or(Code::INTERNAL_SERVER_ERROR)?;
        let name = match identity.protection {
            Protection::Dtls | Protection::Oscore => self.credentials.name_of(identity.principal),
            Protection::Plain => None,
            // An endpoint registers by unicast.
            Protection::GroupRequest(_) | Protection::GroupResponse => return Err(Code::METHOD_NOT_ALLOWED),
        };
        let is_tool = name.as_ref().is_some_and(|name| self.tools.contains(name));
        Ok(Sender { name, address, is_secure: identity.protection == Protection::Dtls, is_tool })
    }

    /// Notifies the observers of lookups if the directory has changed since the last notification.
    fn notify(&self, notifier: &Notifier) {
        let version = self.directory().version();
        if self.notified.swap(version, Ordering::Relaxed) != version {
            notifier.changed(LOOKUP_RESOURCES);
            notifier.changed(LOOKUP_ENDPOINTS);
        }
    }

    fn register(&self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<Handled, Code> {
        if request.message().uint(OptionNumber::CONTENT_FORMAT) != Some(LINK_FORMAT) {
            return Err(Code::UNSUPPORTED_CONTENT_FORMAT);
        }
        let (sender, query) = (self.sender(request)?, request.query()?);
        let id = getrandom::u64().map_err(|_| Code::SERVICE_UNAVAILABLE)?;
        let place = (id, clock::now());
        let registered = self.directory().register(sender.registrant(), query.arguments(), request.payload(), place);
        let path = match registered {
            Ok(path) => path,
            Err(refused) => return Ok(Err(refused)),
        };
        response.set_code(Code::CREATED);
        for segment in path.split('/').skip(1) {
            response.option(OptionNumber::LOCATION_PATH, segment.as_bytes())?;
        }
        Ok(Ok(()))
    }

    /// Serves a request that registers, renews or removes a registration.
    fn change(&self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<Handled, Code> {
        let sender = self.sender(request)?;
        let (who, path) = (sender.registrant(), request.path());
        let changed = match request.method() {
            Code::POST => {
                response.set_code(Code::CHANGED);
                self.directory().renew(who, path, request.query()?.arguments(), clock::now())
            }
            Code::DELETE => {
                response.set_code(Code::DELETED);
                self.directory().remove(who, path)
            }
            _ => return Err(Code::METHOD_NOT_ALLOWED),
        };
        Ok(changed)
    }

    fn look_up(&self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<Handled, Code> {
        let message = request.message();
        if message.uint(OptionNumber::ACCEPT).is_some_and(|format| format != LINK_FORMAT) {
            return Err(Code::NOT_ACCEPTABLE);
        }
        let query = request.query()?;
        let (links, version) = {
            let directory = self.directory();
            let links = match request.path() {
                LOOKUP_RESOURCES => directory.resources(query.arguments()),
                _ => directory.endpoints(query.arguments()),
            };
            (links, directory.version())
        };
        let links = match links {
            Ok(links) => links,
            Err(refused) => return Ok(Err(refused)),
        };
        response.observable();
        let [.., a, b, c, d] = version.to_be_bytes();
        let [e, f, g, h] = self.process.to_be_bytes();
        let etag = [a, b, c, d, e, f, g, h];
        response.option(OptionNumber::ETAG, &etag)?;
        if message.values(OptionNumber::ETAG).any(|known| known == etag) {
            response.set_code(Code::VALID);
            return Ok(Ok(()));
        }
        response.uint(OptionNumber::CONTENT_FORMAT, LINK_FORMAT)?;
        response.payload(links.as_bytes())?;
        Ok(Ok(()))
    }

    /// Answers a simple registration. After the response, asks the sender of the request for its links, and registers
    /// them.
    fn register_simply(
        self: &Arc<Self>,
        request: &Request<'_>,
        response: &mut Response<'_, '_>,
    ) -> Result<Handled, Code> {
        let sender = self.sender(request)?;
        if request.identity().protection != Protection::Plain {
            // The directory has no key for a session with the endpoint.
            request.because("a simple registration in a session: the endpoint registers at /rd");
            return Err(Code::NOT_IMPLEMENTED);
        }
        let query: Vec<String> = request.query()?.arguments().map(str::to_owned).collect();
        let parameters = Parameters::read(query.iter().map(String::as_str));
        if let Err(refused) = parameters.and_then(|parameters| parameters.check_simple()) {
            return Ok(Err(refused));
        }
        let (shared, notifier) = (Arc::clone(self), request.notifier());
        if self.simple.available_permits() == 0 {
            return Ok(Err(DirectoryError::Full));
        }
        tokio::spawn(async move {
            let Ok(_place) = shared.simple.acquire().await else { return };
            // The response has time to leave first: some endpoints wait for it alone.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let address = sender.address;
            let links = match links_of(address, shared.bounds.links).await {
                Ok(Some(links)) => links,
                Ok(None) => return tracing::info!("directory: {address} sends no links"),
                Err(error) => return tracing::info!("directory: {address} sends no links: {error}"),
            };
            let Ok(id) = getrandom::u64() else { return };
            let (query, place) = (query.iter().map(String::as_str), (id, clock::now()));
            let registered = shared.directory().register(sender.registrant(), query, &links, place);
            match registered {
                Ok(_) => shared.notify(&notifier),
                Err(refused) => tracing::info!("directory: {address} is not registered: {refused}"),
            }
        });
        response.set_code(Code::CHANGED);
        Ok(Ok(()))
    }
}

/// Asks an endpoint for its links (RFC 6690), without protection. Returns `None` if the response contains no links.
async fn links_of(endpoint: SocketAddr, longest: usize) -> Result<Option<Vec<u8>>, ClientError> {
    let config = ClientConfig::default().with(|config| {
        config.coap.timeout = SIMPLE_TIME;
        config.coap.max_body = longest;
    });
    let session = Session::connect_to(endpoint, Scheme::Coap, config).await?;
    let response = session.get("/.well-known/core").await?;
    Ok((response.code == Code::CONTENT).then_some(response.payload))
}

/// The result of a request: `Ok`, or the reason why the directory refuses it.
type Handled = Result<(), DirectoryError>;

impl Application for DirectoryServer {
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let shared = &self.0;
        let handled = match (request.path(), request.method()) {
            (REGISTRATIONS, Code::POST) => shared.register(request, response)?,
            (SIMPLE, Code::POST) => shared.register_simply(request, response)?,
            (LOOKUP_RESOURCES | LOOKUP_ENDPOINTS, Code::GET) => shared.look_up(request, response)?,
            (REGISTRATIONS | SIMPLE | LOOKUP_RESOURCES | LOOKUP_ENDPOINTS, _) => return Err(Code::METHOD_NOT_ALLOWED),
            _ => shared.change(request, response)?,
        };
        shared.notify(&request.notifier());
        let Err(refused) = handled else { return Ok(()) };
        response.set_code(refused.code());
        if matches!(refused, DirectoryError::Full | DirectoryError::TooMany) {
            response.uint(OptionNumber::MAX_AGE, RETRY_AFTER)?;
            request.because(refused.to_string());
        }
        response.payload(refused.to_string().as_bytes())
    }

    fn every_second(&mut self, notifier: &Notifier) {
        self.0.directory().expire(clock::now());
        self.0.notify(notifier);
    }
}
