//! The way in which messages name the ID Context of a security context, as a type, so that a mote has neither code nor memory for the
//! derivation of new keys (RFC 8613, appendix B.2).

use super::cose::Aead;
use super::derivation;
use super::id::Id;
use tegmen_base::crypto::Crypto;
use tegmen_base::crypto::hkdf::Hkdf;

/// The way in which messages name the ID Context of a security context, and the memory for it. There are two: [`AsItIs`], and
/// `Rederivable` with the feature `rederivation`.
pub trait Naming: Copy + Default {
    /// The bytes of an ID Context, at their front.
    type IdContext: AsRef<[u8]> + AsMut<[u8]>;
    /// No ID Context: only zeros.
    const NO_ID_CONTEXT: Self::IdContext;
    /// Memory for a kid context that is not the ID Context itself.
    type Wrapped: Default;
    /// Maximum number of bytes of a kid context.
    const MAX_KID_CONTEXT: usize;

    /// The kid context of a message of ours.
    fn kid_context<'a>(self, id_context: Option<&'a [u8]>, wrapped: &'a mut Self::Wrapped) -> Option<&'a [u8]>;

    /// True if responses, too, have a kid context.
    fn names_responses(self) -> bool;

    /// True if a kid context names this ID Context.
    fn is_meant_by(self, id_context: Option<&[u8]>, kid_context: &[u8]) -> bool;

    /// Derives a key for `id`, or the common IV, to `out` (RFC 8613, section 3.2.1).
    fn expand<C: Crypto>(hkdf: &Hkdf, info: (Option<&[u8]>, Aead), id: &Id, out: &mut [u8]);
}

/// Requests carry the ID Context as it is. This takes no memory.
#[derive(Clone, Copy, Default)]
pub struct AsItIs;

impl Naming for AsItIs {
    type IdContext = [u8; MAX_ID_CONTEXT];
    const NO_ID_CONTEXT: Self::IdContext = [0; MAX_ID_CONTEXT];
    type Wrapped = ();
    const MAX_KID_CONTEXT: usize = MAX_ID_CONTEXT;

    #[inline]
    fn kid_context<'a>(self, id_context: Option<&'a [u8]>, (): &'a mut ()) -> Option<&'a [u8]> {
        id_context
    }

    #[inline]
    fn names_responses(self) -> bool {
        false
    }

    #[inline]
    fn is_meant_by(self, id_context: Option<&[u8]>, kid_context: &[u8]) -> bool {
        id_context == Some(kid_context)
    }

    #[inline]
    fn expand<C: Crypto>(hkdf: &Hkdf, info: (Option<&[u8]>, Aead), id: &Id, out: &mut [u8]) {
        derivation::expand::<C, INFO_LEN>(hkdf, info, id, out);
    }
}

/// Maximum number of bytes of the ID Context of a [`Context`](super::Context); RFC 8613 has no limit.
pub(super) const MAX_ID_CONTEXT: usize = 16;
/// Maximum number of bytes of the array `info` (RFC 8613, section 3.2.1).
pub(super) const INFO_LEN: usize = 36;
