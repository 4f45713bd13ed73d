//! Names and their components (packet format, section "Name").

use crate::error::Error;
use crate::tlv::{self, Element, Elements, Type};
use core::cmp::Ordering;
use tegmen_base::buf::{Full, Writer};
use tegmen_base::crypto::DIGEST_LEN;

/// The first byte of a Name element. The value of a packet begins with this byte.
pub(crate) const FIRST: u8 = Type::NAME.0 as u8;

/// A component of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Component<'n> {
    /// The type of the component, from 1 to 65,535.
    pub kind: Type,
    /// The value of the component.
    pub value: &'n [u8],
}

impl<'n> Component<'n> {
    /// Makes a generic component.
    pub const fn generic(value: &'n [u8]) -> Self {
        Self { kind: Type::GENERIC, value }
    }

    /// Writes the component as an element.
    ///
    /// # Errors
    /// [`Full`] if the component does not fit.
    pub fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        tlv::write(out, self.kind, self.value)
    }

    /// Returns the number that is the value of a component, such as a segment number or a version. Returns `None` for
    /// any other value.
    pub fn number(&self) -> Option<u64> {
        tlv::integer(self.value, self.kind).ok()
    }

    fn of(element: &Element<'n>) -> Result<Self, Error> {
        let Element { kind, value, .. } = *element;
        match kind {
            Type::IMPLICIT_DIGEST | Type::PARAMETERS_DIGEST if value.len() != DIGEST_LEN => Err(Error::Length(kind)),
            Type(1..=0xffff) => Ok(Self { kind, value }),
            _ => Err(Error::Type),
        }
    }
}

/// The canonical order: by type, by length, by value (packet format, section "Canonical Order").
impl Ord for Component<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = |component: &Self| (component.kind, component.value.len());
        order(self).cmp(&order(other)).then_with(|| self.value.cmp(other.value))
    }
}

impl PartialOrd for Component<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A name: a sequence of components, each of which is an element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Name<'n>(&'n [u8]);

impl<'n> Name<'n> {
    /// Checks the value of a Name element.
    ///
    /// # Errors
    /// [`Error`] if it does not consist of components.
    #[inline]
    pub fn parse(value: &'n [u8]) -> Result<Self, Error> {
        Self::check(value, &mut 0).map(|()| Self(value))
    }

    /// Checks the value of a Name element. Sets `digest` to the position after the digest of parameters in the name, to
    /// 0 if the name has no such component, or to the largest number if it has more than one.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn check(value: &[u8], digest: &mut usize) -> Result<(), Error> {
        let mut end = 0;
        for element in Elements::of(value) {
            let element = element?;
            Component::of(&element)?;
            if element.kind == Type::PARAMETERS_DIGEST {
                end = if end == 0 { element.end } else { usize::MAX };
            }
        }
        *digest = end;
        Ok(())
    }

    /// Makes a name of bytes that [`Self::parse`] accepted before. In other bytes, everything from the first invalid
    /// component on is ignored.
    pub const fn of_checked(value: &'n [u8]) -> Self {
        Self(value)
    }

    /// Returns the value of the Name element.
    pub const fn as_bytes(&self) -> &'n [u8] {
        self.0
    }

    /// Returns true for the name without components.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the components.
    pub fn components(&self) -> impl Iterator<Item = Component<'n>> + Clone + use<'n> {
        Elements::of(self.0).filter_map(|element| Component::of(&element.ok()?).ok())
    }

    /// Returns the number of components.
    pub fn len(&self) -> usize {
        self.components().count()
    }

    /// Returns the last component.
    pub fn last(&self) -> Option<Component<'n>> {
        self.components().last()
    }

    /// Returns the name that consists of the first `len` components, or the whole name if it has fewer.
    pub fn prefix(&self, len: usize) -> Self {
        let end = Elements::of(self.0).take(len).last().and_then(Result::ok).map_or(0, |element| element.end);
        Self(self.0.get(..end).unwrap_or(self.0))
    }

    /// Returns true if `other` begins with all components of this name.
    pub fn is_prefix_of(&self, other: &Name<'_>) -> bool {
        // Each component has only one encoding, so a comparison of bytes is sufficient.
        other.0.starts_with(self.0)
    }

    /// Writes the Name element.
    ///
    /// # Errors
    /// [`Full`] if the name does not fit.
    pub fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        tlv::write(out, Type::NAME, self.0)
    }
}

/// The canonical order: the first components that differ decide. A prefix comes before longer names.
impl Ord for Name<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.components().cmp(other.components())
    }
}

impl PartialOrd for Name<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A sequence of names, each of which is an element.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Names<'n>(&'n [u8]);

impl<'n> Names<'n> {
    /// Checks the value of an element that contains names: a ForwardingHint, or the content of a link.
    ///
    /// # Errors
    /// [`Error`] if it does not consist of names. Other elements that are not critical are skipped.
    #[inline]
    pub fn parse(value: &'n [u8]) -> Result<Self, Error> {
        Self::check(value).map(|()| Self(value))
    }

    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn check(value: &[u8]) -> Result<(), Error> {
        for element in Elements::of(value) {
            let Element { kind, value, .. } = element?;
            match kind {
                Type::NAME => drop(Name::parse(value)?),
                _ if kind.is_critical() => return Err(Error::Critical(kind)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the value of the element.
    pub const fn as_bytes(&self) -> &'n [u8] {
        self.0
    }

    /// Returns the names in order.
    pub fn iter(&self) -> impl Iterator<Item = Name<'n>> + Clone + use<'n> {
        let names = Elements::of(self.0).filter_map(Result::ok).filter(|element| element.kind == Type::NAME);
        names.map(|element| Name(element.value))
    }
}
