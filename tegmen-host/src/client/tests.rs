//! Tests of the name that the certificate of a server must contain.

use super::{ClientConfig, resolve};
use crate::public_keys::{PublicKeys, SUITES};
use crate::uri::Uri;
use tegmen::dtls::Keys as _;

/// RFC 9525, section 6.1.1: the name is an address, without the interface of this host.
#[tokio::test]
async fn an_interface_is_no_part_of_the_expected_address() {
    for (uri, expected) in
        [("coaps://[fe80::1%lo]/v", "fe80::1"), ("coaps://[::1]/v", "::1"), ("coaps://127.0.0.1/v", "127.0.0.1")]
    {
        let keys = PublicKeys::new(SUITES);
        let config = ClientConfig::default().with(|config| config.trust.public_keys = Some(keys));
        let (_, config) = resolve(&Uri::parse(uri).unwrap(), config).await.unwrap();
        let keys = config.trust.public_keys.unwrap();
        assert_eq!(keys.name_expected(), expected);
        assert!(keys.server_name().is_empty(), "server_name contains no address (RFC 6066, section 3)");
    }
}
