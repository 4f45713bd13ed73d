//! Checks settings whose syntax is already known to be right.

use super::config_file::Mistake;
use super::options::{Sections, Served};
use super::store::Place;
use crate::public_keys::check_suites;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tegmen_host::clock;
use tegmen_host::credentials::{Credentials, is_rule};
use tegmen_host::proxy::Reverse;
use tegmen_host::resources::{Image, Resource, Resources};

/// The resources of the server that its options name. A key of the map contains the name of an option, and the text of
/// the option's value. The entry for this key contains the path of the resource, and the resource.
pub(super) type Made = BTreeMap<(&'static str, String), (String, Resource)>;

impl Sections {
    /// Returns all mistakes in the settings. `made` contains the resources that exist already. This function does not
    /// make these resources a second time.
    pub(super) fn mistakes(&self, made: &Made) -> Vec<Mistake> {
        let mut mistakes = match self.served.make(made) {
            Ok(made) if made.is_empty() && !self.has_role() => vec![nothing_to_serve()],
            Ok(made) => self.mistakes_in_paths(&made),
            Err(mistakes) => mistakes,
        };
        let addresses = &self.addresses;
        if addresses.no_secure && !addresses.plain && !self.have_oscore() && self.groups.member.is_empty() {
            let why = "it leaves nothing to serve without --plain, --oscore, --edhoc, --resource-server or --member";
            mistakes.push(Mistake::new("no-secure", why));
        }
        if self.access.store.is_some() && addresses.no_secure {
            mistakes.push(Mistake::new("store", "access control is served over coaps: it excludes --no-secure"));
        }
        mistakes.extend(self.access.mistakes());
        mistakes.extend(self.resource_server.mistakes(addresses.plain));
        mistakes.extend(self.admin.mistakes(self.access.store.is_some()));
        mistakes
            .extend(self.groups.mistakes((addresses.plain, !self.keys.oscore.is_empty()), self.access.store.is_some()));
        mistakes.extend(self.delegation.mistakes(self.access.store.is_some()));
        mistakes.extend(self.delegated.mistakes(&self.not_of_a_device()));
        mistakes.extend(self.directory.mistakes());
        mistakes.extend(self.proxy.mistakes(addresses.plain));
        mistakes.extend(self.credentials().err());
        for rule in self.keys.anonymous.iter().filter(|rule| !is_rule(rule)) {
            mistakes.push(Mistake::new("anonymous", format!("{rule}: write it as 'GET /sensors/*'")));
        }
        for dir in self.keys.oscore.iter().filter(|dir| !dir.is_dir()) {
            mistakes.push(Mistake::new("oscore", no_directory(dir)));
        }
        mistakes.extend(self.keys.edhoc_mistakes(self.resource_server.resource_server.is_some()));
        let mut files = vec![("store", self.access.store.as_ref().and_then(Place::file))];
        for (key, file) in [
            ("state", &self.sessions.state),
            ("ticket-keys", &self.sessions.ticket_keys),
            ("key-log", &self.dtls.key_log),
            ("device-state", &self.delegated.device_state),
            ("audit", &self.access.audit),
            ("bootstrap", &self.admin.bootstrap),
        ] {
            files.push((key, file.as_deref()));
        }
        for (key, file) in files {
            let parent = file.and_then(Path::parent).filter(|parent| !parent.as_os_str().is_empty());
            mistakes.extend(parent.filter(|parent| !parent.is_dir()).map(|dir| Mistake::new(key, no_directory(dir))));
        }
        mistakes.extend(self.clients.mistakes().into_iter().map(|(key, why)| Mistake::new(key, why)));
        if let Some(suites) = self.dtls.suites
            && let Ok(Some(keys)) = self.clients.keys(Some(suites), None, None, None)
        {
            mistakes.extend(check_suites(&keys, suites).err().map(|failure| Mistake::new("suites", failure.message)));
        }
        mistakes
    }

    /// Returns the resources that no request can reach, because the proxy has their paths, and the group observations
    /// of paths without a resource.
    fn mistakes_in_paths(&self, made: &Made) -> Vec<Mistake> {
        let proxied =
            |path: &str| self.proxy.proxy_reverse.iter().map(Reverse::path).find(|prefix| is_below(path, prefix));
        let hidden = made.iter().filter_map(|((option, _), (path, _))| {
            let prefix = proxied(path.trim_matches('/'))?;
            let why = format!("{path}: --proxy-reverse has all paths below /{prefix}: choose another path");
            Some(Mistake::new(option, why))
        });
        let listed = self.application(made).listed();
        let is_served = |path: &str| {
            let is_in = |(dir, resource): &(String, Resource)| {
                matches!(resource, Resource::Directory { .. }) && is_below(path, dir.trim_matches('/'))
            };
            listed.iter().any(|listed| listed.path == path && listed.observable)
                || made.values().any(is_in)
                || proxied(path).is_some()
                // The controller of groups has resources that the options do not name.
                || self.access.store.is_some()
        };
        let observations = self.groups.group_observation.iter().map(|observation| &observation.path);
        let without_resource = observations.filter(|path| !is_served(path)).map(|path| {
            let why = format!(
                "/{path} is no resource that clients can observe: correct the path, or add --value /{path}=..."
            );
            Mistake::new("group-observation", why)
        });
        hidden.chain(without_resource).collect()
    }

    /// Returns true if the server does more than serve resources: if it is an access control server, a resource
    /// directory or a proxy.
    const fn has_role(&self) -> bool {
        self.access.store.is_some() || self.directory.directory || self.proxy.is_given()
    }

    /// Returns the application that serves the resources in `made`. In `/.well-known/core` the application also lists
    /// the path of EDHOC if the server accepts EDHOC, and the paths of the resource directory if the server is a
    /// resource directory.
    pub(super) fn application(&self, made: &Made) -> Resources {
        let resources = Resources::new(made.values().cloned()).with_max_body(self.limits.max_body);
        resources.with_others([self.directory.paths(), self.keys.edhoc_paths()].concat())
    }

    /// Returns the names of the options that were given although a server cannot have them if it is a delegated device
    /// (`--delegated`).
    fn not_of_a_device(&self) -> Vec<&'static str> {
        let options = [
            ("store", self.access.store.is_some()),
            ("cert", self.clients.is_given()),
            ("resource-server", self.resource_server.resource_server.is_some()),
            ("no-secure", self.addresses.no_secure),
        ];
        options.into_iter().filter(|(_, is_given)| *is_given).map(|(key, _)| key).collect()
    }

    /// Reads the credentials file. Returns `None` if the server needs no credentials.
    pub(super) fn credentials(&self) -> Result<Option<Credentials>, Mistake> {
        let file = &self.keys.credentials;
        // A server with public keys, or with the keys of devices, needs no others.
        let has_others = self.clients.is_given() || self.access.store.is_some() || self.delegated.delegated.is_some();
        if self.addresses.no_secure || has_others && !file.exists() {
            return Ok(None);
        }
        Credentials::from_file(file).map(Some).map_err(|error| Mistake::new("credentials", error))
    }
}

impl Served {
    /// Makes the resources. If an option with the same text is in `before`, uses the existing resource with its
    /// content.
    ///
    /// # Errors
    /// All mistakes in the options of resources.
    pub(super) fn make(&self, before: &Made) -> Result<Made, Vec<Mistake>> {
        let (mut made, mut mistakes, mut paths) = (Made::new(), Vec::new(), BTreeSet::new());
        let mut add = |option: &'static str, texts: &[String], make: &dyn Fn(&str) -> Result<Resource, String>| {
            for text in texts {
                let (path, what) = match (option, text.split_once('=')) {
                    ("blink", _) => (text.as_str(), ""),
                    (_, Some(parts)) => parts,
                    (_, None) => ("", ""),
                };
                let known = before.get(&(option, text.clone())).map(|(_, resource)| Ok(resource.clone()));
                let resource = match () {
                    () if !path.starts_with('/') => Err(format!("{text}: write it as /path=...")),
                    () if !paths.insert(path.trim_matches('/').to_owned()) => {
                        Err(format!("{path}: there are two resources at this path"))
                    }
                    () => known.unwrap_or_else(|| make(what)),
                };
                match resource {
                    Ok(resource) => drop(made.insert((option, text.clone()), (path.to_owned(), resource))),
                    Err(why) => mistakes.push(Mistake::new(option, why)),
                }
            }
        };
        add("value", &self.value, &|text| Ok(Resource::value(text.as_bytes())));
        add("file", &self.file, &|file| match PathBuf::from(file) {
            path if path.is_file() => Ok(Resource::File(path)),
            _ => Err(format!("{file} is not a file that can be served: correct the path")),
        });
        let directory = |writable| {
            move |dir: &str| match PathBuf::from(dir) {
                root if root.is_dir() => Ok(Resource::Directory { root, writable }),
                root => Err(no_directory(&root)),
            }
        };
        add("dir", &self.dir, &directory(false));
        add("dir-rw", &self.dir_rw, &directory(true));
        add("image", &self.image, &|file| match Image::new(PathBuf::from(file), self.image_max, clock::now()) {
            Ok(image) => Ok(Resource::Image(Arc::new(image))),
            Err(error) => Err(format!("{file} cannot be received: {error}")),
        });
        add("command", &self.command, &|command| match command.split_whitespace().map(str::to_owned).collect() {
            program if program != Vec::<String>::new() => Ok(Resource::Command(program)),
            _ => Err("it names no program: write it as /path=program arguments".to_owned()),
        });
        add("blink", &self.blink, &|_| Ok(Resource::Blink(Arc::default())));
        if mistakes.is_empty() { Ok(made) } else { Err(mistakes) }
    }
}

fn nothing_to_serve() -> Mistake {
    let why = "nothing to serve: give at least one of --value, --file, --dir, --dir-rw, --image, --command, --blink, --directory, --proxy-to, --proxy-reverse, \
               --proxy-host or --store (`tegmen help serve` has examples)";
    Mistake::new("", why)
}

/// True if `path` is `prefix` or is below it. Neither of the two has a leading slash.
fn is_below(path: &str, prefix: &str) -> bool {
    let below = path.strip_prefix(prefix);
    prefix.is_empty() || below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

fn no_directory(dir: &Path) -> String {
    let dir = dir.display();
    format!("{dir} is not a directory: create it (mkdir -p {dir}), or correct the path")
}
