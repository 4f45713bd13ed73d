//! `tegmen oscore`: contexts that are exported; and what errors and options say.

use std::path::PathBuf;
use std::process::{Command, Output};

/// A directory that is removed at the end.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-cli-oscore-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn tegmen(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tegmen")).args(arguments).current_dir(&self.0).output().unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_cannot_be_written_is_not_told_to_make_a_context() {
    let scene = Scene::new("exists");
    assert!(scene.tegmen(&["oscore", "new", "client", "server"]).status.success());
    let again = scene.tegmen(&["oscore", "new", "client", "other"]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && said.contains("nothing is written over"), "{said}");
    assert!(!said.contains("make a context"), "{said}");
}
