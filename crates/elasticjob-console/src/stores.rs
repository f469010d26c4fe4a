//! Trace stores: the databases with an event trace.

use std::collections::BTreeSet;
use std::sync::Arc;

use elasticjob::trace::DataSource;
use elasticjob::trace::rdb::{self, TraceReader};
use elasticjob_core::wire::masked;
use parking_lot::Mutex;

use crate::configurations::{File, Store};
use crate::failure::Failure;
use crate::fields::short;
use crate::settings::Own;

/// The driver classes of JDBC that are understood, each with the databases of its addresses.
pub(crate) const DRIVERS: [(&str, &[&str]); 5] = [
    ("org.postgresql.Driver", &["postgresql", "postgres"]),
    ("com.mysql.cj.jdbc.Driver", &["mysql"]),
    ("com.mysql.jdbc.Driver", &["mysql"]),
    ("org.mariadb.jdbc.Driver", &["mariadb", "mysql"]),
    ("org.sqlite.JDBC", &["sqlite"]),
];

/// The trace stores of the file, and the reader of the activated one.
#[derive(Debug)]
pub(crate) struct Stores {
    file: Arc<File>,
    /// The driver classes that a store may have.
    drivers: BTreeSet<String>,
    default: Option<DataSource>,
    /// The centre of this process, which has a store of its own.
    own: Option<Own>,
    readers: Mutex<Vec<(DataSource, Arc<TraceReader>)>>,
}

/// Maximum number of readers that are kept; each has a connection.
const READERS_MAX: usize = 8;

impl Stores {
    pub(crate) fn new(
        file: Arc<File>,
        drivers: BTreeSet<String>,
        default: Option<DataSource>,
        own: Option<Own>,
    ) -> Stores {
        Stores { file, drivers, default, own, readers: Mutex::default() }
    }

    /// The driver classes that are understood and allowed.
    pub(crate) fn drivers(&self) -> Vec<&'static str> {
        DRIVERS.iter().map(|(class, _)| *class).filter(|class| self.drivers.contains(*class)).collect()
    }

    /// All stores, in the order in which they were added.
    pub(crate) fn all(&self) -> Result<Vec<Store>, Failure> {
        Ok(self.file.read()?.entries())
    }

    /// Whether one is activated.
    pub(crate) fn is_activated(&self) -> Result<bool, Failure> {
        Ok(self.all()?.iter().any(|store| store.activated))
    }

    /// Connects to a store, whether or not it is in the file.
    pub(crate) async fn test(&self, store: &Store) -> Result<(), Failure> {
        self.check(store)?;
        let reader = TraceReader::new(&source(store)).map_err(Failure::invalid)?;
        reader.connect().await.map_err(Failure::failed)
    }

    /// Adds one, after a test. Returns `false` if there is one of that name.
    pub(crate) async fn add(&self, store: Store) -> Result<bool, Failure> {
        self.test(&store).await?;
        self.file.add(store)
    }

    /// Removes one.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Failure> {
        self.file.remove::<Store>(name)
    }

    /// Activates one, after a test.
    pub(crate) async fn connect(&self, name: &str) -> Result<(), Failure> {
        let store = self.stored(name)?;
        let store = store.ok_or_else(|| Failure::invalid(format!("data source `{}` not found", short(name))))?;
        self.test(&store).await?;
        self.file.activate(&store)
    }

    /// The stored entry of that name.
    pub(crate) fn stored(&self, name: &str) -> Result<Option<Store>, Failure> {
        Ok(self.all()?.into_iter().find(|store| store.name == name))
    }

    /// The trace store of this process: the centre's name and the database.
    pub(crate) fn own(&self) -> Option<(&str, DataSource)> {
        let own = self.own.as_ref()?;
        let store = own.store.borrow().clone();
        Some((&own.name, store?))
    }

    /// The reader of the history of a centre: of its own store if it is the centre of this process, else of the activated store, else
    /// of the default one; `None` if there is none.
    pub(crate) fn reader(&self, centre: Option<&str>) -> Result<Option<Arc<TraceReader>>, Failure> {
        if let Some((name, source)) = self.own()
            && centre.is_none_or(|centre| centre == name)
        {
            return self.reader_of(source, true).map(Some);
        }
        let activated = self.all()?.into_iter().find(|store| store.activated);
        if let Some(store) = &activated {
            self.check(store)?;
        }
        let source = activated.as_ref().map(source).or_else(|| self.default.clone());
        source.map(|source| self.reader_of(source, false)).transpose()
    }

    fn reader_of(&self, source: DataSource, may_be_new: bool) -> Result<Arc<TraceReader>, Failure> {
        let mut readers = self.readers.lock();
        if let Some((_, reader)) = readers.iter().find(|(of, _)| *of == source) {
            return Ok(Arc::clone(reader));
        }
        let new = TraceReader::new(&source).map_err(Failure::failed)?;
        let new = Arc::new(if may_be_new { new.maybe_new() } else { new });
        if readers.len() == READERS_MAX {
            readers.remove(0);
        }
        readers.push((source, Arc::clone(&new)));
        Ok(new)
    }

    /// Checks that the driver is one that is allowed, and that the address is one of its databases.
    fn check(&self, store: &Store) -> Result<(), Failure> {
        let allowed = self.drivers();
        let Some((class, databases)) =
            DRIVERS.iter().find(|(class, _)| *class == store.driver && allowed.contains(class))
        else {
            let driver = short(&store.driver);
            return Err(Failure::invalid(format!(
                "driver `{driver}` is not supported; expected {}",
                allowed.join(", ")
            )));
        };
        let address = store.url.strip_prefix("jdbc:").unwrap_or(&store.url);
        let database = address.split(':').next().unwrap_or_default();
        if !databases.contains(&database) {
            return Err(Failure::invalid(format!(
                "field `url`: driver {class} does not read `{}`; expected jdbc:{}:…",
                short(&masked(&store.url)),
                databases[0]
            )));
        }
        self::check(&source(store)).map_err(Failure::invalid)
    }
}

/// The driver class of an address.
pub(crate) fn driver_of(url: &str) -> Option<&'static str> {
    let database = url.strip_prefix("jdbc:").unwrap_or(url).split(':').next().unwrap_or_default();
    DRIVERS.iter().find(|(_, databases)| databases.contains(&database)).map(|(class, _)| *class)
}

/// Checks an address; the error tells what is expected.
pub(crate) fn check(source: &DataSource) -> Result<(), String> {
    rdb::check(source)
}

fn source(store: &Store) -> DataSource {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let mut source = DataSource::new(&store.url);
    (source.username, source.password) = (given(&store.username), given(&store.password));
    source
}
