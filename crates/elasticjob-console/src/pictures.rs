//! The current picture of each registry centre, shared by all requests, so that ten open browsers cost the registry no more than one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use elasticjob_core::report::JobReport;
use tokio::sync::Mutex;

use crate::centres::Centres;
use crate::clock;
use crate::failure::Failure;
use crate::fields::short;

/// A picture is read again when it is older.
const FRESH: Duration = Duration::from_secs(1);
/// Maximum number of centres whose pictures are kept.
const CENTRES_MAX: usize = 64;

/// All jobs of a registry at one moment.
#[derive(Debug)]
pub(crate) struct Picture {
    /// The jobs, by name.
    pub(crate) jobs: Vec<JobReport>,
    /// The name of the registry.
    pub(crate) registry: String,
    /// When it was read, in milliseconds since 1970.
    pub(crate) at: i64,
    /// How long the registry took.
    pub(crate) took: Duration,
}

impl Picture {
    /// A job by its name.
    pub(crate) fn job(&self, name: &str) -> Option<&JobReport> {
        self.jobs.iter().find(|report| report.path.job() == name)
    }
}

/// A picture, or why there is none, and when it was read.
type Read = (Instant, Result<Arc<Picture>, Failure>);
type Place = Arc<Mutex<Option<Read>>>;

/// The pictures, by the name of the centre.
#[derive(Debug, Default)]
pub(crate) struct Pictures {
    places: Mutex<HashMap<String, Place>>,
}

impl Pictures {
    /// The picture of a centre; `None` if none is named and none is activated. Requests that come while it is read wait for that read.
    pub(crate) async fn get(&self, centres: &Centres, name: Option<&str>) -> Result<Option<Arc<Picture>>, Failure> {
        let name = match name {
            Some(name) if centres.all()?.iter().any(|centre| centre.name == name) => name.to_owned(),
            Some(name) => return Err(Failure::invalid(format!("registry center `{}` not found", short(name)))),
            None => match centres.activated()? {
                Some(centre) => centre.name,
                None => return Ok(None),
            },
        };
        let place = {
            let mut places = self.places.lock().await;
            if places.len() >= CENTRES_MAX && !places.contains_key(&name) {
                places.clear();
            }
            Arc::clone(places.entry(name.clone()).or_default())
        };
        let mut place = place.lock().await;
        // Those that waited for a read share its outcome, also a failure: each of them would wait as long again.
        if let Some((read, outcome)) = &*place
            && read.elapsed() < FRESH
        {
            return outcome.clone().map(Some);
        }
        *place = None;
        let outcome = read(centres, &name).await;
        place.insert((clock::now(), outcome)).1.clone().map(Some)
    }

    /// Forgets the picture of a centre after a change, so that the next request sees the change.
    pub(crate) async fn forget(&self, centres: &Centres, name: Option<&str>) {
        let name = match name {
            Some(name) => Some(name.to_owned()),
            None => centres.activated().ok().flatten().map(|centre| centre.name),
        };
        if let Some(name) = name {
            self.places.lock().await.remove(&name);
        }
    }
}

async fn read(centres: &Centres, name: &str) -> Result<Arc<Picture>, Failure> {
    let Some(opened) = centres.get(Some(name)).await? else {
        return Err(Failure::invalid(format!("registry center `{name}` not found")));
    };
    let begun = clock::now();
    let jobs = opened.operations.full_reports().await.map_err(|error| Failure::of_read(&error));
    let registry = opened.operations.registry_name();
    opened.close().await;
    Ok(Arc::new(Picture { jobs: jobs?, registry, at: clock::millis(), took: begun.elapsed() }))
}
