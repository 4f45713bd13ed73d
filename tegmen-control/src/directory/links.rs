//! Links in CoRE Link Format (RFC 6690), in the limited form in which each link is independent of other links (RFC
//! 9176, appendix C).

use super::error::DirectoryError;
use fluent_uri::{Uri, UriRef};
use std::fmt;

/// The attributes that a link has at most once (RFC 6690, section 3).
pub(super) const ONCE: [&str; 3] = ["rt", "if", "sz"];

/// A link: its target, and its attributes in the order of the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Link {
    /// A URI, or a path that begins with a slash.
    pub(super) target: String,
    pub(super) attributes: Vec<Attribute>,
}

/// A target attribute, which may have no value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Attribute {
    pub(super) name: String,
    pub(super) value: Option<Value>,
}

/// The value of an attribute. It is written in the form in which it was received: with or without quotation marks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Token(String),
    Quoted(String),
}

impl Value {
    pub(super) fn text(&self) -> &str {
        let (Self::Token(text) | Self::Quoted(text)) = self;
        text
    }
}

impl Attribute {
    /// Returns an attribute whose value is in quotation marks.
    pub(super) fn quoted(name: &str, value: &str) -> Self {
        Self { name: name.to_owned(), value: Some(Value::Quoted(value.to_owned())) }
    }
}

impl Link {
    /// Returns the value of the attribute of this name; `None` if the link does not have the attribute, or if the
    /// attribute has no value.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|attribute| attribute.name == name)?;
        found.value.as_ref().map(Value::text)
    }

    /// Returns the number of bytes of memory of the link.
    pub(super) fn memory(&self) -> usize {
        let of_attribute = |Attribute { name, value }: &Attribute| {
            let value = value.as_ref().map_or(0, |value| heap(value.text()));
            size_of::<Attribute>().saturating_add(heap(name)).saturating_add(value)
        };
        let own = size_of::<Self>().saturating_add(heap(&self.target));
        self.attributes.iter().map(of_attribute).fold(own, usize::saturating_add)
    }
}

/// Returns the number of bytes of a text on the heap.
const fn heap(text: &str) -> usize {
    ALLOCATED.saturating_add(text.len())
}

/// The bytes that an allocator adds to an allocation.
const ALLOCATED: usize = 16;

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}>", self.target)?;
        for Attribute { name, value } in &self.attributes {
            write!(f, ";{name}")?;
            match value {
                None => {}
                Some(Value::Token(text)) => write!(f, "={text}")?,
                Some(Value::Quoted(text)) => {
                    f.write_str("=\"")?;
                    for character in text.chars() {
                        if matches!(character, '"' | '\\') {
                            f.write_str("\\")?;
                        }
                        write!(f, "{character}")?;
                    }
                    f.write_str("\"")?;
                }
            }
        }
        Ok(())
    }
}

/// Reads a list of links, which may be empty.
///
/// # Errors
/// [`DirectoryError::Malformed`] with the position of the fault.
pub(super) fn parse(text: &[u8]) -> Result<Vec<Link>, DirectoryError> {
    let malformed = |at: usize, why| DirectoryError::Malformed(format!("byte {at} of the links: {why}"));
    let all = std::str::from_utf8(text).map_err(|error| malformed(error.valid_up_to(), "it is not UTF-8"))?;
    let mut reader = Reader { rest: all };
    let mut links = Vec::new();
    loop {
        reader.skip_spaces();
        if reader.rest.is_empty() && links.is_empty() {
            return Ok(links);
        }
        let link = reader.link().map_err(|why| malformed(all.len().saturating_sub(reader.rest.len()), why))?;
        links.push(link);
        reader.skip_spaces();
        if reader.rest.is_empty() {
            return Ok(links);
        }
        if !reader.takes(',') {
            return Err(malformed(all.len().saturating_sub(reader.rest.len()), "a comma separates links"));
        }
    }
}

struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
    }

    fn takes(&mut self, wanted: char) -> bool {
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Reads characters for as long as `is_wanted` returns true for them.
    fn take_while(&mut self, is_wanted: fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !is_wanted(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn link(&mut self) -> Result<Link, &'static str> {
        if !self.takes('<') {
            return Err("a link begins with <");
        }
        let target = self.take_while(|c| c != '>');
        check_reference(target)?;
        if !self.takes('>') {
            return Err("> is missing behind the target of a link");
        }
        let mut attributes = Vec::new();
        loop {
            self.skip_spaces();
            if !self.takes(';') {
                break;
            }
            self.skip_spaces();
            attributes.push(self.attribute()?);
        }
        attributes.shrink_to_fit();
        let count = |name: &str| attributes.iter().filter(|attribute: &&Attribute| attribute.name == name).count();
        if ONCE.into_iter().any(|name| count(name) > 1) {
            return Err("a link has rt, if and sz at most once (RFC 6690, section 3)");
        }
        let link = Link { target: target.to_owned(), attributes };
        if let Some(anchor) = link.attribute("anchor") {
            check_reference(anchor)?;
            if anchor.starts_with('/') != target.starts_with('/') {
                return Err("target and anchor of a link are both paths, or both URIs (RFC 9176, appendix C)");
            }
        }
        Ok(link)
    }

    fn attribute(&mut self) -> Result<Attribute, &'static str> {
        let name = self.take_while(is_of_name);
        if name.is_empty() {
            return Err("an attribute has no name");
        }
        let name = name.to_owned();
        if !self.takes('=') {
            return Ok(Attribute { name, value: None });
        }
        if !self.takes('"') {
            // RFC 6690, section 2: ptoken.
            let token = self.take_while(|c| c.is_ascii_graphic() && !"\",;\\".contains(c));
            return match token {
                "" => Err("a value is missing behind ="),
                token => Ok(Attribute { name, value: Some(Value::Token(token.to_owned())) }),
            };
        }
        let mut text = String::new();
        let mut characters = self.rest.chars();
        loop {
            match characters.next() {
                Some('"') => break,
                Some('\\') => text.extend(characters.next().filter(|c| !c.is_control())),
                Some(character) if !character.is_control() => text.push(character),
                Some(_) => return Err("a control character is in quotation marks"),
                None => return Err("a quotation mark is missing behind a value"),
            }
        }
        self.rest = characters.as_str();
        Ok(Attribute { name, value: Some(Value::Quoted(text)) })
    }
}

/// Returns true if a text can be the name of an attribute (RFC 6690, section 2: parmname). Any other text would change
/// the list of links that contains the attribute.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_of_name)
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || "!#$&+-.^_`|~*".contains(character)
}

/// Checks a target or an anchor. It must be a URI, or a path that begins with a slash and has no segment `.` or `..`.
fn check_reference(text: &str) -> Result<(), &'static str> {
    let reference = UriRef::parse(text).map_err(|_| "the target or the anchor of a link is no URI reference")?;
    if Uri::parse(text).is_ok() {
        return Ok(());
    }
    let is_path = text.starts_with('/') && !text.starts_with("//");
    let leads_back = |path: &str| path.split('/').any(|segment| matches!(segment, "." | ".."));
    if !is_path || leads_back(reference.path().as_str()) {
        return Err("a target or an anchor is a URI, or a path with a slash in front (RFC 9176, appendix C)");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
