//! Settings, one by one.

use redis::aio::MultiplexedConnection;
use tidegate_backend::{Error, ErrorKind, Result};
use tidegate_core::doctor::{Step, holds, is_safe};
use tidegate_core::watch::Info;

use super::{in_words, patient};
use crate::asks::{all, command};
use crate::connect::{Host, RedisOptions, RedisResult, connect_for_waiting};
use crate::watch::parse::{setting, text};

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The step.
    pub step: Step,
    /// What became of it.
    pub outcome: Outcome,
    /// The file that the server was started with; `None`: there is none, so that the setting is lost with a restart.
    pub config_file: Option<String>,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is set, and reads so.
    Set,
    /// It was no longer safe, and nothing was done.
    Refused(String),
    /// The server did not do it.
    Failed(String),
}

impl Outcome {
    /// Its name in answers.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Set => "set",
            Outcome::Refused(_) => "refused",
            Outcome::Failed(_) => "failed",
        }
    }
}

/// Takes steps in their order, each with a look at the server before and after it. What fails is told for each; the others are
/// taken nevertheless, but no limit where the policy that should act at it could not be set.
///
/// # Errors
/// [`ErrorKind::Configuration`]: a step names no address.
pub async fn apply(options: &RedisOptions, steps: &[Step]) -> Result<Vec<Applied>> {
    let options = patient(options);
    let mut applied: Vec<Applied> = Vec::with_capacity(steps.len());
    for step in steps {
        let has_failed = |done: &&Applied| done.step.address == step.address && done.outcome != Outcome::Set;
        let no_policy = applied.iter().filter(has_failed).any(|done| done.step.change.name == "maxmemory-policy");
        let (outcome, config_file) = if no_policy && step.change.name == "maxmemory" {
            (Outcome::Refused("the policy that acts at this limit could not be set".to_owned()), None)
        } else {
            let host = host_of(&step.address)?;
            take(&options, &host, step).await.unwrap_or_else(|e| (Outcome::Failed(in_words(&e)), None))
        };
        applied.push(Applied { step: step.clone(), outcome, config_file });
    }
    Ok(applied)
}

fn host_of(address: &str) -> Result<Host> {
    let host = address.rsplit_once(':').and_then(|(name, port)| {
        Some(Host { name: name.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()? })
    });
    host.ok_or_else(|| Error::new(ErrorKind::Configuration, format!("{address} is no address; it must be host:port")))
}

async fn take(options: &RedisOptions, host: &Host, step: &Step) -> RedisResult<(Outcome, Option<String>)> {
    let mut connection = connect_for_waiting(options, host, options.response_timeout).await?;
    let name = step.change.name.as_str();
    let (info, now) = read(&mut connection, name).await?;
    let config_file = info.text("config_file").filter(|file| !file.is_empty()).map(str::to_owned);
    let outcome = match is_safe(&step.change, &info, &now) {
        Err(why) => Outcome::Refused(why),
        Ok(()) => {
            command(&["CONFIG", "SET", name, &step.change.to]).query_async::<()>(&mut connection).await?;
            let (_, now) = read(&mut connection, name).await?;
            if holds(name, &step.change.to, &now) {
                Outcome::Set
            } else {
                Outcome::Failed(format!("the server said yes, and it reads {now}"))
            }
        }
    };
    Ok((outcome, config_file))
}

async fn read(connection: &mut MultiplexedConnection, name: &str) -> RedisResult<(Info, String)> {
    let answers = all(connection, &[command(&["INFO"]), command(&["CONFIG", "GET", name])]).await?;
    let mut answers = answers.into_iter();
    let mut next = || answers.next().unwrap_or(Ok(redis::Value::Nil));
    let (info, value) = (next()?, next()?);
    Ok((Info::parse(&text(&info)), setting(&value, name).unwrap_or_default()))
}
