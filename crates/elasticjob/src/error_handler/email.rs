//! `EMAIL` (Java: `EmailJobErrorHandler`).

use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};
use lettre::message::{Mailbox, MultiPart, SinglePart};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};

use crate::contract::{JobResult, Messenger, Props, error_text};

const HOST: &str = "props.email.host";
const PORT: &str = "props.email.port";
const USERNAME: &str = "props.email.username";
const PASSWORD: &str = "props.email.password";
const FROM: &str = "props.email.from";
const TO: &str = "props.email.to";
const CC: &str = "props.email.cc";
const BCC: &str = "props.email.bcc";
const SUBJECT: &str = "props.email.subject";
/// the connection uses TLS from the start (implicit TLS, usual on port 465) on; without it, plain SMTP.
const USE_SSL: &str = "props.email.useSsl";
/// Hosts whose certificate is not checked, by commas; `*` for all.
const TRUST: &str = "props.email.ssl.trust";
const DEBUG: &str = "props.email.debug";
/// Without `email.useSsl`: begins without TLS, and switches to TLS before anything is sent.
const STARTTLS: &str = "props.elasticjob.email.starttls";
/// Permits to send the password without TLS.
const PLAIN_PASSWORD: &str = "props.elasticjob.email.plain.password";
/// A file with a certificate (PEM) that is trusted beside the system's.
const CA_FILE: &str = "props.elasticjob.email.ca.file";

/// Longest wait for an answer of the server.
const ANSWER_MAX: Duration = Duration::from_secs(10);

pub(super) struct Email;

/// The properties, checked.
struct Settings {
    host: String,
    port: u16,
    credentials: Option<Credentials>,
    from: Option<Mailbox>,
    to: Vec<Mailbox>,
    cc: Vec<Mailbox>,
    bcc: Vec<Mailbox>,
    subject: String,
    encryption: Encryption,
    check_certificate: bool,
    ca_file: Option<String>,
    debug: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Encryption {
    None,
    StartTls,
    FromTheStart,
}

impl Settings {
    fn read(props: &mut Props<'_>) -> Settings {
        let host = props.required(HOST, "the host of an SMTP server").to_owned();
        let port = if props.given(PORT).is_some() {
            props.number(PORT, 1..=65_535, 0)
        } else {
            props.fault(PORT, "expected the port of the SMTP server, such as 465".into());
            0
        };
        for (key, what) in [(USERNAME, "a user"), (PASSWORD, "a password")] {
            if props.given(key).is_none() {
                props.fault(key, format!("expected {what}, or an empty string if the server requires no login"));
            }
        }
        let username = props.text(USERNAME).unwrap_or_default().to_owned();
        let password = props.text(PASSWORD).unwrap_or_default().to_owned();
        props.required(FROM, "an address");
        props.required(TO, "addresses, separated by commas");
        let encryption = match (props.flag(USE_SSL, true), props.flag(STARTTLS, false)) {
            (true, true) => {
                props.fault(STARTTLS, "STARTTLS requires `email.useSsl: false`".into());
                Encryption::FromTheStart
            }
            (true, false) => Encryption::FromTheStart,
            (false, true) => Encryption::StartTls,
            (false, false) => Encryption::None,
        };
        let is_local =
            host.eq_ignore_ascii_case("localhost") || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let is_exposed = encryption == Encryption::None && !password.is_empty() && !is_local;
        if is_exposed && !props.flag(PLAIN_PASSWORD, false) {
            let text = "the password would be sent without encryption; set it to true, or `elasticjob.email.starttls` to true; \
                        `elasticjob.email.plain.password: true` permits it";
            props.fault(USE_SSL, text.into());
        }
        let trusted = |name: &str| name == "*" || name.eq_ignore_ascii_case(&host);
        let check_certificate = !props.text(TRUST).unwrap_or_default().split([',', ' ']).any(trusted);
        let ca_file = props.text(CA_FILE).map(str::to_owned);
        if let Some(Err(reason)) = ca_file.as_deref().map(certificate) {
            props.fault(CA_FILE, format!("expected a file with a certificate: {reason}"));
        }
        Settings {
            host,
            port: u16::try_from(port).unwrap_or_default(),
            credentials: (!username.is_empty()).then(|| Credentials::new(username, password)),
            from: mailboxes(props, FROM).pop(),
            to: mailboxes(props, TO),
            cc: mailboxes(props, CC),
            bcc: mailboxes(props, BCC),
            subject: props.text(SUBJECT).unwrap_or("ElasticJob error message").to_owned(),
            encryption,
            check_certificate,
            ca_file,
            debug: props.flag(DEBUG, false),
        }
    }

    fn message(&self, text: &str) -> Result<Message, String> {
        let mut message = Message::builder().subject(&self.subject);
        message = message.from(self.from.clone().ok_or("no sender")?);
        message = self.to.iter().fold(message, |message, to| message.to(to.clone()));
        message = self.cc.iter().fold(message, |message, cc| message.cc(cc.clone()));
        message = self.bcc.iter().fold(message, |message, bcc| message.bcc(bcc.clone()));
        let part = SinglePart::html(format!("<pre>{}</pre>", escaped(text)));
        message.multipart(MultiPart::mixed().singlepart(part)).map_err(|e| error_text(&e))
    }

    fn transport(&self) -> Result<AsyncSmtpTransport<Tokio1Executor>, String> {
        let mut transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&self.host)
            .port(self.port)
            .timeout(Some(ANSWER_MAX));
        if self.encryption != Encryption::None {
            let mut tls = TlsParameters::builder(self.host.clone());
            if !self.check_certificate {
                tls = tls.dangerous_accept_invalid_certs(true).dangerous_accept_invalid_hostnames(true);
            }
            if let Some(file) = &self.ca_file {
                tls = tls.add_root_certificate(certificate(file)?);
            }
            let tls = tls.build().map_err(|e| error_text(&e))?;
            transport = transport.tls(match self.encryption {
                Encryption::FromTheStart => Tls::Wrapper(tls),
                Encryption::StartTls | Encryption::None => Tls::Required(tls),
            });
        }
        if let Some(credentials) = &self.credentials {
            transport = transport.credentials(credentials.clone());
        }
        Ok(transport.build())
    }
}

fn certificate(file: &str) -> Result<Certificate, String> {
    let text = std::fs::read(file).map_err(|e| e.to_string())?;
    Certificate::from_pem(&text).map_err(|e| error_text(&e))
}

fn mailboxes(props: &mut Props<'_>, key: &'static str) -> Vec<Mailbox> {
    let mut found = Vec::new();
    for text in props.text(key).unwrap_or_default().split(',').map(str::trim).filter(|t| !t.is_empty()) {
        match text.parse() {
            Ok(mailbox) => found.push(mailbox),
            Err(error) => {
                props.fault(key, format!("`{text}` is not an email address ({error}); example: ops@example.com"))
            }
        }
    }
    found
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Messenger for Email {
    fn name(&self) -> &str {
        "EMAIL"
    }

    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let mut props = Props::of(config);
        Settings::read(&mut props);
        props.into_faults()
    }

    async fn send(&self, config: &JobConfig, message: &str) -> JobResult {
        let settings = Settings::read(&mut Props::of(config));
        let message = settings.message(message)?;
        if settings.debug {
            let (host, port, envelope) = (&settings.host, settings.port, message.envelope());
            let to = envelope.to().iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let from = envelope.from().map(ToString::to_string);
            tracing::info!(job = config.name, mail_server = format_args!("{host}:{port}"), from, to, "sending mail");
        }
        settings.transport()?.send(message).await.map(drop).map_err(|e| error_text(&e).into())
    }
}

#[cfg(test)]
mod tests {
    use elasticjob_core::wire::JobDocument;

    use super::*;

    #[test]
    fn a_password_is_not_sent_without_encryption_to_another_host_unless_the_job_permits_it() {
        for (host, ssl, starttls, permitted, password, refused) in [
            ("mail.example", "true", "false", "false", "p", false),
            ("mail.example", "false", "true", "false", "p", false),
            ("mail.example", "false", "false", "false", "p", true),
            ("mail.example", "false", "false", "true", "p", false),
            ("mail.example", "false", "false", "false", "", false),
            ("127.0.0.1", "false", "false", "false", "p", false),
            ("localhost", "false", "false", "false", "p", false),
        ] {
            let mut document = JobDocument::new("a", 1);
            for (key, value) in [
                ("email.host", host),
                ("email.port", "25"),
                ("email.username", "u"),
                ("email.password", password),
                ("email.from", "a@b.example"),
                ("email.to", "c@d.example"),
                ("email.useSsl", ssl),
                ("elasticjob.email.starttls", starttls),
                ("elasticjob.email.plain.password", permitted),
            ] {
                document.props.insert(key.into(), value.into());
            }
            let config = JobConfig::check(&document, &crate::clock::zone).expect("right");
            let faults = Email.check(&config);
            assert_eq!(faults.len(), usize::from(refused), "{host} {ssl} {starttls} {permitted}: {faults:?}");
            if refused {
                assert!(faults[0].to_string().contains("the password would be sent without encryption"), "{faults:?}");
            }
        }
    }
}
