//! `WECHAT` and `DINGTALK`: messages to the robot of a group (Java: `WechatJobErrorHandler`, `DingtalkJobErrorHandler`).

use aws_lc_rs::hmac;
use base64::Engine;
use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::time::Timestamp;
use elasticjob_core::wire::json_text;
use reqwest::Url;
use reqwest::header::CONTENT_TYPE;

use crate::clock;
use crate::contract::{JobResult, Messenger, Props, error_text};
use crate::web::{self, Clients, Connecting};

/// The properties of one of the two, by their keys.
#[derive(Debug)]
struct Keys {
    name: &'static str,
    webhook: &'static str,
    connect_timeout: &'static str,
    read_timeout: &'static str,
    /// What DingTalk alone has: a word that the message must begin with, and a secret to sign it.
    keyword_and_secret: Option<(&'static str, &'static str)>,
}

const WECHAT: Keys = Keys {
    name: "WECHAT",
    webhook: "props.wechat.webhook",
    connect_timeout: "props.wechat.connectTimeoutMilliseconds",
    read_timeout: "props.wechat.readTimeoutMilliseconds",
    keyword_and_secret: None,
};

const DINGTALK: Keys = Keys {
    name: "DINGTALK",
    webhook: "props.dingtalk.webhook",
    connect_timeout: "props.dingtalk.connectTimeoutMilliseconds",
    read_timeout: "props.dingtalk.readTimeoutMilliseconds",
    keyword_and_secret: Some(("props.dingtalk.keyword", "props.dingtalk.secret")),
};

/// One of the two.
pub(super) struct WebHook {
    keys: &'static Keys,
    clients: Clients,
}

/// Its properties, checked.
struct Settings {
    webhook: Option<Url>,
    connecting: Connecting,
    keyword: String,
    secret: Option<String>,
}

impl WebHook {
    pub(super) fn wechat(clients: &Clients) -> WebHook {
        WebHook { keys: &WECHAT, clients: clients.clone() }
    }

    pub(super) fn dingtalk(clients: &Clients) -> WebHook {
        WebHook { keys: &DINGTALK, clients: clients.clone() }
    }

    fn read(&self, props: &mut Props<'_>) -> Settings {
        let keys = self.keys;
        let text = |key: Option<&'static str>| key.and_then(|key| props.text(key)).map(str::to_owned);
        let keyword = text(keys.keyword_and_secret.map(|(keyword, _)| keyword)).unwrap_or_default();
        let secret = text(keys.keyword_and_secret.map(|(_, secret)| secret));
        Settings {
            webhook: web::address(props, keys.webhook),
            connecting: Connecting::read(props, keys.connect_timeout, keys.read_timeout),
            keyword,
            secret,
        }
    }
}

impl Messenger for WebHook {
    fn name(&self) -> &str {
        self.keys.name
    }

    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let mut props = Props::of(config);
        self.read(&mut props);
        web::check_certificates(&mut props);
        props.into_faults()
    }

    async fn send(&self, config: &JobConfig, message: &str) -> JobResult {
        let settings = self.read(&mut Props::of(config));
        let mut url = settings.webhook.ok_or("the webhook address is missing or invalid")?.to_string();
        if let Some(secret) = &settings.secret {
            url = signed(&url, secret, clock::now());
        }
        let body = body(&format!("{}{message}", settings.keyword));
        let request = self.clients.get(&settings.connecting)?.post(url);
        let request = request.header(CONTENT_TYPE, "application/json; charset=utf-8").body(body);
        // The address has the access token: no error may tell it.
        let response = request.send().await.map_err(|e| error_text(&e.without_url()))?;
        let status = response.status();
        let answer = web::body(response, &settings.connecting, &config.name, None).await?;
        if status != reqwest::StatusCode::OK {
            return Err(format!("status {status}: {}", web::start_of(&answer)).into());
        }
        Ok(judge(&answer)?)
    }
}

fn body(content: &str) -> String {
    format!(r#"{{"msgtype":"text","text":{{"content":{}}}}}"#, json_text(content))
}

/// The address with the moment and the signature that DingTalk asks for.
fn signed(webhook: &str, secret: &str, now: Timestamp) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{}\n{secret}", now.0).as_bytes());
    let sign = base64::engine::general_purpose::STANDARD.encode(tag);
    let sign: String = url::form_urlencoded::byte_serialize(sign.as_bytes()).collect();
    let joint = if webhook.contains('?') { '&' } else { '?' };
    format!("{webhook}{joint}timestamp={}&sign={sign}", now.0)
}

/// Both services answer with status 200 also when they refuse.
fn judge(answer: &str) -> Result<(), String> {
    let json: serde_json::Value = serde_json::from_str(answer)
        .map_err(|_| format!("unexpected answer of the service: {}", web::start_of(answer)))?;
    match (json["errcode"].as_i64(), json["errmsg"].as_str()) {
        (Some(0), _) => Ok(()),
        (Some(code), message) => {
            Err(format!("the service rejected the message: {code} {}", message.unwrap_or_default()))
        }
        (None, _) => Err(format!("unexpected answer of the service: {}", web::start_of(answer))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_and_body_equal_java() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../elasticjob-core/tests/vectors/error_handlers.json");
        let text = std::fs::read_to_string(path).expect("vectors");
        let vectors: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for case in vectors["dingtalk_signature"].as_array().expect("cases") {
            let field = |name: &str| case[name].as_str().expect("text");
            let now = Timestamp(case["timestamp_ms"].as_i64().expect("a number"));
            assert_eq!(signed(field("webhook"), field("secret"), now), field("url"));
        }
        for case in vectors["webhook_body"].as_array().expect("cases") {
            assert_eq!(body(case["content"].as_str().expect("text")), case["body"].as_str().expect("text"));
        }
    }

    #[test]
    fn an_answer_counts_only_with_errcode_0() {
        assert_eq!(judge(r#"{"errcode":0,"errmsg":"ok"}"#), Ok(()));
        let refused = judge(r#"{"errcode":310000,"errmsg":"sign not match"}"#);
        assert_eq!(refused, Err("the service rejected the message: 310000 sign not match".into()));
        assert_eq!(judge("<html>"), Err("unexpected answer of the service: <html>".into()));
        assert_eq!(judge(r#"{"ok":true}"#), Err(r#"unexpected answer of the service: {"ok":true}"#.into()));
    }
}
