//! Data packets (packet format, section "Data Packet").

use crate::error::{Error, WriteError};
use crate::name::{Component, FIRST, Name};
use crate::put_head;
use crate::signature::{SignatureInfo, Signed, Signer};
use crate::tlv::{self, Elements, Extent, Type};
use tegmen_base::buf::{Frame, Full, Writer};
use tegmen_base::crypto::{Crypto, DIGEST_LEN, MAX_SIGNATURE, digest};

/// The kind of the content of a Data packet (ContentType).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentType(pub u64);

impl ContentType {
    /// Bytes of the application. A packet without ContentType has this kind.
    pub const BLOB: Self = Self(0);
    /// Other names of the content.
    pub const LINK: Self = Self(1);
    /// A public key: a certificate.
    pub const KEY: Self = Self(2);
    /// The application has no content with this name.
    pub const NACK: Self = Self(3);
    /// A private key, which is stored in a file and never sent.
    pub const SIGNING_KEY: Self = Self(9);
}

/// A Data packet, without its signature.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Data<'p> {
    /// The name of the packet (Name).
    pub name: Name<'p>,
    /// The kind of the content (ContentType).
    pub content_type: Option<ContentType>,
    /// FreshnessPeriod, in milliseconds.
    pub freshness: Option<u64>,
    /// FinalBlockId: the last component of the name of the last segment.
    pub final_block: Option<Component<'p>>,
    /// The content (Content); `None` if the packet has no such element.
    pub content: Option<&'p [u8]>,
}

/// A received Data packet.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedData<'p> {
    /// The fields of the Data packet, without its signature.
    pub data: Data<'p>,
    /// The signature, which is not verified yet.
    pub signed: Signed<'p>,
    /// The whole packet.
    pub wire: &'p [u8],
}

/// The elements of a Data packet, in order.
const KINDS: [Type; 5] = [Type::NAME, Type::META_INFO, Type::CONTENT, Type::SIGNATURE_INFO, Type::SIGNATURE_VALUE];

impl<'p> ReceivedData<'p> {
    /// Reads a packet. `wire` must contain only this packet.
    ///
    /// # Errors
    /// [`Error`].
    pub fn parse(wire: &'p [u8]) -> Result<Self, Error> {
        let mut received = Self::unread(wire);
        received.read(Extent::Known)?;
        Ok(received)
    }

    /// Makes a value for the packet in `wire`. The fields are empty until [`Self::read`].
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn unread(wire: &'p [u8]) -> Self {
        let signed = Signed { info: SignatureInfo::unread(), value: &[], portion: [&[]; 3] };
        Self { data: Data::default(), signed, wire }
    }

    /// Reads the fields from the packet in `wire`. Writes each field to its place, because copies of the fields would
    /// need much code on a device.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn read(&mut self, extent: Extent) -> Result<(), Error> {
        let value = tlv::only(self.wire, Type::DATA)?;
        let mut fields = [None; KINDS.len()];
        tlv::find(value, &KINDS, &mut fields, extent)?;
        let [name, meta, content, info, signature] = &fields;
        let (Some(name), [FIRST, ..]) = (*name, value) else { return Err(Error::Missing(Type::NAME)) };
        let info = info.ok_or(Error::Missing(Type::SIGNATURE_INFO))?;
        let signature = signature.ok_or(Error::Missing(Type::SIGNATURE_VALUE))?;
        self.data.name = Name::parse(name)?;
        self.data.content = *content;
        if let Some(meta) = meta {
            self.data.read_meta(meta, extent)?;
        }
        self.signed.info.read(info, extent)?;
        self.signed.value = signature;
        let [portion, ..] = &mut self.signed.portion;
        *portion = value.get(..tlv::end_of(value, info)).unwrap_or(value);
        Ok(())
    }

    /// Returns the digest of the whole packet, which is the last component of its full name.
    pub fn implicit_digest<C: Crypto>(&self) -> [u8; DIGEST_LEN] {
        digest::<C, DIGEST_LEN>(&[self.wire])
    }
}

impl<'p> Data<'p> {
    /// Reads MetaInfo.
    #[inline(always)]
    fn read_meta(&mut self, value: &'p [u8], extent: Extent) -> Result<(), Error> {
        let mut fields = [None; 3];
        tlv::find(value, &[Type::CONTENT_TYPE, Type::FRESHNESS, Type::FINAL_BLOCK], &mut fields, extent)?;
        let [kind, freshness, last] = &fields;
        let mut number = None;
        tlv::read_integer(kind, Type::CONTENT_TYPE, &mut number, extent)?;
        self.content_type = number.map(ContentType);
        tlv::read_integer(freshness, Type::FRESHNESS, &mut self.freshness, extent)?;
        if let Some(last) = last {
            Name::parse(last)?;
            let Some(Ok(first)) = Elements::of(last).next() else { return Err(Error::Length(Type::FINAL_BLOCK)) };
            self.final_block = Some(Component { kind: first.kind, value: first.value });
            if extent == Extent::Exact && first.end != last.len() {
                return Err(Error::Length(Type::FINAL_BLOCK));
            }
        }
        if extent == Extent::Exact && value.is_empty() { Err(Error::Length(Type::META_INFO)) } else { Ok(()) }
    }

    /// Writes the packet with its signature into an empty frame with [`MAX_HEAD`](crate::MAX_HEAD) free bytes in front.
    ///
    /// # Errors
    /// [`WriteError`]. The frame is then empty.
    pub fn write<C: Crypto>(
        &self,
        crypto: &mut C,
        signer: &(impl Signer<C> + ?Sized),
        frame: &mut Frame<'_>,
    ) -> Result<(), WriteError> {
        let written = self.write_value(crypto, signer, frame);
        let written = written.and_then(|()| Ok(put_head(Type::DATA, frame)?));
        if written.is_err() {
            frame.truncate(0);
        }
        written
    }

    fn write_value<C: Crypto>(
        &self,
        crypto: &mut C,
        signer: &(impl Signer<C> + ?Sized),
        frame: &mut Frame<'_>,
    ) -> Result<(), WriteError> {
        frame.append_with(|out| {
            self.name.write(out)?;
            self.write_meta(out)?;
            if let Some(content) = self.content {
                tlv::write(out, Type::CONTENT, content)?;
            }
            signer.info().write(Type::SIGNATURE_INFO, out)
        })?;
        let mut signature = [0; MAX_SIGNATURE];
        let len = signer.sign(crypto, &[frame.bytes()], &mut signature)?;
        let signature = signature.get(..len).ok_or(Full)?;
        Ok(frame.append_with(|out| tlv::write(out, Type::SIGNATURE_VALUE, signature))?)
    }

    fn write_meta(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        let start = out.len();
        if let Some(kind) = self.content_type {
            tlv::write_integer(out, Type::CONTENT_TYPE, kind.0)?;
        }
        if let Some(freshness) = self.freshness {
            tlv::write_integer(out, Type::FRESHNESS, freshness)?;
        }
        if let Some(last) = self.final_block {
            let block = out.len();
            last.write(out)?;
            tlv::enclose(out, block, Type::FINAL_BLOCK)?;
        }
        if out.len() == start { Ok(()) } else { tlv::enclose(out, start, Type::META_INFO) }
    }
}
