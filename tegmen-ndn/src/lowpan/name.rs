//! Compressed names (RFC 9139, section 5.2). One byte contains the lengths of two components, which follow it.

use super::bytes::{In, Out};
use crate::name::Component;
use crate::tlv::{Elements, Type};

/// Length of the longest component in bytes.
const MAX_COMPONENT: usize = 15;

/// Writes a compressed name. `out` stores an error if the name cannot be compressed.
#[inline(never)]
pub(super) fn write(name: &[u8], out: &mut Out<'_, '_>) {
    let rest = write_components(name, out);
    out.require(rest.is_empty());
}

/// Writes a compressed name that consists of the first components of `name`, up to the first component that cannot be
/// compressed. Returns the rest of the name, from this component on.
#[inline(never)]
pub(super) fn write_components<'n>(name: &'n [u8], out: &mut Out<'_, '_>) -> &'n [u8] {
    let mut elements = Elements::of(name);
    // The position of the byte whose low four bits are the length of the next component.
    let mut lens = None;
    loop {
        let rest = elements.rest();
        let value = match elements.next() {
            Some(Ok(element)) if element.kind == Type::GENERIC => element.value,
            _ => &[],
        };
        if !matches!(value.len(), 1..=MAX_COMPONENT) {
            // A length of 0 ends the name.
            if lens.is_none() {
                out.byte(0);
            }
            return rest;
        }
        let len = value.len() as u8;
        match lens.take() {
            None => {
                lens = Some(out.len());
                out.byte(len << 4);
            }
            Some(place) => out.add(place, len),
        }
        out.put(value);
    }
}

/// Writes a compressed name that consists of one component. `out` stores an error if it cannot be compressed.
pub(super) fn write_last(component: &Component<'_>, out: &mut Out<'_, '_>) {
    let len = component.value.len();
    out.require(component.kind == Type::GENERIC && matches!(len, 1..=MAX_COMPONENT));
    out.byte((len as u8) << 4);
    out.put(component.value);
}

/// Restores the components of a compressed name.
#[inline(never)]
pub(super) fn restore(body: &mut In<'_>, out: &mut Out<'_, '_>) {
    loop {
        let lens = body.byte();
        let (first, second) = (lens >> 4, lens & 0xf);
        body.require(first != 0 || second == 0);
        for len in [first, second] {
            if len != 0 {
                out.element(Type::GENERIC, body.take(len.into()));
            }
        }
        if second == 0 {
            return;
        }
    }
}
