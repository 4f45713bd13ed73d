//! The server_name extension of a ClientHello (RFC 6066, section 3). If an endpoint answers as several named servers,
//! the client chooses one of them with this extension.

use super::context::HandshakeContext;
use super::handshake::Write;
use super::handshake::client_hello::ClientHello;
use super::handshake::extension::ExtensionType;
use super::parts::Parts;
use super::roles::{Keys as _, Roles};
use super::scratch::{self, Item};
use super::state::{Flags, Handshake};
use super::{AlertDescription, Fatal};
use crate::buf::{Reader, Truncated, Writer};

/// The NameType of a DNS name.
const HOST_NAME: u8 = 0;

/// Writes the server_name extension with the name of a server.
pub(crate) fn write(writer: &mut Writer<'_>, name: &[u8]) -> Write {
    writer.u16(ExtensionType::SERVER_NAME.0)?;
    writer.behind_len::<2>(|writer| {
        writer.behind_len::<2>(|writer| {
            writer.u8(HOST_NAME)?;
            writer.with_len16(name)
        })
    })
}

/// Reads the DNS name in the content of the extension. The content is a list of names, and a type and a length precede
/// each name. Skips names of other types. The result is empty if the list has no DNS name.
fn read(data: &[u8]) -> Result<&[u8], Truncated> {
    let mut reader = Reader::new(data);
    let mut list = Reader::new(reader.with_len16()?);
    if !reader.is_empty() || list.is_empty() {
        return Err(Truncated);
    }
    let mut found: &[u8] = &[];
    while !list.is_empty() {
        let [kind] = list.array()?;
        let name = list.with_len16()?;
        // An empty name is not allowed, and neither are two names of one type.
        if name.is_empty() || kind == HOST_NAME && !found.is_empty() {
            return Err(Truncated);
        }
        if kind == HOST_NAME {
            found = name;
        }
    }
    Ok(found)
}

impl<R: Roles> HandshakeContext<'_, R> {
    /// Server: returns the number of the named server that a ClientHello requests: see
    /// [`Keys::server`](super::roles::Keys).
    ///
    /// # Errors
    /// [`Fatal::Decode`] if server_name is malformed. [`Fatal::Refused`] if the owner of the endpoint refuses the name.
    #[inline(always)]
    pub(crate) fn server_of(&self, hello: &ClientHello<'_>) -> Result<u32, Fatal> {
        if !R::NAMES {
            return Ok(0);
        }
        let name = match hello.extension(ExtensionType::SERVER_NAME) {
            Some(data) => read(data).map_err(|_| Fatal::Decode)?,
            None => &[],
        };
        self.roles.keys().server(name).ok_or(Fatal::Refused(AlertDescription::UNRECOGNIZED_NAME))
    }
}

impl Handshake<'_> {
    /// Server: stores the number of the named server, and a byte that is 1 if the client sent a server_name.
    pub(crate) fn keep_server(&mut self, server: u32, hello: &ClientHello<'_>) -> Result<(), Fatal> {
        if server == 0 {
            return Ok(());
        }
        let is_named = hello.extension(ExtensionType::SERVER_NAME).is_some();
        let [a, b, c, d] = server.to_be_bytes();
        self.put(Item::Server, &[a, b, c, d, u8::from(is_named)])
    }

    /// Server: returns the number of the named server of this handshake; 0 if the client requested no named server.
    pub(crate) fn server<R: Roles>(&self) -> u32 {
        kept_server::<R>(self.buffers.outgoing)
    }
}

/// Server: returns the number of the named server that is stored in this outgoing buffer of a handshake; 0 if the
/// client requested no named server.
#[inline]
pub(crate) fn kept_server<R: Roles>(room: &[u8]) -> u32 {
    if !R::NAMES {
        return 0;
    }
    scratch::get(room, Item::Server).first_chunk().map_or(0, |number| u32::from_be_bytes(*number))
}

impl Parts<'_> {
    /// Server: true if the ServerHello must contain server_name. This is the case if the client sent a name, and no
    /// session is resumed.
    #[inline(always)]
    pub(crate) fn answers_name<R: Roles>(&self) -> bool {
        R::NAMES
            && !self.state.minimal
            && !self.state.flags.has(Flags::RESUMED)
            && scratch::get(self.room, Item::Server).last() == Some(&1)
    }
}

#[cfg(test)]
mod tests;
