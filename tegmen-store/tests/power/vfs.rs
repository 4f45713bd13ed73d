//! Gives SQLite a [`Disk`] as its file system.
#![allow(unsafe_code, reason = "SQLite calls a file system through C functions")]

use super::disk::{Disk, Site, State};
use rusqlite::ffi::{self, sqlite3_file, sqlite3_io_methods, sqlite3_vfs};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::sync::MutexGuard;

/// Registers a disk with SQLite as a VFS. The VFS exists until this value is dropped. All connections must be closed
/// before the drop.
pub(crate) struct Mounted {
    pub(crate) disk: Disk,
    vfs: Box<sqlite3_vfs>,
    _name: CString,
    _data: Box<Disk>,
}

impl Mounted {
    pub(crate) fn new(name: &str, disk: Disk) -> Self {
        let (c_name, data) = (CString::new(name).expect("a name"), Box::new(disk.clone()));
        let mut vfs = Box::new(sqlite3_vfs {
            iVersion: 2,
            szOsFile: size_of::<Open>() as c_int,
            mxPathname: 512,
            pNext: std::ptr::null_mut(),
            zName: c_name.as_ptr(),
            pAppData: (&raw const *data).cast_mut().cast(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: None,
            xGetLastError: None,
            xCurrentTimeInt64: Some(current_time),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        });
        // SAFETY: the structure, its name and its data are on the heap, and live until `drop` unregisters it.
        let code = unsafe { ffi::sqlite3_vfs_register(&raw mut *vfs, 0) };
        assert_eq!(code, ffi::SQLITE_OK);
        Self { disk, vfs, _name: c_name, _data: data }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // SAFETY: it was registered in `new`.
        unsafe { ffi::sqlite3_vfs_unregister(&raw mut *self.vfs) };
    }
}

/// A file that SQLite has open. SQLite allocates `szOsFile` bytes for this structure.
#[repr(C)]
struct Open {
    base: sqlite3_file,
    disk: *const Disk,
    node: usize,
    /// True until the first synchronization of a new log or journal. That synchronization also covers the directory, as
    /// in the VFS of Unix.
    is_new: bool,
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// Returns the disk of a VFS.
///
/// # Safety
/// `vfs` must be a VFS that [`Mounted::new`] registered, and whose [`Mounted`] is not dropped.
unsafe fn disk<'a>(vfs: *mut sqlite3_vfs) -> &'a Disk {
    // SAFETY: `pAppData` points to the disk, which lives as long as the registration.
    unsafe { &*(*vfs).pAppData.cast::<Disk>() }
}

/// Returns the locked state of the disk that contains an open file, and the file.
///
/// # Safety
/// [`open`] must have opened `file`.
unsafe fn opened<'a>(file: *mut sqlite3_file) -> (MutexGuard<'a, State>, &'a mut Open) {
    // SAFETY: SQLite gives back the memory that `open` filled, and uses it on one thread at a time.
    let file = unsafe { &mut *file.cast::<Open>() };
    // SAFETY: the disk lives as long as the registration of its VFS.
    (unsafe { &*file.disk }.lock(), file)
}

/// Returns a name that SQLite passes; `None` for a null pointer.
///
/// # Safety
/// `name` must be null or a C string.
unsafe fn text<'a>(name: *const c_char) -> Option<&'a str> {
    // SAFETY: the caller guarantees it.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_str().expect("a name in UTF-8"))
}

fn code(result: io::Result<()>, error: c_int) -> c_int {
    if result.is_ok() { ffi::SQLITE_OK } else { error }
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes its VFS and a name.
    let (disk, name) = unsafe { (disk(vfs), text(name)) };
    let may_make = flags & ffi::SQLITE_OPEN_CREATE != 0;
    let opened = disk.lock().open(name, may_make);
    let is_new = may_make && flags & (ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL) != 0;
    // SAFETY: SQLite allocated `szOsFile` bytes at `file`. Without methods it does not close the file.
    unsafe { (*file).pMethods = std::ptr::null() };
    let Ok(Some(node)) = opened else { return ffi::SQLITE_CANTOPEN };
    let base = sqlite3_file { pMethods: &METHODS };
    // SAFETY: as above; `out` is null or a place for flags.
    unsafe {
        file.cast::<Open>().write(Open { base, disk, node, is_new });
        if !out.is_null() {
            *out = flags;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: SQLite passes its VFS and a name.
    let (disk, name) = unsafe { (disk(vfs), text(name).unwrap_or_default()) };
    let mut state = disk.lock();
    match state.remove(name) {
        Ok(true) if sync != 0 => code(state.sync_names(Site::Removed), ffi::SQLITE_IOERR_DIR_FSYNC),
        Ok(true) => ffi::SQLITE_OK,
        Ok(false) => ffi::SQLITE_IOERR_DELETE_NOENT,
        Err(_) => ffi::SQLITE_IOERR_DELETE,
    }
}

unsafe extern "C" fn access(vfs: *mut sqlite3_vfs, name: *const c_char, _: c_int, out: *mut c_int) -> c_int {
    // SAFETY: SQLite passes its VFS, a name, and a place for the result.
    unsafe { *out = c_int::from(disk(vfs).lock().is_there(text(name).unwrap_or_default())) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_pathname(_: *mut sqlite3_vfs, name: *const c_char, len: c_int, out: *mut c_char) -> c_int {
    // SAFETY: SQLite passes a name, and `len` bytes for the result.
    unsafe {
        let name = CStr::from_ptr(name).to_bytes_with_nul();
        if name.len() > len as usize {
            return ffi::SQLITE_CANTOPEN;
        }
        std::ptr::copy_nonoverlapping(name.as_ptr(), out.cast(), name.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(vfs: *mut sqlite3_vfs, len: c_int, out: *mut c_char) -> c_int {
    // SAFETY: SQLite passes its VFS, and `len` bytes for the result.
    let (disk, out) = unsafe { (disk(vfs), std::slice::from_raw_parts_mut(out.cast::<u8>(), len as usize)) };
    let random = &mut disk.lock().random;
    out.fill_with(|| random.next() as u8);
    len
}

unsafe extern "C" fn sleep(_: *mut sqlite3_vfs, micros: c_int) -> c_int {
    micros
}

unsafe extern "C" fn current_time(_: *mut sqlite3_vfs, out: *mut i64) -> c_int {
    // SAFETY: SQLite passes a place for the result. The time is a day in 2026, in milliseconds of the Julian calendar.
    unsafe { *out = 212_000_000_000_000 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(_: *mut sqlite3_file) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut sqlite3_file, out: *mut c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: SQLite passes an open file, and `len` bytes for the result.
    let ((mut state, file), out) =
        unsafe { (opened(file), std::slice::from_raw_parts_mut(out.cast::<u8>(), len as usize)) };
    match state.read(file.node, at as usize, out) {
        Ok(read) if read == out.len() => ffi::SQLITE_OK,
        Ok(_) => ffi::SQLITE_IOERR_SHORT_READ,
        Err(_) => ffi::SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn write(file: *mut sqlite3_file, bytes: *const c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: SQLite passes an open file and `len` bytes.
    let ((mut state, file), bytes) =
        unsafe { (opened(file), std::slice::from_raw_parts(bytes.cast::<u8>(), len as usize)) };
    code(state.write(file.node, at as usize, bytes), ffi::SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite passes an open file.
    let (mut state, file) = unsafe { opened(file) };
    code(state.truncate(file.node, size as usize), ffi::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _: c_int) -> c_int {
    // SAFETY: SQLite passes an open file.
    let (mut state, file) = unsafe { opened(file) };
    let is_new = std::mem::take(&mut file.is_new);
    code(state.sync(file.node, is_new), ffi::SQLITE_IOERR_FSYNC)
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: SQLite passes an open file, and a place for the result.
    let (state, file) = unsafe { opened(file) };
    let len = state.len(file.node);
    if let Ok(len) = len {
        // SAFETY: as above.
        unsafe { *out = len as i64 };
    }
    code(len.map(drop), ffi::SQLITE_IOERR_FSTAT)
}

/// Does nothing. The lock on the key file beside the database keeps other processes out.
unsafe extern "C" fn lock(_: *mut sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_: *mut sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: SQLite passes a place for the result.
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_: *mut sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

/// Returns the sector size that the VFS of Unix reports. The sectors of [`Disk`] are smaller, so a power cut interrupts
/// more writes in the middle.
unsafe extern "C" fn sector_size(_: *mut sqlite3_file) -> c_int {
    4096
}

/// Returns the characteristics of the disk that the VFS of Unix reports: a power cut changes no bytes outside of a
/// write.
unsafe extern "C" fn characteristics(_: *mut sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}
