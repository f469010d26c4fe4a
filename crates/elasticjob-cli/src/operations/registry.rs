//! `elasticjob registry …`: the file of an embedded registry.

use std::path::{Path, PathBuf};

use elasticjob::registry::{Error, embedded};

use crate::args::RegistryOperation;
use crate::{Failure, output};

pub(crate) fn run(operation: &RegistryOperation) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let line = runtime.block_on(async {
        match operation {
            RegistryOperation::Check { file } => {
                let file = path(file);
                let found = embedded::check(&file).await.map_err(absent)?;
                Ok::<_, Failure>(format!("{}: {found}", file.display()))
            }
            RegistryOperation::Backup { file, copy } => {
                let copy = path(copy);
                let written = embedded::backup(&path(file), &copy).await.map_err(absent)?;
                Ok(format!("{}: {written}", copy.display()))
            }
            RegistryOperation::Restore { file, backup } => {
                let file = path(file);
                let restored = embedded::restore(&file, &path(backup))?;
                Ok(format!("{}: {restored}", file.display()))
            }
        }
    })?;
    output::data(&format!("{line}\n"))
}

/// These commands name their file as an argument, not with `--registry`.
fn absent(error: Error) -> Failure {
    match error {
        Error::Absent { path } => anyhow::anyhow!("the registry file {} does not exist", path.display()).into(),
        error => error.into(),
    }
}

/// A path, also where it is given as the address of a registry.
fn path(file: &Path) -> PathBuf {
    file.to_str().and_then(|text| text.strip_prefix("embedded:")).map_or_else(|| file.to_owned(), PathBuf::from)
}
