//! Web and mail servers, with certificates of their own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::Process;
use crate::wait::eventually;

const PATIENCE: Duration = Duration::from_secs(30);

/// A server that writes down what it is asked, a line of JSON each.
#[derive(Debug)]
pub struct Server {
    _process: Process,
    port: u16,
    file: PathBuf,
    folder: tempfile::TempDir,
}

/// How a server talks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// Without TLS.
    Plain,
    /// the connection uses TLS from the start (implicit TLS, usual on port 465) on.
    Tls,
    /// TLS after the command `STARTTLS`.
    StartTls,
}

impl Server {
    /// A web server: `servers/web.py`.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn web(speech: Speech) -> Server {
        Server::start("web.py", &[], speech)
    }

    /// A mail server for the user `ops` with the password `secret`: `servers/smtp.py`.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn smtp(speech: Speech) -> Server {
        let word = match speech {
            Speech::Plain => "plain",
            Speech::Tls => "ssl",
            Speech::StartTls => "starttls",
        };
        Server::start("smtp.py", &[word], speech)
    }

    fn start(script: &str, arguments: &[&str], speech: Speech) -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("asked");
        std::fs::write(&file, "").expect("a file");
        // Debian's own Python: the mail server comes with it as a package.
        let mut command = Command::new("/usr/bin/python3");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("servers").join(script)).arg(&file).args(arguments);
        if speech != Speech::Plain {
            write_certificates(folder.path());
            command.arg(folder.path().join("cert.pem")).arg(folder.path().join("key.pem"));
        }
        let process = Process::start(command, &folder.path().join("log"));
        let port = eventually(&format!("{script} listens"), PATIENCE, || {
            process.log().lines().find_map(|line| line.strip_prefix("listens ")?.parse().ok())
        });
        Server { _process: process, port, file, folder }
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate of the authority that signed its own.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// What it was asked until now.
    ///
    /// # Panics
    ///
    /// When that is garbled.
    pub fn asked(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&self.file).expect("the file");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Waits until it was asked so often, and gives everything.
    ///
    /// # Panics
    ///
    /// When it is not.
    pub fn wait(&self, times: usize) -> Vec<serde_json::Value> {
        eventually(&format!("{times} requests"), PATIENCE, || Some(self.asked()).filter(|asked| asked.len() >= times))
    }
}

/// `ca.pem`, and `cert.pem` for localhost with its `key.pem`.
fn write_certificates(folder: &Path) {
    let authority_key = rcgen::KeyPair::generate().expect("a key");
    let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "the tests' own authority");
    let authority_certificate = authority.self_signed(&authority_key).expect("a certificate");
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut parameters = rcgen::CertificateParams::new(names).expect("parameters");
    parameters.extended_key_usages.push(rcgen::ExtendedKeyUsagePurpose::ServerAuth);
    let certificate = parameters.signed_by(&key, &issuer).expect("a certificate");
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).expect("a file");
    write("ca.pem", authority_certificate.pem());
    write("cert.pem", certificate.pem());
    write("key.pem", key.serialize_pem());
}
