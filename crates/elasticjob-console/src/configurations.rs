//! `Configurations.xml`: the registry centres and trace stores, in ElasticJob-UI's file and form (Java: `GlobalConfiguration`).

use std::io::Write;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// A secret in an answer. Sent back, it means the stored one.
pub(crate) const MASKED: &str = "******";
/// The file's name.
const FILE: &str = "Configurations.xml";

/// A registry that the console may show (Java: `RegistryCenterConfiguration`).
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Centre {
    #[serde(rename = "@name", default)]
    pub(crate) name: String,
    #[serde(rename = "@zkAddressList", default)]
    pub(crate) address: String,
    #[serde(rename = "@namespace", default)]
    pub(crate) namespace: String,
    #[serde(rename = "@digest", default, skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
    #[serde(rename = "@activated", default)]
    pub(crate) activated: bool,
}

/// A database with an event trace (Java: `EventTraceDataSourceConfiguration`).
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Store {
    #[serde(rename = "@name", default)]
    pub(crate) name: String,
    #[serde(rename = "@driver", default)]
    pub(crate) driver: String,
    #[serde(rename = "@url", default)]
    pub(crate) url: String,
    #[serde(rename = "@username", default, skip_serializing_if = "Option::is_none")]
    pub(crate) username: Option<String>,
    #[serde(rename = "@password", default, skip_serializing_if = "Option::is_none")]
    pub(crate) password: Option<String>,
    #[serde(rename = "@activated", default)]
    pub(crate) activated: bool,
}

impl std::fmt::Debug for Centre {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Centre").field("name", &self.name).field("address", &self.address).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("name", &self.name).field("url", &self.url).finish_non_exhaustive()
    }
}

/// An entry of one of the two lists.
pub(crate) trait Entry {
    fn name(&self) -> &str;
    fn activated(&mut self) -> &mut bool;
    fn list(file: &mut Configurations) -> &mut Vec<Self>
    where
        Self: Sized;
}

impl Entry for Centre {
    fn name(&self) -> &str {
        &self.name
    }

    fn activated(&mut self) -> &mut bool {
        &mut self.activated
    }

    fn list(file: &mut Configurations) -> &mut Vec<Centre> {
        &mut file.centres.list
    }
}

impl Entry for Store {
    fn name(&self) -> &str {
        &self.name
    }

    fn activated(&mut self) -> &mut bool {
        &mut self.activated
    }

    fn list(file: &mut Configurations) -> &mut Vec<Store> {
        &mut file.stores.list
    }
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "globalConfiguration")]
pub(crate) struct Configurations {
    #[serde(rename = "registryCenterConfigurations", default)]
    centres: Centres,
    #[serde(rename = "eventTraceDataSourceConfigurations", default)]
    stores: Stores,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Centres {
    #[serde(rename = "registryCenterConfiguration", default)]
    list: Vec<Centre>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Stores {
    #[serde(rename = "eventTraceDataSourceConfiguration", default)]
    list: Vec<Store>,
}

impl Configurations {
    /// The entries of one kind, in the order in which they were added.
    pub(crate) fn entries<E: Entry + Clone>(mut self) -> Vec<E> {
        std::mem::take(E::list(&mut self))
    }
}

/// The file on its disk. It is read for each request, since another console, or ElasticJob-UI, may write it too.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    /// One change at a time.
    changing: Mutex<()>,
}

impl File {
    pub(crate) fn in_folder(folder: &Path) -> File {
        File { path: folder.join(FILE), changing: Mutex::default() }
    }

    /// Reads the file. One that does not exist has no entries.
    pub(crate) fn read(&self) -> Result<Configurations, Failure> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Configurations::default()),
            Err(error) => return Err(Failure::failed(format!("cannot read {}: {error}", self.path.display()))),
        };
        quick_xml::de::from_str(&text)
            .map_err(|error| Failure::failed(format!("{}: invalid XML: {error}", self.path.display())))
    }

    /// Adds an entry. Returns `false` if one has its name already.
    pub(crate) fn add<E: Entry>(&self, entry: E) -> Result<bool, Failure> {
        self.change(|file| {
            let list = E::list(file);
            let is_new = list.iter().all(|other| other.name() != entry.name());
            if is_new {
                list.push(entry);
            }
            is_new
        })
    }

    /// Removes an entry, if there is one of that name.
    pub(crate) fn remove<E: Entry>(&self, name: &str) -> Result<(), Failure> {
        self.change(|file| E::list(file).retain(|entry| entry.name() != name))
    }

    /// Activates an entry, and no other of its kind. Fails if the entry was removed or changed since it was read.
    pub(crate) fn activate<E: Entry + Clone + PartialEq>(&self, wanted: &E) -> Result<(), Failure> {
        let is_it = |entry: &E| {
            let mut entry = entry.clone();
            *entry.activated() = *wanted.clone().activated();
            entry == *wanted
        };
        let found = self.change(|file| {
            let list = E::list(file);
            let Some(place) = list.iter().position(is_it) else { return false };
            for (index, entry) in list.iter_mut().enumerate() {
                *entry.activated() = index == place;
            }
            true
        })?;
        match found {
            true => Ok(()),
            false => Err(Failure::failed(format!("`{}` was removed or changed in the meantime", wanted.name()))),
        }
    }

    /// Changes the file as a whole: a process that dies in the middle leaves the file of before.
    fn change<T>(&self, change: impl FnOnce(&mut Configurations) -> T) -> Result<T, Failure> {
        let _one = self.changing.lock();
        let before = self.read()?;
        let mut after = before.clone();
        let done = change(&mut after);
        if after != before {
            let cannot_write =
                |error: std::io::Error| Failure::failed(format!("cannot write {}: {error}", self.path.display()));
            let xml = quick_xml::se::to_string(&after).map_err(|error| Failure::failed(error.to_string()))?;
            let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n{xml}\n");
            self.write(&text).map_err(cannot_write)?;
        }
        Ok(done)
    }

    fn write(&self, text: &str) -> std::io::Result<()> {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        let folder = self.path.parent().unwrap_or(Path::new("."));
        // It has passwords.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let next = self.path.with_extension(format!("xml.{:016x}", random()?));
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&next, &self.path)?;
        std::fs::File::open(folder)?.sync_all()
    }
}

/// A number for the name of a temporary file: consoles in containers have the same process id.
fn random() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| std::io::Error::other("the system gives no random numbers"))?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn centre(name: &str) -> Centre {
        Centre { name: name.into(), address: "zk:2181".into(), namespace: "n".into(), ..Centre::default() }
    }

    #[test]
    fn the_file_of_elasticjob_ui_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<globalConfiguration>
    <registryCenterConfigurations>
        <registryCenterConfiguration name="a &amp; b" zkAddressList="zk1:2181,zk2:2181" namespace="jobs" digest="u:&lt;p&gt;" activated="true"/>
        <registryCenterConfiguration name="名字" zkAddressList="zk3:2181" namespace="x"/>
    </registryCenterConfigurations>
    <eventTraceDataSourceConfigurations>
        <eventTraceDataSourceConfiguration name="t" driver="org.postgresql.Driver" url="jdbc:postgresql://h/x" username="u" password="p" activated="false"/>
    </eventTraceDataSourceConfigurations>
</globalConfiguration>
"#;
        std::fs::write(folder.path().join(FILE), text).expect("a file");
        let file = File::in_folder(folder.path());
        let centres = file.read().expect("the file").entries::<Centre>();
        assert_eq!((centres[0].name.as_str(), centres[0].digest.as_deref()), ("a & b", Some("u:<p>")));
        assert!(centres[0].activated && !centres[1].activated);
        assert_eq!(centres[1].name, "名字");
        let stores = file.read().expect("the file").entries::<Store>();
        assert_eq!((stores[0].driver.as_str(), stores[0].password.as_deref()), ("org.postgresql.Driver", Some("p")));
        for empty in ["<globalConfiguration/>", "<globalConfiguration></globalConfiguration>"] {
            std::fs::write(folder.path().join(FILE), empty).expect("a file");
            assert_eq!(file.read().expect(empty), Configurations::default());
        }
    }

    #[test]
    fn entries_are_added_once_activated_one_at_a_time_and_survive_in_a_private_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = File::in_folder(&folder.path().join("new"));
        assert_eq!(file.read(), Ok(Configurations::default()));
        assert_eq!(file.add(centre("a")), Ok(true));
        assert_eq!(file.add(Centre { digest: Some("u:\"<&>'".into()), ..centre("b") }), Ok(true));
        assert_eq!(file.add(centre("a")), Ok(false));
        file.activate(&centre("a")).expect("is written");
        let second = Centre { digest: Some("u:\"<&>'".into()), ..centre("b") };
        file.activate(&second).expect("is written");
        let error = file.activate(&Centre { namespace: "another".into(), ..centre("a") }).expect_err("it was changed");
        assert!(error.text.contains("`a` was removed or changed"), "{error}");
        let found = file.read().expect("the file").entries::<Centre>();
        assert_eq!(
            found.iter().map(|c| (c.name.as_str(), c.activated)).collect::<Vec<_>>(),
            [("a", false), ("b", true)]
        );
        assert_eq!(found[1].digest.as_deref(), Some("u:\"<&>'"));
        file.remove::<Centre>("b").expect("is written");
        assert_eq!(file.read().expect("the file").entries::<Centre>().len(), 1);
        let mode = std::fs::metadata(&file.path).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_an_error_with_its_path_and_stays_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        std::fs::write(&path, "<globalConfiguration><x").expect("a file");
        let file = File::in_folder(folder.path());
        let error = file.add(centre("a")).expect_err("is damaged");
        assert!(error.text.contains(FILE) && error.text.contains("invalid XML"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), "<globalConfiguration><x");
    }
}
