//! Creating, checking, saving and restoring registry files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::file::{self, Contents, Inspection};
use super::storage::{self, Storage};
use super::{client, socket_path};
use crate::{Error, clock};

/// A registry that is created, opened or restored numbers its transactions from the milliseconds since 1970, this many for each. The numbers
/// that an earlier file has issued may not be known, and fencing tokens must not go back. The numbers are below 2^53 until the year 2248.
const TRANSACTIONS_PER_MILLISECOND: u64 = 1 << 10;

pub(super) fn first_transaction() -> u64 {
    clock::now().0.unsigned_abs() * TRANSACTIONS_PER_MILLISECOND
}

/// Verifies every page and every node of a registry file, also while a process holds it. Returns one line about it.
///
/// # Errors
///
/// [`Error::Damaged`] names the damage. The file does not exist or cannot be read; its holder does not answer.
pub async fn check(path: &Path) -> Result<String, Error> {
    match storage::copy(path) {
        Ok(copy) => file::check_file(path, copy),
        Err(Error::InUse { .. }) => ask_holder(path, Inspection::Check).await,
        Err(error) => Err(error),
    }
}

/// Writes a copy of a registry file to a new file, also while a process holds the registry. Returns one line about it.
///
/// # Errors
///
/// As of [`check`]; the target exists already or cannot be written.
pub async fn backup(path: &Path, to: &Path) -> Result<String, Error> {
    let to = std::path::absolute(to).map_err(|e| Error::File { path: to.to_owned(), reason: e.to_string() })?;
    if to.try_exists().unwrap_or_default() {
        return Err(exists(to));
    }
    match storage::copy(path) {
        Ok(copy) => write(&file::contents(path, copy)?, &to),
        Err(Error::InUse { .. }) => ask_holder(path, Inspection::Backup(to)).await,
        Err(error) => Err(error),
    }
}

/// Replaces a registry file by a backup, and keeps the file before beside it. Fencing tokens continue above those of both.
/// Returns one line about it.
///
/// # Errors
///
/// [`Error::InUse`] while a process holds the file; [`Error::File`] if the backup is damaged. The target is unchanged then.
pub fn restore(path: &Path, from: &Path) -> Result<String, Error> {
    let failed = |reason: String| Error::File { path: path.to_owned(), reason };
    if let (Ok(target), Ok(source)) = (fs::canonicalize(path), fs::canonicalize(from))
        && target == source
    {
        return Err(failed("cannot restore it from itself: name a backup".into()));
    }
    // Nothing is written to the backup.
    let copy = storage::copy(from).map_err(|error| match error {
        Error::Absent { path } => Error::File { path, reason: "cannot read it: there is no such file".into() },
        error => error,
    })?;
    // The advice for a damaged registry, to restore a backup, does not help here.
    let mut contents = file::contents(from, copy).map_err(|error| match error {
        Error::Damaged { path, reason } => Error::File { path, reason: format!("the backup is damaged: {reason}") },
        error => error,
    })?;
    // Locked until the new file is in its place.
    let before = match Storage::open(path) {
        Ok(storage) => Some(storage),
        Err(Error::Absent { .. }) => {
            refuse_served(path)?;
            None
        }
        Err(error) => return Err(error),
    };
    if let Some(storage) = &before
        && let Ok(old) = file::contents(path, Box::new(storage.clone()))
    {
        contents.zxid = contents.zxid.max(old.last_zxid());
        contents.lives = contents.lives.max(old.lives);
    }
    contents.zxid = (contents.last_zxid() + 1).max(first_transaction());
    let new = beside(path, "new");
    drop(write_new(&new, &contents, path)?);
    let kept = match before {
        None => String::new(),
        Some(_) => {
            let kept = free_name(path);
            fs::rename(path, &kept).map_err(|e| failed(format!("cannot rename it to {}: {e}", kept.display())))?;
            format!("; the previous file is now {}", kept.display())
        }
    };
    fs::rename(&new, path)
        .map_err(|e| failed(format!("cannot move the new file {} into its place: {e}", new.display())))?;
    sync_folder(path);
    Ok(format!("restored {} nodes{kept}", contents.nodes.len()))
}

/// Opens the file, or creates an empty registry.
pub(super) fn open_or_create(path: &Path) -> Result<Storage, Error> {
    let opened = match Storage::open(path) {
        Err(Error::Absent { .. }) => refuse_served(path).and_then(|()| create(path)),
        opened => opened,
    };
    let storage = opened?;
    refuse_empty(&storage, path)?;
    Ok(storage)
}

fn create(path: &Path) -> Result<Storage, Error> {
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        let failed = |e| Error::File { path: path.to_owned(), reason: format!("cannot create its folder: {e}") };
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let new = beside(path, "new");
    let storage = write_new(&new, &Contents { nodes: Vec::new(), lives: 0, zxid: first_transaction() }, path)?;
    let placed = place(&new, path);
    let _ = fs::remove_file(&new);
    match placed {
        Ok(()) => Ok(storage),
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Storage::open(path),
        Err(error) => Err(Error::File { path: path.to_owned(), reason: format!("cannot create it: {error}") }),
    }
}

/// Writes a copy to a new file, and returns one line about it.
pub(super) fn write(contents: &Contents, to: &Path) -> Result<String, Error> {
    let new = beside(to, "new");
    drop(write_new(&new, contents, to)?);
    let placed = place(&new, to);
    let _ = fs::remove_file(&new);
    placed.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(to.to_owned()),
        _ => Error::File { path: to.to_owned(), reason: format!("cannot create it: {error}") },
    })?;
    Ok(format!("wrote {} nodes", contents.nodes.len()))
}

/// A copy replaces no file.
fn exists(path: PathBuf) -> Error {
    Error::File { path, reason: "it exists already; choose the name of a new file for the copy".into() }
}

/// Writes a whole registry file, readable by its owner only. `name` is what errors call it.
fn write_new(path: &Path, contents: &Contents, name: &Path) -> Result<Storage, Error> {
    let failed = |e: io::Error| Error::File { path: name.to_owned(), reason: format!("cannot create it: {e}") };
    let _ = fs::remove_file(path); // of a process that was killed and had the same id
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    let written = Storage::lock(file, name).and_then(|storage| {
        file::create(name, Box::new(storage.clone()), contents)?;
        Ok(storage)
    });
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

/// Moves a file to a name that must be free. So a file appears whole or not at all.
fn place(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        // Some file systems have no hard links.
        Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => {
            if to.try_exists()? {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(from, to)?;
        }
        linked => linked?,
    }
    sync_folder(to);
    Ok(())
}

/// Makes a new name durable, where the file system can.
fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{what}-{}", std::process::id()));
    PathBuf::from(name)
}

/// The first free name for the file that a restore replaces.
fn free_name(path: &Path) -> PathBuf {
    let name = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".before-restore-{number}"));
        PathBuf::from(name)
    };
    (1..).map(name).find(|name| !name.exists()).unwrap_or_else(|| name(0))
}

/// A file that was moved or deleted while a process holds it is not created again: two processes would run the same jobs.
fn refuse_served(path: &Path) -> Result<(), Error> {
    match UnixStream::connect(socket_path(path)) {
        Ok(_) => Err(Error::File {
            path: path.to_owned(),
            reason: "the file was moved or deleted, but a process still has it open: move the file back, or stop that process"
                .into(),
        }),
        Err(_) => Ok(()),
    }
}

pub(super) fn refuse_empty(storage: &Storage, path: &Path) -> Result<(), Error> {
    if storage.is_empty().unwrap_or_default() { Err(storage::empty(path)) } else { Ok(()) }
}

async fn ask_holder(path: &Path, what: Inspection) -> Result<String, Error> {
    let holder = client::Client::connect(path, &socket_path(path)).await?;
    let answer = holder.inspect(what).await?;
    answer.map_err(|reason| Error::File { path: path.to_owned(), reason })
}
