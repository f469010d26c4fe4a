//! `elasticjob man`: a man page for each command, from the same table as its help.

use std::path::Path;

use crate::args::Args;
use crate::{Failure, output};

/// Writes `elasticjob.1`, `elasticjob-job.1`, `elasticjob-job-list.1` and so on.
pub(crate) fn write(folder: &Path) -> Result<(), Failure> {
    let cannot = |what: &'static str| {
        move |error: std::io::Error| anyhow::anyhow!("cannot {what} {}: {error}", folder.display())
    };
    std::fs::create_dir_all(folder).map_err(cannot("create the folder"))?;
    clap_mangen::generate_to(Args::described(), folder).map_err(cannot("write man pages into"))?;
    output::tell(&format!("wrote man pages into {}", folder.display()));
    Ok(())
}
