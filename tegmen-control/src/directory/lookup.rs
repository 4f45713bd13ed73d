//! Lookups (RFC 9176, section 6).

use super::error::DirectoryError;
use super::links::{Attribute, Link, Value};
use super::registrations::{Directory, Registration};
use std::fmt::Write as _;

/// The attributes that contain a list of values with spaces between them (RFC 6690, section 4.1).
const LISTS: [&str; 5] = ["rt", "if", "rel", "rev", "ct"];

/// The relation of a link without `rel` (RFC 6690, section 2.2).
const HOSTS: &str = "hosts";

/// The query of a lookup: the attributes that an entry must have, and the page.
#[derive(Default)]
struct Query<'q> {
    criteria: Vec<Criterion<'q>>,
    page: usize,
    /// The number of entries on one page; `None` if all entries are on one page.
    count: Option<usize>,
}

/// An attribute that an entry must have in order to match the query.
struct Criterion<'q> {
    name: &'q str,
    value: &'q str,
    /// True if the value of the attribute only has to begin with `value`. False if it must equal `value`.
    is_prefix: bool,
}

impl<'q> Query<'q> {
    fn read(arguments: impl Iterator<Item = &'q str>) -> Result<Self, DirectoryError> {
        let number = |text: &str| text.parse().map_err(|_| malformed("page and count are numbers"));
        let (mut query, mut page) = (Self::default(), None);
        for argument in arguments {
            let Some((name, value)) = argument.split_once('=') else {
                return Err(malformed("a criterion is written as NAME=VALUE"));
            };
            match name {
                "page" => page = Some(number(value)?),
                "count" => query.count = Some(number(value)?),
                _ => {
                    let prefix = value.strip_suffix('*');
                    let (value, is_prefix) = (prefix.unwrap_or(value), prefix.is_some());
                    query.criteria.push(Criterion { name, value, is_prefix });
                }
            }
        }
        if page.is_some() && query.count.is_none() {
            return Err(malformed("page needs count"));
        }
        query.page = page.unwrap_or(0);
        Ok(query)
    }

    /// Writes the entries that are on the requested page, separated by commas.
    fn write(&self, entries: impl Iterator<Item = String>) -> String {
        let skipped = self.page.saturating_mul(self.count.unwrap_or(0));
        let mut text = String::new();
        for entry in entries.skip(skipped).take(self.count.unwrap_or(usize::MAX)) {
            let separator = if text.is_empty() { "" } else { "," };
            // Memory takes all text.
            let _ = write!(text, "{separator}{entry}");
        }
        text
    }
}

fn malformed(why: &str) -> DirectoryError {
    DirectoryError::Malformed(why.to_owned())
}

impl Criterion<'_> {
    fn fits(&self, value: &str) -> bool {
        if self.is_prefix { value.starts_with(self.value) } else { value == self.value }
    }

    /// Returns true if at least one value of a list fits. Spaces separate the values of the list.
    fn fits_one_of(&self, values: &str) -> bool {
        values.split(' ').any(|one| self.fits(one))
    }

    /// Returns true if a link or its registration has the attribute of this criterion.
    fn fits_link(&self, registration: &Registration, link: &Link) -> bool {
        let own = match self.name {
            "href" => self.fits(&link.target) || self.fits(&absolute(registration, &link.target)),
            "anchor" => link
                .attribute("anchor")
                .is_some_and(|anchor| self.fits(anchor) || self.fits(&absolute(registration, anchor))),
            "rel" => self.fits_one_of(link.attribute("rel").unwrap_or(HOSTS)),
            name if LISTS.contains(&name) => link.attribute(name).is_some_and(|values| self.fits_one_of(values)),
            name => link
                .attributes
                .iter()
                .any(|attribute| attribute.name == name && self.fits(attribute.value.as_ref().map_or("", Value::text))),
        };
        own || self.fits_endpoint(registration)
    }

    /// Returns true if the registration itself has the attribute of this criterion. The links of the registration do
    /// not count.
    fn fits_endpoint(&self, registration: &Registration) -> bool {
        let (sector, endpoint) = &registration.name;
        match self.name {
            "href" => self.fits(&registration.path()),
            "ep" => self.fits(endpoint),
            "d" => sector.as_deref().is_some_and(|sector| self.fits(sector)),
            "base" => self.fits(&registration.base),
            name => registration.attributes.iter().any(|(there, value)| {
                there == name && if LISTS.contains(&name) { self.fits_one_of(value) } else { self.fits(value) }
            }),
        }
    }
}

/// Returns the absolute URI of a target or an anchor.
fn absolute(registration: &Registration, reference: &str) -> String {
    match reference.starts_with('/') {
        true => format!("{}{reference}", registration.base),
        false => reference.to_owned(),
    }
}

/// Returns a link as the answer to a lookup contains it, with only absolute URIs.
fn resolved(registration: &Registration, link: &Link) -> Link {
    let mut link = Link { target: absolute(registration, &link.target), ..link.clone() };
    for attribute in link.attributes.iter_mut().filter(|attribute| attribute.name == "anchor") {
        if let Some(Value::Token(anchor) | Value::Quoted(anchor)) = &attribute.value {
            attribute.value = Some(Value::Quoted(absolute(registration, anchor)));
        }
    }
    link
}

/// Returns the link that describes a registration in the response to a lookup. The link does not contain the lifetime
/// of the registration (RFC 9176, section 6.4).
fn entry(registration: &Registration) -> Link {
    let (sector, endpoint) = &registration.name;
    let mut attributes = vec![Attribute::quoted("base", &registration.base), Attribute::quoted("ep", endpoint)];
    attributes.extend(sector.as_deref().map(|sector| Attribute::quoted("d", sector)));
    attributes.extend(registration.attributes.iter().map(|(name, value)| Attribute::quoted(name, value)));
    attributes.push(Attribute::quoted("rt", "core.rd-ep"));
    Link { target: registration.path(), attributes }
}

impl Directory {
    /// Returns the links that match a query, in CoRE Link Format.
    ///
    /// # Errors
    /// [`DirectoryError::Malformed`].
    pub fn resources<'q>(&self, query: impl Iterator<Item = &'q str>) -> Result<String, DirectoryError> {
        let query = Query::read(query)?;
        let links = self
            .registrations()
            .flat_map(|registration| registration.links.iter().map(move |link| (registration, link)));
        let fits = |(registration, link): &(&Registration, &Link)| {
            query.criteria.iter().all(|criterion| criterion.fits_link(registration, link))
        };
        Ok(query.write(links.filter(fits).map(|(registration, link)| resolved(registration, link).to_string())))
    }

    /// Returns the endpoints that match a query, in CoRE Link Format. A query may also match attributes of an
    /// endpoint's links.
    ///
    /// # Errors
    /// [`DirectoryError::Malformed`].
    pub fn endpoints<'q>(&self, query: impl Iterator<Item = &'q str>) -> Result<String, DirectoryError> {
        let query = Query::read(query)?;
        let fits = |registration: &&Registration| {
            query.criteria.iter().all(|criterion| {
                let is_constant = criterion.name == "rt" && criterion.fits("core.rd-ep");
                let in_links = || registration.links.iter().any(|link| criterion.fits_link(registration, link));
                is_constant || criterion.fits_endpoint(registration) || in_links()
            })
        };
        Ok(query.write(self.registrations().filter(fits).map(|registration| entry(registration).to_string())))
    }
}

#[cfg(test)]
mod tests;
