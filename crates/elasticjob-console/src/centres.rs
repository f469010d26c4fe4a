//! Registry centres: which there are, which is activated, and their connections.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use elasticjob::Operations;
use elasticjob::registry::{Link, Registry, RegistryUrl, attach, zookeeper};
use parking_lot::Mutex;

use crate::configurations::{Centre, File};
use crate::failure::Failure;
use crate::fields::short;
use crate::settings::Own;

/// Longest wait for a registry to answer, as in ElasticJob-UI.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The form of an address that names the file of an embedded registry.
const EMBEDDED: &str = "embedded:";

/// What tells one connection from another.
type Key = (String, String, Option<String>);

/// The registry centres of the file, with their connections. A connection is opened when a request needs it, and closed when its centre
/// is deleted.
#[derive(Debug)]
pub(crate) struct Centres {
    file: Arc<File>,
    /// The registry of this process, which is always connected.
    own: Option<Own>,
    open: Mutex<HashMap<Key, Arc<dyn Registry>>>,
}

/// The operations on one registry centre, for one request.
pub(crate) struct Opened {
    pub(crate) operations: Operations,
    /// A registry that is closed with the request.
    registry: Option<Arc<dyn Registry>>,
}

impl Opened {
    /// Ends the request.
    pub(crate) async fn close(self) {
        if let Some(registry) = self.registry {
            registry.close().await;
        }
    }
}

impl Centres {
    pub(crate) fn new(file: Arc<File>, own: Option<Own>) -> Centres {
        Centres { file, own, open: Mutex::default() }
    }

    /// All centres: that of this process, then those of the file in the order in which they were added.
    pub(crate) fn all(&self) -> Result<Vec<Centre>, Failure> {
        let stored: Vec<Centre> = self.file.read()?.entries();
        let Some(own) = &self.own else { return Ok(stored) };
        let others = stored.into_iter().filter(|centre| centre.name != own.name);
        let others = others.map(|centre| Centre { activated: false, ..centre });
        Ok(std::iter::once(centre_of(own)).chain(others).collect())
    }

    /// The centre of this process, if it is the one of that name.
    pub(crate) fn own(&self, name: &str) -> Option<&Own> {
        self.own.as_ref().filter(|own| own.name == name)
    }

    /// The activated one.
    pub(crate) fn activated(&self) -> Result<Option<Centre>, Failure> {
        Ok(self.all()?.into_iter().find(|centre| centre.activated))
    }

    /// Adds one. Returns `false` if there is one of that name.
    pub(crate) fn add(&self, centre: Centre) -> Result<bool, Failure> {
        address(&centre)?;
        match self.own(&centre.name) {
            Some(_) => Ok(false),
            None => self.file.add(centre),
        }
    }

    /// Removes one, and closes its connection.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), Failure> {
        if self.own(name).is_some() {
            let text = format!("registry center `{}` is that of this process; it cannot be removed", short(name));
            return Err(Failure::invalid(text));
        }
        self.file.remove::<Centre>(name)?;
        let wanted: Vec<Key> = self.all()?.iter().map(key).collect();
        let unused: Vec<Arc<dyn Registry>> = {
            let mut open = self.open.lock();
            let keys: Vec<Key> = open.keys().filter(|key| !wanted.contains(key)).cloned().collect();
            keys.iter().filter_map(|key| open.remove(key)).collect()
        };
        for registry in unused {
            registry.close().await;
        }
        Ok(())
    }

    /// Activates one. Returns `false` if its registry does not answer; it is not activated then.
    pub(crate) async fn connect(&self, name: &str) -> Result<bool, Failure> {
        let centre = self.named(name)?;
        if let Err(error) = self.activate(&centre).await {
            tracing::warn!(centre = name, "cannot connect to the registry center: {error}");
            return Ok(false);
        }
        Ok(true)
    }

    /// The same, with the reason.
    pub(crate) async fn connect_or_explain(&self, name: &str) -> Result<(), Failure> {
        let centre = self.named(name)?;
        self.activate(&centre).await
    }

    async fn activate(&self, centre: &Centre) -> Result<(), Failure> {
        self.open(centre).await?.close().await;
        match self.own(&centre.name) {
            Some(_) => Ok(()),
            None => self.file.activate(centre),
        }
    }

    /// Opens the centre of that name; without a name, the activated one. `None` if none is activated.
    pub(crate) async fn get(&self, name: Option<&str>) -> Result<Option<Opened>, Failure> {
        let centre = match name {
            Some(name) => Some(self.named(name)?),
            None => self.activated()?,
        };
        match centre {
            Some(centre) => self.open(&centre).await.map(Some),
            None => Ok(None),
        }
    }

    /// Closes all connections.
    pub(crate) async fn close(&self) {
        let open: Vec<Arc<dyn Registry>> = self.open.lock().drain().map(|(_, registry)| registry).collect();
        for registry in open {
            registry.close().await;
        }
    }

    fn named(&self, name: &str) -> Result<Centre, Failure> {
        let found = self.all()?.into_iter().find(|centre| centre.name == name);
        found.ok_or_else(|| Failure::invalid(format!("registry center `{}` not found", short(name))))
    }

    async fn open(&self, centre: &Centre) -> Result<Opened, Failure> {
        if let Some(own) = self.own(&centre.name) {
            return answering(Arc::clone(&own.registry)).await;
        }
        // An embedded registry is not held between requests: its file belongs to the agents.
        if centre.address.starts_with(EMBEDDED) {
            let registry = attach(&centre.address).await.map_err(|error| {
                // The advice of commands is about their option.
                let advice = ("name another registry with `--registry`", "correct the address of this registry center");
                Failure::failed(error.to_string().replace(advice.0, advice.1))
            })?;
            return Ok(Opened { operations: Operations::new(Arc::clone(&registry)), registry: Some(registry) });
        }
        answering(self.connected(centre)?).await
    }

    /// The connection to a ZooKeeper; several centres may share it.
    fn connected(&self, centre: &Centre) -> Result<Arc<dyn Registry>, Failure> {
        let settings = settings(centre);
        let mut open = self.open.lock();
        if let Some(registry) = open.get(&key(centre)) {
            return Ok(Arc::clone(registry));
        }
        let registry = zookeeper::Zookeeper::connect(settings).map_err(|error| Failure::failed(error.to_string()))?;
        let registry: Arc<dyn Registry> = Arc::new(registry);
        open.insert(key(centre), Arc::clone(&registry));
        Ok(registry)
    }
}

/// The operations on a registry, as soon as it answers.
async fn answering(registry: Arc<dyn Registry>) -> Result<Opened, Failure> {
    let mut link = registry.link();
    let ready = link.wait_for(|link| !matches!(link, Link::Down { refused: false, .. }));
    let link = tokio::time::timeout(CONNECT_MAX, ready).await.ok().and_then(|link| link.ok().map(|l| l.clone()));
    let name = registry.describe();
    match link.unwrap_or_else(|| registry.link().borrow().clone()) {
        Link::Up { .. } => Ok(Opened { operations: Operations::new(registry), registry: None }),
        Link::Down { reason, refused: true } => Err(Failure::failed(format!("{name} refuses this console: {reason}"))),
        Link::Down { reason, refused: false } => Err(Failure::failed(format!("{name} does not answer: {reason}"))),
        Link::Closed => Err(Failure::failed(format!("{name}: the connection is closed"))),
    }
}

fn centre_of(own: &Own) -> Centre {
    Centre {
        name: own.name.clone(),
        address: own.registry.describe(),
        namespace: String::new(),
        digest: None,
        activated: true,
    }
}

fn key(centre: &Centre) -> Key {
    (centre.address.clone(), centre.namespace.clone(), centre.digest.clone())
}

/// A console must not create a namespace.
fn settings(centre: &Centre) -> zookeeper::Settings {
    let digest = centre.digest.clone().filter(|digest| !digest.is_empty());
    let settings = zookeeper::Settings::new(&centre.address, &centre.namespace);
    zookeeper::Settings { digest, creates_namespace: false, ..settings }
}

/// Checks the address of a centre before it is stored.
fn address(centre: &Centre) -> Result<(), Failure> {
    if centre.address.starts_with(EMBEDDED) {
        return RegistryUrl::parse(&centre.address).map(drop).map_err(|error| Failure::invalid(error.to_string()));
    }
    settings(centre)
        .check()
        .map_err(|error| Failure::invalid(error.to_string().replace("serverLists", "zkAddressList")))
}
