//! Signatures of webhooks: Standard Webhooks, and what DingTalk and Feishu ask of their callers. All are HMAC-SHA-256 (RFC 2104)
//! in base64.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a key of Standard Webhooks.
const KEY: std::ops::RangeInclusive<usize> = 24..=64;

/// How a webhook proves where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signature {
    /// Headers over id, time and body: <https://www.standardwebhooks.com>.
    Standard,
    /// Time and signature in the query.
    DingTalk,
    /// Time and signature in the body.
    Feishu,
}

/// A secret that is ready for use. It is never shown.
pub(super) enum Signer {
    /// One key, or two while the receiver changes from one to the other.
    Standard(Vec<Vec<u8>>),
    DingTalk(String),
    Feishu(String),
}

impl Signer {
    /// Reads `secret`.
    pub(super) fn new(signature: Signature, secret: &str) -> Result<Self, String> {
        Ok(match signature {
            Signature::Standard => Signer::Standard(keys(secret)?),
            Signature::DingTalk => Signer::DingTalk(secret.to_owned()),
            Signature::Feishu => Signer::Feishu(secret.to_owned()),
        })
    }
}

fn keys(secret: &str) -> Result<Vec<Vec<u8>>, String> {
    let key = |text: &str| {
        let key = BASE64_STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).ok();
        key.filter(|key| KEY.contains(&key.len()))
    };
    let keys: Option<Vec<_>> = secret.split_whitespace().map(key).collect();
    keys.filter(|keys| (1..=2).contains(&keys.len())).ok_or_else(|| {
        "the secret of a signed webhook is whsec_ and 24 to 64 bytes in base64 (make one with: echo whsec_$(openssl rand -base64 32)), \
         or two of them with a blank between while it is changed"
            .to_owned()
    })
}

fn mac(key: &[u8], parts: &[&[u8]]) -> String {
    let mut mac: Hmac<Sha256> = Hmac::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    BASE64_STANDARD.encode(mac.finalize().into_bytes())
}

/// The header `webhook-signature`: one signature a key.
pub(super) fn standard(keys: &[Vec<u8>], id: &str, seconds: i64, body: &[u8]) -> String {
    let head = format!("{id}.{seconds}.");
    let one = |key: &Vec<u8>| format!("v1,{}", mac(key, &[head.as_bytes(), body]));
    keys.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// The value `sign` of DingTalk's query, not yet encoded for it.
pub(super) fn dingtalk(secret: &str, milliseconds: i64) -> String {
    mac(secret.as_bytes(), &[format!("{milliseconds}\n{secret}").as_bytes()])
}

/// The member `sign` of Feishu's body.
pub(super) fn feishu(secret: &str, seconds: i64) -> String {
    mac(format!("{seconds}\n{secret}").as_bytes(), &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    // The first is the example of the specification, the others were computed by Python's `hmac` after the vendors' descriptions.
    #[test]
    fn signatures_are_those_that_were_documented() {
        let keys = keys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let sign = standard(&keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(sign, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(dingtalk("SEC0123456789", 1_577_262_236_757), "MSVzkwUcS5b8OZ58bd/lQlRKGAq0T5acHXSZMzn4Ieg=");
        assert_eq!(feishu("demo", 1_599_360_473), "l1N0gAcBjdwBvGm1xMjOF0XSyaLRpR7tuO5dHfhAYc8=");
    }

    #[test]
    fn secrets_are_checked() {
        let key = BASE64_STANDARD.encode([7; 32]);
        assert_eq!(keys(&key).unwrap(), [[7; 32]]);
        assert_eq!(keys(&format!("whsec_{key} whsec_{key}")).unwrap().len(), 2);
        let three = [key.as_str(); 3].join(" ");
        for wrong in ["", "whsec_", "secret!", "c2hvcnQ=", three.as_str()] {
            let fault = keys(wrong).unwrap_err();
            assert!(fault.contains("openssl rand") && (wrong.len() < 7 || !fault.contains(wrong)), "{fault}");
        }
    }
}
