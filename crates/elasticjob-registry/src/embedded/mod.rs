//! The registry in one file: in process, nothing to install, its persistent nodes survive a kill at any moment.
//!
//! The process that holds the file serves the registry to other processes of the same user on a Unix socket beside it
//! (`PATH.sock`, mode 0600), so that commands work while an agent runs. Sessions end with their connection, ephemeral
//! nodes with their session; after a restart there are none.

mod file;
mod socket;
mod visitor;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use crate::local::Connection;
use crate::local::{Company, Store};
use crate::{Error, Registry, clock};

/// A holder that has the file and serves no socket is about to, or about to leave: it is given this long.
const HOLDER_PATIENCE: Duration = Duration::from_secs(2);
const HOLDER_PAUSE: Duration = Duration::from_millis(20);

/// Opens the file, or makes it, and serves it to visitors. Must be called within a tokio runtime.
///
/// # Errors
///
/// [`Error::InUse`] when another process holds it; [`Error::File`] when it cannot be read or is no such file.
pub fn open(path: &Path) -> Result<Connection, Error> {
    let (tree, keeper) = file::open(path)?;
    let store = Store::new(tree, Some(Box::new(keeper)), format!("the embedded registry {}", path.display()));
    let server = match socket::serve(Arc::clone(&store), &socket_path(path)) {
        Ok(server) => Some(Box::new(server) as Box<dyn Company>),
        Err(error) => {
            tracing::warn!("commands cannot reach {}: {error}", path.display());
            None
        }
    };
    Ok(Connection::new(store, server))
}

/// Reaches the registry of that file: through the socket where a process holds it, else by opening it.
///
/// # Errors
///
/// The file does not exist, or is held by a process that serves no socket for two seconds.
pub async fn attach(path: &Path) -> Result<Arc<dyn Registry>, Error> {
    if !path.exists() {
        return Err(Error::File { path: path.to_owned(), reason: "there is no such file".into() });
    }
    let until = clock::instant() + HOLDER_PATIENCE;
    loop {
        match open(path) {
            Ok(registry) => return Ok(Arc::new(registry)),
            Err(Error::InUse { .. }) => {}
            Err(error) => return Err(error),
        }
        match visitor::Visitor::connect(path, &socket_path(path)).await {
            Ok(visitor) => return Ok(Arc::new(visitor)),
            Err(error) if clock::instant() >= until => return Err(error),
            Err(_) => clock::sleep(HOLDER_PAUSE).await,
        }
    }
}

/// Reaches the registry of that file through the process that holds it; `None` when none does.
pub async fn visit(path: &Path) -> Option<Arc<dyn Registry>> {
    let visitor = visitor::Visitor::connect(path, &socket_path(path)).await.ok()?;
    Some(Arc::new(visitor))
}

/// The socket of that file.
pub fn socket_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".sock");
    PathBuf::from(name)
}
