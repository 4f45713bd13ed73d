use super::*;
use tegmen_host::group::groupcomm::Possession;
use tegmen_host::x509::signer::{Signer, SoftwareKey};

const SCHEME: SignatureScheme = SignatureScheme::ED25519;
const WHO: (&str, &str) = ("hall", "lamps");

fn request(challenge: &Challenge, key: &dyn Signer) -> JoinRequest {
    let mut request = JoinRequest { group: "lamps".to_owned(), ..JoinRequest::default() };
    request.possession = Some(Possession::prove(&request, challenge, [7; 8], key).unwrap());
    request
}

#[test]
fn a_proof_is_for_one_device_one_group_one_role_and_a_short_time() {
    let challenges = Challenges::new(&mut HostCrypto::from_os().unwrap());
    let (key, _) = SoftwareKey::draw(SCHEME).unwrap();
    let now = challenges.start;
    let asked = request(&challenges.challenge(WHO, SCHEME, now), &key);
    let check = |who, request: &JoinRequest, now| challenges.check(who, SCHEME, request, now);
    let refused = Err(NotProved::Refused(GroupcommError::NoPossession));
    assert_eq!(check(WHO, &asked, now), Ok(key.public_key().to_vec()));
    assert_eq!(check(WHO, &asked, now + WINDOW * 2 - Duration::from_secs(1)), Ok(key.public_key().to_vec()));
    assert_eq!(check(WHO, &asked, now + WINDOW * 2), refused);
    assert_eq!(check(("porch", "lamps"), &asked, now), refused);
    assert_eq!(check(("hall", "doors"), &asked, now), refused);
    let mut other_role = JoinRequest { sends: true, ..asked.clone() };
    other_role.possession.as_mut().unwrap().scope = other_role.scope();
    let other_role = JoinRequest::parse(&other_role.encode()).unwrap();
    assert!(other_role.sends);
    assert_eq!(check(WHO, &other_role, now), refused);
    assert!(check(WHO, &JoinRequest::parse(&asked.encode()).unwrap(), now).is_ok());
    // Another server has another secret.
    let other = Challenges::new(&mut HostCrypto::from_os().unwrap());
    assert_eq!(other.check(WHO, SCHEME, &asked, now), refused);
    // The key of another device, whose private key is not there.
    let (stranger, _) = SoftwareKey::draw(SCHEME).unwrap();
    let mut stolen = asked.clone();
    stolen.possession.as_mut().unwrap().public_key = stranger.public_key().to_vec();
    assert_eq!(check(WHO, &stolen, now), refused);
    let (p256, _) = SoftwareKey::draw(SignatureScheme::ECDSA_SECP256R1_SHA256).unwrap();
    let other_scheme = request(&challenges.challenge(WHO, SCHEME, now), &p256);
    assert_eq!(check(WHO, &other_scheme, now), Err(NotProved::Refused(GroupcommError::OtherCredential)));
    assert_eq!(check(WHO, &JoinRequest { possession: None, ..asked }, now), Err(NotProved::Missing));
}
