//! Compressed names (RFC 9139, section 5.2). One byte contains the lengths of two components, which follow it.

use super::bytes::{In, Out};
use crate::name::{Component, Name};
use crate::tlv::{self, Type};

/// Length of the longest component in bytes.
const MAX_COMPONENT: usize = 15;

/// Writes a compressed name. `out` stores an error if the name cannot be compressed.
#[inline(never)]
pub(super) fn write(name: &[u8], out: &mut Out<'_, '_>) {
    let mut components = Name::of_checked(name).components();
    let (mut is_short, mut len) = (true, 0usize);
    loop {
        let mut lens = 0;
        let pair = [components.next(), components.next()];
        for component in pair {
            let Component { kind, value } = component.unwrap_or(Component::generic(&[]));
            is_short &= component.is_none() || (kind == Type::GENERIC && matches!(value.len(), 1..=MAX_COMPONENT));
            lens = lens << 4 | value.len() as u8;
            len = len.saturating_add(component.map_or(0, |_| tlv::element_len(kind, value.len())));
        }
        out.byte(lens);
        for component in pair.iter().flatten() {
            out.put(component.value);
        }
        // A length of 0 ends the name.
        if lens & 0xf == 0 {
            // Bytes of the name that are not a component would be lost, so such a name is not compressed.
            out.require(is_short && len == name.len());
            return;
        }
    }
}

/// Returns the number of bytes of a compressed name.
pub(super) fn short_len(name: &[u8]) -> usize {
    let (mut count, mut len) = (0usize, 1usize);
    for component in Name::of_checked(name).components() {
        count = count.saturating_add(1);
        len = len.saturating_add(component.value.len());
    }
    len.saturating_add(count / 2)
}

/// A compressed name.
#[derive(Clone, Copy)]
pub(super) struct Short<'f> {
    /// The first components of the name. They are not in the frame, because a context or a HopID replaces them.
    prefix: &'f [u8],
    bytes: &'f [u8],
    /// The last component of the name, if it is a digest, and otherwise a component without bytes.
    pub(super) digest: Component<'f>,
}

impl<'f> Short<'f> {
    /// Reads a name whose first components are `prefix`.
    #[inline(never)]
    pub(super) fn read(prefix: &'f [u8], body: &mut In<'f>) -> Self {
        let bytes = body.rest();
        loop {
            let lens = body.byte();
            let (first, second) = (lens >> 4, lens & 0xf);
            body.require(first != 0 || second == 0);
            body.take(first.into());
            body.take(second.into());
            if second == 0 {
                break;
            }
        }
        let len = bytes.len().wrapping_sub(body.rest().len());
        Self { prefix, bytes: bytes.get(..len).unwrap_or(bytes), digest: Component::generic(&[]) }
    }

    /// Returns the number of bytes of the components.
    #[inline(never)]
    pub(super) fn len(&self) -> usize {
        let Component { kind, value } = self.digest;
        let last = if value.is_empty() { 0 } else { tlv::element_len(kind, value.len()) };
        let count = |len: usize, value: &[u8]| len.saturating_add(tlv::element_len(Type::GENERIC, value.len()));
        self.values().fold(self.prefix.len().saturating_add(last), count)
    }

    /// Writes the components in an element.
    #[inline(never)]
    pub(super) fn write(&self, kind: Type, out: &mut Out<'_, '_>) {
        out.head(kind, self.len());
        out.put(self.prefix);
        for value in self.values() {
            out.element(Type::GENERIC, value);
        }
        let Component { kind, value } = self.digest;
        if !value.is_empty() {
            out.element(kind, value);
        }
    }

    fn values(&self) -> impl Iterator<Item = &'f [u8]> + use<'f> {
        let (mut body, mut second) = (In::of(self.bytes), 0);
        core::iter::from_fn(move || {
            let mut len = core::mem::take(&mut second);
            if len == 0 {
                let lens = body.byte();
                (len, second) = (lens >> 4, lens & 0xf);
            }
            (len != 0).then(|| body.take(len.into()))
        })
    }
}
