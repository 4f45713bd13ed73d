//! Compressed names (RFC 9139, section 5.2): the lengths of two components in one byte.

use crate::error::Error;
use crate::name::{Component, Name};
use crate::tlv::{self, Type};
use tegmen_base::buf::{Full, Reader, Writer};

/// The bytes of the longest component.
const MAX_COMPONENT: usize = 15;

/// The length of a component, or 0 for none. Returns `None` if the component cannot be compressed.
fn len_of(component: Option<&Component<'_>>) -> Option<u8> {
    match component {
        None => Some(0),
        Some(Component { kind: Type::GENERIC, value }) if matches!(value.len(), 1..=MAX_COMPONENT) => {
            Some(value.len() as u8)
        }
        Some(_) => None,
    }
}

/// Writes a compressed name. Returns `None` if it cannot be compressed, or does not fit.
pub(super) fn write(name: &Name<'_>, out: &mut Writer<'_>) -> Option<()> {
    let mut components = name.components();
    loop {
        let first = components.next();
        let second = components.next();
        out.u8(len_of(first.as_ref())? << 4 | len_of(second.as_ref())?).ok()?;
        for component in first.iter().chain(&second) {
            out.put(component.value).ok()?;
        }
        // A length of 0 ends the name.
        if second.is_none() {
            return Some(());
        }
    }
}

/// Returns the bytes of a compressed name.
pub(super) fn short_len(name: &Name<'_>) -> usize {
    let bytes = |(count, len): (usize, usize), component: Component<'_>| {
        (count.saturating_add(1), len.saturating_add(component.value.len()))
    };
    let (count, len) = name.components().fold((0, 0), bytes);
    len.saturating_add(count / 2).saturating_add(1)
}

/// A compressed name.
#[derive(Clone, Copy)]
pub(super) struct Short<'f> {
    /// The first components, which are not part of the frame.
    prefix: Name<'f>,
    bytes: &'f [u8],
}

impl<'f> Short<'f> {
    /// Reads a name whose first components are `prefix`.
    pub(super) fn read(prefix: Name<'f>, reader: &mut Reader<'f>) -> Result<Self, Error> {
        let bytes = reader.rest();
        while let Some([_, _]) = pair(reader)? {}
        let len = bytes.len().wrapping_sub(reader.rest().len());
        Ok(Self { prefix, bytes: bytes.get(..len).unwrap_or(bytes) })
    }

    /// Returns the bytes of the components.
    pub(super) fn len(&self) -> usize {
        let mut len = self.prefix.as_bytes().len();
        self.each(|value| len = len.saturating_add(tlv::element_len(Type::GENERIC, value.len())));
        len
    }

    /// Writes the components.
    pub(super) fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        let mut written = out.put(self.prefix.as_bytes());
        self.each(|value| written = written.and_then(|()| tlv::write(out, Type::GENERIC, value)));
        written
    }

    fn each(&self, mut take: impl FnMut(&[u8])) {
        let mut reader = Reader::new(self.bytes);
        while !reader.is_empty() {
            let Ok(lens) = reader.u8() else { return };
            for len in [lens >> 4, lens & 0xf] {
                if len > 0
                    && let Ok(value) = reader.take(len.into())
                {
                    take(value);
                }
            }
        }
    }
}

/// Reads two components. Returns `None` behind the last one.
fn pair<'f>(reader: &mut Reader<'f>) -> Result<Option<[&'f [u8]; 2]>, Error> {
    let lens = reader.u8()?;
    let (first, second) = (usize::from(lens >> 4), usize::from(lens & 0xf));
    if first == 0 && second != 0 {
        return Err(Error::Compression);
    }
    let both = [reader.take(first)?, reader.take(second)?];
    Ok((second != 0).then_some(both))
}
