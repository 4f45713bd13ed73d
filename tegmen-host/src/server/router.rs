//! Routes of a server: handlers by path and method.

use super::{Application, Request, VirtualHosts};
use crate::uri::encoded_path;
use std::sync::Arc;
use tegmen::coap::handler::USUAL_OPTIONS;
use tegmen::coap::link::{self, Link};
use tegmen::coap::{Code, OptionNumber, Response};

/// An application that selects a handler by path and method.
///
/// A route `/a/b` matches only this path. A route `/a/*` matches each path that begins with `/a/`, and `/*` matches
/// each path. A route with the exact path has priority. Without such a route, the matching route with the most
/// characters before the `*` is used. Only the selected route is used: if it has no handler for the method, the
/// response is 4.05. If no route matches, the response is 4.04. A GET of `/.well-known/core` lists the exact paths (RFC
/// 6690), unless a route matches this path.
///
/// All shards call the same handlers. A lookup allocates no memory.
#[derive(Clone)]
pub struct Router {
    routes: Arc<Vec<Route>>,
    options: &'static [OptionNumber],
    hosts: VirtualHosts,
}

#[derive(Clone)]
struct Route {
    /// The path of the route without a leading slash. If `below` is true, this is only the beginning of the matching
    /// paths.
    path: String,
    /// True if the route also matches longer paths that begin with `path`.
    below: bool,
    handlers: Vec<(Code, Handler)>,
}

impl Route {
    /// Returns the key by which routes are sorted. Routes with an exact path are first, in the byte order of their
    /// paths. Then the other routes follow, beginning with the longest path.
    fn rank(&self) -> (bool, usize, &str) {
        (self.below, if self.below { usize::MAX - self.path.len() } else { 0 }, &self.path)
    }
}

type Handler = Arc<dyn Fn(&Request<'_>, &mut Response<'_, '_>) -> Result<(), Code> + Send + Sync>;

impl Default for Router {
    fn default() -> Self {
        Self::new()
    }
}

impl Router {
    /// Returns a router without routes.
    pub fn new() -> Self {
        Self { routes: Arc::default(), options: USUAL_OPTIONS, hosts: VirtualHosts::default() }
    }

    /// Returns a router that passes each request to an application. The router does not call
    /// [`Application::every_second`]. If a body comes in blocks, the router passes the request after all blocks have
    /// arrived.
    pub fn of(application: impl Application + Sync) -> Self {
        let methods = [Code::GET, Code::POST, Code::PUT, Code::DELETE, Code::FETCH, Code::PATCH, Code::IPATCH];
        let router = Self { hosts: application.virtual_hosts(), ..Self::new() };
        methods.into_iter().fold(router, |router, method| {
            let application = application.clone();
            router.on(method, "/*", move |request, response| application.clone().handle(request, response))
        })
    }

    /// Adds the handler of a method at a path. If the method already has a handler at this path, replaces that handler.
    pub fn on(
        mut self,
        method: Code,
        path: &str,
        handler: impl Fn(&Request<'_>, &mut Response<'_, '_>) -> Result<(), Code> + Send + Sync + 'static,
    ) -> Self {
        let path = path.strip_prefix('/').unwrap_or(path);
        let below = path == "*" || path.ends_with("/*");
        let path = if below { path.strip_suffix('*').unwrap_or(path) } else { path };
        let routes = Arc::make_mut(&mut self.routes);
        let known = routes.iter().position(|route| route.below == below && route.path == path);
        let index = known.unwrap_or_else(|| {
            let new = Route { path: path.to_owned(), below, handlers: Vec::new() };
            let index = routes.partition_point(|route| route.rank() < new.rank());
            routes.insert(index, new);
            index
        });
        if let Some(route) = routes.get_mut(index) {
            route.handlers.retain(|(known, _)| *known != method);
            route.handlers.push((method, Arc::new(handler)));
        }
        self
    }

    /// Adds the handler of GET at a path.
    pub fn get(
        self,
        path: &str,
        handler: impl Fn(&Request<'_>, &mut Response<'_, '_>) -> Result<(), Code> + Send + Sync + 'static,
    ) -> Self {
        self.on(Code::GET, path, handler)
    }

    /// Adds the handler of POST at a path.
    pub fn post(
        self,
        path: &str,
        handler: impl Fn(&Request<'_>, &mut Response<'_, '_>) -> Result<(), Code> + Send + Sync + 'static,
    ) -> Self {
        self.on(Code::POST, path, handler)
    }

    /// Adds the handler of PUT at a path.
    pub fn put(
        self,
        path: &str,
        handler: impl Fn(&Request<'_>, &mut Response<'_, '_>) -> Result<(), Code> + Send + Sync + 'static,
    ) -> Self {
        self.on(Code::PUT, path, handler)
    }

    /// Adds the handler of DELETE at a path.
    pub fn delete(
        self,
        path: &str,
        handler: impl Fn(&Request<'_>, &mut Response<'_, '_>) -> Result<(), Code> + Send + Sync + 'static,
    ) -> Self {
        self.on(Code::DELETE, path, handler)
    }

    /// Sets the critical options that the handlers support. A request with another critical option is refused with
    /// 4.02. The default is [`USUAL_OPTIONS`].
    pub fn critical_options(self, options: &'static [OptionNumber]) -> Self {
        Self { options, ..self }
    }

    fn find(&self, path: &str) -> Option<&Route> {
        let (exact, beginnings) = self.routes.split_at(self.routes.partition_point(|route| !route.below));
        match exact.binary_search_by(|route| route.path.as_str().cmp(path)) {
            Ok(index) => exact.get(index),
            Err(_) => beginnings.iter().find(|route| path.starts_with(&route.path)),
        }
    }

    /// Lists the exact paths (RFC 6690).
    fn list(&self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let exact = self.routes.iter().filter(|route| !route.below && !route.path.is_empty());
        let paths: Vec<_> = exact.map(|route| encoded_path(&route.path)).collect();
        let link = |path| Link { path, resource_type: "", content_format: None, observable: false };
        link::respond(request.authorized(), response, paths.iter().map(String::as_str).map(link))
    }
}

impl Application for Router {
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let path = request.path();
        let Some(route) = self.find(path) else {
            return if path == link::WELL_KNOWN_CORE { self.list(request, response) } else { Err(Code::NOT_FOUND) };
        };
        let found = route.handlers.iter().find(|(method, _)| *method == request.method());
        let (_, handler) = found.ok_or(Code::METHOD_NOT_ALLOWED)?;
        handler(request, response)
    }

    fn critical_options(&self) -> &[OptionNumber] {
        self.options
    }

    fn virtual_hosts(&self) -> VirtualHosts {
        self.hosts.clone()
    }
}
