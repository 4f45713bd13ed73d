use super::*;
use std::os::unix::fs::PermissionsExt;

struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-state-file-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn file(&self) -> PathBuf {
        self.0.join("lamp.state")
    }

    fn open(&self, key: u8) -> Result<StateFile, DeviceError> {
        StateFile::open(&self.file(), "lamp.example", Some(&DeviceKey(Secret::new([key; 32]))))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Reads the state in the same way as a device.
fn loaded(state: &mut StateFile) -> (Epoch, Vec<u32>) {
    let (mut epoch, mut refused) = (epoch(0), [0; 8]);
    let len = state.load(&mut epoch, &mut refused).unwrap();
    (epoch, refused[..len].to_vec())
}

fn epoch(number: u16) -> Epoch {
    Epoch { number, ..Epoch::first(DeviceKey(Secret::new([number as u8; 32]))) }
}

#[test]
fn the_state_survives_a_restart_without_the_device_key() {
    let scene = Scene::new("restart");
    let mut state = scene.open(1).unwrap();
    let (kept, refused) = loaded(&mut state);
    assert_eq!((kept.number, refused), (0, vec![]));
    state.keep_epoch(&epoch(7)).unwrap();
    state.keep_refused(7, 3).unwrap();
    state.keep_refused(7, 0x00ab_cdef).unwrap();
    assert_eq!(scene.file().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    drop(state);
    let mut state = StateFile::open(&scene.file(), "lamp.example", None).unwrap();
    assert!(state.load(&mut epoch(0), &mut [0; 1]).is_err(), "one place for two connections");
    let (kept, refused) = loaded(&mut state);
    assert_eq!((kept.number, refused), (7, vec![3, 0x00ab_cdef]));
    assert_eq!(kept.key.0.expose(), &[7; 32]);
    // Another epoch empties the list.
    state.keep_epoch(&epoch(8)).unwrap();
    drop(state);
    let (kept, refused) = loaded(&mut scene.open(1).unwrap());
    assert_eq!((kept.number, refused), (8, vec![]));
}

#[test]
fn a_state_that_is_not_of_this_device_is_refused_with_the_next_step() {
    let scene = Scene::new("other");
    let missing = StateFile::open(&scene.file(), "lamp.example", None).err().unwrap();
    assert!(missing.to_string().contains("tegmen device imprint"), "{missing}");
    let state = scene.open(1).unwrap();
    let used = scene.open(1).err().unwrap();
    assert!(matches!(used, DeviceError::InUse(_)), "{used}");
    drop(state);
    let other = StateFile::open(&scene.file(), "door.example", None).err().unwrap();
    assert!(
        other.to_string().contains("the state of the device lamp.example, and this one is door.example"),
        "{other}"
    );
    let other = scene.open(2).err().unwrap();
    assert!(matches!(other, DeviceError::OtherKey(_)), "{other}");
    std::fs::set_permissions(scene.file(), PermissionsExt::from_mode(0o640)).unwrap();
    let exposed = scene.open(1).err().unwrap();
    assert!(exposed.to_string().contains("chmod 600"), "{exposed}");
}

#[test]
fn each_state_that_is_cut_short_or_changed_is_refused() {
    let scene = Scene::new("damaged");
    let mut state = scene.open(1).unwrap();
    state.keep_epoch(&epoch(2)).unwrap();
    state.keep_refused(2, 5).unwrap();
    let whole = std::fs::read(scene.file()).unwrap();
    assert!(read(&whole).is_some());
    for len in 0..whole.len() {
        assert!(read(&whole[..len]).is_none(), "{len}");
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        assert!(read(&changed).is_none(), "{at}");
    }
}

#[test]
fn a_change_that_is_not_kept_is_reported_and_leaves_the_state_before() {
    let scene = Scene::new("full");
    let mut state = scene.open(1).unwrap();
    state.keep_epoch(&epoch(2)).unwrap();
    // A directory in the place of the draft, which cannot be replaced.
    let draft = files::beside(&scene.file(), "new");
    std::fs::create_dir_all(draft.join("full")).unwrap();
    assert!(state.keep_refused(2, 5).is_err() && state.keep_epoch(&epoch(3)).is_err());
    assert!(state.problem().is_some_and(|problem| problem.contains("lamp.state")));
    std::fs::remove_dir_all(&draft).unwrap();
    state.keep_refused(2, 6).unwrap();
    assert!(state.problem().is_none());
    drop(state);
    let (kept, refused) = loaded(&mut scene.open(1).unwrap());
    assert_eq!((kept.number, refused), (2, vec![6]));
}
