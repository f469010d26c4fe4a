//! The locked file below the database. The lock outlives the database: after a failed write the database is opened again on
//! the same handle, and no other process gets in between.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use redb::StorageBackend;
use redb::backends::InMemoryBackend;

use crate::{Error, trust};

/// An open registry file with an exclusive lock. Clones share the handle; the lock ends with the last one.
#[derive(Clone, Debug)]
pub(super) struct Storage(Arc<File>);

impl Storage {
    /// Opens an existing file and locks it.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if another process holds the lock, [`Error::Absent`] if there is no file, else [`Error::File`].
    pub(super) fn open(path: &Path) -> Result<Storage, Error> {
        loop {
            let storage = Storage::lock(Storage::open_unlocked(path)?, path)?;
            // A restore may have replaced the file before it was locked.
            if storage.is_at(path) {
                return Ok(storage);
            }
        }
    }

    fn open_unlocked(path: &Path) -> Result<File, Error> {
        refuse_special(path)?;
        let opened = trust::open_itself(OpenOptions::new().read(true).write(true), path);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Absent { path: path.to_owned() },
            _ => Error::File { path: path.to_owned(), reason: format!("cannot open it for writing: {error}") },
        })?;
        trust::check_file(&file, path).map_err(|reason| Error::Untrusted { path: path.to_owned(), reason })?;
        Ok(file)
    }

    /// Returns `true` if this file has that name: it was not moved, deleted or replaced.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        is_at(&self.0, path)
    }

    /// Locks an open file.
    pub(super) fn lock(file: File, path: &Path) -> Result<Storage, Error> {
        match file.try_lock() {
            Ok(()) => Ok(Storage(Arc::new(file))),
            Err(TryLockError::WouldBlock) => Err(Error::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => {
                Err(Error::File { path: path.to_owned(), reason: format!("cannot lock it: {error}") })
            }
        }
    }

    /// Returns `true` if the file has no bytes.
    pub(super) fn is_empty(&self) -> io::Result<bool> {
        Ok(self.0.metadata()?.len() == 0)
    }
}

/// A copy in memory of a file that no process holds. The file is not changed, so that one on a read-only file system can be read too.
///
/// # Errors
///
/// [`Error::InUse`] if a process holds the lock, [`Error::Absent`] if there is no file, else [`Error::File`].
pub(super) fn copy(path: &Path) -> Result<Box<dyn StorageBackend>, Error> {
    let failed =
        |what: &str, error: io::Error| Error::File { path: path.to_owned(), reason: format!("{what}: {error}") };
    refuse_special(path)?;
    loop {
        let file = trust::open_itself(OpenOptions::new().read(true), path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Absent { path: path.to_owned() },
            _ => failed("cannot open it", error),
        })?;
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(failed("cannot lock it", error)),
        }
        if !is_at(&file, path) {
            continue; // a restore has replaced it
        }
        let length = file.metadata().map_err(|e| failed("cannot read it", e))?.len();
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        file.read_exact_at(&mut bytes, 0).map_err(|e| failed("cannot read it", e))?;
        if bytes.is_empty() {
            return Err(empty(path));
        }
        let memory = InMemoryBackend::new();
        let copied = memory.set_len(length).and_then(|()| memory.write(0, &bytes));
        copied.map_err(|e| failed("cannot copy it", e))?;
        return Ok(Box::new(memory));
    }
}

/// Refuses devices, pipes and sockets: opening one may wait for ever, and a restore would replace it.
fn refuse_special(path: &Path) -> Result<(), Error> {
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => {
            Err(Error::File { path: path.to_owned(), reason: "it is a device, a pipe or a socket, not a file".into() })
        }
        Ok(_) | Err(_) => Ok(()), // opening it tells
    }
}

/// What is said of a file without bytes.
pub(super) fn empty(path: &Path) -> Error {
    let reason = "the file is empty, so it is not a registry file; delete it, and the agent creates a new one".into();
    Error::File { path: path.to_owned(), reason }
}

fn is_at(file: &File, path: &Path) -> bool {
    let id = |found: std::fs::Metadata| (found.dev(), found.ino());
    let (here, there) = (file.metadata().map(id), std::fs::metadata(path).map(id));
    matches!((here, there), (Ok(here), Ok(there)) if here == there)
}

impl StorageBackend for Storage {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}
