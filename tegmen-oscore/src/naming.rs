//! The way in which messages identify the ID Context of a security context. This way is a type parameter of the
//! context, so that a mote needs neither code nor memory for the derivation of new keys (RFC 8613, appendix B.2).

use super::cose::Aead;
use super::derivation;
use super::id::Id;
use tegmen_base::crypto::Crypto;
use tegmen_base::crypto::hkdf::Hkdf;

/// Decides how messages identify the ID Context of a security context. The associated types are the memory for the ID
/// Context and for a kid context. There are two implementations: [`AsItIs`], and `Rederivable` with the feature
/// `rederivation`.
pub trait Naming: Copy + Default {
    /// An array that begins with the bytes of an ID Context.
    type IdContext: AsRef<[u8]> + AsMut<[u8]>;
    /// The value of [`Self::IdContext`] in a security context that has no ID Context: all bytes are zero.
    const NO_ID_CONTEXT: Self::IdContext;
    /// Memory for a kid context that differs from the ID Context.
    type Wrapped: Default;
    /// Maximum number of bytes of a kid context.
    const MAX_KID_CONTEXT: usize;

    /// Returns the kid context of a message that this endpoint sends, or `None` if the message has none. `wrapped` is
    /// memory for a kid context that differs from the ID Context.
    fn kid_context<'a>(self, id_context: Option<&'a [u8]>, wrapped: &'a mut Self::Wrapped) -> Option<&'a [u8]>;

    /// Returns true if responses also have a kid context.
    fn names_responses(self) -> bool;

    /// Returns true if a kid context identifies this ID Context.
    fn is_meant_by(self, id_context: Option<&[u8]>, kid_context: &[u8]) -> bool;

    /// Derives a key for `id` into `out`, or the common IV if `out` is shorter than a key (RFC 8613, section 3.2.1).
    fn expand<C: Crypto>(hkdf: &Hkdf, info: (Option<&[u8]>, Aead), id: &Id, out: &mut [u8]);
}

/// Requests contain the ID Context unchanged. This type takes no memory.
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
