//! `elasticjob console`: the web console in a process of its own.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use elasticjob_console::{Console, Settings, SettingsFault, Source};

use crate::Failure;

/// Reads the settings, serves the console, and stops at SIGINT or SIGTERM.
pub(crate) fn run(file: Option<&Path>, port: Option<u16>, address: Option<IpAddr>) -> Result<(), Failure> {
    let settings = settings(file, port, address)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let termination = elasticjob::termination();
        let (is_default, folder) = (settings.has_default_password(), settings.folder.clone());
        let console = Console::start(settings).await?;
        tracing::info!("serving the console on http://{}, registry centers and trace stores are stored in {}", console.address(), folder.display());
        if is_default {
            tracing::warn!(
                "the console has the default login root/root, so only this host can reach it; set auth.password in a properties \
                 file to serve other hosts"
            );
        }
        termination.await;
        console.stop().await;
        tracing::info!("stopped");
        Ok(())
    })
}

fn settings(file: Option<&Path>, port: Option<u16>, address: Option<IpAddr>) -> Result<Settings, Failure> {
    let cannot_read = |path: &Path, error: std::io::Error| {
        Failure::Wrong(vec![format!("elasticjob: cannot read {}: {error}", path.display())])
    };
    let text = match file {
        Some(path) => Some(std::fs::read_to_string(path).map_err(|error| cannot_read(path, error))?),
        None => None,
    };
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let mut source = Source::default();
    (source.properties, source.port, source.address) = (text.as_deref(), port, address);
    source.home = home.as_deref();
    Settings::read(&source).map_err(|faults| {
        let place = |fault: &SettingsFault| match (file, fault.line) {
            (Some(path), Some(_)) => format!("{}:{fault}", path.display()),
            _ => format!("elasticjob: {fault}"),
        };
        Failure::Wrong(faults.iter().map(place).collect())
    })
}
