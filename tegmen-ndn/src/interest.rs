//! Interests (packet format, section "Interest Packet").

use crate::error::{Error, WriteError};
use crate::name::{FIRST, Name, Names};
use crate::put_head;
use crate::signature::{SignatureInfo, Signed, Signer};
use crate::tlv::{self, Elements, Extent, Type};
use tegmen_base::buf::{Frame, Full, Writer, copy};
use tegmen_base::crypto::{Crypto, DIGEST_LEN, MAX_SIGNATURE, digest};

/// The time in milliseconds for which an Interest without InterestLifetime is stored.
pub const DEFAULT_LIFETIME: u64 = 4000;

/// An Interest, without its signature.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Interest<'p> {
    /// Name. In a received Interest with parameters, the name contains the digest of the parameters. For an Interest
    /// that is written, pass the name without this digest.
    pub name: Name<'p>,
    /// CanBePrefix: true if the name of the Data packet may have more components than this name.
    pub can_be_prefix: bool,
    /// MustBeFresh: true if a Data packet from a cache must be fresh.
    pub must_be_fresh: bool,
    /// ForwardingHint: names of networks in which the Data packet can be found.
    pub hint: Option<Names<'p>>,
    /// Nonce: four random bytes, with which forwarders detect a loop.
    pub nonce: Option<[u8; 4]>,
    /// InterestLifetime, in milliseconds. `None` means [`DEFAULT_LIFETIME`].
    pub lifetime: Option<u64>,
    /// HopLimit: the number of hops that remain. `None` means no limit.
    pub hop_limit: Option<u8>,
    /// ApplicationParameters: bytes that the consumer passes to the producer.
    pub parameters: Option<&'p [u8]>,
}

/// A received Interest.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedInterest<'p> {
    /// The Interest.
    pub interest: Interest<'p>,
    /// The signature, which is not verified yet.
    pub signed: Option<Signed<'p>>,
    /// The whole packet.
    pub wire: &'p [u8],
    /// The bytes from the parameters to the end, which the digest covers.
    digested: Option<&'p [u8]>,
    /// The position after the digest of the parameters in the name, or 0 if the name has no such digest.
    digest: usize,
}

/// The number of bytes of a component with the digest of parameters.
const DIGEST_COMPONENT_LEN: usize = DIGEST_LEN + 2;

/// The elements of an Interest, in order.
const KINDS: [Type; 10] = [
    Type::NAME,
    Type::CAN_BE_PREFIX,
    Type::MUST_BE_FRESH,
    Type::FORWARDING_HINT,
    Type::NONCE,
    Type::LIFETIME,
    Type::HOP_LIMIT,
    Type::PARAMETERS,
    Type::INTEREST_SIGNATURE_INFO,
    Type::INTEREST_SIGNATURE_VALUE,
];

/// The elements of a received Interest, in the order of `KINDS`.
#[derive(Default)]
pub(crate) struct Fields<'p> {
    /// The value of the packet.
    value: &'p [u8],
    found: [Option<&'p [u8]>; KINDS.len()],
}

impl<'p> ReceivedInterest<'p> {
    /// Reads an Interest. `wire` must contain only this Interest. The digest of its parameters is not checked: call
    /// [`Self::has_valid_digest`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn parse(wire: &'p [u8]) -> Result<Self, Error> {
        let mut received = Self::unread(wire);
        let mut fields = Fields::default();
        received.read(&mut fields, Extent::Known)?;
        received.read_parameters(&fields)?;
        Ok(received)
    }

    /// Makes a value for the packet in `wire`. The fields are empty until [`Self::read`].
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn unread(wire: &'p [u8]) -> Self {
        Self { interest: Interest::default(), signed: None, wire, digested: None, digest: 0 }
    }

    /// Reads the Interest from the packet in `wire`, without its signature and without the bytes that the digest
    /// covers, which [`Self::read_parameters`] reads from `fields`. Writes each field to its place, because copies of
    /// the fields would need much code on a device.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn read(&mut self, fields: &mut Fields<'p>, extent: Extent) -> Result<(), Error> {
        fields.value = tlv::only(self.wire, Type::INTEREST)?;
        // A compressed Interest has no signature.
        let kinds = if extent == Extent::Exact { KINDS.get(..8).unwrap_or(&[]) } else { &KINDS };
        tlv::find(fields.value, kinds, &mut fields.found, extent)?;
        let [name, prefix, fresh, hint, nonce, lifetime, hops, parameters, ..] = &fields.found;
        let name = name.filter(|_| fields.value.first() == Some(&FIRST)).ok_or(Error::Missing(Type::NAME))?;
        let interest = &mut self.interest;
        Name::check(name, &mut self.digest)?;
        interest.name = Name::of_checked(name);
        interest.can_be_prefix = tlv::fixed::<0>(*prefix, Type::CAN_BE_PREFIX)?.is_some();
        interest.must_be_fresh = tlv::fixed::<0>(*fresh, Type::MUST_BE_FRESH)?.is_some();
        if let Some(hint) = hint {
            interest.hint = Some(Names::parse(hint)?);
        }
        interest.nonce = tlv::fixed(*nonce, Type::NONCE)?.copied();
        tlv::read_integer(lifetime, Type::LIFETIME, &mut interest.lifetime, Extent::Known)?;
        interest.hop_limit = tlv::fixed(*hops, Type::HOP_LIMIT)?.map(|[hops]| *hops);
        interest.parameters = *parameters;
        if interest.name.is_empty() || self.digest == usize::MAX || (self.digest != 0) != parameters.is_some() {
            return Err(Error::Name);
        }
        Ok(())
    }

    /// Reads the signature, and the position of the bytes that the digest of the parameters covers.
    pub(crate) fn read_parameters(&mut self, Fields { value, found }: &Fields<'p>) -> Result<(), Error> {
        let [.., parameters, info, signature] = found;
        let start = parameters.map(|parameters| {
            tlv::end_of(value, parameters).wrapping_sub(tlv::element_len(Type::PARAMETERS, parameters.len()))
        });
        self.digested = start.and_then(|start| value.get(start..));
        match (info, signature) {
            (None, None) => {}
            (None, Some(_)) => return Err(Error::Missing(Type::INTEREST_SIGNATURE_INFO)),
            (Some(_), None) => return Err(Error::Missing(Type::INTEREST_SIGNATURE_VALUE)),
            (Some(info), Some(signature)) => {
                let start = start.ok_or(Error::Missing(Type::PARAMETERS))?;
                let components = self.interest.name.as_bytes();
                let portion = [
                    components.get(..self.digest.wrapping_sub(DIGEST_COMPONENT_LEN)).unwrap_or(components),
                    components.get(self.digest..).unwrap_or(&[]),
                    value.get(start..tlv::end_of(value, info)).unwrap_or(&[]),
                ];
                let signed = self.signed.insert(Signed { info: SignatureInfo::unread(), value: signature, portion });
                signed.info.read(info, Extent::Known)?;
            }
        }
        Ok(())
    }

    /// Returns true if the name contains the correct digest of the parameters, or if the Interest has no parameters. An
    /// Interest for which this function returns false must be dropped (packet format, section "Interest Parameters
    /// Digest Component").
    pub fn has_valid_digest<C: Crypto>(&self) -> bool {
        let Some(digested) = self.digested else { return true };
        let expected = digest::<C, DIGEST_LEN>(&[digested]);
        self.interest.name.as_bytes().get(..self.digest).is_some_and(|front| front.ends_with(&expected))
    }
}

/// Adds the Nonce `nonce` to an Interest that has none, because a forwarder does not forward an Interest without a
/// Nonce. Writes the result into `frame`, which must be empty, with [`MAX_HEAD`](crate::MAX_HEAD) free bytes in front.
///
/// # Errors
/// [`WriteError::Full`], and [`WriteError::Name`] for bytes that are not an Interest. The frame is then empty.
pub fn write_with_nonce(packet: &[u8], nonce: [u8; 4], frame: &mut Frame<'_>) -> Result<(), WriteError> {
    let value = tlv::only(packet, Type::INTEREST).map_err(|_| WriteError::Name)?;
    let before = [Type::NAME, Type::CAN_BE_PREFIX, Type::MUST_BE_FRESH, Type::FORWARDING_HINT];
    let elements = Elements::of(value).map_while(Result::ok);
    let end = elements.filter(|element| before.contains(&element.kind)).map(|element| element.end).last();
    let (head, rest) = value.split_at_checked(end.unwrap_or(0)).ok_or(Full)?;
    let written = frame.append_with(|out| {
        out.put(head)?;
        tlv::write(out, Type::NONCE, &nonce)?;
        out.put(rest)
    });
    let written = written.and_then(|()| put_head(Type::INTEREST, frame));
    if written.is_err() {
        frame.truncate(0);
    }
    Ok(written?)
}

/// Decrements the HopLimit of an Interest, if it has one. Returns false if the HopLimit is 0. The Interest must then
/// be dropped.
pub(crate) fn decrement_hops(packet: &mut [u8]) -> bool {
    let Ok(value) = tlv::only(packet, Type::INTEREST) else { return true };
    let head = packet.len().saturating_sub(value.len());
    let mut elements = Elements::of(value).map_while(Result::ok);
    let Some(hops) = elements.find(|element| element.kind == Type::HOP_LIMIT) else { return true };
    let place = head.saturating_add(hops.end).checked_sub(1).filter(|_| hops.value.len() == 1);
    match place.and_then(|place| packet.get_mut(place)) {
        Some(hops) if *hops > 0 => {
            *hops = hops.wrapping_sub(1);
            true
        }
        hops => hops.is_none(),
    }
}

impl Interest<'_> {
    /// Writes the Interest into an empty frame with [`MAX_HEAD`](crate::MAX_HEAD) free bytes in front. If there are
    /// parameters, their digest becomes the last component of the name.
    ///
    /// # Errors
    /// [`WriteError`]. The frame is then empty.
    pub fn write<C: Crypto>(&self, frame: &mut Frame<'_>) -> Result<(), WriteError> {
        self.finish::<C>(frame, |_, _, _| Ok(()))
    }

    /// Does the same as [`Self::write`], and signs the Interest. `info` is the SignatureInfo that `signer` returns. The
    /// caller has added a nonce, a time or a sequence number to this SignatureInfo, so that the signature is unique. An
    /// Interest without parameters gets empty parameters.
    ///
    /// # Errors
    /// [`WriteError`]. The frame is then empty.
    pub fn write_signed<C: Crypto>(
        &self,
        crypto: &mut C,
        signer: &(impl Signer<C> + ?Sized),
        info: &SignatureInfo<'_>,
        frame: &mut Frame<'_>,
    ) -> Result<(), WriteError> {
        let parameters = Some(self.parameters.unwrap_or(&[]));
        let with_parameters = Interest { parameters, ..*self };
        with_parameters.finish::<C>(frame, |frame, name, parameters| {
            frame.append_with(|out| info.write(Type::INTEREST_SIGNATURE_INFO, out))?;
            let mut signature = [0; MAX_SIGNATURE];
            let portion = [name, frame.bytes().get(parameters..).unwrap_or(&[])];
            let len = signer.sign(crypto, &portion, &mut signature)?;
            let signature = signature.get(..len).ok_or(Full)?;
            Ok(frame.append_with(|out| tlv::write(out, Type::INTEREST_SIGNATURE_VALUE, signature))?)
        })
    }

    /// Writes the whole Interest. `sign` appends the signature. Its arguments are the components of the name, and the
    /// position of the parameters.
    fn finish<C: Crypto>(
        &self,
        frame: &mut Frame<'_>,
        sign: impl FnOnce(&mut Frame<'_>, &[u8], usize) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let mut digest = 0;
        if Name::check(self.name.as_bytes(), &mut digest).is_err() || digest != 0 {
            return Err(WriteError::Name);
        }
        let Some(parameters) = self.parameters else { return self.write_without_parameters(frame) };
        let written = self.write_with::<C>(parameters, frame, sign);
        let written = written.and_then(|()| Ok(put_head(Type::INTEREST, frame)?));
        if written.is_err() {
            frame.truncate(0);
        }
        written
    }

    /// Does the same as [`Self::write`] for a name without a digest, but ignores the parameters.
    ///
    /// # Errors
    /// [`WriteError`]. The frame is then empty.
    pub(crate) fn write_without_parameters(&self, frame: &mut Frame<'_>) -> Result<(), WriteError> {
        if self.name.is_empty() {
            return Err(WriteError::Name);
        }
        let written = frame.append_with(|out| {
            self.name.write(out)?;
            self.write_guiders(out)
        });
        let written = written.and_then(|()| put_head(Type::INTEREST, frame));
        if written.is_err() {
            frame.truncate(0);
        }
        Ok(written?)
    }

    fn write_with<C: Crypto>(
        &self,
        parameters: &[u8],
        frame: &mut Frame<'_>,
        sign: impl FnOnce(&mut Frame<'_>, &[u8], usize) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let components = self.name.as_bytes();
        let mut place = 0;
        frame.append_with(|out| {
            out.put(components)?;
            tlv::write(out, Type::PARAMETERS_DIGEST, &[0; DIGEST_LEN])?;
            tlv::enclose(out, 0, Type::NAME)?;
            place = out.len();
            self.write_guiders(out)
        })?;
        let start = frame.len();
        frame.append_with(|out| tlv::write(out, Type::PARAMETERS, parameters))?;
        sign(frame, components, start)?;
        let digest = digest::<C, DIGEST_LEN>(&[frame.bytes().get(start..).unwrap_or(&[])]);
        let digest_place = frame.bytes_mut().get_mut(place.saturating_sub(DIGEST_LEN)..).ok_or(Full)?;
        Ok(copy(digest_place, &digest)?)
    }

    /// Writes the elements between the name and the parameters.
    fn write_guiders(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        if self.can_be_prefix {
            tlv::write(out, Type::CAN_BE_PREFIX, &[])?;
        }
        if self.must_be_fresh {
            tlv::write(out, Type::MUST_BE_FRESH, &[])?;
        }
        if let Some(hint) = &self.hint {
            tlv::write(out, Type::FORWARDING_HINT, hint.as_bytes())?;
        }
        if let Some(nonce) = &self.nonce {
            tlv::write(out, Type::NONCE, nonce)?;
        }
        if let Some(lifetime) = self.lifetime {
            tlv::write_integer(out, Type::LIFETIME, lifetime)?;
        }
        if let Some(hops) = self.hop_limit {
            tlv::write(out, Type::HOP_LIMIT, &[hops])?;
        }
        Ok(())
    }
}
