//! The files of an operator of an access control server.

use crate::operator::secret;
use std::net::IpAddr;
use std::path::Path;

/// Writes the keys of a server and of its interface for administrators.
pub(crate) fn write_keys(dir: &Path) {
    secret(dir, "sealing.key", &"4".repeat(64));
    secret(dir, "audit.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    secret(dir, "admin.key", &key.serialize_pem());
    std::fs::write(dir.join("admin.pem"), certificate.pem()).unwrap();
}

/// The configuration of an access control server.
pub(crate) struct ServerFiles<'a> {
    /// The address at which the server serves CoAP.
    pub(crate) listen: IpAddr,
    /// The address at which the server serves HTTPS, at port 8443.
    pub(crate) admin: IpAddr,
    pub(crate) store: &'a str,
    pub(crate) policy: &'a str,
    /// Further sections of the configuration file.
    pub(crate) more: &'a str,
}

impl ServerFiles<'_> {
    /// Makes a directory with the keys, the policy, and the configuration file `tegmen.toml`.
    pub(crate) fn write(&self, dir: &Path) {
        std::fs::create_dir_all(dir).unwrap();
        write_keys(dir);
        std::fs::write(dir.join("policy.toml"), self.policy).unwrap();
        std::fs::write(dir.join("tegmen.toml"), self.config()).unwrap();
    }

    fn config(&self) -> String {
        let Self { listen, admin, store, more, .. } = self;
        format!(
            "[addresses]\nlisten = [\"{listen}\"]\n\n\
             [access]\nstore = \"{store}\"\nsealing-key = \"sealing.key\"\npolicy = \"policy.toml\"\n\
             audit = \"audit.log\"\naudit-key = \"audit.pem\"\n\n\
             [admin]\nadmin = \"{admin}:8443\"\nadmin-cert = \"admin.pem\"\nadmin-cert-key = \"admin.key\"\n\
             bootstrap = \"bootstrap\"\n\n{more}"
        )
    }
}
