//! An operator who uses the commands of `tegmen`.

use std::path::Path;
use std::process::Command;

/// The options of the server. The module `server_files` writes its keys.
pub(crate) const OPTIONS: &str = "--store access.db --sealing-key sealing.key --audit audit.log --audit-key audit.pem --admin 127.0.0.1:0 \
     --admin-cert admin.pem --admin-cert-key admin.key --bootstrap bootstrap --json";

/// An operator with the files of a test.
pub(crate) struct Operator<'s> {
    pub(crate) dir: &'s Path,
    pub(crate) server: String,
}

impl Operator<'_> {
    /// Returns a command without an API key.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut tegmen = Command::new(env!("CARGO_BIN_EXE_tegmen"));
        tegmen.args(arguments.split_whitespace()).current_dir(self.dir);
        tegmen.env("TEGMEN_SERVER", &self.server).env("TEGMEN_CA", "admin.pem");
        tegmen
    }

    /// Runs a command with an API key. Returns its exit code and its output.
    pub(crate) fn run(&self, key: &str, arguments: &str) -> (i32, String) {
        let output = self.command(arguments).env("TEGMEN_KEY_FILE", key).output().unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.code().unwrap(), text)
    }

    /// Runs a command, checks that it succeeds, and returns its output.
    pub(crate) fn succeeds(&self, key: &str, arguments: &str) -> String {
        let (code, text) = self.run(key, arguments);
        assert_eq!(code, 0, "{arguments}: {text}");
        text
    }

    /// Runs a command. Checks that it fails with this exit code, and that its output contains these words.
    pub(crate) fn fails(&self, key: &str, arguments: &str, expected: i32, words: &str) {
        let (code, text) = self.run(key, arguments);
        assert!(code == expected && text.contains(words), "{arguments}: {code}: {text}");
    }
}

/// The options with which `tegmen key create` makes a key with all scopes.
pub(crate) const ALL: &str = "--scope keys:write --scope devices:write --scope devices:read --scope policy:read --scope policy:write \
     --scope revoke --scope audit:read --scope groups:read --scope groups:write --scope delegation:read \
     --scope delegation:write --scope users:read --scope users:write";
