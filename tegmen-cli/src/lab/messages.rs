//! The messages of access control, for the laboratory.

use tegmen_control::access::ace::trl::{Answer, Cursor};
use tegmen_control::access::ace::{Aif, ConnectionRequest, IntrospectionRequest, Returned, Right, Scope, TokenRequest};
use tegmen_control::access::enrolment::{self, OneTimeKey};
use tegmen_control::access::introspection::{Devices, Introspection, Publisher};
use tegmen_control::access::policy::{OwnedParty, Policy};
use tegmen_control::access::protokey::{Accepted, AcceptedBounds, Mode, Protokey, SessionIdentity};
use tegmen_control::access::revocation::token_hash;
use tegmen_control::publisher::SERVER_IDENTITY;
use tegmen_host::provider::HostCrypto;
use tegmen_testbed::papers::two_way::architecture::Messages;

/// Returns the access control messages of a publisher `oven` and a subscriber `display`: enrolment, introspection,
/// token request, token upload and revocation.
pub(super) fn messages() -> std::io::Result<Messages> {
    let mut crypto = HostCrypto::from_os()?;
    let one_time = OneTimeKey::parse(&format!("{NAME};{}", "07".repeat(32))).expect("a one-time key");
    let protokey = Protokey::new(&[9; 32]).expect("a protokey");
    let session = SessionIdentity::parse(b"oven;AAECAwQFBgcICQoL").expect("a session identity");
    let session_key = protokey.session_key::<HostCrypto>(Mode::Bound, session, "display");

    let party = |words: &str| OwnedParty::from_words(words.split(' ')).expect("a party");
    let display = party("display tag:display");
    let devices = Known { oven: party("oven tag:kitchen"), protokey };
    let policy = Policy::parse("policy", POLICY).expect("a policy").tested().expect("a policy without tests");
    let mut accepted = Accepted::new(AcceptedBounds::default());
    let mut decision = Introspection { devices: &devices, policy: &policy, accepted: &mut accepted, lifetime: 3600 };
    let scope = Some(Scope::of(&Aif(vec![Right { path: "/temp".to_owned(), permissions: 1 }])));
    let introspection =
        IntrospectionRequest { scope: scope.clone(), token: session.as_str().into(), hint: None }.encode();
    let introspected = decision.answer::<HostCrypto>(Some(display.party()), &introspection, NOW);

    let to_rs = ConnectionRequest { address: "[2001:db8::2]:5684".parse().expect("an address") }.encode();
    let token = TokenRequest {
        audience: Some(NAME.to_owned()),
        scope,
        upload: Some(Returned::Hash),
        to_rs: Some(to_rs),
        ..TokenRequest::default()
    };
    let token = token.encode().to_vec();
    let granted = decision.token(Some(display.party()), &token, NOW, &mut crypto);
    let upload = granted.upload.expect("a publisher with an address takes the token");
    let hash = token_hash::<HostCrypto>(&upload.request);
    Ok(Messages {
        enrolment: (enrolment::identity(NAME).into(), one_time.session_key::<HostCrypto>().expose().to_vec()),
        enrol: enrolment::Request::encode::<HostCrypto>(&one_time, "protokey", &[9; 32]).to_vec(),
        session: (session.as_str().into(), session_key.expose().to_vec()),
        introspection: [introspection, introspected.reply.payload.to_vec()],
        token: [token, upload.taken.payload.to_vec()],
        server: (SERVER_IDENTITY.into(), upload.key.expose().to_vec()),
        upload: upload.request.to_vec(),
        revoked: Answer::Full { hashes: vec![hash.to_vec()], cursor: Some(Cursor::At(1)) }.encode(),
    })
}

struct Known {
    oven: OwnedParty,
    protokey: Protokey,
}

impl Devices for Known {
    fn publisher(&self, name: &str) -> Option<Publisher<'_>> {
        let address = "[2001:db8::1]:5684".parse().ok();
        (name == NAME).then_some(Publisher { party: &self.oven, protokey: &self.protokey, mode: Mode::Bound, address })
    }

    fn certified(&self, _: &[u8; 32]) -> Option<&OwnedParty> {
        None
    }
}

const NAME: &str = "oven";
const NOW: tegmen::time::Instant = tegmen::time::Instant::from_micros(1_800_000_000_000_000);
const POLICY: &str = r#"
[[rule]]
subject = "tag:display"
publisher = "tag:kitchen"
allow = "read /*"
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use tegmen_testbed::figure::{self, DIFFERS};
    use tegmen_testbed::papers::two_way::architecture::{self, Effort};

    #[test]
    fn the_exchanges_of_the_laboratory_take_the_messages_of_the_product() {
        let messages = messages().expect("randomness");
        assert!(messages.introspection[1].len() > 40, "a key was granted");
        let figures = architecture::figures(&messages, Effort { seeds: 1 }, |_, _| {});
        assert!(figures.iter().all(|figure| figure.verdict != DIFFERS), "{}", figure::table(&figures));
    }
}
