//! A server, and the settings of a client. The server and the client share an OSCORE context.

use std::net::SocketAddr;
use std::path::PathBuf;
use tegmen::oscore::Aead;
use tegmen_host::client::ClientConfig;
use tegmen_host::contexts::{self, ContextFile, Contexts};
use tegmen_host::credentials::Credentials;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::Server;

/// Both ends of a context, in a directory that is removed at the end.
pub(crate) struct Scene(PathBuf);

impl Scene {
    pub(crate) fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-scene-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let context = ContextFile {
            sender_id: vec![1],
            recipient_id: vec![2],
            master_secret: vec![7; 16].into(),
            master_salt: Vec::new(),
            id_context: None,
            aead: Aead::AesCcm16_64_128,
            created: contexts::now(),
            expires: None,
            allow: None,
            rederivation: false,
        };
        contexts::create(&dir.join("client"), &context).unwrap();
        contexts::create(&dir.join("server"), &context.mirrored()).unwrap();
        contexts::create(&dir.join("third"), &context.mirrored()).unwrap();
        Self(dir)
    }

    pub(crate) fn serve(&self) -> (Server, SocketAddr) {
        let credentials = Credentials::default();
        let contexts = Contexts::open(&[self.0.join("server")], |name, _| credentials.learn(name, None)).unwrap();
        let builder = Server::builder().listen("coap://127.0.0.1:0").shards(1).oscore(contexts);
        let resources = Resources::new([("value".to_owned(), Resource::value(b"first"))]);
        let server = builder.credentials(credentials.clone()).serve(resources).unwrap();
        let address = server.addresses()[0].address;
        (server, address)
    }

    /// Returns the path of a copy of the server's context, for a third party that has all keys of the context.
    #[allow(dead_code, reason = "not all tests have a third party")]
    pub(crate) fn third(&self) -> PathBuf {
        self.0.join("third")
    }

    pub(crate) fn client(&self) -> ClientConfig {
        ClientConfig::default().with(|config| config.oscore = Some(self.0.join("client")))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
