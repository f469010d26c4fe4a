//! The registry in one file: in process, nothing to install, its persistent nodes survive a kill at any moment.
//!
//! The process that holds the file serves the registry to other processes of the same user on a Unix socket beside it
//! (`PATH.sock`, mode 0600), so that commands work while an agent runs. Sessions end with their connection, ephemeral
//! nodes with their session; after a restart there are none.

mod client;
mod file;
mod maintain;
mod socket;
mod storage;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use file::Inspection;
pub use maintain::{backup, check, restore};
use storage::Storage;

pub use crate::local::Connection;
use crate::local::{Company, Store};
use crate::{Error, Registry, clock, trust};

/// Name of the thread that writes a registry file. A panic in it is caught and reported as damage of the file: a program may
/// keep its panic hook from printing it.
pub const WRITER_THREAD: &str = file::THREAD;

/// A holder that has the file and serves no socket is about to, or about to leave: it is given this long.
const HOLDER_PATIENCE: Duration = Duration::from_secs(2);
const HOLDER_PAUSE: Duration = Duration::from_millis(20);

/// Opens the file, or creates it, and serves it to clients. Must be called within a tokio runtime.
///
/// While the file cannot be written, the link is down: no commit succeeds, and reads fail. Everything that was not durable is
/// forgotten then, sessions included.
///
/// # Errors
///
/// [`Error::InUse`] when another process holds it; [`Error::Damaged`] when its checksums do not match; [`Error::File`] when it
/// is no registry file or cannot be written; [`Error::Untrusted`] when another user can write it or its folder.
pub fn open(path: &Path) -> Result<Connection, Error> {
    check_folder(path)?;
    let storage = maintain::open_or_create(path)?;
    Ok(serve(path, open_storage(path, storage)?))
}

/// The same, and waits up to two seconds for a process that holds the file: a command, or a console, holds it for a moment.
///
/// # Errors
///
/// As of [`open`].
pub async fn open_when_free(path: &Path) -> Result<Connection, Error> {
    let until = clock::instant() + HOLDER_PATIENCE;
    loop {
        match open(path) {
            Err(Error::InUse { .. }) if clock::instant() < until => clock::sleep(HOLDER_PAUSE).await,
            opened => return opened,
        }
    }
}

/// Reaches the registry of that file: through the socket where a process holds it, else by opening it. A file that this
/// process may not write is opened for reading, where it has no holder; commits fail then.
///
/// # Errors
///
/// As of [`open`]; [`Error::Absent`] when the file does not exist; a process holds it that serves no socket for two seconds.
pub async fn attach(path: &Path) -> Result<Arc<dyn Registry>, Error> {
    check_folder(path)?;
    let until = clock::instant() + HOLDER_PATIENCE;
    loop {
        let opened = Storage::open(path).and_then(|storage| {
            maintain::refuse_empty(&storage, path)?;
            open_storage(path, storage)
        });
        match opened {
            Ok(store) => return Ok(Arc::new(serve(path, store))),
            Err(Error::InUse { .. }) => {}
            Err(error @ Error::Absent { .. }) => {
                // Its holder knows what became of it.
                return match client::Client::connect(path, &socket_path(path)).await {
                    Ok(client) => Ok(Arc::new(client)),
                    Err(_) => Err(error),
                };
            }
            Err(error @ Error::File { .. }) => {
                let copied = storage::copy(path).and_then(|copy| file::contents(path, copy));
                let Ok(contents) = copied else { return Err(error) };
                let store = Store::read_only(contents.into_tree(), describe(path), error);
                return Ok(Arc::new(Connection::new(store, None)));
            }
            Err(error) => return Err(error),
        }
        match client::Client::connect(path, &socket_path(path)).await {
            Ok(client) => return Ok(Arc::new(client)),
            Err(error) if clock::instant() >= until => return Err(error),
            Err(_) => clock::sleep(HOLDER_PAUSE).await,
        }
    }
}

fn open_storage(path: &Path, storage: Storage) -> Result<Arc<Store>, Error> {
    let (again, at) = (storage.clone(), path.to_owned());
    let source = file::Source {
        open: Box::new(move || Box::new(storage.clone())),
        is_in_place: Box::new(move || again.is_at(&at)),
    };
    let (tree, writer) = file::start(path, source, file::REOPEN_PAUSE)?;
    Ok(Store::new(tree, Some(Box::new(writer)), describe(path)))
}

fn serve(path: &Path, store: Arc<Store>) -> Connection {
    let server = match socket::serve(Arc::clone(&store), &socket_path(path)) {
        Ok(server) => Some(Box::new(server) as Box<dyn Company>),
        Err(error) => {
            tracing::warn!(
                "cannot create the socket of {}: {error}; `elasticjob` commands cannot use the registry while this process runs",
                path.display()
            );
            None
        }
    };
    Connection::new(store, server)
}

fn describe(path: &Path) -> String {
    format!("the embedded registry {}", path.display())
}

/// Reaches the registry of that file through the process that holds it; `None` when none does.
pub async fn reach(path: &Path) -> Option<Arc<dyn Registry>> {
    let client = client::Client::connect(path, &socket_path(path)).await.ok()?;
    Some(Arc::new(client))
}

fn check_folder(path: &Path) -> Result<(), Error> {
    trust::check_folder(path).map_err(|reason| Error::Untrusted { path: path.to_owned(), reason })
}

/// The socket of that file.
pub fn socket_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".sock");
    PathBuf::from(name)
}
