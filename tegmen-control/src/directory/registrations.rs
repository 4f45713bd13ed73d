//! Registrations of endpoints (RFC 9176, section 5).

use super::REGISTRATIONS;
use super::error::DirectoryError;
use super::links::{self, Link, ONCE};
use fluent_uri::Uri;
use fluent_uri::component::Host;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tegmen_base::time::{Duration, Instant};

/// The lifetime of a registration without `lt`, in seconds (RFC 9176, section 5).
const LIFETIME: u32 = 90_000;
/// Maximum number of bytes of the name of an endpoint or a sector (RFC 9176, section 5).
const MAX_NAME: usize = 63;
/// Maximum number of attributes of an endpoint, in addition to its name, sector, base and lifetime.
const MAX_ATTRIBUTES: usize = 16;
/// The maximum number of bytes of memory for the links of a registration, for each byte of
/// [`DirectoryBounds::links`]. A short link with two attributes needs six to seven times as many bytes as
/// its text.
const MEMORY: usize = 8;
/// Parameters that a registration must not contain: in a lookup they have another meaning, or the directory writes them
/// itself.
const RESERVED: [&str; 6] = ["anchor", "count", "href", "page", "rel", "rt"];

/// Limits of a [`Directory`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryBounds {
    /// Maximum number of registrations in total, and maximum number of names whose owners are remembered. At most half
    /// of the registrations may be from requests without protection.
    pub registrations: usize,
    /// Maximum number of registrations of one identity, and maximum number of remembered names of one identity. A sender
    /// without protection has no identity, so its registrations count for its IP address.
    pub each: usize,
    /// Maximum number of bytes of the text of the links of one registration. In memory these links take at most eight
    /// times as many bytes.
    pub links: usize,
    /// Maximum number of bytes of memory for the links of all registrations together.
    pub bytes: usize,
}

impl Default for DirectoryBounds {
    /// Returns these limits: 10,000 registrations, 100 registrations of each identity, 16 KiB of links in one
    /// registration, and 128 MiB of memory for all links.
    fn default() -> Self {
        Self { registrations: 10_000, each: 100, links: 16 << 10, bytes: 128 << 20 }
    }
}

/// The sender of a request to a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registrant<'r> {
    /// The name that the sender has proved; `None` if it has proved no identity.
    pub name: Option<&'r str>,
    /// The address from which the request came.
    pub address: SocketAddr,
    /// True if the request arrived in a DTLS session. The base URI of the endpoint then has the scheme `coaps`, and
    /// otherwise `coap`.
    pub is_secure: bool,
    /// True if the sender is a commissioning tool, which may register other endpoints with any base URI.
    pub is_tool: bool,
}

impl Registrant<'_> {
    /// Returns the base URI of an endpoint that does not send a base URI itself.
    fn base(&self) -> String {
        let scheme = if self.is_secure { "coaps" } else { "coap" };
        match self.address.ip().to_canonical() {
            IpAddr::V4(ip) => format!("{scheme}://{ip}:{}", self.address.port()),
            IpAddr::V6(ip) => format!("{scheme}://[{ip}]:{}", self.address.port()),
        }
    }

    fn owner(&self) -> Owner {
        match self.name {
            Some(name) => Owner::Identity(name.into()),
            None => Owner::Address(self.address.ip().to_canonical()),
        }
    }
}

/// The sender that made a registration. A sender without protection is identified by its IP address, and has proved no
/// identity.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Owner {
    Identity(Arc<str>),
    Address(IpAddr),
}

impl Owner {
    /// Returns true if the sender `other` may change a registration that `self` made. Any sender may change a
    /// registration that was made without protection.
    fn admits(&self, other: &Self) -> bool {
        matches!(self, Self::Address(_)) || self == other
    }
}

/// The sector, if the endpoint has one, and the name of the endpoint.
type Name = (Option<String>, String);

/// The parameters of a request (RFC 9176, sections 5 and 5.3.1).
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Parameters {
    endpoint: Option<String>,
    sector: Option<String>,
    lifetime: Option<u32>,
    base: Option<String>,
    attributes: Vec<(String, String)>,
}

impl Parameters {
    /// Reads the query of a request.
    pub(super) fn read<'q>(query: impl Iterator<Item = &'q str>) -> Result<Self, DirectoryError> {
        let malformed = |why: String| DirectoryError::Malformed(why);
        let mut parameters = Self::default();
        for argument in query {
            let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
            let is_there = match name {
                "ep" => parameters.endpoint.is_some(),
                "d" => parameters.sector.is_some(),
                "base" => parameters.base.is_some(),
                "lt" => parameters.lifetime.is_some(),
                _ => ONCE.contains(&name) && parameters.attributes.iter().any(|(there, _)| there == name),
            };
            if is_there {
                return Err(malformed(format!("{name} is there twice")));
            }
            match name {
                "ep" => parameters.endpoint = Some(value.to_owned()),
                "d" => parameters.sector = Some(value.to_owned()),
                "base" => {
                    check_base(value)?;
                    parameters.base = Some(value.to_owned());
                }
                "lt" => {
                    let lifetime = value.parse().ok().filter(|lifetime| *lifetime > 0);
                    parameters.lifetime = Some(
                        lifetime.ok_or_else(|| malformed("lt is a number of seconds, 1 to 4294967295".to_owned()))?,
                    );
                }
                name if RESERVED.contains(&name) => {
                    return Err(malformed(format!("an endpoint has no attribute {name} of its own")));
                }
                name if !links::is_name(name) => {
                    return Err(malformed("a parameter has a name of letters, digits and !#$&+-.^_`|~*".to_owned()));
                }
                _ if !is_text(value) => {
                    return Err(malformed("a control character is in a parameter".to_owned()));
                }
                name => parameters.attributes.push((name.to_owned(), value.to_owned())),
            }
        }
        if parameters.attributes.len() > MAX_ATTRIBUTES {
            return Err(too_many_attributes());
        }
        for name in [&parameters.endpoint, &parameters.sector].into_iter().flatten() {
            if name.is_empty() || name.len() > MAX_NAME || !is_text(name) {
                return Err(malformed(format!(
                    "the name of an endpoint and that of a sector have 1 to {MAX_NAME} bytes, and no control character"
                )));
            }
        }
        Ok(parameters)
    }
}

impl Parameters {
    /// Checks the parameters of a simple registration in clear: it names the endpoint, and has no base (RFC 9176, section
    /// 5.1).
    pub(super) fn check_simple(&self) -> Result<(), DirectoryError> {
        if self.base.is_some() {
            return Err(DirectoryError::Malformed("a simple registration has no base: register at /rd".to_owned()));
        }
        self.endpoint.as_ref().map(|_| ()).ok_or_else(no_name)
    }
}

fn no_name() -> DirectoryError {
    DirectoryError::Malformed("ep is missing: name the endpoint".to_owned())
}

fn too_many_attributes() -> DirectoryError {
    DirectoryError::Malformed(format!("an endpoint has at most {MAX_ATTRIBUTES} attributes"))
}

fn is_text(text: &str) -> bool {
    !text.contains(char::is_control)
}

/// Checks a base URI, which must consist of a scheme and an authority.
fn check_base(base: &str) -> Result<(), DirectoryError> {
    let uri = Uri::parse(base).ok().filter(|uri| {
        let has_host = uri.authority().is_some_and(|authority| !authority.host().is_empty());
        has_host && uri.path().is_empty() && !uri.has_query() && !uri.has_fragment()
    });
    let wrong = || DirectoryError::Malformed("base is a URI of a scheme, a host and a port alone".to_owned());
    uri.map(drop).ok_or_else(wrong)
}

/// Returns true if the host of a base URI is this IP address.
fn is_at(base: &str, address: IpAddr) -> bool {
    let host = Uri::parse(base).ok().and_then(|uri| {
        Some(match uri.authority()?.host_parsed() {
            Host::Ipv4(ip) => IpAddr::V4(ip),
            Host::Ipv6(ip) => IpAddr::V6(ip),
            _ => return None,
        })
    });
    host.is_some_and(|host| host.to_canonical() == address.to_canonical())
}

/// Returns the base URI of an endpoint. `given` is the base URI in its request, if there is one.
fn base(who: Registrant<'_>, given: Option<&str>) -> Result<String, DirectoryError> {
    match given {
        None => Ok(who.base()),
        Some(base) if who.is_tool || is_at(base, who.address.ip()) => Ok(base.to_owned()),
        Some(_) => Err(DirectoryError::OtherBase),
    }
}

/// A registered endpoint.
pub(super) struct Registration {
    pub(super) id: u64,
    pub(super) name: Name,
    /// The base URI: a scheme and an authority. The paths of the links are relative to it.
    pub(super) base: String,
    /// True if the endpoint sent the base itself. False if the base was derived from the address of the last request.
    has_base: bool,
    lifetime: u32,
    pub(super) attributes: Vec<(String, String)>,
    pub(super) links: Vec<Link>,
    /// The number of bytes of memory for the links.
    bytes: usize,
    owner: Owner,
    until: Instant,
}

impl Registration {
    /// Returns the path of the registration. It begins with a slash.
    pub(super) fn path(&self) -> String {
        format!("/{REGISTRATIONS}/{:016x}", self.id)
    }
}

/// The registrations of a directory, in memory.
pub struct Directory {
    bounds: DirectoryBounds,
    registrations: BTreeMap<u64, Registration>,
    by_name: HashMap<Name, u64>,
    /// The identity that owns each name of an endpoint. A name has an owner even after the registration of the endpoint
    /// has ended (RFC 9176, section 7.5).
    owners: HashMap<Name, Arc<str>>,
    /// The number of bytes of memory for the links of all registrations.
    bytes: usize,
    /// The number of changes so far.
    version: u64,
}

impl Directory {
    /// Makes an empty directory.
    pub fn new(bounds: DirectoryBounds) -> Self {
        Self {
            bounds,
            registrations: BTreeMap::new(),
            by_name: HashMap::new(),
            owners: HashMap::new(),
            bytes: 0,
            version: 0,
        }
    }

    /// Registers an endpoint. If the endpoint is registered already, its registration is replaced, but keeps its path.
    /// `links` is in CoRE Link Format. `id` is a random number for the path of a new registration. Returns the path of
    /// the registration, which begins with a slash.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub fn register<'q>(
        &mut self,
        who: Registrant<'_>,
        query: impl Iterator<Item = &'q str>,
        links: &[u8],
        (id, now): (u64, Instant),
    ) -> Result<String, DirectoryError> {
        let parameters = Parameters::read(query)?;
        if links.len() > self.bounds.links {
            return Err(DirectoryError::TooLong(self.bounds.links));
        }
        let links = links::parse(links)?;
        let bytes = links.iter().map(Link::memory).sum();
        if bytes > self.bounds.links.saturating_mul(MEMORY) {
            return Err(DirectoryError::TooLong(self.bounds.links));
        }
        let endpoint = parameters.endpoint.or_else(|| who.name.map(str::to_owned)).ok_or_else(no_name)?;
        let name = (parameters.sector, endpoint);
        let owner = who.owner();
        let old = self.by_name.get(&name).and_then(|id| self.registrations.get(id));
        if !self.admits(who, &name) {
            return Err(DirectoryError::NameTaken);
        }
        let base = base(who, parameters.base.as_deref())?;
        let is_further = old.is_none_or(|old| old.owner != owner);
        let (old, old_bytes) = (old.map(|old| old.id), old.map_or(0, |old| old.bytes));
        if is_further && !who.is_tool {
            let own = self.registrations.values().filter(|registration| registration.owner == owner).count();
            if own >= self.bounds.each {
                return Err(DirectoryError::TooMany);
            }
        }
        if old.is_none() {
            if self.registrations.len() >= self.bounds.registrations {
                return Err(DirectoryError::Full);
            }
            let is_clear = |owner: &Owner| matches!(owner, Owner::Address(_));
            let clear = self.registrations.values().filter(|registration| is_clear(&registration.owner)).count();
            // Senders without protection can forge their addresses. So they may use only half of the registrations.
            if is_clear(&owner) && clear >= self.bounds.registrations.div_ceil(2) {
                return Err(DirectoryError::Full);
            }
        }
        let all = self.bytes.saturating_sub(old_bytes).saturating_add(bytes);
        if all > self.bounds.bytes {
            return Err(DirectoryError::Full);
        }
        let lifetime = parameters.lifetime.unwrap_or(LIFETIME);
        let id = old.unwrap_or(id);
        let registration = Registration {
            id,
            name: name.clone(),
            base,
            has_base: parameters.base.is_some(),
            lifetime,
            attributes: parameters.attributes,
            links,
            bytes,
            until: now.after(Duration::from_secs(lifetime.into())),
            owner: owner.clone(),
        };
        let path = registration.path();
        self.registrations.insert(id, registration);
        if let Owner::Identity(owner) = owner
            && !who.is_tool
        {
            self.remember(&name, owner);
        }
        self.by_name.insert(name, id);
        self.bytes = all;
        self.version = self.version.wrapping_add(1);
        Ok(path)
    }

    /// Remembers the owner of a name, if there is space. An owner that has its maximum number of names loses one that
    /// has no registration.
    fn remember(&mut self, name: &Name, owner: Arc<str>) {
        if self.owners.contains_key(name) {
            return;
        }
        let own = || self.owners.iter().filter(|(_, other)| **other == owner).map(|(name, _)| name);
        if own().count() >= self.bounds.each {
            let Some(unused) = own().find(|name| !self.by_name.contains_key(*name)).cloned() else { return };
            self.owners.remove(&unused);
        }
        if self.owners.len() < self.bounds.registrations {
            self.owners.insert(name.clone(), owner);
        }
    }

    /// Returns true if the sender `who` may register an endpoint of this name, and change its registration. The sender
    /// is a commissioning tool, or the owner of the name. If the name has no owner, the sender of the registration may
    /// change it.
    fn admits(&self, who: Registrant<'_>, name: &Name) -> bool {
        let registered = || self.by_name.get(name).and_then(|id| self.registrations.get(id));
        who.is_tool
            || match self.owners.get(name) {
                Some(owner) => who.name == Some(&**owner),
                None => registered().is_none_or(|registered| registered.owner.admits(&who.owner())),
            }
    }

    /// Returns the registration at `path`, if the sender `who` may change it. The path begins without a slash.
    fn owned(&mut self, who: Registrant<'_>, path: &str) -> Result<&mut Registration, DirectoryError> {
        let id = path.strip_prefix(REGISTRATIONS).and_then(|rest| rest.strip_prefix('/'));
        let id = id.filter(|digits| digits.len() == 16).and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let found = id.and_then(|id| self.registrations.get(&id)).ok_or(DirectoryError::Unknown)?;
        if !self.admits(who, &found.name) {
            return Err(DirectoryError::NotOwner);
        }
        let id = found.id;
        self.registrations.get_mut(&id).ok_or(DirectoryError::Unknown)
    }

    /// Renews the registration at `path`. The path begins without a slash.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub fn renew<'q>(
        &mut self,
        who: Registrant<'_>,
        path: &str,
        query: impl Iterator<Item = &'q str>,
        now: Instant,
    ) -> Result<(), DirectoryError> {
        let Parameters { endpoint, sector, lifetime, base, attributes } = Parameters::read(query)?;
        if endpoint.is_some() || sector.is_some() {
            return Err(DirectoryError::Malformed("a registration keeps its name and its sector".to_owned()));
        }
        let address = self::base(who, base.as_deref())?;
        let found = self.owned(who, path)?;
        // The attributes in a request replace all of the same name (RFC 9176, section 5.3.1).
        let is_replaced = |name: &str| attributes.iter().any(|(new, _)| new == name);
        let kept = found.attributes.iter().filter(|(name, _)| !is_replaced(name));
        let attributes: Vec<_> = kept.chain(&attributes).cloned().collect();
        if attributes.len() > MAX_ATTRIBUTES {
            return Err(too_many_attributes());
        }
        found.lifetime = lifetime.unwrap_or(found.lifetime);
        found.until = now.after(Duration::from_secs(found.lifetime.into()));
        let before = (found.base.clone(), std::mem::replace(&mut found.attributes, attributes));
        // A base URI from a request stays until another request contains a base URI (RFC 9176, section 5.3.1).
        if base.is_some() || !found.has_base {
            found.base = address;
        }
        found.has_base |= base.is_some();
        if before != (found.base.clone(), found.attributes.clone()) {
            self.version = self.version.wrapping_add(1);
        }
        Ok(())
    }

    /// Removes the registration at `path`. The path begins without a slash.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub fn remove(&mut self, who: Registrant<'_>, path: &str) -> Result<(), DirectoryError> {
        let id = self.owned(who, path)?.id;
        self.forget(id);
        Ok(())
    }

    /// Removes the expired registrations.
    pub fn expire(&mut self, now: Instant) {
        let is_over = |registration: &&Registration| registration.until <= now;
        let over: Vec<u64> = self.registrations.values().filter(is_over).map(|registration| registration.id).collect();
        over.into_iter().for_each(|id| self.forget(id));
    }

    fn forget(&mut self, id: u64) {
        if let Some(gone) = self.registrations.remove(&id) {
            self.by_name.remove(&gone.name);
            self.bytes = self.bytes.saturating_sub(gone.bytes);
            self.version = self.version.wrapping_add(1);
        }
    }

    /// Returns the number of registrations.
    pub fn len(&self) -> usize {
        self.registrations.len()
    }

    /// Returns true if there is no registration.
    pub fn is_empty(&self) -> bool {
        self.registrations.is_empty()
    }

    /// Returns the number of changes so far, for entity tags and for the notification of observers.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the registrations in a fixed order.
    pub(super) fn registrations(&self) -> impl Iterator<Item = &Registration> {
        self.registrations.values()
    }
}

#[cfg(test)]
mod tests;
