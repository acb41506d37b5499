//! Sinks for the alerts of the watch: e-mail and webhooks.
//!
//! - [`mail`]: SMTP. [`hook`]: an HTTP POST. [`HookForm`]: what its body is.
//! - `text.rs`: a message in words, of which no part may have a line break. `template.rs`: bodies of other systems, safe by
//!   construction. `sign.rs`: signatures. `answer.rs`: what an answer means.
//!
//! When to send, and again, is decided by [`tidegate::watch::alerts`].

mod answer;
mod hook;
mod mail;
mod sign;
mod template;
mod text;

use std::sync::Arc;

use tidegate::watch::Severity;
use tidegate::watch::alerts::AlertSink;

pub use answer::CodeField;
pub use hook::{HookForm, HookOptions};
pub use mail::MailOptions;
pub use sign::Signature;
pub use template::{FIELDS, Template};

/// What every sink has.
#[derive(Debug, Clone)]
pub struct SinkOptions {
    /// Its name in logs, metrics and the kept state.
    pub name: String,
    /// The least severity that it hears of.
    pub least: Severity,
    /// The authority (PEM) that its server's certificate is held against instead of the system's.
    pub authority: Option<Vec<u8>>,
}

/// A sink that sends e-mail.
///
/// # Errors
/// What is wrong with the options, without any secret.
pub fn mail(sink: SinkOptions, options: MailOptions) -> Result<Arc<dyn AlertSink>, String> {
    Ok(Arc::new(mail::Mail::new(sink, options)?))
}

/// A sink that calls a webhook.
///
/// # Errors
/// What is wrong with the options, without any secret.
pub fn hook(sink: SinkOptions, options: HookOptions) -> Result<Arc<dyn AlertSink>, String> {
    Ok(Arc::new(hook::Hook::new(sink, options)?))
}
